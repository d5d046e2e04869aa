"""Rows as users hold them: checked once, then handed out as float64 blocks.

NumPy arrays of any real dtype and memory order, data frames (`tables`) and SciPy sparse
matrices all become a `Rows`, whose numbers are read one block of rows
at a time, so no copy of the whole is ever made.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .._text import counted, quoted
from .._types import Array
from ..errors import ColumnNamesError, DataError
from .names import Columns, Names
from .schema import HasSchema, Schema
from .tables import ENCODE_FIRST, Table, as_table, holds_numbers

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
    """Checked rows [X Y] with weights, ready to be read block by block.

    The schema may have the columns in another order than X and Y: `places` and
    `target_places` say where they are.
    """

    X: Any
    Y: Any
    weight: Array | None
    n_rows: int
    schema: Schema
    places: NDArray[Any] | None = None
    target_places: NDArray[Any] | None = None

    def arranged(self, wanted: Columns | None) -> "Rows":
        """Return the same rows with their columns in the order that is wanted.

        Raises
        ------
        DataError
            If the names are others; rows without names are left as they are.
        """
        if wanted is None:
            return self
        schema = self.schema
        places = places_of("X", schema.features, wanted.features)
        targets = places_of("y", schema.targets, wanted.targets)
        return replace(
            self,
            schema=schema.arranged(wanted),
            places=places,
            target_places=targets,
        )

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
    def known_filled(self) -> int | None:
        """The same, None without weights."""
        return None if self.weight is None else self.n_filled

    @property
    def n_entries(self) -> int:
        """Number of entries of [X Y], without the zeros of a sparse X."""
        entries = self.X.nnz if self.is_sparse else self.n_rows * self.n_features
        return int(entries) + self.n_rows * self.n_targets

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[Block]:
        """Yield the rows from `start` to `stop`, about `BLOCK_BYTES` at a time."""
        for part in self._parts(start, self.n_rows if stop is None else stop):
            weight = None if self.weight is None else self.weight[part]
            yield Block(self._features(part), self._targets(part), weight)

    def _features(self, part: slice) -> Any:
        block = _slice(self.X, part)
        return block if self.places is None else block[:, self.places]

    def _targets(self, part: slice) -> NDArray[Any]:
        block: NDArray[Any] = _slice(self.Y, part)
        block = block.reshape(-1, 1) if block.ndim == 1 else block
        return block if self.target_places is None else block[:, self.target_places]

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

    def refuse_columns_without_numbers(self) -> None:
        """Raise a `DataError` if a column of X has no finite value in any row."""
        bad: NDArray[np.int64] = np.zeros(self.n_features, dtype=np.int64)
        for block in self.blocks():
            bad += _nonfinite_per_column(block.X)
        empty = np.flatnonzero(bad == self.n_rows).tolist()
        if empty and self.n_rows:
            raise DataError(
                f"X has no numbers in {{columns}}. {ENCODE_FIRST}",
                empty,
                self.feature_names,
            )

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
                self.target_names,
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
    Y, target_names = _check_targets(y)
    n_rows, n_features = X.shape
    if Y.shape[0] != n_rows:
        raise DataError(
            f"X has {n_rows} rows but y has {Y.shape[0]}: "
            "every row of X needs its own target."
        )
    return Rows(
        X=X,
        Y=Y,
        weight=check_weights(sample_weight, n_rows),
        n_rows=n_rows,
        schema=Schema(
            n_features,
            1 if Y.ndim == 1 else Y.shape[1],
            features=_as_names(names),
            targets=_as_names(target_names),
        ),
    )


def is_batch(batch: Any) -> bool:
    """Whether it is (X, y) or (X, y, sample_weight).

    A DataLoader of PyTorch yields lists of tensors. A list of numbers, or of lists, is
    not taken for one: it may be a row, or X.
    """
    if isinstance(batch, list):
        return len(batch) in (2, 3) and all(hasattr(x, "__array__") for x in batch)
    return isinstance(batch, tuple) and len(batch) in (2, 3)


def _as_names(names: tuple[str, ...] | None) -> Names | None:
    return None if names is None else Names.of(names)


def finite_block(X: Any) -> Any:
    """Return features as float64, dense or CSR; a `DataError` names bad columns."""
    return named_block(X)[0]


def named_block(X: Any) -> tuple[Any, Names | None]:
    """Return the same, and the names of the columns."""
    X, names = _check_features(X)
    block = _slice(X, slice(0, X.shape[0]))
    bad = np.flatnonzero(_nonfinite_per_column(block))
    if bad.size:
        raise DataError(
            "X has NaN or infinite values in {columns}.", bad.tolist(), names
        )
    if not _is_sparse(block):
        block = np.asarray(block, dtype=np.float64)
    return block, _as_names(names)


def places_of(what: str, own: Names | None, wanted: Names | None) -> Any:
    """Return where the wanted columns are, or None where they are in order."""
    if own is not None and wanted is None and own.are_other_positions:
        raise ColumnNamesError(f"the columns of {what} are numbered in another order.")
    if own is None or wanted is None or own.matches(wanted):
        return None
    places = own.places_of(wanted)
    if places is not None:
        return places
    unknown, missing = own.not_in(wanted)
    details = []
    if unknown:
        details.append(f"{{columns}} {_is_or_are(unknown)} not among them")
    if missing:
        details.append(f"{quoted(missing)} {_is_or_are(missing)} missing")
    raise ColumnNamesError(
        f"{what} has other columns than the fit"
        + (f": {', and '.join(details)}." if details else " (their names differ)."),
        unknown,
        own.known,
    )


def _bad_values(count: int, what: str = "NaN or infinite") -> str:
    return counted(count, f"{what} value")


def _is_sparse(data: Any) -> bool:
    return bool(sparse.issparse(data))


def _is_array(data: Any) -> bool:
    return isinstance(data, np.ndarray) or _is_sparse(data)


def _check_features(X: Any) -> tuple[Any, tuple[str, ...] | None]:
    names, table = None, None if _is_array(X) else as_table(X)
    if table is not None:
        X, names = table, table.names
        _refuse_other_columns(table, "X")
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


def _check_targets(y: Any) -> tuple[Any, tuple[str, ...] | None]:
    if _is_sparse(y):
        raise DataError("y must be dense, got a sparse matrix: use y.toarray().")
    names, table = None, None if _is_array(y) else as_table(y)
    if table is not None:
        y, names = table, table.names
        _refuse_other_columns(table, "y")
    else:
        y = _real_array(y, "y")
    if y.ndim not in (1, 2) or (y.ndim == 2 and y.shape[1] == 0):
        raise DataError(
            f"y must have shape (rows,) or (rows, targets), got {tuple(y.shape)}."
        )
    return y, names


def check_weights(sample_weight: Any, n_rows: int) -> Array | None:
    """Return weights as float64; a `DataError` says what is wrong with them."""
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
    _refuse_far_tensor(data, what)
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
    if array.dtype == object and array.ndim == 0:
        raise DataError(
            f"{what} must be an array, a data frame or a sparse matrix, got "
            f"{type(data).__name__}. If rows come in batches, as from a DataLoader, "
            "return one iterable of (X, y); or use SufficientStatistics.from_batches."
        )
    _refuse_dtype(array.dtype, what)
    return array


def _refuse_far_tensor(data: Any, what: str) -> None:
    """Refuse a tensor that NumPy cannot read, whose own error says so in other words.

    An array of NumPy has a device as well, which is text.
    """
    if getattr(data, "requires_grad", False) is True:
        raise DataError(f"{what} requires grad: return {what}.detach().numpy().")
    device = getattr(getattr(data, "device", None), "type", "cpu")
    if isinstance(device, str) and device != "cpu":
        raise DataError(f"{what} is on device {device}: return {what}.cpu().numpy().")


def _from_objects(array: NDArray[Any], what: str) -> NDArray[Any]:
    columns = array.reshape(array.shape[0], -1).T
    bad = [j for j, column in enumerate(columns) if not _converts(column)]
    if bad:
        raise DataError(
            f"{what} must be numeric, but {{columns}} "
            f"{_has_or_have(bad)} other values. {_remedy(what)}",
            bad,
        )
    return array.astype(np.float64)


def _converts(column: NDArray[Any]) -> bool:
    try:  # text of digits would convert, too
        return holds_numbers(column) and column.astype(np.float64) is not None
    except (TypeError, ValueError, OverflowError):
        return False


def _refuse_dtype(dtype: np.dtype[Any], what: str) -> None:
    if dtype.names is not None:
        raise DataError(
            f"{what} must be a plain array of numbers, not one with named fields."
        )
    if dtype.kind not in _REAL_KINDS:
        raise DataError(
            f"{what} must be numeric and real, got dtype {dtype}. {_remedy(what)}"
        )


def _refuse_other_columns(table: Table, what: str) -> None:
    bad = table.not_numbers()
    # A frame without rows has no types worth the name: an empty client is fine.
    if bad and table.shape[0]:
        kinds = ", ".join(dict.fromkeys(kind for _, kind in bad[:4]))
        raise DataError(
            f"{what} must be numeric, but {{columns}} {_has_or_have(bad)} the type "
            f"{kinds}. {_remedy(what)}",
            [j for j, _ in bad],
            table.names,
        )


def _remedy(what: str) -> str:
    if what != "y":
        return ENCODE_FIRST
    return (
        'Ridge regression predicts numbers. For labels of classes use classes="auto" '
        "on the server; encode other text, or dates, as numbers."
    )


def _has_or_have(several: Sequence[object]) -> str:
    return "has" if len(several) == 1 else "have"


def _is_or_are(several: Sequence[object]) -> str:
    return "is" if len(several) == 1 else "are"


def _row_ends(X: Any) -> NDArray[Any]:
    """Return how many entries there are up to the end of every row."""
    if X.format == "csr":
        return np.asarray(X.indptr[1:])
    return np.cumsum(np.bincount(X.indices, minlength=X.shape[0]))


def _slice(X: Any, part: slice) -> Any:
    if isinstance(X, Table):
        return X.rows(part)
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


def _nonfinite_per_column(block: Any) -> NDArray[np.int64]:
    if _is_sparse(block):
        bad = block.indices[~np.isfinite(block.data)]
        return np.asarray(np.bincount(bad, minlength=block.shape[1]))
    if block.dtype.kind != "f":
        return np.zeros(block.shape[1], dtype=np.int64)
    return np.asarray(np.count_nonzero(~np.isfinite(block), axis=0))
