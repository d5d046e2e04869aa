"""Alpha chosen through Flower: by the server, by the clients, by GCV; both APIs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fakes import InProcessGrid, drive
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.server import ServerAppComponents, ServerConfig
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Strategy
from generators import pooled as pooled_rows
from shared_simulation import SharedSimulation
from sklearn.linear_model import Ridge

from fedridge_flwr import (
    AlphaSelection,
    FedRidge,
    FedRidgeError,
    LegacyFedRidge,
    NotEnoughClientsError,
    RidgeClient,
    RidgeModel,
    SufficientStatistics,
    ridge_client_app,
    select_alpha,
)
from fedridge_flwr.flower.exchange import message_bytes

K, D = 8, 6
ALPHAS = [0.01, 0.1, 1.0, 10.0, 100.0]


def rows_of(k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(k)
    X = rng.normal(loc=0.3 * k, size=(12 + k, D))
    return X, X[:, 0] - X[:, 1] + 2.0 * rng.normal(size=len(X))


def load_data(context: Any) -> Any:
    return rows_of(int(context.node_config["partition-id"]))


NATIVE = ridge_client_app(load_data, lambda context: rows_of(99))
NUMPY = ClientApp(lambda context: RidgeClient(*load_data(context)).to_client())
apps = pytest.mark.parametrize("app", [NATIVE, NUMPY], ids=["message", "numpy"])


def parts(clients: Any = range(K)) -> dict[str, SufficientStatistics]:
    return {str(1000 + k): SufficientStatistics.from_data(*rows_of(k)) for k in clients}


def by_client(selection: AlphaSelection) -> dict[str, np.ndarray]:
    assert selection.losses is not None
    return dict(zip(selection.clients, selection.losses, strict=True))


def pooled(alpha: float) -> Ridge:
    rows = [rows_of(k) for k in range(K)]
    return Ridge(alpha=alpha).fit(*pooled_rows(rows))


@pytest.mark.parametrize("cv", ["server", "clients", "gcv"])
@apps
def test_the_model_is_the_refit_at_the_chosen_alpha(app: ClientApp, cv: str) -> None:
    strategy = FedRidge(alphas=ALPHAS, cv=cv, min_available_nodes=K)
    result = strategy.start(InProcessGrid.of_app(app, K))
    method = "gcv" if cv == "gcv" else "loco"
    expected = select_alpha(parts(), ALPHAS, method=method)
    assert strategy.model_.alpha_ == strategy.selection_.alpha == expected.alpha
    ridge = pooled(expected.alpha)
    np.testing.assert_allclose(strategy.model_.coef_, ridge.coef_, rtol=1e-11)
    np.testing.assert_array_equal(result.arrays["coef"].numpy(), strategy.model_.coef_)
    assert "candidates" in strategy.model_.summary()
    assert "candidates" in str(strategy.report_)
    assert strategy.report_.to_dict()["selection"]["alpha"] == expected.alpha


@apps
def test_losses_counted_by_clients_are_those_of_the_server(app: ClientApp) -> None:
    strategies = [
        FedRidge(alphas=ALPHAS, cv=cv, min_available_nodes=K)
        for cv in ("server", "clients")
    ]
    for strategy in strategies:
        strategy.start(InProcessGrid.of_app(app, K))
    server, clients = (strategy.selection_ for strategy in strategies)
    for client, losses in by_client(server).items():
        np.testing.assert_allclose(by_client(clients)[client], losses, rtol=1e-9)
    np.testing.assert_allclose(clients.mean, server.mean, rtol=1e-9)


@apps
def test_the_older_api_chooses_the_same_and_hands_on_the_refit_once(
    app: ClientApp, tmp_path: Any
) -> None:
    models: list[RidgeModel] = []
    path = tmp_path / "model.json"
    strategy = LegacyFedRidge(
        alphas=ALPHAS,
        cv="clients",
        min_available_nodes=K,
        on_model=models.append,
        save_model=path,
    )
    grid = InProcessGrid.of_app(app, K)
    drive(strategy, grid, num_rounds=5)
    expected = select_alpha(parts(), ALPHAS)
    assert [model.alpha_ for model in models] == [expected.alpha]
    assert RidgeModel.load(path).alpha_ == expected.alpha
    np.testing.assert_allclose(
        strategy.model_.coef_, pooled(expected.alpha).coef_, rtol=1e-11
    )
    for client, losses in by_client(expected).items():
        found = by_client(strategy.selection_)[client]
        np.testing.assert_allclose(found, losses, rtol=1e-9)
    kinds = [message.metadata.message_type for message in grid.sent]
    assert kinds == ["train"] * K + ["evaluate"] * K
    assert strategy.report_.selection is not None
    assert strategy.report_.selection["bytes_down"] > 0


def test_the_stock_driver_leaves_the_refit_in_the_strategy() -> None:
    strategy = FedRidge(alphas=ALPHAS, cv="clients", min_available_nodes=K)
    grid = InProcessGrid.of_app(NATIVE, K)
    Strategy.start(strategy, grid, ArrayRecord(), num_rounds=3, timeout=120)
    assert strategy.model_.alpha_ == select_alpha(parts(), ALPHAS).alpha
    assert len(grid.sent) == 2 * K


def test_alphas_alone_choose_by_the_server_and_cv_alone_makes_a_grid() -> None:
    given = FedRidge(alphas=ALPHAS, min_available_nodes=K)
    given.start(InProcessGrid.of_app(NATIVE, K))
    assert given.selection_.method == "loco"
    auto = FedRidge(cv="clients", min_available_nodes=K)
    auto.start(InProcessGrid.of_app(NATIVE, K))
    assert auto.selection_.alphas.size == 30
    assert not auto.selection_.at_edge


def test_traffic_is_the_models_down_and_one_number_per_candidate_up() -> None:
    strategy = FedRidge(alphas=ALPHAS, cv="clients", min_available_nodes=K)
    grid = InProcessGrid.of_app(NATIVE, K)
    replies: list[Message] = []
    pull = grid.pull_messages
    grid.pull_messages = lambda ids: [  # type: ignore[method-assign]
        replies.append(m) or m for m in pull(ids)
    ]
    strategy.start(grid)
    down = [m for m in grid.sent if m.metadata.message_type == "evaluate"]
    up = [m for m in replies if m.metadata.message_type == "evaluate"]
    for message in down:
        arrays = message.content.array_records["arrays"]
        numbers = sum(array.numpy().size for array in arrays.values())
        assert numbers == len(ALPHAS) * (D + 1)
    for message in up:
        assert len(message.content["metrics"]["losses"]) == len(ALPHAS)
    selection = strategy.report_.selection
    assert selection is not None
    assert selection["bytes_down"] == sum(map(message_bytes, down))
    assert selection["bytes_up"] == pytest.approx(sum(map(message_bytes, up)), rel=0.01)


@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
def test_the_rounds_of_fedavg_for_the_same_bytes_count_the_choice_too(
    kind: Any,
) -> None:
    def rounds(cv: str) -> tuple[int, float]:
        strategy = kind(alphas=ALPHAS, cv=cv, min_available_nodes=K)
        grid = InProcessGrid.of_app(NATIVE, K)
        strategy.start(grid) if kind is FedRidge else drive(strategy, grid)
        report = strategy.report_
        return report.bytes_up + report.bytes_down, report.fedavg_rounds

    (little, few), (much, many) = rounds("server"), rounds("clients")
    assert much > little
    assert many / few == pytest.approx(much / little, rel=0.02)


def lose(grid: InProcessGrid, node: int, answer: Any) -> None:
    honest = grid.handlers[node]

    def handler(message: Message) -> Message:
        if message.metadata.message_type == "train":
            return honest(message)
        if answer is None:
            raise ConnectionError("gone")
        content = RecordDict({"metrics": MetricRecord(answer)})
        return Message(content, reply_to=message)

    grid.handlers[node] = handler


@pytest.mark.parametrize("cv", ["server", "clients"])
def test_rows_of_the_losses_are_in_the_order_of_node_ids(cv: str) -> None:
    grid = InProcessGrid.of_app(NATIVE, K)
    grid.late = {1000: 0.4, 1001: 0.2}
    strategy = FedRidge(alphas=ALPHAS, cv=cv, min_available_nodes=K)
    strategy.start(grid)
    chosen = strategy.selection_
    assert chosen.clients == [str(1000 + k) for k in range(K)]
    expected = select_alpha(parts(), ALPHAS).losses
    assert chosen.losses is not None
    assert expected is not None
    np.testing.assert_allclose(chosen.losses, expected, rtol=1e-9)


def test_whoever_drops_out_of_the_choice_is_named_and_still_in_the_model() -> None:
    grid = InProcessGrid.of_app(NATIVE, K)
    n = len(ALPHAS)
    lose(grid, 1000, None)
    lose(grid, 1001, {"losses": [1.0] * (n - 1)})
    lose(grid, 1002, {"losses": [-1.0] * n})
    lose(grid, 1003, {"losses": [float("nan")] * n})
    lose(grid, 1004, {"num-examples": 3})
    strategy = FedRidge(alphas=ALPHAS, cv="clients", min_available_nodes=K)
    strategy.start(grid)
    failures = strategy.report_.selection_failures
    for node, words in (
        ("1000", "gone"),
        ("1001", "expected 5 held-out losses"),
        ("1002", "negative or not finite"),
        ("1003", "negative or not finite"),
        ("1004", "no held-out losses"),
    ):
        assert words in failures[node]
        assert f"client {strategy.report_.names[node]}: " in str(strategy.report_)
    found = by_client(strategy.selection_)
    assert sorted(found) == ["1005", "1006", "1007"]
    server = by_client(select_alpha(parts(), ALPHAS))
    for client, losses in found.items():
        np.testing.assert_allclose(losses, server[client], rtol=1e-9)
    ridge = pooled(strategy.selection_.alpha)
    np.testing.assert_allclose(strategy.model_.coef_, ridge.coef_, rtol=1e-11)


def test_if_nobody_counts_alpha_cannot_be_chosen() -> None:
    grid = InProcessGrid.of_app(NATIVE, 3)
    for node in list(grid.handlers):
        lose(grid, node, None)
    strategy = FedRidge(alphas=ALPHAS, cv="clients", min_available_nodes=3)
    with pytest.raises(NotEnoughClientsError, match="no client computed"):
        strategy.start(grid)


def test_a_choice_and_an_evaluation_are_two_rounds() -> None:
    grid = InProcessGrid.of_app(NATIVE, K)
    strategy = FedRidge(
        alphas=ALPHAS, cv="clients", fraction_evaluate=1.0, min_available_nodes=K
    )
    result = strategy.start(grid)
    assert len(grid.sent) == 3 * K
    X, y = rows_of(99)
    expected = pooled(strategy.model_.alpha_)
    mse = result.evaluate_metrics_clientapp[1]["mse"]
    assert mse == pytest.approx(np.mean((expected.predict(X) - y) ** 2))


def test_plain_clients_are_refused_where_alpha_is_to_be_chosen() -> None:
    def plain(message: Message) -> Message:
        X, y = rows_of(0)
        content = RecordDict(
            {
                "arrays": ArrayRecord([X.T @ X, X.T @ y]),
                "metrics": MetricRecord({"num-examples": len(y)}),
            }
        )
        return Message(content, reply_to=message)

    grid = InProcessGrid.of_app(NATIVE, 4)
    grid.handlers[1000] = plain
    strategy = FedRidge(
        alphas=ALPHAS, cv="gcv", fit_intercept=False, min_available_nodes=4
    )
    strategy.start(grid)
    assert "choice of alpha" in strategy.report_.failures["1000"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cv": "loo"}, "cv must be"),
        ({"alphas": []}, "alphas is empty"),
        ({"alphas": [0.0, 1.0]}, "must be positive"),
        ({"alphas": "some"}, 'must be "auto"'),
        ({"one_standard_error": True}, "one-standard-error rule needs"),
        ({"cv": "gcv", "one_standard_error": True}, "one-standard-error rule needs"),
    ],
)
@pytest.mark.parametrize("strategy", [FedRidge, LegacyFedRidge])
def test_wrong_settings_fail_before_the_round(
    strategy: Any, settings: Any, words: str
) -> None:
    with pytest.raises(FedRidgeError, match=words):
        strategy(**settings)


def test_without_a_choice_there_is_no_selection() -> None:
    strategy = FedRidge(min_available_nodes=2)
    strategy.start(InProcessGrid.of_app(NATIVE, 2))
    with pytest.raises(AttributeError):
        strategy.selection_  # noqa: B018
    assert strategy.report_.selection is None


@pytest.mark.ray
def test_clients_choose_alpha_in_a_simulation_of_both_apis(
    simulation: SharedSimulation,
) -> None:
    found: dict[str, Any] = {}

    def main(grid: Grid) -> None:
        for cv in ("server", "clients"):
            found[cv] = FedRidge(alphas=ALPHAS, cv=cv, min_available_nodes=K)
            found[cv].start(grid, timeout=120, train_config=ConfigRecord())

    simulation.run(main, NATIVE, K)

    def server_fn(context: Any) -> ServerAppComponents:
        found["legacy"] = LegacyFedRidge(
            alphas=ALPHAS, cv="clients", min_available_nodes=K
        )
        return ServerAppComponents(
            strategy=found["legacy"], config=ServerConfig(num_rounds=1)
        )

    simulation.run(ServerApp(server_fn=server_fn), NUMPY, K)
    expected = select_alpha(parts(), ALPHAS)
    assert expected.losses is not None
    for strategy in found.values():
        assert strategy.selection_.alpha == expected.alpha
        losses = np.sort(strategy.selection_.losses, axis=0)
        np.testing.assert_allclose(losses, np.sort(expected.losses, axis=0), rtol=1e-9)
