"""`ArrowBatches`: rows of an Arrow stream, batch by batch, with columns by name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from .._checks import check_choice
from .._text import counted
from .._types import Array
from ..errors import ColumnNamesError, DataError
from .names import Names, without_index
from .rows import Rows, check_weights
from .schema import Schema
from .table_errors import load_arrow
from .table_values import (
    NotNumbersError,
    cause_of,
    float64_values,
    parse_numbers,
    refuse_extensions,
)
from .tables import Table, column_names

# Enough for two workers, and little beside what an engine needs itself.
BATCH_ROWS = 1 << 17

_DATES = (
    "has dates or times. Select the number that is meant, such as days since a date"
)
_TEXT = (
    "has text or categories. Select numbers, such as CASE WHEN sex = 'm' THEN 1 ELSE 0 "
    "END for every level, the same at every client; or return the whole table, and use "
    "FedRidge(formula=...), which agrees on levels"
)
_OTHER = "has lists, structures or binary data. Select plain numbers"

log = logging.getLogger("flwr")


class RowBatch(NamedTuple):
    """Rows, how many rows of the data they stand for, and how many with weight.

    Counts of equal rows are no weights.
    """

    rows: Rows
    n_rows: int
    n_filled: int
    has_weights: bool


class ArrowBatches:
    """Rows [X y] of an Arrow stream, read once, some at a time.

    Parameters are those of `SufficientStatistics.from_arrow`. Columns of float64 are
    read where they are; nothing is copied but a block of rows at a time.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"age": [41, 36, 50], "ill": [True, False, None]})
    >>> batches = ArrowBatches(table, "ill", nulls="drop")
    >>> [batch.n_rows for batch in batches]
    [2]
    >>> list(ArrowBatches(table, "ill"))
    Traceback (most recent call last):
    fedridge_flwr.errors.DataError: there are nulls in column 1 ('ill') (1 of 3 rows). \
Leave such rows out in the query, or use nulls="drop".
    """

    def __init__(
        self,
        stream: Any,
        target: str | Sequence[str],
        features: str | Sequence[str] | None = None,
        sample_weight: str | None = None,
        counts: str | None = None,
        nulls: str = "error",
        compress: bool = False,
    ) -> None:
        check_choice("nulls", nulls, ("error", "drop"))
        targets = listed(target)
        features = None if features is None else listed(features)
        beside = [name for name in (sample_weight, counts) if name is not None]
        named = named_columns(target, features, *beside)
        if compress and counts is None:
            stream, counts = compressed(stream, named)
            beside.append(counts)
            named = None
        schema, self._batches = open_stream(stream, named)
        used = [*targets, *beside]
        own = [name for name in without_index(schema.names) if name not in used]
        chosen = own if features is None else features
        self.columns = [*chosen, *targets, *beside]
        _check_names(self.columns, schema.names)
        if not chosen:
            raise DataError("the stream has no columns but the target.")
        _check_types(self.columns, schema)
        self._weight, self._counts = sample_weight, counts
        self._drops = nulls == "drop"
        self.schema = Schema(
            len(chosen), len(targets), Names.of(chosen), Names.of(targets)
        )

    def __iter__(self) -> Iterator[RowBatch]:
        """Yield the rows; what is null is told at the end, with all its columns."""
        rows = dropped = 0
        nulls: NDArray[np.int64] = np.zeros(len(self.columns), dtype=np.int64)
        for columns in self._slices():
            n = len(columns[0])
            found = np.array([column.null_count for column in columns])
            if found.any() and not self._drops:
                nulls += found
            elif not nulls.any():
                values, lost = self._values(columns, rows)
                dropped += lost
                yield self._batch(values)
            rows += n
        if rows == 0:  # even so, the columns are known
            yield self._batch([np.empty(0)] * len(self.columns))
        if dropped:
            log.info("%s with nulls left out.", counted(dropped, "row"))
        if nulls.any():
            bad = np.flatnonzero(nulls)
            raise DataError(
                f"there are nulls in {{columns}} ({', '.join(map(str, nulls[bad]))} of "
                f'{rows} rows). Leave such rows out in the query, or use nulls="drop".',
                bad.tolist(),
                self.columns,
            )

    def _slices(self) -> Iterator[list[Any]]:
        """Yield the columns of so many rows that they can be looked at."""
        for batch in self._batches:
            for start in range(0, batch.num_rows, BATCH_ROWS):
                part = batch.slice(start, BATCH_ROWS)
                yield [part.column(name) for name in self.columns]

    def _values(self, columns: list[Any], first: int) -> tuple[list[Array], int]:
        """Return the numbers in the rows that are kept, and how many rows are not."""
        values, wrong = [], []
        for place, column in enumerate(columns):
            if str(column.type) == "double":  # infinity shows in the sums
                values.append(float64_values(column))
                continue
            found, bad, plain = parse_numbers(column)
            values.append(found)
            if bad.any():
                wrong.append((place, bad, plain))
        kept = np.ones(len(values[0]), dtype=bool)
        if self._drops:
            kept = ~np.logical_or.reduce([np.isnan(column) for column in values])
        for place, bad, plain in wrong:
            self._refuse(place, bad & kept, plain, first)
        if kept.all():
            return values, 0
        lost = values[-1][~kept] if self._counts else np.ones(np.count_nonzero(~kept))
        n_lost = int(lost[np.isfinite(lost)].sum())
        return [column[kept] for column in values], n_lost

    def _refuse(
        self, place: int, bad: NDArray[np.bool_], plain: Any, first: int
    ) -> None:
        """Refuse what is no number, but not in rows that are dropped anyway."""
        if bad.any():
            where = int(np.argmax(bad))
            cause = cause_of(plain[where].as_py())
            error = NotNumbersError(int(bad.sum()), len(bad), where, cause)
            problem = error.problem(f"row {first + where + 1}")
            raise DataError(f"{{columns}} {problem}", [place], self.columns)

    def _batch(self, values: list[Array]) -> RowBatch:
        n, d, t = len(values[0]), self.schema.n_features, self.schema.n_targets
        beside = values[d + t :]
        weight = check_weights(beside[0], n) if self._weight else None
        count, filled = n, n if weight is None else int(np.count_nonzero(weight))
        if self._counts:
            copies = self._whole(beside[-1])
            count = int(copies.sum())
            filled = count if weight is None else int(copies[weight > 0].sum())
            weight = copies if weight is None else weight * copies
        X, Y = _Columns(values[:d]), _Columns(values[d : d + t])
        rows = Rows(X, Y, weight, n, self.schema)
        return RowBatch(rows, count, filled, self._weight is not None)

    def _whole(self, counts: Array) -> Array:
        whole = np.isfinite(counts).all() and (counts >= 0).all()
        if not whole or (counts % 1).any():
            place = len(self.columns) - 1
            raise DataError(
                "counts, in {columns}, must be whole numbers, zero or more.",
                [place],
                self.columns,
            )
        return counts


class _Columns(Table):
    """Columns of float64, as a table."""

    def __init__(self, columns: list[Array]) -> None:
        self._columns, self.ndim, self.names = columns, 2, None
        self.shape = (len(columns[0]), len(columns))

    def rows(self, part: slice) -> Array:
        return np.array([column[part] for column in self._columns]).T


def open_stream(
    data: Any, columns: Sequence[str] | None = None
) -> tuple[Any, Iterable[Any]]:
    """Return the Arrow schema of a stream, and its record batches, to be read once.

    Parameters
    ----------
    data : object
        What has ``__arrow_c_stream__`` (a relation of DuckDB, a frame of pandas or
        Polars, a table or a reader of pyarrow), a LazyFrame of Polars, or a dataset of
        pyarrow.
    columns : sequence of str, optional
        The columns that are wanted, where the source can leave out others.
    """
    pa = load_arrow()
    if nw.dependencies.is_pandas_dataframe(data):
        data = arrow_of_pandas(data)
    elif not hasattr(data, "__arrow_c_stream__") and hasattr(data, "to_reader"):
        data = data.to_reader()  # of a scanner of pyarrow
    if hasattr(data, "__arrow_c_stream__"):
        try:
            reader = pa.RecordBatchReader.from_stream(data)
        except (pa.ArrowException, ValueError, TypeError):
            raise _no_arrow(data) from None
        return reader.schema, reader
    batches: Callable[[Any, list[str]], Iterator[Any]]
    if hasattr(data, "collect_batches"):  # a LazyFrame, which has no stream of its own
        schema, batches = open_stream(data.limit(0).collect())[0], _polars_batches
    elif hasattr(data, "scanner"):  # a dataset of pyarrow
        schema, batches = data.schema, _dataset_batches
    else:
        raise DataError(
            f"a {type(data).__name__} is no Arrow stream: give a relation of DuckDB, a "
            "data frame or LazyFrame, or a table, reader or dataset of pyarrow."
        )
    known = without_index(schema.names) if columns is None else schema.names
    return schema, batches(data, [n for n in known if columns is None or n in columns])


def arrow_of_pandas(frame: Any) -> Any:
    """Return a data frame of pandas as an Arrow table, without its row index.

    An index says where a row was, and would otherwise be a feature as soon as a frame
    was sorted or filtered.
    """
    pa = load_arrow()
    column_names(list(frame.columns))  # names that occur twice are refused in our words
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        raise _no_arrow(frame) from None


def _no_arrow(data: Any) -> DataError:
    """Return the error for columns that Arrow has no type for.

    What Arrow itself says may have values of the data.
    """
    pa = load_arrow()
    bad = []
    names = list(getattr(data, "columns", ()))
    for j, name in enumerate(names):
        try:
            pa.table(data[[name]])
        except Exception:
            bad.append(j)
    what = "{columns}" if bad else "a column"
    return DataError(
        f"{what} cannot be read as Arrow: the type is unknown to it, sparse, or a "
        "mixture of several. Convert it to plain numbers, such as float64.",
        bad,
        [str(name) for name in names],
    )


def named_columns(
    target: str | Sequence[str],
    features: str | Sequence[str] | None,
    *beside: str | None,
) -> list[str] | None:
    """Return the columns that are used, or None for all."""
    if features is None:
        return None
    return [*listed(features), *listed(target), *filter(None, beside)]


def listed(names: str | Sequence[str]) -> list[str]:
    """Return names as a list; text is one name, and not its letters."""
    return [names] if isinstance(names, str) else list(names)


def compressed(data: Any, columns: Sequence[str] | None = None) -> tuple[Any, str]:
    """Return a table in which equal rows are one, and the column with their number.

    The engine does it: DuckDB, Polars, Spark, or what else narwhals knows.

    Examples
    --------
    >>> import polars as pl
    >>> table, name = compressed(pl.LazyFrame({"x": [1, 1, 2], "y": [0, 0, 1]}))
    >>> table.sort("x").collect().rows(), name
    ([(1, 0, 2), (2, 1, 1)], 'rows')
    """
    if nw.dependencies.is_pandas_dataframe(data):
        data = arrow_of_pandas(data)
    if nw.dependencies.is_pyarrow_table(data):
        column_names(data.column_names)
    try:
        return _compressed(data, columns)
    except DataError:
        raise
    except Exception as error:  # of any engine, in words that may have values
        raise DataError(
            f"equal rows of this {type(data).__name__} cannot be counted "
            f"({type(error).__name__}). Leave out compress=True, or convert columns of "
            "unusual types to plain numbers."
        ) from None


def _compressed(data: Any, columns: Sequence[str] | None) -> tuple[Any, str]:
    frame = nw.from_native(data, pass_through=True)
    if not isinstance(frame, nw.DataFrame | nw.LazyFrame):
        raise DataError(
            f"compress=True needs DuckDB, Polars, Spark or a data frame, and not a "
            f"{type(data).__name__}."
        )
    # Not `collect_schema`, which fails where narwhals does not know a type.
    known = list(frame.columns)
    wanted = without_index(known) if columns is None else list(columns)
    _check_names(wanted, known)
    name, taken = "rows", {each.casefold() for each in known}
    while name in taken:  # to SQL, ROWS is the same name
        name += "_"
    selected: Any = selected_columns(frame, wanted)
    if is_duckdb(frame):
        keys = _sql_names(wanted)
        counted_rows = selected.to_native().aggregate(
            f"{keys}, count(*) AS {name}", keys
        )
        return counted_rows, name
    grouped: Any = selected.group_by(wanted)
    return grouped.agg(nw.len().alias(name)).to_native(), name


def selected_columns(frame: Any, columns: Sequence[str]) -> Any:
    """Return some columns of a frame of narwhals.

    Without quotes DuckDB would read the column ``visits.age`` as ``age`` of ``visits``.
    """
    if is_duckdb(frame):
        return nw.from_native(frame.to_native().project(_sql_names(columns)))
    return frame.select(list(columns))


def is_duckdb(frame: Any) -> bool:
    """Whether a frame of narwhals is a relation of DuckDB."""
    return bool(frame.implementation is nw.Implementation.DUCKDB)


def _sql_names(names: Sequence[str]) -> str:
    return ", ".join('"' + name.replace('"', '""') + '"' for name in names)


def _polars_batches(lazy: Any, columns: list[str]) -> Iterator[Any]:
    for frame in lazy.select(columns).collect_batches(chunk_size=BATCH_ROWS):
        yield from load_arrow().table(frame).to_batches()


def _dataset_batches(dataset: Any, columns: list[str]) -> Iterator[Any]:
    import pyarrow as pa
    from pyarrow.dataset import ParquetFragmentScanOptions

    # By default it reads 16 batches of 4 files ahead, and whole row groups: gigabytes.
    limits: dict[str, Any] = {"batch_readahead": 2, "fragment_readahead": 1}
    # Arrow's own pool keeps what it has freed, up to hundreds of megabytes.
    limits["memory_pool"] = pa.system_memory_pool()
    if getattr(getattr(dataset, "format", None), "default_extname", "") == "parquet":
        limits["fragment_scan_options"] = ParquetFragmentScanOptions(
            pre_buffer=False, use_buffered_stream=True
        )
    scanner = dataset.scanner(columns=columns, batch_size=BATCH_ROWS, **limits)
    yield from scanner.to_batches()


def _check_names(used: Sequence[str], known: Sequence[str]) -> None:
    lacking = [j for j, name in enumerate(used) if name not in known]
    if lacking:
        raise ColumnNamesError("the stream has no {columns}.", lacking, used)
    twice = [j for j, name in enumerate(used) if [*used, *known].count(name) > 2]
    if twice:
        raise ColumnNamesError(
            "the name of {columns} is there twice, or used twice, as target, feature, "
            "sample_weight or counts. Name every column once.",
            twice,
            used,
        )


def _check_types(used: Sequence[str], schema: Any) -> None:
    refuse_extensions(schema, used)
    problems = [_problem(schema.field(name).type) for name in used]
    bad = [j for j, problem in enumerate(problems) if problem is not None]
    if bad:
        alike = [j for j in bad if problems[j] == problems[bad[0]]]
        raise DataError(f"{{columns}} {problems[bad[0]]}.", alike, used)


def _problem(kind: Any) -> str | None:
    """Return what is wrong with a column that has no numbers by its type."""
    types = load_arrow().types
    if types.is_dictionary(kind):
        kind = kind.value_type
    kind = getattr(kind, "storage_type", kind)  # of an extension type that is known
    known = (
        types.is_integer,
        types.is_floating,
        types.is_boolean,
        types.is_decimal,
        types.is_null,
    )
    if any(is_one(kind) for is_one in known):
        return None
    if types.is_temporal(kind):
        return _DATES
    return _TEXT if "string" in str(kind) else _OTHER
