"""Some clients are not in the model: it is said first, and `strict` ends the run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fakes import InProcessGrid, fit, node_context
from flwr.app import Context
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp

from fedridge_flwr import (
    DataError,
    FedRidge,
    FedRidgeError,
    IncompleteFitError,
    LegacyFedRidge,
    NotEnoughClientsError,
    RidgeModel,
    ridge_client_app,
    solve,
)
from fedridge_flwr.flower.exchange import wait_for_nodes

STRATEGIES = (FedRidge, LegacyFedRidge)
IN_THE_MODEL = "MODEL OF 2 OF 4 CLIENTS, 440 OF AT LEAST 451 ROWS"
THERE_IS_NONE = rf"NO MODEL \(strict\): {IN_THE_MODEL.removeprefix('MODEL OF ')}"


def rows_of(k: int, n: int, d: int = 3) -> tuple[Any, Any]:
    X = np.random.default_rng(k).normal(size=(n, d))
    return X, X.sum(axis=1)


def split(context: Context) -> tuple[Any, Any]:
    """Two sites of 220 rows; one that fails, and a small one with other columns."""
    k = int(context.node_config["partition-id"])
    if k == 1:
        raise DataError("no rows this month")
    return rows_of(k, 11, d=4) if k == 3 else rows_of(k, 220)


SPLIT = ridge_client_app(split)


def run(strategy: Any, app: ClientApp, nodes: int, rounds: int = 1, **more: Any) -> Any:
    settings = {"min_available_nodes": nodes, **more}
    fitted = strategy(**settings)
    return fit(fitted, InProcessGrid.of_app(app, nodes), rounds)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_report_and_summary_say_how_much_is_in_the_model(strategy, tmp_path):
    fitted = run(strategy, SPLIT, 4, save_model=tmp_path / "model.json")
    first = str(fitted.report_).splitlines()[0]
    assert first.startswith(IN_THE_MODEL + ": ")
    assert "client partition 1: no rows this month" in first
    assert "client partition 3: its columns are not those of 2 other clients" in first
    assert fitted.model_.summary().splitlines()[-1] == IN_THE_MODEL
    kept = RidgeModel.load(tmp_path / "model.json")
    assert kept.summary().splitlines()[-1] == IN_THE_MODEL


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nothing_is_said_where_all_are_in(strategy):
    app = ridge_client_app(lambda c: rows_of(int(c.node_config["partition-id"]), 20))
    fitted = run(strategy, app, 3, strict=True)
    assert str(fitted.report_).splitlines()[0] == "One-shot federated ridge"
    assert "MODEL OF" not in fitted.model_.summary()
    assert fitted.model_.n_clients_ == 3


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("more", [{}, {"alphas": [0.1, 1.0], "cv": "clients"}])
def test_strict_ends_the_run_without_a_model(strategy, more, tmp_path):
    models: list[RidgeModel] = []
    file = tmp_path / "model.json"
    fitted = strategy(
        min_available_nodes=4,
        strict=True,
        save_model=file,
        on_model=models.append,
        **more,
    )
    with pytest.raises(IncompleteFitError, match=THERE_IS_NONE) as told:
        fit(fitted, InProcessGrid.of_app(SPLIT, 4))
    assert "client partition 1: no rows this month" in str(told.value)
    assert "client partition 3: its columns" in str(told.value)
    assert not file.exists()
    assert models == []
    assert sorted(fitted.report_.participants) == ["1000", "1002"]
    assert solve(fitted.statistics_, 1.0).n_rows_ == 440
    with pytest.raises(AttributeError, match="strict"):
        _ = fitted.model_


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("mode", ["refine", "cg"])
def test_strict_does_not_go_on_for_rounds_in_vain(strategy, mode):
    fitted = strategy(min_available_nodes=4, strict=True, mode=mode)
    grid = InProcessGrid.of_app(SPLIT, 4)
    with pytest.raises(IncompleteFitError, match="2 OF 4 CLIENTS: client partition"):
        fit(fitted, grid, 10)
    assert len(grid.sent) == 4


def test_strict_minds_a_client_that_leaves_in_a_later_round():
    def load(context: Context) -> Any:
        return rows_of(int(context.node_config["partition-id"]), 50)

    grid = InProcessGrid.of_app(ridge_client_app(load), 4)
    honest, asked = grid.handlers[1002], [0]

    def leaves(message: Any) -> Any:
        asked[0] += 1
        if asked[0] == 3:
            raise OSError("gone")
        return honest(message)

    grid.handlers[1002] = leaves
    fitted = FedRidge(min_available_nodes=4, strict=True, mode="cg")
    with pytest.raises(
        IncompleteFitError, match=r"NO MODEL \(strict\): 3 OF 4 CLIENTS"
    ):
        fit(fitted, grid)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_by_default_a_fit_goes_on_without_those_who_are_missing(strategy):
    assert run(strategy, SPLIT, 4).model_.n_clients_ == 2


# ---- min_train_nodes ---------------------------------------------------------------


class Empty(NumPyClient):
    """A foreign client without rows."""

    def fit(self, parameters: Any, config: Any) -> Any:
        return [np.zeros((3, 3)), np.zeros(3)], 0, {}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_client_without_rows_is_none(strategy, tmp_path):
    def load(context: Context) -> Any:
        return rows_of(int(context.node_config["partition-id"]), 20)

    grid = InProcessGrid.of_app(ridge_client_app(load), 2)
    other = InProcessGrid.of_app(ClientApp(client_fn=lambda _: Empty().to_client()), 2)
    grid.handlers[1001] = other.handlers[1001]
    file = tmp_path / "model.json"
    fitted = strategy(
        min_available_nodes=2, min_train_nodes=2, fit_intercept=False, save_model=file
    )
    with pytest.raises(NotEnoughClientsError, match="1 valid answer, at least 2") as at:
        fit(fitted, grid)
    assert "client 1001: has no rows" in str(at.value)
    assert not file.exists()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_client_that_screening_leaves_out_is_none(strategy):
    def load(context: Context) -> Any:
        k = int(context.node_config["partition-id"])
        X, y = rows_of(k, 40)
        return X * (1e6 if k == 4 else 1.0), y

    app, settings = ridge_client_app(load), {"screen": "exclude"}
    assert run(strategy, app, 5, min_train_nodes=4, **settings).model_.n_clients_ == 4
    with pytest.raises(
        NotEnoughClientsError, match="4 valid answers, at least 5"
    ) as told:
        run(strategy, app, 5, min_train_nodes=5, **settings)
    assert "min_train_nodes (older API: min_fit_clients) is the" in str(told.value)


def test_a_minimum_does_not_end_the_waiting_for_a_stable_number():
    now, seen = [0.0], []

    def look() -> list[int]:
        seen.append(now[0])
        return list(range(min(int(now[0]) + 1, 6)))

    def sleep(seconds: float) -> None:
        now[0] += seconds

    nodes = wait_for_nodes(
        look, None, 60.0, at_least=2, clock=lambda: now[0], sleep=sleep
    )
    assert len(nodes) == 6
    now[0] = 0.0
    with pytest.raises(NotEnoughClientsError, match=r"6 of 9 SuperNode\(s\)"):
        wait_for_nodes(look, None, 60.0, at_least=9, clock=lambda: now[0], sleep=sleep)


# ---- what an error advises -----------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("cv", ["server", "clients"])
def test_clients_that_declined_come_before_another_way_to_choose_alpha(strategy, cv):
    def load(context: Context) -> Any:
        k = int(context.node_config["partition-id"])
        return rows_of(k, 3 if k else 30)

    app = ridge_client_app(load, min_rows=10)
    with pytest.raises(NotEnoughClientsError) as told:
        run(strategy, app, 4, alphas=[0.1, 1.0], cv=cv)
    text = str(told.value)
    for node in (1, 2, 3):
        assert text.index(f"client partition {node}: declined") < text.index("gcv")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_incomplete_model_is_a_warning_and_told_once(strategy, caplog):
    caplog.set_level("INFO", logger="flwr")
    run(strategy, SPLIT, 4)
    told = [each for each in caplog.records if IN_THE_MODEL in each.message]
    assert [each.levelname for each in told] == ["WARNING"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_equal_reasons_are_told_together_and_by_name(strategy, caplog):
    def load(context: Context) -> Any:
        k = int(context.node_config["partition-id"])
        if k:
            raise DataError("killed")
        return rows_of(k, 20)

    app = ridge_client_app(load)
    told = run(strategy, app, 4).report_.incomplete
    assert told.endswith(
        "20 ROWS: clients partition 1, partition 2, partition 3: killed"
    )
    warned = [each for each in caplog.messages if "left out: killed" in each]
    assert len(warned) == 1
    with pytest.raises(NotEnoughClientsError, match="partition 2, partition 3: killed"):
        run(strategy, app, 4, min_train_nodes=2)


FRACTIONS = {FedRidge: "fraction_train", LegacyFedRidge: "fraction_fit"}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("more", [{}, {"mode": "refine"}, {"family": "binomial"}])
def test_clients_that_a_fraction_leaves_out_are_missing_in_the_model(
    strategy, more, caplog
):
    name = FRACTIONS[strategy]

    def load(context: Context) -> Any:
        X, y = rows_of(int(context.node_config["partition-id"]), 40)
        return X, (y > 0.0) * 1.0

    app = ridge_client_app(load)
    fitted = run(strategy, app, 4, rounds=30, **{name: 0.5}, **more)
    report = fitted.report_
    assert report.scope == "MODEL OF 2 OF 4 CLIENTS, 80 ROWS"
    assert str(report).startswith(report.scope)
    assert set(report.failures.values()) == {f"not asked ({name}=0.5)"}
    assert not set(report.failures) & set(report.participants)
    assert not report.repeated
    assert "The rows of the others are not in the model: no round asks them." in (
        caplog.text
    )
    assert fitted.model_.scope_ == report.scope


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_strict_and_a_fraction_contradict_each_other(strategy):
    name = FRACTIONS[strategy]
    with pytest.raises(FedRidgeError, match=f"{name}=0.5 asks only some of them"):
        strategy(strict=True, **{name: 0.5})
    strategy(strict=True, **{name: 1.0})


def test_bytes_are_compared_with_fedavg_on_those_that_were_asked():
    app = ridge_client_app(lambda c: rows_of(int(c.node_config["partition-id"]), 20))
    half = run(FedRidge, app, 4, fraction_train=0.5).report_.fedavg_rounds
    assert half == pytest.approx(run(FedRidge, app, 2).report_.fedavg_rounds, rel=0.05)


def test_what_is_no_grid_is_said_to_be_none():
    with pytest.raises(TypeError, match=r"def main\(grid, context\), got Context"):
        FedRidge().start(grid=node_context(0, 1))


def test_clients_of_another_app_are_recognised_beside_those_that_were_not_asked():
    app = ClientApp()

    @app.train()
    def train(message: Any, context: Context) -> Any:
        raise KeyError("x")

    with pytest.raises(NotEnoughClientsError, match="No client understood the request"):
        run(FedRidge, app, 4, fraction_train=0.5)
