"""Clipping to public bounds does not bias the fit, and is safe whatever is clipped."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from fedridge_flwr import DifferentialPrivacy
from fedridge_flwr.data.rows import Block
from fedridge_flwr.privacy import private_statistics
from fedridge_flwr.privacy.clipping import Bounds
from fedridge_flwr.privacy.private_solve import centre, solve_centred

N, D = 4000, 3


def rows_of(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D)) + 0.3
    return X, 130 + X @ [10.0, 5.0, -2.0] + rng.normal(size=N)


def without_noise(X, y, x_norm_bound, intercept=True, rules=2):
    """Return the model of clipped sums to which no noise has been added."""
    privacy = DifferentialPrivacy(
        1.0,
        1e-5,
        x_norm_bound=x_norm_bound,
        y_bound=1000.0,
        trust="server",
        rules=rules,
    )
    stats = private_statistics(X, y, privacy, fit_intercept=intercept)
    equations = centre(stats, fit_intercept=intercept)
    return solve_centred(stats, equations, 0.0, fit_intercept=intercept), stats


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("clipped", [0.0, 0.1, 0.5, 0.9])
def test_the_fit_of_clipped_rows_is_weighted_least_squares(clipped, intercept):
    """With weights s², on the rows as they were rounded: to 1e-10."""
    X, y = rows_of()
    lengths = np.linalg.norm(X, axis=1)
    Bx = float(np.quantile(lengths, 1.0 - clipped)) * (1.001 if clipped == 0 else 1)
    model, stats = without_noise(X, y, Bx, intercept)
    bounds = stats.bounds
    grid = bounds.on_grid(Block(X, y[:, None], None))
    assert grid.n_cut == 0
    assert grid.n_shortened == pytest.approx(clipped * N, abs=3)
    kappa = Bx / math.sqrt(D) if intercept else 0.0
    s = np.minimum(1.0, math.hypot(Bx, kappa) / np.hypot(lengths, kappa))
    # The factors as they were rounded, where the grid has them: in the constant.
    rounded = grid.X[:, -1] / bounds.constant if intercept else s
    np.testing.assert_allclose(rounded, s, rtol=1e-5)
    pooled = LinearRegression(fit_intercept=intercept).fit(
        grid.X[:, :D] * bounds.x_step / rounded[:, None],
        grid.Y[:, 0] * bounds.y_step / rounded,
        sample_weight=rounded**2,
    )
    np.testing.assert_allclose(model.coef_, pooled.coef_, rtol=1e-10)
    np.testing.assert_allclose(model.intercept_, pooled.intercept_, rtol=1e-10)
    # And on the rows as they are, to the resolution of the grid.
    exact = LinearRegression(fit_intercept=intercept).fit(X, y, sample_weight=s**2)
    np.testing.assert_allclose(model.coef_, exact.coef_, rtol=1e-4)
    np.testing.assert_allclose(model.intercept_, exact.intercept_, rtol=1e-6)
    if intercept:
        assert model.n_rows_ == pytest.approx((s**2).sum(), abs=1.0)


def test_long_rows_do_not_pull_the_intercept_towards_zero():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(20_000, 2))
    y = 130 + 10 * X[:, 0] + 5 * X[:, 1] + rng.normal(size=len(X))
    assert np.mean(np.linalg.norm(X, axis=1) > 0.7) > 0.6
    model, _ = without_noise(X, y, 0.7)
    assert model.intercept_ == pytest.approx(130.0, abs=0.05)
    np.testing.assert_allclose(model.coef_, [10.0, 5.0], atol=0.05)
    # The rules of 0.1.0, for clients that have no other.
    biased, _ = without_noise(X, y, 0.7, rules=1)
    assert biased.intercept_ == pytest.approx(110.5, abs=0.5)


@pytest.mark.parametrize("clip_constant", [True, False])
def test_both_rules_keep_the_same_bound(clip_constant):
    bounds = Bounds(2.0, 3.0, D, 1, True, clip_constant)
    X, y = rows_of()
    grid = bounds.on_grid(Block(100 * X, y[:, None], None))
    assert grid.n_shortened == N
    lengths = np.linalg.norm(grid.X, axis=1) * bounds.x_step
    assert lengths.max() <= math.hypot(2.0, 2.0 / math.sqrt(D))
