"""Lasso and elastic net from statistics equal scikit-learn's on the pooled rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from real_data import by_client, diabetes, exam, heart
from sklearn.linear_model import ElasticNet, Lasso, LassoCV, lasso_path
from sklearn.model_selection import LeaveOneGroupOut

from fedridge_flwr import (
    FedRidgeError,
    NotConvergedWarning,
    StatisticsError,
    SufficientStatistics,
    solve,
)
from fedridge_flwr.regression import (
    elastic_net,
    elastic_net_path,
    lasso_alphas,
    select_elastic_net,
)

REAL = {"diabetes": diabetes, "heart": heart, "exam": exam}


def scaled(X: Any, y: Any, coef: Any) -> Any:
    """Return coefficients in standard deviations of the target."""
    return coef * X.std(axis=0) / y.std()


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("share", [1.0, 0.7, 0.1])
def test_equal_to_scikit_learn(name: str, share: float, shared_data: Any) -> None:
    X, y, groups = REAL[name](shared_data)
    total = sum(by_client(X, y, groups).values())
    alphas = lasso_alphas(total, share)[[5, 30, 60, 90]]
    for alpha, model in zip(
        alphas, elastic_net_path(total, alphas, l1_ratio=share), strict=True
    ):
        wanted = ElasticNet(alpha=alpha, l1_ratio=share, tol=1e-12, max_iter=10**6)
        wanted.fit(X, y)
        distance = scaled(X, y, model.coef_) - scaled(X, y, wanted.coef_)
        assert np.abs(distance).max() < 1e-6
        assert model.intercept_ == pytest.approx(wanted.intercept_, abs=1e-6 * y.std())
        assert set(model.selected) == {f"x{j}" for j in np.flatnonzero(wanted.coef_)}


def test_weights_targets_and_no_intercept() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(80, 6)) + 1.0, rng.normal(size=(80, 2))
    weights = rng.uniform(0.5, 2.0, size=80)
    for intercept in (True, False):
        stats = SufficientStatistics.from_data(X, Y, weights)
        found = elastic_net(stats, 0.1, l1_ratio=0.6, fit_intercept=intercept)
        for k in range(2):
            wanted = ElasticNet(
                alpha=0.1, l1_ratio=0.6, fit_intercept=intercept, tol=1e-13
            ).fit(X, Y[:, k], weights)
            np.testing.assert_allclose(found.coef_[k], wanted.coef_, atol=1e-8)
        assert found.predict(X).shape == (80, 2)


# Of two copies of a column, descent moves weight from one to the other for ever.
@pytest.mark.filterwarnings("ignore::fedridge_flwr.NotConvergedWarning")
@given(st.integers(0, 10**6), st.floats(0.01, 1.0), st.floats(0.0, 1.0))
def test_no_direction_leads_downhill(seed: int, share: float, size: float) -> None:
    """The law of the minimum, whatever the columns: scales, copies, constants."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(30, 5)) * 10.0 ** rng.integers(-3, 4, size=5)
    X[:, 4] = X[:, 0] if seed % 3 == 0 else X[:, 4]
    X[:, 3] = 1.0 if seed % 4 == 0 else X[:, 3]
    y = X[:, 0] / X[:, 0].std() + rng.normal(size=30)
    stats = SufficientStatistics.from_data(X, y)
    alpha = size * float(lasso_alphas(stats, share)[0]) + 1e-9
    model = elastic_net(stats, alpha, l1_ratio=share)
    w = model.coef_
    residual = (y - y.mean()) - (X - X.mean(axis=0)) @ w
    slope = (X - X.mean(axis=0)).T @ residual / 30 - alpha * (1 - share) * w
    spread = X.std(axis=0) + 1e-300
    inside = np.abs(slope - alpha * share * np.sign(w))[w != 0] / spread[w != 0]
    outside = (np.abs(slope) - alpha * share)[w == 0] / spread[w == 0]
    limit = 1e-7 * y.std()
    assert inside.max(initial=0.0) < limit
    assert outside[spread[w == 0] > 1e-12].max(initial=0.0) < limit


def test_the_ends_are_ridge_and_nothing() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), rng.normal(size=60)
    stats = SufficientStatistics.from_data(X, y)
    ridge = elastic_net(stats, 3.0 / 60, l1_ratio=0.0)
    np.testing.assert_allclose(ridge.coef_, solve(stats, 3.0).coef_, rtol=1e-8)
    largest = lasso_alphas(stats)[0]
    assert elastic_net(stats, 1.000001 * largest, l1_ratio=1.0).selected == ()
    assert len(elastic_net(stats, 0.99 * largest, l1_ratio=1.0).selected) == 1
    alphas, *_ = lasso_path(X - X.mean(axis=0), y - y.mean())
    np.testing.assert_allclose(lasso_alphas(stats), alphas, rtol=1e-10)


def test_the_choice_over_sites_equals_lasso_cv(shared_data: Any) -> None:
    X, y, groups = heart(shared_data)
    parts = by_client(X, y, groups)
    chosen = select_elastic_net(parts)
    folds = list(LeaveOneGroupOut().split(X, y, groups))
    wanted = LassoCV(alphas=chosen.alphas, cv=folds, tol=1e-10, max_iter=10**6)
    wanted.fit(X, y)
    losses = wanted.mse_path_.T
    np.testing.assert_allclose(chosen.losses, losses, rtol=1e-6)
    sizes = np.array([part.count for part in parts.values()])
    np.testing.assert_allclose(chosen.mean, sizes @ losses / sizes.sum(), rtol=1e-6)
    assert chosen.alpha == chosen.alphas[np.argmin(chosen.mean)]
    refit = Lasso(alpha=chosen.alpha, tol=1e-12, max_iter=10**6).fit(X, y)
    distance = scaled(X, y, chosen.model.coef_) - scaled(X, y, refit.coef_)
    assert np.abs(distance).max() < 1e-6
    assert chosen.sites == list(parts)


def test_what_is_refused() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 2)), rng.normal(size=20)
    stats = SufficientStatistics.from_data(X, y)
    with pytest.raises(FedRidgeError, match="l1_ratio must be between 0 and 1"):
        elastic_net(stats, 1.0, l1_ratio=2.0)
    with pytest.raises(FedRidgeError, match="alpha must be a finite number"):
        elastic_net(stats, -1.0)
    with pytest.raises(FedRidgeError, match="give alphas"):
        lasso_alphas(stats, 0.0)
    with pytest.raises(FedRidgeError, match='alphas must be "auto"'):
        select_elastic_net([stats, stats], "all")
    with pytest.raises(StatisticsError, match="at least 2 sites"):
        select_elastic_net([stats])
    with pytest.warns(NotConvergedWarning, match="ended after 1 sweeps"):
        elastic_net(stats, 1e-9, max_iter=1, tol=1e-15)
