"""Whole path: real Ray simulations with real ClientApps and ServerApps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.server import ServerAppComponents, ServerConfig
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from generators import paper_clients
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge

from fedridge_flwr import (
    FedRidge,
    LegacyFedRidge,
    RidgeClient,
    RidgeModel,
    ridge_client_app,
)

pytestmark = pytest.mark.ray

Rows = tuple[np.ndarray, np.ndarray]


def simulate(server: ServerApp, client: ClientApp, num_supernodes: int) -> None:
    from flwr.simulation import run_simulation

    run_simulation(
        server,
        client,
        num_supernodes,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0}},
    )


def server(main: Callable[[Grid], None]) -> ServerApp:
    app = ServerApp()

    @app.main()
    def run(grid: Grid, context: Context) -> None:
        main(grid)

    return app


def diabetes_of(context: Context) -> Rows:
    k, n = (int(context.node_config[f"{key}"]) for key in _PARTITION)
    X, y = load_diabetes(return_X_y=True)
    return X[k::n], y[k::n]


_PARTITION = ("partition-id", "num-partitions")


def relative(a: Any, b: Any) -> float:
    return float(np.linalg.norm(np.subtract(a, b)) / np.linalg.norm(b))


def assert_exact(model: RidgeModel, ridge: Ridge) -> None:
    assert relative(model.coef_, ridge.coef_) < 1e-12
    assert abs(model.intercept_ - ridge.intercept_) <= 1e-12 * max(
        1.0, abs(ridge.intercept_)
    )


# ---- all four combinations -----------------------------------------------------------


def message_server(found: dict[str, Any]) -> ServerApp:
    def main(grid: Grid) -> None:
        strategy = FedRidge(alpha=0.1, min_available_nodes=5, fraction_evaluate=1.0)
        strategy.start(grid, timeout=120)
        found["strategy"] = strategy

    return server(main)


def legacy_server(found: dict[str, Any]) -> ServerApp:
    def server_fn(context: Context) -> ServerAppComponents:
        strategy = LegacyFedRidge(0.1, min_available_nodes=5, fraction_evaluate=1.0)
        found["strategy"] = strategy
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=1))

    return ServerApp(server_fn=server_fn)


def message_client() -> ClientApp:
    return ridge_client_app(diabetes_of)


def numpy_client() -> ClientApp:
    return ClientApp(lambda context: RidgeClient(*diabetes_of(context)).to_client())


@pytest.mark.parametrize("client", [message_client, numpy_client])
@pytest.mark.parametrize("make_server", [message_server, legacy_server])
def test_strategies_and_clients_of_both_apis_combine(
    make_server: Any, client: Any
) -> None:
    found: dict[str, Any] = {}
    simulate(make_server(found), client(), 5)
    strategy = found["strategy"]
    ridge = Ridge(alpha=0.1).fit(*load_diabetes(return_X_y=True))
    assert_exact(strategy.model_, ridge)
    assert len(strategy.report_.participants) == 5
    assert strategy.report_.evaluation["num-examples"] == 442


# ---- exactness over many data sets, in one simulation --------------------------------

CASES = {f"d={d} gamma={gamma}": (d, gamma) for d in (10, 100, 400) for gamma in (0, 1)}


def paper_rows(case: str, partition: int, n_partitions: int) -> Rows:
    d, gamma = CASES[case]
    return paper_clients(d=d, n_k=50, K=n_partitions, gamma=gamma, seed=1)[partition]


def many_data_sets() -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        case = str(message.content.config_records["config"]["case"])
        k, n = (int(context.node_config[key]) for key in _PARTITION)
        return ridge_client_app(lambda _: paper_rows(case, k, n))(message, context)

    return app


def test_every_case_of_the_papers_generator_is_exact() -> None:
    models: dict[str, RidgeModel] = {}

    def main(grid: Grid) -> None:
        for case in CASES:
            strategy = FedRidge(alpha=0.01, min_available_nodes=20)
            config = ConfigRecord({"case": case})
            strategy.start(grid, train_config=config, timeout=120)
            models[case] = strategy.model_

    simulate(server(main), many_data_sets(), 20)
    for case, model in models.items():
        rows = [paper_rows(case, k, 20) for k in range(20)]
        X, y = (np.concatenate(part) for part in zip(*rows, strict=True))
        assert model.n_clients_ == 20
        assert_exact(model, Ridge(alpha=0.01).fit(X, y))
    assert len(models) == len(CASES)


# ---- faults --------------------------------------------------------------------------


def faulty_client() -> ClientApp:
    """Clients 0-2 raise, 3 and 4 send malformed arrays, 5 comes too late."""
    honest = ridge_client_app(diabetes_of)
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Context) -> Message:
        return Message(RecordDict(), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        k = int(context.node_config["partition-id"])
        if k in (0, 1):
            raise RuntimeError("this client is broken")
        if k == 2:
            return ridge_client_app(lambda _: 1 / 0)(message, context)
        if k == 5:
            time.sleep(20)
        reply = honest(message, context)
        if k in (3, 4):
            array = reply.content["arrays"]["statistics"].numpy()
            array = array[:-1] if k == 3 else array * np.nan
            reply.content["arrays"] = ArrayRecord({"statistics": Array(array)})
        return reply

    return app


def test_six_faulty_clients_of_twenty_in_a_simulation() -> None:
    found: dict[str, Any] = {}

    def main(grid: Grid) -> None:
        from fedridge_flwr.flower.exchange import ask, wait_for_nodes

        wait_for_nodes(lambda: len(set(grid.get_node_ids())), 20, 60)
        hello = RecordDict({"config": ConfigRecord({"warm-up": True})})
        nodes = list(grid.get_node_ids())
        list(ask(grid, [Message(hello, n, "query") for n in nodes], 120, "warm-up"))
        strategy = FedRidge(alpha=1.0, min_available_nodes=20)
        began = time.monotonic()
        strategy.start(grid, timeout=10)
        found["seconds"] = time.monotonic() - began
        found["strategy"] = strategy

    simulate(server(main), faulty_client(), 20)
    report = found["strategy"].report_
    assert found["seconds"] < 15
    assert len(report.participants) == 14
    assert sorted(_kind(reason) for reason in report.failures.values()) == [
        "NaN",
        "broken",
        "broken",
        "division",
        "late",
        "length",
    ]
    rows = [load_diabetes(return_X_y=True)] * 14
    parts = [(X[k::20], y[k::20]) for k, (X, y) in enumerate(rows, start=6)]
    X, y = (np.concatenate(part) for part in zip(*parts, strict=True))
    assert_exact(found["strategy"].model_, Ridge(alpha=1.0).fit(X, y))


def _kind(reason: str) -> str:
    words = {
        "NaN": "NaN or infinite",
        "broken": "this client is broken",
        "division": "ZeroDivisionError",
        "late": "no answer within 10 s",
        "length": "numbers, got an array of shape",
    }
    return next((kind for kind, word in words.items() if word in reason), reason)


# ---- a stock app becomes ours by the README's diff -----------------------------------


class StockClient(NumPyClient):
    """What many Flower apps look like: FedAvg on the weights of a linear model."""

    def __init__(self, X: np.ndarray, y: np.ndarray) -> None:
        self.X, self.y = X, y

    def fit(self, parameters: Any, config: Any) -> Any:
        w = parameters[0] if parameters else np.zeros(self.X.shape[1])
        w = w - 0.1 * self.X.T @ (self.X @ w - self.y) / len(self.y)
        return [w], len(self.y), {}


def test_a_stock_numpyclient_app_becomes_ours_in_the_older_api() -> None:
    models: list[RidgeModel] = []

    def client_fn(context: Context) -> Any:
        X, y = diabetes_of(context)
        # -   return StockClient(X, y).to_client()
        return RidgeClient(X, y).to_client()

    def server_fn(context: Context) -> ServerAppComponents:
        # -   strategy = FedAvg()
        strategy = LegacyFedRidge(alpha=1.0, on_model=models.append)
        return ServerAppComponents(
            strategy=strategy, config=ServerConfig(num_rounds=30)
        )

    simulate(ServerApp(server_fn=server_fn), ClientApp(client_fn), 4)
    assert len(models) == 1
    assert_exact(models[0], Ridge(alpha=1.0).fit(*load_diabetes(return_X_y=True)))


def test_a_stock_numpyclient_app_becomes_ours_in_the_message_api() -> None:
    found: dict[str, Any] = {}

    def client_fn(context: Context) -> Any:
        X, y = diabetes_of(context)
        # -   return StockClient(X, y).to_client()
        return RidgeClient(X, y).to_client()

    def evaluate_fn(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        return MetricRecord({"arrays": len(arrays)})

    def main(grid: Grid) -> None:
        # -   strategy = FedAvg()
        strategy = FedRidge(alpha=1.0)
        found["result"] = strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord([np.zeros(10)]),
            num_rounds=30,
            evaluate_fn=evaluate_fn,
        )

    simulate(server(main), ClientApp(client_fn), 4)
    ridge = Ridge(alpha=1.0).fit(*load_diabetes(return_X_y=True))
    arrays = found["result"].arrays
    assert relative(arrays["coef"].numpy(), ridge.coef_) < 1e-12
    assert relative(arrays["intercept"].numpy(), [ridge.intercept_]) < 1e-12
    assert sorted(found["result"].evaluate_metrics_serverapp) == [0, 1]


def test_the_stock_app_that_is_converted_does_run_as_it_was() -> None:
    strategy = FedAvg()
    client = StockClient(*load_diabetes(return_X_y=True))
    arrays, count, _ = client.fit([np.zeros(10)], {})
    assert strategy.min_train_nodes == 2
    assert count == 442
    assert np.isfinite(arrays[0]).all()
