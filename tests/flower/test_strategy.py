"""The strategy of the message API, on a grid in this process, with faults."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from clocks import Clock
from fakes import InProcessGrid, node_context
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.server import ServerAppComponents, ServerConfig
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import Strategy
from sklearn.linear_model import Ridge

from fedridge_flwr import (
    DataError,
    FedRidge,
    FedRidgeError,
    NotEnoughClientsError,
    RidgeClient,
    RidgeModel,
    ridge_client_app,
    solve,
)
from fedridge_flwr.flower.exchange import wait_for_nodes

K, D = 20, 5


def rows_of(k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(k)
    X = rng.normal(loc=k % 3, size=(15 + k, D))
    return X, X @ np.arange(D) + 3.0 + rng.normal(size=len(X))


def pooled(clients: list[int], **settings: Any) -> Ridge:
    X = np.concatenate([rows_of(k)[0] for k in clients])
    y = np.concatenate([rows_of(k)[1] for k in clients])
    return Ridge(**settings).fit(X, y)


def load_data(context: Any) -> tuple[np.ndarray, np.ndarray]:
    return rows_of(int(context.node_config["partition-id"]))


NATIVE = ridge_client_app(load_data)
NUMPY = ClientApp(
    client_fn=lambda context: RidgeClient(*load_data(context)).to_client()
)


def assert_equals(model: RidgeModel, ridge: Ridge) -> None:
    np.testing.assert_allclose(model.coef_, ridge.coef_, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(model.intercept_, ridge.intercept_, rtol=1e-11)


@pytest.mark.parametrize("app", [NATIVE, NUMPY], ids=["message", "numpy"])
def test_start_alone_gives_the_pooled_solution(app: ClientApp) -> None:
    strategy = FedRidge(alpha=2.0, min_available_nodes=K)
    result = strategy.start(InProcessGrid.of_app(app, K))
    assert_equals(strategy.model_, pooled(list(range(K)), alpha=2.0))
    coef, intercept = (result.arrays[key].numpy() for key in ("coef", "intercept"))
    np.testing.assert_array_equal(coef, strategy.model_.coef_)
    assert intercept == [strategy.model_.intercept_]
    assert strategy.report_.n_rows == sum(15 + k for k in range(K))
    assert len(strategy.report_.participants) == K
    assert result.train_metrics_clientapp[1]["num-clients"] == K


def test_another_alpha_needs_no_other_round() -> None:
    strategy = FedRidge(min_available_nodes=K)
    strategy.start(InProcessGrid.of_app(NATIVE, K))
    model = solve(strategy.statistics_, alpha=50.0)
    assert_equals(model, pooled(list(range(K)), alpha=50.0))


def test_standardize_and_no_intercept_reach_the_solver() -> None:
    strategy = FedRidge(standardize=True, fit_intercept=False, min_available_nodes=2)
    strategy.start(InProcessGrid.of_app(NATIVE, 2))
    assert strategy.model_.standardize
    assert strategy.model_.intercept_ == 0.0


def faulty_grid() -> InProcessGrid:
    """3 of 20 raise, 2 send malformed arrays, 1 is silent."""
    grid = InProcessGrid.of_app(NATIVE, K, late={5: math.inf})
    honest = dict(grid.handlers)

    def raises(message: Message) -> Message:
        raise OSError("disk on fire")

    def no_table(context: Any) -> Any:
        raise LookupError("no such table")

    def with_array(node: int, change: Any) -> Any:
        def handler(message: Message) -> Message:
            reply = honest[node](message)
            array = change(reply.content["arrays"]["statistics"].numpy())
            reply.content["arrays"] = ArrayRecord({"statistics": Array(array)})
            return reply

        return handler

    def with_nan(array: np.ndarray) -> np.ndarray:
        array[7] = np.nan
        return array

    refusing = ridge_client_app(no_table)
    grid.handlers[1000] = raises
    grid.handlers[1001] = raises
    grid.handlers[1002] = lambda message: refusing(message, node_context(2, K))
    grid.handlers[1003] = with_array(1003, lambda array: array[:-2])
    grid.handlers[1004] = with_array(1004, with_nan)
    return grid


@pytest.mark.usefixtures("work_takes_no_time")
def test_six_faulty_clients_of_twenty_are_named_and_the_rest_is_exact() -> None:
    strategy = FedRidge(min_available_nodes=K)
    strategy.start(faulty_grid(), timeout=1.0)
    report = strategy.report_
    assert set(report.failures) == {str(1000 + k) for k in range(6)}
    for node, reason in (
        ("1000", "disk on fire"),
        ("1001", "disk on fire"),
        ("1002", "LookupError in no_table, line"),
        ("1003", "numbers, got an array of shape"),
        ("1004", "NaN"),
        ("1005", "no answer within 1 s"),
    ):
        assert reason in report.failures[node]
        assert f"client {report.names.get(node, node)}: " in str(report)
    assert len(report.participants) == 14
    assert_equals(strategy.model_, pooled(list(range(6, K)), alpha=1.0))


@pytest.mark.usefixtures("work_takes_no_time")
@pytest.mark.parametrize("dropped", [0, 1, 10, 19])
def test_whoever_drops_out_the_answer_is_exact_for_the_rest(dropped: int) -> None:
    grid = InProcessGrid.of_app(NATIVE, K, late=dict.fromkeys(range(dropped), math.inf))
    strategy = FedRidge(min_available_nodes=K)
    strategy.start(grid, timeout=0.3)
    assert_equals(strategy.model_, pooled(list(range(dropped, K)), alpha=1.0))


@pytest.mark.usefixtures("work_takes_no_time")
def test_too_few_valid_answers_are_an_error_that_says_why() -> None:
    strategy = FedRidge(min_available_nodes=K, min_train_nodes=15)
    with pytest.raises(NotEnoughClientsError, match=r"14 valid.*15 needed") as caught:
        strategy.start(faulty_grid(), timeout=0.3)
    assert "disk on fire" in str(caught.value)
    with pytest.raises(AttributeError, match="not fitted"):
        strategy.model_  # noqa: B018


def test_a_client_with_other_columns_cannot_shut_out_the_rest() -> None:
    odd = ridge_client_app(lambda context: (np.eye(9), np.ones(9)))
    grid = InProcessGrid.of_app(NATIVE, K)
    grid.handlers[1000] = lambda message: odd(message, node_context(0, K))
    strategy = FedRidge(min_available_nodes=K)
    strategy.start(grid)
    assert "9 features against 5" in strategy.report_.failures["1000"]
    assert_equals(strategy.model_, pooled(list(range(1, K)), alpha=1.0))


def test_a_node_that_answers_twice_counts_once() -> None:
    strategy = FedRidge(min_available_nodes=2)
    grid = InProcessGrid.of_app(NATIVE, 2)
    replies = list(
        grid.send_and_receive(
            strategy.configure_train(1, ArrayRecord(), ConfigRecord(), grid)
        )
    )
    strategy.aggregate_train(1, [*replies, *replies])
    assert strategy.report_.repeated == ["1000", "1001"]
    assert strategy.model_.n_rows_ == 31


def test_an_answer_nobody_asked_for_is_left_out() -> None:
    strategy = FedRidge(min_available_nodes=2)
    grid = InProcessGrid.of_app(NATIVE, 3)
    grid.visible = lambda looks: 2
    requests = list(strategy.configure_train(1, ArrayRecord(), ConfigRecord(), grid))
    stranger = Message(requests[0].content, 1002, "train")
    replies = list(grid.send_and_receive([*requests, stranger]))
    strategy.aggregate_train(1, replies)
    assert strategy.report_.failures == {"1002": "was not asked"}
    assert_equals(strategy.model_, pooled([0, 1], alpha=1.0))


def test_errors_about_dead_nodes_are_matched_by_their_request() -> None:
    grid = InProcessGrid.of_app(NATIVE, 2)
    from flwr.app import Error

    def dead(message: Message) -> Message:
        reply = Message(Error(code=3, reason="node is offline"), reply_to=message)
        reply.metadata.__dict__["_src_node_id"] = 1
        return reply

    grid.handlers[1001] = dead
    strategy = FedRidge(min_available_nodes=2)
    strategy.start(grid)
    assert strategy.report_.failures == {"1001": "node is offline"}


# ---- other drivers, other habits ---------------------------------------------------


def test_the_stock_driver_works_and_no_record_of_the_caller_is_changed() -> None:
    config, arrays = ConfigRecord({"mine": 1}), ArrayRecord()
    strategy = FedRidge(min_available_nodes=K, fraction_evaluate=1.0)
    grid = InProcessGrid.of_app(NATIVE, K)
    result = Strategy.start(
        strategy, grid, arrays, num_rounds=3, train_config=config, timeout=120
    )
    assert_equals(strategy.model_, pooled(list(range(K)), alpha=1.0))
    assert dict(config) == {"mine": 1}
    assert len(arrays) == 0
    assert len(grid.sent) == 2 * K, "one train and one evaluate round, whatever asked"
    assert list(result.train_metrics_clientapp) == [1]
    assert list(result.evaluate_metrics_clientapp) == [1]
    np.testing.assert_array_equal(result.arrays["coef"].numpy(), strategy.model_.coef_)


def test_start_takes_all_that_stock_start_takes(caplog: Any) -> None:
    seen: list[tuple[int, list[str]]] = []

    def evaluate_fn(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        seen.append((server_round, list(arrays)))
        return MetricRecord({"loss": 1.0})

    strategy = FedRidge(min_available_nodes=2)
    with caplog.at_level("INFO", logger="flwr"):
        result = strategy.start(
            grid=InProcessGrid.of_app(NATIVE, 2),
            initial_arrays=ArrayRecord([np.zeros(3)]),
            num_rounds=50,
            timeout=120,
            train_config=ConfigRecord({"lr": 0.1, "list": [1, 2]}),
            evaluate_config=ConfigRecord(),
            evaluate_fn=evaluate_fn,
        )
    assert seen == [(0, ["0"]), (1, ["coef", "intercept"])]
    assert sorted(result.evaluate_metrics_serverapp) == [0, 1]
    assert sum("are ignored" in record.message for record in caplog.records) == 1


def test_the_strategy_can_be_started_again() -> None:
    strategy = FedRidge(min_available_nodes=2)
    strategy.start(InProcessGrid.of_app(NATIVE, 2))
    strategy.start(InProcessGrid.of_app(NATIVE, 3))
    assert_equals(strategy.model_, pooled([0, 1, 2], alpha=1.0))


def test_evaluate_round_averages_over_rows() -> None:
    app = ridge_client_app(load_data, lambda context: rows_of(100))
    strategy = FedRidge(min_available_nodes=3, fraction_evaluate=1.0)
    result = strategy.start(InProcessGrid.of_app(app, 3))
    ridge, (X, y) = pooled([0, 1, 2], alpha=1.0), rows_of(100)
    metrics = result.evaluate_metrics_clientapp[1]
    assert metrics["mse"] == pytest.approx(np.mean((ridge.predict(X) - y) ** 2))
    assert metrics["r2"] == pytest.approx(ridge.score(X, y))
    assert metrics["num-examples"] == 3 * len(X)
    assert strategy.report_.evaluation == dict(metrics)
    assert "evaluation" in str(strategy.report_)


def test_model_goes_to_callback_and_file(tmp_path: Any) -> None:
    models: list[RidgeModel] = []
    path = tmp_path / "deep" / "model.json"
    strategy = FedRidge(on_model=models.append, save_model=path, min_available_nodes=2)
    strategy.start(InProcessGrid.of_app(NATIVE, 2))
    assert models == [strategy.model_]
    np.testing.assert_array_equal(RidgeModel.load(path).coef_, models[0].coef_)


class PlainClient(NumPyClient):
    """Knows nothing of our package: Algorithm 1 of the paper in three lines."""

    def __init__(self, X: np.ndarray, y: np.ndarray, packed: bool) -> None:
        self.X, self.y, self.packed = X, y, packed

    def fit(self, parameters: Any, config: Any) -> Any:
        G, h = self.X.T @ self.X, self.X.T @ self.y
        return [G[np.triu_indices(len(G))] if self.packed else G, h], len(self.y), {}


def plain_app(packed: bool) -> ClientApp:
    return ClientApp(
        client_fn=lambda context: PlainClient(*load_data(context), packed).to_client()
    )


@pytest.mark.parametrize("packed", [False, True])
def test_plain_clients_are_merged_exactly(packed: bool) -> None:
    strategy = FedRidge(alpha=0.3, fit_intercept=False, min_available_nodes=K)
    strategy.start(InProcessGrid.of_app(plain_app(packed), K))
    ridge = pooled(list(range(K)), alpha=0.3, fit_intercept=False)
    assert_equals(strategy.model_, ridge)
    assert strategy.model_.r2_ is None


def test_plain_and_full_clients_mix() -> None:
    grid = InProcessGrid.of_app(NATIVE, 4)
    plain = InProcessGrid.of_app(plain_app(packed=True), 4)
    grid.handlers[1002] = plain.handlers[1002]
    strategy = FedRidge(fit_intercept=False, min_available_nodes=4)
    strategy.start(grid)
    assert_equals(strategy.model_, pooled([0, 1, 2, 3], alpha=1.0, fit_intercept=False))


def test_what_plain_clients_cannot_tell_is_refused_with_the_reason() -> None:
    strategy = FedRidge(min_available_nodes=2)
    with pytest.raises(NotEnoughClientsError, match="fit_intercept=False"):
        strategy.start(InProcessGrid.of_app(plain_app(packed=False), 2))


def test_serverappcomponents_is_told_to_use_the_legacy_strategy() -> None:
    app = ServerApp(
        server_fn=lambda context: ServerAppComponents(
            strategy=FedRidge(),  # type: ignore[arg-type]
            config=ServerConfig(num_rounds=1),
        )
    )
    with pytest.raises(TypeError, match="LegacyFedRidge"):
        app(InProcessGrid.of_app(NATIVE, 2), node_context(0, 2))


# ---- waiting -----------------------------------------------------------------------


def wait(count: Any, minimum: int | None, timeout: float = 100.0) -> tuple[int, float]:
    clock = Clock()
    nodes = wait_for_nodes(
        lambda: range(count(clock.now)),
        minimum,
        timeout,
        clock=clock,
        sleep=clock.sleep,
    )
    return len(nodes), clock.now


def test_waiting_for_a_minimum_ends_as_soon_as_it_is_there() -> None:
    number, seconds = wait(lambda now: int(10 * now), 20)
    assert number >= 20
    assert 2.0 <= seconds < 2.3


def test_without_a_minimum_waiting_ends_when_the_number_is_stable() -> None:
    number, seconds = wait(lambda now: min(50, int(20 * now)), None)
    assert number == 50
    assert 5.0 < seconds < 6.5


def test_a_grid_that_shows_nobody_at_first_is_waited_for() -> None:
    assert wait(lambda now: 0 if now < 20 else 7, None)[0] == 7


@pytest.mark.parametrize("minimum", [None, 3])
def test_waiting_is_limited_by_the_timeout(minimum: int | None) -> None:
    with pytest.raises(NotEnoughClientsError, match="connected within 5 s"):
        wait(lambda now: 0, minimum, timeout=5.0)


def test_nodes_that_keep_coming_do_not_keep_the_round_waiting_forever() -> None:
    number, seconds = wait(lambda now: 1 + int(now), None, timeout=10.0)
    assert number == 11
    assert seconds == pytest.approx(10.0, abs=0.01)


def test_answers_are_pulled_in_small_batches() -> None:
    grid = InProcessGrid.of_app(NATIVE, 250)
    FedRidge(min_available_nodes=250).start(grid)
    assert grid.largest_pull <= 100


# ---- settings ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"alpha": -1.0}, "alpha must be"),
        ({"alpha": "1"}, "alpha must be"),
        ({"min_train_nodes": 0}, "whole number of at least 1"),
        ({"min_available_nodes": "3"}, "min_available_nodes must be a whole"),
        ({"min_available_nodes": 0}, "min_available_nodes must be a whole"),
        ({"feature_names": "abc"}, "sequence of names"),
        ({"save_model": 3}, "save_model must be a path"),
        ({"fraction_evaluate": 1.5}, "between 0 and 1"),
        ({"fraction_train": 0.0}, "above 0"),
        ({"on_model": "print"}, "on_model must be a function"),
    ],
)
def test_wrong_settings_fail_before_the_round(settings: Any, reason: str) -> None:
    with pytest.raises(FedRidgeError, match=reason):
        FedRidge(**settings)


def test_a_schema_known_to_the_server_names_the_model_and_is_enforced() -> None:
    import pandas as pd

    names = [f"f{j}" for j in range(D)]

    def load(context: Any) -> Any:
        X, y = load_data(context)
        k = int(context.node_config["partition-id"])
        return pd.DataFrame(X, columns=names if k else ["g0", *names[1:]]), y

    strategy = FedRidge(min_available_nodes=3, feature_names=names)
    strategy.start(InProcessGrid.of_app(ridge_client_app(load), 3))
    assert list(strategy.model_.feature_names_in_) == names
    assert strategy.report_.failures["1000"] == (
        "X has other columns than the fit: column 0 is not among them, and 'f0' is "
        "missing."
    )
    assert "f3" in strategy.model_.summary()


def test_report_counts_bytes_as_serialized_and_is_json() -> None:
    import json

    strategy = FedRidge(min_available_nodes=4)
    grid = InProcessGrid.of_app(NATIVE, 4)
    strategy.start(grid)
    report = json.loads(strategy.report_.to_json())
    sent = sum(len(request_bytes(message)) for message in grid.sent)
    assert report["bytes_down"] == sent
    assert report["bytes_up"] > 4 * 8 * 28
    assert report["fedavg_rounds"] > 0
    assert report["fedavg_rounds_paper"] == (D + 5) / 4
    assert set(report["seconds"]) == {"wait", "train", "screen", "solve"}
    assert report["spectrum"]["kappa"] <= report["spectrum"]["kappa_bound"]


def request_bytes(message: Message) -> bytes:
    from flwr.common.serde import message_to_proto

    return message_to_proto(message).SerializeToString()


def test_content_without_any_record_is_named_not_fatal() -> None:
    grid = InProcessGrid.of_app(NATIVE, 3)
    grid.handlers[1001] = lambda message: Message(RecordDict(), reply_to=message)
    strategy = FedRidge(min_available_nodes=3)
    strategy.start(grid)
    assert strategy.report_.failures == {"1001": "the answer has no arrays."}


# ---- found by review -----------------------------------------------------------------


def test_a_node_that_leaves_after_training_does_not_cost_the_model() -> None:
    grid = InProcessGrid.of_app(NATIVE, 3)
    grid.visible = lambda looks: 3 if looks == 1 else 2
    strategy = FedRidge(min_available_nodes=3, fraction_evaluate=1.0)
    result = strategy.start(grid, timeout=120)
    assert_equals(strategy.model_, pooled([0, 1, 2], alpha=1.0))
    assert result.evaluate_metrics_clientapp[1]["num-examples"] == 15 + 16


def test_the_nodes_that_were_waited_for_are_the_nodes_that_are_asked() -> None:
    grid = InProcessGrid.of_app(NATIVE, 3)
    grid.visible = lambda looks: 3 if looks == 1 else 1
    strategy = FedRidge(min_available_nodes=3)
    strategy.start(grid)
    assert len(strategy.report_.participants) == 3


def test_clients_with_other_columns_do_not_evaluate_either() -> None:
    import pandas as pd

    names = [f"f{j}" for j in range(D)]

    def load(context: Any) -> Any:
        X, y = load_data(context)
        k = int(context.node_config["partition-id"])
        return pd.DataFrame(X, columns=names if k else ["g0", *names[1:]]), y

    strategy = FedRidge(min_available_nodes=3, fraction_evaluate=1.0)
    strategy.start(InProcessGrid.of_app(ridge_client_app(load), 3))
    assert "other columns than the fit" in strategy.report_.evaluation_failures["1000"]
    assert strategy.report_.evaluation is not None
    assert strategy.report_.evaluation["num-examples"] == 16 + 17


def hostile_evaluation(**metrics: Any) -> Any:
    def handler(message: Message) -> Message:
        if message.metadata.message_type == "train":
            return NATIVE(message, node_context(0, 3))
        content = RecordDict({"metrics": MetricRecord(metrics)})
        return Message(content, reply_to=message)

    return handler


@pytest.mark.parametrize(
    "metrics",
    [
        {"num-examples": 0, "mse": 1.0, "r2": 0.5},
        {"num-examples": 2**52, "mse": 1e308, "r2": 0.5},
        {"num-examples": 3, "loss": 2.0},
    ],
)
def test_no_evaluation_of_a_client_ends_the_round(metrics: Any) -> None:
    grid = InProcessGrid.of_app(NATIVE, 3)
    grid.handlers = {
        node: hostile_evaluation(**metrics) if node == 1000 else handler
        for node, handler in grid.handlers.items()
    }
    strategy = FedRidge(min_available_nodes=3, fraction_evaluate=1.0)
    strategy.start(grid)
    assert strategy.report_.evaluation is not None
    assert np.isfinite(strategy.report_.evaluation["mse"])


def test_two_infinite_weights_are_named_and_the_rest_is_exact() -> None:
    grid = InProcessGrid.of_app(NATIVE, 4)
    honest = dict(grid.handlers)

    def heavy(node: int) -> Any:
        def handler(message: Message) -> Message:
            reply = honest[node](message)
            array = reply.content["arrays"]["statistics"].numpy()
            array[0], array[1:] = 1.7e308, 0.0
            reply.content["arrays"] = ArrayRecord({"statistics": Array(array)})
            return reply

        return handler

    grid.handlers |= {1000: heavy(1000), 1002: heavy(1002)}
    strategy = FedRidge(min_available_nodes=4)
    strategy.start(grid)
    assert set(strategy.report_.failures) == {"1000", "1002"}
    assert_equals(strategy.model_, pooled([1, 3], alpha=1.0))


def test_fraction_train_asks_for_as_many_as_are_needed() -> None:
    grid = InProcessGrid.of_app(NATIVE, 3)
    strategy = FedRidge(fraction_train=0.3, min_train_nodes=2)
    strategy.start(grid)
    assert len(strategy.report_.participants) == 2


@pytest.mark.parametrize("timeout", [None, "5", 0, -1.0])
def test_a_timeout_must_be_seconds(timeout: Any) -> None:
    with pytest.raises(FedRidgeError, match="timeout must be seconds"):
        FedRidge().start(InProcessGrid.of_app(NATIVE, 2), timeout=timeout)


def test_clients_of_another_app_are_told_from_clients_of_ours_that_fail() -> None:
    def stock(message: Message) -> Message:
        coef, intercept = message.content["arrays"].to_numpy_ndarrays()
        return Message(RecordDict({"sum": coef + intercept}), reply_to=message)

    with pytest.raises(NotEnoughClientsError, match="No client understood"):
        FedRidge(min_available_nodes=2).start(InProcessGrid([stock, stock]))

    def load_data(context: Any) -> Any:
        raise DataError("no rows this month")

    with pytest.raises(NotEnoughClientsError) as raised:
        FedRidge(min_available_nodes=2).start(
            InProcessGrid.of_app(ridge_client_app(load_data), 2)
        )
    assert "understood" not in str(raised.value)
