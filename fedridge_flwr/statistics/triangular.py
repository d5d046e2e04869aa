"""`TriangularStatistics`: the factor of a QR in place of sums of squares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from .._checks import check_numbers
from .._text import counted
from .._types import Array
from ..data.names import Columns, Names
from ..data.rows import BLOCK_BYTES, Rows, check_rows
from ..data.schema import HasSchema, Schema
from ..errors import StatisticsError
from ..features import FeatureMap, map_rows
from ..linalg.orthogonal import triangular_factor
from ..linalg.packed import upper_triangle
from ..linalg.pivoted import check_height, packed_factor, trapezoid_places
from .dense_rows import centred, dense_rows
from .moments import RunningSum, check_mergeable, filled_together, two_sum
from .sufficient import SufficientStatistics
from .trapezoid import check_width
from .validity import check_count, check_diagonal, check_weight

_TALL, _FEW_ROWS = 4, 256


@dataclass(frozen=True, eq=False, repr=False)
class TriangularStatistics(HasSchema):
    """Count, weight, means and a factor R with ``R'R = sum w (z - mean)(z - mean)'``.

    R is that of a QR of the centred rows z = [x y]; the sums of squares themselves,
    which `SufficientStatistics` hold, are never formed. The errors of what follows from
    R grow with the condition of the rows, and not with its square: nearly dependent
    columns that cost sums twelve digits cost a factor six, and residual sums of squares
    do not cancel. The law is the same, up to rounding::

        from_data(rows A) + from_data(rows B) == from_data(rows A and B)

    Factors are merged by a QR of both, and of ``sqrt(v w / (v + w))`` times the
    difference of the means, for weights v and w. Factors cannot be subtracted:
    ``a + b - b`` is an error. They take as many bytes as `SufficientStatistics`, and
    several times as long to compute and to merge.

    Make them with `from_data`; ``sum([...])`` adds up any number. `solve`,
    `solve_path`, `select_alpha` and `infer` take them as they are; everything else
    `to_sufficient`. The parameters below are also the attributes; with d features and t
    targets:

    Parameters
    ----------
    count : int
        Number of rows.
    total_weight : float
        Sum of the sample weights (equal to `count` without weights).
    means : ndarray of shape (d + t,)
        Weighted means of [X Y].
    factor : ndarray of shape (m, d + t)
        Rows F with F'F = R'R. Those of merged statistics are put on top of each other,
        up to some hundred, before there is a QR of them.
    schema : Schema
        The columns, as in `SufficientStatistics`.
    n_clients : int
        How many contributions were merged.
    means_low : ndarray of shape (d + t,), optional
        What rounding cut off the means.
    n_filled : int, optional
        As in `SufficientStatistics`.

    Notes
    -----
    No rows, one row, constant columns, n < d, zero weights and bad values are treated
    as in `SufficientStatistics`; of n rows, R has at most n - 1.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import TriangularStatistics, solve
    >>> x = np.arange(40.0)
    >>> X = np.column_stack([x, x + 1e-6 * np.sin(x)])
    >>> y = X @ [1.0, 2.0]
    >>> parts = [TriangularStatistics.from_data(X[k::4], y[k::4]) for k in range(4)]
    >>> sum(parts)
    TriangularStatistics(40 rows, 2 features, 1 target)
    >>> solve(sum(parts), alpha=0.0).coef_.round(6)
    array([1., 2.])
    """

    count: int
    total_weight: float
    means: Array
    factor: Array
    schema: Schema
    n_clients: int = 1
    means_low: Array | None = None
    n_filled: int | None = None

    form: ClassVar[str] = "triangular"
    rounding: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        """Freeze the arrays: statistics share them when nothing has to be added."""
        self.means.setflags(write=False)
        self.factor.setflags(write=False)

    # ---- from rows ------------------------------------------------------------

    @classmethod
    def from_data(
        cls,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        feature_map: FeatureMap | None = None,
    ) -> TriangularStatistics:
        """Return the statistics of rows held in memory, read in blocks.

        Parameters
        ----------
        X, y, sample_weight, feature_map
            As in `SufficientStatistics.from_data`; blocks of a sparse X become dense.

        Raises
        ------
        DataError
            As in `SufficientStatistics.from_data`.

        Examples
        --------
        >>> from fedridge_flwr import TriangularStatistics
        >>> stats = TriangularStatistics.from_data([[1.0], [3.0]], [2.0, 4.0])
        >>> stats.means, stats.to_sufficient().comoment.round(6).tolist()
        (array([2., 3.]), [[2.0, 2.0], [2.0, 2.0]])
        """
        return cls.from_rows(map_rows(check_rows(X, y, sample_weight), feature_map))

    @classmethod
    def from_rows(cls, rows: Rows) -> TriangularStatistics:
        """Return the statistics of checked rows, perhaps behind a feature map."""
        width = rows.n_features + rows.n_targets
        nothing = np.zeros(width)
        total = cls(0, 0.0, nothing, np.empty((0, width)), rows.schema, 0, nothing)
        with np.errstate(invalid="ignore", over="ignore"):
            for Z, weight in _blocks(rows):
                count = len(Z)
                factor, mean, low, own = centred(Z, weight)
                finite = np.isfinite((factor**2).sum()) and np.isfinite(mean).all()
                if not finite:
                    rows.refuse_bad_values()
                factor = triangular_factor(factor, max(len(factor) - 1, 0))
                total += cls(count, own, mean, factor, rows.schema, 0, low)
        return replace(total, n_clients=1, n_filled=rows.known_filled)

    # ---- the law --------------------------------------------------------------

    def __add__(self, other: object) -> TriangularStatistics:
        """Merge: the statistics of both sets of rows together."""
        if not isinstance(other, TriangularStatistics):
            return NotImplemented
        check_mergeable(self.schema, other.schema)
        merged = replace(
            self,
            count=self.count + other.count,
            schema=self.schema.with_names_of(other.schema),
            n_clients=self.n_clients + other.n_clients,
            n_filled=filled_together(self, other),
        )
        if other.total_weight == 0.0:
            return merged
        if self.total_weight == 0.0:
            low = other.means_low
            return replace(
                merged,
                total_weight=other.total_weight,
                means=other.means,
                factor=other.factor,
                means_low=low,
            )
        weight = self.total_weight + other.total_weight
        share = other.total_weight / weight
        delta = (other.means - self.means) + (other._low - self._low)
        mean, low = two_sum(self.means, self._low + delta * share)
        between = np.sqrt(self.total_weight * share) * delta
        factor = np.vstack([self.factor, other.factor, between])
        if len(factor) > max(_TALL * mean.size, _FEW_ROWS):
            factor = triangular_factor(factor, max(merged.count - 1, 0))
        return replace(
            merged, total_weight=weight, means=mean, factor=factor, means_low=low
        )

    def __radd__(self, other: object) -> TriangularStatistics:
        """Let ``sum([...])`` start from 0."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __sub__(self, other: object) -> TriangularStatistics:
        """Say that no rows can be removed."""
        raise StatisticsError(
            "rows cannot be removed from TriangularStatistics: add up the others, or "
            "use SufficientStatistics, which can be subtracted."
        )

    def start_total(self) -> RunningSum:
        """Return a running total that begins with these statistics."""
        return RunningSum(self)

    def with_feature_names(self, names: Sequence[str]) -> TriangularStatistics:
        """Return the same statistics under these names of the raw columns."""
        known, features = tuple(names), self.schema.features
        named = Names.of(known) if features is None else features.with_known(known)
        return replace(self, schema=replace(self.schema, features=named))

    def arranged(self, wanted: Columns) -> TriangularStatistics:
        """Return the same statistics with the columns in the order that is wanted."""
        return self.taken(self.schema.places_of(wanted), self.schema.arranged(wanted))

    def taken(self, places: Any, schema: Schema) -> Self:
        """Return the statistics of some of the columns, by their places in [X Y]."""
        return replace(
            self,
            means=self.means[places],
            means_low=self._low[places],
            factor=self.factor[:, places],
            schema=schema,
        )

    # ---- views ----------------------------------------------------------------

    def to_sufficient(self) -> SufficientStatistics:
        """Return R'R: the same statistics as sums, which lose the digits again.

        Examples
        --------
        >>> from fedridge_flwr import TriangularStatistics
        >>> rows = [[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0]
        >>> TriangularStatistics.from_data(*rows).to_sufficient()
        SufficientStatistics(3 rows, 1 feature, 1 target)
        """
        return SufficientStatistics(
            count=self.count,
            total_weight=self.total_weight,
            means=self.means,
            triangle=upper_triangle(self.factor.T @ self.factor),
            schema=self.schema,
            n_clients=self.n_clients,
            means_low=self.means_low,
            n_filled=self.n_filled,
        )

    @cached_property
    def upper(self) -> Array:
        """R itself, an upper trapezoid with as many rows as its rank."""
        return triangular_factor(self.factor, max(self.count - 1, 0))

    @property
    def feature_means(self) -> Array:
        """Means of X, shape (d,)."""
        return self.means[: self.n_features]

    @property
    def target_means(self) -> Array:
        """Means of Y, shape (t,)."""
        return self.means[self.n_features :]

    @property
    def gram(self) -> Array:
        """The paper's Gram matrix ``G = X'X``, as in `SufficientStatistics`."""
        return self.to_sufficient().gram

    @property
    def moment(self) -> Array:
        """The paper's ``h = X'Y``, as in `SufficientStatistics`."""
        return self.to_sufficient().moment

    @property
    def nbytes(self) -> int:
        """Memory that the statistics take."""
        return self.factor.nbytes

    @property
    def _low(self) -> Array:
        return np.zeros_like(self.means) if self.means_low is None else self.means_low

    def scale(self) -> tuple[float, Array, Array]:
        """Return weight, means and sums of squared deviations of all columns."""
        squares = np.einsum("ij,ij->j", self.factor, self.factor)
        return self.total_weight, self.means, squares

    def __repr__(self) -> str:
        """Show what was counted, not the numbers."""
        return (
            f"TriangularStatistics({counted(self.count, 'row')}, "
            f"{counted(self.n_features, 'feature')}, "
            f"{counted(self.n_targets, 'target')})"
        )

    # ---- packing --------------------------------------------------------------

    def to_array(self) -> Array:
        """Pack weight, means and R, row by row, into one float64 vector.

        It has as many numbers as that of `SufficientStatistics`, fewer where R has
        fewer rows than columns.

        Examples
        --------
        >>> from fedridge_flwr import TriangularStatistics
        >>> rows = [[1.0], [3.0], [5.0]], [2.0, 2.0, 5.0]
        >>> TriangularStatistics.from_data(*rows).to_array().round(3)
        array([3.   , 3.   , 3.   , 2.828, 2.121, 1.225])
        """
        head = [self.total_weight], self.means
        return np.concatenate([*head, packed_factor(self.upper)])

    @classmethod
    def unpack(
        cls, array: Any, schema: Schema, count: int | None
    ) -> TriangularStatistics:
        """Return the statistics in a packed vector, after checking it.

        Whatever R is, R'R is positive semi-definite; all else is checked.
        """
        width = check_width(schema)
        size = int(np.size(array))
        if size < 1 + width:
            raise StatisticsError(
                f"weight and means of {width} columns are {1 + width} numbers, got "
                f"{size}."
            )
        packed = check_numbers(array, np.float64, size, "triangular statistics")
        weight, means = float(packed[0]), packed[1 : 1 + width].copy()
        count = check_count(count, weight)
        height = _check_height(size - 1 - width, width, count)
        factor = np.zeros((height, width))
        factor[trapezoid_places(height, width)] = packed[1 + width :]
        check_weight(count, weight, moments=bool(factor.any() or means.any()))
        with np.errstate(over="ignore"):
            squares = np.einsum("ij,ij->j", factor, factor)
            raw = squares + weight * means**2
        check_diagonal(squares, raw, "variances")
        return cls(count, weight, means, factor, schema)


def _check_height(size: int, width: int, count: int) -> int:
    """Return how many rows R has; n rows less their mean have rank n - 1 at most."""
    height = check_height(size, width, count)
    if height > max(count - 1, 0):
        raise StatisticsError(
            f"a factor of {height} rows, where {counted(count, 'row')} less their mean "
            f"leave {max(count - 1, 0)} at most."
        )
    return height


def _blocks(rows: Rows) -> Iterator[tuple[Array, Array | None]]:
    """Yield the rows [X Y] dense, several times as many at once as there are columns.

    Blocks of `Rows` are too short for a QR that begins with a factor of p rows, and
    those of sparse rows have any number of them.
    """
    width = rows.n_features + rows.n_targets
    height = max(_TALL * width, BLOCK_BYTES // (8 * width))
    for first in range(0, rows.n_rows, height):
        last = min(first + height, rows.n_rows)
        weight = None if rows.weight is None else rows.weight[first:last]
        yield dense_rows(rows, first, last), weight
