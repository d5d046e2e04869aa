"""Many features, several rounds and feature maps in real Ray simulations."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.server import ServerAppComponents, ServerConfig
from flwr.serverapp import Grid, ServerApp
from generators import paper_clients, pooled, relative_error
from shared_simulation import SharedSimulation
from sklearn.linear_model import Ridge

from fedridge_flwr import (
    FedRidge,
    LegacyFedRidge,
    RandomFourierFeatures,
    RidgeClient,
    Standardize,
    ridge_client_app,
)
from fedridge_flwr.federation.costs import oneshot_bytes
from fedridge_flwr.flower.exchange import CountingGrid

pytestmark = pytest.mark.ray

K, N_K, D = 10, 80, 300


@lru_cache(maxsize=1)
def clients() -> list[tuple[np.ndarray, np.ndarray]]:
    return paper_clients(D, N_K, K, gamma=0.5, seed=0)


def load_data(context: Context) -> tuple[np.ndarray, np.ndarray]:
    return clients()[int(context.node_config["partition-id"])]


def test_all_modes_and_a_map_in_one_simulation(
    simulation: SharedSimulation,
) -> None:
    found: dict[str, Any] = {}
    bytes_up: dict[str, int] = {}
    feature_map = Standardize() | RandomFourierFeatures(40, gamma="scale")

    def main(grid: Grid) -> None:
        strategies = {
            "oneshot": FedRidge(0.1),
            "refine": FedRidge(0.1, mode="refine"),
            "cg": FedRidge(0.1, mode="cg"),
            "auto": FedRidge(0.1, mode="auto", max_bytes=10_000),
            "map": FedRidge(0.1, feature_map=feature_map),
        }
        for name, strategy in strategies.items():
            counting = CountingGrid(grid)
            strategy.min_available_nodes = K
            strategy.start(counting, timeout=600)
            found[name], bytes_up[name] = strategy, counting.bytes_up

    simulation.run(main, ridge_client_app(load_data), K)
    X, y = pooled(clients())
    ridge = Ridge(alpha=0.1).fit(X, y)
    for name in ("oneshot", "refine", "cg", "auto"):
        strategy = found[name]
        assert relative_error(strategy.model_.coef_, ridge.coef_) < 1e-10
        assert len(strategy.report_.participants) == K
        assert strategy.report_.bytes_up == pytest.approx(bytes_up[name], rel=0.01)
    assert found["auto"].report_.refinement.mode == "refine"
    # With 80 rows and 300 features a client sends a trapezoid.
    whole = K * oneshot_bytes(D)
    assert bytes_up["oneshot"] < 0.5 * whole
    assert bytes_up["refine"] < 0.25 * whole
    model = found["map"].model_
    mapped = model.feature_map.transform(X)
    expected = Ridge(alpha=0.1).fit(mapped, y).predict(mapped)
    assert relative_error(model.predict(X), expected) < 1e-11


def test_the_older_api_in_several_rounds(simulation: SharedSimulation) -> None:
    found: dict[str, Any] = {}

    def server_fn(context: Context) -> ServerAppComponents:
        found["strategy"] = LegacyFedRidge(
            0.1, mode="refine", min_available_nodes=K, fraction_evaluate=1.0
        )
        config = ServerConfig(num_rounds=20)
        return ServerAppComponents(strategy=found["strategy"], config=config)

    client = ClientApp(lambda context: RidgeClient(*load_data(context)).to_client())
    simulation.run(ServerApp(server_fn=server_fn), client, K)
    strategy = found["strategy"]
    ridge = Ridge(alpha=0.1).fit(*pooled(clients()))
    assert relative_error(strategy.model_.coef_, ridge.coef_) < 1e-10
    assert strategy.report_.evaluation["num-examples"] == K * N_K
