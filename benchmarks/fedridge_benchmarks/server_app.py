"""The ServerApp: rounds timed next to each other in one warm simulation."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MessageType,
    RecordDict,
)
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedridge_flwr import FedRidge, RidgeModel, SecureSum
from fedridge_flwr.flower.exchange import ask, log, wait_for_nodes
from fedridge_flwr.linalg.packed import packed_length

from .client_app import LENGTH_KEY, read_file
from .machine import peak_memory, reset_peak_memory
from .measure import seconds
from .problem import pooled_rows

__all__ = ["app"]

_TIMEOUT = 7200.0
_ALPHA = 1.0
_WARM_UP = 50

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run one scene and write what was measured."""
    config: Any = context.run_config
    nodes = sorted(_nodes(grid, int(config["clients"])))
    found = SCENES[config["scene"]](grid, nodes, config)
    Path(config["output"]).write_text(json.dumps(found), encoding="utf-8")


def no_op_round(grid: Grid, nodes: list[int], features: int) -> None:
    """Ask every node for a constant as long as its statistics, and drop the answers.

    The loop that sends, looks for answers and takes them is the one of FedRidge.
    """
    config = ConfigRecord({LENGTH_KEY: packed_length(features, 1)})
    content = RecordDict({"config": config})
    requests = [Message(content, node, MessageType.TRAIN) for node in nodes]
    answers = sum(1 for _ in ask(grid, requests, _TIMEOUT, "no-op"))
    if answers != len(nodes):
        raise RuntimeError(f"{answers} of {len(nodes)} clients answered the no-op.")


def ridge_round(grid: Grid, nodes: list[int]) -> RidgeModel:
    """Fit ridge regression in one round over all nodes."""
    strategy = FedRidge(alpha=_ALPHA, min_available_nodes=len(nodes))
    strategy.start(grid, timeout=_TIMEOUT)
    if len(strategy.report_.participants) != len(nodes):
        raise RuntimeError(f"not all {len(nodes)} clients are in: {strategy.report_}")
    return strategy.model_


def rounds(grid: Grid, nodes: list[int], config: Any) -> dict[str, Any]:
    """Time no-op rounds and FedRidge in turn, and compare the model with pooled rows.

    Which of the two comes first alternates, since what one leaves behind in the
    simulator the other finds; it begins with FedRidge, which bears what is new.
    """
    features, models = int(config["features"]), []

    def no_op() -> None:
        no_op_round(grid, nodes, features)

    def ridge() -> None:
        models.append(ridge_round(grid, nodes))

    times: dict[str, list[float]] = {"no-op": [], "ridge": []}
    with _quiet(len(nodes) < 1000):
        no_op_round(grid, nodes[:_WARM_UP], features)
        if config["repeats"] > 1:
            ridge()
        for k in range(config["repeats"]):
            pair = [("ridge", ridge), ("no-op", no_op)]
            for name, run in pair[:: -1 if k % 2 else 1]:
                times[name].append(seconds(run))
    return {**times, "apart": _apart(models[-1], len(nodes), config)}


def secure(grid: Grid, nodes: list[int], config: Any) -> dict[str, Any]:
    """Time plain rounds and secure sums in turn, and count the bytes of the latter."""
    fits: list[FedRidge] = []

    def secure_sum() -> None:
        fits.append(
            FedRidge(_ALPHA, secure=SecureSum(), min_available_nodes=len(nodes))
        )
        fits[-1].start(grid, timeout=_TIMEOUT)

    def plain() -> None:
        ridge_round(grid, nodes)

    times: dict[str, list[float]] = {"secure": [], "plain": []}
    with _quiet():
        plain()
        secure_sum()
        for _ in range(config["repeats"]):
            times["secure"].append(seconds(secure_sum))
            times["plain"].append(seconds(plain))
    report = fits[-1].report_
    return {
        **times,
        "up": report.bytes_up / len(nodes),
        "down": report.bytes_down / len(nodes),
        "apart": _apart(fits[-1].model_, len(nodes), config),
    }


def ledger(grid: Grid, nodes: list[int], config: Any) -> dict[str, Any]:
    """Time rounds without a ledger and with a new one in turn."""
    count = iter(range(10_000))

    def kept() -> None:
        path = Path(config["ledger-folder"]) / f"{next(count)}.ledger"
        fit = FedRidge(_ALPHA, ledger=path, min_available_nodes=len(nodes))
        fit.start(grid, timeout=_TIMEOUT)

    def plain() -> None:
        ridge_round(grid, nodes)

    times: dict[str, list[float]] = {"ledger": [], "plain": []}
    with _quiet():
        plain()
        kept()
        for k in range(config["repeats"]):
            pair = [("ledger", kept), ("plain", plain)]
            for name, run in pair[:: -1 if k % 2 else 1]:
                times[name].append(seconds(run))
    return times


def memory(grid: Grid, nodes: list[int], config: Any) -> dict[str, Any]:
    """Return the largest resident size of the server during one round."""
    reset_peak_memory()
    if config["no-op"]:
        no_op_round(grid, nodes, int(config["features"]))
    else:
        ridge_round(grid, nodes)
    return {"peak": peak_memory()}


def fedavg(grid: Grid, nodes: list[int], config: Any) -> dict[str, Any]:
    """Time stock FedAvg against one round, on rows that every client has cached."""
    with _quiet():
        # Both actors make the rows of all clients, so that nobody waits for them.
        for _ in range(2):
            _fedavg(grid, len(nodes), config["features"], 1)
        ridge = median(seconds(lambda: ridge_round(grid, nodes)) for _ in range(3))
        many = seconds(
            lambda: _fedavg(grid, len(nodes), config["features"], config["rounds"])
        )
    return {"fedavg": many, "ridge": ridge}


def files(grid: Grid, nodes: list[int], config: Any) -> dict[str, Any]:
    """Time the clients from reading their files to the model."""
    from sklearn.linear_model import Ridge

    models: list[RidgeModel] = []
    no_op_round(grid, nodes, 1)
    times = [
        seconds(lambda: models.append(ridge_round(grid, nodes)))
        for _ in range(config["repeats"])
    ]
    pooled = Ridge(alpha=_ALPHA).fit(*read_file(Path(config["folder"]) / "pooled.csv"))
    apart = np.linalg.norm(models[-1].coef_ - pooled.coef_)
    return {"ridge": times, "apart": float(apart / np.linalg.norm(pooled.coef_))}


SCENES = {
    "rounds": rounds,
    "secure": secure,
    "ledger": ledger,
    "memory": memory,
    "fedavg": fedavg,
    "files": files,
}


def _fedavg(grid: Grid, clients: int, features: int, num_rounds: int) -> None:
    FedAvg(
        fraction_train=1.0,
        fraction_evaluate=0.0,
        min_train_nodes=clients,
        min_available_nodes=clients,
    ).start(
        grid=grid,
        initial_arrays=ArrayRecord({"coef": Array(np.zeros(features))}),
        num_rounds=num_rounds,
        timeout=_TIMEOUT,
    )


def _apart(model: RidgeModel, clients: int, config: Any) -> float:
    from sklearn.linear_model import Ridge

    X, y = pooled_rows(clients, config["rows"], config["features"])
    pooled = Ridge(alpha=_ALPHA).fit(X, y)
    distance = np.linalg.norm(model.coef_ - pooled.coef_)
    return float(distance / np.linalg.norm(pooled.coef_))


def _nodes(grid: Grid, clients: int) -> list[int]:
    return wait_for_nodes(lambda: set(grid.get_node_ids()), clients, 600.0)


@contextmanager
def _quiet(quiet: bool = True) -> Iterator[None]:
    level = log.level
    if quiet:
        log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.setLevel(level)
