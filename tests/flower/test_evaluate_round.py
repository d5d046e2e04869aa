"""The evaluate round: what clients tell of their errors, pooled as if in one place."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from fakes import InProcessGrid, fit
from flwr.app import ConfigRecord, Context, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.metrics import mean_squared_error, r2_score

from fedridge_flwr import (
    FedRidge,
    LegacyFedRidge,
    ProtocolError,
    RidgeClient,
    ridge_client_app,
)
from fedridge_flwr.federation.requests import AskEvaluation
from fedridge_flwr.flower.protocol.answer_records import read_answer
from fedridge_flwr.regression.model import RidgeModel

K = 4
STRATEGIES = (FedRidge, LegacyFedRidge)


def rows_of(k: int, t: int = 1, offset: float = 0.0) -> tuple[Any, Any, Any]:
    """Sites whose levels differ far more than the rows of one of them."""
    rng = np.random.default_rng(k)
    X = rng.normal(size=(15 + 7 * k, 3))
    Y = X @ rng.normal(size=(3, t)) + 5.0 * k + rng.normal(size=(len(X), t))
    return X, (Y[:, 0] if t == 1 else Y) + offset, rng.exponential(size=len(X)) * 4**k


def clients(kind: str, weighted: bool, **rows: Any) -> ClientApp:
    def load(context: Context) -> tuple[Any, ...]:
        X, y, weight = rows_of(int(context.node_config["partition-id"]), **rows)
        return (X, y, weight) if weighted else (X, y)

    if kind == "message":
        return ridge_client_app(load)

    def client_fn(context: Context) -> Any:
        X, y, *weight = load(context)
        weights = weight[0] if weight else None
        return RidgeClient(X, y, sample_weight=weights).to_client()

    return ClientApp(client_fn=client_fn)


def evaluated(strategy: Any, app: ClientApp, older: tuple[int, ...] = ()) -> Any:
    grid = InProcessGrid.of_app(app, K)
    for node in older:
        grid.handlers[node] = of_0_1_0(grid.handlers[node])
    return fit(strategy(min_available_nodes=K, fraction_evaluate=1.0), grid)


def of_0_1_0(handler: Any) -> Any:
    """Answer as a client of 0.1.0, which only knows mse and r2."""

    def handle(message: Any) -> Any:
        reply = handler(message)
        for key in ("metrics", "evaluateres.metrics"):
            told = reply.content.get(key)
            if told is not None and "r2" in told:
                kept = {k: told[k] for k in told if k in ("mse", "r2", "num-examples")}
                reply.content[key] = type(told)(kept)
        return reply

    return handle


def pooled(model: RidgeModel, weighted: bool, **rows: Any) -> tuple[float, float]:
    parts = [rows_of(k, **rows) for k in range(K)]
    X, y, weight = (np.concatenate(part) for part in zip(*parts, strict=True))
    told = (y, model.predict(X))
    own = {"sample_weight": weight} if weighted else {}
    return mean_squared_error(*told, **own), r2_score(*told, **own)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", ["message", "numpy"])
@pytest.mark.parametrize(
    ("weighted", "t"), list(itertools.product([False, True], [1, 3]))
)
def test_scores_are_those_of_the_pooled_rows(strategy, kind, weighted, t):
    fitted = evaluated(strategy, clients(kind, weighted, t=t))
    mse, r2 = pooled(fitted.model_, weighted, t=t)
    found = fitted.report_.evaluation
    assert found["mse"] == pytest.approx(mse, rel=1e-12)
    assert found["r2"] == pytest.approx(r2, rel=1e-12, abs=1e-12)
    assert found["num-examples"] == sum(15 + 7 * k for k in range(K))
    own = [fitted.model_.evaluate(*_own(k, weighted, t)) for k in range(K)]
    rows = np.array([each.n_rows for each in own])
    mean = np.average([each.r2 for each in own], weights=rows)
    assert found["mean-site-r2"] == pytest.approx(mean, rel=1e-12)
    assert abs(found["r2"] - found["mean-site-r2"]) > 0.1
    assert fitted.report_.evaluation_note == ""


def _own(k: int, weighted: bool, t: int) -> tuple[Any, ...]:
    X, y, weight = rows_of(k, t)
    return (X, y, weight) if weighted else (X, y)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_large_offset_loses_no_digits(strategy):
    fitted = evaluated(strategy, clients("message", False, offset=1e6))
    r2 = pooled(fitted.model_, False, offset=1e6)[1]
    assert fitted.report_.evaluation["r2"] == pytest.approx(r2, abs=1e-11)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", ["message", "numpy"])
def test_one_client_of_0_1_0_leaves_the_pooled_r2_unknown(strategy, kind):
    fitted = evaluated(strategy, clients(kind, False), older=(1002,))
    found, mse = fitted.report_.evaluation, pooled(fitted.model_, False)[0]
    assert list(found) == ["mse", "mean-site-r2", "num-examples"]
    assert found["mse"] == pytest.approx(mse, rel=1e-12)
    note = fitted.report_.evaluation_note
    assert "R² over all rows is not known" in note
    assert "1 of 4 clients" in note
    assert note in str(fitted.report_)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_site_below_its_min_rows_declines_to_evaluate(strategy):
    def load(context: Context) -> Any:
        X, y, _ = rows_of(int(context.node_config["partition-id"]))
        return X, y

    def load_eval(context: Context) -> Any:
        X, y, _ = rows_of(int(context.node_config["partition-id"]))
        few = 5 if context.node_config["partition-id"] == 1 else 15
        return X[:few], y[:few]

    fitted = evaluated(strategy, ridge_client_app(load, load_eval, min_rows=10))
    assert list(fitted.report_.evaluation_failures) == ["1001"]
    assert "declined" in fitted.report_.evaluation_failures["1001"]
    assert fitted.report_.evaluation["num-examples"] == 45


def told(sums: list[float] | None, **changed: Any) -> RecordDict:
    found = {"num-examples": 9, "mse": 2.0, "r2": 0.5, **changed}
    if sums is not None:
        found["evaluation-sums"] = sums
    return RecordDict({"metrics": MetricRecord(found)})


ASK = AskEvaluation(RidgeModel(coef=[1.0, 2.0], intercept=0.0, alpha=1.0))
HONEST = [9.0, 1e6, 1e-11, 4.0, 2.0]
"""Weight, mean of y in two parts, its variance, mean squared error."""


def test_the_honest_one_is_taken():
    found = read_answer(told(HONEST), ASK)
    assert (found.mse, found.r2, found.n_rows) == (2.0, 0.5, 9)
    assert found.weight == 9.0


@pytest.mark.parametrize(
    ("sums", "changed", "reason"),
    [
        (HONEST[:-1], {}, "5 numbers"),
        ([*HONEST, 1.0], {}, "5 numbers"),
        ([0.0, *HONEST[1:]], {}, "weight"),
        ([-9.0, *HONEST[1:]], {}, "weight"),
        ([float("inf"), *HONEST[1:]], {}, "NaN or infinite"),
        ([9.0, float("nan"), *HONEST[2:]], {}, "NaN or infinite"),
        ([9.0, 1e200, *HONEST[2:]], {}, "too large"),
        ([9.0, 0.0, 0.0, -4.0, 2.0], {}, "negative"),
        ([9.0, 0.0, 0.0, 4.0, -2.0], {}, "negative"),
        ([9.0, 0.0, 0.0, 4.0, 3.0], {}, "contradict"),
        ([9.0, 0.0, 0.0, 8.0, 2.0], {}, "contradict"),
        (HONEST, {"r2": float("nan")}, "contradict"),
        (HONEST, {"num-examples": 0}, "no rows"),
        ([9.0, 0.0, 0.0, 4.0, 2.0], {"num-examples": 1}, "one row"),
    ],
)
def test_sums_that_no_rows_have_are_refused(sums, changed, reason):
    with pytest.raises(ProtocolError, match=reason):
        read_answer(told(sums, **changed), ASK)


def test_bytes_that_are_no_numbers_are_refused():
    told = {"mse": 2.0, "r2": 0.5, "evaluation-sums": np.array(HONEST).tobytes()[:-1]}
    content = RecordDict(
        {
            "evaluateres.num_examples": MetricRecord({"num_examples": 9}),
            "evaluateres.metrics": ConfigRecord(told),
        }
    )
    with pytest.raises(ProtocolError, match="not a list of numbers"):
        read_answer(content, ASK)
