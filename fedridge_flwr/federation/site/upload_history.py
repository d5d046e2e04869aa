"""`UploadHistory`: which rows a site has sent statistics of, as keyed hashes.

The difference of two uploads is the statistics of the rows in which they differ: of one
row, if that is one. So a new upload is compared with every earlier one.
"""

import contextlib
import hashlib
import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..._files import connect
from ..._text import counted
from ...data.local_table import RowOrigin
from ...data.names import Columns, Names
from ...data.rows import Rows
from ...errors import PolicyError

RowBlocks: TypeAlias = NDArray[Any] | Iterable[NDArray[Any]]
Hashes: TypeAlias = NDArray[np.uint64]

_KEY_BYTES = 32
# Odd, so that equal rows get different hashes: first, second, third of their kind.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_SCHEMA = (
    "CREATE TABLE uploads (time TEXT NOT NULL, n_rows INTEGER NOT NULL, "
    "checksum TEXT NOT NULL, rows BLOB NOT NULL)"
)


class UploadHistory:
    """The uploads of a site, in a folder of its own.

    ``uploads.sqlite`` holds one sorted array of hashes for each different set of rows,
    ``uploads.key`` the key of the hashes, so that nobody can look a row up without it.
    Rows are the same if all their values are. A row that occurs twice counts twice.

    Parameters
    ----------
    folder : Path
        The folder. It must exist: a new history in place of one on a disk that is not
        mounted would know nothing.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> patients = np.arange(40.0).reshape(20, 2)
    >>> UploadHistory(folder).admit(patients, at_least=5)
    >>> UploadHistory(folder).admit(patients[::-1], at_least=5)  # in any order
    >>> UploadHistory(folder).admit(patients[1:], at_least=5)
    Traceback (most recent call last):
    fedridge_flwr.errors.PolicyError: declined by site policy: min_row_difference=5, \
but these rows differ from those of an earlier upload in 1 row.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "uploads.sqlite"
        self._key_file = folder / "uploads.key"

    def admit(self, blocks: RowBlocks, at_least: int) -> None:
        """Enter an upload before it is sent, or raise the reason not to send it.

        Parameters
        ----------
        blocks : ndarray or iterable of ndarray
            What identifies the rows: an array with one row, or one number, for each of
            them, or several such arrays one after the other.
        at_least : int
            In how many rows it must differ from an earlier upload, if it does.

        Raises
        ------
        PolicyError
            If it differs in fewer, or the history cannot be read or written.
        """
        parts = [blocks] if isinstance(blocks, np.ndarray) else blocks
        with self._opened() as (database, key):
            found = [hash_rows(part, key) for part in parts]
            rows = _told_apart(np.concatenate(found) if found else np.empty(0, "u8"))
            content = rows.astype("<u8").tobytes()
            known = "SELECT 1 FROM uploads WHERE checksum = ?"
            checksum = _checksum(content, key)
            if database.execute(known, [checksum]).fetchone():
                return
            for earlier in _earlier(database, key):
                common = np.intersect1d(rows, earlier, assume_unique=True).size
                # Added or gone, whichever is more: a row with a new value is both.
                differ = max(len(rows), len(earlier)) - common
                if differ < at_least:
                    raise PolicyError(
                        f"declined by site policy: min_row_difference={at_least}, but "
                        "these rows differ from those of an earlier upload in "
                        f"{counted(differ, 'row')}."
                    )
            now = datetime.now(UTC).isoformat(timespec="seconds")
            database.execute(
                "INSERT INTO uploads VALUES (?, ?, ?, ?)",
                (now, len(rows), checksum, content),
            )
            database.execute("COMMIT")

    @contextlib.contextmanager
    def _opened(self) -> Iterator[tuple[sqlite3.Connection, bytes]]:
        """Open the history, alone, and create it where there is none."""
        try:
            if not self._folder.is_dir():
                raise _unusable(f"there is no folder {self._folder}")
            if self._key_file.exists() and not self._file.exists():
                raise _unusable(f"{self._file} is missing")
            os.close(os.open(self._file, os.O_CREAT | os.O_RDWR, 0o600))
            with contextlib.closing(connect(self._file.absolute())) as database:
                database.execute("BEGIN IMMEDIATE")
                yield database, self._key(database)
        except (OSError, sqlite3.Error) as error:
            raise _unusable(f"{type(error).__name__}: {error}") from error

    def _key(self, database: sqlite3.Connection) -> bytes:
        """Return the key of the hashes; who has the lock creates what is new."""
        tables = database.execute("SELECT name FROM sqlite_master").fetchall()
        if self._key_file.exists():
            key = self._key_file.read_bytes()
            if len(key) != _KEY_BYTES or tables != [("uploads",)]:
                raise _unusable(f"{self._folder} is damaged: restore it from a copy")
            return key
        # The key comes last: without it, nothing has been sent yet.
        if tables and database.execute("SELECT * FROM uploads LIMIT 1").fetchone():
            raise _unusable(f"{self._key_file} is missing: restore it from a copy")
        if not tables:
            database.execute(_SCHEMA)
        database.execute("COMMIT")
        database.execute("BEGIN IMMEDIATE")
        if self._key_file.exists():  # another process was faster
            return self._key_file.read_bytes()
        key = secrets.token_bytes(_KEY_BYTES)
        beside = self._key_file.with_suffix(".new")
        beside.unlink(missing_ok=True)
        handle = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with open(handle, "wb") as file:
            file.write(key)
            file.flush()
            os.fsync(handle)
        os.replace(beside, self._key_file)
        return key


def hash_rows(block: Any, key: bytes) -> Hashes:
    """Return a keyed hash of each row of an array or a sparse matrix.

    Floating-point numbers are hashed as a sparse matrix of float64, whatever they are
    in: the same rows have the same hashes, dense or sparse.
    """
    if sparse.issparse(block) or np.asarray(block).dtype.kind == "f":
        contents = _float_contents(block)
    else:
        array = np.asarray(block)
        if array.dtype.kind not in "biu":
            raise PolicyError(
                f"rows cannot be identified by values of type {array.dtype}."
            )
        contents = (row.tobytes() for row in array.astype("<u8"))
    digests = b"".join(
        hashlib.blake2b(row, key=key, digest_size=8).digest() for row in contents
    )
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def identities(rows: Rows | None, origin: RowOrigin | None = None) -> RowBlocks:
    """Return what identifies rows: their tables' columns, else X, y and weights.

    Without rows, these are all rows of the table that they would be made from.
    """
    if origin is None or origin.identities is None:
        return () if rows is None else blocks_of(rows)
    own = origin.identities()
    if rows is None:
        return own
    if len(own) != rows.n_rows:
        raise PolicyError(
            f"declined by site policy: {len(own)} of {rows.n_rows} rows are identified."
        )
    return own if rows.weight is None else own[rows.weight > 0]


def blocks_of(rows: Rows) -> Iterator[Any]:
    """Yield what identifies rows of X, y and weights, whatever the order of columns."""
    features, targets = (
        None if names is None or names.known is None else Names.of(sorted(names.known))
        for names in (rows.schema.features, rows.schema.targets)
    )
    for block in rows.arranged(Columns(features, targets)).blocks():
        filled = np.flatnonzero(block.weights)
        rest = np.column_stack([block.Y, block.weights])[filled].astype(np.float64)
        X = block.X[filled]
        if sparse.issparse(X):
            yield sparse.hstack([X, rest], format="csr")
        else:
            yield np.column_stack([np.asarray(X, dtype=np.float64), rest])


def _float_contents(block: Any) -> Iterator[memoryview]:
    """Yield the bytes of the columns and values of each row, without zeros."""
    dense = block if sparse.issparse(block) else np.asarray(block)
    if dense.ndim == 1:
        dense = dense.reshape(-1, 1)
    matrix = sparse.csr_array(dense, dtype=np.float64, copy=True)
    matrix.eliminate_zeros()
    matrix.sort_indices()
    entries = np.empty(matrix.nnz, dtype=[("column", "<i8"), ("value", "<f8")])
    entries["column"] = matrix.indices
    # There are several kinds of NaN.
    entries["value"] = np.where(np.isnan(matrix.data), np.nan, matrix.data)
    content = memoryview(entries.tobytes())
    ends = entries.itemsize * matrix.indptr.astype(np.int64)
    for start, stop in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        yield content[start:stop]


def _told_apart(hashes: Hashes) -> Hashes:
    """Return sorted hashes in which rows that occur twice are two different ones."""
    ordered = np.sort(hashes)
    new = np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(ordered)]
    start = np.flatnonzero(new)
    which = np.arange(len(ordered)) - np.repeat(
        start, np.diff(np.append(start, len(ordered)))
    )
    return np.unique(ordered + which.astype(np.uint64) * _STEP)


def _earlier(database: sqlite3.Connection, key: bytes) -> Iterator[Hashes]:
    for checksum, content in database.execute("SELECT checksum, rows FROM uploads"):
        if _checksum(content, key) != checksum:
            raise _unusable(
                "an earlier upload is damaged, or the key is another: restore both "
                "from one copy"
            )
        yield np.frombuffer(content, dtype="<u8").astype(np.uint64)


def _checksum(content: bytes, key: bytes) -> str:
    return hashlib.blake2b(content, key=key, digest_size=32).hexdigest()


def _unusable(why: str) -> PolicyError:
    return PolicyError(
        f"declined by site policy: earlier uploads cannot be compared ({why})."
    )
