"""Real tables as their owners keep them, against scikit-learn on all rows at once.

Hospitals without a header and with '?' for what is missing, stations with categories
and gaps, schools and counties of which a policy refuses the tiny ones.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fakes import run_app
from formulaic import Formula
from real_tables import (
    BEIJING,
    HEART,
    HEART_TABLE,
    assert_is_ridge,
    beijing_frame,
    heart_frame,
    pooled_ridge,
)
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from fedridge_flwr import RidgeModel, SitePolicy, TableFormula
from fedridge_flwr.app.client_app import app as client_app
from fedridge_flwr.app.server_app import app as server_app
from fedridge_flwr.cli.main import main
from fedridge_flwr.data.site_files import find_site_files
from fedridge_flwr.federation.answering.respond import Guards
from fedridge_flwr.flower.local_fit import LocalFit

Folder = Callable[[str], Path]


def fedridge(*arguments: object) -> int:
    """Run the command as a person does, and return its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["fedridge", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
    return int(end.value.code or 0)


# ---- heart_disease: four hospitals ---------------------------------------------------


@pytest.fixture
def hospitals(shared_data: Folder, tmp_path: Path) -> tuple[str, Path]:
    """Return a pattern of the four files as they are, and the TOML file for them."""
    table = tmp_path / "table.toml"
    table.write_text(HEART_TABLE, encoding="utf-8")
    return str(shared_data("heart_disease") / "processed.*.data"), table


@pytest.mark.parametrize("missing", ["drop", "mean"])
def test_four_hospitals_are_the_pooled_fit_by_command_and_by_flower(
    hospitals: tuple[str, Path], shared_data: Folder, tmp_path: Path, missing: str
) -> None:
    data, table = hospitals
    run = tmp_path / "run"
    told = ("--table", table, "--missing", missing, "-o", run)
    assert fedridge("fit", data, "-f", HEART, *told) == 0
    flower = tmp_path / "flower"
    config = {"data": data, "table": str(table), "formula": HEART, "missing": missing}
    config["output-dir"] = str(flower)
    run_app(server_app, client_app, 4, config, as_bytes=True)

    model = RidgeModel.load(run / "model.json")
    frame = heart_frame(shared_data("heart_disease"))
    if missing == "mean":
        frame = frame.fillna({c: frame[c].mean() for c in ("trestbps", "oldpeak")})
    assert_is_ridge(model, *pooled_ridge(HEART, frame), tolerance=1e-11)
    assert model.n_clients_ == 4

    federated = RidgeModel.load(flower / "model.json")
    assert federated.coding == model.coding
    np.testing.assert_allclose(federated.coef_, model.coef_, rtol=0, atol=1e-13)
    assert federated.intercept_ == pytest.approx(model.intercept_, rel=1e-13)
    for page in (run / "report.html", flower / "report.html"):
        text = page.read_text("utf-8")
        for expected in ("cleveland", "switzerland", "C(cp)[T.4]", "</html>"):
            assert expected in text


def test_new_patients_are_predicted_as_a_pooled_pipeline_does(
    hospitals: tuple[str, Path], shared_data: Folder, tmp_path: Path
) -> None:
    data, table = hospitals
    assert fedridge("fit", data, "-f", HEART, "--table", table, "-o", tmp_path) == 0
    columns = TableFormula(HEART).columns
    categories = ["sex", "cp", "restecg", "exang"]
    known = heart_frame(shared_data("heart_disease"))[[*columns, "thalach"]].dropna()
    pipeline = make_pipeline(
        make_column_transformer(
            (OneHotEncoder(drop="first"), categories), remainder="passthrough"
        ),
        Ridge(alpha=1.0),
    ).fit(known[list(columns)], known["thalach"])

    rng = np.random.default_rng(0)
    new = pd.DataFrame({c: rng.choice(known[c], 500) for c in reversed(columns)})
    new["age"] += rng.normal(size=500)
    rows, out = tmp_path / "new" / "rows.csv", tmp_path / "out.csv"
    rows.parent.mkdir()  # another place: table.toml is for tables beside it
    # Written with commas by somebody else: "1,0" is the level 1 as well.
    new.to_csv(rows, sep=";", decimal=",", index=False)
    assert fedridge("predict", tmp_path / "model.json", rows, "-o", out) == 0
    np.testing.assert_allclose(
        pd.read_csv(out)["predicted_thalach"],
        pipeline.predict(new[list(columns)]),
        rtol=0,
        atol=1e-10,
    )


# ---- beijing_air: twelve stations, 420,768 rows --------------------------------------


def test_twelve_stations_are_the_pooled_fit(
    shared_data: Folder, tmp_path: Path
) -> None:
    folder = shared_data("beijing_air")
    # The folder alone would not do: it has a text file beside the tables.
    assert fedridge("fit", folder / "PRSA*.gz", "-f", BEIJING, "-o", tmp_path) == 0
    model = RidgeModel.load(tmp_path / "model.json")
    frame = beijing_frame(folder)
    assert len(frame) == 420_768
    assert_is_ridge(model, *pooled_ridge(BEIJING, frame), tolerance=1e-11)
    assert model.n_clients_ == 12
    assert (tmp_path / "report.html").exists()


def test_two_stations_are_the_pooled_fit_by_command_and_by_flower(
    shared_data: Folder, tmp_path: Path
) -> None:
    folder = shared_data("beijing_air")
    data = folder / "PRSA_Data_D*_20130301-20170228.csv.gz"
    assert fedridge("fit", data, "-f", BEIJING, "-o", tmp_path / "run") == 0
    model = RidgeModel.load(tmp_path / "run" / "model.json")
    frame = beijing_frame(folder, "D*")
    assert_is_ridge(model, *pooled_ridge(BEIJING, frame), tolerance=1e-11)

    config = {"data": str(data), "formula": BEIJING}
    config["output-dir"] = str(tmp_path / "flower")
    run_app(server_app, client_app, 2, config)
    federated = RidgeModel.load(tmp_path / "flower" / "model.json")
    np.testing.assert_allclose(federated.coef_, model.coef_, rtol=0, atol=1e-13)


# ---- exam_ilea and radon_mn: a policy refuses the tiny ones --------------------------

EXAM = "normexam ~ standLRT + schavg + sex + intake + vr + type"
RADON = "`log.radon` ~ basement + uranium"


def refused_by(policy: SitePolicy, formula: str, rows: pd.DataFrame) -> bool:
    """Whether a policy refuses these rows, as its documentation says, by pandas."""
    design = Formula(formula).get_model_matrix(rows, ensure_full_rank=False)
    coded = pd.concat([design.rhs.drop(columns="Intercept"), design.lhs], axis=1)
    text = rows[[c for c in rows if rows[c].dtype.kind in "OTU" and c in formula]]
    others = [len(rows) - coded[c].value_counts().max() for c in coded]
    levels = [count for c in text for count in text[c].value_counts()]
    few = policy.min_rows_per_level
    return len(rows) < policy.min_rows or any(
        0 < count < few for count in [*others, *levels]
    )


def too_wide(policy: SitePolicy, width: int, rows: pd.DataFrame) -> bool:
    return width > (policy.max_columns_per_row or np.inf) * len(rows)


@pytest.mark.parametrize("preset", [3, 10])
@pytest.mark.parametrize(
    ("data", "file", "formula", "column", "width"),
    [
        ("exam_ilea", "Exam.csv", EXAM, "school", 9),
        ("radon_mn", "radon.csv", RADON, "county", 3),
    ],
)
def test_a_policy_refuses_tiny_sites_by_name_and_the_rest_is_exact(
    shared_data: Folder,
    data: str,
    file: str,
    formula: str,
    column: str,
    width: int,
    preset: int,
) -> None:
    path = shared_data(data) / file
    policy = SitePolicy.preset(preset)
    sites = {f.name: f.open for f in find_site_files(path, client_column=column)}
    fit = LocalFit(alpha=1.0, formula=formula)
    fit.run(sites, Guards(policies=(policy,)))

    frame = pd.read_csv(path)
    groups = {str(name): rows for name, rows in frame.groupby(column)}
    expected = {
        name
        for name, rows in groups.items()
        if refused_by(policy, formula, rows) or too_wide(policy, width, rows)
    }
    assert set(sites) == set(groups)
    assert 0 < len(expected) < len(groups)
    assert fit.report_.failures == dict.fromkeys(expected, "declined by site policy.")
    rest = frame[~frame[column].astype(str).isin(expected)]
    assert fit.model_.n_rows_ == len(rest)
    assert_is_ridge(fit.model_, *pooled_ridge(formula, rest), tolerance=1e-11)


def test_the_command_names_the_schools_that_were_refused(
    shared_data: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, policy = shared_data("exam_ilea") / "Exam.csv", tmp_path / "site.toml"
    policy.write_text("preset = 3\n", encoding="utf-8")
    told = ("-f", EXAM, "--client-column", "school", "--policy", policy)
    assert fedridge("fit", path, *told, "-o", tmp_path / "run") != 0
    assert "No model: 12 of 65 sites cannot take part" in capsys.readouterr().err
    assert fedridge("fit", path, *told, "--no-strict", "-o", tmp_path / "run") == 0
    printed = capsys.readouterr().out
    assert "OF 65 CLIENTS" in printed
    for school in ("48", "54"):  # two and eight pupils
        told = rf"  clients .*\b{school}\b.*: declined by site policy"
        assert re.search(told, printed)


# ---- communities_crime: 46 states, 122 columns, '?' ----------------------------------


def test_states_with_gaps_are_the_pooled_pipeline_with_means(
    shared_data: Folder, tmp_path: Path
) -> None:
    folder = shared_data("communities_crime")
    text = (folder / "communities.names").read_text()
    names = re.findall(r"^@attribute (\S+)", text, re.MULTILINE)
    table = tmp_path / "table.toml"
    table.write_text(f"columns = {names}\n", encoding="utf-8")
    *features, target = names[5:]
    formula = TableFormula.of(target, features, missing="mean")
    files = find_site_files(
        folder / "communities.data", client_column="state", table=table
    )
    sites: dict[str, Any] = {file.name: file.open for file in files}
    fit = LocalFit(alpha=1.0, formula=formula).run(sites)

    frame = pd.read_csv(
        folder / "communities.data", header=None, names=names, na_values="?"
    )
    size = frame.groupby("state")["state"].transform("size")
    alone = set(frame["state"][size == 1].astype(str))  # one row is never sent
    assert set(fit.report_.failures) == alone
    assert len(alone) == 3
    frame = frame[size > 1]
    assert frame[features].isna().any(axis=None)
    pipeline = make_pipeline(SimpleImputer(), Ridge(alpha=1.0, solver="svd"))
    ridge = pipeline.fit(frame[features], frame[target])[-1]
    assert fit.model_.n_clients_ == 43
    assert len(features) == 122
    assert_is_ridge(fit.model_, ridge, features, tolerance=1e-11)
