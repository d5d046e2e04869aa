"""`Table`: a data frame of any library, as named columns of numbers.

pandas is read as it is; polars, pyarrow and what else narwhals knows, through narwhals.
"""

import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from numbers import Number
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from .._types import Array
from ..errors import DataError
from .names import without_index

ENCODE_FIRST = (
    "Encode text and categories as numbers first, the same way at every client, and "
    "dates as a number, such as years since birth."
)


class Table:
    """A data frame or one of its columns: names, types, and rows as float64.

    Parameters
    ----------
    native : data frame
        The frame; a single column is a frame of one.
    labels : sequence
        Its column labels; positions are no names.
    ndim : int
        2, or 1 for a single column.
    """

    def __init__(self, native: Any, labels: Sequence[Any], ndim: int) -> None:
        self.native, self.ndim = native, ndim
        n_rows, n_columns = native.shape
        self.shape = (n_rows, n_columns) if ndim == 2 else (n_rows,)
        self.names = column_names(labels)

    def not_numbers(self) -> list[tuple[int, str]]:
        """Return number and type of every column that does not hold numbers."""
        raise NotImplementedError

    def rows(self, part: slice) -> Array:
        """Return some rows as float64, with NaN for what is missing."""
        raise NotImplementedError

    def with_nan_for(self, number: Callable[[Any], float]) -> Any:
        """Return a frame in which other columns are numbers, entry by entry."""
        raise NotImplementedError


class _PandasTable(Table):
    def not_numbers(self) -> list[tuple[int, str]]:
        return [
            (j, str(dtype))
            for j, dtype in enumerate(self.native.dtypes)
            if not (_is_numeric(dtype) or self._is_object_of_numbers(j))
        ]

    def _is_object_of_numbers(self, column: int) -> bool:
        values = self.native.iloc[:, column]
        return values.dtype == object and holds_numbers(values.to_numpy())

    def rows(self, part: slice) -> Array:
        values: Array = self.native.iloc[part].to_numpy(np.float64, na_value=np.nan)
        return values

    def with_nan_for(self, number: Callable[[Any], float]) -> Any:
        frame = self.native.copy(deep=False)
        for j, dtype in enumerate(frame.dtypes):
            if not _is_numeric(dtype):
                # Not `map`, which keeps the type of a category.
                column = frame.iloc[:, j]
                found = _each(column, column.iloc.__getitem__, len(column), number)
                frame.isetitem(j, np.array(found, dtype=float))
        return frame if self.ndim == 2 else frame.iloc[:, 0]


class _NarwhalsTable(Table):
    def not_numbers(self) -> list[tuple[int, str]]:
        return [
            (j, str(dtype))
            for j, dtype in enumerate(self.native.schema.dtypes())
            if not _is_number_type(dtype)
        ]

    def rows(self, part: slice) -> Array:
        block = self.native[part]
        if any(dtype != nw.Float64 for dtype in block.schema.dtypes()):
            if block.implementation.is_pyarrow():
                return _float64_of_arrow(block.to_native())
            block = block.select(nw.all().cast(nw.Float64))
        return np.asarray(block.to_numpy(), dtype=np.float64)

    def with_nan_for(self, number: Callable[[Any], float]) -> Any:
        frame = self.native
        columns = [
            column
            if _is_number_type(column.dtype)
            else nw.new_series(
                column.name,
                _each(column.to_native(), column.__getitem__, len(column), number),
                nw.Float64,
                backend=frame.implementation,
            )
            for column in frame.iter_columns()
        ]
        found = frame.with_columns(*columns)
        return (found if self.ndim == 2 else found[found.columns[0]]).to_native()


def _each(
    column: Any, at: Callable[[int], Any], length: int, number: Callable[[Any], float]
) -> list[float]:
    """Return the entries as numbers, NaN for those that their library cannot read.

    One entry, such as a date beyond all years or text in another encoding, must not
    decide about the whole column.
    """

    def found(place: int) -> float:
        try:
            return number(at(place))
        except Exception:
            return np.nan
        except BaseException as error:
            if not _is_panic(error):
                raise
            return np.nan

    try:
        return [number(entry) for entry in column]
    except Exception:
        return [found(k) for k in range(length)]
    except BaseException as error:
        if not _is_panic(error):
            raise
        return [found(k) for k in range(length)]


def _is_panic(error: BaseException) -> bool:
    # What Rust panics with in polars is no `Exception`.
    return type(error).__name__ == "PanicException"


def _float64_of_arrow(table: Any) -> Array:
    """Return columns as float64; whole numbers above 2**53 are rounded, as by NumPy."""
    import pyarrow as pa

    cast = (column.cast(pa.float64(), safe=False) for column in table.columns)
    return np.column_stack([column.to_numpy() for column in cast])


def as_table(data: Any) -> Table | None:
    """Return a data frame or a column of one as a `Table`; None for anything else.

    Examples
    --------
    >>> import pandas as pd
    >>> table = as_table(pd.DataFrame({"age": [41, 36], 2020: [1.5, 2.5]}))
    >>> table.names, table.rows(slice(0, 1))
    (('age', '2020'), array([[41. ,  1.5]]))
    >>> as_table([[1.0, 2.0]]) is None
    True
    """
    if isinstance(data, np.ndarray | list | tuple):
        return None
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(data, pandas.DataFrame):
        return _PandasTable(data, list(data.columns), 2)
    if pandas is not None and isinstance(data, pandas.Series):
        label = () if data.name is None else [data.name]
        return _PandasTable(data.to_frame(), label, 1)
    found = nw.from_native(_arrow_table(data), pass_through=True, allow_series=True)
    if isinstance(found, nw.DataFrame):
        found = found.select(without_index(found.columns))
        return _NarwhalsTable(found, found.columns, 2)
    if isinstance(found, nw.Series):
        label = [found.name] if found.name else ()
        return _NarwhalsTable(found.to_frame(), label, 1)
    if isinstance(found, nw.LazyFrame):
        raise DataError(
            f"{type(data).__name__} has not been computed yet: collect it first, as "
            "with frame.collect()."
        )
    return None


def holds_numbers(values: NDArray[Any]) -> bool:
    """Whether objects are real numbers, or None or NA for what is missing.

    Examples
    --------
    >>> holds_numbers(np.array([1, 2.5, Decimal("3.1"), None], dtype=object))
    True
    >>> holds_numbers(np.array([1, "2"], dtype=object))
    False
    """
    return all(
        (
            issubclass(kind, Number | Decimal | np.bool_ | None.__class__)
            and not issubclass(kind, complex | np.complexfloating)
        )
        or kind.__name__ == "NAType"
        for kind in set(map(type, values.ravel()))
    )


def column_names(labels: Sequence[Any]) -> tuple[str, ...] | None:
    """Return labels as names, None for positions; a name that is there twice fails."""
    positions = [type(label) is int and label == j for j, label in enumerate(labels)]
    if all(positions):  # made by the library, not by anybody who knows the columns
        return None
    names = tuple(map(_name, labels))
    if len(set(names)) < len(names):
        twice = [j for j, name in enumerate(names) if names.index(name) != j]
        raise DataError(
            "the name of {columns} is already used, so clients cannot match these "
            "columns. Give every column a different name.",
            twice,
            names,
        )
    return names


def _name(label: Any) -> str:
    return " / ".join(map(str, label)) if isinstance(label, tuple) else str(label)


def _arrow_table(data: Any) -> Any:
    """Return a record batch as the table that narwhals knows."""
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is None or not isinstance(data, pyarrow.RecordBatch | pyarrow.Table):
        return data
    column_names(data.schema.names)  # names that occur twice are refused in our words
    whole = isinstance(data, pyarrow.Table)
    return data if whole else pyarrow.Table.from_batches([data])


def _is_number_type(dtype: nw.dtypes.DType) -> bool:
    return dtype.is_numeric() or dtype == nw.Boolean


def _is_numeric(dtype: Any) -> bool:
    types = sys.modules["pandas"].api.types
    return bool(
        (types.is_numeric_dtype(dtype) or types.is_bool_dtype(dtype))
        and not types.is_complex_dtype(dtype)
    )
