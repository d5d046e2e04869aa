"""Hypothesis settings and shared data for every test."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from real_data import SHARED_DATA

settings.register_profile("local", deadline=None, max_examples=40)
settings.register_profile("ci", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

STARTS_RAY = ("flower/strategy.py", "flower/legacy_strategy.py")  # by their docstrings


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what cannot mark itself: notebooks and docstrings that start Ray."""
    for item in items:
        doctest = isinstance(item, pytest.DoctestItem)
        if item.path.suffix == ".ipynb" or (
            doctest and item.path.as_posix().endswith(STARTS_RAY)
        ):
            item.add_marker(pytest.mark.ray)


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """Return a function from a data set's name to its folder; it skips if absent."""

    def folder(name: str) -> Path:
        path = SHARED_DATA / name
        if not path.is_dir():
            pytest.skip(f"the shared data set {name!r} is not beside this checkout")
        return path

    return folder
