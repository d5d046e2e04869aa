"""One private fit from the first answer to the report, whatever carries it."""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from .errors import FedRidgeError
from .fold import Contribution
from .model import RidgeModel
from .oneshot import FitSettings, OneShotFit
from .privacy.curator import Request
from .privacy.estimate import mostly_noise
from .privacy.mechanism import DifferentialPrivacy
from .privacy.release import Question
from .privacy.report import PrivacyReport, privacy_report
from .privacy.solve import best_alpha, centre, solve_private
from .privacy.statistics import PrivateStatistics
from .report import FitReport
from .rows import Array
from .selection import AlphaSelection, check_alphas

__all__ = ["PrivateFit", "new_fit"]

_AUTO_POINTS = 30


def new_fit(settings: FitSettings) -> OneShotFit:
    """Return the fit that these settings need."""
    return OneShotFit(settings) if settings.privacy is None else PrivateFit(settings)


@dataclass
class PrivateFit(OneShotFit):
    """The state of one private fit.

    Every fit has a name of its own, by which clients know a question asked twice from a
    second one. Nothing but noisy sums is ever asked for.
    """

    release: str = field(default_factory=lambda: secrets.token_hex(16))
    notes: list[str] = field(default_factory=list)

    @property
    def privacy(self) -> DifferentialPrivacy:
        """The promise."""
        if self.settings.privacy is None:
            raise FedRidgeError("this fit is not private.")
        return self.settings.privacy

    def request(self) -> Request:
        """Return what every client is asked now."""
        return Request(
            release=self.release,
            privacy=self.privacy,
            intercept=self.settings.fit_intercept,
            question=Question(),
        )

    def _total(self) -> Contribution:
        total = super()._total()
        if not isinstance(total, PrivateStatistics):
            raise FedRidgeError("only private releases can be here.")
        return total.with_server_noise() if self.privacy.trust == "server" else total

    def _solve(self, total: Contribution) -> RidgeModel:
        if not isinstance(total, PrivateStatistics):
            return super()._solve(total)
        settings = self.settings
        intercept = settings.fit_intercept
        alpha = settings.alpha
        if settings.selection is None:
            return self._named(solve_private(total, alpha, fit_intercept=intercept))
        alphas = self._candidates(total)
        alpha, scores = best_alpha(total, alphas, fit_intercept=intercept)
        model = self._named(solve_private(total, alpha, fit_intercept=intercept))
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
        report = super()._report(total, model)
        if isinstance(total, PrivateStatistics):
            report.privacy = self._privacy_report(total)
            model.privacy_ = asdict(report.privacy)
        return report

    def _privacy_report(self, total: PrivateStatistics) -> PrivacyReport:
        equations = centre(total, fit_intercept=False)
        deviations: dict[str, Any] = {
            "gram": total.gram_sd,
            "moment": total.moment_sd,
        }
        if total.target_gram is not None:
            deviations["target_gram"] = total.target_gram_sd
        return privacy_report(
            self.privacy,
            total,
            mostly_noise=mostly_noise(equations.gram, equations.gram_sd),
            count=equations.count,
            deviations=deviations,
            notes=self.notes,
        )
