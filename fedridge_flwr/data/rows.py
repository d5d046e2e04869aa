"""Rows as users hold them: checked once, then handed out as float64 blocks.

NumPy arrays of any real dtype and memory order, pandas frames and SciPy sparse
matrices all become a `Rows`, whose numbers are read one block of rows
at a time, so no copy of the whole is ever made.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .._text import counted
from .._types import Array
from ..errors import DataError
from .schema import HasSchema, Schema

BLOCK_BYTES = 1 << 20
"""Size of a block of float64 rows: small enough to stay in a core's cache."""

# A product costs its square result once, whatever the rows: wide rows come in larger
# blocks, and so do sparse ones, whose products are dense.
_WIDE = 256
_LARGEST_FACTOR = 16
_SPARSE_FACTOR = 8

_REAL_KINDS = "biuf"


@dataclass(frozen=True)
class Block:
    """A few consecutive rows: X dense or CSR, Y (n, t), weights (n,) or None."""

    X: Any
    Y: NDArray[Any]
    weight: Array | None

    @property
    def weights(self) -> Array:
        """Weights of the rows, 1 where none were given."""
        return np.ones(len(self.Y)) if self.weight is None else self.weight


@dataclass(frozen=True)
class Rows(HasSchema):
    """Checked rows [X Y] with weights, ready to be read block by block."""

    X: Any
    Y: Any
    weight: Array | None
    n_rows: int
    schema: Schema

    @property
    def is_sparse(self) -> bool:
        """Whether X is a sparse matrix."""
        return _is_sparse(self.X)

    @property
    def n_filled(self) -> int:
        """Number of rows that have weight."""
        weight = self.weight
        return self.n_rows if weight is None else int(np.count_nonzero(weight))

    @property
    def n_entries(self) -> int:
        """Number of entries of [X Y], without the zeros of a sparse X."""
        entries = self.X.nnz if self.is_sparse else self.n_rows * self.n_features
        return int(entries) + self.n_rows * self.n_targets

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[Block]:
        """Yield the rows from `start` to `stop`, about `BLOCK_BYTES` at a time."""
        for part in self._parts(start, self.n_rows if stop is None else stop):
            weight = None if self.weight is None else self.weight[part]
            yield Block(self._features(part), _targets(self.Y, part), weight)

    def _features(self, part: slice) -> Any:
        return _slice(self.X, part)

    @property
    def _width(self) -> int:
        return self.n_features + self.n_targets

    def _parts(self, start: int, stop: int) -> Iterator[slice]:
        if not self.is_sparse:
            width = self._width
            factor = min(max(width / _WIDE, 1.0), _LARGEST_FACTOR)
            height = max(1, int(factor * BLOCK_BYTES) // (8 * width))
            for first in range(start, stop, height):
                yield slice(first, min(first + height, stop))
            return
        # Rows may be of very different length, so entries are counted, not rows.
        ends = _row_ends(self.X)
        size = _SPARSE_FACTOR * BLOCK_BYTES
        height = max(1, size // (16 * (self.n_targets + 3)))
        while start < stop:
            before = ends[start - 1] if start else 0
            full = int(np.searchsorted(ends, before + size // 48, "right"))
            end = min(max(full, start + 1), start + height, stop)
            yield slice(start, end)
            start = end

    def refuse_bad_values(self) -> None:
        """Raise a `DataError` that names and counts what is not finite or too large."""
        self.refuse_nonfinite()
        raise DataError(
            "values of X or y are so large that their squares overflow float64. "
            "Change the unit of the largest columns."
        )

    def refuse_nonfinite(self) -> None:
        """Raise a `DataError` if there are values that are NaN or infinite."""
        counts: NDArray[np.int64] = np.zeros(
            self.n_features + self.n_targets, dtype=np.int64
        )
        for block in self.blocks():
            counts[: self.n_features] += _nonfinite_per_column(block.X)
            counts[self.n_features :] += _nonfinite_per_column(block.Y)
        bad = np.flatnonzero(counts)
        features = bad[bad < self.n_features]
        if features.size:
            raise DataError(
                f"X has {_bad_values(counts[features].sum())} in {{columns}} "
                f"({', '.join(str(n) for n in counts[features][:6])} of "
                f"{self.n_rows} rows). Remove or impute them before the fit.",
                features.tolist(),
                self.feature_names,
            )
        if bad.size:
            raise DataError(
                f"y has {_bad_values(counts[bad].sum())} in {{columns}} "
                f"({self.n_rows} rows). Remove those rows before the fit.",
                (bad - self.n_features).tolist(),
            )


def check_rows(X: Any, y: Any, sample_weight: Any = None) -> Rows:
    """Check shapes, types and weights of rows; values are checked as they are read.

    Parameters
    ----------
    X : array-like, data frame or sparse matrix of shape (n, d)
        Features.
    y : array-like of shape (n,) or (n, t)
        Targets.
    sample_weight : array-like of shape (n,), optional
        Non-negative weights.
    """
    X, names = _check_features(X)
    Y = _check_targets(y)
    n_rows, n_features = X.shape
    if Y.shape[0] != n_rows:
        raise DataError(
            f"X has {n_rows} rows but y has {Y.shape[0]}: "
            "every row of X needs its own target."
        )
    return Rows(
        X=X,
        Y=Y,
        weight=_check_weights(sample_weight, n_rows),
        n_rows=n_rows,
        schema=Schema(n_features, 1 if Y.ndim == 1 else Y.shape[1], names),
    )


def as_numbers(data: Any) -> Any:
    """Return data with NaN for every entry that is not a number.

    A private release leaves such rows out without a word: an error about one of them
    would tell that it is there.

    Examples
    --------
    >>> as_numbers(np.array([[1.0, "two"]], dtype=object))
    array([[ 1., nan]])
    """
    if _is_frame(data):
        if data.ndim == 2:
            return data.apply(_numeric_series)
        return _numeric_series(data)
    if isinstance(data, np.ma.MaskedArray):
        return as_numbers(np.ma.filled(data.astype(object), np.nan))
    if _is_sparse(data):
        return data
    array = np.asarray(data)
    if array.dtype.kind not in "OUSc":
        return data
    flat = [_number(entry) for entry in array.ravel()]
    return np.array(flat, dtype=np.float64).reshape(array.shape)


def _numeric_series(series: Any) -> Any:
    return series if _is_numeric_dtype(series.dtype) else series.map(_number)


def _number(entry: Any) -> float:
    if isinstance(entry, complex | np.complexfloating):
        return float(entry.real) if entry.imag == 0 else float("nan")
    try:
        return float(entry)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def finite_block(X: Any) -> Any:
    """Return features as float64, dense or CSR; a `DataError` names bad columns."""
    X, names = _check_features(X)
    block = _slice(X, slice(0, X.shape[0]))
    bad = np.flatnonzero(_nonfinite_per_column(block))
    if bad.size:
        raise DataError(
            "X has NaN or infinite values in {columns}.", bad.tolist(), names
        )
    return block if _is_sparse(block) else np.asarray(block, dtype=np.float64)


def _bad_values(count: int, what: str = "NaN or infinite") -> str:
    return counted(count, f"{what} value")


def _is_sparse(data: Any) -> bool:
    return bool(sparse.issparse(data))


def _is_frame(data: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(data, pandas.DataFrame | pandas.Series)


def _check_features(X: Any) -> tuple[Any, tuple[str, ...] | None]:
    names = None
    if _is_frame(X):
        if X.ndim == 2:
            labels = list(X.columns)
            if all(isinstance(label, str) for label in labels):
                names = tuple(labels)
            _refuse_text_columns(X, names, "X")
    elif _is_sparse(X):
        if X.format not in ("csr", "csc"):
            X = X.tocsr()
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()  # an entry may be given in several parts
        _refuse_dtype(X.dtype, "X")
    else:
        X = _real_array(X, "X")
    if X.ndim != 2:
        raise DataError(
            f"X must be 2-D of shape (rows, features), got {X.ndim}-D of shape "
            f"{tuple(X.shape)}. For one feature use X.reshape(-1, 1), "
            "for one row X.reshape(1, -1)."
        )
    if X.shape[1] == 0:
        raise DataError("X has no columns: at least one feature is needed.")
    return X, names


def _check_targets(y: Any) -> Any:
    if _is_frame(y):
        if y.ndim == 2:
            _refuse_text_columns(y, None, "y")
        elif len(y) and not _is_numeric_dtype(y.dtype):
            raise DataError(f"y must be numeric, got dtype {y.dtype}.")
    elif _is_sparse(y):
        raise DataError("y must be dense, got a sparse matrix: use y.toarray().")
    else:
        y = _real_array(y, "y")
    if y.ndim not in (1, 2) or (y.ndim == 2 and y.shape[1] == 0):
        raise DataError(
            f"y must have shape (rows,) or (rows, targets), got {tuple(y.shape)}."
        )
    return y


def _check_weights(sample_weight: Any, n_rows: int) -> Array | None:
    if sample_weight is None:
        return None
    weight = _real_array(sample_weight, "sample_weight").astype(np.float64, copy=False)
    if weight.ndim == 0:
        weight = np.full(n_rows, float(weight))
    if weight.shape != (n_rows,):
        raise DataError(
            f"sample_weight must have shape ({n_rows},), one weight per row of X, "
            f"got {weight.shape}."
        )
    if not np.isfinite(weight).all():
        count = int(np.count_nonzero(~np.isfinite(weight)))
        raise DataError(f"sample_weight has {_bad_values(count)}.")
    with np.errstate(over="ignore"):
        total = weight.sum()
    if not np.isfinite(total):
        raise DataError("the sum of sample_weight overflows float64: scale it down.")
    if (weight < 0).any():
        raise DataError(
            f"sample_weight has {_bad_values((weight < 0).sum(), 'negative')}: "
            "weights must be zero or more."
        )
    return weight


def _real_array(data: Any, what: str) -> NDArray[Any]:
    masked = int(np.count_nonzero(getattr(data, "mask", False)))
    if isinstance(data, np.ma.MaskedArray) and masked:
        raise DataError(
            f"{what} has {_bad_values(masked, 'masked')}. "
            "Remove or impute them before the fit."
        )
    try:
        array = np.asarray(data)
    except (TypeError, ValueError):
        # `from None`: what the data say for themselves may quote them.
        raise DataError(
            f"{what} is not a rectangular array of numbers: every row needs the same "
            "number of entries."
        ) from None
    if array.dtype == object and array.ndim in (1, 2):
        return _from_objects(array, what)
    _refuse_dtype(array.dtype, what)
    return array


def _from_objects(array: NDArray[Any], what: str) -> NDArray[Any]:
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        columns = array.reshape(array.shape[0], -1).T
        bad = [j for j, column in enumerate(columns) if not _converts(column)]
        # `from None`: the cause would quote the offending value of the data.
        raise DataError(
            f"{what} must be numeric, but {{columns}} "
            f"{'holds' if len(bad) == 1 else 'hold'} other values. "
            "Encode text and categories as numbers first.",
            bad,
        ) from None


def _converts(column: NDArray[Any]) -> bool:
    try:
        column.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _refuse_dtype(dtype: np.dtype[Any], what: str) -> None:
    if dtype.names is not None:
        raise DataError(
            f"{what} must be a plain array of numbers, not one with named fields."
        )
    if dtype.kind not in _REAL_KINDS:
        raise DataError(
            f"{what} must be numeric and real, got dtype {dtype}. "
            "Encode text and categories as numbers first."
        )


def _refuse_text_columns(frame: Any, names: tuple[str, ...] | None, what: str) -> None:
    bad = [j for j, dtype in enumerate(frame.dtypes) if not _is_numeric_dtype(dtype)]
    # A frame without rows has no types worth the name: an empty client is fine.
    if bad and len(frame):
        raise DataError(
            f"{what} must be numeric, but {{columns}} "
            f"{'is' if len(bad) == 1 else 'are'} not. "
            "Encode text, dates and categories as numbers first.",
            bad,
            names,
        )


def _is_numeric_dtype(dtype: Any) -> bool:
    types = sys.modules["pandas"].api.types
    return bool(
        (types.is_numeric_dtype(dtype) or types.is_bool_dtype(dtype))
        and not types.is_complex_dtype(dtype)
    )


def _row_ends(X: Any) -> NDArray[Any]:
    """Return how many entries there are up to the end of every row."""
    if X.format == "csr":
        return np.asarray(X.indptr[1:])
    return np.cumsum(np.bincount(X.indices, minlength=X.shape[0]))


def _slice(X: Any, part: slice) -> Any:
    if _is_frame(X):
        return X.iloc[part].to_numpy(dtype=np.float64, na_value=np.nan)
    if _is_sparse(X):
        return _sparse_rows(X, part).astype(np.float64, copy=False)
    return X[part]


def _sparse_rows(X: Any, part: slice) -> Any:
    if X.format != "csr":
        return X[part].tocsr()
    # A view of the entries, where SciPy's own slice copies them.
    ends = X.indptr[part.start : part.stop + 1]
    entries = slice(ends[0], ends[-1])
    shape = (part.stop - part.start, X.shape[1])
    return sparse.csr_array(
        (X.data[entries], X.indices[entries], ends - ends[0]), shape=shape
    )


def _targets(Y: Any, part: slice) -> NDArray[Any]:
    block = _slice(Y, part)
    return block.reshape(-1, 1) if block.ndim == 1 else block  # type: ignore[no-any-return]


def _nonfinite_per_column(block: Any) -> NDArray[np.int64]:
    if _is_sparse(block):
        bad = block.indices[~np.isfinite(block.data)]
        return np.asarray(np.bincount(bad, minlength=block.shape[1]))
    if block.dtype.kind != "f":
        return np.zeros(block.shape[1], dtype=np.int64)
    return np.asarray(np.count_nonzero(~np.isfinite(block), axis=0))
