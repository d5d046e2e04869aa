"""Float32 on the wire: asked for, answered, read, and told, in both APIs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import wire
from fakes import InProcessGrid, fit, node_context, set_task_identity
from fits import begin
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Message,
    MessageType,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.common import Code, FitIns, Parameters
from flwr.compat.common.recorddict_compat import fitres_to_recorddict

from fedridge_flwr import (
    FedRidge,
    FedRidgeError,
    LegacyFedRidge,
    ProtocolError,
    RidgeClient,
    StatisticsError,
    SufficientStatistics,
    ridge_client_app,
    select_alpha,
    solve,
)
from fedridge_flwr.federation.requests import AskStatistics
from fedridge_flwr.flower.exchange import message_bytes
from fedridge_flwr.statistics.float32 import ROUNDING
from fedridge_flwr.statistics.moments import RunningTotal

K, D = 8, 6
ALPHAS = [0.01, 0.1, 1.0, 10.0, 100.0]


def rows_of(k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(k)
    X = rng.normal(loc=1e6 + k, size=(20 + k, D))
    return X, X[:, 0] - X[:, 1] + rng.normal(size=len(X))


def load_data(context: Any) -> Any:
    return rows_of(int(context.node_config["partition-id"]))


def exact_parts() -> dict[str, SufficientStatistics]:
    return {
        str(1000 + k): SufficientStatistics.from_data(*rows_of(k)) for k in range(K)
    }


NATIVE = ridge_client_app(load_data)
NUMPY = ClientApp(lambda context: RidgeClient(*load_data(context)).to_client())
apps = pytest.mark.parametrize("app", [NATIVE, NUMPY], ids=["message", "numpy"])
strategies = pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])


def run(kind: Any, grid: InProcessGrid, **settings: Any) -> Any:
    return fit(kind(min_available_nodes=K, **settings), grid)


def kinds_of_answers(grid: InProcessGrid) -> list[Any]:
    """Note what every node calls the statistics that it sends."""
    seen: list[Any] = []

    def watched(handler: Any) -> Any:
        def answer(message: Message) -> Message:
            reply = handler(message)
            records = reply.content.config_records
            fields = records.get("config", records.get("fitres.metrics", {}))
            seen.append(fields.get("kind"))
            return reply

        return answer

    grid.handlers = {node: watched(h) for node, h in grid.handlers.items()}
    return seen


# ---- the whole round ---------------------------------------------------------------


@strategies
@apps
def test_all_four_combinations_fit_in_float32(
    app: ClientApp, kind: Any, caplog: Any
) -> None:
    grid = InProcessGrid.of_app(app, K)
    seen = kinds_of_answers(grid)
    with caplog.at_level("INFO", logger="flwr"):
        strategy = run(kind, grid, wire_dtype="float32")
    assert seen == ["centred-float32"] * K
    exact = solve(sum(exact_parts().values()))
    np.testing.assert_allclose(strategy.model_.coef_, exact.coef_, rtol=1e-6)
    assert not np.array_equal(strategy.model_.coef_, exact.coef_)
    report = strategy.report_
    assert report.failures == {}
    assert report.wire_error == ROUNDING * strategy.model_.condition_
    assert f"float32     coefficients right to {report.wire_error:.1e}" in str(report)
    lines = [record.getMessage() for record in caplog.records]
    assert sum(": by float32, coefficients are" in line for line in lines) == 1


@strategies
@apps
@pytest.mark.parametrize("cv", ["server", "clients", "gcv"])
def test_alpha_is_chosen_as_without(app: ClientApp, kind: Any, cv: str) -> None:
    grid = InProcessGrid.of_app(app, K)
    strategy = run(kind, grid, wire_dtype="float32", alphas=ALPHAS, cv=cv)
    method = "gcv" if cv == "gcv" else "loco"
    expected = select_alpha(exact_parts(), ALPHAS, method=method)
    assert strategy.model_.alpha_ == expected.alpha
    np.testing.assert_allclose(strategy.selection_.mean, expected.mean, rtol=1e-6)
    np.testing.assert_allclose(strategy.model_.coef_, expected.model.coef_, rtol=1e-6)
    condition = strategy.model_.condition_
    assert strategy.report_.wire_error == ROUNDING * condition


@strategies
@apps
def test_without_asking_nothing_on_the_wire_is_changed(
    app: ClientApp, kind: Any
) -> None:
    grid = InProcessGrid.of_app(app, K)
    seen = kinds_of_answers(grid)
    strategy = run(kind, grid)
    assert seen == ["centred"] * K
    for message in grid.sent:
        for record in message.content.config_records.values():
            assert "wire-dtype" not in record
    assert strategy.report_.wire_error is None
    assert "float32" not in str(strategy.report_)


@strategies
def test_clients_that_do_not_know_the_request_are_taken_as_they_are(kind: Any) -> None:
    def older(k: int) -> Any:
        def answer(message: Message) -> Message:
            result = (
                RidgeClient(*rows_of(k))
                .to_client()
                .fit(FitIns(Parameters([], ""), {wire.PROTOCOL_KEY: wire.PROTOCOL}))
            )
            return Message(fitres_to_recorddict(result, False), reply_to=message)

        return answer

    grid = InProcessGrid([older(k) for k in range(K)])
    strategy = run(kind, grid, wire_dtype="float32")
    exact = solve(sum(exact_parts().values()))
    np.testing.assert_allclose(strategy.model_.coef_, exact.coef_, rtol=1e-9)
    assert strategy.report_.wire_error is None
    mixed = InProcessGrid.of_app(NATIVE, K)
    mixed.handlers[1000] = grid.handlers[1000]
    assert run(kind, mixed, wire_dtype="float32").report_.wire_error is not None


@strategies
def test_other_types_are_refused_before_the_round(kind: Any) -> None:
    with pytest.raises(
        FedRidgeError, match='wire_dtype must be "float64" or "float32"'
    ):
        kind(wire_dtype="float16")


# ---- requests and answers ----------------------------------------------------------


def test_a_request_asks_in_both_forms() -> None:
    asked, _ = wire.request_parts(AskStatistics("float32"))
    content = wire.train_request(asked)
    for form in ("config", "fitins.config"):
        assert wire.asked_dtype(content.config_records[form]) == "float32"
    assert wire.request_parts(AskStatistics()) == ({}, {})
    assert wire.asked_dtype({}) == "float64"


@pytest.mark.parametrize("dtype", ["float16", 32, [1, 2], b"float32", ""])
def test_a_client_says_what_it_can_send(dtype: Any) -> None:
    set_task_identity()
    reason = "this client can send float64 and float32"
    config = {wire.PROTOCOL_KEY: wire.PROTOCOL, "wire-dtype": dtype}
    content = RecordDict({"config": ConfigRecord(config)})
    reply = NATIVE(Message(content, 1000, MessageType.TRAIN), node_context(0, 1))
    assert reason in str(reply.content.config_records["config"]["error"])
    result = (
        RidgeClient(*rows_of(0)).to_client().fit(FitIns(Parameters([], ""), config))
    )
    assert result.status.code != Code.OK
    assert reason in result.status.message


def some_statistics(d: int, t: int = 1) -> SufficientStatistics:
    rng = np.random.default_rng(d)
    return SufficientStatistics.from_data(
        rng.normal(size=(50, d)), rng.normal(size=(50, t))
    )


def bytes_of(stats: SufficientStatistics, dtype: str) -> int:
    set_task_identity()
    request = Message(wire.train_request({}), 2**62, MessageType.TRAIN)
    return message_bytes(
        Message(wire.statistics_reply(stats, False, dtype), reply_to=request)
    )


@pytest.mark.parametrize(
    ("d", "ratio"), [(20, 0.78), (50, 0.57), (100, 0.53), (500, 0.51)]
)
def test_an_answer_has_about_half_the_bytes(d: int, ratio: float) -> None:
    stats = some_statistics(d)
    assert bytes_of(stats, "float32") < ratio * bytes_of(stats, "float64")


@pytest.mark.parametrize("share_names", [False, True])
def test_names_travel_as_they_did(share_names: bool) -> None:
    stats = some_statistics(2, 3).with_feature_names(["salary", "age"])
    back = wire.read_answer(wire.statistics_reply(stats, share_names, "float32"))
    assert isinstance(back, SufficientStatistics)
    assert back.feature_hash == stats.feature_hash
    assert back.feature_names == (("salary", "age") if share_names else None)
    assert (back.count, back.n_features, back.n_targets) == (50, 2, 3)


def damaged(**changes: Any) -> RecordDict:
    """An answer of 3 features with one thing wrong."""
    content = wire.statistics_reply(some_statistics(3), False, "float32")
    arrays = {key: array.numpy() for key, array in content["arrays"].items()}
    for key, value in changes.items():
        if key in arrays:
            arrays[key] = value
        elif key == "only":
            arrays = {name: arrays[name] for name in value}
        else:
            content["config"][key.replace("_", "-")] = value
    content["arrays"] = ArrayRecord({k: Array(a) for k, a in arrays.items()})
    return content


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (damaged(only=["head"]), "expected two arrays of float32 statistics, got 1"),
        (damaged(only=["correlations", "head"]), "are float64, got float32"),
        (damaged(kind="centred"), "expected one array of statistics, got 2"),
        (damaged(kind="centred-float16"), "unknown kind"),
        (damaged(n_features=4), "have 11 numbers"),
        (damaged(n_features=10**5), "numbers, got an array of shape"),
        (damaged(n_targets=0), "n-targets must be a positive"),
        (damaged(correlations=np.full(6, 2, np.float32)), "correlations above 1: 6"),
        (damaged(correlations=np.full(6, np.nan, np.float32)), "NaN or infinite"),
        (damaged(correlations=np.full(6, -1, np.float32)), "semi-definite"),
        (damaged(feature_hash="no hash"), "feature-hash is not a hash"),
    ],
)
def test_a_damaged_answer_is_refused_with_its_reason(
    content: RecordDict, reason: str
) -> None:
    with pytest.raises((ProtocolError, StatisticsError), match=reason):
        wire.read_answer(content)


def test_a_client_that_sends_float32_unasked_is_named_and_spoils_nothing() -> None:
    exact = wire.statistics_reply(exact_parts()["1000"], share_names=False)
    empty = SufficientStatistics.from_data(np.empty((0, D)), np.empty(0))
    rounded = wire.statistics_reply(empty, False, "float32")
    fit = begin()
    answers = fit.round.into
    answers.take("honest", lambda: wire.read_answer(exact))
    answers.take("other", lambda: wire.read_answer(rounded))
    fit.finish_round()
    assert answers.participants == ["honest"]
    assert "was not asked for" in answers.failures["other"]
    assert fit.report is not None
    assert fit.report.wire_error is None


def test_an_empty_rounded_contribution_rounds_nothing() -> None:
    part = exact_parts()["1000"]
    empty = SufficientStatistics.from_data(np.empty((0, D)), np.empty(0))
    rounded = wire.read_answer(wire.statistics_reply(empty, False, "float32"))
    assert isinstance(rounded, SufficientStatistics)
    assert (part + rounded).rounding == (rounded + part).rounding == 0.0
    running = RunningTotal(rounded)
    running.add(part)
    assert running.total().rounding == 0.0
