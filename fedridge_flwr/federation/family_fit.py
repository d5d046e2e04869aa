"""Logistic and Poisson regression: Newton's method, one step in every round.

The first round brings the statistics of X with the outcome, and the labels. From then
on every round asks for working statistics at the coefficients so far. The answer is
exact for the clients that stay until the end: one that drops out, or whose answer
cannot be right, is taken out with all it sent, and the others go on from where they
are.
"""

import warnings
from collections.abc import Mapping

import numpy as np

from .._text import counted
from .._types import Array
from ..errors import DataError, NotConvergedWarning, NotEnoughClientsError
from ..regression.families import FAMILIES
from ..regression.family_inference import covariance_of
from ..regression.family_model import FamilyModel
from ..regression.newton import NewtonFit, Start, column_scales
from ..regression.working import (
    Points,
    WorkingStatistics,
    is_convex,
    reason_to_refuse,
)
from ..statistics.outcome import Outcomes
from ..statistics.sufficient import SufficientStatistics
from .aggregate import Answers
from .gather import STILL_IN_MAP, Gathered, gather
from .reporting.rounds import Refinement
from .requests import AskOutcome, AskWorking
from .round import Fit, FitResult, Round
from .settings import FAMILY_ROUNDS, FitSettings

TOL = 1e-10
"""Expected relative change of the deviance at which the rounds end."""


def family_fit(settings: FitSettings) -> Fit:
    """Ask for outcomes, then for working statistics until the steps are rounding."""
    gathered = yield from gather(settings, AskOutcome(settings.family))
    fit = _Maximising(settings, gathered)
    most = 1 + min(settings.max_rounds, FAMILY_ROUNDS)
    rounds, repeated = 1, []
    while not fit.done and rounds < most:
        answers = Answers()
        yield Round(
            gathered.about(fit.request()),
            answers,
            to=list(fit.members),
            progress=fit.progress,
        )
        gathered.rounds += 1
        rounds += 1
        with gathered.naming_suspects({**gathered.failures, **fit.dropped}):
            fit.take(answers)
        repeated += answers.repeated
    refinement = Refinement(
        mode=settings.family,
        why="",
        rounds=rounds,
        estimates=fit.changes,
        tol=TOL,
        converged=fit.done,
    )
    return FitResult(
        gathered.on_raw_columns(fit.model()),
        gathered,
        dropped=fit.dropped,
        repeated=repeated,
        refinement=refinement,
        progress=fit.progress,
    )


class _Maximising:
    """The fits of all classes, which advance together, and who is still there."""

    def __init__(self, settings: FitSettings, gathered: Gathered) -> None:
        self._settings, self._gathered = settings, gathered
        self.family = FAMILIES[settings.family]
        self.dropped: dict[str, str] = {}
        self.changes = [np.inf]
        outcomes: Outcomes = gathered.total
        self.labels, self.has_offset = outcomes.labels, outcomes.has_offset
        self._sums: dict[str, Array] = {}
        self.members: dict[str, SufficientStatistics] = {}
        for client in gathered.answers.participants:
            part = gathered.answers.parts[client]
            coded = outcomes.coded(part)
            if coded is None:
                kinds = ("numbers", "texts") if outcomes.texts else ("texts", "numbers")
                reason = "its labels are {}, those of most others {}".format(*kinds)
                gathered.answers.reject(client, reason)
                continue
            self.members[client], self._sums[client] = coded, part.sums
        self._entropy = {client: float(sums[0]) for client, sums in self._sums.items()}
        # Of two labels, the second is the one that counts as 1.
        places = [1] if len(self.labels) == 2 else range(len(self.labels) or 1)
        self._check_enough()
        self._add_up()
        self.centre = np.zeros(self.total.n_features)
        if settings.fit_intercept:
            self.centre = self.total.feature_means.copy()
        self._last: dict[int, tuple[Array, dict[str, WorkingStatistics]]] = {}
        self.fits = {place: self._begin(place) for place in places}

    def _begin(self, place: int) -> NewtonFit:
        settings = self._settings
        column = self._column(place)
        start = self._start(place)
        self._refuse_constant(start, place)
        fit = NewtonFit(
            self.family,
            settings.alpha,
            settings.fit_intercept,
            settings.standardize,
            self.centre,
        )
        parts = {
            client: Start(part, column, self.has_offset, self._entropy[client])
            for client, part in self.members.items()
        }
        with self._gathered.naming_suspects():
            known = fit.begin(start, parts)
        if known:
            level = self._at_constant(fit)
            self._last[place] = level, known
        return fit

    def _at_constant(self, fit: NewtonFit) -> Array:
        """Return where a fit set out from."""
        before = fit.accepted
        zero = np.zeros_like(self.centre)
        return np.append(0.0 if before is None else before.intercept, zero)

    def _column(self, place: int) -> int:
        """Return where a class is among the targets; of two, one has a column."""
        return 0 if len(self.labels) == 2 else place

    def _start(self, place: int) -> Start:
        """Return what the first round says of one class at all members."""
        entropy = sum(self._entropy[client] for client in self.members)
        return Start(self.total, self._column(place), self.has_offset, entropy)

    def _add_up(self) -> None:
        """Add up what the members sent in the first round."""
        first, *others = self.members.values()
        self.total = sum(others, start=first)

    # ---- rounds -------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Whether all steps have become rounding."""
        return all(fit.done for fit in self.fits.values())

    @property
    def _open(self) -> dict[int, NewtonFit]:
        return {place: fit for place, fit in self.fits.items() if not fit.done}

    @property
    def progress(self) -> str:
        """How far the fit has come, for the log."""
        where = f"{self.family.name}: round {self._gathered.rounds}"
        if not np.isfinite(self.changes[-1]):
            return where
        deviance = sum(fit.deviance() for fit in self.fits.values())
        return (
            f"{where}, deviance {deviance:.6g}, expected change "
            f"{self.changes[-1]:.1e} (until {TOL:g})"
        )

    def request(self) -> AskWorking:
        """Return what to ask next."""
        fits = self._open
        points = Points(
            np.array([fit.point.coef for fit in fits.values()]),
            np.array([fit.point.intercept for fit in fits.values()]),
            np.array(list(fits), dtype=np.int64),
            self.centre,
        )
        return AskWorking(self.family.name, self.labels, points)

    def take(self, answers: Answers) -> None:
        """Take one round in; a member whose answer cannot be right is dropped."""
        fits = self._open
        found = {
            client: dict(zip(fits, parts, strict=True))
            for client, parts in answers.parts.items()
            if client in self.members
        }
        for client, parts in list(found.items()):
            reason = self._reason_to_refuse(client, parts)
            if reason is not None:
                answers.reject(client, reason)
                del found[client]
        self._drop([c for c in self.members if c not in found], answers.failures)
        for place, fit in fits.items():
            # In one order, whoever answered first: sums are then the same.
            here = {client: found[client][place] for client in self.members}
            at = np.append(fit.point.intercept, fit.point.coef)
            fit.take(here, self._start(place))
            self._last[place] = at, here
            scales = column_scales(self.total)
            error = fit.separated(self._gathered.total.schema, scales)
            if error is not None:
                raise error
        self.changes.append(max(fit.change for fit in fits.values()))

    def _reason_to_refuse(
        self, client: str, parts: Mapping[int, WorkingStatistics]
    ) -> str | None:
        start = self.members[client]
        for place, part in parts.items():
            column = self._column(place)
            reason = reason_to_refuse(part, start, self.family, column, self.centre)
            if reason is not None:
                return reason
            if place not in self._last:
                continue
            at, before = self._last[place]
            point = self.fits[place].point
            step = np.append(point.intercept, point.coef) - at
            if not is_convex(before[client], part, step):
                return "sent a deviance that contradicts its earlier one"
        return None

    def _drop(self, lost: list[str], reasons: Mapping[str, str]) -> None:
        where = f"round {self._gathered.rounds}"
        for client in lost:
            reason = reasons.get(client, "not connected any more")
            if self._settings.map_needs_data:
                reason += STILL_IN_MAP
            self.dropped[client] = f"{where}: {reason}"
            del self.members[client]
        if lost:
            self._check_enough()
            self._add_up()
            for place in self.fits:
                self._refuse_constant(self._start(place), place)

    def _check_enough(self) -> None:
        needed = max(self._settings.min_clients, 1)
        if len(self.members) < needed:
            gone = {**self._gathered.failures, **self.dropped}
            left = "; ".join(f"client {c}: {r}" for c, r in gone.items())
            raise NotEnoughClientsError(
                f"{counted(len(self.members), 'client')} left in round "
                f"{self._gathered.rounds}, at least {needed} needed. {left}"
            )

    def _refuse_constant(self, start: Start, place: int) -> None:
        """Say that nothing can be told apart, where y is the same in all rows."""
        mean, weight = start.mean, start.total.total_weight
        classes = self.family.name == "binomial"
        if weight * mean > 0 and not (classes and weight * (1.0 - mean) <= 1e-9):
            return
        if not classes:
            raise DataError(
                "all counts of all clients are zero: there is no rate to fit."
            )
        label = self.labels[place]
        what = (
            f"no row has the label {label!r}"
            if mean <= 0
            else (f"all rows have the label {label!r}")
        )
        raise DataError(
            f"the outcome does not vary over the rows of all clients: {what}."
        )

    # ---- the end ------------------------------------------------------------------

    def model(self) -> FamilyModel:
        """Return the model, with a warning where it is not the maximum."""
        settings, fits = self._settings, list(self.fits.values())
        if not self.done:
            warnings.warn(
                f"the fit ended after {self._gathered.rounds} rounds, with an expected "
                f"relative change of the deviance of {self.changes[-1]:.1e}: raise "
                "alpha, or drop columns that tell the classes apart.",
                NotConvergedWarning,
                stacklevel=4,
            )
        several = len(fits) > 1
        coef = np.array([fit.point.coef for fit in fits])
        shift = coef @ self.centre
        intercept = np.array([fit.point.intercept for fit in fits]) - shift
        starts = [self._start(place) for place in self.fits]
        deviance = np.array([fit.deviance() for fit in fits])
        null = np.array([start.deviance(self.family, start.mean) for start in starts])
        null = np.full(len(fits), np.nan) if self.has_offset else null
        schema, total = self._gathered.total.schema, starts[0].total
        likelihood = covariance = None
        if not several:
            sums = np.sum([self._sums[c] for c in self.members], axis=0)
            count = total.total_weight * starts[0].mean
            likelihood = self.family.log_likelihood(float(deviance[0]), count, sums)
            last = fits[0].last
            if settings.alpha == 0.0 and last is not None:
                covariance = covariance_of(
                    last.stats, self.centre, fit_intercept=settings.fit_intercept
                )
        return FamilyModel(
            family=self.family.name,
            labels=self.labels,
            coef=coef if several else coef[0],
            intercept=intercept if several else float(intercept[0]),
            deviance=deviance if several else float(deviance[0]),
            null_deviance=null if several else float(null[0]),
            log_likelihood=likelihood,
            covariance=covariance,
            has_offset=self.has_offset,
            alpha=settings.alpha,
            fit_intercept=settings.fit_intercept,
            standardize=settings.standardize,
            feature_names=None if schema.feature_map else schema.features,
            target_names=schema.targets,
            map_fingerprint=schema.feature_map,
            n_rows=total.count,
            n_clients=len(self.members),
        )
