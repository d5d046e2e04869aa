"""A federation for every test, gone afterwards."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from deployed import Deployed
from faulty import N_SITES, RESULTS, Faulty, Record, machine_environment
from fedridge_deployment.demo import APPS, write_sites
from fedridge_deployment.federation import federation, write_app

HERE = Path(__file__).resolve().parent
# Parts of other programs, not modules with doctests.
collect_ignore = ["gated_client.py", "hostile", "machine"]


@pytest.fixture
def deployed(tmp_path: Path) -> Iterator[Deployed]:
    """A SuperLink without sites, data for five of them, and the app with gates."""
    app, data = gated_app(tmp_path), write_sites(tmp_path / "data", 5)
    with federation(tmp_path) as running:
        yield Deployed(running, tmp_path, data, app)


@pytest.fixture(scope="module")
def five_sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    """A federation for all faults of a module: starting one takes half a minute."""
    folder = tmp_path_factory.mktemp("faults")
    app, data = gated_app(folder), write_sites(folder / "data", N_SITES)
    with pytest.MonkeyPatch.context() as patch:
        machine = folder / "machines" / "superlink"
        for key, value in machine_environment(machine).items():
            patch.setenv(key, value)
        with federation(folder) as running:
            faulty = Faulty(running, folder, data, app)
            for k in range(N_SITES):
                faulty.start(k)
            running.wait_for()
            yield faulty


@pytest.fixture
def faulty(five_sites: Faulty) -> Faulty:
    """The same federation, with everything in order."""
    five_sites.heal()
    return five_sites


@pytest.fixture(scope="session")
def record() -> Record:
    """A record in docs/results, if it is wanted."""
    return Record(RESULTS if os.environ.get("FAULT_RECORD") else None)


def gated_app(folder: Path) -> Path:
    app = write_app(APPS / "sites", folder / "app", clientapp="sites.gated_client:app")
    shutil.copy(HERE / "gated_client.py", app / "sites" / "gated_client.py")
    return app
