"""Logistic and Poisson regression: Newton's method, one step in every round.

The first round brings the statistics of X with the outcome, and the labels. From then
on every round asks for working statistics at the coefficients so far; the fits of all
classes, of all candidates for alpha and without each client advance together. The
answer is exact for the clients that stay until the end: one that drops out, or whose
answer cannot be right, is taken out with all it sent, and the others go on from where
they are.
"""

import warnings
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ..._text import counted, human_bytes
from ..._types import Array
from ...data.labels import are_whole
from ...errors import (
    DataError,
    FedRidgeError,
    NotConvergedWarning,
    NotEnoughClientsError,
)
from ...linalg.packed import packed_length
from ...regression.alpha.alpha_grid import auto_alphas, check_alphas, warn_edge
from ...regression.alpha.alpha_selection import AlphaSelection
from ...regression.likelihood.families import FAMILIES
from ...regression.likelihood.family_inference import covariance_of
from ...regression.likelihood.family_model import FamilyModel
from ...regression.likelihood.newton import NewtonFit, Point, Start, column_scales
from ...regression.likelihood.working import (
    MOST_POINTS,
    Points,
    WorkingStatistics,
    is_convex,
    reason_to_refuse,
)
from ...statistics.outcome import Outcomes
from ...statistics.sufficient import SufficientStatistics
from ..aggregate import Answers
from ..reporting.rounds import Refinement
from ..requests import AskOutcome, AskWorking
from ..round import Fit, FitResult, Round
from ..settings import FAMILY_ROUNDS, FitSettings, is_auto
from .gather import Gathered, drop_members, gather, refuse_too_few

TOL = 1e-10
_MOST_LABELS = 100
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
    selection = fit.selection()
    model = fit.model(settings.alpha) if selection is None else selection.model
    return FitResult(
        gathered.on_raw_columns(model),
        gathered,
        selection=selection,
        dropped=fit.dropped,
        repeated=repeated,
        refinement=refinement,
        progress=fit.progress,
    )


class Problem(NamedTuple):
    """One fit: which class against the others, which penalty, and without whom."""

    place: int
    alpha: float
    without: str | None = None


class _Maximising:
    """All fits, which advance together, and the clients that are still there."""

    def __init__(self, settings: FitSettings, gathered: Gathered) -> None:
        self._settings, self._gathered = settings, gathered
        self.family = FAMILIES[settings.family]
        self.dropped: dict[str, str] = {}
        self.changes = [np.inf]
        self.members: dict[str, SufficientStatistics] = {}
        self._sums: dict[str, Array] = {}
        self._take_outcomes(gathered.total)
        # Of two labels, the second is the one that counts as 1.
        self._places = [1] if len(self.labels) == 2 else range(len(self.labels) or 1)
        self._totals: dict[str | None, SufficientStatistics] = {}
        self._check_enough()
        total = self._total(None)
        self.centre = np.zeros(total.n_features)
        if settings.fit_intercept:
            self.centre = total.feature_means.copy()
        self._last: dict[Problem, tuple[Array, dict[str, WorkingStatistics]]] = {}
        self.alphas = self._candidates()
        problems = self._problems()
        self._bytes = 8 * len(problems) * packed_length(total.n_features, 1)
        self._refuse_too_many(problems)
        self.fits = {problem: self._begin(problem) for problem in problems}

    def _take_outcomes(self, outcomes: Outcomes) -> None:
        """Bring the first answers into the columns that all agree on."""
        self.labels, self.has_offset = outcomes.labels, outcomes.has_offset
        if len(self.labels) > _MOST_LABELS:
            raise DataError(
                f"y has {len(self.labels)} different values over all clients, more "
                f'than {_MOST_LABELS}, too many for classes. Use family="gaussian" for '
                "numbers."
            )
        answers = self._gathered.answers
        for client in answers.participants:
            part = answers.parts[client]
            coded = outcomes.coded(part)
            if coded is not None:
                self.members[client], self._sums[client] = coded, part.sums
                continue
            answers.reject(client, _label_reason(part.labels, outcomes.whole))

    # ---- what to fit --------------------------------------------------------------

    def _candidates(self) -> Array:
        settings = self._settings
        if settings.selection is None:
            return np.array([settings.alpha])
        alphas = settings.alphas
        if alphas is not None and not is_auto(alphas):
            return check_alphas(alphas)
        # The Hessian is that of ridge regression times the variance of y.
        start = self._start(Problem(self._places[0], 0.0))
        slope = self.family.variance(start.mean)
        return slope * auto_alphas(start.total, **settings.options)[::3]

    def _problems(self) -> list[Problem]:
        leaves_out = self._settings.selection == "clients"
        without = [None, *(self.members if leaves_out else ())]
        return [
            Problem(place, float(alpha), client)
            for place in self._places
            for alpha in self.alphas
            for client in without
        ]

    def _refuse_too_many(self, problems: list[Problem]) -> None:
        most, settings = self._settings.max_bytes, self._settings
        if settings.selection is not None and len(self.members) < 2:
            raise NotEnoughClientsError(
                "alpha is chosen by leaving out one client at a time, but there is "
                "only one: set alpha."
            )
        if len(problems) > 1 and (self._bytes > most or len(problems) > MOST_POINTS):
            remedy = "give fewer alphas, or raise max_bytes"
            if settings.selection == "clients":
                remedy += ', or use cv="server", which needs one fit for each alpha'
            raise FedRidgeError(
                f"{len(problems)} fits advance together, so that every client would "
                f"send {human_bytes(self._bytes)} in each round, more than max_bytes="
                f"{human_bytes(most)}: {remedy}."
            )

    def _begin(self, problem: Problem) -> NewtonFit:
        settings, start = self._settings, self._start(problem)
        self._refuse_constant(start, problem)
        fit = NewtonFit(
            self.family,
            problem.alpha,
            settings.fit_intercept,
            settings.standardize,
            self.centre,
        )
        parts = {
            client: Start(part, start.place, self.has_offset, self._sums[client][0])
            for client, part in self.members.items()
            if client != problem.without
        }
        with self._gathered.naming_suspects():
            known = fit.begin(start, parts)
        if fit.accepted is not None:
            self._last[problem] = _vector(fit.accepted), known
        return fit

    def _start(self, problem: Problem) -> Start:
        """Return what the first round says of the clients of a fit."""
        column = 0 if len(self.labels) == 2 else problem.place
        inside = (c for c in self.members if c != problem.without)
        entropy = sum(float(self._sums[client][0]) for client in inside)
        total = self._total(problem.without)
        return Start(total, column, self.has_offset, entropy)

    def _total(self, without: str | None) -> SufficientStatistics:
        """Return the statistics of all members but one, added up once."""
        if without not in self._totals:
            parts = [part for c, part in self.members.items() if c != without]
            self._totals[without] = sum(parts[1:], start=parts[0])
        return self._totals[without]

    # ---- rounds -------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Whether all steps have become rounding."""
        return all(fit.done for fit in self.fits.values())

    @property
    def _open(self) -> dict[Problem, NewtonFit]:
        return {problem: fit for problem, fit in self.fits.items() if not fit.done}

    @property
    def progress(self) -> str:
        """How far the fit has come, for the log."""
        where = f"{self.family.name}: round {self._gathered.rounds}"
        if len(self.fits) > 1:
            open_ones = f"{len(self._open)} of {len(self.fits)} fits go on"
            where += f", {open_ones} (at most {human_bytes(self._bytes)} per client)"
        if not np.isfinite(self.changes[-1]):
            return where
        whole = [fit for problem, fit in self.fits.items() if problem.without is None]
        deviance = min(fit.deviance() for fit in whole)
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
            np.array([problem.place for problem in fits], dtype=np.int64),
            self.centre,
        )
        return AskWorking(self.family.name, self.labels, points)

    def take(self, answers: Answers) -> None:
        """Take one round in; a member whose answer cannot be right is dropped."""
        asked = self._open
        found = {
            client: dict(zip(asked, parts, strict=True))
            for client, parts in answers.parts.items()
            if client in self.members
        }
        for client, parts in list(found.items()):
            reason = self._reason_to_refuse(client, parts)
            if reason is not None:
                answers.reject(client, reason)
                del found[client]
        self._drop([c for c in self.members if c not in found], answers.failures)
        scales = column_scales(self._total(None))
        for problem in (p for p in asked if p in self.fits):
            fit = self.fits[problem]
            # In one order, and not that of arrival: sums are then the same.
            here = {client: found[client][problem] for client in self.members}
            self._last[problem] = _vector(fit.point), here
            inside = {c: part for c, part in here.items() if c != problem.without}
            fit.take(inside, self._start(problem))
            error = fit.separated(self._gathered.total.schema, scales)
            if error is not None:
                raise error
        self.changes.append(max(self.fits[p].change for p in asked if p in self.fits))

    def _reason_to_refuse(
        self, client: str, parts: Mapping[Problem, WorkingStatistics]
    ) -> str | None:
        start = self.members[client]
        for problem, part in parts.items():
            column = self._start(problem).place
            reason = reason_to_refuse(part, start, self.family, column, self.centre)
            if reason is not None:
                return reason
            at, before = self._last.get(problem, (self.centre, {}))
            now = _vector(self.fits[problem].point)
            own = Start(start, column, self.has_offset, self._sums[client][0])
            if self.family.name == "poisson" and own.contradicts(
                part, now, self.centre
            ):
                return "sent a deviance that does not match its counts"
            if client in before and not is_convex(before[client], part, now - at):
                return "sent a deviance that contradicts its earlier one"
        return None

    def _drop(self, lost: list[str], reasons: Mapping[str, str]) -> None:
        if not lost:
            return
        self.dropped |= drop_members(self._gathered, self.members, lost, reasons)
        self._totals = {}
        self._check_enough()
        self.fits = {p: fit for p, fit in self.fits.items() if p.without not in lost}
        for problem, fit in self.fits.items():
            self._refuse_constant(self._start(problem), problem)
            fit.done = False  # what it ended with is about clients that have gone

    def _check_enough(self) -> None:
        gone = {**self._gathered.failures, **self.dropped}
        refuse_too_few(self._gathered, len(self.members), gone)

    def _refuse_constant(self, start: Start, problem: Problem) -> None:
        """Say that nothing can be told apart, where y is the same in all rows."""
        mean, weight = start.mean, start.total.total_weight
        classes = self.family.name == "binomial"
        if weight * mean > 0 and not (classes and weight * (1.0 - mean) <= 1e-9):
            return
        who = "all clients"
        if problem.without is not None:
            who += f" but client {problem.without}, which is to be left out"
        if not classes:
            raise DataError(f"all counts of {who} are zero: there is no rate to fit.")
        label = self.labels[problem.place]
        what = "no row has" if mean <= 0 else "all rows have"
        raise DataError(
            f"the outcome does not vary over the rows of {who}: {what} the label "
            f"{label!r}."
        )

    # ---- the end ------------------------------------------------------------------

    def selection(self) -> AlphaSelection | None:
        """Choose alpha by the deviance of clients that were left out, if asked to."""
        settings = self._settings
        if settings.selection is None:
            return None
        exact = settings.selection == "clients"
        weights = {c: part.total_weight for c, part in self.members.items()}
        losses = {
            client: np.array([self._held_out(client, a) for a in self.alphas])
            / max(weights[client], 1e-300)
            for client in self.members
        }
        found = AlphaSelection.from_models(
            [self.model(float(alpha)) for alpha in self.alphas],
            losses,
            weights,
            method="deviance" if exact else "one-step",
            one_standard_error=settings.one_standard_error,
        )
        if found.at_edge:
            warn_edge(found, auto=settings.alphas is None or is_auto(settings.alphas))
        return found

    def _held_out(self, client: str, alpha: float) -> float:
        """Return the deviance of a client under the model of the others."""
        total = 0.0
        for place in self._places:
            problem = Problem(place, float(alpha), client)
            fit = self.fits.get(problem)
            if fit is None:
                whole = self.fits[problem._replace(without=None)]
                total += whole.held_out(client, self._start(problem))
                continue
            at, parts = self._last[problem]
            # Exact but for the third power of a step that is rounding.
            own, step = parts[client], _vector(fit.point) - at
            total += max(own.deviance + own.change(step), 0.0)
        return total

    def model(self, alpha: float) -> FamilyModel:
        """Return the model of one penalty, with a warning where it is no maximum."""
        settings = self._settings
        problems = [Problem(place, float(alpha)) for place in self._places]
        fits = [self.fits[problem] for problem in problems]
        if not all(fit.done for fit in fits):
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
        starts = [self._start(problem) for problem in problems]
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
            if alpha == 0.0 and last is not None:
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
            alpha=alpha,
            fit_intercept=settings.fit_intercept,
            standardize=settings.standardize,
            feature_names=None if schema.feature_map else schema.features,
            target_names=schema.targets,
            map_fingerprint=schema.feature_map,
            n_rows=total.count,
            n_clients=len(self.members),
        )


def _label_reason(own: tuple[str, ...], whole: bool) -> str:
    """Return why the labels of a client do not fit; they are its data, so no label."""
    if are_whole(own) != whole:
        kinds = ("text", "numbers") if whole else ("numbers", "text")
        return "its labels are {}, those of most others {}".format(*kinds)
    return f"has {counted(len(own), 'label')}, not only the two that most clients have"


def _vector(point: Point) -> Array:
    return np.append(point.intercept, point.coef)
