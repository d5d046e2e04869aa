"""``flwr run .`` over one CSV file for each client, in a real simulation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from real_tables import assert_is_ridge, pooled_ridge

from fedridge_flwr import RidgeModel
from fedridge_flwr.app.launch import LocalSuperLink

PROJECT = Path(__file__).resolve().parents[2]
FORMULA = "bp ~ age + C(stage) + sex"


def write_sites(folder: Path) -> pd.DataFrame:
    """Write three tables with categories and gaps; return their rows together."""
    rng, frames = np.random.default_rng(0), []
    folder.mkdir()
    for k, name in enumerate(["north", "south", "west"]):
        n = 40 + 10 * k
        frame = pd.DataFrame({"age": rng.integers(20, 90, n).astype(float)})
        frame["sex"] = rng.choice(["f", "m"], n)
        frame["stage"] = rng.choice([1, 2, 3] if k else [1, 2], n)
        frame["bp"] = (100 + 0.5 * frame["age"] + rng.normal(size=n)).round(6)
        frame.loc[:3, "age"] = np.nan
        sep, decimal = (";", ",") if k == 1 else (",", ".")
        frame.to_csv(folder / f"{name}.csv", index=False, sep=sep, decimal=decimal)
        frames.append(frame)
    return pd.concat(frames)


@pytest.mark.superlink
def test_flwr_run_over_tables(superlink: LocalSuperLink, tmp_path: Path) -> None:
    frame = write_sites(tmp_path / "sites")
    config = {"data": str(tmp_path / "sites"), "formula": FORMULA}
    config["output-dir"] = str(tmp_path / "out")
    printed = superlink.run(PROJECT, num_supernodes=3, run_config=config, echo=False)
    assert "C(stage)[T.3]" in printed
    model = RidgeModel.load(tmp_path / "out" / "model.json")
    assert_is_ridge(model, *pooled_ridge(FORMULA, frame), tolerance=1e-11)
    assert "south" in (tmp_path / "out" / "report.html").read_text("utf-8")
