"""`NewtonFit`: Newton's method for one penalised likelihood, one round at a time.

Every round brings the working statistics of all clients at the point that was asked
for. A point that is worse than the last one is moved half the way back; from any other
the next step is a ridge regression. The method ends with a step so small that the next
one, which would be about its square, is rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ..._types import Array
from ...data.schema import Schema
from ...errors import SingularSystemError, StatisticsError, column_labels
from ...linalg.packed import upper_triangle
from ...statistics.sufficient import SufficientStatistics
from ..normal_equations import NormalEquations, normal_equations
from ..singular import what_to_drop
from ..solve import cholesky_solve, solve_equations
from .families import Family
from .working import WorkingStatistics

_WORSE = 1e-10
_SMALL_CHANGE = 1e-10
_SMALL_STEP = 1e-6
_SMALLER_STEP = 1e-8
_UNIT = 1e-8
_EARLIEST = 8
_STEADY = 3
_STEADY_RATIO = 0.8, 1.2
_NEARLY_THERE = 1e-4
_FACTOR = 2.0
_SHOWN = 0.1
_CONTRADICTION = 1e-6
_STRAIGHT = 1e40


@dataclass(frozen=True, eq=False)
class Start:
    """What the first round says of the members, in the columns that all agree on.

    Parameters
    ----------
    total : SufficientStatistics
        Of [X, outcomes, offset] of all of them.
    place : int
        The column of the outcome among the targets.
    has_offset : bool
        Whether the last target is an offset.
    entropy : float
        Weighted sum of y log y.
    """

    total: SufficientStatistics
    place: int
    has_offset: bool
    entropy: float = 0.0

    @property
    def mean(self) -> float:
        """Mean of the outcome."""
        return float(self.total.target_means[self.place])

    def deviance(self, family: Family, mean: float) -> float:
        """Return the deviance of the same mean for all rows."""
        weight = self.total.total_weight
        return family.constant_deviance(weight, weight * self.mean, self.entropy, mean)

    def contradicts(self, found: WorkingStatistics, at: Array, centre: Array) -> bool:
        """Whether counts cannot have this deviance at coefficients (b, w).

        It is 2 (sum of y log y - y eta - y + mu): all but the last is known since the
        first round, and the last is the total of the working weights.
        """
        total, k = self.total, self.place
        count, means = total.total_weight * self.mean, found.stats.total_weight
        sums = total.centred_moment[:, k] + count * (total.feature_means - centre)
        terms = [self.entropy, -count, means, -count * at[0], *(-sums * at[1:])]
        if self.has_offset:
            shared = total.centred_target_gram[k, -1]
            terms += [-shared, -count * total.target_means[-1]]
        slack = _CONTRADICTION * (np.abs(terms).sum() + total.total_weight)
        above = found.deviance / 2.0 - float(np.sum(terms))
        # Rates that are continued as straight lines have a larger deviance.
        return bool(above < -slack or (above > slack and means < _STRAIGHT))

    def constant(self, family: Family, mean: float, centre: Array) -> WorkingStatistics:
        """Return the working statistics of the same mean for all rows.

        Residuals are (y - mean) / v, less the offset: all columns that the first round
        is about.
        """
        total, slope = self.total, family.variance(mean)
        d = total.n_features
        # [X r] is a linear function of the columns.
        combine = np.zeros((d + 1, total.means.size))
        combine[:d, :d] = np.eye(d)
        combine[d, d + self.place] = 1.0 / slope
        if self.has_offset:
            combine[d, -1] = -1.0
        means = combine @ total.means
        means[:d] -= centre
        means[d] -= mean / slope
        comoment = slope * combine @ total.comoment @ combine.T
        stats = SufficientStatistics(
            count=total.count,
            total_weight=slope * total.total_weight,
            means=means,
            triangle=upper_triangle(comoment),
            schema=replace(total.schema, n_targets=1),
        )
        return WorkingStatistics(stats, self.deviance(family, mean))


@dataclass(frozen=True, eq=False)
class Point:
    """Coefficients, the intercept at the centre, and what clients sent of them."""

    coef: Array
    intercept: float
    parts: Mapping[str, WorkingStatistics] = field(default_factory=dict)

    def moved(self, step: Array) -> Point:
        """Return the point a step (b, w) away."""
        return Point(self.coef + step[1:], self.intercept + float(step[0]))

    def half_way_to(self, other: Point) -> Point:
        """Return the point in the middle."""
        coef = (self.coef + other.coef) / 2.0
        return Point(coef, (self.intercept + other.intercept) / 2.0)


@dataclass
class NewtonFit:
    """The fit of one outcome with one penalty, from one round to the next.

    Parameters
    ----------
    family : Family
        What y is like, given its mean.
    alpha : float
        The penalty.
    fit_intercept, standardize : bool
        As in `solve`.
    centre : ndarray of shape (d,)
        What X is measured from.

    Attributes
    ----------
    point : Point
        Where the next statistics are wanted; at the end, the solution.
    done : bool
        Whether it is the solution.
    change : float
        Expected relative change of the penalised deviance by the last step.
    last : WorkingStatistics
        The statistics behind the last step.
    """

    family: Family
    alpha: float
    fit_intercept: bool
    standardize: bool
    centre: Array
    point: Point = field(init=False)
    done: bool = field(init=False, default=False)
    change: float = field(init=False, default=np.inf)
    last: WorkingStatistics | None = field(init=False, default=None)
    accepted: Point | None = field(init=False, default=None)
    _sizes: list[float] = field(init=False, default_factory=list)
    _step: Array = field(init=False, default_factory=lambda: np.zeros(0))
    _plain: Point | None = field(init=False, default=None)

    def begin(
        self, start: Start, parts: Mapping[str, Start]
    ) -> dict[str, WorkingStatistics]:
        """Set out from the constant model, by a step that the first round determines.

        Returns what working statistics of the constant model would have been, which
        later ones are compared with. With an offset they are an approximation, so
        there are none.
        """
        family = self.family
        mean = start.mean if self.fit_intercept else float(family.mean(np.zeros(1))[0])
        level = family.link(mean) if self.fit_intercept else 0.0
        known = {
            client: part.constant(family, mean, self.centre)
            for client, part in parts.items()
        }
        self.point = Point(np.zeros(start.total.n_features), level)
        self.take(known, start)
        if not start.has_offset:
            return known
        self.accepted, self.done, self._sizes = None, False, []
        return {}

    def take(self, parts: Mapping[str, WorkingStatistics], start: Start) -> None:
        """Go on with the statistics of the clients that are still there."""
        point, before = replace(self.point, parts=parts), self.accepted
        penalty, went_back = self.alpha * self._penalty(start), False
        if before is not None:
            known = {client: before.parts[client] for client in parts}
            earlier = _objective(replace(before, parts=known), penalty)
            if not _objective(point, penalty) <= earlier + _WORSE * (earlier + 1.0):
                if len(known) == len(before.parts):
                    tried, self._plain = self._plain, None
                    self.point = tried or before.half_way_to(point)
                    return
                # The step was that of other clients: it may lead anywhere.
                point = replace(before, parts=known)
                went_back = True
        first, *others = point.parts.values()
        self.last = sum(others, start=first)
        stats = replace(self.last.stats, schema=_one_target(start.total.schema))
        step = self._newton_step(stats, penalty, point)
        longer = _longer(step, self._step)
        self._judge(step, point, stats, penalty, start.total)
        self.done = self.done and not went_back
        self.accepted, self.point, self._plain = point, point.moved(step), None
        nearly = not self.done and self.change < _NEARLY_THERE
        if nearly and (longer != step).any():
            self.point, self._plain = point.moved(longer), self.point

    def deviance(self) -> float:
        """Return the deviance at the solution, to second order in the last step."""
        if self.last is None:
            return np.nan
        return max(self.last.deviance + self.last.change(self._step), 0.0)

    def held_out(self, client: str, others: Start) -> float:
        """Return about the deviance of a client under the model of the others.

        The others are one Newton step away from the model of all.
        """
        point = self.accepted
        if point is None:
            raise StatisticsError("there is no model to leave a client out of.")
        first, *rest = (part for c, part in point.parts.items() if c != client)
        stats = sum(rest, start=first).stats
        stats = replace(stats, schema=_one_target(others.total.schema))
        step = self._newton_step(stats, self.alpha * self._penalty(others), point)
        own = point.parts[client]
        return max(own.deviance + own.change(step), 0.0)

    def separated(self, names: Schema, scales: Array) -> SingularSystemError | None:
        """Return the error of a fit that has no end, if that is what it looks like.

        Without a penalty, where columns tell the classes apart the coefficients grow
        without end, by the same step in every round.
        """
        recent = self._sizes[-_STEADY:]
        if self.alpha > 0 or self.done or len(self._sizes) < _EARLIEST:
            return None
        if min(recent) < 0.5 * max(recent) or min(recent) < _SMALL_STEP:
            return None
        moved = np.abs(self._step[1:]) * scales
        columns = np.flatnonzero(moved > _SHOWN * moved.max(initial=0.0)).tolist()
        known = None if names.feature_map else names.feature_names
        what = column_labels(columns, known) if columns else "the intercept"
        return SingularSystemError(
            f"the outcome is separated: {what} tell the rows apart so well that the "
            "likelihood has no maximum, and the coefficients grow in every round. "
            f"Remedy: use alpha > 0, or {what_to_drop(what)}."
        )

    # ---- one step -----------------------------------------------------------------

    def _penalty(self, start: Start) -> Array:
        """Return what alpha is multiplied by, from the rows and not their weights."""
        rows = normal_equations(
            start.total,
            fit_intercept=self.fit_intercept,
            standardize=self.standardize,
        )
        return rows.penalty

    def _newton_step(
        self, stats: SufficientStatistics, penalty: Array, point: Point
    ) -> Array:
        equations = normal_equations(stats, fit_intercept=self.fit_intercept)
        rhs = equations.rhs - (penalty * point.coef)[:, None]
        if self.alpha > 0:
            penalty = penalty / self.alpha
        step = self._solve(replace(equations, rhs=rhs, penalty=penalty))
        first = 0.0
        if self.fit_intercept:
            first = stats.target_means[0] - stats.feature_means @ step
        return np.append(first, step)

    def _solve(self, equations: NormalEquations) -> Array:
        alpha, found = self.alpha, None
        # With a penalty there is an answer, however near to singular the rows are.
        if alpha > 0:
            found = cholesky_solve(equations, alpha, nearest=0.0)
        solution, _ = solve_equations(equations, alpha) if found is None else found
        return np.asarray(solution[:, 0])

    def _judge(
        self,
        step: Array,
        point: Point,
        stats: SufficientStatistics,
        penalty: Array,
        rows: SufficientStatistics,
    ) -> None:
        """Note the size of a step, and whether it is the last one."""
        along = step[0] + stats.feature_means @ step[1:]
        gain = step[1:] @ stats.centred_gram @ step[1:] + penalty @ step[1:] ** 2
        gain += stats.total_weight * along**2
        scales = column_scales(rows)
        moved = float((np.abs(step[1:]) * scales).max())
        size = max(float((np.abs(point.coef) * scales).max()), _UNIT)
        self._step = step
        self._sizes.append(max(moved, abs(float(along))))
        self.change = float(gain / max(_objective(point, penalty), _UNIT))
        # Standard errors are computed before the last step, and only without penalty.
        limit = _SMALL_STEP if self.alpha > 0 else _SMALLER_STEP
        small = moved <= limit * size and abs(along) <= limit
        self.done = bool(small and self.change <= _SMALL_CHANGE)


def column_scales(stats: SufficientStatistics) -> Array:
    """Return the standard deviations of the features."""
    return np.sqrt(np.maximum(stats.variances, 0.0))


def _longer(step: Array, before: Array) -> Array:
    """Return a step that goes twice as far where it is as long as the one before.

    A coefficient that is only held by the penalty, as that of a rare level all of whose
    rows are alike, moves by about one in every round until the penalty stops it.
    """
    if before.size != step.size:
        return step
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = step / before
    steady = (ratio > _STEADY_RATIO[0]) & (ratio < _STEADY_RATIO[1])
    steady[0] = False
    return np.where(steady, _FACTOR * step, step)


def _objective(point: Point, penalty: Array) -> float:
    deviance = sum(part.deviance for part in point.parts.values())
    return float(deviance + penalty @ point.coef**2)


def _one_target(schema: Schema) -> Schema:
    return replace(schema, n_targets=1, targets=None)
