"""Hypothesis settings and shared data for every test."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from real_data import SHARED_DATA

if TYPE_CHECKING:
    from shared_simulation import SharedSimulation

    from fedridge_flwr.app.launch import LocalSuperLink

settings.register_profile("local", deadline=None, max_examples=40)
settings.register_profile("ci", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

STARTS_RAY = ("flower/strategy.py", "flower/legacy_strategy.py")  # by their docstrings


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what cannot mark itself: notebooks, and docstrings that start Ray.

    These docstrings run first, since a process has one Ray at a time: at their end
    they would end the shared one.
    """
    for item in items:
        if item.path.suffix == ".ipynb":
            _mark_notebook(item)
        elif _starts_ray(item):
            item.add_marker(pytest.mark.ray)
    items.sort(key=lambda item: not _starts_ray(item))


def pytest_collection_finish() -> None:
    """Keep garbage collections, which Flower asks for, from looking at every test."""
    gc.freeze()


def _starts_ray(item: pytest.Item) -> bool:
    is_doctest = isinstance(item, pytest.DoctestItem)
    return is_doctest and item.path.as_posix().endswith(STARTS_RAY)


def _mark_notebook(item: pytest.Item) -> None:
    """Skip a notebook that was executed with this interface; see `make notebooks`."""
    from notebook_record import is_current

    item.add_marker(pytest.mark.ray)
    if is_current(item.path.with_suffix(".py")):
        item.add_marker(pytest.mark.skip("executed with this public interface"))


@pytest.fixture(scope="session")
def simulation() -> Iterator[SharedSimulation]:
    """One Ray simulation for all tests, as on a cluster that sets OMP_NUM_THREADS."""
    from shared_simulation import SharedSimulation

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "2")
        running = SharedSimulation()
    yield running
    running.close()


@pytest.fixture(scope="session")
def superlink() -> Iterator[LocalSuperLink]:
    """One SuperLink for every ``flwr run`` of the tests."""
    from fedridge_flwr.app.launch import local_superlink

    with local_superlink() as running:
        yield running


@pytest.fixture(autouse=True)
def nodes_come_at_once(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits to see whether more nodes connect, except where they may."""
    from clocks import Clock

    from fedridge_flwr.flower.exchange import wait_for_nodes

    if request.node.get_closest_marker("ray") is None:
        clock = Clock()
        monkeypatch.setitem(wait_for_nodes.__kwdefaults__, "clock", clock)
        monkeypatch.setitem(wait_for_nodes.__kwdefaults__, "sleep", clock.sleep)


@pytest.fixture
def work_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only who is silent is late, however slow the machine is."""
    from clocks import Clock

    from fedridge_flwr.flower import exchange

    clock = Clock()
    own = SimpleNamespace(monotonic=clock, sleep=clock.sleep)
    monkeypatch.setattr(exchange, "time", own)


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """Return a function from a data set's name to its folder; it skips if absent."""

    def folder(name: str) -> Path:
        path = SHARED_DATA / name
        if not path.is_dir():
            pytest.skip(f"the shared data set {name!r} is not beside this checkout")
        return path

    return folder
