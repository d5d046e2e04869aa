"""What the `fedridge` command says where a fit is not what a person expects."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_cli import run

from fedridge_flwr import RidgeModel, SufficientStatistics, read_table

FORMULA = "bp ~ age + dose"
Capsys = pytest.CaptureFixture[str]


@pytest.fixture
def sites(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    folder = tmp_path / "sites"
    folder.mkdir()
    for name, n in {"north": 60, "south": 50, "west": 40, "east": 20}.items():
        frame = pd.DataFrame(
            {"age": rng.integers(20, 90, n), "dose": rng.normal(size=n)}
        )
        frame["bp"] = 100 + frame["age"] + rng.normal(size=n)
        frame["stage"] = np.arange(n) % 5
        frame.to_csv(folder / f"{name}.csv", index=False)
    return folder


def policy(folder: Path, text: str) -> Path:
    (folder / "policy.toml").write_text(text, "utf-8")
    return folder / "policy.toml"


def test_a_strict_fit_without_a_model_says_so(
    sites: Path, tmp_path: Path, capsys: Capsys
) -> None:
    rules = policy(tmp_path, "min_rows = 30")
    asked = ("fit", sites, "-f", FORMULA, "--policy", rules)
    code, out, err = run(capsys, *asked)
    assert code == 2
    assert out == ""
    assert "MODEL OF" not in err
    assert (
        "No model: 1 of 4 sites cannot take part (client east: declined by site "
        "policy). `--no-strict` goes on with the other 3."
    ) in err
    assert "(a server is not told):\n  east: min_rows=30, but there are 20." in err


def test_rules_are_printed_and_not_in_the_files(
    sites: Path, tmp_path: Path, capsys: Capsys
) -> None:
    rules, folder = policy(tmp_path, "min_rows = 30"), tmp_path / "run"
    asked = ("fit", sites, "-f", FORMULA, "--policy", rules, "--no-strict")
    code, out, _ = run(capsys, *asked, "-o", folder)
    assert code == 0
    assert "MODEL OF 3 OF 4 CLIENTS" in out
    assert "  east: min_rows=30, but there are 20." in out
    for file in folder.glob("*.*"):
        assert "min_rows=30" not in file.read_text("utf-8")


def test_if_all_decline_the_rule_is_told(
    sites: Path, tmp_path: Path, capsys: Capsys
) -> None:
    rules = policy(tmp_path, "preset = 5")
    asked = ("fit", sites, "-f", "stage ~ age", "--policy", rules)
    code, _, err = run(capsys, *asked, "--family", "poisson")
    assert code == 2
    assert 'north: "families" is not among the allowed requests.' in err


@pytest.mark.parametrize("formula", ["bp > 100 ~ age", "bp ~ age + (dose<1)"])
def test_comparisons_are_named(formula: str, sites: Path, capsys: Capsys) -> None:
    _, _, err = run(capsys, "fit", sites, "-f", formula)
    assert "Comparisons are not supported: make a column of 0 and 1" in err


def test_a_weak_policy_file_is_told_in_toml(
    sites: Path, tmp_path: Path, capsys: Capsys
) -> None:
    rules = policy(tmp_path, "preset = 5\nmin_rows = 2")
    _, _, err = run(capsys, "fit", sites, "-f", FORMULA, "--policy", rules)
    assert "leave it out, or add override = true." in err


def test_few_sites_are_told_once_and_f_is_left_out(
    sites: Path, tmp_path: Path, capsys: Capsys
) -> None:
    asked = ("-f", "bp ~ age + dose + C(stage)", "--standard-errors", "CR1")
    code, out, err = run(
        capsys, "fit", sites, *asked, "--alpha", "0", "-o", tmp_path / "run"
    )
    assert code == 0
    assert err.count("cluster-robust standard errors of 4 sites") == 1
    assert err.startswith("fedridge: warning: ")
    assert ".py" not in err
    assert "use_t" not in err
    assert "p of F" not in out
    assert out.count("F(") == out.count("site intercepts") == 1


def test_show_has_the_standard_errors_of_the_fit(
    sites: Path, tmp_path: Path, capsys: Capsys
) -> None:
    folder = tmp_path / "run"
    _, out, _ = run(capsys, "fit", sites, "-f", FORMULA, "--alpha", "0", "-o", folder)
    table = re.search(r"  bp \(standard errors.*?\n\n", out, re.DOTALL)
    assert table is not None
    for path in (folder, folder / "model.json"):
        code, shown, _ = run(capsys, "show", path)
        assert code == 0
        assert table[0] in shown
    (folder / "report.json").write_text("{}", "utf-8")
    code, shown, _ = run(capsys, "show", folder)
    assert code == 0
    assert "standard errors" not in shown


def test_several_values_of_a_yes_or_no_are_told(
    sites: Path, tmp_path: Path, capsys: Capsys
) -> None:
    asked = ("-f", "stage ~ age + dose", "--family", "binomial")
    code, out, _ = run(capsys, "fit", sites, *asked, "-o", tmp_path / "run")
    assert code == 0
    assert "stage has 5 values: one class against the rest is fitted." in out
    assert (tmp_path / "run" / "report.html").exists()


def test_check_takes_the_family(sites: Path, tmp_path: Path, capsys: Capsys) -> None:
    rules = policy(tmp_path, "preset = 5")
    asked = ("check", sites / "north.csv", "-f", "stage ~ age", "--policy", rules)
    assert run(capsys, *asked)[0] == 0
    code, out, _ = run(capsys, *asked, "--family", "poisson")
    assert code == 1
    assert "Nothing would be sent" in out
    assert "the server would receive" not in out
    code, out, _ = run(capsys, *asked, "--standard-errors", "HC3")
    assert code == 1
    assert "DECLINE to send residuals" in out


def test_later_rules_are_told_before_no_strict_is_tried(
    sites: Path, tmp_path: Path, capsys: Capsys
) -> None:
    rules = policy(tmp_path, "min_rows = 30")
    asked = ("-f", "stage ~ age", "--family", "poisson", "--policy", rules)
    code, _, err = run(capsys, "fit", sites, *asked)
    assert code == 2
    assert "The policy declines this fit at all 4 sites." in err
    assert "--no-strict" not in err
    assert "east: min_rows=30, but there are 20." in err
    assert 'every site: "families" is not among the allowed requests.' in err
    code, _, err = run(capsys, "fit", sites, *asked, "--no-strict")
    assert code == 2
    assert err.count('"families" is not among') == 3  # once for each that was asked


def test_check_lists_every_rule(sites: Path, tmp_path: Path, capsys: Capsys) -> None:
    rules = policy(tmp_path, 'min_rows = 30\nforbidden_columns = ["age"]')
    asked = ("-f", "stage ~ age + C(bp)", "--family", "poisson", "--policy", rules)
    code, out, _ = run(capsys, "check", sites / "east.csv", *asked)
    assert code == 1
    told = out[out.index("DECLINE") :]
    for reason in ('"families" is not among', "forbidden: 'age'", "min_rows=30"):
        assert told.count(reason) == 1
    assert told.index("families") < told.index("min_rows")


def test_text_among_numbers_has_its_line_at_the_site_only(
    sites: Path, tmp_path: Path, capsys: Capsys
) -> None:
    for name, n in {"east": 19, "north": 59}.items():
        file = sites / f"{name}.csv"
        lines = file.read_text("utf-8").splitlines()
        lines[7] = f"forty{lines[7][2:]}"
        file.write_text("\n".join(lines), "utf-8")
        place = "column 'age' has text in 1 row, the first in line 8, and numbers in"
        code, out, _ = run(capsys, "check", file, "-f", FORMULA)
        assert f"{place} {n} rows" in out
        assert code == 1  # one word makes no category of 19 numbers either
        assert f"text in 1 row(s), and numbers in {n}. If it is a number" in out
        assert "no table matches" not in out
    code, _, err = run(capsys, "fit", sites, "-f", FORMULA)
    assert code == 2
    assert f"  east: {place} 19" in err
    assert f"  north: {place} 59" in err
    folder = tmp_path / "run"
    code, out, _ = run(capsys, "fit", sites, "-f", FORMULA, "--no-strict", "-o", folder)
    assert code == 0
    for file in folder.glob("*.*"):  # a server has no more
        assert "line 8" not in file.read_text("utf-8")


def test_a_model_without_a_formula_names_the_columns_that_a_table_lacks(
    sites: Path, tmp_path: Path, capsys: Capsys
) -> None:
    frame = pd.read_csv(sites / "north.csv")
    ledger, model, out = (tmp_path / name for name in ("t.ledger", "m.json", "p.csv"))
    X, y, _ = read_table(frame, "bp ~ age + C(stage)")
    SufficientStatistics.from_data(X, y).save(tmp_path / "north.stats")
    run(capsys, "ledger", "add", ledger, "north", tmp_path / "north.stats")
    run(capsys, "ledger", "model", ledger, "--output", model)
    code, _, err = run(capsys, "predict", model, sites / "north.csv", "-o", out)
    assert code == 2
    assert "must have its coded columns: 'age', 'C(stage)[T.1]', " in err
    assert "north.csv lacks 'C(stage)[T.1]', 'C(stage)[T.2]', " in err
    assert "Traceback" not in err
    X.to_csv(tmp_path / "coded.csv", index=False)
    assert run(capsys, "predict", model, tmp_path / "coded.csv", "-o", out)[0] == 0
    found = pd.read_csv(out)["predicted_bp"]
    expected = RidgeModel.load(model).predict(X)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    SufficientStatistics.from_data(X.to_numpy(), y.to_numpy()).save(tmp_path / "x")
    run(capsys, "ledger", "add", tmp_path / "x.ledger", "north", tmp_path / "x")
    run(capsys, "ledger", "model", tmp_path / "x.ledger", "--output", model)
    code, _, err = run(capsys, "predict", model, tmp_path / "coded.csv", "-o", out)
    assert code == 2
    assert "neither a formula nor names of its columns" in err


def test_a_ledger_names_its_options_and_prints_standard_errors(
    sites: Path, tmp_path: Path, capsys: Capsys
) -> None:
    X, y, _ = read_table(sites / "north.csv", FORMULA)
    file, stats = tmp_path / "t.ledger", tmp_path / "north.stats"
    SufficientStatistics.from_data(X, y).save(stats)
    assert run(capsys, "ledger", "add", file, "north", stats)[0] == 0
    code, _, err = run(capsys, "ledger", "add", file, "north", stats)
    assert code == 2
    assert "`--replace` puts these statistics" in err
    assert "update" not in err
    assert run(capsys, "ledger", "add", file, "north", stats, "--replace")[0] == 0
    _, out, _ = run(capsys, "ledger", "model", file)
    assert "The penalty is `--alpha 1`" in out
    _, out, _ = run(capsys, "ledger", "model", file, "--alpha", "0")
    assert "There is no penalty" in out
    assert "std err" in out


def test_a_column_filled_at_a_whole_site_is_told(
    sites: Path, tmp_path: Path, capsys: Capsys
) -> None:
    frame = pd.read_csv(sites / "east.csv").assign(dose=None)
    frame.to_csv(sites / "east.csv", index=False)
    asked = ("fit", sites, "-f", FORMULA, "--alpha", "0")
    code, out, _ = run(capsys, *asked, "--missing", "mean")
    assert code == 0
    assert "east: its column 'dose' is missing in all rows, and filled in" in out
    assert "standard errors take these as measured" in out
    _, out, _ = run(capsys, *asked, "--no-strict")
    assert "as measured" not in out


def test_why_numbers_of_a_site_are_not_shown(sites: Path, capsys: Capsys) -> None:
    frame = pd.read_csv(sites / "east.csv")[:3]
    frame.to_csv(sites / "east.csv", index=False)
    _, out, _ = run(capsys, "fit", sites, "-f", FORMULA)
    assert "    east: withheld: fewer than 5 rows" in out


def test_a_family_with_a_penalty_says_why_it_has_no_standard_errors(
    sites: Path, capsys: Capsys
) -> None:
    asked = ("fit", sites, "-f", "stage ~ age", "--family", "poisson")
    assert "use `--alpha 0` for them" in run(capsys, *asked)[1]
    _, out, _ = run(capsys, *asked, "--alpha", "0")
    assert "use `--alpha 0`" not in out
    assert "std err" in out


def test_check_takes_alpha_as_a_fit_does(sites: Path, capsys: Capsys) -> None:
    asked = ("check", sites / "north.csv", "-f", FORMULA)
    plain = run(capsys, *asked)
    assert run(capsys, *asked, "--alpha", "0") == plain
    code, _, err = run(capsys, *asked, "--alpha", "-1")
    assert code == 2
    assert "alpha must be a finite number" in err


# ---- what a formula does not have, and outcomes that are none ---------------------


@pytest.mark.parametrize("option", ["--levels", "--categorical"])
@pytest.mark.parametrize("features", ["age + C(stage)", "."])
def test_levels_of_no_feature_are_refused(
    option: str, features: str, sites: Path, capsys: Capsys
) -> None:
    given = "stgae=0|1|2|3|4" if option == "--levels" else "stgae"
    asked = ("fit", sites, "-f", f"bp ~ {features}", option, given)
    code, _, err = run(capsys, *asked)
    assert code == 2
    assert f"{option[2:]}: 'stgae' is not among the features of the formula" in err
    assert ": is 'stage' meant?" in err


@pytest.mark.parametrize("alpha", [0, 1])
def test_an_outcome_that_does_not_vary(
    alpha: int, sites: Path, tmp_path: Path, capsys: Capsys
) -> None:
    for path in sites.glob("*.csv"):
        frame = pd.read_csv(path).assign(same=5.3)
        frame.loc[0, "age"] = None  # so that the sites are shown
        frame.to_csv(path, index=False)
    folder = tmp_path / "run"
    asked = ("fit", sites, "-f", "same ~ age + dose", "--alpha", alpha, "-o", folder)
    code, out, _ = run(capsys, *asked)
    told = "No standard errors: the outcome does not vary over the rows of all clients"
    assert code == 0
    assert told in out
    assert told in run(capsys, "show", folder)[1]
    assert told[20:] in (folder / "report.html").read_text("utf-8")
    assert "inf" not in out.replace("influence", "").replace("bound inf", "")
    assert "R² and influence are not known: the outcome does not vary" in out
    assert "need each site's statistics" not in out
    assert not (folder / "coefficients.csv").exists()


def test_one_of_several_outcomes_does_not_vary(sites: Path, capsys: Capsys) -> None:
    for path in sites.glob("*.csv"):
        pd.read_csv(path).assign(same=5.3).to_csv(path, index=False)
    _, out, _ = run(capsys, "fit", sites, "-f", "bp + same ~ age", "--alpha", 0)
    assert "same does not vary over the rows of all clients: its standard errors" in out


def test_text_as_an_outcome_is_told_what_to_write(sites: Path, capsys: Capsys) -> None:
    for path in sites.glob("*.csv"):
        frame = pd.read_csv(path)
        frame["ill"] = np.where(frame["stage"] > 2, "yes", "no")
        frame.to_csv(path, index=False)
    asked = ("-f", "ill ~ age", "--family", "binomial")
    told = "for a yes/no outcome, write 1 for yes and 0 for no"
    assert told in run(capsys, "fit", sites, *asked)[2]
    assert told in run(capsys, "check", sites / "north.csv", *asked)[1]
    frame = pd.read_csv(sites / "north.csv").astype({"bp": object})
    frame.loc[3, "bp"] = "high"  # a slip, and no yes/no outcome
    frame.to_csv(sites / "north.csv", index=False)
    assert told not in run(capsys, "fit", sites, "-f", "bp ~ age")[2]


def test_a_measurement_is_no_class(sites: Path, capsys: Capsys) -> None:
    asked = ("-f", "bp ~ age", "--family", "binomial")
    for place in ("fit", sites), ("check", sites / "north.csv"):
        _, out, err = run(capsys, *place, *asked)
        assert "bp has 60 different numbers; binomial needs 0 and 1" in out + err
        assert "leave out classes=" not in out + err


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("added", [0.0, 0.3, 0.5])
def test_counts_that_are_not_whole_are_remarked_upon(
    weights: bool, added: float, sites: Path, capsys: Capsys
) -> None:
    north = pd.read_csv(sites / "north.csv")
    north["stage"] += np.where(np.arange(len(north)) % 4 == 1, added, 0.0)
    north["dose"] = 1.0 + np.arange(len(north)) % 3
    north.to_csv(sites / "north.csv", index=False)
    for path in sites.glob("[!n]*.csv"):
        pd.read_csv(path).assign(dose=1.5).to_csv(path, index=False)
    asked = ["-f", "stage ~ age", "--family", "poisson", "--alpha", 0]
    asked += ["--weights", "dose"] if weights else []
    told = "counts are not whole numbers: is the outcome a count?"
    code, out, _ = run(capsys, "fit", sites, *asked)
    assert code == 0
    # Sums of weighted counts tell nothing.
    assert (f"client north: some of its {told}" in out) == bool(added and not weights)
    assert out.count(told) <= 1
    checked = run(capsys, "check", sites / "north.csv", *asked)[1]
    assert (f"some of the {told}" in checked) == bool(added)


def test_levels_that_have_no_rows_are_not_columns_to_drop(
    sites: Path, capsys: Capsys
) -> None:
    for path in sites.glob("*.csv"):
        frame = pd.read_csv(path)
        frame["sex"] = np.where(frame["stage"] > 2, "f", "m")
        frame.to_csv(path, index=False)
    code, _, err = run(
        capsys, *("fit", sites, "-f", "bp ~ age + sex * C(stage)", "--alpha", 0)
    )
    assert code == 2
    assert "or take the interaction out of the formula (some combinations of" in err
    assert "drop these columns" not in err
    for path in sites.glob("*.csv"):
        frame = pd.read_csv(path)
        frame.loc[frame["stage"] == 4, "dose"] = None
        frame.to_csv(path, index=False)
    code, _, err = run(
        capsys, *("fit", sites, "-f", "bp ~ dose + C(stage)", "--alpha", 0)
    )
    assert code == 2
    assert "or merge these levels with others in every table" in err
