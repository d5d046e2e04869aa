"""The client of a test: waits at a gate, crashes, or answers as it is told.

It is copied into the app of the sites, so that it runs in a real ClientApp process.
``--node-config`` says what happens: `site` and `gate` (a folder), and `fault`, which
may be a file ``<site>.fault`` at the gate instead. In an exchange of a secure sum it
leaves ``<site>.<task>`` there, and waits while there is a ``<site>.hold-<task>``.
"""

import os
import time
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedridge_flwr import ridge_client_app

from .data import load_data

app = ClientApp()


def _fault(context: Context) -> str:
    node = context.node_config
    file = Path(str(node["gate"])) / f"{node['site']}.fault"
    return file.read_text() if file.exists() else str(node.get("fault", ""))


def _load_at_the_gate(context: Context) -> object:
    node, fault = context.node_config, _fault(context)
    name, gate = str(node["site"]), Path(str(node["gate"]))
    (gate / f"{name}.asked").touch()
    if fault == "crash before":
        os._exit(1)
    if fault == "crash once" and not (gate / f"{name}.crashed").exists():
        (gate / f"{name}.crashed").touch()
        os._exit(1)
    if fault == "raise":
        raise ConnectionError("the database of this site is away")
    while (gate / f"{name}.hold").exists():
        time.sleep(0.05)
    rows = load_data(context)
    if fault == "crash during":
        os._exit(1)
    return rows


def _wait_in_exchange(message: Message, context: Context) -> None:
    config: Any = message.content["config"]
    node, task = context.node_config, config.get("fedridge-task", "")
    name, gate = str(node["site"]), Path(str(node["gate"]))
    if task:
        (gate / f"{name}.{task}").touch()
        while (gate / f"{name}.hold-{task}").exists():
            time.sleep(0.05)


def _load_new_at_the_gate(context: Context, since: int | None) -> object:
    X, y = _load_at_the_gate(context)  # type: ignore[misc]
    return (X[since or 0 :], y[since or 0 :]), len(X)


_ridge = ridge_client_app(
    _load_at_the_gate, load_new_data=_load_new_at_the_gate, min_rows=20
)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Answer as FedRidge's own client does, if there is no fault."""
    _wait_in_exchange(message, context)
    reply = _ridge(message, context)
    if _fault(context) == "crash after":
        os._exit(1)
    return reply
