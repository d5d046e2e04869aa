"""Weights and alpha that are both c times as large change nothing but their scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fits import run_fit
from hypothesis import given
from hypothesis import strategies as st

from fedridge_flwr import SufficientStatistics, select_alpha, solve
from fedridge_flwr.regression.alpha.alpha_grid import auto_alphas
from fedridge_flwr.regression.alpha.alpha_selection import gcv_scores
from fedridge_flwr.regression.diagnostics import spectrum

RNG = np.random.default_rng(3)
X, W = RNG.normal(size=(60, 4)) + 2.0, RNG.exponential(size=60)
Y = X @ [1.0, -1.0, 0.5, 0.0] + RNG.normal(size=60)
GRID = np.logspace(-4, 4, 33)
SCALES = st.sampled_from([1e-9, 1 / W.sum(), 1e-3, 3.0, 1e3, 1e9])
OPTIONS = st.fixed_dictionaries(
    {"fit_intercept": st.booleans(), "standardize": st.booleans()}
)


def parts(c: float) -> list[SufficientStatistics]:
    return [
        SufficientStatistics.from_data(X[k::5], Y[k::5], W[k::5] * c) for k in range(5)
    ]


@given(c=SCALES, method=st.sampled_from(["gcv", "loco"]), options=OPTIONS)
def test_the_choice_scales_with_the_weights(
    c: float, method: str, options: Any
) -> None:
    one = select_alpha(parts(1.0), GRID, method=method, **options)
    other = select_alpha(parts(c), GRID * c, method=method, **options)
    assert other.alpha / c == pytest.approx(one.alpha, rel=1e-12)
    np.testing.assert_allclose(other.mean, one.mean, rtol=1e-8)
    np.testing.assert_allclose(other.model.coef_, one.model.coef_, rtol=1e-9)


@given(c=SCALES, options=OPTIONS)
def test_the_fit_and_its_diagnostics_do(c: float, options: Any) -> None:
    one, other = sum(parts(1.0)), sum(parts(c))
    model, scaled = solve(one, 2.0, **options), solve(other, 2.0 * c, **options)
    np.testing.assert_allclose(scaled.coef_, model.coef_, rtol=1e-10)
    assert scaled.r2_ == pytest.approx(model.r2_, rel=1e-10)
    assert scaled.condition_ == pytest.approx(model.condition_, rel=1e-8)
    grid = auto_alphas(one, **options)
    np.testing.assert_allclose(auto_alphas(other, **options) / c, grid, rtol=1e-8)
    found, expected = spectrum(other, scaled), spectrum(one, model)
    assert found.kappa == pytest.approx(expected.kappa, rel=1e-8)
    assert found.shrinkage == pytest.approx(expected.shrinkage, rel=1e-8)


@given(c=SCALES)
def test_screening_does(c: float) -> None:
    def told(scale: float) -> dict[str, str]:
        clients = {
            str(k): (X[k::10] * (1e3 if k == 3 else 1.0), Y[k::10], W[k::10] * scale)
            for k in range(10)
        }
        return dict(run_fit(clients, alpha=2.0 * scale).report.suspects)

    assert told(1.0)
    assert told(c).keys() == told(1.0).keys()


def test_rows_without_weights_are_counted_as_before() -> None:
    total = SufficientStatistics.from_data(X, Y)
    values = np.linalg.eigvalsh(total.centred_gram)[:, None]
    freedom = (values / (values + GRID)).sum(axis=0) + 1.0
    residuals = [
        ((Y - solve(total, alpha).predict(X)) ** 2).sum() for alpha in GRID.tolist()
    ]
    expected = 60 * np.array(residuals) / (60 - freedom) ** 2
    np.testing.assert_allclose(gcv_scores(total, GRID), expected, rtol=1e-10)


def test_weights_that_sum_to_one_leave_degrees_of_freedom() -> None:
    total = SufficientStatistics.from_data(X, Y, W / W.sum())
    assert select_alpha(total, method="gcv").alpha > 0
