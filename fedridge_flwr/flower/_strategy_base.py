"""What both strategies leave behind, under the same names."""

from __future__ import annotations

from typing import TypeVar

from ..federation.one_shot import OneShotFit
from ..federation.report import FitReport
from ..privacy.noisy_statistics import PrivateStatistics
from ..regression.alpha_selection import AlphaSelection
from ..regression.model import RidgeModel
from ..regression.solve import Statistics
from .exchange import log
from .protocol.records import map_fields

__all__ = ["FitResults"]

_T = TypeVar("_T")
_NOT_FITTED = (
    "not fitted: start() has not been called, or it failed, or the older driver was "
    "not given enough of the rounds that the mode needs."
)


class FitResults:
    """Give access to a finished `OneShotFit`."""

    _fit: OneShotFit

    @property
    def model_(self) -> RidgeModel:
        """The fitted model."""
        return _fitted(self._fit.model)

    @property
    def report_(self) -> FitReport:
        """Who took part, what it cost, how well posed the answer is."""
        return _fitted(self._fit.report)

    @property
    def selection_(self) -> AlphaSelection:
        """How alpha was chosen, if it was."""
        if self._fit.model is not None and self._fit.selection is None:
            raise AttributeError(
                "alpha was given and not chosen: there is no selection_. Use alphas=."
            )
        return _fitted(self._fit.selection)

    @property
    def statistics_(self) -> Statistics | PrivateStatistics:
        """The total over all participants; another alpha needs no other round."""
        total = self._fit.statistics
        if total is None and self._fit.model is not None:
            raise AttributeError(
                "a fit in several rounds never has the statistics: for another alpha, "
                'run it again, or use mode="oneshot".'
            )
        if total is None:
            raise AttributeError(_NOT_FITTED)
        return total

    def _schema(self) -> dict[str, str]:
        """Return what clients must know of the columns to use the model."""
        return {**self._fit.schema(), **map_fields(self._fit.feature_map)}

    def _finish_round(self, where: str) -> RidgeModel | None:
        """Take the round in, and tell who is left out and how far the fit is."""
        fit, roll = self._fit, self._fit.roll
        try:
            model = fit.finish()
        finally:
            for client, reason in roll.failures.items():
                log.warning("%s: client %s left out: %s", where, client, reason)
        if fit.progress:
            log.info("%s: %s", where, fit.progress)
        if fit.report is not None:
            for client, reason in fit.report.suspects.items():
                log.warning("%s: client %s is suspect: %s", where, client, reason)
        return model

    def _log_wire_error(self, where: str) -> None:
        error = self.report_.wire_error
        if error is not None:
            log.info(
                "%s: by float32, coefficients are right to %.1e of their size",
                where,
                error,
            )


def _fitted(value: _T | None) -> _T:
    if value is None:
        raise AttributeError(_NOT_FITTED)
    return value
