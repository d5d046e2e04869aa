"""The page of logistic and Poisson regression, from model.json and report.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fits import run_fit

from fedridge_flwr.federation.reporting import run_folder
from fedridge_flwr.federation.reporting.run_folder import page_from_folder, write_run

PENALTY = "No standard errors: the fit has a penalty. Use alpha 0."


def sites(classes: int = 2) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    found = {}
    for k in range(3):
        X = rng.normal(size=(80, 2))
        y = (X[:, 0] + rng.normal(size=80) > 0) * rng.integers(1, classes, 80)
        frame = pd.DataFrame(X, columns=["age", "dose"])
        found[f"site-{k}"] = frame, pd.DataFrame({"ill": y})
    return found


def page_of(folder: Path, classes: int = 2, **options: Any) -> tuple[str, Any]:
    run = run_fit(sites(classes), **options)
    page = write_run(folder, run).read_text("utf-8")
    assert page_from_folder(folder) == page
    return page, run


@pytest.mark.parametrize(
    ("family", "title", "ratio"),
    [
        ("binomial", "Logistic regression of ill", "Odds ratio"),
        ("poisson", "Poisson regression of ill", "Rate ratio"),
    ],
)
def test_standard_errors_and_ratios_are_shown(
    family: str, title: str, ratio: str, tmp_path: Path
) -> None:
    page, run = page_of(tmp_path, family=family, alpha=0.0)
    assert f"<h1>{title}</h1>" in page
    assert ratio in page
    assert "need full statistics" not in page
    assert "R² (these rows)" not in page
    assert "D² (deviance explained)" in page
    assert f"{run.model.d2_:#.4g}" in page
    for end in run.model.inference().ratios()[1]:
        assert f"<td>{end:#.4g}" in page or f">{end:#.4g}<" in page
    assert run.report.to_dict()["inference"]["family"] == family


def test_with_a_penalty_the_reason_is_told(tmp_path: Path) -> None:
    page, _ = page_of(tmp_path, family="binomial", alpha=1.0)
    assert PENALTY in page
    assert "need full statistics" not in page


def test_an_outcome_of_several_values_has_a_page(tmp_path: Path) -> None:
    page, run = page_of(tmp_path, classes=5, family="binomial", alpha=0.0)
    assert "Coefficients of class 2" in page
    assert "And 2 more classes" in page
    assert "the outcome has 5 classes" in page
    told = (
        "ill has 5 values: one class against the rest is fitted. For a yes/no outcome "
        "make a column of 0 and 1."
    )
    assert told in run.report.advice
    assert told in str(run.report)
    assert told in page


def test_two_classes_need_no_advice() -> None:
    assert "values" not in run_fit(sites(), family="binomial").report.advice


def test_a_page_that_fails_leaves_no_half_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> str:
        raise IndexError

    monkeypatch.setattr(run_folder, "report_page", fails)
    with pytest.raises(IndexError):
        write_run(tmp_path / "run", run_fit(sites(), family="binomial"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("family", "name"), [("binomial", "odds"), ("poisson", "rate")]
)
def test_the_table_has_intervals_of_the_ratios(family: str, name: str) -> None:
    found = run_fit(sites(), family=family, alpha=0.0).model.inference()
    frame = found.tidy()
    for end in ("low", "high"):
        ratios = frame[f"{name}.ratio.{end}"]
        np.testing.assert_allclose(ratios, np.exp(frame[f"conf.{end}"]))
    np.testing.assert_allclose(frame[f"{name}.ratio"], np.exp(found.coefficients))
