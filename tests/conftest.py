"""Hypothesis settings and shared data for every test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
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


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """Return a function from a data set's name to its folder; it skips if absent."""

    def folder(name: str) -> Path:
        path = SHARED_DATA / name
        if not path.is_dir():
            pytest.skip(f"the shared data set {name!r} is not beside this checkout")
        return path

    return folder
