"""The app of this repository in a deployment: every site has a table of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from deployed import read_report
from fedridge_deployment.federation import Federation, federation
from real_data import SHARED_DATA
from real_tables import (
    HEART,
    HEART_COLUMNS,
    HEART_TABLE,
    HOSPITALS,
    assert_is_ridge,
    heart_frame,
    pooled_ridge,
)

from fedridge_flwr import RidgeModel

pytestmark = [pytest.mark.deployment, pytest.mark.slow]

PROJECT = Path(__file__).resolve().parents[2]


def write_hospitals(folder: Path) -> None:
    """Write files like those of the four hospitals, where these are not at hand."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    levels = {"sex": 2, "cp": 4, "restecg": 3, "exang": 2}
    for name in HOSPITALS:
        frame = pd.DataFrame(rng.normal(50, 9, (90, 14)), columns=HEART_COLUMNS)
        for column, number in levels.items():
            frame[column] = rng.integers(0, number, 90)
        frame.loc[:4, "trestbps"] = np.nan
        path = folder / f"processed.{name}.data"
        frame.to_csv(path, header=False, index=False, na_rep="?")


def test_hospitals_name_their_own_tables_and_nobody_else_does(tmp_path: Path) -> None:
    folder = SHARED_DATA / "heart_disease"
    if not folder.is_dir():
        folder = tmp_path / "heart"
        write_hospitals(folder)
    table, policy = tmp_path / "table.toml", tmp_path / "policy.toml"
    table.write_text(HEART_TABLE, encoding="utf-8")
    policy.write_text("preset = 3\n", encoding="utf-8")
    told = {"table": str(table), "policy": str(policy)}
    with federation(tmp_path) as running:
        for name in HOSPITALS:
            path = folder / f"processed.{name}.data"
            running.add_site(name, path, node_config=told)
        running.wait_for()
        config = {"formula": HEART, "output-dir": str(tmp_path / "out")}
        running.run(PROJECT, config)
        model = RidgeModel.load(tmp_path / "out" / "model.json")
        ridge = pooled_ridge(HEART, heart_frame(folder))
        assert_is_ridge(model, *ridge, tolerance=1e-11)
        assert model.n_clients_ == 4
        assert (tmp_path / "out" / "report.html").exists()
        _no_server_chooses_a_file(running, folder, tmp_path)


def _no_server_chooses_a_file(
    running: Federation, folder: Path, tmp_path: Path
) -> None:
    """A site without a table declines, whatever file the run-config names."""
    naive = running.sites["va"]
    naive.stop()
    naive.node_config = {"data": ""}
    naive.start()
    running.wait_for()
    config = {"formula": HEART, "output-dir": str(tmp_path / "without")}
    config |= {"data": str(folder / "processed.*.data"), "strict": False}
    running.run(PROJECT, config)
    report = read_report(tmp_path / "without")
    assert list(report["failures"]) == [running.node_ids["va"]]
    others = heart_frame(folder, HOSPITALS[:3])
    model = RidgeModel.load(tmp_path / "without" / "model.json")
    assert_is_ridge(model, *pooled_ridge(HEART, others), tolerance=1e-11)
