"""One private fit from the first answer to the report, whatever carries it."""

from __future__ import annotations

import secrets
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

import numpy as np

from .._types import Array
from ..errors import (
    FedRidgeError,
    NotEnoughClientsError,
    PrivacyWarning,
    ProtocolError,
)
from ..privacy.clipping import LENGTH
from ..privacy.curator import ReleaseRequest as Request
from ..privacy.estimators import mostly_noise
from ..privacy.experimental.refinement import ResidualRefinement as Refinement
from ..privacy.experimental.refinement import first_clip
from ..privacy.mechanism import DifferentialPrivacy
from ..privacy.noisy_statistics import PrivateStatistics
from ..privacy.privacy_report import (
    EXPERIMENTAL,
    UNKNOWN,
    USABLE,
    WEAK,
    gram_is_noise,
    privacy_report,
    useless,
)
from ..privacy.privacy_report import (
    accuracy_advice as what_helps,
)
from ..privacy.private_solve import best_alpha, centre, solve_private
from ..privacy.release import ReleaseQuestion as Question
from ..regression.alpha_selection import AlphaSelection, check_alphas
from ..regression.model import RidgeModel
from .aggregate import Contribution, Fold
from .one_shot import OneShotFit
from .report import FitReport
from .settings import FitSettings

__all__ = ["PrivateFit", "RefinedFit"]

_AUTO_POINTS = 30


@dataclass
class PrivateFit(OneShotFit):
    """The state of one private fit.

    Every fit has a name of its own, by which clients know a question asked twice from a
    second one. Nothing but noisy sums is ever asked for.
    """

    release: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def privacy(self) -> DifferentialPrivacy:
        """The promise."""
        if self.settings.privacy is None:
            raise FedRidgeError("this fit is not private.")
        return self.settings.privacy

    def question(self) -> Request:
        """Return what every client is asked now."""
        intercept = self.settings.fit_intercept
        return Request(self.release, self.privacy, intercept, self._question())

    def _question(self) -> Question:
        return Question()

    def _total(self) -> PrivateStatistics:
        total = _private(super()._total())
        return total.with_server_noise() if self.privacy.trust == "server" else total

    def _solve(self, total: Contribution) -> RidgeModel:
        total, settings = _private(total), self.settings
        intercept, alpha = settings.fit_intercept, settings.alpha
        if settings.selection is None:
            return self._dressed(solve_private(total, alpha, fit_intercept=intercept))
        alphas = self._candidates(total)
        alpha, scores = best_alpha(total, alphas, fit_intercept=intercept)
        model = self._dressed(solve_private(total, alpha, fit_intercept=intercept))
        self.selection = AlphaSelection(
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
        model.alpha_chosen_by = self.selection.describe()
        return model

    def _candidates(self, total: PrivateStatistics) -> Array:
        alphas = self.settings.alphas
        if alphas is not None and not isinstance(alphas, str):
            return check_alphas(alphas)
        # Public numbers and noisy ones only: from nothing up to the average of G.
        d = total.n_features
        top = max(float(np.trace(total.gram[:d, :d])) / d, total.gram_sd)
        return np.geomspace(1e-6 * top, 10 * top, _AUTO_POINTS)

    def _report(self, total: Contribution, model: RidgeModel) -> FitReport:
        report, total = super()._report(total, model), _private(total)
        damage, advice = self._damage(total)
        empty = _targets_without_coefficients(model)
        if empty and not advice:
            advice = [what_helps(self.privacy, total)]
        verdict = self._verdict(weak=bool(advice))
        if empty:
            means = np.broadcast_to(model.intercept_, total.n_targets)[empty].tolist()
            verdict = useless(empty, total.n_targets, means)
            warnings.warn(f"private model: {verdict}.", PrivacyWarning, stacklevel=4)
        report.privacy = privacy_report(
            self.privacy,
            rounds=self._rounds_run(),
            n_clients=total.n_clients,
            n_rows=model.n_rows_,
            deviations=self._deviations(total),
            verdict=verdict,
            damage=damage,
            advice=advice,
        )
        model.privacy_ = asdict(report.privacy)
        return report

    def _rounds_run(self) -> int:
        return 1

    def _verdict(self, *, weak: bool) -> str:
        return WEAK if weak else USABLE

    def _deviations(self, total: PrivateStatistics) -> dict[str, float]:
        found = {"gram": total.gram_sd, "moment": total.moment_sd}
        if total.target_gram is not None:
            found["target_gram"] = total.target_gram_sd
        return found

    def _damage(self, total: PrivateStatistics) -> tuple[list[str], list[str]]:
        equations = centre(total, fit_intercept=self.settings.fit_intercept)
        if not mostly_noise(equations.gram, equations.gram_sd):
            return [], []
        return [gram_is_noise(self.privacy)], [what_helps(self.privacy, total)]


@dataclass
class RefinedFit(PrivateFit):
    """The state of a private fit in several rounds: residual refinement.

    Those whose rows are in the first answer are asked again in every round. Whoever
    drops out later stays in the model with what it said until then; whoever is only
    away is asked again.
    """

    round: int = 1
    first: PrivateStatistics | None = None
    refinement: Refinement | None = None
    early: Fold | None = None
    late: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    ended: str = ""

    @property
    def continues(self) -> bool:
        """Whether the same fit has asked before and has to ask again."""
        return self.model is None and 1 < self.round <= self.privacy.rounds

    @property
    def wanted(self) -> list[str]:
        """Clients of the first round that have not dropped out."""
        members = [] if self.early is None else self.early.participants
        return [client for client in members if client not in self.late]

    def _question(self) -> Question:
        privacy = self.privacy
        if self.refinement is None:
            # Nobody knows yet how many features there are: all coefficients are 0.
            clip = first_clip(privacy.x_norm_bound, privacy.y_bound)
            return Question(self.round, None, clip)
        return Question(self.round, *self.refinement.question)

    def take(self, client: str, read: Callable[[], Contribution]) -> None:
        """Fold in an answer that has the columns of the first round."""

        def fitting() -> Contribution:
            part = read()
            first = self.first
            if first is not None and getattr(part, "bounds", None) != first.bounds:
                raise ProtocolError("answers for other columns than in round 1.")
            return part

        super().take(client, fitting)

    def _finish(self) -> RidgeModel:
        """Take one round in.

        The first round must succeed. A later one that fails, for want of answers or
        because they make no sense, ends the fit with the model reached until then:
        the clients have paid for it.
        """
        began = time.perf_counter()
        where = f"round {self.round} of {self.privacy.rounds}"
        if self.refinement is None or self.first is None:
            self.first, self.early = self._total(), self.fold
            alpha, clip = self.settings.alpha, self._question().clip
            self.refinement = Refinement(self.first.bounds, alpha, clip)
            goes_on = self.refinement.update(self.first)
        else:
            try:
                goes_on = self.refinement.update(self._total())
            except NotEnoughClientsError:
                goes_on = False
            for client, reason in self.fold.failures.items():
                self.late.setdefault(client, f"{where}: {reason}")
            for client in self.wanted:
                if client not in self.fold.answered:
                    self.absent.setdefault(client, f"{where}: not connected")
        if not goes_on:
            self.ended = f"ended in {where}: too few answers, or of no use"
        model = self._dressed(refined_model(self.first, self.refinement, self.settings))
        self._count_seconds(began)
        self.round += 1
        if goes_on and self.round <= self.privacy.rounds:
            self.fold = self._new_fold()
            return model
        self.statistics, self.model = self.first, model
        self.report = self._report(self.first, model)
        self._hand_on(model)
        return model

    def _report(self, total: Contribution, model: RidgeModel) -> FitReport:
        report = super()._report(total, model)
        if self.early is not None:
            report.participants = self.early.participants
            report.failures = {**self.early.failures, **self.absent, **self.late}
            report.repeated = self.early.repeated
        return report

    def _rounds_run(self) -> int:
        return self.round - 1

    def _verdict(self, *, weak: bool) -> str:
        return WEAK if weak or self.ended else UNKNOWN

    def _deviations(self, total: PrivateStatistics) -> dict[str, float]:
        return {
            "gram": total.gram_sd,
            "residual": total.deviation("residual") / LENGTH**2,
        }

    def _damage(self, total: PrivateStatistics) -> tuple[list[str], list[str]]:
        damage = [EXPERIMENTAL, *([self.ended] if self.ended else [])]
        if self.refinement is None or not self.refinement.blind:
            return damage, []
        damage.append(
            "the number of rows does not stand out of its noise: all coefficients are 0"
        )
        return damage, [what_helps(self.privacy, total)]


def refined_model(
    first: PrivateStatistics, refinement: Refinement, settings: FitSettings
) -> RidgeModel:
    """Return the model that a refinement has reached."""
    d, bounds = first.n_features, first.bounds
    coef = refinement.coef
    intercept = 0.0
    if bounds.intercept:
        intercept = float(coef[d]) * bounds.constant * bounds.x_step
    return RidgeModel(
        coef=coef[:d].copy(),
        intercept=intercept,
        alpha=settings.alpha,
        fit_intercept=settings.fit_intercept,
        feature_names=first.feature_names,
        n_rows=None if refinement.blind else round(first.count),
        n_clients=first.n_clients,
    )


def _targets_without_coefficients(model: RidgeModel) -> list[int]:
    return np.flatnonzero(~np.atleast_2d(model.coef_).any(axis=1)).tolist()


def _private(total: Contribution) -> PrivateStatistics:
    if not isinstance(total, PrivateStatistics):
        raise FedRidgeError("only private releases can be here.")
    return total
