"""The error that a fit in several rounds reports is of the size of the one it makes."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
from fits import run_fit
from longer_numbers import in_longer_numbers, long_enough

CONDITIONS = (1e2, 1e4, 1e6, 1e8, 1e10)
TOLS = (1e-4, 1e-6, 1e-8, 1e-10, 1e-12)


def clients(rng, condition, shifted):
    """Return clients whose pooled columns have this condition, and the penalty."""
    d, K = int(rng.integers(8, 20)), int(rng.integers(2, 5))
    n = int(rng.integers(d // 2, 4 * d))
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    scales = np.geomspace(1.0, condition**-0.5, d)
    parts = {}
    for k in range(K):
        X = (rng.normal(size=(n, d)) * scales) @ turn.T + shifted * rng.normal(size=d)
        parts[str(k)] = X, X @ np.ones(d) + 0.1 * rng.normal(size=n)
    return parts, 1e-3 * n * K * scales[-1] ** 2


def ratios(seed):
    """Return measured over estimated errors of predictions, over all cases."""
    rng, found = np.random.default_rng(seed), []
    for condition in CONDITIONS:
        for tol in TOLS:
            for shifted in (False, True):
                parts, alpha = clients(rng, condition, shifted)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)
                    run = run_fit(parts, mode="refine", tol=tol, alpha=alpha)
                X, y = map(np.concatenate, zip(*parts.values(), strict=True))
                rows = SimpleNamespace(X=X, y=y, weight=np.ones(len(y)), alpha=alpha)
                exact, _, centred = in_longer_numbers(rows)
                missed = np.linalg.norm(
                    (centred @ (run.model.coef_ - exact)).astype(float)
                )
                error = missed / np.linalg.norm((centred @ exact).astype(float))
                found.append(error / run.report.refinement.error)
    return np.array(found)


@long_enough
def test_reported_errors_are_of_the_size_of_measured_ones():
    found = ratios(seed=5)
    assert np.mean(found > 3.0) <= 0.1
    assert np.mean(found < 1 / 30) <= 0.1
    assert found.max() < 100.0
