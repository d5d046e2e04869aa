"""The benchmark of engines measures what it says; its committed numbers hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedridge_benchmarks import engines
from fedridge_benchmarks.report import Results, table

COMMITTED = Path(__file__).parents[2] / "benchmarks" / "results" / "engines"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("engines")
    engines.write_files(found, 2000, engines.FEATURES)
    return found


def test_files_have_the_rows_that_are_told(folder: Path) -> None:
    found = engines._measured("pandas", folder)
    assert found["statistics"][0] == 2000
    assert found["peak"] > 0 < found["seconds"]


@pytest.mark.parametrize("way", ["polars", "pyarrow", "duckdb", "client app"])
def test_every_way_has_the_same_statistics(way: str, folder: Path) -> None:
    if way in ("duckdb", "client app"):
        pytest.importorskip("duckdb", reason="make test-engines")
    found, expected = (engines._measured(each, folder) for each in (way, "pandas"))
    assert engines._distance(found, expected) < 1e-13


def test_another_row_shows_in_the_distance(folder: Path) -> None:
    found, expected = (engines._measured("pyarrow", folder) for _ in range(2))
    numbers: Any = np.array(found["statistics"])
    numbers[1] += 1e-9
    assert engines._distance({"statistics": numbers}, expected) > 1e-10


def test_the_committed_numbers_are_on_the_right_side_of_their_limits() -> None:
    results = Results.read(COMMITTED)
    assert [ratio.what for ratio in results.ratios if not ratio.holds] == []
    limits = [ratio.limit for ratio in results.ratios]
    assert limits == [2.0, 800.0, 1e-13] * 3 + [1000.0, 1e-12]
    shown = (COMMITTED / "table.md").read_text(encoding="utf-8")
    assert f"{table(results.ratios, results.machine)}\n" == shown
