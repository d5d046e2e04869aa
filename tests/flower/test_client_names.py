"""Clients by the names people know; node ids stay the keys."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
import pytest
from fakes import InProcessGrid, fit, node_context
from flwr.app import ConfigRecord, Context
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo

from fedridge_flwr import (
    DataError,
    FedRidge,
    FitReport,
    LegacyFedRidge,
    NotEnoughClientsError,
    RidgeClient,
    ridge_client_app,
)
from fedridge_flwr.flower._strategy_base import ClientNames
from fedridge_flwr.flower.exchange import CountingGrid

STRATEGIES = (FedRidge, LegacyFedRidge)
NAMES = ["clinic-a", "clinic-b", "clinic-b", None, "clinic-e"]
"""What five sites are started with; number 3 has only its partition."""
WAIT = {FedRidge: "min_available_nodes", LegacyFedRidge: "min_available_clients"}


def rows_of(k: int) -> tuple[Any, Any]:
    X = np.random.default_rng(k).normal(size=(30, 3))
    if k == 4:
        X[:, 1] *= 1e9
    return X, X[:, 0]


def load(context: Context) -> tuple[Any, Any]:
    k = int(context.node_config["partition-id"])
    if k in (0, 3):
        raise DataError("no rows this month")
    return rows_of(k)


def client_fn(context: Context) -> Any:
    k = int(context.node_config["partition-id"])
    X, y = rows_of(k)
    few = k in (0, 3)
    return RidgeClient(X, y, min_rows=99 if few else 2, context=context).to_client()


APPS = {"message": ridge_client_app(load), "numpy": ClientApp(client_fn=client_fn)}


class NamedGrid(InProcessGrid):
    """A grid that knows some nodes by the names they were registered with."""

    def __init__(self, handlers: Any) -> None:
        super().__init__(handlers)
        self.registered: dict[int, str] = {}

    def get_nodes(self) -> Any:
        return [
            NodeInfo(node_id=node, name=self.registered.get(node, ""))
            for node in self.get_node_ids()
        ]


def grid_of(app: ClientApp, names: list[str | None] = NAMES) -> NamedGrid:
    def node(k: int, name: str | None) -> Any:
        context = node_context(k, len(names))
        if name is not None:
            context.node_config["name"] = name
        return lambda message: app(message, context)

    return NamedGrid([node(k, name) for k, name in enumerate(names)])


def run(strategy: Any, grid: Any, **settings: Any) -> Any:
    return fit(strategy(min_available_nodes=len(grid.handlers), **settings), grid)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", APPS)
def test_sites_go_by_the_names_they_are_started_with(strategy, kind, caplog):
    with caplog.at_level(logging.INFO, logger="flwr"):
        fitted = run(strategy, grid_of(APPS[kind]))
    report = fitted.report_
    assert set(report.failures) == {"1000", "1003"}
    assert report.names == {
        "1000": "clinic-a",
        "1001": "clinic-b (1001)",
        "1002": "clinic-b (1002)",
        "1003": "partition 3",
        "1004": "clinic-e",
    }
    shown = str(report)
    assert "client clinic-a: " in shown
    assert "client partition 3: " in shown
    assert "client 1000" not in shown + caplog.text
    assert "client clinic-a left out" in caplog.text
    assert FitReport(**{**vars_of(report), "names": {}}).names == {}


def vars_of(report: FitReport) -> dict[str, Any]:
    return {name: getattr(report, name) for name in report.__dataclass_fields__}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_suspects_and_errors_are_named_too(strategy, caplog):
    names = ["a", "b", "c", "d", "loud", "f"]
    app = ridge_client_app(lambda c: rows_of(int(c.node_config["partition-id"])))
    fitted = run(strategy, grid_of(app, list(names)))
    assert list(fitted.report_.suspects) == ["1004"]
    assert "client loud is suspect" in caplog.text
    assert "client loud: the spread" in str(fitted.report_)
    with pytest.raises(NotEnoughClientsError, match="client clinic-a: no rows") as told:
        run(strategy, grid_of(APPS["message"]), min_train_nodes=4)
    assert "client 1000" not in str(told.value)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_name_of_registration_comes_first(strategy):
    grid = grid_of(APPS["message"])
    grid.registered = {1000: "north", 1003: "clinic-e"}
    if strategy is FedRidge:
        grid = CountingGrid(grid)
        grid.handlers = grid._grid.handlers
    names = run(strategy, grid).report_.names
    assert names["1000"] == "north"
    # What a site says of itself may be what another one was registered as.
    assert names["1003"] == "clinic-e (1003)"
    assert names["1004"] == "clinic-e (1004)"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_clients_that_only_evaluate_have_names(strategy):
    def no_test_rows(context: Context) -> Any:
        raise DataError("no test rows")

    app = ridge_client_app(lambda c: rows_of(1), no_test_rows)
    half = "fraction_train" if strategy is FedRidge else "fraction_fit"
    names = ["a", "b", "c", "d"]
    settings = {half: 0.5, "fraction_evaluate": 1.0}
    report = run(strategy, grid_of(app, list(names)), **settings).report_
    assert len(report.participants) == 2
    assert report.names == {str(1000 + k): name for k, name in enumerate(names)}
    assert "clients a, b, c, d: no test rows" in str(report)


@pytest.mark.usefixtures("work_takes_no_time")
def test_a_silent_client_goes_by_the_name_of_registration():
    grid = grid_of(APPS["message"])
    grid.registered = {1002: "south"}
    grid.late = {1002: math.inf}
    fitted = FedRidge(min_available_nodes=5)
    fitted.start(grid, timeout=0.5)
    assert "client south: no answer within 0.5 s" in str(fitted.report_)


@pytest.mark.parametrize(
    "claim",
    [
        "",
        " ",
        " padded ",
        "x" * 65,
        "two\nlines",
        "bell\x07",
        "1001",
        7,
        3.5,
        b"x",
        True,
        ["a"],
    ],
)
def test_only_a_short_printable_line_is_a_name(claim):
    grid = grid_of(ridge_client_app(lambda c: rows_of(1)), [None] * 2)
    honest = grid.handlers[1000]

    def claims(message: Any) -> Any:
        reply = honest(message)
        fields = {**reply.content["config"], "client-name": claim}
        reply.content["config"] = ConfigRecord(fields)
        return reply

    grid.handlers[1000] = claims
    report = run(FedRidge, grid).report_
    assert report.names == {"1001": "partition 1"}
    assert report.participants == ["1000", "1001"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_name_is_never_an_identity(strategy):
    app = ridge_client_app(lambda c: rows_of(int(c.node_config["partition-id"])))
    fitted = run(strategy, grid_of(app, ["same"] * 3))
    assert fitted.model_.n_clients_ == 3
    assert fitted.report_.repeated == []
    assert sorted(fitted.report_.participants) == ["1000", "1001", "1002"]


def test_no_name_looks_like_that_of_another():
    names = ClientNames()
    for node, name in {"7": "a", "8": "a", "9": "a (8)"}.items():
        names.tell(node, name)
    assert names.among("789") == {"7": "a (7)", "8": "a (8)", "9": "a (8) (9)"}
    assert len(set(names.among("789").values())) == 3


def test_text_is_relabelled_by_whole_ids():
    names = ClientNames()
    names.tell("100", "a")
    names.tell("1001", "b")
    assert names.in_text("client 1001: x; client 100: y") == "client b: x; client a: y"
    assert names.in_text("client 10010, client 2") == "client 10010, client 2"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_report_is_complete_when_the_model_is_handed_over(strategy):
    told: list[str] = []

    def show(model: Any) -> None:
        told.append(fitted.report_.text(diagnostics=False))

    fitted = strategy(**{WAIT[strategy]: len(NAMES)}, on_model=show)
    fit(fitted, grid_of(APPS["message"]))
    assert told == [fitted.report_.text(diagnostics=False)]
    assert "client partition 3: no rows this month" in told[0]
    assert "same bytes" in told[0]
    assert set(fitted.report_.names.values()) >= {"clinic-a", "clinic-e"}
