"""A federation for every test, gone afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from deployed import Deployed
from fedridge_deployment.demo import APPS, write_sites
from fedridge_deployment.federation import federation, write_app

HERE = Path(__file__).resolve().parent


@pytest.fixture
def deployed(tmp_path: Path) -> Iterator[Deployed]:
    """A SuperLink without sites, data for five of them, and the app with gates."""
    app = write_app(
        APPS / "sites", tmp_path / "app", clientapp="sites.gated_client:app"
    )
    shutil.copy(HERE / "gated_client.py", app / "sites" / "gated_client.py")
    data = write_sites(tmp_path / "data", 5)
    with federation(tmp_path) as running:
        yield Deployed(running, tmp_path, data, app)
