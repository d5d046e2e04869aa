"""`WorkingStatistics`: what one Newton step needs to know of a client's rows.

At coefficients w and an intercept b, the rows have working weights v and residuals
r = (y - mu) / v. Their statistics are those of [X r] with the weights v: co-moments of
X are the Hessian, those of X with r the gradient. All of it adds up over clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._checks import check_numbers
from ..._types import Array
from ...data.rows import Block, Rows
from ...data.schema import Schema
from ...errors import ProtocolError, StatisticsError
from ...linalg.packed import packed_length, upper_triangle
from ...statistics.outcome import outcome_column
from ...statistics.sufficient import SufficientStatistics
from .families import LEAST_VARIANCE, Family

LARGEST_NUMBER = 1e100
MOST_POINTS = 10_000
_ROUNDING = 1e-6
_FLAT, _FAR = 1e-12, 1e-13


@dataclass(frozen=True, eq=False)
class Points:
    """Where statistics are wanted: ``eta = (x - centre)'w + b + offset`` at each.

    Parameters
    ----------
    coef : ndarray of shape (p, d)
        Coefficients w.
    intercept : ndarray of shape (p,)
        What the linear predictor is at the centre.
    classes : ndarray of int64, shape (p,)
        Which label counts as 1; not used for counts.
    centre : ndarray of shape (d,)
        About the mean of X, so that columns far from zero keep their digits.
    """

    coef: Array
    intercept: Array
    classes: NDArray[np.int64]
    centre: Array

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that travel."""
        return {
            "coef": np.ascontiguousarray(self.coef),
            "intercept": self.intercept,
            "classes": self.classes,
            "centre": self.centre,
        }

    @classmethod
    def from_arrays(cls, arrays: Sequence[NDArray[Any]]) -> Points:
        """Put `to_arrays` together again; everything is checked, nothing trusted."""
        if len(arrays) != 4 or arrays[0].ndim != 2:
            raise ProtocolError("the request has no coefficients.")
        n_points, d = arrays[0].shape
        if not 0 < n_points <= MOST_POINTS:
            raise ProtocolError(f"the request asks about {n_points} points at once.")
        sizes = (n_points * d, n_points, n_points, d)
        kinds = (np.float64, np.float64, np.int64, np.float64)
        flat = [np.ravel(array) for array in arrays]
        try:
            coef, intercept, classes, centre = (
                check_numbers(array, kind, size, "coefficients")
                for array, kind, size in zip(flat, kinds, sizes, strict=True)
            )
        except StatisticsError as error:
            raise ProtocolError(str(error)) from None
        if any((np.abs(each) > LARGEST_NUMBER).any() for each in (coef, intercept)):
            raise ProtocolError("the coefficients of the request are too large.")
        return cls(coef.reshape(n_points, d), intercept, classes, centre)


@dataclass(frozen=True, eq=False)
class WorkingStatistics:
    """Statistics of [X - centre, r] with working weights, and the deviance.

    ``a + b`` is that of the rows of both.
    """

    stats: SufficientStatistics
    deviance: float

    def __add__(self, other: WorkingStatistics) -> WorkingStatistics:
        """Return the same of the rows of both."""
        return WorkingStatistics(
            self.stats + other.stats, self.deviance + other.deviance
        )

    @property
    def gradient(self) -> Array:
        """Half the negative derivative of the deviance: of b, then of w."""
        weight, means = self.stats.total_weight, self.stats.feature_means
        sum_of_r = weight * self.stats.target_means[0]
        return np.append(sum_of_r, self.stats.centred_moment[:, 0] + means * sum_of_r)

    def change(self, step: Array) -> float:
        """Return by how much the deviance changes, to second order in a step (b, w)."""
        weight, means = self.stats.total_weight, self.stats.feature_means
        along = step[0] + means @ step[1:]
        curved = step[1:] @ self.stats.centred_gram @ step[1:] + weight * along**2
        return float(curved - 2.0 * self.gradient @ step)


def working_rows(
    rows: Rows, family: Family, points: Points, j: int, offset: Array | None
) -> tuple[Rows, float]:
    """Return rows [X r] with working weights at one of the points, and the deviance."""
    eta = linear_predictors(rows, points, j, offset)
    y = outcome_column(rows)
    if family.name == "binomial":
        y = (y == points.classes[j]).astype(np.float64)
    own = np.ones(rows.n_rows) if rows.weight is None else rows.weight
    with np.errstate(over="ignore", invalid="ignore"):
        found = family.working(y, eta)
        deviance = float(own @ found.deviance)
    # A row of weight zero may be anything, and must not become NaN.
    residual = np.where(own > 0, found.residual, 0.0)
    working = replace(
        rows,
        Y=residual[:, None],
        weight=own * found.weight,
        target_places=None,
        schema=replace(rows.schema, n_targets=1, targets=None),
    )
    return working, deviance


def working_statistics(
    rows: Rows, family: Family, points: Points, offset: Array | None = None
) -> list[WorkingStatistics]:
    """Return the statistics of rows at every point.

    Examples
    --------
    >>> from fedridge_flwr.data.rows import check_rows
    >>> from fedridge_flwr.regression.likelihood.families import FAMILIES
    >>> rows = check_rows(np.array([[0.0], [1.0], [2.0]]), np.array([0.0, 1.0, 1.0]))
    >>> zero = Points(np.zeros((1, 1)), np.zeros(1), np.ones(1, dtype=int), np.zeros(1))
    >>> (found,) = working_statistics(rows, FAMILIES["binomial"], zero)
    >>> found.gradient, round(found.deviance, 6)
    (array([0.5, 1.5]), 4.158883)
    """
    found = []
    for j in range(len(points.coef)):
        working, deviance = working_rows(rows, family, points, j, offset)
        stats = SufficientStatistics.from_rows(working)
        if not np.isfinite(deviance):
            rows.refuse_bad_values()
        moments = stats.moments
        means = moments.mean + moments.mean_low
        # About the centre means are small, and travel without losing digits.
        d = rows.n_features
        means[:d] = (moments.mean[:d] - points.centre) + moments.mean_low[:d]
        stats = replace(stats, means=means, means_low=None)
        found.append(
            WorkingStatistics(_of_flat_columns(stats, points.centre), deviance)
        )
    return found


def _of_flat_columns(
    stats: SufficientStatistics, centre: Array
) -> SufficientStatistics:
    """Return the same where columns that vary by rounding alone do not vary.

    Beside means that are small about the centre, nobody could tell that it is rounding.
    """
    comoment, d = stats.comoment, len(centre)
    noise = _FLAT**2 * stats.total_weight * centre**2
    flat = np.flatnonzero(np.diagonal(comoment)[:d] <= noise)
    if not flat.size:
        return stats
    comoment = comoment.copy()
    comoment[flat, :] = comoment[:, flat] = 0.0
    return replace(stats, triangle=upper_triangle(comoment))


def working_arrays(found: Sequence[WorkingStatistics]) -> dict[str, NDArray[Any]]:
    """Return the arrays that travel."""
    return {
        "statistics": np.array([each.stats.to_array() for each in found]),
        "deviance": np.array([each.deviance for each in found]),
    }


def read_working(
    arrays: Sequence[NDArray[Any]], schema: Schema, count: int, n_points: int
) -> list[WorkingStatistics]:
    """Put `working_arrays` together again; everything is checked, nothing trusted."""
    if len(arrays) != 2:
        raise StatisticsError(f"working statistics have 2 arrays, got {len(arrays)}.")
    d = schema.n_features
    if arrays[0].shape != (n_points, packed_length(d, 1)):
        raise StatisticsError(
            f"working statistics of {n_points} points and {d} features have another "
            f"shape than {tuple(arrays[0].shape)}."
        )
    deviances = check_numbers(arrays[1], np.float64, n_points, "deviances")
    if (deviances < 0).any():
        raise StatisticsError("some deviances are negative.")
    columns = replace(schema, n_targets=1, targets=None)
    return [
        WorkingStatistics(SufficientStatistics.unpack(packed, columns, count), float(D))
        for packed, D in zip(arrays[0], deviances, strict=True)
    ]


def reason_to_refuse(
    found: WorkingStatistics,
    start: SufficientStatistics,
    family: Family,
    place: int,
    centre: Array,
) -> str | None:
    """Return why these cannot be of the rows of the first round, or None.

    Parameters
    ----------
    found : WorkingStatistics
        At one point.
    start : SufficientStatistics
        Of the same client, in the columns that all agreed on.
    family : Family
        The family.
    place : int
        The column of the outcome among the targets of `start`.
    centre : ndarray of shape (d,)
        That of the points.
    """
    stats, weight = found.stats, start.total_weight
    if stats.count != start.count:
        return f"has {stats.count} rows now, where it had {start.count}"
    if stats.total_weight == 0.0 and weight > 0:
        return "sent working weights of zero"
    if family.name == "poisson":
        return _counts_reason(found, start, place, centre)
    slack, total = _ROUNDING * weight, weight * start.target_means[place]
    if stats.total_weight > 0.25 * weight + slack:
        return "sent working weights above a quarter of its weights"
    if not total - weight - slack <= found.gradient[0] <= total + slack:
        return "sent residuals that are larger than its classes allow"
    squares, raw = np.diagonal(start.centred_gram), np.diagonal(start.gram)
    limit = (0.25 + _ROUNDING) * squares + _ROUNDING**2 * raw
    if (np.diagonal(stats.centred_gram) > limit).any():
        return "sent a Hessian that is larger than its columns allow"
    return None


def _counts_reason(
    found: WorkingStatistics, start: SufficientStatistics, place: int, centre: Array
) -> str | None:
    """Return why these cannot be of the counts of the first round.

    Sums of (y - mu) and of mu, each times 1 and x - centre, are those of y.
    """
    stats, weight = found.stats, start.total_weight
    away, mean = start.feature_means - centre, start.target_means[place]
    first = start.centred_moment[:, place] + weight * away * mean
    expected = np.append(weight * mean, first)
    means = stats.total_weight * np.append(1.0, stats.feature_means)
    about = np.append(weight, np.diagonal(start.centred_gram) + weight * away**2)
    now = np.append(stats.total_weight, np.diagonal(stats.gram))
    # A column far from zero is rounded before the centre is taken off.
    rounded = np.append(0.0, _FAR * start.feature_means**2)
    about, now = about + weight * rounded, now + stats.total_weight * rounded
    squares = start.target_gram[place, place]
    # By the inequality of Cauchy and Schwarz, no sum of products is larger.
    size = np.sqrt(stats.total_weight * now) + np.sqrt(squares * about)
    limit = _ROUNDING * size + LEAST_VARIANCE * np.sqrt(weight * about)
    if (np.abs(found.gradient + means - expected) > limit).any():
        return "sent a gradient that does not match its counts"
    return None


def is_convex(
    earlier: WorkingStatistics, later: WorkingStatistics, step: Array
) -> bool:
    """Whether two deviances, a step apart, can be of the same convex function."""
    there, back = earlier.gradient @ step, later.gradient @ step
    slack = _ROUNDING * (earlier.deviance + later.deviance + abs(there) + abs(back))
    rise = later.deviance - earlier.deviance
    return bool(-2.0 * there - slack <= rise <= -2.0 * back + slack)


def linear_predictors(
    rows: Rows, points: Points, j: int, offset: Array | None
) -> Array:
    """Return the linear predictor of every row at one of the points."""
    coef, centre = points.coef[j], points.centre

    def of(block: Block) -> Array:
        if rows.is_sparse:
            return np.asarray(block.X @ coef - centre @ coef)
        return np.asarray((block.X - centre) @ coef)

    with np.errstate(over="ignore", invalid="ignore"):
        parts = [of(block) for block in rows.blocks()]
        eta = np.concatenate([np.zeros(0), *parts]) + points.intercept[j]
        return np.asarray(eta if offset is None else eta + offset)
