"""Alpha on a flat curve: all ways to choose agree, and none blames a given grid."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from fakes import InProcessGrid, fit

from fedridge_flwr import (
    ClampedLossWarning,
    FedRidge,
    GridEdgeWarning,
    LegacyFedRidge,
    SufficientStatistics,
    ridge_client_app,
    select_alpha,
)
from fedridge_flwr.regression.alpha.alpha_grid import best_of, extended_grid

K = 6


def rows_of(k: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(k)
    X = rng.normal(size=(40, 4))
    return X, X @ [1.0, 2.0, -1.0, 0.5] + noise * rng.normal(size=40)


def chosen(kind: Any, cv: str, noise: float, **settings: Any) -> Any:
    app = ridge_client_app(
        lambda context: rows_of(context.node_config["partition-id"], noise)
    )
    strategy = kind(alphas="auto", cv=cv, min_available_nodes=K, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClampedLossWarning)
        return fit(strategy, InProcessGrid.of_app(app, K)).selection_


@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
@pytest.mark.parametrize("noise", [0.0, 1e-6, 0.1, 1.0])
def test_clients_and_server_choose_the_same(kind, noise):
    with warnings.catch_warnings():
        warnings.simplefilter("error", GridEdgeWarning)
        by_clients = chosen(kind, "clients", noise)
    by_server = chosen(FedRidge, "server", noise)
    # The grid has the last digits of the order in which clients answered.
    assert by_clients.alpha == pytest.approx(by_server.alpha, rel=1e-9)
    assert not by_clients.at_edge


@pytest.mark.parametrize("cv", ["server", "clients", "gcv"])
def test_the_largest_of_equally_good_candidates_is_chosen(cv):
    found = chosen(FedRidge, cv, 0.1)
    place = int(np.flatnonzero(found.alphas == found.alpha)[0])
    assert found.mean[place] <= found.mean.min() * (1 + 1e-5)
    assert found.mean[place + 1] > found.mean.min() * (1 + 1e-7)


def test_an_automatic_grid_is_not_the_users_to_extend():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(60, 3))
    parts = [
        SufficientStatistics.from_data(X[k::3], rng.normal(size=20)) for k in range(3)
    ]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GridEdgeWarning)
        found = select_alpha(parts, "auto")
    for each in caught:
        assert "extend it" not in str(each.message)
        assert "automatic grid" in str(each.message)
    assert bool(caught) == found.at_edge
    with pytest.warns(GridEdgeWarning, match="extend it"):
        select_alpha(parts, [1e-3, 1e-2])


def test_clients_get_the_grid_that_the_server_had_to_extend():
    rng = np.random.default_rng(5)
    rows = [(rng.normal(size=(20, 3)), rng.normal(size=20)) for _ in range(3)]
    app = ridge_client_app(lambda context: rows[context.node_config["partition-id"]])
    alphas = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for cv in ("server", "clients"):
            strategy = FedRidge(alphas="auto", cv=cv)
            alphas[cv] = fit(strategy, InProcessGrid.of_app(app, 3)).selection_.alphas
    np.testing.assert_allclose(alphas["clients"], alphas["server"], rtol=1e-12)
    assert alphas["clients"].size > 30


def test_scores_that_rounding_hides_are_equal():
    total = SufficientStatistics.from_data([[0.0], [1.0], [2.0]], [0.0, 1.0, 3.0])
    assert best_of(np.array([1e-15, 1e-14, 1e-3, 1.0]), total) == 1
    assert best_of(np.array([1e-15, 1e-14, 1e-3, 1.0])) == 0
    assert best_of(np.array([3.0, 2.0, 1.0])) == 2
    assert extended_grid(np.array([1.0, 2.0]), downwards=True).size == 10
