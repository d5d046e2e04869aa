"""Record messages and files of a version of the package.

It was run with version 0.1.0 and is kept to show how the files beside it came
about. They are not to be written anew: they stand for clients, servers and disks that
still have 0.1.0. In a checkout of 0.1.0::

    PYTHONPATH=.:tests python tests/golden/record.py
"""

from __future__ import annotations

import base64
import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from fakes import Handler, InProcessGrid
from flwr.app import Message
from flwr.common.serde import message_to_proto
from scenarios import (
    BUDGET,
    FILES,
    MESSAGES,
    ROWS,
    SCENARIOS,
    K,
    Scenario,
    outcome,
    privacy,
    rows_of,
    run,
)

from fedridge_flwr import PrivacyLedger, __version__

VERSION = "0.1.0"

MODELS = (
    *("oneshot", "names-shared", "targets-and-weights", "map", "map-random"),
    *("losses", "private"),
)
REPORTS = ("oneshot", "losses", "refine", "private")


def write(path: Path, content: Any, indent: int | None = 1) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=indent) + "\n", encoding="utf-8")


def draw_rows() -> list[dict[str, Any]]:
    rng = np.random.default_rng(2024)
    drawn = []
    for k in range(K):
        X = rng.normal(loc=0.3 * k, size=(24 + 6 * k, 5)).round(3)
        y = X @ [1.0, -1.0, 0.5, 2.0, 0.0] + 0.7 + 0.3 * rng.normal(size=len(X))
        drawn.append({"X": X.tolist(), "y": y.round(3).tolist()})
    return drawn


def as_text(message: Message) -> str:
    return base64.b64encode(message_to_proto(message).SerializeToString()).decode()


def listening(handler: Handler, heard: list[dict[str, str]]) -> Handler:
    """Return a node that writes down what it is asked and what it answers."""

    def handle(message: Message) -> Message:
        request = as_text(message)
        reply = handler(message)
        heard.append({"request": request, "reply": as_text(reply)})
        return reply

    return handle


def record(scenario: Scenario) -> Any:
    """Run a fit, write its messages, and return the strategy."""
    grid = InProcessGrid.of_app(scenario.app(), K)
    nodes: dict[str, list[dict[str, str]]] = {}
    for node, handler in grid.handlers.items():
        nodes[str(node)] = []
        grid.handlers[node] = listening(handler, nodes[str(node)])
    strategy = run(scenario.strategy(), grid)
    found = {"version": VERSION, "expected": outcome(strategy), "nodes": nodes}
    write(MESSAGES / f"{scenario.name}.json", found)
    return strategy


def record_ledger() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "ledger.json")
        ledger = PrivacyLedger(path, **BUDGET)
        ledger.charge("clinic", "release 1", privacy(1.0))
        ledger.charge("clinic", "release 2", privacy(1.0, rounds=3), 1)
        ledger.charge("clinic", "release 2", privacy(1.0, rounds=3), 2)
        spent = ledger.spent("clinic")
        (FILES / "ledger.json").write_bytes(path.read_bytes())
    content = {"releases": spent.releases, "epsilon": spent.epsilon}
    write(FILES / "ledger-spent.json", content | {"delta": spent.delta})


def main() -> None:
    if __version__ != VERSION:
        raise SystemExit(f"this is {__version__}, and the files are those of {VERSION}")
    warnings.simplefilter("ignore")
    write(ROWS, draw_rows(), indent=None)
    fitted = {name: record(scenario) for name, scenario in SCENARIOS.items()}
    for name in MODELS:
        fitted[name].model_.save(FILES / f"model-{name}.json")
    for name in REPORTS:
        fitted[name].report_.save(FILES / f"report-{name}.json")
    X = rows_of(0)[0]
    told = {name: fitted[name].model_.predict(X).tolist() for name in MODELS}
    write(FILES / "predictions.json", told, indent=None)
    record_ledger()


if __name__ == "__main__":
    main()
