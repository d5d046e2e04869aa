"""The bytes of a text table as UTF-8: decompressed, decoded, and their quotes checked.

Rows are lost without a word where a quote is never closed, so every quote is checked.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import lzma
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from .table_errors import TableFileError, load_arrow

_CHUNK = 1 << 20
_LONGEST_ENTRY = 1 << 27
_ZSTANDARD = b"\x28\xb5\x2f\xfd"
_OPENERS: dict[bytes, Any] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # begins like that of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_QUOTE = ord('"')


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file, decompressed if it begins as gzip, xz, bzip2 or Zstandard does."""
    with path.open("rb") as file:
        start = file.read(6)
    if start.startswith(_ZSTANDARD):
        pa = load_arrow()
        found: IO[bytes] = pa.CompressedInputStream(pa.OSFile(str(path)), "zstd")
        return found
    for magic, opener in _OPENERS.items():
        if start.startswith(magic):
            opened: IO[bytes] = opener(path, "rb")
            return opened
    return path.open("rb")


def read_start(path: Path, size: int) -> tuple[bytes, bool]:
    """Return the first bytes of a file, and whether that is all of it."""
    with unreadable(path.name), open_bytes(path) as file:
        parts, found = [], 0
        while found <= size and (part := file.read(size + 1 - found)):
            parts.append(bytes(part))
            found += len(part)
    sample = b"".join(parts)
    return sample[:size], len(sample) <= size


class unreadable:  # noqa: N801 - used like contextlib.suppress
    """Turn the errors of an operating system or a decompressor into ours.

    Their own texts have paths.
    """

    def __init__(self, file: str) -> None:
        self.file = file

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Say which file it is, and what to do."""
        if isinstance(error, FileNotFoundError):
            problem = "there is no such file. Check the name and the folder."
        elif isinstance(error, IsADirectoryError):
            problem = "this is a folder, not a file. Name one table file."
        elif isinstance(error, PermissionError):
            problem = "there is no permission to read the file. Change its permissions."
        elif isinstance(error, EOFError | OSError | lzma.LZMAError):
            problem = "the file is damaged or incomplete. Copy it again."
        else:
            return
        raise TableFileError(self.file, problem) from None


def detect_encoding(sample: bytes, file: str) -> str:
    """Return the encoding of a text file.

    Raises
    ------
    TableFileError
        If it is not a text file.
    """
    for bom, encoding in _BOMS:
        if sample.startswith(bom):
            return encoding
    if b"\0" in sample:
        encoding = "utf-16-le" if b"\0" in sample[1::2] else "utf-16-be"
        empty = sample[1::2] if encoding.endswith("le") else sample[::2]
        if sample.count(b"\0") == empty.count(b"\0") > len(sample) // 3:
            return encoding
        raise TableFileError(file, _NUL)
    for encoding in ("utf-8", "cp1252"):
        try:
            codecs.getincrementaldecoder(encoding)().decode(sample)
        except UnicodeDecodeError:
            continue
        return encoding
    raise TableFileError(
        file,
        "the file is neither UTF-8 nor Windows-1252. If it is text, set the option "
        'encoding, as in encoding = "cp1250"; otherwise export the table as CSV or '
        "Parquet.",
    )


class Utf8Stream(io.RawIOBase):
    """The text of a file as UTF-8 without a byte order mark, its quotes checked.

    Parameters
    ----------
    path : Path
        The file.
    encoding : str
        Its encoding.
    delimiter : str
        What separates entries.
    """

    def __init__(self, path: Path, encoding: str, delimiter: str) -> None:
        self.path, self.encoding = path, encoding
        self._raw = open_bytes(path)
        self._quotes = QuoteCheck(path.name, delimiter)
        self._decoder: codecs.IncrementalDecoder | None = None
        if codecs.lookup(encoding).name != "utf-8":
            self._decoder = codecs.getincrementaldecoder(encoding)()
        self._ready, self._at_start, self._at_end = bytearray(), True, False

    def readable(self) -> bool:
        """Return True."""
        return True

    def close(self) -> None:
        """Close the file."""
        self._raw.close()
        super().close()

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes: as many as `size`, and fewer only at the end.

        A line must be in one such piece for pyarrow.
        """
        while not self._at_end and (size < 0 or len(self._ready) < size):
            self._ready += self._next()
        found = bytes(self._ready if size < 0 else self._ready[:size])
        del self._ready[: len(found)]
        return found

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer, for Python's own text streams."""
        found = self.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def _next(self) -> bytes:
        with unreadable(self.path.name):
            chunk = bytes(self._raw.read(_CHUNK))
        self._at_end = not chunk
        if self._decoder is not None:
            try:
                chunk = self._decoder.decode(chunk, final=self._at_end).encode()
            except UnicodeError:
                raise encoding_error(self.path.name, self.encoding) from None
        if self._at_start and chunk:
            self._at_start = False
            chunk = chunk.removeprefix(codecs.BOM_UTF8)
        if b"\0" in chunk:
            raise TableFileError(self.path.name, _NUL)
        self._quotes.add(chunk, self._at_end)
        return chunk


class QuoteCheck:
    """Whether every quote opens after a delimiter and closes before one.

    Every second quote opens. A doubled one inside an entry closes and opens it at once,
    so that a quote is beside each of the two.
    """

    def __init__(self, file: str, delimiter: str) -> None:
        self.file = file
        self._beside = np.frombuffer(f'{delimiter}\r\n"'.encode(), np.uint8)
        self._n_quotes, self._n_lines, self._opened = 0, 1, 1
        self._tail = b"\n"  # a byte that was checked, and one whose follower is unknown

    def add(self, chunk: bytes, at_end: bool) -> None:
        """Check the next bytes; at the end, that every quote is closed."""
        window = self._tail + chunk + b"\n" * at_end
        if b'"' in window:
            self._check(window)
        if at_end and self._n_quotes % 2:
            self._refuse(self._opened)
        self._n_lines += chunk.count(b"\n")
        self._tail = window[-2:]

    def _check(self, window: bytes) -> None:
        codes = np.frombuffer(window, np.uint8)
        quotes = np.flatnonzero(codes[1:-1] == _QUOTE) + 1
        opens = (self._n_quotes + np.arange(len(quotes))) % 2 == 0
        beside = codes[np.where(opens, quotes - 1, quotes + 1)]
        wrong = np.flatnonzero(~np.isin(beside, self._beside))
        end = wrong[0] + 1 if len(wrong) else len(quotes)
        # The line of the last quote that opens: what is wrong began there.
        if opens[:end].any():
            last = int(quotes[:end][opens[:end]][-1])
            self._opened = self._n_lines + window.count(b"\n", len(self._tail), last)
        if len(wrong):
            self._refuse(self._opened)
        self._n_quotes += len(quotes)

    def _refuse(self, line: int) -> None:
        raise TableFileError(
            self.file,
            f"a quote in line {line} is not closed, or stands inside an entry. Close "
            'it, and write an entry with quotes in it as "5"" pipe", as spreadsheets '
            "and pandas export it.",
        )


_NUL = (
    "the file has NUL bytes, so it is not a text file, or it is damaged. Export the "
    "table again as CSV or Parquet."
)


def encoding_error(file: str, encoding: str) -> TableFileError:
    """Return the error for text that is not in its encoding."""
    return TableFileError(
        file,
        f"the file is not {encoding} throughout. Set the option encoding, as in "
        'encoding = "cp1252", or save the file as UTF-8.',
    )


def text_rows(
    path: Path, encoding: str, delimiter: str
) -> Iterator[tuple[int, list[str]]]:
    """Return every row that is not blank, and the line that it begins in.

    Slow: for telling where something is wrong only.
    """
    with Utf8Stream(path, encoding, delimiter) as stream:
        lines = io.TextIOWrapper(
            io.BufferedReader(stream), encoding="utf-8", errors="replace", newline=""
        )
        yield from numbered_rows(lines, delimiter)


def numbered_rows(
    lines: Iterable[str], delimiter: str
) -> Iterator[tuple[int, list[str]]]:
    """Return every row that is not blank, and the line that it begins in."""
    line = 1
    reader = csv.reader(lines, delimiter=delimiter)
    limit = csv.field_size_limit(_LONGEST_ENTRY)  # of all readers; 128 kB by default
    try:
        for row in reader:
            if not is_blank(row):
                yield line, row
            line = reader.line_num + 1
    finally:
        csv.field_size_limit(limit)


def is_blank(row: list[str]) -> bool:
    """Whether a row is an empty line, or one of white space."""
    return not row or (len(row) == 1 and not row[0].strip())
