"""Asking many clients at once: order, memory, and how often the grid is looked at."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from clocks import Clock
from fakes import InProcessGrid
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

import fedridge_flwr
from fedridge_flwr.flower import exchange
from fedridge_flwr.flower.exchange import ask


def constant(length: int):
    """Return a client that answers with an array of this many numbers."""
    arrays = ArrayRecord({"zeros": Array(np.zeros(length))})
    return lambda message: Message(RecordDict({"arrays": arrays}), reply_to=message)


def requests(grid: InProcessGrid) -> list[Message]:
    content = RecordDict({"config": ConfigRecord({"hello": 1})})
    return [Message(content, node, "train") for node in grid.get_node_ids()]


@pytest.mark.parametrize("clients", [1, 7, 8, 9, 250])
def test_every_client_is_heard_once(clients):
    grid = InProcessGrid([constant(1)] * clients)
    replies = list(ask(grid, requests(grid), 10.0, "test"))
    nodes = [reply.metadata.src_node_id for reply in replies]
    assert sorted(nodes) == sorted(grid.get_node_ids())


def test_few_answers_are_in_memory_when_they_are_large():
    small, large = (InProcessGrid([constant(n)] * 200) for n in (10, 1 << 19))
    for grid in (small, large):
        assert len(list(ask(grid, requests(grid), 60.0, "test"))) == 200
    assert small.largest_pull == 100
    # The first look does not know yet how large an answer is.
    assert large.largest_pull == 8


def test_answers_are_handed_on_while_somebody_is_late(monkeypatch):
    clock, pauses = Clock(), []
    monkeypatch.setattr(exchange.time, "monotonic", clock)
    monkeypatch.setattr(exchange.time, "sleep", clock.sleep)
    grid = InProcessGrid([constant(1)] * 4, late={2: 30.0})
    when = []
    for _ in ask(grid, requests(grid), 60.0, "test", lambda: pauses.append(len(when))):
        when.append(clock.now)
    assert max(when[:3]) < 1.0 < 30.0 <= when[3]
    # Whoever keeps answers is told in time, with all of them at hand.
    assert pauses[1:] == [3] * (len(pauses) - 1)


class SlowToLook(InProcessGrid):
    """A grid on a clock of its own, where a look for a late answer costs seconds."""

    clock = 0.0
    pulls = 0

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        self.pulls += 1
        self.clock += 0.5
        return [] if self.clock < 60.0 else list(super().pull_messages(message_ids))

    def sleep(self, seconds: float) -> None:
        self.clock += seconds


def test_looking_in_vain_takes_a_fifth_of_the_time(monkeypatch):
    grid = SlowToLook([constant(1)] * 4)
    monkeypatch.setattr(exchange.time, "monotonic", lambda: grid.clock)
    monkeypatch.setattr(exchange.time, "sleep", grid.sleep)
    assert len(list(ask(grid, requests(grid), 1000.0, "test"))) == 4
    assert grid.pulls * 0.5 <= 0.22 * grid.clock
    assert grid.clock < 66.0


def test_the_last_pause_ends_with_the_timeout(monkeypatch):
    grid = SlowToLook([constant(1)])
    monkeypatch.setattr(exchange.time, "monotonic", lambda: grid.clock)
    monkeypatch.setattr(exchange.time, "sleep", grid.sleep)
    assert list(ask(grid, requests(grid), 7.0, "test")) == []
    assert grid.clock <= 7.0 + 2 * 0.5


def test_nothing_waits_by_a_clock_that_may_be_set() -> None:
    """Certificates, releases and uploads have dates; nobody computes with them."""
    package = Path(fedridge_flwr.__file__).parent
    wall = re.compile(r"\btime\.time(_ns)?\(|\bfrom time import|\bdatetime\b.*\bnow\(")
    looking = {
        file.relative_to(package).as_posix()
        for file in package.rglob("*.py")
        if wall.search(file.read_text("utf-8"))
    }
    uploads = {
        "federation/site/upload_history.py",
        "federation/ledger/ledger_storage.py",
    }
    assert looking == {"app/credentials.py", "privacy/ledger.py"} | uploads
