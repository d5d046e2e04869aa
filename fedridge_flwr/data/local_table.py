"""`LocalTable`: a site's own table, described for a formula and coded as agreed."""

from __future__ import annotations

import tempfile
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from .._text import counted
from .._types import Array
from ..errors import ColumnNamesError, DataError
from .arrow_batches import arrow_of_pandas, open_stream, selected_columns
from .coding import Coding
from .column_scan import ColumnScan
from .formula import TableFormula
from .names import without_index
from .sources import TableFile
from .table_errors import load_arrow, place_of
from .table_profile import MOST_LEVELS, MOST_UNDECLARED, ColumnProfile, TableProfile
from .table_values import field_problem, level_text, refuse_extensions
from .tables import column_names

BATCH_ROWS = 65_536
HELD_BYTES = 256 << 20
"""Coded rows that are held in memory; those of larger tables are in a file."""


class RawRows(NamedTuple):
    """Rows as a user holds them, and what is known of them beside the rows."""

    X: Any
    y: Any
    weight: Any = None
    origin: RowOrigin | None = None


@dataclass(frozen=True)
class RowOrigin:
    """What is known of rows that were made from a table, beside the rows.

    Parameters
    ----------
    columns : collection of str, optional
        The columns of the table that they were made from.
    levels : mapping, optional
        For each category the number of rows of every level, also of the reference
        level, which has no column of its own.
    identities : callable, optional
        Returns what identifies each row, one row of an array for each, over *all*
        columns of the table: two formulas have other complete rows, but the same table.
    offset : ndarray, optional
        What is added to the linear predictor of each row, where rows came with one.
    mixed : sequence of str
        Where columns have text among numbers: for whoever can correct the table.
    """

    columns: Sequence[str] | None = None
    levels: Mapping[str, Mapping[Any, int]] | None = None
    identities: Callable[[], NDArray[Any]] | None = None
    offset: NDArray[Any] | None = None
    mixed: Sequence[str] = ()


class LocalTable:
    """A whole table, of which a formula says what is X and what is y.

    Parameters
    ----------
    names : sequence of str
        Its columns.
    read : callable
        ``read(columns)`` yields parts of the table, from its beginning, each a mapping
        of column to pyarrow array.
    client : str
        The column that says which client a row belongs to, where a table has the rows
        of several: ``.`` in a formula does not stand for it.
    unreadable : sequence of str
        Columns of types that cannot be read, which rows are not identified by.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"bp": [120, 130, 110], "sex": ["f", "m", None]})
    >>> table = as_local_table(frame)
    >>> profile = table.profile(TableFormula("bp ~ sex"))
    >>> profile.rows, profile.complete, profile.columns["sex"].levels
    (3, 2, ('f', 'm'))
    """

    def __init__(
        self,
        names: Sequence[str],
        read: Callable[[Sequence[str]], Iterator[Mapping[str, Any]]],
        client: str = "",
        unreadable: Sequence[str] = (),
    ) -> None:
        self.names, self._read, self._client = tuple(names), read, client
        self._readable = [name for name in self.names if name not in unreadable]

    def parts(self, columns: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        """Yield the table part by part; columns that it lacks are an error."""
        lacking = [column for column in columns if column not in self.names]
        if lacking:
            raise ColumnNamesError(f"the table has no column {lacking[0]!r}.")
        return self._read(columns)

    def profile(self, formula: TableFormula) -> TableProfile:
        """Return what the formula's columns are like in this table."""
        return self.scan(formula)[0]

    def scan(self, formula: TableFormula) -> tuple[TableProfile, RowOrigin]:
        """Return the profile, and how many rows every level has, which stay here."""
        others = [name for name in self.names if name != self._client]
        features = formula.used_columns(others)
        wanted = [*features, *formula.targets]
        wanted += [formula.weights] if formula.weights else []
        present = [c for c in dict.fromkeys(wanted) if c in self.names]
        scans = {column: ColumnScan() for column in present}
        places: dict[str, str] = {}  # of the first text in each column
        rows = complete = 0
        for part in self._read(present) if present else ():
            missing = [np.asarray(part[c].is_null(nan_is_null=True)) for c in present]
            first, rows = rows, rows + len(missing[0])
            complete += int((~np.logical_or.reduce(missing)).sum())
            for column in present:
                scan = scans[column]
                scan.add(part[column], first)
                if scan.first_text is not None and column not in places:
                    places[column] = place_of(part, scan.first_text - first)
        for column, scan in scans.items():
            _refuse_invisible(column, scan)
        fills = formula.missing in ("mean", "indicator")
        categories = {*formula.categories, *formula.levels}
        numbers = {*formula.numbers, formula.weights}
        columns = {
            column: _column_profile(
                scan,
                category=column in categories,
                number=column in numbers,
                adds=fills and column in features,
            )
            for column, scan in scans.items()
        }
        counts = {c: dict(scans[c].level_counts) for c in columns if columns[c].levels}
        profile = TableProfile(rows, complete, columns)
        mixed = [
            _mixed(column, scans[column], place)
            for column, place in places.items()
            if column not in categories
            and (scans[column].n_numbers or scans[column].may_be_numbers)
        ]
        origin = RowOrigin(present, counts, self._identities, mixed=mixed)
        return profile, origin

    def coded(self, coding: Coding, *, quiet: bool = False) -> RawRows:
        """Return X, y, weights and the origin of the rows, coded as agreed.

        If `quiet`, no error tells of entries that do not fit, as `Coding.code` says.
        """
        spool, counts = Spool(), defaultdict[str, Counter[str]](Counter)
        for part in self.parts(coding.raw_columns):
            rows = coding.code(part, quiet=quiet)
            spool.add(np.column_stack([p for p in rows[:3] if p is not None]))
            for column, found in rows.level_counts.items():
                counts[column].update(found)
        n_features, n_targets = len(coding.names), len(coding.target_names)
        weighted = bool(coding.formula.weights)
        block = spool.finish(n_features + n_targets + weighted)
        X = named_frame(block[:, :n_features], coding.names)
        y = named_frame(
            block[:, n_features : n_features + n_targets], coding.target_names
        )
        origin = RowOrigin(
            coding.raw_columns, counts, partial(self._identities, coding)
        )
        weight = block[:, -1] if weighted else None
        return RawRows(X, y.iloc[:, 0] if n_targets == 1 else y, weight, origin)

    def coded_features(self, coding: Coding) -> Any:
        """Return X of new rows, as a data frame; rows that lack a value are dropped."""
        parts = (
            coding.code(part, with_target=False) for part in self.parts(coding.columns)
        )
        blocks = [np.empty((0, len(coding.names))), *(part.X for part in parts)]
        return named_frame(np.concatenate(blocks), coding.names)

    def _identities(self, coding: Coding | None = None) -> NDArray[Any]:
        """Return a hash of every column for each row, or each that is coded."""
        found = [np.empty((0, 32), dtype=np.uint8)]
        for part in self.parts(self._readable):
            texts = [level_text(part[c]) for c in sorted(part)]
            if coding is not None:
                kept = coding.code(part).kept
                texts = [text.filter(kept) for text in texts]
            rows = zip(*(text.to_pylist() for text in texts), strict=True)
            digests = b"".join(sha256(repr(row).encode()).digest() for row in rows)
            found.append(np.frombuffer(digests, dtype=np.uint8).reshape(-1, 32))
        return np.concatenate(found)


class Spool:
    """Blocks of rows, in memory while they are few, then in a file without a name."""

    def __init__(self) -> None:
        self._blocks: list[Array] = []
        self._size = 0
        self._file: Any = None

    def add(self, block: Array) -> None:
        """Add some rows."""
        if self._file is not None:
            block.tofile(self._file)
            return
        self._blocks.append(block)
        self._size += block.nbytes
        if self._size > HELD_BYTES:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - lives with the rows
            for held in self._blocks:
                held.tofile(self._file)
            self._blocks = []

    def finish(self, width: int) -> Array:
        """Return all rows, of so many columns."""
        if self._file is None:
            return np.concatenate([*self._blocks, np.empty((0, width))])
        self._file.flush()
        flat = np.memmap(self._file, dtype=np.float64, mode="r")
        return flat.reshape(-1, width)


def as_local_table(data: Any) -> LocalTable | None:
    """Return a file or a data frame as a table; None for anything else.

    A file is a `TableFile`; a data frame one of pandas, or of any library that hands it
    over as an Arrow stream.
    """
    if isinstance(data, TableFile):
        return table_of_file(data)
    if nw.dependencies.is_pandas_dataframe(data):
        column_names(list(data.columns))  # refuses names that occur twice
    elif nw.dependencies.is_pyarrow_table(data):
        column_names(data.column_names)
    lazy = nw.from_native(data, pass_through=True)
    if isinstance(lazy, nw.LazyFrame):  # a query, which runs again at every pass
        own = without_index(lazy.collect_schema().names())
        names = _composed(own)
        called = dict(zip(names, own, strict=True))
        return LocalTable(names, partial(_read_query, lazy, called))
    if not hasattr(data, "__arrow_c_stream__"):
        return None
    table = _arrow_table(data)
    table = table.rename_columns(_composed(table.column_names))

    def read(columns: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        refuse_extensions(table.schema, columns)
        for batch in table.select(list(columns)).to_batches(BATCH_ROWS):
            yield {name: batch.column(name) for name in columns}

    names = without_index(table.column_names)
    unreadable = [name for name in names if field_problem(table.schema.field(name))]
    return LocalTable(names, read, unreadable=unreadable)


def _read_query(
    query: Any, called: Mapping[str, str], columns: Sequence[str]
) -> Iterator[Mapping[str, Any]]:
    own = [called[name] for name in columns]
    schema, batches = open_stream(selected_columns(query, own).to_native())
    refuse_extensions(schema, own)
    for batch in batches:
        yield {name: batch.column(called[name]) for name in columns}


def _composed(names: Sequence[str]) -> list[str]:
    """Return names as formulas and files have them: é is one sign, and not two."""
    found = [unicodedata.normalize("NFC", name) for name in names]
    column_names(found)  # refuses names that occur twice
    return found


def table_of_file(file: TableFile) -> LocalTable:
    """Return a file as a table, which is read from its beginning at every pass."""
    client = "" if file.where is None else file.where[0]
    return LocalTable(
        file.names,
        lambda columns: file.batches(columns, BATCH_ROWS),
        client,
        file.unreadable,
    )


def _arrow_table(data: Any) -> Any:
    """Return a data frame as an Arrow table; columns of mixed types become text."""
    pa = load_arrow()
    failures = pa.ArrowException, OverflowError, UnicodeError
    of_pandas = nw.dependencies.is_pandas_dataframe(data)
    try:
        if of_pandas:
            return arrow_of_pandas(data)
        schema, batches = open_stream(data)
        return pa.Table.from_batches(batches, schema)
    except DataError:
        if not of_pandas:
            raise
    text = {}
    for column in data.columns:
        try:
            pa.array(data[column])
        except failures:
            text[column] = data[column].astype(object).map(_text_of, "ignore")
    return arrow_of_pandas(data.assign(**text))


def _text_of(entry: Any) -> str:
    """Return an entry as text; the name of its type if it has none."""
    try:
        return str(entry).encode(errors="replace").decode()
    except Exception:  # whatever an object says for itself
        return type(entry).__name__


def coded_features(coding: Coding, X: Any) -> Any:
    """Return the features of a data frame that has the columns of a formula.

    Features that are coded already, and arrays, are returned as they are.

    Raises
    ------
    DataError
        If values are missing, and nothing stands for them, or levels are unknown.
    """
    known = getattr(X, "columns", None)
    table = None if known is None else as_local_table(X)
    if table is None or not set(coding.columns) <= set(table.names):
        return X
    parts = [
        coding.code(part, with_target=False) for part in table.parts(coding.columns)
    ]
    blocks = [np.empty((0, len(coding.names))), *(part.X for part in parts)]
    dropped = sum(int((~part.kept).sum()) for part in parts)
    if dropped:
        raise DataError(
            f"{dropped} row(s) lack a value that the model needs. Remove them, or fit "
            'with missing="mean".'
        )
    return named_frame(np.concatenate(blocks), coding.names)


def _mixed(column: str, scan: ColumnScan, place: str) -> str:
    """Say where a column of numbers has text, but not which."""
    text = counted(scan.n_text, "row")
    numbers = f", and numbers in {counted(scan.n_numbers, 'row')}"
    return (
        f"column {column!r} has text in {text}, the first in {place}"
        f"{numbers if scan.n_numbers else ''}"
    )


def _refuse_invisible(column: str, scan: ColumnScan) -> None:
    """Refuse levels that look like another one, or like none, to people."""
    if scan.kind == "text" and not all(level.isprintable() for level in scan.levels):
        raise DataError(
            f"column {column!r} has a level with invisible characters. Remove them "
            "from the table."
        )


def _column_profile(
    scan: ColumnScan, *, category: bool, number: bool, adds: bool
) -> ColumnProfile:
    levels: tuple[str, ...] | None = ()
    if category or (scan.kind == "text" and not number):
        # Numbers that were misread are text as well, and must not leave as levels.
        most = MOST_LEVELS if category else MOST_UNDECLARED
        many = scan.too_many_levels or len(scan.levels) > most
        many |= not category and scan.may_be_numbers
        levels = None if many else tuple(sorted(scan.levels))
    adds &= scan.kind == "number" and not category
    total = _two_floats(scan.exact_sum) if adds else ()
    return ColumnProfile(scan.kind, scan.missing, scan.n_text, levels, total)


def _two_floats(exact: Fraction) -> tuple[float, float]:
    """Return a number as the sum of two, with twice the digits of one."""
    high = float(exact)
    return high, float(exact - Fraction(high))


def named_frame(block: Array, names: Sequence[str]) -> Any:
    """Return a block of numbers under the names of its columns, without a copy."""
    import pandas as pd

    return pd.DataFrame(block, columns=list(names), copy=False)
