"""95% intervals contain the true coefficients in 95% of simulated federations."""

from __future__ import annotations

import numpy as np
import pytest

from fedridge_flwr import SufficientStatistics, infer

COEFFICIENTS = np.array([2.0, 1.0, 0.0, -0.5, 0.1])  # the intercept first


@pytest.mark.slow
def test_intervals_cover_in_a_thousand_federations() -> None:
    rng = np.random.default_rng(21)
    covered = np.zeros(COEFFICIENTS.size)
    for _ in range(1000):
        parts = []
        for size in rng.integers(5, 25, size=6):
            X = rng.normal(size=(size, 4)) + rng.normal(size=4)
            y = COEFFICIENTS[0] + X @ COEFFICIENTS[1:] + rng.normal(size=size)
            parts.append(SufficientStatistics.from_data(X, y))
        low, high = infer(sum(parts)).ci.T
        covered += (low <= COEFFICIENTS) & (high >= COEFFICIENTS)
    print(f"covered: {covered / 1000}")
    assert 0.935 <= covered.mean() / 1000 <= 0.965
