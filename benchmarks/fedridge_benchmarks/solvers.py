"""Conjugate gradients against Cholesky's method, by features and condition.

Both solve the same statistics to the same coefficients, with all BLAS threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import sleep
from typing import NamedTuple

import numpy as np

from fedridge_flwr import SufficientStatistics, solve

from .measure import Ratio, seconds

__all__ = ["Case", "solvers"]


class Case(NamedTuple):
    """A system in words, rows per feature, variances i^-decay, alpha, limits by d."""

    words: str
    rows: int
    decay: float
    alpha: float
    limits: dict[int, float]


# Cholesky's method costs d³/3, a step d²: the ratio falls with d, and grows with the
# square root of the condition.
CASES = [
    Case("well conditioned", 10, 0.0, 1.0, {2000: 1.0, 4000: 0.5}),
    Case("ill conditioned", 2, 1.0, 0.01, {}),
]
_WIDTHS = (500, 1000, 2000, 4000)
_AT_MOST = 30.0
_REST = 1.0


def statistics(case: Case, features: int) -> SufficientStatistics:
    """Return statistics whose variances decay along directions that no column has."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(case.rows * features, features))
    if case.decay:
        turn, _ = np.linalg.qr(rng.normal(size=(features, features)))
        X = X * np.arange(1.0, features + 1) ** (-case.decay / 2) @ turn
    return SufficientStatistics.from_data(X, X.sum(axis=1) + rng.normal(size=len(X)))


def solvers(widths: Sequence[int] = _WIDTHS) -> list[Ratio]:
    """Return the cost of conjugate gradients against Cholesky's method."""
    found = []
    for case in CASES:
        for d in widths:
            stats = statistics(case, d)
            expected = solve(stats, case.alpha)
            model = solve(stats, case.alpha, solver="cg")
            np.testing.assert_allclose(
                model.coef_, expected.coef_, atol=1e-8 * np.abs(expected.coef_).max()
            )
            # Not in turns: NumPy's BLAS threads, which cg keeps busy, spin for a while
            # and would take the cores from SciPy's.
            sleep(_REST)
            ours = _best(partial(solve, stats, case.alpha, solver="cg"))
            sleep(_REST)
            theirs = _best(partial(solve, stats, case.alpha))
            found.append(
                Ratio.of_times(
                    f"conjugate gradients against Cholesky, {case.words}, d={d}",
                    ours,
                    theirs,
                    case.limits.get(d, _AT_MOST),
                    f", condition {model.condition_:.0e}",
                )
            )
    return found


def _best(run: Callable[[], object], repeats: int = 3) -> float:
    return min(seconds(run) for _ in range(repeats))
