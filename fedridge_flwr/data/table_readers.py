"""Readers of text tables and of Parquet: cleaned columns, block by block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .._text import counted
from ..errors import DataError
from .names import without_index
from .table_errors import TableFileError, load_arrow
from .table_format import POINTED_THOUSANDS, check_names, clean_name, detect_format
from .table_options import MISSING, TableOptions
from .table_text import Utf8Stream, encoding_error, text_rows
from .table_values import (
    all_finite,
    field_problem,
    float64_values,
    level_text,
    plain_array,
)

_BLOCK = 1 << 20
_COMMA = r"^([+-]?\d*),(\d+(?:[eE][+-]?\d+)?)$"
_POINT = r"^[+-]?\d*\.\d+([eE][+-]?\d+)?$"
_POINTED = f"^{POINTED_THOUSANDS}$"
_UNSEPARATED = r"^[+-]?(\d{4,}|\d*\.\d+([eE][+-]?\d+)?)$"


class TableReader(Protocol):
    """What a `TableFile` needs of a kind of file."""

    names: tuple[str, ...]  # of all columns, "" for one without
    unreadable: tuple[str, ...]  # of a type that has another meaning than its storage

    def blocks(self, columns: Sequence[int], rows: int) -> Iterator[list[Any]]:
        """Return the arrays of some columns, for about so many rows at a time."""

    def place(self, row: int) -> str:
        """Return where a person finds a row, which is numbered from 0."""


class TextReader:
    """Columns of a text table as text, null where missing, with a decimal point."""

    unreadable: tuple[str, ...] = ()

    def __init__(self, path: Path, options: TableOptions) -> None:
        self.path = path
        self.format = detect_format(path, options)
        self.names = self.format.names
        self._missing = _Missing(options.missing)
        self._missing_in = _missing_in(path, options, self.names)

    def blocks(self, columns: Sequence[int], rows: int) -> Iterator[list[Any]]:
        """Return the arrays of some columns, for some rows at a time."""
        if not self.format.has_rows:
            return
        pa = load_arrow()
        first = 0
        unsure = set() if self.format.decimal_is_sure else set(columns)
        with Utf8Stream(self.path, self.format.encoding, self.format.delimiter) as file:
            try:
                with self._open(pa, file, columns) as reader:
                    for block in reader:
                        for k, j in enumerate(columns):
                            if j in unsure and self._settles(
                                pa, block.column(k), j, first
                            ):
                                unsure.discard(j)
                        yield [
                            self._clean(pa, block.column(k), j, first)
                            for k, j in enumerate(columns)
                        ]
                        first += block.num_rows
            except pa.ArrowInvalid as error:  # its text may have values of the data
                raise self._error(str(error)) from None

    def _open(self, pa: Any, file: Utf8Stream, columns: Sequence[int]) -> Any:
        # Without a type of its own, pyarrow would choose one by the first block.
        places = [str(j) for j in range(len(self.names))]
        return pa.csv.open_csv(
            pa.PythonFile(file, mode="r"),
            read_options=pa.csv.ReadOptions(
                column_names=places,
                # The header alone is a row to skip: blank lines count as well there.
                skip_rows=self.format.blank_lines,
                skip_rows_after_names=int(self.format.header),
                block_size=max(_BLOCK, 16 * self.format.row_bytes),
            ),
            parse_options=pa.csv.ParseOptions(
                delimiter=self.format.delimiter,
                newlines_in_values=True,
                invalid_row_handler=_skip_blank,
            ),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict.fromkeys(places, pa.string()),
                include_columns=[str(j) for j in columns],
                strings_can_be_null=True,
                null_values=self._missing.texts,
            ),
        )

    def _settles(self, pa: Any, array: Any, column: int, first: int) -> bool:
        """Return whether numbers say that no point in them separates thousands.

        Refuse 1.234 where none does: it would be a thousandth of what was meant.
        """
        text = pa.compute.utf8_trim_whitespace(array)
        pointed = pa.compute.match_substring_regex(text, _POINTED).fill_null(False)
        plain = pa.compute.match_substring_regex(text, _UNSEPARATED).fill_null(False)
        if pa.compute.and_not(plain, pointed).true_count:
            return True
        if pointed.true_count:
            row = first + pointed.index(pa.scalar(True)).as_py()
            raise TableFileError(
                self.path.name,
                f"{{columns}} has a point before three digits ({self.place(row)}), "
                "and no other number says whether it is the decimal mark or separates "
                'thousands. Set decimal = "." if it is the decimal mark; otherwise '
                "write numbers without separators of thousands.",
                [column],
                self.names,
            )
        return False

    def _clean(self, pa: Any, array: Any, column: int, first: int) -> Any:
        missing = self._missing_in.get(column, self._missing)
        # Markers of all columns without space were found on reading.
        if missing is not self._missing or _may_have_space(array):
            array = missing.drop_text(pa, array)
        if self.format.decimal == ",":
            wrong = pa.compute.match_substring_regex(array, _POINT).fill_null(False)
            if wrong.true_count:
                row = first + wrong.index(pa.scalar(True)).as_py()
                raise TableFileError(
                    self.path.name,
                    "{columns} has a number with a decimal point "
                    f"({self.place(row)}), but the file has decimal commas. Write all "
                    'numbers in the same way, or set decimal = "." if commas are not '
                    "decimal marks.",
                    [column],
                    self.names,
                )
            array = pa.compute.replace_substring_regex(array, _COMMA, r"\1.\2")
        return missing.drop_numbers(pa, array)

    def place(self, row: int) -> str:
        """Return the line that a row begins in."""
        for number, (line, _) in enumerate(self._rows()):
            if number == row + self.format.header:
                return f"line {line}"
        return f"row {row + 1}"

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        return text_rows(self.path, self.format.encoding, self.format.delimiter)

    def _error(self, reason: str) -> TableFileError:
        if "UTF8" in reason:
            return encoding_error(self.path.name, self.format.encoding)
        width = len(self.names)
        for line, row in self._rows():
            if len(row) != width:
                return TableFileError(
                    self.path.name,
                    f"line {line} has {counted(len(row), 'column')}, but the file has "
                    f"{width}. Put entries that contain the delimiter "
                    f"({self.format.delimiter!r}) in quotes, and look for missing or "
                    "additional delimiters.",
                )
        return TableFileError(
            self.path.name, "the file cannot be read as a text table. Export it again."
        )


def _may_have_space(array: Any) -> bool:
    """Whether text has a byte that could be part of white space.

    Several times as fast as to remove white space where there is none.
    """
    _, offsets, text = array.buffers()
    if text is None:
        return False
    ends = np.frombuffer(offsets, np.int32)[[array.offset, array.offset + len(array)]]
    codes = np.frombuffer(text, np.uint8)[slice(*ends)]
    return bool(((codes <= ord(" ")) | (codes > 127)).any())


def _skip_blank(row: Any) -> str:
    return "error" if row.text.strip() else "skip"


class ParquetReader:
    """Columns of a Parquet file in their own types, null where missing."""

    def __init__(self, path: Path, options: TableOptions) -> None:
        self.path = path
        self._missing = _Missing(options.missing)
        own = self._own = without_index(self._file.schema_arrow.names)
        names = options.columns or tuple(map(clean_name, own))
        if len(names) != len(own):
            raise TableFileError(
                path.name,
                f"the option columns has {len(names)} names, but the file has "
                f"{len(own)} columns.",
            )
        check_names(path.name, names)
        if len(set(own)) < len(own):
            raise TableFileError(path.name, "two columns have the same name.")
        self.names = tuple(names)
        fields = map(self._file.schema_arrow.field, own)
        told = zip(self.names, fields, strict=True)
        self.unreadable = tuple(name for name, field in told if field_problem(field))
        self._missing_in = _missing_in(path, options, self.names)

    @cached_property
    def _file(self) -> Any:
        pa = load_arrow()
        try:
            # Buffered ahead, the file would be in memory as a whole.
            return pa.parquet.ParquetFile(
                self.path, pre_buffer=False, buffer_size=1 << 16
            )
        except (pa.ArrowException, OSError):
            raise self._error() from None

    def blocks(self, columns: Sequence[int], rows: int) -> Iterator[list[Any]]:
        """Return the arrays of some columns, for about so many rows at a time."""
        pa = load_arrow()
        own = self._own
        wanted = [own[j] for j in columns]
        # One thread is as fast on a machine that has other work, and takes less of it.
        batches = self._file.iter_batches(rows, columns=wanted, use_threads=False)
        try:
            for block in batches:
                yield [self._clean(pa, block.column(own[j]), j) for j in columns]
        except (pa.ArrowException, OSError):
            raise self._error() from None

    def _clean(self, pa: Any, array: Any, column: int) -> Any:
        field = self._file.schema_arrow.field(self._own[column])
        problem = field_problem(field)
        try:
            array = plain_array(array)
        except DataError as error:
            problem = str(error).removeprefix("the column ").rstrip(".")
        if problem:
            problem = f"{{columns}} {problem}."
            raise TableFileError(self.path.name, problem, [column], self.names)
        missing = self._missing_in.get(column, self._missing)
        if pa.types.is_string(array.type):
            array = missing.drop_text(pa, array)
        elif pa.types.is_floating(array.type) and not _is_finite(pa, array):
            array = pa.compute.if_else(pa.compute.is_nan(array), None, array)
        return missing.drop_numbers(pa, array)

    def place(self, row: int) -> str:
        """Return the number of a row."""
        return f"row {row + 1}"

    def _error(self) -> TableFileError:
        return TableFileError(
            self.path.name,
            "the Parquet file is damaged, incomplete or encrypted. Write it again.",
        )


def _is_finite(pa: Any, array: Any) -> bool:
    return array.type == pa.float64() and all_finite(float64_values(array))


class _Missing:
    """Entries that mean a missing value."""

    def __init__(self, markers: Sequence[str]) -> None:
        self.texts = [*MISSING, *markers]
        pa = load_arrow()
        levels = level_text(pa.array(markers, pa.string()))
        self._levels = pa.array(
            [level for level in levels if _is_number(level.as_py())]
        )

    def drop_text(self, pa: Any, array: Any) -> Any:
        """Return text without white space around it, and null for every marker."""
        array = pa.compute.utf8_trim_whitespace(array)
        missing = pa.compute.is_in(array, pa.array(self.texts, pa.string()))
        return pa.compute.if_else(missing, None, array)

    def drop_numbers(self, pa: Any, array: Any) -> Any:
        """Return a column with null for the markers that are numbers."""
        if not len(self._levels):
            return array
        missing = pa.compute.is_in(level_text(array), self._levels)
        return pa.compute.if_else(missing, None, array)


def _missing_in(
    path: Path, options: TableOptions, names: Sequence[str]
) -> dict[int, _Missing]:
    """Return all markers of columns that have some of their own, by their places."""
    found = {}
    for column, markers in dict(options.missing_in).items():
        if column not in names:
            raise TableFileError(
                path.name,
                "the option missing_in names a column that the file does not have.",
                local=f" It names {column!r}.",
            )
        found[names.index(column)] = _Missing([*options.missing, *markers])
    return found


def _is_number(text: str | None) -> bool:
    try:
        return text is not None and bool(np.isfinite(float(text)))
    except ValueError:
        return False
