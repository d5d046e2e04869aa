"""`mode="auto"`: every client decides by its own rows, and all of it is one model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from fakes import InProcessGrid, fit
from fits import ask, begin, run_fit
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fedridge_flwr import (
    FedRidge,
    LegacyFedRidge,
    NotEnoughClientsError,
    recommend,
    ridge_client_app,
)
from fedridge_flwr.federation.requests import AskOpening, Limits, choose_mode

D, FEW, MANY = 60, 8, 120
BUDGET = 6000  # bytes; 60 columns take 15 kB, 8 rows of them 5 kB


def client(k: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(k)
    X = rng.normal(loc=k, size=(n, D)) * np.linspace(1, 3, D)
    return X, X @ np.linspace(-1, 1, D) + rng.normal(size=n)


def clients(*sizes: int) -> dict[str, Any]:
    return {str(k): client(k, n) for k, n in enumerate(sizes)}


def auto(parts: dict[str, Any], faults: Any = None, **settings: Any) -> Any:
    return run_fit(parts, faults, mode="auto", max_bytes=BUDGET, **settings)


def close(
    model: Any, parts: Any, alpha: float = 1.0, scale: bool = False, **options: Any
) -> None:
    X = np.vstack([np.asarray(rows[0]) for rows in parts])
    y = np.concatenate([rows[1] for rows in parts])
    ridge: Any = Ridge(alpha=alpha, solver="svd", **options)
    ridge = make_pipeline(StandardScaler(), ridge) if scale else ridge
    expected = ridge.fit(X, y).predict(X)
    np.testing.assert_allclose(model.predict(X), expected, rtol=0, atol=1e-8)
    assert model.n_rows_ == len(y)
    assert model.n_clients_ == len(parts)


@given(
    d=st.integers(1, 30_000),
    n=st.integers(1, 50_000),
    t=st.integers(1, 5),
    budget=st.sampled_from([1000, 100_000, 8_000_000, 10**9]),
)
def test_auto_is_what_recommend_says(d: int, n: int, t: int, budget: int) -> None:
    mode, _ = choose_mode(d, t, Limits(max_bytes=budget), n)
    assert recommend(d, n, 20, t=t, budget=budget).method == mode


def test_few_rows_take_one_round() -> None:
    parts = clients(FEW, FEW, FEW)
    run = auto(parts)
    close(run.model, parts.values())
    assert run.report.refinement is None
    assert "oneshot (auto: statistics of so few rows" in str(run.report)
    assert not run.report.advice


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(
    "options",
    [{}, {"fit_intercept": False}, {"scale": True}, {"alpha": 0.0}],
    ids=["plain", "no intercept", "standardize", "alpha 0"],
)
def test_a_mixture_is_the_pooled_model(named: bool, options: dict[str, Any]) -> None:
    parts = clients(FEW, MANY, FEW, MANY)
    if named:
        names = [f"x{j}" for j in range(D)]
        parts = {k: (pd.DataFrame(X, columns=names), y) for k, (X, y) in parts.items()}
    given = {"standardize" if k == "scale" else k: v for k, v in options.items()}
    run = auto(parts, **given)
    X = {k: np.asarray(X) for k, (X, _) in parts.items()}
    assert not run.report.failures
    assert run.report.participants == list(parts)
    assert run.report.refinement.converged
    assert "2 clients with few rows sent them at once" in str(run.report)
    model = run.model
    if named:
        assert list(model.feature_names_in_) == names
        model.features = None
    close(model, [(X[k], y) for k, (_, y) in parts.items()], **options)


def test_clients_with_few_rows_are_asked_once() -> None:
    parts = clients(FEW, MANY)
    run = begin(mode="auto", max_bytes=BUDGET)
    asked = []
    while run.round is not None:
        to = list(parts) if run.round.to is None else run.round.to
        asked.append(to)
        for name in to:
            run.round.into.add(name, ask(run.round.ask, parts[name]))
        run.finish_round()
    assert asked[0] == ["0", "1"]
    assert len(asked) > 2
    assert all(to == ["1"] for to in asked[1:])


def stays_away(number: int, product: Any) -> Any:
    if number > 2:
        raise ConnectionError
    return product


def test_who_drops_out_is_taken_out() -> None:
    parts = clients(FEW, MANY, MANY)
    run = auto(parts, {"1": stays_away})
    close(run.model, [parts["0"], parts["2"]])
    assert list(run.report.failures) == ["1"]


def test_if_all_others_drop_out_the_statistics_remain() -> None:
    parts = clients(FEW, FEW, MANY)
    run = auto(parts, {"2": stays_away})
    close(run.model, [parts["0"], parts["1"]])
    assert run.result.statistics.count == 2 * FEW
    assert "all others dropped out" in str(run.report)
    with pytest.raises(NotEnoughClientsError, match="2 clients left"):
        auto(parts, {"2": stays_away}, min_clients=3)


def test_the_older_rule_is_understood() -> None:
    """0.1.0 looks at columns alone: as a client, and in what it asks as a server."""
    rows, old = client(0, FEW), AskOpening("auto", Limits(BUDGET, by_rows=False))
    assert ask(old, rows).form == "opening"
    assert ask(AskOpening("auto", Limits(BUDGET)), rows).form == "full"
    run, parts = begin(mode="auto", max_bytes=BUDGET), clients(FEW, FEW)
    while run.round is not None:
        first = run.round.ask.task == AskOpening.task
        request = old if first else run.round.ask
        for name, own in parts.items():
            run.round.into.add(name, ask(request, own))
        run.finish_round()
    close(run.model, parts.values())
    assert run.report.refinement.mode == "refine"


@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
@pytest.mark.parametrize("sizes", [(FEW, FEW), (FEW, MANY, FEW)])
def test_it_holds_through_flower(kind: Any, sizes: tuple[int, ...]) -> None:
    parts = list(clients(*sizes).values())
    app = ridge_client_app(lambda context: parts[context.node_config["partition-id"]])
    strategy = kind(mode="auto", max_bytes=BUDGET, min_available_nodes=len(parts))
    fit(strategy, InProcessGrid.of_app(app, len(parts)), num_rounds=60)
    close(strategy.model_, parts)
    assert (strategy.report_.refinement is None) == (MANY not in sizes)
