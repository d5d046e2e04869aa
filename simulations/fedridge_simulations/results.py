"""What a finished experiment knows: outcomes by method, and their spread."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .cells import Cell, Outcome, Store
from .method import CENTRALIZED, ONE_SHOT, Method
from .settings import Settings

__all__ = ["BUSY", "Results", "Spread", "round_range", "spread"]

BUSY = "busy"
"""Fact of an outcome whose time counts as not measured. No run writes it: how busy a
machine is decides nothing. It is in results that were recorded beside other work."""


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over trials."""

    mean: float
    sd: float
    trials: int
    otherwise: str = "not run"

    @property
    def error(self) -> float:
        """Standard error of the mean, not a number for one trial."""
        return self.sd / math.sqrt(self.trials) if self.trials else math.nan

    def mean_text(self) -> str:
        """Return mean ± standard error, or that it diverged.

        Examples
        --------
        >>> Spread(0.010171, 0.000632, 10).mean_text()
        '0.01017 ± 0.00020'
        >>> Spread(0.4871, 0.0632, 10).mean_text()
        '0.487 ± 0.020'
        """
        digits = 5 if self.mean < 0.1 else 3 if self.mean < 10 else 1
        return replace(self, sd=self.error).text(digits)

    def text(self, digits: int = 5) -> str:
        """Return mean ± sd, or that it diverged.

        Examples
        --------
        >>> Spread(0.010171, 0.000161, 5).text()
        '0.01017 ± 0.00016'
        """
        if not self.trials:
            return self.otherwise
        if not math.isfinite(self.mean):
            return "diverges"
        small = 0 < abs(self.mean) < 10.0**-digits or abs(self.mean) >= 1e4
        mean = f"{self.mean:.2e}" if small else f"{self.mean:.{digits}f}"
        if self.trials == 1:
            return f"{mean} (1 trial)"
        return f"{mean} ± " + (f"{self.sd:.0e}" if small else f"{self.sd:.{digits}f}")


def spread(values: Iterable[float]) -> Spread:
    """Return mean and sample deviation."""
    numbers = np.array(list(values), dtype=np.float64)
    if not len(numbers):
        return Spread(math.nan, math.nan, 0)
    if not np.isfinite(numbers).all() or np.abs(numbers).max() > 1e12:
        return Spread(math.inf, math.inf, len(numbers))
    sd = float(numbers.std(ddof=1)) if len(numbers) > 1 else math.nan
    return Spread(float(numbers.mean()), sd, len(numbers))


def round_range(rounds: list[int]) -> str:
    """Return the span of what `Results.rounds_to` found.

    Examples
    --------
    >>> round_range([79, 86]), round_range([8, 8]), round_range([5, 0])
    ('79-86', '8', '5, or never')
    """
    if not rounds:
        return "not run"
    low, high = min(rounds), max(rounds)
    if low == 0:
        return "not reached" if high == 0 else f"{high}, or never"
    return str(low) if low == high else f"{low}-{high}"


class Results:
    """Outcomes of the cells of one experiment."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self.settings = settings
        self._store = store

    def by_trial(self, method: Method, **axis: Any) -> dict[int, Outcome]:
        """Return the outcomes that are there, by trial."""
        s = self.settings
        trials = s.iterative_trials if method.penalty else s.trials
        problem = s.problem
        if method.private:
            trials, problem = s.private_trials, s.private_problem
        found = {
            trial: self._store.find(Cell(problem(trial, **axis), method))
            for trial in range(trials)
        }
        return {trial: o for trial, o in found.items() if o is not None}

    def outcomes(self, method: Method, **axis: Any) -> list[Outcome]:
        """Return the outcomes of all trials that are there."""
        return list(self.by_trial(method, **axis).values())

    def with_oracle(self, method: Method, **axis: Any) -> list[tuple[Outcome, Outcome]]:
        """Return each outcome with the oracle's of the same trial."""
        oracle = self.by_trial(CENTRALIZED, **axis)
        mine = self.by_trial(method, **axis)
        return [(o, oracle[trial]) for trial, o in mine.items() if trial in oracle]

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
        pairs = self.with_oracle(method, **axis)
        return spread(o.test_mse / oracle.test_mse - 1 for o, oracle in pairs)

    def percent_above(self, method: Method, **axis: Any) -> Spread:
        """Return `excess` in percent, for figures."""
        excess = self.excess(method, **axis)
        return replace(excess, mean=100 * excess.mean, sd=100 * excess.sd)

    def megabytes(self, method: Method, **axis: Any) -> Spread:
        """Return what went both ways, of all clients together."""
        return self.spread(method, lambda o: (o.bytes_up + o.bytes_down) / 1e6, **axis)

    def seconds(self, method: Method, **axis: Any) -> Spread:
        """Return wall clock over the trials that were timed."""
        found = self.outcomes(method, **axis)
        timed = [o.seconds for o in found if not o.facts.get(BUSY)]
        return replace(spread(timed), otherwise="not timed")

    def rounds_to(self, method: Method, near: float, **axis: Any) -> list[int]:
        """Return for each trial the first round this near the oracle, 0 for never."""
        return [
            next(
                (
                    r
                    for r, mse in enumerate(outcome.mse_by_round, start=1)
                    if mse <= (1 + near) * oracle.test_mse
                ),
                0,
            )
            for outcome, oracle in self.with_oracle(method, **axis)
        ]

    def worst_distance(self, **axis: Any) -> float:
        """Return the largest distance of One-Shot to the centralized solution."""
        return max((o.distance for o in self.outcomes(ONE_SHOT, **axis)), default=0.0)
