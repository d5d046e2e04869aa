"""Private fits: noisy sums only, in one round or refined over several."""

import math
import secrets
import warnings
from collections.abc import Callable, Generator
from dataclasses import asdict
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..._types import Array
from ...errors import PrivacyError, PrivacyWarning, ProtocolError, users_level
from ...privacy.clipping import LENGTH, Bounds
from ...privacy.curator import ReleaseRequest
from ...privacy.estimators import choose_alpha, mostly_noise
from ...privacy.intervals import INCLUDED, reason_to_withhold
from ...privacy.mechanism import DifferentialPrivacy
from ...privacy.noisy_statistics import PrivateStatistics
from ...privacy.planning import USABLE_BELOW, noise_over_signal
from ...privacy.privacy_report import (
    REFINEMENT_LIMITS,
    UNKNOWN,
    WEAK,
    accuracy_advice,
    gram_is_noise,
    judged,
    privacy_report,
    useless,
)
from ...privacy.private_solve import Centred, centre, refined_model, solve_centred
from ...privacy.refinement.coefficients import ResidualRefinement, first_clip
from ...privacy.refinement.curvature import SEEN
from ...privacy.release import ReleaseQuestion
from ...regression.alpha.alpha_grid import check_alphas
from ...regression.alpha.alpha_selection import AlphaSelection
from ...regression.model import RidgeModel
from ..aggregate import Aggregate, Answers
from ..requests import AskRelease
from ..round import Fit, FitResult, Round
from ..settings import FitSettings
from .gather import Gathered, gather

_AUTO_POINTS = 30


def private_one_shot(settings: FitSettings) -> Fit:
    """Ask every client for one private release, add them up, solve."""
    ask = new_release(settings)
    gathered = yield from gather(settings, AskRelease(ask(ReleaseQuestion())))
    return private_result(settings, gathered)


def private_result(settings: FitSettings, gathered: Gathered) -> FitResult:
    """Solve one private release of all clients, and say what it promised and cost."""
    total = _with_noise(gathered.total)
    privacy = total.privacy
    equations = centre(total, fit_intercept=settings.fit_intercept)
    model, selection = _solve(settings, total, equations)
    coef = np.atleast_2d(model.coef_).T
    level = noise_over_signal(equations, coef)
    model = gathered.on_raw_columns(model)
    damage, advice = [], []
    if mostly_noise(equations.gram, equations.gram_sd):
        damage = [gram_is_noise(privacy)]
    if damage or level >= USABLE_BELOW:
        advice = [accuracy_advice(privacy, total)]
    deviations = {"gram": total.gram_sd, "moment": total.moment_sd}
    if total.target_gram is not None:
        deviations["target_gram"] = total.target_gram_sd
    report = _report(
        total,
        model,
        verdict=judged(level),
        deviations=deviations,
        damage=damage,
        advice=advice,
        expected_r2_loss=min(level / 2.0, 1.0),
        intervals=reason_to_withhold(total) or INCLUDED,
    )
    return FitResult(model, gathered, total, selection, privacy=report)


class Later(NamedTuple):
    """What a later round of a refinement has found.

    Parameters
    ----------
    total : PrivateStatistics or None
        The sum over all that answered; None if it cannot be used.
    answers : Answers
        Who has answered, and who has failed.
    why : str
        Why there is no total, if there is more to say than who has failed.
    """

    total: PrivateStatistics | None
    answers: Answers
    why: str = ""


First: TypeAlias = Callable[
    [FitSettings, ReleaseRequest], Generator[Round, None, Gathered]
]
Again: TypeAlias = Callable[
    [Gathered, ReleaseRequest, list[str], RidgeModel], Generator[Round, None, Later]
]


def private_refinement(settings: FitSettings) -> Fit:
    """Refine a private model by the releases of single clients."""

    def first(
        settings: FitSettings, release: ReleaseRequest
    ) -> Generator[Round, None, Gathered]:
        return gather(settings, AskRelease(release))

    return refine(settings, first, _ask_again)


def _ask_again(
    gathered: Gathered, release: ReleaseRequest, clients: list[str], model: RidgeModel
) -> Generator[Round, None, Later]:
    """Ask some clients of the first round for the release of a later one."""
    answers = _SameColumns(settings=gathered.settings, feature_map=gathered.feature_map)
    answers.bounds = gathered.total.bounds
    request = gathered.about(AskRelease(release))
    yield Round(request, answers, to=clients, model=model)
    total = answers.result()
    return Later(None if total is None else _with_noise(total), answers)


def refine(settings: FitSettings, first_round: First, later_round: Again) -> Fit:
    """Refine a private model by noisy residuals, round by round, wave by wave.

    The clients of the first round are asked again in every round. One that drops out
    later stays in the model with what it sent until then; one that is only away for a
    round is asked again. The first round must succeed. A later one that fails ends the
    fit with the model reached until then: the clients have paid for it.
    """
    privacy, ask = _privacy(settings), new_release(settings)
    # The number of features is not known yet: all coefficients are 0.
    clip = first_clip(privacy.x_norm_bound, privacy.y_bound)
    gathered = yield from first_round(settings, ask(ReleaseQuestion(1, None, clip)))
    first = _with_noise(gathered.total)
    refinement = ResidualRefinement(
        first.bounds, settings.alpha, clip, privacy.expected_r2
    )
    shares = _row_shares(gathered.answers)
    going, number, ended = refinement.update(first), 1, ""
    dropped: dict[str, str] = {}
    absent: dict[str, str] = {}
    while going and number < privacy.rounds:
        number += 1
        where, answered = f"round {number} of {privacy.rounds}", 0
        members = [c for c in gathered.answers.participants if c not in dropped]
        for wave in _waves(members, privacy, number):
            release = ask(ReleaseQuestion(number, *refinement.question))
            model = gathered.on_raw_columns(_refined_model(first, refinement, settings))
            found = yield from later_round(gathered, release, wave, model)
            total, answers, ended = found
            if total is not None:
                answered += len(answers.participants)
                share = sum(shares[client] for client in answers.participants)
                going = going and refinement.update(total, share)
            for client, reason in answers.failures.items():
                dropped.setdefault(client, f"{where}: {reason}")
            for client in wave:
                if client not in answers.answered:
                    absent.setdefault(client, f"{where}: not connected")
            if not going:
                break
        going = going and answered >= settings.min_clients
    if not going:
        why = ended or "too few answers, or answers of no use"
        ended = f"ended in round {number} of {privacy.rounds}: {why}"
    model = gathered.on_raw_columns(_refined_model(first, refinement, settings))
    damage, advice = [REFINEMENT_LIMITS, *([ended] if ended else [])], []
    if refinement.blind:
        damage.append(
            "the number of rows does not stand out of its noise: all coefficients are 0"
        )
        advice = [accuracy_advice(privacy, first)]
    report = _report(
        first,
        model,
        rounds=number,
        verdict=WEAK if advice or ended else UNKNOWN,
        deviations={
            "gram": first.gram_sd,
            "residual": first.deviation("residual") / LENGTH**2,
        },
        damage=damage,
        advice=advice,
    )
    return FitResult(
        model, gathered, first, absent={**absent, **dropped}, privacy=report
    )


def _row_shares(answers: Answers) -> dict[str, float]:
    """Return which part of all rows each client has, by the noisy counts of round 1.

    All have the same as far as counts are not kept, or differ no more than their noise
    does: the clients of a wave stand for as many rows as they have.
    """
    clients = answers.participants
    sizes = np.ones(len(clients))
    parts = [answers.parts[client] for client in clients if client in answers.parts]
    if len(parts) == len(clients) > 1:
        counts = np.array([part.count for part in parts])
        noise = parts[0].deviation("count") / LENGTH**2
        by_chance = noise**2 * (1.0 + SEEN * math.sqrt(2.0 / (len(parts) - 1)))
        mean, spread = counts.mean(), counts.var(ddof=1)
        if mean > 0 and spread > by_chance:
            known = 1.0 - noise**2 / spread
            sizes = np.maximum(1.0 + known * (counts / mean - 1.0), 0.01)
    shares = (sizes / sizes.sum()).tolist()
    return dict(zip(clients, shares, strict=True))


def _waves(
    members: list[str], privacy: DifferentialPrivacy, number: int
) -> list[list[str]]:
    """Return the groups that are asked one after another, others in every round.

    The last round asks everybody at once: what the model ends with is about all rows.
    """
    waves = privacy.waves if number < privacy.rounds else 1
    order = np.random.default_rng(number).permutation(len(members))
    groups = [sorted(order[wave::waves]) for wave in range(waves)]
    return [[members[k] for k in group] for group in groups if group]


class _SameColumns(Aggregate):
    """Answers of a later round, which must be about the columns of the first."""

    bounds: Bounds

    def add(self, client: str, part: Any) -> None:
        if getattr(part, "bounds", None) != self.bounds:
            raise ProtocolError("answers for other columns than in round 1.")
        super().add(client, part)


def new_release(settings: FitSettings) -> Callable[[ReleaseQuestion], ReleaseRequest]:
    """Return a function from a question to a request of one new fit.

    The name of the fit lets clients tell a request sent twice from a second one.
    """
    privacy, name = _privacy(settings), secrets.token_hex(16)
    intercept, secure = settings.fit_intercept, settings.secure is not None

    def ask(question: ReleaseQuestion) -> ReleaseRequest:
        return ReleaseRequest(name, privacy, intercept, question, in_secure_sum=secure)

    return ask


def _privacy(settings: FitSettings) -> DifferentialPrivacy:
    if settings.privacy is None:
        raise PrivacyError("this fit is not private.")
    return settings.privacy


def _with_noise(total: PrivateStatistics) -> PrivateStatistics:
    return total.with_server_noise() if total.privacy.trust == "server" else total


def _solve(
    settings: FitSettings, total: PrivateStatistics, equations: Centred
) -> tuple[RidgeModel, AlphaSelection | None]:
    intercept, alpha = settings.fit_intercept, settings.alpha
    if settings.selection is None:
        return solve_centred(total, equations, alpha, fit_intercept=intercept), None
    alphas = _candidates(settings, total)
    estimator = total.privacy.estimator
    alpha, scores = choose_alpha(estimator, equations, alphas.tolist())
    model = solve_centred(total, equations, alpha, fit_intercept=intercept)
    selection = AlphaSelection(
        alpha=alpha,
        alphas=alphas,
        mean=scores,
        standard_error=None,
        losses=None,
        clients=[],
        method="noise",
        rule="minimum",
        model=model,
    )
    model.alpha_chosen_by = selection.describe()
    return model, selection


def _candidates(settings: FitSettings, total: PrivateStatistics) -> Array:
    alphas = settings.alphas
    if alphas is not None and not isinstance(alphas, str):
        return check_alphas(alphas)
    # Public numbers and noisy ones only: from nothing up to the average of G.
    d = total.n_features
    top = max(float(np.trace(total.gram[:d, :d])) / d, total.gram_sd)
    return np.geomspace(1e-6 * top, 10 * top, _AUTO_POINTS)


def _refined_model(
    first: PrivateStatistics, refinement: ResidualRefinement, settings: FitSettings
) -> RidgeModel:
    intercept = settings.fit_intercept
    return refined_model(first, refinement, settings.alpha, fit_intercept=intercept)


def _report(
    total: PrivateStatistics, model: RidgeModel, *, rounds: int = 1, **parts: Any
) -> Any:
    """Return the privacy report, which the model carries along."""
    empty = np.flatnonzero(~np.atleast_2d(model.coef_).any(axis=1)).tolist()
    if empty:
        parts["advice"] = parts["advice"] or [accuracy_advice(total.privacy, total)]
        means = np.broadcast_to(model.intercept_, total.n_targets)[empty].tolist()
        parts["verdict"] = useless(empty, total.n_targets, means)
        warnings.warn(
            f"private model: {parts['verdict']}.",
            PrivacyWarning,
            stacklevel=users_level(),
        )
    report = privacy_report(
        total.privacy,
        rounds=rounds,
        n_clients=total.n_clients,
        n_rows=model.n_rows_,
        **parts,
    )
    model.privacy_ = asdict(report)
    return report
