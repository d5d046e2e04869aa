"""Ratios against limits, and how both sides of a ratio are timed in one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter
from typing import Any

__all__ = ["Ratio", "against", "race", "seconds"]


@dataclass(frozen=True)
class Ratio:
    """One number that is held against a limit.

    Attributes
    ----------
    what : str
        What is compared with what.
    value, limit : float
        The number, and what it must not exceed, or reach with `at_least`.
    detail : str
        The seconds or megabytes behind it.
    unit : str
        "times", "MB", "kB" or "relative".

    Examples
    --------
    >>> Ratio("merging against adding", 2.3, 3.0).holds
    True
    >>> Ratio("FedAvg against one round", 40.0, 50.0, at_least=True).holds
    False
    """

    what: str
    value: float
    limit: float
    at_least: bool = False
    detail: str = ""
    unit: str = "times"

    @classmethod
    def of_times(
        cls, what: str, ours: float, theirs: float, limit: float, note: str = ""
    ) -> Ratio:
        """Return ours / theirs, which must not exceed the limit.

        Examples
        --------
        >>> Ratio.of_times("merging against adding", 0.5, 0.25, 3.0).detail
        '0.50 s against 0.25 s'
        """
        return cls(what, ours / theirs, limit, detail=against(ours, theirs) + note)

    @classmethod
    def of_pairs(
        cls, what: str, ours: Sequence[float], theirs: Sequence[float], limit: float
    ) -> Ratio:
        """Return the median of ours / theirs, of runs that were timed in turn.

        Both of a pair see the machine as it is at the time; medians of each may not.

        Examples
        --------
        >>> Ratio.of_pairs("a round", [2.0, 6.0, 9.0], [1.0, 2.0, 3.0], 4.0).value
        3.0
        """
        value = median(a / b for a, b in zip(ours, theirs, strict=True))
        detail = f"{against(median(ours), median(theirs))}, median of {len(ours)} pairs"
        return cls(what, value, limit, detail=detail)

    @property
    def holds(self) -> bool:
        """Whether the number is on the right side of its limit."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def to_json(self) -> dict[str, Any]:
        """Return a dictionary that `from_json` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Ratio:
        """Return what `to_json` wrote."""
        return cls(**values)


def against(ours: float, theirs: float) -> str:
    """Return both times in words.

    Examples
    --------
    >>> against(12.34, 0.0123)
    '12.3 s against 12 ms'
    """
    return f"{_time(ours)} against {_time(theirs)}"


def _time(value: float) -> str:
    if value < 0.1:
        return f"{1000 * value:.0f} ms"
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def race(
    ours: Callable[[], object], theirs: Callable[[], object], repeats: int = 5
) -> tuple[float, float]:
    """Return the best seconds of both, run in turn so that both see the same machine.

    Examples
    --------
    >>> fast, slow = race(lambda: None, lambda: sum(range(100_000)))
    >>> fast < slow
    True
    """
    best = [float("inf"), float("inf")]
    for _ in range(repeats):
        for side, run in enumerate((ours, theirs)):
            best[side] = min(best[side], seconds(run))
    return best[0], best[1]


def seconds(run: Callable[[], object]) -> float:
    """Return how long one call takes."""
    began = perf_counter()
    run()
    return perf_counter() - began
