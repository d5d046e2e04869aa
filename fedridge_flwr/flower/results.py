"""What both strategies leave behind, under the same names."""

from __future__ import annotations

from typing import TypeVar

from ..fold import Contribution
from ..model import RidgeModel
from ..oneshot import OneShotFit
from ..report import FitReport
from ..selection import AlphaSelection
from .exchange import log

__all__ = ["FitResults"]

_T = TypeVar("_T")
_NOT_FITTED = "not fitted: the round has not been run, or it failed."


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
        return _fitted(self._fit.selection)

    @property
    def statistics_(self) -> Contribution:
        """The total over all participants; another alpha needs no other round."""
        total: Contribution | None = self._fit.statistics
        if total is None:
            raise AttributeError(_NOT_FITTED)
        return total

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
