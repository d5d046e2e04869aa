"""Weight, mean and centred co-moments of rows: merged, removed, kept as running totals.

A `Moments` of rows z with weights w is (W, m, C) with

    W = sum w,    m = sum w z / W,    C = sum w (z - m)(z - m)'.

Two of them merge by the pairwise update of Chan, Golub and LeVeque (1979), which
never forms the raw second moment and so does not lose digits to large means.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .._types import Array
from ..data.rows import Block, Rows
from ..data.schema import HasSchema, Schema
from ..errors import StatisticsError
from ..linalg.blas import blas_threads, blas_workers
from ..linalg.packed import add_square, diagonal_positions, from_upper, upper_triangle

if TYPE_CHECKING:
    from .sufficient import SufficientStatistics


_DENSE_RATIO = 4.0
_BLOCKS_PER_SHIFT = 16
_WORTH_SHARING = 5e7
_WORKER_BYTES = 32
_SHARED_BYTES = 64 << 20
_SMALL_BYTES = 16 << 10
_WAITING = 256
_FEW = 64


class Moments(NamedTuple):
    """Total weight W, mean m (p,) and the upper triangle of the co-moments C.

    The mean is ``mean + mean_low``. Without the low part, every merge would round the
    mean, and over many unlike clients (sorted rows) those roundings cost digits of C.
    """

    weight: float
    mean: Array
    triangle: Array
    mean_low: Array

    @classmethod
    def zero(cls, width: int) -> Moments:
        """Return the moments of no rows."""
        triangle = np.zeros(width * (width + 1) // 2)
        return cls(0.0, np.zeros(width), triangle, np.zeros(width))


def merge(a: Moments, b: Moments, *, in_place: bool = False) -> Moments:
    """Return the moments of the rows of `a` and `b` together.

    With `in_place` the triangle of `a` is overwritten and must not be used any more.
    """
    if b.weight == 0.0:
        return a
    if a.weight == 0.0:
        if not in_place:
            return b
        np.copyto(a.triangle, b.triangle)
        return b._replace(triangle=a.triangle)
    weight = a.weight + b.weight
    delta = (b.mean - a.mean) + (b.mean_low - a.mean_low)
    triangle = np.add(a.triangle, b.triangle, out=a.triangle if in_place else None)
    add_square(triangle, delta, a.weight * (b.weight / weight))
    mean, low = two_sum(a.mean, a.mean_low + delta * (b.weight / weight))
    return Moments(weight, mean, triangle, low)


def merge_many(parts: Sequence[Any]) -> Moments:
    """Return the moments of the rows of many small statistics, by products for all."""
    weights = np.array([part.total_weight for part in parts])
    total = float(weights.sum())
    if total == 0.0:
        return Moments.zero(parts[0].means.size)
    number = len(parts)
    means = np.concatenate([part.means for part in parts]).reshape(number, -1)
    shift = means[weights.argmax()]
    none = np.zeros_like(shift)
    lows = [none if part.means_low is None else part.means_low for part in parts]
    gaps = (means - shift) + np.concatenate(lows).reshape(number, -1)
    rest = weights @ gaps / total
    gaps -= rest
    gaps *= np.sqrt(weights)[:, None]
    triangles = np.concatenate([part.triangle for part in parts]).reshape(number, -1)
    triangle = triangles.sum(axis=0)
    triangle += upper_triangle(gaps.T @ gaps)
    mean, low = two_sum(shift, rest)
    return Moments(total, mean, triangle, low)


def remove(total: Moments, part: Moments) -> Moments:
    """Return the moments of the rows of `total` that are not in `part`."""
    if part.weight == 0.0:
        return total
    weight = total.weight - part.weight
    delta = (total.mean - part.mean) + (total.mean_low - part.mean_low)
    triangle = total.triangle - part.triangle
    add_square(triangle, delta, -part.weight * (total.weight / weight))
    mean, low = two_sum(total.mean, total.mean_low + delta * (part.weight / weight))
    return Moments(weight, mean, triangle, low)


def moments_of(rows: Rows) -> Moments:
    """Return the moments of the rows [X Y], not finite where the rows are not."""
    width = rows.n_features + rows.n_targets
    compute = _sparse_moments if rows.is_sparse else _dense_moments
    most = int(rows.n_entries * width / _WORTH_SHARING)
    if most > 1 and blas_threads() * _WORKER_BYTES * width**2 > _SHARED_BYTES:
        # Too much memory for a total per worker; large products are shared by BLAS.
        return compute(rows.blocks(), width)
    with blas_workers() as threads:
        workers = min(threads, most)
        if workers <= 1:
            return compute(rows.blocks(), width)
        ends = [rows.n_rows * k // workers for k in range(workers + 1)]
        shares = [rows.blocks(start, stop) for start, stop in pairwise(ends)]
        with ThreadPoolExecutor(workers) as pool:
            parts = list(pool.map(lambda share: compute(share, width), shares))
    return reduce(merge, parts)


def _dense_moments(blocks: Iterable[Block], width: int) -> Moments:
    total, run = Moments.zero(width), _DenseRun(width)
    with np.errstate(invalid="ignore", over="ignore"):
        for block in blocks:
            run.add([block.X, block.Y], block.weight)
            # A shift is good for a whole run if its block weighs as much as the others.
            if block.weight is not None or run.blocks == _BLOCKS_PER_SHIFT:
                total = merge(total, run.finish())
        return merge(total, run.finish())


class _DenseRun:
    """Consecutive dense blocks, centred by one shift and summed by rank-k updates.

    A column of ones beside the rows [X Y] makes the same product yield their
    sums, so each block is read once, to be centred, and multiplied once. The shift
    is the mean of the first block, or zero where that is small against the spread. It
    need not be the mean of the run: what it is off by is taken out at the end, and
    costs digits only if the run is far shorter than the distance, in standard
    deviations, squared; hence runs of bounded length.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._buffer = np.empty((0, width + 1))
        self._sum, self._product = np.empty((2, width + 1, width + 1))
        self._start()

    def _start(self) -> None:
        self.blocks, self._weight = 0, 0.0
        self._shift: Array = np.zeros(self._width)

    def add(self, parts: list[NDArray[Any]], weight: Array | None) -> None:
        """Add the rows [X Y] of one block."""
        n_rows = parts[0].shape[0]
        if weight is not None and not weight.any():
            return
        if not self.blocks:
            first = np.concatenate(parts, axis=1, dtype=np.float64, casting="unsafe")
            self._shift = _shift_of(first, weight)
        if n_rows > len(self._buffer):
            self._buffer = np.empty((n_rows, self._width + 1))
            self._buffer[:, -1] = 1.0
        rows = self._buffer[:n_rows]
        start = 0
        for part in parts:
            stop = start + part.shape[1]
            centred, shift = rows[:, start:stop], self._shift[start:stop]
            if shift.any():
                np.subtract(part, shift, out=centred)
            else:
                np.copyto(centred, part, casting="unsafe")
            start = stop
        if weight is None:
            self._weight += n_rows
        else:
            self._weight += float(weight.sum())
            rows[:, -1] = 1.0
            rows *= np.sqrt(weight)[:, None]
        if self.blocks:
            # NumPy knows a matrix times its own transpose: half the work.
            self._sum += np.matmul(rows.T, rows, out=self._product)
        else:
            np.matmul(rows.T, rows, out=self._sum)
        self.blocks += 1

    def finish(self) -> Moments:
        """Return the moments of the blocks added so far, and start anew."""
        if not self.blocks:
            return Moments.zero(self._width)
        shift, weight = self._shift, self._weight
        rest = self._sum[-1, :-1] / weight
        triangle = upper_triangle(self._sum[:-1, :-1])
        self._start()
        add_square(triangle, rest, -weight)
        mean, low = two_sum(shift, rest)
        return Moments(weight, mean, _clamp_variances(triangle, self._width), low)


def _shift_of(rows: Array, weight: Array | None) -> Array:
    if weight is not None:
        # By weight: a far row of weight zero must not take the digits of the others.
        return np.asarray(weight @ rows / weight.sum())
    mean = np.ones(len(rows)) @ rows / len(rows)
    squares = np.einsum("ij,ij->j", rows, rows)
    # Half a standard deviation off costs a third of a bit.
    small = np.isfinite(squares) & (5.0 * mean**2 * len(rows) <= squares)
    return np.where(small, 0.0, mean)


def _sparse_moments(blocks: Iterable[Block], width: int) -> Moments:
    with np.errstate(invalid="ignore", over="ignore"):
        return reduce(merge, map(_sparse_block, blocks), Moments.zero(width))


def _sparse_block(block: Block) -> Moments:
    """Moments of [X Y] with X in CSR, without densifying it.

    Raw products minus W m m' lose (mean/sd)^2 in accuracy. A column can have such a
    ratio r only if at least r^2/(1+r^2) of its entries are non-zero, so columns
    above `_DENSE_RATIO` are dense anyway: they join the targets in the dense part.
    """
    X, Y = block.X, block.Y
    n_rows, n_features = X.shape
    weight = np.ones(n_rows) if block.weight is None else block.weight
    total = float(weight.sum())
    if total == 0.0:
        return Moments.zero(n_features + Y.shape[1])
    mean, square = _sparse_sums(X, block.weight) / total
    offset = mean**2 * (1 + _DENSE_RATIO**-2) > square
    offset &= mean != 0.0
    light, heavy = np.flatnonzero(~offset), np.flatnonzero(offset)

    dense_rows = Block(X[:, heavy].toarray(), Y, block.weight)
    dense = _dense_moments([dense_rows], len(heavy) + Y.shape[1])
    where_dense = np.concatenate([heavy, n_features + np.arange(Y.shape[1])])
    Z = np.hstack([dense_rows.X, Y]) - dense.mean
    if block.weight is not None:
        Z *= weight[:, None]

    X_light = X[:, light] if heavy.size else X
    weighted = X_light if block.weight is None else sparse.diags_array(weight) @ X_light
    inner = (X_light.T @ weighted).toarray()
    inner -= total * np.outer(mean[light], mean[light])
    cross = np.asarray(X_light.T @ Z)
    cross -= np.outer(mean[light], Z.sum(axis=0))

    width = n_features + Y.shape[1]
    means, means_low = np.zeros(width), np.zeros(width)
    means[light], means[where_dense] = mean[light], dense.mean
    means_low[where_dense] = dense.mean_low
    comoment = np.empty((width, width))
    comoment[np.ix_(light, light)] = (inner + inner.T) / 2.0
    comoment[np.ix_(light, where_dense)] = cross
    comoment[np.ix_(where_dense, light)] = cross.T
    among_dense = from_upper(dense.triangle, len(where_dense))
    comoment[np.ix_(where_dense, where_dense)] = among_dense
    triangle = _clamp_variances(upper_triangle(comoment), width)
    return Moments(total, means, triangle, means_low)


def _sparse_sums(X: Any, weight: Array | None) -> Array:
    """Return the weighted sums of the columns of a CSR matrix, and of their squares."""
    values = X.data
    weighted = values
    if weight is not None:
        weighted = values * np.repeat(weight, np.diff(X.indptr))
    sums = (weighted, weighted * values)
    return np.stack([np.bincount(X.indices, w, X.shape[1]) for w in sums])


def two_sum(large: Array, small: Array) -> tuple[Array, Array]:
    """Return the rounded sum and what rounding cut off (Knuth)."""
    total = large + small
    share = total - large
    return total, (large - (total - share)) + (small - share)


def _clamp_variances(triangle: Array, width: int) -> Array:
    """Set variances that rounding left below zero to zero, in place."""
    places = diagonal_positions(width)
    triangle[places] = np.maximum(triangle[places], 0.0)
    return triangle


# ---- running totals -----------------------------------------------------------------


def check_mergeable(ours: Schema, theirs: Schema) -> None:
    """Raise a `StatisticsError` if statistics of these columns cannot be added up."""
    reason = ours.mismatch(theirs)
    if reason is not None:
        raise StatisticsError(
            f"the columns differ: {reason}. Statistics merge only over the same "
            "columns in the same order; bring every client to one schema."
        )


def filled_together(one: Any, other: Any) -> int | None:
    """Return how many rows of both have weight; None where neither had weights."""
    if one.n_filled is None and other.n_filled is None:
        return None
    each = (s.count if s.n_filled is None else s.n_filled for s in (one, other))
    filled: int = sum(each)
    return filled


def filled_left(whole: Any, part: Any) -> int | None:
    """Return how many rows with weight are left without those of a part."""
    filled: int | None = whole.n_filled
    gone: int = part.count if part.n_filled is None else part.n_filled
    return None if filled is None else max(filled - gone, 0)


class RunningTotal:
    """The sum of `SufficientStatistics`, added up in place.

    It is `sum`, without a new triangle for every addend.

    Examples
    --------
    >>> from fedridge_flwr import SufficientStatistics
    >>> a = SufficientStatistics.from_data([[1.0], [3.0]], [2.0, 4.0])
    >>> running = RunningTotal(a)
    >>> running.add(a)
    >>> running.total(), running.count
    (SufficientStatistics(4 rows, 1 feature, 1 target), 4)
    """

    def __init__(self, first: SufficientStatistics) -> None:
        self._kind, self._moments = type(first), first.moments
        self._own = False  # the triangle is that of somebody else, not to be changed
        self._waiting: list[SufficientStatistics] = []
        self._schema, self.count = first.schema, first.count
        self.n_filled = first.n_filled
        self._n_clients = first.n_clients
        self._rounding = first.rounding if first.total_weight else 0.0

    def add(self, part: SufficientStatistics) -> None:
        """Add the statistics of other rows with the same columns."""
        if part.schema is not self._schema:
            check_mergeable(self._schema, part.schema)
            self._schema = self._schema.with_names_of(part.schema)
        self.n_filled = filled_together(self, part)
        self.count += part.count
        self._n_clients += part.n_clients
        if part.rounding and part.total_weight:
            self._rounding = max(self._rounding, part.rounding)
        # Of many small ones the calls cost more than the numbers.
        if self._n_clients <= _FEW or part.triangle.nbytes > _SMALL_BYTES:
            self._merge(part.moments)
            return
        self._waiting.append(part)
        if len(self._waiting) == _WAITING:
            self._merge_waiting()

    def _merge_waiting(self) -> None:
        if self._waiting:
            self._merge(merge_many(self._waiting))
            self._waiting.clear()

    def _merge(self, other: Moments) -> None:
        before = self._moments
        self._moments = merge(before, other, in_place=self._own)
        if self._moments.triangle is not before.triangle:
            self._own = self._moments.triangle is not other.triangle

    def total(self) -> SufficientStatistics:
        """Return the sum so far; what is added later does not change it."""
        self._merge_waiting()
        self._own = False
        return self._kind.of_moments(
            self._moments,
            count=self.count,
            schema=self._schema,
            n_clients=self._n_clients,
            rounding=self._rounding,
            n_filled=self.n_filled,
        )


class RunningSum:
    """The sum of contributions that are merged by plain addition.

    Of private ones the number of rows is not known (`has_count`).
    """

    def __init__(self, first: Any, *, has_count: bool = True) -> None:
        self._total, self._has_count = first, has_count

    def add(self, part: Any) -> None:
        """Add one more."""
        self._total = self._total + part

    def total(self) -> Any:
        """Return the sum so far."""
        return self._total

    @property
    def count(self) -> int:
        """Number of rows in it, as far as it is known."""
        return int(self._total.count) if self._has_count else 0


class MomentViews(HasSchema):
    """Gives statistics of rows their parts and raw sums as attributes.

    Whoever has `total_weight`, `means` and the packed `triangle` has these.
    """

    total_weight: float
    means: Array
    triangle: Array

    @cached_property
    def comoment(self) -> Array:
        """Centred co-moments ``C`` of [X Y], shape (d + t, d + t)."""
        full = from_upper(self.triangle, self.means.size)
        full.setflags(write=False)
        return full

    @cached_property
    def feature_means(self) -> Array:
        """Means of X, shape (d,)."""
        return self.means[: self.n_features]

    @cached_property
    def target_means(self) -> Array:
        """Means of Y, shape (t,)."""
        return self.means[self.n_features :]

    @cached_property
    def centred_gram(self) -> Array:
        """Centred co-moments of X, shape (d, d)."""
        return self.comoment[: self.n_features, : self.n_features]

    @cached_property
    def centred_moment(self) -> Array:
        """Centred co-moments of X with Y, shape (d, t)."""
        d = self.n_features
        # Row k of the triangle begins at the diagonal.
        places = diagonal_positions(self.means.size)[:d] + (d - np.arange(d))
        return np.asarray(self.triangle[places[:, None] + np.arange(self.n_targets)])

    @cached_property
    def centred_target_gram(self) -> Array:
        """Centred co-moments of Y, shape (t, t)."""
        t = self.n_targets
        return from_upper(self.triangle[-(t * (t + 1) // 2) :], t)

    @property
    def gram(self) -> Array:
        """The paper's Gram matrix ``G = X'X``, shape (d, d); with weights ``X'WX``.

        Computed from co-moments and means.
        """
        means = self.feature_means
        return self.centred_gram + self.total_weight * np.outer(means, means)

    @property
    def moment(self) -> Array:
        """The paper's ``h = X'Y``, shape (d, t); with weights ``X'WY``."""
        outer = np.outer(self.feature_means, self.target_means)
        return self.centred_moment + self.total_weight * outer

    @property
    def target_gram(self) -> Array:
        """Sums of squares and products ``Y'Y`` of the targets, shape (t, t)."""
        means = self.target_means
        return self.centred_target_gram + self.total_weight * np.outer(means, means)

    @cached_property
    def variances(self) -> Array:
        """Weighted variances of the features by the total weight, shape (d,)."""
        if self.total_weight == 0.0:
            return np.zeros(self.n_features)
        return self.squares / self.total_weight

    @cached_property
    def squares(self) -> Array:
        """Centred sums of squares of the features, shape (d,)."""
        places = diagonal_positions(self.means.size)[: self.n_features]
        return np.asarray(self.triangle[places])
