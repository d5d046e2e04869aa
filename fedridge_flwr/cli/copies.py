"""Whether two sites of a rehearsal have the same rows: a copy would count twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import file_digest, sha256

from ..data.local_table import table_of_file
from ..data.site_files import SiteFile
from ..data.table_values import level_text
from ..errors import FedRidgeError

_FEWEST, _MOST = 5, 200_000
"""Fewer rows are equal by chance; to compare more of other files takes too long."""


def copies(files: Sequence[SiteFile]) -> Iterator[tuple[str, str]]:
    """Yield pairs of sites with the same rows, in any order and any format of files.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> rows = [f"{k},{k * k}" for k in range(9)]
    >>> for name, lines in {"a": rows, "b": rows[::-1], "c": rows[1:]}.items():
    ...     _ = (folder / f"{name}.csv").write_text(chr(10).join(["x,y", *lines]))
    >>> from fedridge_flwr.data.site_files import find_site_files
    >>> list(copies(find_site_files(folder)))
    [('a', 'b')]
    """
    seen: dict[bytes, str] = {}
    for file in files:
        with suppress(FedRidgeError, OSError):  # its own error says why
            found = [_bytes(file), _rows(file)]
            first = next((seen[each] for each in found if each in seen), None)
            if first is not None and first != file.name:
                yield first, file.name
            for each in found:
                seen.setdefault(each, file.name)


def copy_text(first: str, second: str) -> str:
    """Return what is asked about two sites with the same rows."""
    return f"{first} and {second} have the same rows: is this a copy?"


def _bytes(file: SiteFile) -> bytes:
    """Return a checksum of a file, with the part of it that belongs to the site."""
    with file.path.open("rb") as opened:
        return sha256(
            file_digest(opened, "sha256").digest() + repr(file.where).encode()
        ).digest()


def _rows(file: SiteFile) -> bytes:
    """Return a checksum of the rows in a table, in whatever order they are."""
    table, rows = table_of_file(file.open()), []
    # The column that tells sites apart is never the same.
    apart = {file.where[0]} if file.where is not None else set()
    names = sorted(set(table.names) - apart)
    for part in table.parts(names):
        columns = (level_text(part[name]).to_pylist() for name in names)
        rows += [repr(row) for row in zip(*columns, strict=True)]
        if len(rows) > _MOST:
            break
    if not _FEWEST <= len(rows) <= _MOST:
        return sha256(repr((str(file.path), file.where)).encode()).digest()
    return sha256(repr((names, sorted(rows))).encode()).digest()
