"""Inference read from report.json is what was saved, or says what it has not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from fits import run_fit

from fedridge_flwr import FedRidgeError, FitReport, read_table
from fedridge_flwr.regression import wald_test


def sites(d: int = 2, n: int = 80) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    found = {}
    for k in range(3):
        X = rng.normal(size=(n, d))
        y = (X[:, 0] + rng.normal(size=n) > 0).astype(float)
        names = [f"column {j}" for j in range(d)]
        found[f"site-{k}"] = pd.DataFrame(X, columns=names), pd.DataFrame({"ill": y})
    return found


def saved(path: Path, report: FitReport) -> Any:
    report.save(path / "report.json")
    return FitReport.load(path / "report.json")


@pytest.mark.parametrize("options", [{}, {"fit_intercept": False}], ids=str)
def test_predictions_and_tests_are_those_of_the_fit(
    options: Any, tmp_path: Path
) -> None:
    run = run_fit(sites(), alpha=0.0, **options)
    fresh: Any = run.report.inference
    loaded = saved(tmp_path, run.report).inference
    assert loaded.to_dict() == fresh.to_dict()
    X = np.random.default_rng(1).normal(size=(5, 2))
    for name in ("se", "confidence_interval", "prediction_interval"):
        wanted = getattr(fresh.predict(X), name)
        np.testing.assert_array_equal(getattr(loaded.predict(X), name), wanted)
    terms = ["column 0", "column 1"]
    assert wald_test(loaded, terms) == wald_test(fresh, terms)


def test_of_many_odds_ratios_the_variances_are_kept(tmp_path: Path) -> None:
    run = run_fit(sites(110, 500), alpha=0.0, family="binomial")
    fresh, loaded = run.report.inference, saved(tmp_path, run.report).inference
    np.testing.assert_array_equal(loaded.se, fresh.se)
    np.testing.assert_array_equal(loaded.ratios(), fresh.ratios())
    beside = ~np.eye(111, dtype=bool)
    assert np.isnan(loaded.covariance[beside]).all()


def test_without_the_covariance_there_is_an_error_and_no_nan(tmp_path: Path) -> None:
    d = 120
    found = saved(tmp_path, run_fit(sites(d), alpha=0.0).report).inference
    np.testing.assert_array_equal(found.coefficients.shape, (d + 1,))
    for asked in (
        lambda: found.predict(np.zeros((1, d))),
        lambda: wald_test(found, ["column 1"]),
        lambda: found.covariance_matrix,
    ):
        with pytest.raises(FedRidgeError, match="without the covariance"):
            asked()


@pytest.mark.parametrize(
    ("family", "ratio"), [("binomial", "odds ratio"), ("poisson", "rate ratio")]
)
def test_a_family_has_tables_and_a_figure(
    family: str, ratio: str, tmp_path: Path
) -> None:
    run = run_fit(sites(), family=family, alpha=0.0)
    found, fresh = saved(tmp_path, run.report).inference, run.model.inference()
    assert found.summary() == fresh.summary()
    assert found.bic == pytest.approx(fresh.aic + (np.log(240) - 2) * 3)
    first = f"{fresh.ratios()[1, 0]:.4g}"
    for text in (found.to_markdown(), found.to_latex(), found._repr_html_()):
        assert ratio in text
        assert first in text
    assert r"\toprule" in found.to_latex()
    axis = found.plot().axes[0]
    assert axis.get_xscale() == "log"
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert labels == ["column 0", "column 1"]
    with pytest.raises(FedRidgeError, match="no such terms"):
        found.plot(["dose"])


def test_a_family_with_a_penalty_says_why_there_is_none(tmp_path: Path) -> None:
    report = saved(tmp_path, run_fit(sites(), family="binomial", alpha=1.0).report)
    assert report.inference is None
    assert "alpha=1" in report.standard_errors.not_known


def test_read_table_tells_that_there_is_no_intercept() -> None:
    frame = pd.DataFrame({"bp": [1.0, 2.0, 4.0], "age": [1.0, 2.0, 3.0]})
    read_table(frame, "bp ~ age")
    with pytest.warns(UserWarning, match="fit_intercept=False"):
        read_table(frame, "bp ~ 0 + age")


@pytest.mark.parametrize(("shift", "differs"), [(9.0, True), (0.0, False)])
def test_intercepts_of_sites_are_tested(
    shift: float, differs: bool, tmp_path: Path
) -> None:
    rng, frames = np.random.default_rng(1), {}
    for k in range(3):
        X = pd.DataFrame(rng.normal(size=(40, 2)), columns=["a", "b"])
        y = pd.DataFrame({"y": X["a"] + rng.normal(size=40) + shift * k})
        frames[f"site-{k}"] = X, y
    report = run_fit(frames, alpha=0.0).report
    told = report.comparison.intercepts
    rows = pd.concat([X.assign(y=y, g=k) for k, (X, y) in frames.items()])
    full = smf.ols("y ~ a + b + C(g)", rows).fit()
    value, p, _ = full.compare_f_test(smf.ols("y ~ a + b", rows).fit())
    assert told.startswith("site intercepts differ: ") == differs
    assert f"F(2, 115) = {value:.4g}, " in told
    assert ("see fixed_site_effects" in told) == differs == (p < 0.05)
    assert f"  {told}\n" in f"{report}\n"
    assert told[1:] in report.to_html().replace("&lt;", "<")
    assert saved(tmp_path, report).comparison.intercepts == told
    assert not run_fit(frames, alpha=1.0).report.comparison.intercepts
