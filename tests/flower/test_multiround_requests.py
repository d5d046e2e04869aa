"""Fits in several rounds over Flower: both APIs, faults, bytes."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import fakes
import numpy as np
import pandas
import pytest
import wire
from fakes import Handler, InProcessGrid, node_context
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from generators import pooled as stacked
from sklearn.linear_model import Ridge

from fedridge_flwr import (
    FedRidge,
    LegacyFedRidge,
    NotEnoughClientsError,
    ProtocolError,
    RidgeClient,
    ridge_client_app,
)
from fedridge_flwr.flower.exchange import CountingGrid, message_bytes

K, D = 5, 40


def rows_of(k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(k)
    X = rng.normal(loc=k, size=(20 + 10 * k, D))
    return X, X @ np.linspace(-1, 1, D) + rng.normal(size=len(X))


def load_data(context: Any) -> Any:
    return rows_of(int(context.node_config["partition-id"]))


def pooled(clients: Any = range(K), alpha: float = 0.7) -> Ridge:
    rows = [rows_of(k) for k in clients]
    X, y = stacked(rows)
    return Ridge(alpha=alpha, solver="svd").fit(X, y)


NATIVE = ridge_client_app(load_data)
NUMPY = ClientApp(
    client_fn=lambda context: RidgeClient(*load_data(context)).to_client()
)


fit = partial(fakes.fit, num_rounds=60)
drive = partial(fakes.drive, num_rounds=60)


def close(model: Any, ridge: Ridge, tolerance: float = 1e-9) -> None:
    np.testing.assert_allclose(model.coef_, ridge.coef_, rtol=0, atol=tolerance)
    np.testing.assert_allclose(model.intercept_, ridge.intercept_, atol=10 * tolerance)


@pytest.mark.parametrize("mode", ["refine", "cg", "auto"])
@pytest.mark.parametrize("app", [NATIVE, NUMPY], ids=["message", "numpy"])
@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
def test_all_combinations_of_apis_give_the_pooled_solution(kind, app, mode):
    strategy = kind(0.7, mode=mode, max_bytes=1000, min_available_nodes=K)
    fit(strategy, InProcessGrid.of_app(app, K))
    close(strategy.model_, pooled())
    refinement = strategy.report_.refinement
    assert refinement.mode == ("refine" if mode == "auto" else mode)
    assert refinement.converged
    assert len(strategy.report_.participants) == K
    assert ("above max_bytes" in refinement.why) == (mode == "auto")


@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
def test_auto_stays_with_one_shot_where_that_is_cheap(kind):
    grid = InProcessGrid.of_app(NATIVE, K)
    strategy = fit(kind(0.7, mode="auto", min_available_nodes=K), grid)
    assert len(grid.sent) == K
    assert strategy.report_.refinement is None
    assert "mode        oneshot (auto: statistics of up to 7.224 kB" in str(
        strategy.report_
    )
    assert strategy.statistics_.count == pooled_rows()
    close(strategy.model_, pooled(), 1e-12)


def pooled_rows() -> int:
    return sum(len(rows_of(k)[1]) for k in range(K))


def test_there_are_no_statistics_to_keep():
    strategy = fit(
        FedRidge(mode="refine", min_available_nodes=K), InProcessGrid.of_app(NATIVE, K)
    )
    with pytest.raises(AttributeError, match="never has the statistics"):
        _ = strategy.statistics_


def test_every_round_tells_how_far_it_is(caplog):
    with caplog.at_level(logging.INFO, logger="flwr"):
        fit(
            FedRidge(mode="refine", min_available_nodes=K),
            InProcessGrid.of_app(NATIVE, K),
        )
    lines = [record.getMessage() for record in caplog.records]
    progress = [line for line in lines if "per client so far" in line]
    assert "refine: round 1, relative residual" in progress[0]
    assert len(progress) >= 3


def test_the_report_counts_the_bytes_that_cross_the_grid():
    grid = CountingGrid(InProcessGrid.of_app(NATIVE, K))
    strategy = fit(FedRidge(mode="refine", min_available_nodes=K), grid)
    report = strategy.report_
    assert report.bytes_up == pytest.approx(grid.bytes_up, rel=0.01)
    assert report.bytes_down == pytest.approx(grid.bytes_down, rel=0.01)


@pytest.mark.parametrize("app", [NATIVE, NUMPY], ids=["message", "numpy"])
def test_vectors_are_sent_once_in_the_form_that_a_client_reads(app):
    grid = InProcessGrid.of_app(app, K)
    fit(FedRidge(mode="refine", min_available_nodes=K), grid)
    later = grid.sent[K:]
    assert later
    assert all(message_bytes(message) < 8 * D + 900 for message in later)


def _gone_after(handler: Handler, rounds: int) -> Handler:
    seen = []

    def handle(message: Message) -> Message:
        seen.append(message)
        if len(seen) > rounds:
            raise ConnectionError("gone")
        return handler(message)

    return handle


@pytest.mark.parametrize("app", [NATIVE, NUMPY], ids=["message", "numpy"])
@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
@pytest.mark.parametrize("rounds", [1, 3])
def test_a_client_that_goes_away_is_named_and_its_rows_are_not_in(kind, app, rounds):
    grid = InProcessGrid.of_app(app, K)
    grid.handlers[1002] = _gone_after(grid.handlers[1002], rounds)
    strategy = fit(kind(0.7, mode="refine", min_available_nodes=K), grid)
    close(strategy.model_, pooled([0, 1, 3, 4]))
    assert list(strategy.report_.failures) == ["1002"]
    assert f"round {rounds + 1}: " in strategy.report_.failures["1002"]
    assert "gone" in strategy.report_.failures["1002"]
    assert "1002" not in strategy.report_.participants


def test_a_node_that_disconnects_between_rounds_is_not_waited_for():
    grid = InProcessGrid.of_app(NATIVE, K)
    everybody = grid.get_node_ids

    def present() -> Any:
        return [n for n in everybody() if n != 1001 or len(grid.sent) <= 2 * K]

    grid.get_node_ids = present  # type: ignore[method-assign]
    strategy = fit(FedRidge(0.7, mode="refine", min_available_nodes=K), grid)
    close(strategy.model_, pooled([0, 2, 3, 4]))
    assert "not connected any more" in strategy.report_.failures["1001"]


def test_it_ends_with_a_reason_where_too_few_are_left():
    grid = InProcessGrid.of_app(NATIVE, 2)
    grid.handlers[1001] = _gone_after(grid.handlers[1001], 2)
    strategy = FedRidge(mode="refine", min_available_nodes=2, min_train_nodes=2)
    with pytest.raises(NotEnoughClientsError, match="1 client"):
        strategy.start(grid, timeout=120)


def _answering(handler: Handler, change: Any) -> Handler:
    def handle(message: Message) -> Message:
        reply = handler(message)
        task = message.content.config_records["config"].get(wire.TASK_KEY)
        return change(reply, task)

    return handle


def _with_arrays(reply: Message, *arrays: np.ndarray) -> Message:
    named = {str(k): FlowerArray(a) for k, a in enumerate(arrays)}
    reply.content["arrays"] = ArrayRecord(named)
    return reply


def _wrong_product(reply: Message, task: Any) -> Message:
    if task != "product":
        return reply
    (array,) = reply.content.array_records["arrays"].to_numpy_ndarrays()
    return _with_arrays(reply, array[::-1].copy())


def _two_products(reply: Message, task: Any) -> Message:
    if task != "product":
        return reply
    (array,) = reply.content.array_records["arrays"].to_numpy_ndarrays()
    return _with_arrays(reply, array, array)


def _no_factor(reply: Message, task: Any) -> Message:
    if task == "product":
        return reply
    head = reply.content.array_records["arrays"].to_numpy_ndarrays()[0]
    return _with_arrays(reply, head)


def _product_for_opening(reply: Message, task: Any) -> Message:
    if task != "product":
        reply.content.config_records["config"]["kind"] = "product"
        return _with_arrays(reply, np.zeros((D, 1)))
    return reply


def _other_size(reply: Message, task: Any) -> Message:
    if task == "product":
        reply.content.config_records["config"]["n-features"] = D + 1
    return reply


def _nothing(reply: Message, task: Any) -> Message:
    reply.content["arrays"] = ArrayRecord()
    return reply


@pytest.mark.parametrize(
    "change",
    [
        _wrong_product,
        _two_products,
        _no_factor,
        _product_for_opening,
        _other_size,
        _nothing,
    ],
)
def test_one_bad_client_never_spoils_the_answer_for_the_others(change):
    grid = InProcessGrid.of_app(NATIVE, K)
    grid.handlers[1004] = _answering(grid.handlers[1004], change)
    strategy = fit(FedRidge(0.7, mode="refine", min_available_nodes=K), grid)
    close(strategy.model_, pooled([0, 1, 2, 3]))
    assert list(strategy.report_.failures) == ["1004"]


def test_statistics_are_no_opening_and_an_opening_is_no_statistics():
    def as_if(mode: str) -> Any:
        # A client that answers another question than the one it was asked.
        other = InProcessGrid.of_app(NATIVE, K)
        strategy = FedRidge(mode=mode, min_available_nodes=K)
        list(strategy.configure_train(1, ArrayRecord(), ConfigRecord(), other))
        fields, _ = wire.request_parts(strategy._run.round.ask)
        return wire.train_request(fields)

    for asked, told in (("refine", "oneshot"), ("oneshot", "refine")):
        grid = InProcessGrid.of_app(NATIVE, K)
        honest, content = grid.handlers[1003], as_if(told)

        def handle(message: Message, honest: Any = honest, content: Any = content):
            kept = message.content
            message.content = content
            reply = honest(message)
            message.content = kept
            return reply

        grid.handlers[1003] = handle
        strategy = fit(FedRidge(0.7, mode=asked, min_available_nodes=K), grid)
        close(strategy.model_, pooled([0, 1, 2, 4]))
        assert list(strategy.report_.failures) == ["1003"]
        assert "asked for" in strategy.report_.failures["1003"]


def test_a_client_that_holds_back_holds_back_in_every_mode():
    tiny = ridge_client_app(lambda context: (np.ones((1, D)), np.ones(1)))
    grid = InProcessGrid.of_app(NATIVE, K)
    grid.handlers[1000] = lambda message: tiny(message, node_context(0, K))
    strategy = fit(FedRidge(0.7, mode="refine", min_available_nodes=K), grid)
    close(strategy.model_, pooled([1, 2, 3, 4]))
    assert "declined" in strategy.report_.failures["1000"]


def test_a_product_is_for_as_many_columns_as_there_are():
    client = RidgeClient(*rows_of(1))
    config = {wire.TASK_KEY: "product"}
    with pytest.raises(ProtocolError, match="vectors of 3 entries for 40 features"):
        client.fit([np.ones((3, 1))], config)
    with pytest.raises(ProtocolError, match="sends 9 vectors for 1 target"):
        client.fit([np.ones((D, 9))], config)
    with pytest.raises(ProtocolError, match="not finite"):
        client.fit([np.full((D, 1), np.inf)], config)
    with pytest.raises(ProtocolError, match="no vectors"):
        client.fit([], config)
    with pytest.raises(ProtocolError, match="does not support"):
        client.fit([], {wire.TASK_KEY: "secrets"})
    with pytest.raises(ProtocolError, match="up to which size"):
        client.fit([], {wire.TASK_KEY: "opening", "mode": "auto", "max-bytes": "8"})


def test_the_plain_statistics_of_the_paper_are_no_answer_here():
    def plain(message: Message) -> Message:
        X, y = rows_of(0)
        arrays = ArrayRecord([X.T @ X, X.T @ y])
        content = RecordDict({"arrays": arrays, "metrics": MetricRecord(_COUNT)})
        return Message(content, reply_to=message)

    for mode in ("refine", "cg"):
        grid = InProcessGrid.of_app(NATIVE, K)
        grid.handlers[1000] = plain
        strategy = FedRidge(0.7, mode=mode, fit_intercept=False, min_available_nodes=K)
        fit(strategy, grid)
        assert "does not support this request" in strategy.report_.failures["1000"]


_COUNT = {"num-examples": 20}


def test_evaluation_checks_the_names_of_the_columns():
    names = [f"x{j}" for j in range(D)]

    def load(context: Any) -> Any:
        X, y = load_data(context)
        return pandas.DataFrame(X, columns=names), y

    def load_odd(context: Any) -> Any:
        X, y = load_data(context)
        odd = context.node_config["partition-id"] == 1
        table = pandas.DataFrame(X, columns=names)
        odder = context.node_config["partition-id"] == 2
        if odder:
            return table.rename(columns={"x0": "another"}), y
        return table[names[::-1]] if odd else table, y

    strategy = FedRidge(
        0.7, mode="refine", min_available_nodes=K, fraction_evaluate=1.0
    )
    fit(strategy, InProcessGrid.of_app(ridge_client_app(load, load_odd), K))
    assert list(strategy.report_.evaluation_failures) == ["1002"]


def test_the_older_driver_is_told_how_many_rounds_to_give(caplog):
    strategy = LegacyFedRidge(mode="refine", min_available_nodes=K)
    with caplog.at_level(logging.WARNING, logger="flwr"):
        drive(strategy, InProcessGrid.of_app(NATIVE, K), num_rounds=2)
    assert "up to 500 rounds are needed" in caplog.text
    assert "if ServerConfig has fewer than the fit takes, there is no model" in (
        caplog.text
    )
    assert "lower max_rounds to those that it has" in caplog.text
    with pytest.raises(AttributeError, match="enough of the rounds"):
        _ = strategy.model_


def test_rounds_left_over_select_nobody():
    grid = InProcessGrid.of_app(NATIVE, K)
    strategy = LegacyFedRidge(mode="refine", min_available_nodes=K)
    drive(strategy, grid, num_rounds=60)
    assert len(grid.sent) == K * strategy.report_.refinement.rounds


def test_a_second_start_is_a_new_fit():
    strategy = FedRidge(0.7, mode="refine", min_available_nodes=K)
    for _ in range(2):
        fit(strategy, InProcessGrid.of_app(NATIVE, K))
        close(strategy.model_, pooled())


def test_evaluation_follows_as_after_one_shot():
    grid = InProcessGrid.of_app(NATIVE, K)
    strategy = FedRidge(
        0.7, mode="refine", min_available_nodes=K, fraction_evaluate=1.0
    )
    result = strategy.start(grid, timeout=120)
    assert strategy.report_.evaluation["num-examples"] == pooled_rows()
    np.testing.assert_array_equal(result.arrays["coef"].numpy(), strategy.model_.coef_)


def test_a_request_of_another_version_is_refused_by_name():
    reply = NATIVE(
        _message({wire.PROTOCOL_KEY: 9, wire.TASK_KEY: "product"}), node_context(0, K)
    )
    assert "version 9" in str(reply.content.config_records["config"]["error"])


def _message(config: dict[str, Any]) -> Message:
    InProcessGrid([])
    content = RecordDict({"config": ConfigRecord(config), "arrays": ArrayRecord()})
    message = Message(content, dst_node_id=1000, message_type="train")
    message.metadata.__dict__["_message_id"] = "1"
    return message


def test_auto_says_why_it_stays_with_one_shot_whatever_the_size():
    strategy = FedRidge(
        mode="auto", alphas=[0.1, 1.0, 10.0], max_bytes=100, min_available_nodes=K
    )
    fit(strategy, InProcessGrid.of_app(NATIVE, K))
    text = str(strategy.report_)
    assert "oneshot (auto: choosing alpha needs the statistics)" in text
    assert strategy.report_.advice == ""
    plain = fit(FedRidge(min_available_nodes=K), InProcessGrid.of_app(NATIVE, K))
    with pytest.raises(AttributeError, match="alpha was given and not chosen"):
        _ = plain.selection_
