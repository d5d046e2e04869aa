"""The ClientApp: statistics, a constant of the same length, or a step of FedAvg."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedridge_flwr.app.descent import gradient_steps
from fedridge_flwr.federation.requests import SECURE_TASKS
from fedridge_flwr.flower import ridge_client_app
from fedridge_flwr.flower.protocol.request_records import PROTOCOL_KEY
from fedridge_flwr.flower.secure_memory import forget_secure_sums

from .problem import client_rows

__all__ = ["LENGTH_KEY", "TARGET", "app", "load_data", "read_file"]

LENGTH_KEY = "no-op-length"
TARGET = "Elevation"
_LEARNING_RATE = 0.01


def read_file(file: Path) -> tuple[Any, Any]:
    """Return features and target of one file."""
    import pandas as pd

    table = pd.read_csv(file)
    return table.drop(columns=TARGET), table[TARGET]


def read_table(file: Path) -> tuple[Any, str]:
    """Return the same as a table of Arrow's and the name of the target."""
    from pyarrow import csv

    # The other core is busy with another client.
    alone = csv.ReadOptions(use_threads=False)
    return csv.read_csv(file, read_options=alone), TARGET


def load_data(context: Context) -> tuple[Any, Any]:
    """Return this client's rows: its file where there is a folder, else made up."""
    config: Any = context.run_config
    client = int(context.node_config["partition-id"])
    if config["folder"]:
        return read_table(Path(config["folder"]) / f"{client}.csv")
    return client_rows(client, config["rows"], config["features"])


_ridge = ridge_client_app(load_data)

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Answer a no-op, FedRidge or FedAvg, whichever asks."""
    config: Any = message.content.config_records["config"]
    if LENGTH_KEY in config:
        arrays = ArrayRecord({"constant": FlowerArray(_constant(config[LENGTH_KEY]))})
        return _reply(message, arrays, 1)
    if PROTOCOL_KEY in config:
        # A client takes part in one secure sum of a run; here there are several.
        if config.get("fedridge-task") not in SECURE_TASKS[1:]:
            forget_secure_sums(context)
        return _ridge(message, context)
    X, y = load_data(context)
    coef = message.content.array_records["arrays"].to_numpy_ndarrays()[0]
    (trained,) = gradient_steps(
        (coef,), X, y, epochs=1, learning_rate=_LEARNING_RATE, penalty=0.0
    )
    return _reply(message, ArrayRecord({"coef": FlowerArray(trained)}), len(y))


@lru_cache(maxsize=2)
def _constant(length: int) -> Any:
    return np.zeros(length)


def _reply(message: Message, arrays: ArrayRecord, rows: int) -> Message:
    metrics = MetricRecord({"num-examples": rows})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
