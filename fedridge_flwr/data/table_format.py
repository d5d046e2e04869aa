"""How a text table is written, from its first rows: delimiter, header, decimal mark.

What cannot be told is an error that says which option to give, never a guess.
"""

from __future__ import annotations

import codecs
import io
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .._text import counted
from .table_errors import TableFileError
from .table_options import MISSING, TableOptions
from .table_text import (
    QuoteCheck,
    detect_encoding,
    encoding_error,
    numbered_rows,
    read_start,
)
from .table_values import DATE, NUMBER

_SAMPLES = (1 << 18, 1 << 22, 1 << 26)  # larger ones for very long lines only
_DELIMITERS = (",", ";", "\t", "|")
_VALUE = re.compile(rf"{NUMBER}|[+-]?\d*,\d+|{DATE}|(?i:true|false)", re.ASCII)
_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?", re.ASCII)
_POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?", re.ASCII)
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+", re.ASCII)
POINTED_THOUSANDS = r"[+-]?[1-9]\d{0,2}(\.\d{3})+"
_POINTED = re.compile(POINTED_THOUSANDS, re.ASCII)
_MAGIC = (
    (b"PK\x03\x04", "an Excel workbook or a zip archive"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook"),
    (b"ARROW1", "an Arrow or Feather file"),
    (b"$FL", "an SPSS file"),
    (b"<stata_dta>", "a Stata file"),
    (b"\x89HDF", "an HDF5 file"),
    (b"SQLite format 3", "an SQLite database"),
    (b"%PDF", "a PDF"),
    (b"RDX", "an R data file"),
    (b"<!DOCTYPE", "a web page"),
    (b"<html", "a web page"),
)


@dataclass(frozen=True)
class TextFormat:
    """How a text table is written.

    Parameters
    ----------
    encoding, delimiter, decimal : str
        As in `TableOptions`.
    decimal_is_sure : bool
        Whether that is the decimal mark for certain: 1.234 may be a thousand, too.
    header : bool
        Whether the first row has names.
    names : tuple of str
        Names of all columns; "" for a column without one.
    has_rows : bool
        Whether there are rows below the header.
    row_bytes : int
        About how long a row is.
    blank_lines : int
        Lines without anything above the first row.
    """

    encoding: str
    delimiter: str
    decimal: str
    decimal_is_sure: bool
    header: bool
    names: tuple[str, ...]
    has_rows: bool
    row_bytes: int
    blank_lines: int


def detect_format(path: Path, options: TableOptions) -> TextFormat:
    """Return how a text table is written.

    Parameters
    ----------
    path : Path
        The file.
    options : TableOptions
        What is known of it.

    Raises
    ------
    TableFileError
        If it is not a text table, or if it could be read in several ways.
    """
    for size in _SAMPLES:
        sample, complete = read_start(path, size)
        found = _detect(path.name, sample, complete, options)
        if found is not None:
            return found
    raise TableFileError(
        path.name, "a line is longer than 64 MB, so this is not a table."
    )


def _detect(
    file: str, sample: bytes, complete: bool, options: TableOptions
) -> TextFormat | None:
    """Return the format, or None if the sample has no two rows and there is more."""
    for magic, what in _MAGIC:
        if sample.startswith(magic):
            raise TableFileError(
                file, f"this is {what}. Export the table as CSV or Parquet."
            )
    encoding = options.encoding or detect_encoding(sample, file)
    text = _decode(sample, encoding, complete, file)
    if not text.strip():
        raise TableFileError(file, "the file is empty. Export the table again.")
    if any(ord(c) < 32 and c not in "\t\n\r\f\x1a" for c in text[:10_000]):
        raise TableFileError(
            file, "this is not a text file. Export the table as CSV or Parquet."
        )
    given = [options.delimiter] if options.delimiter else _DELIMITERS
    QuoteCheck(file, "".join(given)).add(text.encode(), complete)
    tables = {delimiter: _rows(text, delimiter, complete) for delimiter in given}
    if not complete and any(len(rows) < 2 for rows in tables.values()):
        return None
    delimiter = _delimiter(file, tables, len(options.columns))
    rows = tables[delimiter]
    if len(tables) == 1 or len({len(row) for row in rows}) > 1:
        _check_title(file, tables)
    header = _header(file, rows, options)
    names = options.columns or _names(file, rows[0])
    if len(names) != len(rows[0]):
        raise TableFileError(
            file,
            f"the option columns has {len(names)} names, but the first row has "
            f"{len(rows[0])} entries. Name every column, in the order of the file.",
        )
    below = rows[header:]
    decimal, sure = _decimal(below)
    if options.decimal:
        decimal, sure = options.decimal, True
    sure |= delimiter == ","  # a program that writes points so separates by others
    longest = max(sum(map(len, row)) + len(row) for row in rows)
    first_line, _ = next(_numbered(text, delimiter))
    return TextFormat(
        *(encoding, delimiter, decimal, sure, header, names, bool(below), longest),
        blank_lines=first_line - 1,
    )


def clean_name(name: str) -> str:
    """Return a column name without white space, quotes and invisible marks around it.

    Examples
    --------
    >>> clean_name(' "age" ')
    'age'
    """
    name = unicodedata.normalize("NFC", name).strip().strip("\ufeff\u200b").strip()
    if len(name) > 1 and name[0] == name[-1] and name[0] in "\"'":
        name = name[1:-1].strip()
    return " ".join(name.split())


def check_names(file: str, names: Sequence[str]) -> None:
    """Refuse a header with one name twice."""
    first = {name: j for j, name in reversed(list(enumerate(names)))}
    twice = [j for j, name in enumerate(names) if name and first[name] != j]
    if twice:
        raise TableFileError(
            file,
            (
                "the name of {columns} is already used. Give every column a different "
                "name."
            ),
            twice,
            names,
        )


def _decode(sample: bytes, encoding: str, complete: bool, file: str) -> str:
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        return decoder.decode(sample, final=complete).removeprefix("\ufeff")
    except UnicodeError:
        raise encoding_error(file, encoding) from None


def _rows(text: str, delimiter: str, complete: bool) -> list[list[str]]:
    """Return the rows that are not blank, without a last one that is cut off."""
    rows = [row for _, row in _numbered(text, delimiter)]
    return rows if complete else rows[:-1]


def _numbered(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    return numbered_rows(io.StringIO(text, newline=""), delimiter)


def _delimiter(file: str, tables: dict[str, list[list[str]]], width: int) -> str:
    """Return the delimiter that gives all rows the same number of entries, above 1."""
    if len(tables) == 1:
        return next(iter(tables))
    fits = [
        delimiter
        for delimiter, rows in tables.items()
        if {len(row) for row in rows} == {width or len(rows[0])}
        and (width or len(rows[0]) > 1)
    ]
    if len(fits) == 1 or (fits and width == 1):
        return fits[0]
    if fits:
        raise TableFileError(
            file,
            f"entries could be separated by {' or '.join(map(repr, fits))}. Set the "
            "option delimiter.",
        )
    # Most rows as wide as the first; the others are named when they are read.
    share = {
        delimiter: sum(len(row) == len(rows[0]) for row in rows)
        for delimiter, rows in tables.items()
        if len(rows[0]) > 1
    }
    return max(share, key=share.__getitem__, default=",")


def _check_title(file: str, tables: dict[str, list[list[str]]]) -> None:
    """Refuse a file whose first line does not belong to the table below."""
    for rows in tables.values():
        below = {len(row) for row in rows[1:]}
        if len(rows) > 2 and len(below) == 1 and 1 < max(below) != len(rows[0]):
            raise TableFileError(
                file,
                f"the first line has {counted(len(rows[0]), 'column')}, all others "
                f"have {max(below)}. Remove a title above the header, name all columns "
                "in the header, or put numbers with a decimal comma in quotes.",
            )


def _header(file: str, rows: list[list[str]], options: TableOptions) -> bool:
    if options.header is not None:
        return options.header
    first = [clean_name(name) for name in rows[0]]
    has_values = any(_VALUE.fullmatch(name) or name in MISSING[1:] for name in first)
    if not options.columns:
        if not has_values:
            return True
        raise TableFileError(
            file,
            "the first line has numbers or missing markers, so it does not look like "
            "a header. Name the columns with the option columns, as in columns = "
            '["age", "sex"], or set header = true if these are names.',
        )
    if tuple(first) == options.columns:
        return True
    if not has_values and any(_is_value(entry) for row in rows[1:] for entry in row):
        raise TableFileError(
            file,
            "the first line looks like a header, but the option columns is given. Set "
            "header = true if columns should replace these names, header = false if "
            "the line is a row.",
        )
    return False


def _is_value(entry: str) -> bool:
    return _VALUE.fullmatch(entry.strip()) is not None


def _names(file: str, first: list[str]) -> tuple[str, ...]:
    names = tuple(map(clean_name, first))
    check_names(file, names)
    return names


def _decimal(rows: list[list[str]]) -> tuple[str, bool]:
    """Return "," only if numbers have it, and none has a point or separated thousands.

    A point is nearly always safe: a number with a comma is then none, and refused. But
    1.234 may be a thousand, unless a number with other digits says that it is not: also
    return whether one does.
    """
    entries = [entry.strip() for row in rows for entry in row]
    commas = [entry for entry in entries if "," in entry]
    decimal = any(_COMMA.fullmatch(e) and not _THOUSANDS.fullmatch(e) for e in commas)
    thousands = any(e.count(",") > 1 and _THOUSANDS.fullmatch(e) for e in commas)
    points = any(_POINT.fullmatch(e) and not _POINTED.fullmatch(e) for e in entries)
    commas_only = decimal and not thousands and not points
    return "," if commas_only else ".", commas_only or points
