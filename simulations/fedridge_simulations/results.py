"""What a finished experiment knows: outcomes by method, and their spread."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .cells import Cell, Outcome, Store
from .method import CENTRALIZED, ONE_SHOT, Method
from .settings import Settings

__all__ = ["Results", "Spread", "spread"]


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over trials."""

    mean: float
    sd: float
    trials: int

    def text(self, digits: int = 5) -> str:
        """Return mean ± sd, or that it diverged.

        Examples
        --------
        >>> Spread(0.010171, 0.000161, 5).text()
        '0.01017 ± 0.00016'
        """
        if not self.trials:
            return "not run"
        if not math.isfinite(self.mean):
            return "diverges"
        if 0 < abs(self.mean) < 10.0**-digits or abs(self.mean) >= 1e4:
            return f"{self.mean:.2e} ± {self.sd:.0e}"
        return f"{self.mean:.{digits}f} ± {self.sd:.{digits}f}"


def spread(values: Iterable[float]) -> Spread:
    """Return mean and sample deviation."""
    numbers = np.array(list(values), dtype=np.float64)
    if not len(numbers):
        return Spread(math.nan, math.nan, 0)
    if not np.isfinite(numbers).all() or np.abs(numbers).max() > 1e12:
        return Spread(math.inf, math.inf, len(numbers))
    sd = float(numbers.std(ddof=1)) if len(numbers) > 1 else 0.0
    return Spread(float(numbers.mean()), sd, len(numbers))


class Results:
    """Outcomes of the cells of one experiment."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self.settings = settings
        self._store = store

    def outcomes(self, method: Method, **axis: Any) -> list[Outcome]:
        """Return the outcomes of all trials that were run."""
        s = self.settings
        found = (
            self._store.find(Cell(s.problem(trial, **axis), method))
            for trial in range(max(s.trials, s.iterative_trials))
        )
        return [outcome for outcome in found if outcome is not None]

    def spread(
        self, method: Method, value: Callable[[Outcome], float], **axis: Any
    ) -> Spread:
        """Return mean and deviation of anything about the outcomes."""
        return spread(value(outcome) for outcome in self.outcomes(method, **axis))

    def mse(self, method: Method, **axis: Any) -> Spread:
        """Return the test error over trials."""
        return self.spread(method, lambda outcome: outcome.test_mse, **axis)

    def excess(self, method: Method, **axis: Any) -> Spread:
        """Return the relative excess of test error over the oracle, trial by trial."""
        pairs = zip(
            self.outcomes(method, **axis),
            self.outcomes(CENTRALIZED, **axis),
            strict=False,
        )
        return spread(o.test_mse / oracle.test_mse - 1 for o, oracle in pairs)

    def worst_distance(self, **axis: Any) -> float:
        """Return the largest distance of One-Shot to the centralized solution."""
        return max((o.distance for o in self.outcomes(ONE_SHOT, **axis)), default=0.0)
