"""The ClientApp: statistics for FedRidge, local training for everything else.

Which problem and which settings are at hand arrives once, in the announcement before
a method starts, and is kept in the node's state: the messages of the method itself
carry nothing but what the method sends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp

from fedridge_flwr.app.descent import gradient_steps
from fedridge_flwr.flower import ridge_client_app
from fedridge_flwr.flower.protocol.request_records import PROTOCOL_KEY
from fedridge_flwr.flower.release_memory import forget_releases
from fedridge_flwr.flower.secure_memory import forget_secure_sums
from fedridge_flwr.linalg.packed import upper_triangle

from .cells import Cell
from .clipped_descent import private_step, step_noise_sd
from .datasets import data_folder, dataset_clients
from .mapped_rows import local_training, mapped_clients, weight_arrays
from .method import CLIPPED_FEDAVG, Method
from .paper_privacy import algorithm_2, gradient_noise_sd
from .problem import ClientRows, Problem, client_rows

__all__ = ["app", "cell_record"]

_STATE = "cell"
_MISSING = 90


def cell_record(cell: Cell) -> ConfigRecord:
    """Return a cell as it is announced to the clients."""
    values = {"problem": asdict(cell.problem), "method": asdict(cell.method)}
    return ConfigRecord({"json": json.dumps(values)})


def _cell(context: Context) -> Cell:
    record: Any = context.state.config_records[_STATE]
    values = json.loads(record["json"])
    return Cell(Problem(**values["problem"]), Method(**values["method"]))


def _partition(context: Context) -> int:
    return int(context.node_config["partition-id"])


def _rows(context: Context) -> ClientRows:
    problem, partition = _cell(context).problem, _partition(context)
    if problem.dataset:
        return dataset_clients(problem, data_folder(context.run_config))[partition]
    return client_rows(problem, partition)


def load_data(context: Context) -> tuple[Any, Any]:
    """Return this client's training rows."""
    rows = _rows(context)
    return rows.X, rows.y


_ridge = ridge_client_app(load_data)

app = ClientApp()


@app.query()
def announce(message: Message, context: Context) -> Message:
    """Keep the cell that starts now, make its rows, and say who is here."""
    partition = _partition(context)
    record = message.content.config_records.get(_STATE)
    if record is not None:
        context.state[_STATE] = record
        # Rows are made up, and what another cell released of them is another story.
        forget_releases(context)
        forget_secure_sums(context)
        _make_rows(_cell(context), context)
    here = MetricRecord({"partition-id": partition})
    return Message(RecordDict({"metrics": here}), reply_to=message)


def _make_rows(cell: Cell, context: Context) -> None:
    """Make the rows of all clients: whichever process one runs in next has its own."""
    problem, method = cell.problem, cell.method
    if not problem.dataset:
        for each in range(problem.clients):
            client_rows(problem, each)
        return
    folder = data_folder(context.run_config)
    dataset_clients(problem, folder)
    if method.local_epochs:
        mapped_clients(problem, method.features, folder)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Answer FedRidge with statistics, any other strategy with local training."""
    cell = _cell(context)
    if _partition(context) not in cell.problem.participants:
        gone = Error(code=_MISSING, reason="this client is missing by design")
        return Message(gone, reply_to=message)
    config = message.content.config_records["config"]
    if PROTOCOL_KEY in config:
        return _ridge(message, context)
    if cell.problem.dataset:
        return _train_on_features(message, context)
    rows, method = _rows(context), cell.method
    (coef,) = message.content.array_records["arrays"].to_numpy_ndarrays()
    if method.name == CLIPPED_FEDAVG:
        return _reply(message, _private_training(cell, rows, coef), {"num-examples": 1})
    server_round = int(config["server-round"])  # type: ignore[arg-type]
    with np.errstate(over="ignore", invalid="ignore"):
        (trained,) = gradient_steps(
            (np.asarray(coef, dtype=np.float64),),
            rows.X,
            rows.y,
            epochs=method.local_epochs,
            learning_rate=method.learning_rate,
            penalty=method.local_penalty(
                cell.problem.alpha, cell.problem.training_rows
            ),
            proximal_mu=float(config.get("proximal-mu", 0.0)),  # type: ignore[arg-type]
            batch_size=method.batch_size,
            noise_sd=gradient_noise_sd(method, len(rows.X)),
            rng=np.random.default_rng(
                [cell.problem.seed, 3, _partition(context), server_round]
            ),
        )
    metrics: dict[str, int | float] = {"num-examples": len(rows.X)}
    if method.name == "QFedAvg":
        residual = rows.X @ coef - rows.y
        metrics["train_loss"] = float(residual @ residual / (2 * len(residual)))
    return _reply(message, trained, metrics)


def _train_on_features(message: Message, context: Context) -> Message:
    config: Any = message.content.config_records["config"]
    arrays = message.content.array_records["arrays"].to_numpy_ndarrays()
    trained, rows = local_training(
        _cell(context),
        _partition(context),
        tuple(np.asarray(values, dtype=np.float64) for values in arrays),
        data_folder(context.run_config),
        server_round=int(config["server-round"]),
        proximal_mu=float(config.get("proximal-mu", 0.0)),
    )
    metrics = MetricRecord({"num-examples": rows})
    content = RecordDict({"arrays": weight_arrays(trained), "metrics": metrics})
    return Message(content, reply_to=message)


def _private_training(cell: Cell, rows: ClientRows, coef: Any) -> Any:
    """Return the model after one private step.

    The noise has no seed, but it is numpy's, in floating point: good for a baseline,
    not for real records.
    """
    method, problem = cell.method, cell.problem
    return private_step(
        rows.X,
        rows.y,
        np.asarray(coef, dtype=np.float64),
        step=method.learning_rate,
        clip=method.clip,
        noise_sd=step_noise_sd(
            method.epsilon, method.delta, method.clip, method.rounds
        ),
        rows=problem.rows - problem.test_rows,
        rng=np.random.default_rng(),
    )


@app.query("product")
def product(message: Message, context: Context) -> Message:
    """Return X'(X v - target y): with v = 0 the moments, with target = 0 a product."""
    rows = _rows(context)
    (vector,) = message.content.array_records["arrays"].to_numpy_ndarrays()
    config = message.content.config_records["config"]
    residual = rows.X @ vector
    if config["target"]:
        residual = residual - rows.y
    return _reply(message, rows.X.T @ residual, {"num-examples": len(rows.X)})


@app.query("algorithm_2")
def noisy_statistics(message: Message, context: Context) -> Message:
    """Return G and h with the noise of the paper's Algorithm 2, which is not private.

    The noise comes from a seed, so that the experiment can be repeated.
    """
    cell, rows = _cell(context), _rows(context)
    rng = np.random.default_rng([cell.problem.seed, 4, _partition(context)])
    gram, moment = algorithm_2(
        rows.X, rows.y, cell.method.epsilon, cell.method.delta, rng
    )
    packed = np.concatenate([upper_triangle(gram), moment])
    return _reply(message, packed, {"num-examples": len(rows.X)})


def _reply(
    message: Message, values: Any, metrics: Mapping[str, int | float]
) -> Message:
    arrays = ArrayRecord({"coef": FlowerArray(np.ascontiguousarray(values))})
    return Message(
        RecordDict({"arrays": arrays, "metrics": MetricRecord({**metrics})}),
        reply_to=message,
    )
