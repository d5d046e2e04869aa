"""`fedridge check` and `fedridge fit` agree on who takes part."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from fedridge_flwr.cli.check import check_site
from fedridge_flwr.cli.fit import fit_tables
from fedridge_flwr.data.formula import TableFormula
from fedridge_flwr.errors import FedRidgeError
from fedridge_flwr.federation.site.disclosure import SitePolicy
from fedridge_flwr.federation.site.presets import PRESETS

FAMILIES = ("gaussian", "binomial", "poisson")
USUAL = '"table", "statistics", "classes"'
# Three are large: preset 10 asks for three sites in every round.
SIZES = {"one": 1, "tiny": 4, "small": 9, "large": 60, "larger": 90, "huge": 120}


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sites")
    rng = np.random.default_rng(0)
    for name, n in SIZES.items():
        frame = pd.DataFrame(
            {"age": rng.integers(20, 90, n), "dose": rng.normal(size=n)}
        )
        frame["ill"] = (np.arange(n) % 3 == 0).astype(int)
        frame.to_csv(folder / f"{name}.csv", index=False)
    rare = pd.DataFrame({"age": rng.integers(20, 90, 60), "dose": rng.normal(size=60)})
    rare["ill"] = [1, 1, *[0] * 58]
    rare.to_csv(folder / "rare.csv", index=False)
    return folder


def policies() -> list[str]:
    found = ["min_rows = 2", "min_rows_per_level = 3"]
    for k in PRESETS:
        found.append(f"preset = {k}")
        more = f'[{USUAL}, "families", "residuals", "leverages"]'
        found.append(f"preset = {k}\noverride = true\nrequests = {more}")
    found.append(f'requests = [{USUAL}, "residuals"]')
    found.append('requests = ["table", "families"]')
    return found


def in_fit(data: Path, formula: TableFormula, **options: object) -> SimpleNamespace:
    """Return who takes part, and who sends residuals."""
    try:
        report = fit_tables(str(data), formula, strict=False, **options).report_
    except FedRidgeError:  # nobody takes part
        return SimpleNamespace(inside=set(), residuals={})
    inside = {report.name_of(client) for client in report.participants}
    return SimpleNamespace(inside=inside, residuals=report.residual_failures)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("text", policies())
def test_check_and_fit_agree(
    family: str, text: str, sites: Path, tmp_path: Path
) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(text, "utf-8")
    formula, rules = TableFormula("ill ~ age + dose"), SitePolicy.load(file)
    found = in_fit(sites, formula, policy=file, family=family)
    for path in sorted(sites.glob("*.csv")):
        told = check_site(path, formula, policy=rules, family=family)
        assert (not told.refusals) == (path.stem in found.inside), told.text()
        assert ("This site would take part." in told.text()) == (not told.refusals)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["CR1", "HC0", "HC3"])
@pytest.mark.parametrize("text", ["preset = 3", *policies()[-2:], policies()[3]])
def test_they_agree_on_residuals(
    kind: str, text: str, sites: Path, tmp_path: Path
) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(text, "utf-8")
    formula, rules = TableFormula("dose ~ age"), SitePolicy.load(file)
    found = in_fit(sites, formula, policy=file, standard_errors=kind)
    for path in (sites / "large.csv", sites / "huge.csv"):
        told = check_site(path, formula, policy=rules, standard_errors=kind)
        assert (not told.refusals) == (path.stem in found.inside)
        assert bool(told.no_residuals) == (path.stem in found.residuals)
        assert ("DECLINE to send residuals" in told.text()) == bool(told.no_residuals)


def test_a_check_shows_the_labels_that_would_be_sent(
    sites: Path, tmp_path: Path
) -> None:
    formula = TableFormula("ill ~ age")
    told = check_site(sites / "large.csv", formula, family="binomial")
    assert "1 feature and 2 labels" in told.text()
    assert "more rounds the server would choose coefficients" in told.text()
    told.save(tmp_path / "sent.json")
    sent = (tmp_path / "sent.json").read_text("utf-8")
    assert '"in the first round"' in sent
    assert '"ill=1"' in sent


def test_what_a_fit_refuses_a_check_refuses(sites: Path) -> None:
    with pytest.raises(FedRidgeError, match="standard_errors is not available"):
        check_site(
            sites / "large.csv",
            TableFormula("ill ~ age"),
            family="binomial",
            standard_errors="HC3",
        )


WARDS = {
    "both": {"sex": ["f", "m"] * 6, "stage": [1, 2, 3] * 4},
    "men": {"sex": ["m"] * 12, "stage": [2] * 12},
    "blank": {"sex": ["f", "m"] * 6, "stage": [1, 3, 3] * 4, "age": [None] * 12},
}


@pytest.mark.parametrize("missing", ["drop", "mean", "indicator"])
@pytest.mark.parametrize(
    "text", ["bp ~ age + sex", "bp ~ C(sex)", 'bp ~ age + C(stage, Treatment("1"))']
)
def test_what_other_sites_may_have_is_a_note(
    text: str, missing: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(1)
    for name, columns in WARDS.items():
        frame = {"bp": rng.normal(size=12), "age": rng.normal(size=12), **columns}
        pd.DataFrame(frame).to_csv(tmp_path / f"{name}.csv", index=False)
    formula = TableFormula(text, missing=missing)
    inside = in_fit(tmp_path, formula).inside
    assert {"both", "men"} <= inside
    for name in WARDS:
        told = check_site(tmp_path / f"{name}.csv", formula)
        assert (not told.refusals) == (name in inside), told.text()
        assert "over all sites" not in told.text()
        if name == "men":
            assert "at other sites" in told.text() or "another site" in told.text()


def test_a_single_declared_level_is_refused_by_both(sites: Path) -> None:
    formula = TableFormula("dose ~ C(ill)", levels={"ill": ["0"]})
    assert in_fit(sites, formula).inside == set()
    assert check_site(sites / "large.csv", formula).refusals
