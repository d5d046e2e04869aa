"""Slow: two hundred SuperNodes, all of them, every time (`make soak`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedridge_flwr.app.launch import local_superlink

pytestmark = [pytest.mark.slow, pytest.mark.superlink]

PYPROJECT = """
[project]
name = "soak"
version = "1.0.0"
description = ""
license = "Apache-2.0"
dependencies = ["flwr"]

[tool.flwr.app]
publisher = "fedridge"

[tool.flwr.app.components]
serverapp = "soak.app:server_app"
clientapp = "soak.app:client_app"

[tool.flwr.app.config]
minimum = 0
output = ""
"""

APP = """
from pathlib import Path

import numpy as np
from flwr.serverapp import ServerApp

from fedridge_flwr import FedRidge, ridge_client_app


def load_data(context):
    rng = np.random.default_rng(context.node_config["partition-id"])
    X = rng.normal(size=(20, 10))
    return X, X.sum(axis=1)


client_app = ridge_client_app(load_data)
server_app = ServerApp()


@server_app.main()
def main(grid, context):
    strategy = FedRidge(min_available_nodes=context.run_config["minimum"] or None)
    strategy.start(grid, timeout=120)
    Path(context.run_config["output"]).write_text(strategy.report_.to_json())
"""


@pytest.mark.parametrize("minimum", [200, 0], ids=["min_available_nodes", "stable"])
def test_two_hundred_supernodes_contribute_ten_times_of_ten(
    tmp_path: Path, minimum: int
) -> None:
    (tmp_path / "soak").mkdir()
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    (tmp_path / "soak" / "__init__.py").touch()
    (tmp_path / "soak" / "app.py").write_text(APP)
    counts = []
    with local_superlink() as superlink:
        for attempt in range(10):
            output = tmp_path / f"report-{attempt}.json"
            config = {"minimum": minimum, "output": str(output)}
            superlink.run(tmp_path, num_supernodes=200, run_config=config, echo=False)
            report = json.loads(output.read_text())
            counts.append(len(report["participants"]))
            print(f"run {attempt + 1}: {counts[-1]} of 200, {report['seconds']}")
    assert counts == [200] * 10
