"""Nothing of what was recorded in deployments is a failure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / name).read_text("utf-8"))
    return found


def test_every_fault_was_tried_three_times_and_none_failed() -> None:
    faults = read("faults.json")["faults"]
    assert len(faults) >= 25
    for fault, row in faults.items():
        assert row["tried"] == len(row["seconds"]) >= 3, fault
        assert row["outcomes"], fault
        assert not any("failed:" in told for told in row["outcomes"]), fault


def test_runs_left_nothing_of_ours_behind() -> None:
    found = read("soak.json")
    measured = found["measured"]
    assert found["runs"] >= 30
    assert measured["output_files"]["per_run"] == 2.0
    for kept in ("processes", "supernodes_handles", "homes_files", "temporary_files"):
        assert abs(measured[kept]["per_run"]) < 0.1, kept


def test_results_tell_nothing_of_the_machine() -> None:
    for file in RESULTS.glob("*.json"):
        text = file.read_text("utf-8")
        assert "/tmp" not in text
        assert "/home" not in text
        assert str(ROOT) not in text
