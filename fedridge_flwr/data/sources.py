"""`TableFile`: the columns of a site's table file, batch by batch.

A file is read again at every pass and never as a whole, so that it may be larger than
the memory. Text arrives as text, exactly as it is written: what a column is decides who
asks for numbers or levels, and not the first block of the file.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._checks import check_whole
from .._text import counted, nearest, quoted
from ..errors import DataError
from .table_errors import TableFileError, load_arrow
from .table_options import TableOptions
from .table_readers import ParquetReader, TableReader, TextReader
from .table_text import unreadable
from .table_values import NotNumbersError, level_text, numbers

__all__ = ["TableBatch", "TableFile", "TableOptions", "client_values"]

_ROW = ""  # no column has an empty name


class TableBatch(dict[str, Any]):
    """Some rows of a file: the columns that were asked for, as `pyarrow.Array`.

    Parameters
    ----------
    columns : dict of str to pyarrow.Array
        The columns.
    table : TableFile
        The file they are from.
    rows : range or array of int
        Numbers of the rows in the file, from 0.
    """

    def __init__(
        self, columns: dict[str, Any], table: TableFile, rows: range | NDArray[Any]
    ) -> None:
        super().__init__(columns)
        self.table, self.rows = table, rows

    def place(self, row: int) -> str:
        """Return where a person finds a row of this batch."""
        return self.table.place(int(self.rows[row]))

    def numbers(self, column: str) -> NDArray[np.float64]:
        """Return a column as `numbers` does; an error names file, column and line."""
        try:
            return numbers(self[column])
        except NotNumbersError as error:
            problem = error.problem(self.place(error.first))
            raise self.table.error(f"{{columns}} {problem}", column) from None

    def levels(self, column: str) -> Any:
        """Return a column as `level_text` does."""
        return level_text(self[column])


class TableFile:
    """A table in a file: CSV, TSV and the like, or Parquet.

    Text may be compressed by gzip, xz, bzip2 or Zstandard. Its format is detected from
    the start of the file. If the format is ambiguous, an error names the option to set.

    Parameters
    ----------
    path : str or Path
        The file.
    options : TableOptions
        How it is read.
    where : (str, str), optional
        A column and one of its levels: only these rows are read, as if they were a
        separate file.

    Attributes
    ----------
    names : tuple of str
        Names of the columns, without white space around them. A column without a name,
        such as one of row numbers, is not among them.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fedridge_flwr import TableFile
    >>> lines = ["age;bmi;school", "41;23,5;1", "36;;2"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "visits.csv"
    ...     _ = path.write_text(chr(10).join(lines), encoding="utf-8")
    ...     table = TableFile(path)
    ...     for batch in table.batches(["bmi"]):
    ...         print(batch["bmi"].to_pylist(), batch.numbers("bmi"))
    ...     one = TableFile(path, where=("school", "1"))
    ...     print([batch.numbers("age") for batch in one.batches(["age"])])
    ['23.5', None] [23.5  nan]
    [array([41.])]
    >>> table.names
    ('age', 'bmi', 'school')
    """

    def __init__(
        self,
        path: str | Path,
        options: TableOptions | None = None,
        where: tuple[str, str] | None = None,
    ) -> None:
        self.path = Path(path)
        self.options = TableOptions() if options is None else options
        self._reader = _reader(self.path, self.options)
        self._places = {name: j for j, name in enumerate(self._reader.names) if name}
        self.names = tuple(self._places)
        self.unreadable = self._reader.unreadable
        self.where = where
        if where is not None:
            self._check_has([where[0]])

    def batches(
        self, columns: Iterable[str] | None = None, rows: int = 65_536
    ) -> Iterator[TableBatch]:
        """Return the rows, some at a time.

        Parameters
        ----------
        columns : iterable of str, optional
            The columns to read; all by default.
        rows : int
            Number of rows in a batch; the last one may have fewer.

        Returns
        -------
        iterator of TableBatch
            Dictionaries of columns. Columns of a text file are text, with null for
            missing values, a decimal point, and no white space around entries. Columns
            of a Parquet file keep their types.

        Raises
        ------
        DataError
            If a column is missing, a row is damaged, or there are no rows.
        """
        wanted = list(self.names if columns is None else dict.fromkeys(columns))
        self._check_has(wanted)
        check_whole("rows", rows, error=DataError)
        return self._batches(wanted, rows)

    def _batches(self, wanted: list[str], rows: int) -> Iterator[TableBatch]:
        first = 0
        for block in _rechunked(self._blocks(wanted, rows), rows):
            arrays = {name: block.column(name) for name in wanted}
            found: range | NDArray[Any] = range(first, first + block.num_rows)
            if self.where is not None:
                found = block.column(_ROW).to_numpy()
            yield TableBatch(arrays, self, found)
            first += block.num_rows
        if first == 0 and self.where is not None:
            raise self.error(
                "no row has the level that was asked for in {columns}.", self.where[0]
            )
        if first == 0:
            raise self.error("the table has no rows.")

    def _blocks(self, wanted: list[str], rows: int) -> Iterator[Any]:
        """Return record batches of any size, of the rows in question."""
        pa = load_arrow()
        names = list(wanted)
        if self.where is not None and self.where[0] not in names:
            names.append(self.where[0])
        columns = [self._places[name] for name in names]
        first = 0
        for arrays in self._reader.blocks(columns, rows):
            n = len(arrays[0])
            block = pa.record_batch(arrays, names=names)
            if self.where is not None:
                block = block.append_column(_ROW, pa.array(np.arange(first, first + n)))
                levels = level_text(block.column(self.where[0]))
                block = block.filter(pa.compute.equal(levels, _level(self.where[1])))
            yield block
            first += n

    def place(self, row: int) -> str:
        """Return where a person finds a row: its line in a text file.

        Parameters
        ----------
        row : int
            Number of the row, from 0, as in `TableBatch.rows`.
        """
        return self._reader.place(row)

    def error(self, problem: str, *columns: str) -> TableFileError:
        """Return an error about this file, with its columns for ``{columns}``."""
        places = [self._places[name] for name in columns]
        return TableFileError(self.path.name, problem, places, self._reader.names)

    def _check_has(self, wanted: Iterable[str]) -> None:
        for name in wanted:
            if name not in self._places:
                raise TableFileError(
                    self.path.name,
                    f"there is no column {name!r}.",
                    local=similar_name(name, self.names),
                )


def client_values(
    path: str | Path, column: str, options: TableOptions | None = None
) -> list[str]:
    """Return the levels of a column that says which client a row belongs to, sorted.

    Numbers are sorted as numbers. Rows without a level belong to no client.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> lines = ["school,score", "10,1", "9,2", "10,3"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "exams.csv"
    ...     _ = path.write_text(chr(10).join(lines), encoding="utf-8")
    ...     client_values(path, "school")
    ['9', '10']
    """
    return client_rows(path, column, options)[0]


def client_rows(
    path: str | Path, column: str, options: TableOptions | None = None
) -> tuple[list[str], str]:
    """Return the same, and how many rows belong to no client, in words.

    They are "" if there are no such rows.
    """
    found: set[str] = set()
    rows = lost = 0
    first = ""
    for batch in TableFile(path, options).batches([column]):
        levels = batch.levels(column)
        found.update(levels.drop_null().unique().to_pylist())
        rows += len(levels)
        if levels.null_count:
            lost += levels.null_count
            first = first or batch.place(int(np.argmax(np.asarray(levels.is_null()))))
    told = (
        f"{lost} of {counted(rows, 'row')} have no value in column {column!r} (the "
        f"first is {first}), so they belong to no client"
    )
    return sorted(found, key=_order), told if lost else ""


def _order(level: str) -> tuple[bool, float, str]:
    try:
        return False, float(level), level
    except ValueError:
        return True, 0.0, level


def _level(level: object) -> Any:
    return level_text(load_arrow().array([str(level)]))[0]


def _reader(path: Path, options: TableOptions) -> TableReader:
    load_arrow()  # first of all, and not after minutes
    with unreadable(path.name):
        found = path.stat()
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            raise TableFileError(path.name, "this is not a regular file.")
        with path.open("rb") as file:
            start = file.read(4)
    if start == b"PAR1":
        return ParquetReader(path, options)
    state = (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
    return _text_reader(path.absolute(), options, state)


# A file is opened in every round, and by every client whose rows are in it; to detect
# how it is written takes longer than to read a small one.
@lru_cache(maxsize=64)
def _text_reader(path: Path, options: TableOptions, state: object) -> TextReader:
    """Return the reader of a text file in the state that it is in."""
    return TextReader(path, options)


def _rechunked(blocks: Iterator[Any], rows: int) -> Iterator[Any]:
    """Return record batches of so many rows, the last one of what is left."""
    pa = load_arrow()
    waiting: list[Any] = []
    for block in blocks:
        if not waiting and block.num_rows == rows:
            yield block
            continue
        waiting.append(block)
        if sum(part.num_rows for part in waiting) < rows:
            continue
        table = pa.Table.from_batches(waiting)
        while table.num_rows >= rows:
            yield _one_batch(table.slice(0, rows))
            table = table.slice(rows)
        waiting = table.to_batches()
    if sum(part.num_rows for part in waiting):
        yield _one_batch(pa.Table.from_batches(waiting))


def _one_batch(table: Any) -> Any:
    return table.combine_chunks().to_batches()[0]


def similar_name(name: str, names: tuple[str, ...]) -> str:
    """Say which name of a file is meant, or which there are.

    Examples
    --------
    >>> similar_name("Ages", ("age", "sex"))
    " Is 'age' meant? Names are case-sensitive."
    """
    close = nearest(name, names)
    if close:
        return f" Is {close!r} meant? Names are case-sensitive."
    return f" The file has {quoted(names, most=12)}."
