"""Which files of the package one contribution passes through, and how often.

A switch is a call or a return from one of our files to another. Three clients of five
columns take part in a fit in one round, on a grid in this process; counted is the whole
fit with one of the contributions, less the other two.

    PYTHONPATH=tests/support python tools/trace_fit.py    # message API
    ... --legacy                                          # and the older one
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from threading import get_ident
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
from fakes import InProcessGrid, drive
from flwr.clientapp import ClientApp

import fedridge_flwr
from fedridge_flwr import FedRidge, LegacyFedRidge, RidgeClient, ridge_client_app

ROOT = Path(fedridge_flwr.__file__).parent


class Trace(NamedTuple):
    """Files in the order in which they are entered, and switches between them."""

    files: list[str]
    switches: int


def load_data(context: Any) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(context.node_config["partition-id"])
    X = rng.normal(size=(20, 5))
    return X, X.sum(axis=1)


def message_fit(n_clients: int) -> Callable[[], object]:
    grid = InProcessGrid.of_app(ridge_client_app(load_data), n_clients)
    strategy = FedRidge(alpha=1.0, min_available_nodes=n_clients)
    return lambda: strategy.start(grid=grid)


def legacy_fit(n_clients: int) -> Callable[[], object]:
    app = ClientApp(
        client_fn=lambda context: RidgeClient(*load_data(context)).to_client()
    )
    grid = InProcessGrid.of_app(app, n_clients)
    strategy = LegacyFedRidge(alpha=1.0, min_available_clients=n_clients)
    return lambda: drive(strategy, grid)


def trace(run: Callable[[], object]) -> Trace:
    """Run something and watch which of our files are entered."""
    files: dict[str, None] = {}
    switches, current = 0, dict[int, str]()  # by thread: the older driver has several

    def watch(frame: FrameType, event: str, _: object) -> None:
        nonlocal switches
        if event not in ("call", "return"):
            return
        entered, thread = frame if event == "call" else frame.f_back, get_ident()
        name = "" if entered is None else entered.f_code.co_filename
        if not name.startswith(str(ROOT)) or name == current.get(thread):
            return
        switches += thread in current
        current[thread] = name
        files.setdefault(name)

    level = logging.getLogger("flwr").level
    logging.getLogger("flwr").setLevel(logging.WARNING)
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        logging.getLogger("flwr").setLevel(level)
    return Trace([Path(f).relative_to(ROOT).as_posix() for f in files], switches)


def one_contribution(fit: Callable[[int], Callable[[], object]]) -> Trace:
    """Return the trace of a fit of three clients, less two of the contributions."""
    three, two = trace(fit(3)), trace(fit(2))
    return Trace(three.files, three.switches - 2 * (three.switches - two.switches))


if __name__ == "__main__":
    found = one_contribution(legacy_fit if "--legacy" in sys.argv else message_fit)
    print(*found.files, sep="\n")
    print(f"{len(found.files)} files, {found.switches} switches")
