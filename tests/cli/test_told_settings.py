"""What a fit says of weights, and of all else that changes its numbers."""

from __future__ import annotations

import html
import json
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_cli import run

from fedridge_flwr import FitReport, RidgeModel, TableOptions
from fedridge_flwr.data.site_files import TABLE_OPTIONS
from fedridge_flwr.flower.local_fit import LocalFit

Capsys = pytest.CaptureFixture[str]
FREQUENCIES = (
    "standard errors take the weights as numbers of rows (frequency weights), and are "
    "not for sampling weights."
)


@pytest.fixture
def sites(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    folder = tmp_path / "sites"
    folder.mkdir()
    for name, n in {"north": 60, "south": 50}.items():
        frame = pd.DataFrame({"age": rng.integers(20, 90, n)})
        frame["stage"] = np.arange(n) % 3 + 1
        frame["w"] = rng.uniform(0.5, 3.0, n).round(2)
        frame["bp"] = 100 + frame["age"] + rng.normal(size=n)
        frame["ill"] = (rng.uniform(size=n) < 0.4).astype(int)
        frame.loc[0, "age"] = -9
        frame.to_csv(folder / f"{name}.csv", index=False)
    (folder / "table.toml").write_text('missing_in = { age = ["-9"] }\n', "utf-8")
    return folder


@pytest.mark.parametrize(
    ("family", "alpha", "target", "what"),
    [
        ("gaussian", 0, "bp", "a row of weight 2 has half the variance"),
        ("gaussian", 1, "bp", "a row of weight 2 has half the variance"),
        ("binomial", 0, "ill", FREQUENCIES),
        ("binomial", 1, "ill", FREQUENCIES),
        ("poisson", 0, "stage", FREQUENCIES),
    ],
)
def test_weights_are_told(
    family: str, alpha: int, target: str, what: str, sites: Path, capsys: Capsys
) -> None:
    folder = sites.parent / "run"
    asked = ["fit", sites, "-f", f"{target} ~ age", "--weights", "w", "-o", folder]
    code, out, _ = run(capsys, *asked, "--family", family, "--alpha", alpha)
    assert code == 0
    told = f"Weighted by w: {what}"
    assert out.count(told) == 1
    assert told in (folder / "summary.txt").read_text("utf-8")
    assert (folder / "report.html").read_text("utf-8").count(told) == 1
    assert FitReport.load(folder / "report.json").settings["weights"] == "w"
    assert run(capsys, "show", folder)[1].count(told) == 1
    assert RidgeModel.load(folder / "model.json").weighted_by == "w"


@pytest.mark.parametrize("family", ["gaussian", "binomial"])
def test_weights_without_a_name_are_told(family: str) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 1)), np.arange(40) % 2
    for weight in (np.full(40, 1.5), None):
        fit = LocalFit(family=family, alpha=0.0)
        fit.run(dict.fromkeys("ab", partial(tuple, [X, y, weight])))
        weighted = weight is not None
        assert ("The rows have weights: " in fit.model_.summary()) == weighted
        assert fit.report_.settings.get("weights", "") == ("rows" if weighted else "")


def test_inference_of_a_family_tells_weights(sites: Path, capsys: Capsys) -> None:
    folder = sites.parent / "run"
    asked = ["fit", sites, "-f", "ill ~ age", "--weights", "w", "-o", folder]
    run(capsys, *asked, "--family", "binomial", "--alpha", 0)
    found = FitReport.load(folder / "report.json").inference
    assert found is not None
    assert FREQUENCIES in found.to_latex()
    assert FREQUENCIES in found.to_markdown()


def test_all_that_changes_the_numbers_is_told(sites: Path, capsys: Capsys) -> None:
    folder = sites.parent / "run"
    asked = ["fit", sites, "-f", "bp ~ age + stage", "--missing", "indicator"]
    more = ["--levels", "stage=3|2|1", "--categorical", "stage", "--weights", "w"]
    code, _, _ = run(capsys, *asked, *more, "-o", folder)
    assert code == 0
    report = FitReport.load(folder / "report.json")
    expected = {
        "missing": "indicator",
        "weights": "w",
        "levels": {"stage": ["3", "2", "1"]},
        "categorical": ["stage"],
    }
    assert expected.items() <= report.settings.items()
    options = '{ missing_in = { age = ["-9"] } }'
    assert report.about[TABLE_OPTIONS] == options
    page = html.unescape((folder / "report.html").read_text("utf-8"))
    for told in (*(f"{k}={v!r}" for k, v in expected.items()), options):
        assert told in page
    _, out, _ = run(capsys, "show", folder)
    assert f"Table options: {options}" in out
    assert "Categorical: stage" in out
    assert "Levels of stage: 3, 2, 1 (declared)" in out


def test_a_column_of_clients_is_told(sites: Path, capsys: Capsys) -> None:
    table, folder = sites.parent / "all.csv", sites.parent / "run"
    parts = [pd.read_csv(path).assign(site=path.stem) for path in sites.glob("*.csv")]
    pd.concat(parts).to_csv(table, index=False)
    asked = ["fit", table, "-f", "bp ~ age", "--client-column", "site", "-o", folder]
    assert run(capsys, *asked)[0] == 0
    about = json.loads((folder / "report.json").read_text("utf-8"))["about"]
    assert about["client column"] == "site"
    assert TABLE_OPTIONS not in about


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"missing": ["-9", 'a "b" \\ é', "\t"]},
        {"missing_in": {"body mass": [0], "ü": ["?"]}, "header": True},
        {"delimiter": "\t", "decimal": ",", "encoding": "cp1252", "columns": ["a"]},
    ],
)
def test_table_options_come_back_from_their_text(options: dict[str, object]) -> None:
    found = TableOptions.from_mapping(options)
    assert TableOptions.from_text(found.text) == found


def test_a_prediction_warns_of_codes_of_the_fit(sites: Path, capsys: Capsys) -> None:
    folder, new = sites.parent / "run", sites.parent / "new.csv"
    run(capsys, "fit", sites, "-f", "bp ~ age + stage", "-o", folder)
    frame = pd.DataFrame({"age": [41, -9, -9.0, 50], "stage": [1, 2, -9, 3]})
    frame.to_csv(new, index=False)
    asked = ["predict", folder, new, "-o", sites.parent / "predicted.csv"]
    code, _, err = run(capsys, *asked)
    assert code == 0
    assert "new.csv has -9 in 'age' in 2 rows, which was a missing value" in err
    assert "'stage'" not in err
    _, out, err = run(capsys, *asked, "--table", sites / "table.toml")
    assert "2 of them without a prediction" in out
    assert "missing value" not in err
