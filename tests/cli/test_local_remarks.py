"""What a rehearsal and a check say of tables, to whoever has the tables."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_cli import run

from fedridge_flwr.cli.column_ranges import ColumnRange
from fedridge_flwr.cli.copies import copies
from fedridge_flwr.data.site_files import find_site_files

Capsys = pytest.CaptureFixture[str]


@pytest.fixture
def sites(tmp_path: Path) -> Path:
    """Return a folder with three tables; one has a level and gaps of its own."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "sites"
    folder.mkdir()
    for name, n in {"aachen": 60, "bonn": 50, "dresden": 40}.items():
        frame = pd.DataFrame(
            {"age": rng.integers(20, 90, n), "sex": ["f", "m"] * (n // 2)}
        )
        frame["bmi"] = rng.normal(27, 4, n).round(1)
        frame["bp"] = (100 + frame["age"] + rng.normal(size=n)).round(3)
        frame["visits"] = rng.poisson(2.0, n)
        if name == "dresden":
            frame.loc[:25, "bmi"] = None
            frame.loc[30:33, "sex"] = "x"
        frame.to_csv(folder / f"{name}.csv", index=False)
    return folder


# ---- remarks of sites ---------------------------------------------------------------


@pytest.mark.parametrize("more", [[], ["--family", "poisson"]])
def test_all_remarks_of_a_site_are_printed(
    more: list[str], sites: Path, capsys: Capsys
) -> None:
    target = "visits" if more else "bp"
    asked = ["fit", sites, "-f", f"{target} ~ age + bmi + sex", "--alpha", 0, *more]
    code, out, _ = run(capsys, *asked)
    assert code == 0
    assert "bmi is missing in 26 of 40 rows; only here: level 'x' of sex" in out
    (line,) = (line for line in out.splitlines() if "only here: level 'x'" in line)
    assert line.startswith("    dresden: ")
    assert "-: dresden" not in out


# ---- ends of columns ----------------------------------------------------------------


def test_a_check_shows_ends_and_codes(sites: Path, capsys: Capsys) -> None:
    table = sites / "aachen.csv"
    frame = pd.read_csv(table)
    frame.loc[[3, 9], "bmi"] = 999
    frame.loc[[4, 5, 6], "age"] = -9
    frame.loc[7, "bp"] = 9999  # once, so it may be anything
    frame.to_csv(table, index=False)
    sent = sites / "sent.json"
    _, out, _ = run(capsys, "check", table, "-f", "bp ~ age + bmi + sex", "-o", sent)
    row = next(line for line in out.splitlines() if line.startswith("| bmi"))
    assert [cell.strip() for cell in row.split("|")][1:6] == [
        *("bmi", "number", "0", f"{frame['bmi'].min():g}", "999")
    ]
    assert "(but not min and max, which are shown only here)" in out
    assert "Note: column 'bmi' has 999 in 2 rows, its largest value" in out
    assert "Note: column 'age' has -9 in 3 rows, its smallest value" in out
    assert 'write missing_in = { "age" = ["-9"] } into table.toml' in out
    assert "has 9999" not in out
    told = json.loads(sent.read_text("utf-8"))["before the fit"]
    assert set(told["columns"]["bmi"]) == {"kind", "missing", "text", "levels", "sum"}
    assert not any(told["columns"]["bmi"]["sum"])


def test_codes_that_table_toml_names_are_no_remark(sites: Path, capsys: Capsys) -> None:
    table = sites / "aachen.csv"
    frame = pd.read_csv(table)
    frame.loc[[3, 9], "bmi"] = 999
    frame.to_csv(table, index=False)
    (sites / "table.toml").write_text('missing_in = { "bmi" = ["999"] }', "utf-8")
    _, out, _ = run(capsys, "check", table, "-f", "bp ~ age + bmi")
    assert "999" not in out


@pytest.mark.parametrize("seed", range(20))
def test_ends_of_parts_are_ends_of_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 6, 30).astype(float)
    values[rng.random(30) < 0.3] = np.nan
    whole = ColumnRange.of(values)
    first, *others = np.array_split(values, 4)
    parts = sum(map(ColumnRange.of, others), start=ColumnRange.of(first))
    np.testing.assert_array_equal(parts.values, whole.values)
    np.testing.assert_array_equal(parts.counts, whole.counts)


# ---- copies -------------------------------------------------------------------------


def test_a_copy_is_remarked_upon(sites: Path, capsys: Capsys) -> None:
    shutil.copy(sites / "bonn.csv", sites / "bonn (1).csv")
    shuffled = pd.read_csv(sites / "aachen.csv").sample(frac=1.0, random_state=0)
    shuffled[sorted(shuffled)].to_parquet(sites / "essen.parquet", index=False)
    folder = sites.parent / "run"
    code, out, _ = run(capsys, "fit", sites, "-f", "bp ~ age", "-o", folder)
    assert code == 0
    assert "bonn (1), bonn sent exactly the same statistics: copies?" in out
    assert "bonn (1) (bonn (1))" not in out
    assert "client essen: aachen and essen have the same rows: is this a copy?" in out
    assert "have the same rows" in (folder / "report.html").read_text("utf-8")


def test_other_rows_are_no_copy(sites: Path) -> None:
    assert list(copies(find_site_files(sites))) == []
    frame = pd.read_csv(sites / "bonn.csv")
    frame.loc[3, "bp"] += 0.001
    frame.to_csv(sites / "bonn (1).csv", index=False)
    assert list(copies(find_site_files(sites))) == []


def test_copies_within_one_file(sites: Path) -> None:
    frame = pd.read_csv(sites / "bonn.csv")
    parts = [frame.assign(site=name) for name in ("a", "b")]
    parts.append(frame.assign(site="c", age=1))
    table = sites.parent / "all.csv"
    pd.concat(parts).to_csv(table, index=False)
    files = find_site_files(table, client_column="site")
    assert list(copies(files)) == [("a", "b")]
