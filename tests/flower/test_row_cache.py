"""load_data is called once for a fit, and again for the next one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from fakes import InProcessGrid
from scipy import sparse
from sklearn.linear_model import Ridge

from fedridge_flwr import FedRidge, LegacyFedRidge, ridge_client_app
from fedridge_flwr.flower import row_cache

K = 4


class Data:
    """Rows of K clients, which count how often they are loaded."""

    def __init__(self, form: Any = np.asarray, seed: int = 0) -> None:
        self.form, self.seed = form, seed
        self.loads = [0] * K

    def rows(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng([self.seed, k])
        X = rng.normal(size=(40, 5))
        return X, X @ np.arange(5.0) + rng.normal(size=40)

    def load(self, context: Any) -> Any:
        k = context.node_config["partition-id"]
        self.loads[k] += 1
        X, y = self.rows(k)
        return self.form(X), y

    def all_rows(self) -> tuple[np.ndarray, np.ndarray]:
        parts = [self.rows(k) for k in range(K)]
        return np.vstack([X for X, _ in parts]), np.concatenate([y for _, y in parts])

    def pooled(self) -> np.ndarray:
        X, y = self.all_rows()
        return Ridge(alpha=1.0).fit(X, y).coef_


def fit(app: Any, **settings: Any) -> np.ndarray:
    strategy = FedRidge(alpha=1.0, min_available_nodes=K, **settings)
    strategy.start(grid=InProcessGrid.of_app(app, K))
    return strategy.model_.coef_


@pytest.mark.parametrize("form", [np.asarray, pd.DataFrame, sparse.csr_array])
@pytest.mark.parametrize("mode", ["refine", "cg"])
def test_several_rounds_load_once(form: Any, mode: str) -> None:
    data = Data(form)
    found = fit(ridge_client_app(data.load), mode=mode)
    np.testing.assert_allclose(found, data.pooled(), rtol=1e-9)
    assert data.loads == [1] * K


@pytest.mark.parametrize(
    "settings", [{"cv": "clients", "alphas": [1.0]}, {"feature_map": "standardize"}]
)
def test_other_fits_that_come_back_load_once_too(settings: dict[str, Any]) -> None:
    data = Data()
    fit(ridge_client_app(data.load), **settings)
    assert data.loads == [1] * K


def test_the_next_fit_of_the_same_run_sees_new_rows() -> None:
    data = Data()
    app = ridge_client_app(data.load)
    for seed in (0, 1):
        data.seed = seed
        np.testing.assert_allclose(fit(app, mode="cg"), data.pooled(), rtol=1e-9)
    assert data.loads == [2] * K


def test_rows_are_not_kept_where_that_is_not_wanted_or_not_possible() -> None:
    for form, reuse in ((np.asarray, False), (np.ndarray.tolist, True)):
        data = Data(form)
        fit(ridge_client_app(data.load, reuse_data=reuse), mode="cg")
        assert min(data.loads) > 2


def test_a_fit_in_one_round_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_cache, "_kept", type(row_cache._kept)())
    fit(ridge_client_app(Data().load))
    assert not row_cache._kept


def test_the_rows_used_last_stay_within_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(row_cache, "_kept", type(row_cache._kept)())
    one = 40 * 6 * 8
    monkeypatch.setattr(row_cache, "LARGEST_CACHE", 2 * one)
    data = Data()
    found = fit(ridge_client_app(data.load), mode="cg")
    np.testing.assert_allclose(found, data.pooled(), rtol=1e-9)
    assert len(row_cache._kept) == 2
    assert min(data.loads) > 2


def test_evaluation_rows_are_others() -> None:
    train, held_out = Data(), Data(seed=7)
    app = ridge_client_app(train.load, held_out.load)
    strategy = FedRidge(mode="cg", min_available_nodes=K, fraction_evaluate=1.0)
    strategy.start(grid=InProcessGrid.of_app(app, K))
    expected = strategy.model_.evaluate(*held_out.all_rows()).mse
    assert strategy.report_.evaluation["mse"] == pytest.approx(expected, rel=1e-12)
    assert (train.loads, held_out.loads) == ([1] * K, [1] * K)


def test_the_older_strategy_names_its_fits_as_well() -> None:
    from fakes import drive

    data = Data()
    strategy = LegacyFedRidge(mode="cg", min_available_clients=K)
    drive(strategy, InProcessGrid.of_app(ridge_client_app(data.load), K), 100)
    np.testing.assert_allclose(strategy.model_.coef_, data.pooled(), rtol=1e-9)
    assert data.loads == [1] * K
