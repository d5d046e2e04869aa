"""The app of the deployment guide: what `min-sites` and `strict` promise."""

from __future__ import annotations

import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fakes import InProcessGrid, node_context

from fedridge_flwr import (
    FedRidgeError,
    IncompleteFitError,
    NotEnoughClientsError,
    RidgeModel,
)

APP = Path(__file__).resolve().parents[2] / "deployment" / "sites"
SERVERS = ["server_app", "server_app_legacy"]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(APP))
    yield
    for name in [n for n in sys.modules if n.partition(".")[0] == "sites"]:
        del sys.modules[name]


def write(folder: Path, sites: int, broken: tuple[int, ...]) -> list[Path]:
    files = []
    for k in range(sites):
        values = np.random.default_rng(k).normal(size=(30, 3))
        frame = pd.DataFrame(values, columns=["a", "b", "y"])
        if k in broken:
            frame.loc[4, "a"] = np.nan  # one empty cell
        files.append(folder / f"site-{k}.csv")
        frame.to_csv(files[-1], index=False)
    return files


def run(server: str, folder: Path, sites: int, broken: Any = (), **told: Any) -> Path:
    """Run the app as ``flwr run`` would, and return the folder with its results."""
    project = tomllib.loads((APP / "pyproject.toml").read_text("utf-8"))
    output = folder / "result"
    config = project["tool"]["flwr"]["app"]["config"] | {"output-dir": str(output)}
    config["wait-for"] = sites
    config |= {key.replace("_", "-"): value for key, value in told.items()}
    client = import_module("sites.client_app").app

    def node(k: int, file: Path) -> Any:
        context = node_context(k, sites, **config)
        context.node_config["data"] = str(file)
        return lambda message: client(message, context)

    files = write(folder, sites, tuple(broken))
    grid = InProcessGrid([node(k, file) for k, file in enumerate(files)])
    import_module(f"sites.{server}").app(grid, node_context(0, sites, **config))
    return output


@pytest.mark.parametrize("server", SERVERS)
def test_all_sites_are_in_the_model(server, tmp_path):
    output = run(server, tmp_path, 3, min_sites=3)
    assert RidgeModel.load(output / "model.json").n_clients_ == 3
    assert (output / "report.json").exists()


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("strict", [True, False])
def test_one_empty_cell_makes_no_model_of_fewer_than_min_sites(
    server, strict, tmp_path
):
    with pytest.raises(NotEnoughClientsError, match="1 valid answer, at least 2"):
        run(server, tmp_path, 2, broken=[1], strict=strict)
    assert not (tmp_path / "result").exists()


@pytest.mark.parametrize("server", SERVERS)
def test_strict_is_the_default_and_can_be_switched_off(server, tmp_path):
    with pytest.raises(IncompleteFitError, match="3 OF 4 CLIENTS, 90 ROWS"):
        run(server, tmp_path, 4, broken=[2])
    assert not (tmp_path / "result").exists()
    output = run(server, tmp_path, 4, broken=[2], strict=False, min_sites=3)
    assert RidgeModel.load(output / "model.json").n_clients_ == 3


def test_a_secure_sum_of_two_sites_is_refused_before_any_round(tmp_path):
    with pytest.raises(FedRidgeError, match="the secure sum needs 3 clients"):
        run("server_app", tmp_path, 2, secure=True)
