"""Secure sums in a real simulation: 20 clients with 100 features, some of them lost."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from generators import pooled, relative_error
from secure_grids import TASKS, integer_total, same_bits, task_of
from shared_simulation import SharedSimulation
from sklearn.linear_model import Ridge

from fedridge_flwr import (
    FedRidge,
    NotEnoughClientsError,
    SecurePolicy,
    SecureSum,
    ridge_client_app,
)

pytestmark = pytest.mark.ray

K, D, LOST = 20, 100, (3, 11, 17)
POLICY = SecurePolicy(min_clients=10)


def rows_of(k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(k)
    X = rng.normal(loc=0.1 * k, size=(150, D))
    return X, X @ np.linspace(-1, 1, D) + rng.normal(size=150)


def load_data(context: Context) -> tuple[np.ndarray, np.ndarray]:
    return rows_of(int(context.node_config["partition-id"]))


def client_app(lost: Collection[int] = (), task: str = "") -> ClientApp:
    """Return clients some of which break down in one exchange."""
    honest, app = ridge_client_app(load_data, secure_policy=POLICY), ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        if task_of(message) == task and context.node_config["partition-id"] in lost:
            raise ConnectionError("gone")
        return honest(message, context)

    return app


def run(simulation: SharedSimulation, client: ClientApp) -> FedRidge:
    strategy = FedRidge(1.0, secure=SecureSum(), min_available_nodes=K)

    def serve(grid: Grid) -> None:
        strategy.start(grid, timeout=300)

    simulation.run(serve, client, K)
    return strategy


def check(strategy: FedRidge, left: Collection[int]) -> None:
    rows = [rows_of(k) for k in left]
    assert same_bits(strategy.statistics_, integer_total(rows))
    ridge = Ridge(1.0, solver="svd").fit(*pooled(rows))
    assert relative_error(strategy.model_.coef_, ridge.coef_) < 1e-12
    assert len(strategy.report_.participants) == len(left)


def test_nobody_is_lost(simulation: SharedSimulation) -> None:
    strategy = run(simulation, client_app())
    check(strategy, range(K))
    report = strategy.report_
    assert report.bytes_up / K <= 135_000
    assert report.bytes_down / K <= 10_000


@pytest.mark.parametrize("task", TASKS)
def test_three_are_lost_in_one_exchange(
    simulation: SharedSimulation, task: str
) -> None:
    strategy = run(simulation, client_app(LOST, task))
    in_sum = [k for k in range(K) if task in TASKS[3:] or k not in LOST]
    check(strategy, in_sum)
    assert len(strategy.report_.failures) == K - len(in_sum)


@pytest.mark.parametrize("task", TASKS[2:])
def test_seven_are_more_than_the_threshold_allows(
    simulation: SharedSimulation, task: str
) -> None:
    found: list[Any] = []

    def serve(grid: Grid) -> None:
        strategy = FedRidge(1.0, secure=SecureSum(), min_available_nodes=K)
        found.append(strategy)
        strategy.start(grid, timeout=300)

    with pytest.raises(NotEnoughClientsError, match="nothing is released"):
        simulation.run(serve, client_app(range(7), task), K)
    for name in ("statistics_", "model_", "report_"):
        assert not hasattr(found[0], name)
