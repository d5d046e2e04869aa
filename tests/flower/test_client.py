"""The client side: what it sends, what it keeps, what it says when it cannot."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import wire
from fakes import node_context, set_task_identity
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.common import Code, FitIns, Parameters
from named_grids import NamedGrid

from fedridge_flwr import (
    DataError,
    FedRidge,
    FedRidgeError,
    NotEnoughClientsError,
    PrivacyError,
    RidgeClient,
    SitePolicy,
    SufficientStatistics,
    ridge_client_app,
    solve,
)
from fedridge_flwr.flower.protocol.array_records import model_arrays

X = np.random.default_rng(0).normal(size=(12, 3))
Y = X.sum(axis=1)


def ask(app: Any, content: RecordDict, kind: str = "train") -> RecordDict:
    set_task_identity()
    message = Message(content, dst_node_id=1000, message_type=kind)
    return app(message, node_context(0, 1)).content


def refusal(app: Any, kind: str = "train") -> str:
    model = solve(SufficientStatistics.from_data(X, Y))
    content = (
        wire.train_request({})
        if kind == "train"
        else wire.evaluate_request(model_arrays(model), {})
    )
    return str(ask(app, content, kind).config_records["config"]["error"])


def test_weights_reach_the_statistics() -> None:
    weight = np.arange(12.0)
    app = ridge_client_app(lambda context: (X, Y, weight))
    stats = wire.read_answer(ask(app, wire.train_request({})))
    expected = SufficientStatistics.from_data(X, Y, weight)
    np.testing.assert_array_equal(stats.to_array(), expected.to_array())


@pytest.mark.parametrize("rows", [0, 1])
def test_a_client_with_too_few_rows_holds_back_and_does_not_say_how_many(
    rows: int,
) -> None:
    app = ridge_client_app(lambda context: (X[:rows], Y[:rows]))
    assert refusal(app) == "declined: it has fewer rows than its min_rows=2."


def test_min_rows_is_the_clients_own_setting() -> None:
    app = ridge_client_app(lambda context: (X, Y), min_rows=13)
    assert "min_rows=13" in refusal(app)
    generous = ridge_client_app(lambda context: (X[:1], Y[:1]), min_rows=1)
    assert wire.read_answer(ask(generous, wire.train_request({}))).count == 1


def test_evaluation_on_too_few_rows_holds_back_too() -> None:
    app = ridge_client_app(lambda context: (X, Y), lambda context: (X[:1], Y[:1]))
    assert "declined" in refusal(app, "evaluate")


def frame_with_nan() -> pd.DataFrame:
    frame = pd.DataFrame(X, columns=["age", "salary", "bmi"])
    frame.loc[3, "salary"] = np.nan
    return frame


def test_errors_name_columns_by_number_unless_names_are_shared() -> None:
    hidden = ridge_client_app(lambda context: (frame_with_nan(), Y))
    shared = ridge_client_app(
        lambda context: (frame_with_nan(), Y), share_feature_names=True
    )
    assert "column 1" in refusal(hidden)
    assert "salary" not in refusal(hidden)
    assert "column 1 ('salary')" in refusal(shared)


def test_of_what_load_data_raises_type_and_place_are_told_and_no_more(
    caplog: Any,
) -> None:
    def load_data(context: Any) -> Any:
        raise FileNotFoundError("hospital.csv is not here")

    line = load_data.__code__.co_firstlineno + 1
    text = refusal(ridge_client_app(load_data))
    assert text == (
        f"FileNotFoundError in load_data, line {line}. Its message may quote the data "
        "and is only in this client's own log: look there."
    )
    assert "hospital.csv is not here" in caplog.text


def test_the_place_is_in_the_code_of_the_user_wherever_ours_lies_between(
    tmp_path: Path,
) -> None:
    """Asked for new rows and for batches, functions of ours call those of users."""

    def load_new_data(context: Any, since: Any) -> Any:
        raise FileNotFoundError("hospital.csv is not here")

    def load_data(context: Any) -> Any:
        yield X, Y
        raise PrivacyError("hospital.csv: Alice")

    app = ridge_client_app(
        load_data, load_new_data=load_new_data, upload_folder=tmp_path
    )
    strategy = FedRidge(min_available_nodes=1, ledger=tmp_path / "a.ledger")
    grid = NamedGrid.of_app(app, 1)
    grid.names = ["clinic"]
    with pytest.raises(NotEnoughClientsError) as told:
        strategy.start(grid)
    line = load_new_data.__code__.co_firstlineno + 1
    assert f"FileNotFoundError in load_new_data, line {line}." in str(told.value)
    line = load_data.__code__.co_firstlineno + 2
    text = refusal(ridge_client_app(load_data))
    assert text.startswith(f"PrivacyError in load_data, line {line}.")


def test_a_site_with_a_policy_has_a_record_of_what_it_answered(caplog: Any) -> None:
    frame = pd.DataFrame(X, columns=["age", "bmi", "chol"])
    for policy, told in ((SitePolicy(min_rows=5), True), (None, False)):
        caplog.clear()
        app = ridge_client_app(lambda context: (frame, Y), site_policy=policy)
        with caplog.at_level(logging.INFO, logger="flwr"):
            assert "arrays" in ask(app, wire.train_request({}))
        said = "'statistics', of the columns 'age', 'bmi', 'chol'" in caplog.text
        assert said == told


def test_a_data_error_of_load_data_is_told_as_it_is() -> None:
    def load_data(context: Any) -> Any:
        raise DataError("the table of this month is not there yet.")

    text = refusal(ridge_client_app(load_data))
    assert text == "the table of this month is not there yet."


def test_load_data_that_returns_something_else_is_told_what_to_return() -> None:
    text = refusal(ridge_client_app(lambda context: X))
    assert "what load_data returns must be (X, y)" in text


@pytest.mark.parametrize(
    ("config", "reason"),
    [({}, "not FedRidge"), ({wire.PROTOCOL_KEY: 99}, "version 99")],
)
def test_requests_of_other_strategies_are_refused(config: Any, reason: str) -> None:
    app = ridge_client_app(lambda context: (X, Y))
    content = RecordDict({"arrays": ArrayRecord(), "config": ConfigRecord(config)})
    assert reason in str(ask(app, content).config_records["config"]["error"])
    client = RidgeClient(X, Y).to_client()
    result = client.fit(FitIns(Parameters([], ""), config))
    assert result.status.code != Code.OK
    assert reason in result.status.message


def test_a_numpy_client_sends_one_array_and_scalars() -> None:
    arrays, count, metrics = RidgeClient(X, Y).fit([], {})
    assert [array.shape for array in arrays] == [(15,)]
    assert count == 12
    scalars = bool | int | float | str | bytes
    assert all(isinstance(value, scalars) for value in metrics.values())


def test_eval_data_is_what_is_evaluated_on() -> None:
    client = RidgeClient(X, Y, eval_data=(X[:5], Y[:5] + 1.0))
    model = solve(SufficientStatistics.from_data(X, Y), alpha=0.0)
    arrays = list(model_arrays(model).values())
    loss, count, metrics = client.evaluate(arrays, {})
    assert loss == pytest.approx(1.0)
    assert count == 5
    assert metrics["mse"] == loss


def test_without_eval_data_the_training_rows_are_evaluated_on() -> None:
    model = solve(SufficientStatistics.from_data(X, Y), alpha=5.0)
    arrays = list(model_arrays(model).values())
    loss, count, _ = RidgeClient(X, Y).evaluate(arrays, {})
    assert count == 12
    assert loss == pytest.approx(model.evaluate(X, Y).mse)


def test_a_model_of_another_size_is_refused_in_words() -> None:
    app = ridge_client_app(lambda context: (X[:, :2], Y))
    assert "fitted with 3" in refusal(app, "evaluate")


def test_a_client_that_holds_back_does_not_tell_its_rows_by_another_error() -> None:
    app = ridge_client_app(lambda context: ([[np.nan]], [1.0]))
    assert refusal(app) == "declined: it has fewer rows than its min_rows=2."


def test_evaluation_needs_little_extra_memory() -> None:
    import tracemalloc

    X = np.ones((200_000, 40), dtype=np.float32)
    model = solve(SufficientStatistics.from_data(X[:5, :2], X[:5, 0]))
    model.coef_ = np.ones(40)
    tracemalloc.start()
    model.evaluate(X, X[:, 0])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64e6


@pytest.mark.parametrize("min_rows", [float("nan"), "a", 0, 2.5])
def test_min_rows_must_be_a_number_that_can_hold_back(min_rows):
    with pytest.raises(FedRidgeError, match="min_rows must be a whole number"):
        ridge_client_app(lambda context: ([[1.0]], [1.0]), min_rows=min_rows)
    with pytest.raises(FedRidgeError, match="min_rows must be a whole number"):
        RidgeClient([[1.0]], [1.0], min_rows=min_rows)


def test_rows_instead_of_a_function_are_refused_before_anybody_asks():
    with pytest.raises(FedRidgeError, match="functions of the context"):
        ridge_client_app(([[1.0]], [1.0]))


@pytest.mark.parametrize(
    "load", [lambda: None, lambda partition_id, num_partitions: None]
)
def test_a_load_data_of_other_arguments_is_refused_before_anybody_asks(load):
    with pytest.raises(FedRidgeError, match="must take one argument, the context"):
        ridge_client_app(load)


def test_load_data_may_be_any_callable_of_a_context():
    from functools import partial

    class Loader:
        def __call__(self, context, rows=10):
            return None

    for load in (Loader(), partial(lambda a, context: None, 1), lambda *args: None):
        assert ridge_client_app(load) is not None
