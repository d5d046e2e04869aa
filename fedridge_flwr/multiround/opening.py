"""`Opening`: what a client sends first, before it is asked for products.

Means, variances and moments are exact. The factor R of the centred rows, with
R'R = C, is there to speed up what follows, not to be believed: its columns are scaled
to length one and it travels as int8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._checks import check_numbers
from .._types import Array
from ..data.names import Columns
from ..data.rows import Rows
from ..data.schema import HasSchema, Schema
from ..errors import StatisticsError
from ..linalg import pivoted
from ..linalg.packed import mean_rounding
from ..linalg.pivoted import Order
from ..statistics.moments import check_mergeable
from ..statistics.sufficient import SufficientStatistics
from ..statistics.validity import SMALLEST_SQUARE, check_diagonal, check_weight
from .int8 import Codes, Scales, dequantise, n_blocks, quantise
from .products import FirstMoments, centred_rows, first_moments

_ROUNDING = 1e-6
_NORM_ROUNDING = 1e-3
_LARGEST_SCALE = (1 + 1e-3) / 127
_NO_DIGITS = 1e-300


@dataclass(frozen=True, eq=False)
class RoughFactor:
    """R with R'R = C about, as int8: columns of length one, in an order of their own.

    Attributes
    ----------
    codes, scales : ndarray
        The upper trapezoid, row by row.
    order : ndarray of int32, shape (d,)
        Features in the order in which the trapezoid has them.
    """

    codes: Codes
    scales: Scales
    order: Order

    @classmethod
    def of(cls, factor: Array, order: Order) -> RoughFactor:
        """Round a factor to int8."""
        return cls(*quantise(pivoted.packed_factor(factor)), order)

    @cached_property
    def height(self) -> int:
        """Number of rows m."""
        return pivoted.check_height(self.codes.size, self.order.size, self.order.size)

    def matrix(self) -> Array:
        """Return R with its columns in the order of the features, shape (m, d)."""
        return self._spread(dequantise(self.codes, self.scales))

    @cached_property
    def error(self) -> float:
        """Bound on the Frobenius norm of what rounding to int8 changed."""
        return float(np.linalg.norm(self._half_steps))

    @cached_property
    def column_errors(self) -> Array:
        """The same for every column."""
        return np.asarray(np.linalg.norm(self._spread(self._half_steps), axis=0))

    @property
    def _half_steps(self) -> Array:
        return dequantise(np.ones_like(self.codes), self.scales) / 2.0

    def _spread(self, packed: Array) -> Array:
        shape = (self.height, self.order.size)
        in_order, full = np.zeros(shape), np.empty(shape)
        in_order[pivoted.trapezoid_places(*shape)] = packed
        full[:, self.order] = in_order
        return full

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that travel."""
        return {"codes": self.codes, "scales": self.scales, "order": self.order}

    @classmethod
    def from_arrays(
        cls, codes: Any, scales: Any, order: Any, n_features: int, count: int
    ) -> RoughFactor:
        """Put `to_arrays` together again; everything is checked, nothing trusted."""
        size = int(np.size(codes))
        pivoted.check_height(size, n_features, count)
        found = cls(
            check_numbers(codes, np.int8, size, "codes of the factor"),
            check_numbers(scales, np.float32, n_blocks(size), "scales of the factor"),
            pivoted.check_order(order, n_features),
        )
        # Entries of columns of length one are at most one.
        good = (found.scales >= 0) & (found.scales <= _LARGEST_SCALE)
        if (found.codes == -128).any() or not good.all():
            raise StatisticsError("the factor is not one that a client can make.")
        return found


@dataclass(frozen=True, eq=False)
class Opening(HasSchema):
    """Exact first moments of one client's rows, and their factor as int8.

    Attributes
    ----------
    count : int
        Number of rows.
    moments : FirstMoments
        Weight, means, variances and moments.
    factor : RoughFactor or None
        The factor, if there is one.
    schema : Schema
        The columns.

    Examples
    --------
    >>> from fedridge_flwr.data.rows import check_rows
    >>> rows = check_rows(np.array([[1.0, 0.0], [3.0, 1.0]]), np.array([0.0, 4.0]))
    >>> opening = Opening.from_rows(rows)
    >>> opening.factor.codes
    array([127, 127], dtype=int8)
    >>> opening.rough_rows().round(3)
    array([[1.414, 0.707]])
    """

    count: int
    moments: FirstMoments
    schema: Schema
    factor: RoughFactor | None = None

    form: ClassVar[str] = "opening"
    rounding: ClassVar[float] = 0.0

    def start_total(self) -> Openings:
        """Return what is known of several openings, beginning with this one."""
        return Openings(self)

    def scale(self) -> tuple[float, Array, Array]:
        """Return weight, means and sums of squared deviations of all columns."""
        return self.moments.weight, self.moments.means, self.moments.variances

    def arranged(self, wanted: Columns) -> Opening:
        """Return the same opening with the columns in the order that is wanted."""
        places, d, factor = self.schema.places_of(wanted), self.n_features, self.factor
        moments = self.moments
        if factor is not None:
            order = np.argsort(places[:d])[factor.order].astype(factor.order.dtype)
            factor = replace(factor, order=order)
        return replace(
            self,
            moments=FirstMoments(
                moments.weight,
                moments.means[places],
                moments.variances[places],
                moments.moment[np.ix_(places[:d], places[d:] - d)],
            ),
            schema=self.schema.arranged(wanted),
            factor=factor,
        )

    @classmethod
    def from_rows(cls, rows: Rows, *, factor: bool = True) -> Opening:
        """Return the opening of rows, with or without a factor."""
        moments = first_moments(rows)
        found = cls(rows.n_rows, moments, rows.schema)
        if not factor:
            return found
        return replace(found, factor=RoughFactor.of(*_unit_factor(rows, moments)))

    # ---- the factor -------------------------------------------------------------

    @cached_property
    def deviations(self) -> Array:
        """Square roots of the variances of the features: lengths of the columns."""
        return column_lengths(self.moments)

    def rough_rows(self) -> Array:
        """Return R in the units of the features, shape (m, d): R'R is about C."""
        if self.factor is None:
            return np.zeros((0, self.n_features))
        return self.factor.matrix() * self.deviations

    # ---- wire -------------------------------------------------------------------

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that travel: the head, and the factor if there is one."""
        moments = self.moments
        head = np.concatenate(
            [[moments.weight], moments.means, moments.variances, moments.moment.ravel()]
        )
        return {"head": head} | (self.factor.to_arrays() if self.factor else {})

    @classmethod
    def from_arrays(
        cls, arrays: Sequence[NDArray[Any]], schema: Schema, count: int, *, factor: bool
    ) -> Opening:
        """Put `to_arrays` together again; everything is checked, nothing trusted.

        Parameters
        ----------
        arrays : sequence of ndarray
            The head, and those of the factor.
        schema : Schema
            The columns.
        count : int
            Number of rows.
        factor : bool
            Whether a factor was asked for.

        Raises
        ------
        StatisticsError
            If no rows can have this opening.
        """
        d, t = schema.n_features, schema.n_targets
        if len(arrays) != (number := 4 if factor else 1):
            raise StatisticsError(f"an opening has {number} arrays, got {len(arrays)}.")
        what = "weight, means, variances and moments"
        head = check_numbers(arrays[0], np.float64, head_length(d, t), what)
        means, variances, moment = np.split(head[1:], [d + t, 2 * (d + t)])
        moments = FirstMoments(float(head[0]), means, variances, moment.reshape(d, t))
        _check_moments(moments, count)
        found = cls(count, moments, schema)
        if not factor:
            return found
        rough = RoughFactor.from_arrays(arrays[1], arrays[2], arrays[3], d, count)
        lengths = np.linalg.norm(rough.matrix(), axis=0)
        # Columns have length one but for what rounding to int8 can do to them.
        slack = rough.column_errors + _NORM_ROUNDING
        if (np.abs(lengths - (found.deviations > 0)) > slack).any():
            raise StatisticsError("the factor does not have the variances it should.")
        return replace(found, factor=rough)


class Openings(HasSchema):
    """What is known of several openings together.

    The openings themselves are kept apart, by client, so that one that drops out can be
    taken out again. Of clients with few rows `known` are the statistics, added up.
    """

    form: ClassVar[str] = "opening"
    known: SufficientStatistics | None = None

    def __init__(self, first: Opening) -> None:
        self.schema, self.count = first.schema, first.count

    def add(self, part: Opening) -> None:
        """Count one more opening."""
        check_mergeable(self.schema, part.schema)
        self.schema = self.schema.with_names_of(part.schema)
        self.count += part.count

    def __add__(self, other: Any) -> Openings:
        """Return what is known of both; of clients with few rows, the statistics."""
        self.schema = self.schema.with_names_of(other.schema)
        self.count += other.count
        more = other if other.form == "full" else other.known
        if more is not None:
            self.known = more if self.known is None else self.known + more
        return self

    __radd__ = __add__

    def arranged(self, wanted: Columns) -> Openings:
        """Take the columns in the order that is wanted."""
        self.schema = self.schema.arranged(wanted)
        return self

    def total(self) -> Openings:
        """Return itself: there is nothing to add up."""
        return self


def head_length(n_features: int, n_targets: int) -> int:
    """Return how many float64 numbers an opening has beside its factor."""
    return 1 + 2 * (n_features + n_targets) + n_features * n_targets


def column_lengths(moments: FirstMoments) -> Array:
    """Return the lengths of the centred columns, 0 where all is rounding.

    That is what is as small as the rounding of a mean, or of the smallest numbers.
    """
    d = moments.moment.shape[0]
    variances, means = moments.variances[:d], moments.means[:d]
    flat = variances <= moments.weight * mean_rounding(means) + _NO_DIGITS
    return np.sqrt(np.where(flat, 0.0, variances))


def _unit_factor(rows: Rows, moments: FirstMoments) -> tuple[Array, Order]:
    """Return R with R'R the correlations of the features."""
    d = rows.n_features
    deviations = column_lengths(moments)
    unit = np.where(deviations > 0, deviations, np.inf)
    if rows.n_rows < d:
        return pivoted.factor_of_rows(centred_rows(rows, moments.means[:d]) / unit)
    gram = SufficientStatistics.from_rows(rows).centred_gram / np.outer(unit, unit)
    # Both sums of the same squares, rounded in another order.
    np.einsum("ii->i", gram)[:] = deviations > 0
    return pivoted.factor_of_matrix(gram)


def _check_moments(moments: FirstMoments, count: int) -> None:
    weight, variances = moments.weight, moments.variances
    d = moments.moment.shape[0]
    told = (moments.means, variances, moments.moment)
    check_weight(count, weight, moments=any(bool(each.any()) for each in told))
    with np.errstate(over="ignore", invalid="ignore"):
        raw = variances + weight * moments.means**2
    check_diagonal(variances, raw, "variances")
    # As if correlations were above 1; raw sums bound the rounding in centred ones.
    rounding = _ROUNDING**2 * raw + SMALLEST_SQUARE
    size = np.sqrt(variances + rounding)
    limit = (1 + _ROUNDING) * np.outer(size[:d], size[d:])
    if (np.abs(moments.moment) > limit).any():
        raise StatisticsError("some moments are larger than the variances allow.")
    if count == 1 and (variances > rounding).any():
        raise StatisticsError("there is only one row, but its variances are not zero.")
    # The correlations of two rows are 1 or -1.
    exact = np.outer(np.sqrt(variances[:d]), np.sqrt(variances[d:]))
    slack = (limit - exact) + 2 * _ROUNDING * limit
    if count == 2 and (np.abs(moments.moment) < exact - slack).any():
        raise StatisticsError("two rows have these variances, but not these moments.")
