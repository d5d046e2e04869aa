"""How much of noisy moments is signal, by their marginal likelihood."""

from __future__ import annotations

import math

import numpy as np

from .._types import Array

__all__ = ["signal_in"]

_EVIDENCE = 4.0
"""Twice the log likelihood ratio a signal must gain over none: two standard errors."""

_GRID = 128
_BISECTIONS = 60
_NEGLIGIBLE = 1e-3
_LEAST_SD = 1e-100


def signal_in(energy: Array, moment: Array, moment_sd: float) -> tuple[float, float]:
    """Return f and s_h² / v, v by marginal likelihood of h_i ~ N(0, v energy_i + s_h²).

    With R twice the log likelihood ratio of v against v = 0, the moments are trusted
    by the share f = 1 − (4 / R)², and not at all for R ≤ 4.
    """
    if moment_sd <= _LEAST_SD:
        return 1.0, 0.0
    informative = energy > 0.0
    gain = energy[informative] / moment_sd**2
    squares = (moment[informative] / moment_sd) ** 2
    largest = float(np.max((squares - 1.0) / gain, initial=0.0))
    smallest = _NEGLIGIBLE / float(np.max(gain, initial=_LEAST_SD))
    if not largest > smallest:
        return 0.0, 0.0
    variance = _likeliest(gain, squares, smallest, largest)
    evidence = -float(_deviance(gain, squares, np.array([variance]))[0])
    if not evidence > _EVIDENCE:
        return 0.0, 0.0
    return 1.0 - (_EVIDENCE / evidence) ** 2, float(moment_sd**2 / variance)


def _deviance(gain: Array, squares: Array, variance: Array) -> Array:
    """Minus twice the log likelihood of each variance, against variance 0."""
    spread = np.multiply.outer(variance, gain)
    fitted = squares * (spread / (1.0 + spread))
    deviance: Array = np.sum(np.log1p(spread) - fitted, axis=-1)
    return deviance


def _likeliest(gain: Array, squares: Array, smallest: float, largest: float) -> float:
    """Find the best variance on a grid, then bisect the slope between its neighbours.

    The bisection makes the result a smooth function of its input.
    """
    grid = np.geomspace(smallest, largest, _GRID)
    best = int(np.argmin(_deviance(gain, squares, grid)))
    low = math.log(grid[max(best - 1, 0)])
    high = math.log(grid[min(best + 1, _GRID - 1)])
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        spread = math.exp(middle) * gain
        share = spread / (1.0 + spread)
        if np.sum(share * (1.0 - squares * (1.0 - share))) > 0.0:
            high = middle
        else:
            low = middle
    return math.exp((low + high) / 2.0)
