"""Rows and secrets that can be recognised wherever they turn up, and a watch for them.

Numbers are recognised by their first digits, which no statistic of these rows has.
"""

from __future__ import annotations

import contextlib
import logging
import re
import warnings
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np
import pandas as pd
from fakes import InProcessGrid, node_context
from flwr.app import ArrayRecord, Context, Message
from flwr.clientapp import ClientApp

WORD = "kanarienvogel"
NUMBERS = {"X": 2.739182736, "y": -6.482917364, "weight": 1.593746281}
SIGNS = (WORD, "2.7391", "6.4829", "1.5937")
COLUMNS = [f"{WORD}-age", "income", f"{WORD}-bmi"]
PATH = f"/no/such/{WORD}/patients.csv"
SECRETS = {"api-token": f"{WORD}-token", "private-key": f"{WORD}-key"}


def rows(k: int, n: int = 40) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Return (X, y, weight) with a canary in each, and in the names of columns."""
    rng = np.random.default_rng(k)
    X = rng.uniform(-1, 1, size=(n, len(COLUMNS)))
    y = X @ [1.0, 2.0, -1.0] + 0.1 * rng.normal(size=n)
    weight = rng.uniform(0.5, 1.0, size=n)
    X[1, 1], y[1], weight[1] = NUMBERS["X"], NUMBERS["y"], NUMBERS["weight"]
    return pd.DataFrame(X, columns=COLUMNS), y, weight


def sung(text: object) -> list[str]:
    """Return the canaries in a text.

    A number begins where no digit is before it: times such as 1794889901.5937 sing of
    nobody. Of one with more digits all must be those of the canary, up to rounding:
    among thousands of random numbers some begin like it.
    """
    return [s for s in SIGNS if any(_is_canary(s, t) for t in _tokens(s, str(text)))]


def _tokens(sign: str, text: str) -> list[str]:
    return re.findall(rf"(?<!\d){re.escape(sign)}\d*", text)


def _is_canary(sign: str, token: str) -> bool:
    if sign == WORD:
        return True
    unit = max(10.0 ** -len(token.partition(".")[2]), 1e-9)
    return any(abs(float(token) - abs(n)) <= 1.01 * unit for n in NUMBERS.values())


class Watch(logging.Handler):
    """Every line of every log and every warning, by the side that it is told on."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        # By thread: the older driver asks clients at the same time.
        self.side = ContextVar("side", default="server")
        self.lines: dict[str, list[str]] = {"server": [], "client": []}
        self.setFormatter(logging.Formatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines[self.side.get()].append(self.format(record))

    @contextlib.contextmanager
    def at_client(self) -> Iterator[None]:
        before = self.side.set("client")
        try:
            yield
        finally:
            self.side.reset(before)

    def text(self, side: str) -> str:
        return "\n".join(self.lines[side])


@contextlib.contextmanager
def watching() -> Iterator[Watch]:
    """Listen to all loggers at DEBUG; Flower's own handlers are silent meanwhile."""
    watch, root, flower = Watch(), logging.getLogger(), logging.getLogger("flwr")
    before = (root.level, flower.level, flower.handlers[:], flower.propagate)
    root.addHandler(watch)
    root.setLevel(logging.DEBUG)
    flower.setLevel(logging.DEBUG)
    flower.handlers[:], flower.propagate = [], True
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield watch
        watch.lines["server"] += [str(each.message) for each in caught]
    finally:
        root.removeHandler(watch)
        root.setLevel(before[0])
        flower.setLevel(before[1])
        flower.handlers[:], flower.propagate = before[2], before[3]


class WatchedGrid(InProcessGrid):
    """A grid that knows which side is at work, and keeps everything that is sent."""

    def __init__(self, apps: list[ClientApp], watch: Watch) -> None:
        self.received: list[Message] = []

        def node(k: int, app: ClientApp) -> Any:
            context = context_of(k, len(apps))

            def handler(message: Message) -> Message:
                with watch.at_client():
                    return app(message, context)

            return handler

        super().__init__([node(k, app) for k, app in enumerate(apps)])

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        found = list(super().pull_messages(message_ids))
        self.received += found
        return found

    def told(self) -> str:
        """Return all that travelled but the numbers of arrays."""
        return "\n".join(map(_told, [*self.sent, *self.received]))


def context_of(k: int, n: int) -> Context:
    context = node_context(k, n, **SECRETS)
    context.node_config.update(SECRETS)
    return context


def _told(message: Message) -> str:
    parts = [repr(message.metadata)]
    if message.has_error():
        return f"{parts[0]} {message.error.reason}"
    for key, record in message.content.items():
        values: Any = list(record) if isinstance(record, ArrayRecord) else dict(record)
        parts.append(f"{key}: {values}")
    return " ".join(parts)
