"""The `fedridge` command, as a person types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from fedridge_flwr import (
    FixedPointStatistics,
    RidgeClassifierModel,
    RidgeModel,
    SufficientStatistics,
)
from fedridge_flwr.cli.main import main

FORMULA = "bp ~ age + C(sex) + C(stage)"


@pytest.fixture
def sites(tmp_path: Path) -> Path:
    """Return a folder with three tables that agree to people."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "sites"
    folder.mkdir()
    for k, name in enumerate(["north", "south", "west"]):
        n = 30 + 5 * k
        frame = pd.DataFrame(
            {
                "age": rng.integers(20, 90, n),
                "sex": rng.choice(["f", "m"], n),
                "stage": rng.choice([1, 2, 3], n).astype(float if k else int),
            }
        )
        frame["bp"] = 100 + 0.5 * frame["age"] + rng.normal(size=n).round(6)
        frame.loc[0, "age"] = None
        sep, decimal = (";", ",") if k == 1 else (",", ".")
        frame.to_csv(folder / f"{name}.csv", index=False, sep=sep, decimal=decimal)
    return folder


def frames(folder: Path) -> pd.DataFrame:
    parts = [
        pd.read_csv(folder / "north.csv"),
        pd.read_csv(folder / "south.csv", sep=";", decimal=","),
        pd.read_csv(folder / "west.csv"),
    ]
    return pd.concat(parts).dropna()


def pipeline() -> object:
    onehot = OneHotEncoder(drop="first", sparse_output=False)
    coded = make_column_transformer(
        ("passthrough", ["age"]), (onehot, ["sex", "stage"])
    )
    return make_pipeline(coded, Ridge(alpha=1.0))


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["fedridge", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
    printed = capsys.readouterr()
    return int(end.value.code or 0), printed.out, printed.err


def test_fit_show_report_predict(
    sites: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    code, out, _ = run(capsys, "fit", sites, "-f", FORMULA, "-o", folder)
    assert code == 0
    assert "north" in out
    assert "C(stage)[T.2]" in out
    expected = {"model.json", "report.json", "report.html", "summary.txt", "sites.csv"}
    expected |= {"coefficients.csv"}
    assert expected <= {path.name for path in folder.iterdir()}

    pooled = frames(sites)
    model = RidgeModel.load(folder / "model.json")
    fitted = pipeline().fit(pooled, pooled["bp"])  # type: ignore[attr-defined]
    np.testing.assert_allclose(model.coef_, fitted[-1].coef_, atol=1e-12)

    code, out, _ = run(capsys, "show", folder)
    assert code == 0
    assert "Levels of stage: 1, 2, 3" in out
    assert f"Formula: {FORMULA}" in out

    (folder / "report.html").unlink()
    code, out, _ = run(capsys, "report", folder)
    assert code == 0
    assert "C(stage)[T.2]" in (folder / "report.html").read_text("utf-8")

    new, predicted = tmp_path / "new.csv", tmp_path / "predicted.csv"
    rows = pooled.drop(columns="bp").iloc[::3]
    rows[["stage", "sex", "age"]].to_csv(new, index=False)
    code, out, _ = run(capsys, "predict", folder / "model.json", new, "-o", predicted)
    assert code == 0
    by_folder = tmp_path / "by_folder.csv"
    assert run(capsys, "predict", folder, new, "-o", by_folder)[0] == 0
    assert by_folder.read_bytes() == predicted.read_bytes()
    found = pd.read_csv(predicted)
    assert list(found) == ["stage", "sex", "age", "predicted_bp"]
    np.testing.assert_allclose(
        found["predicted_bp"], fitted.predict(rows), rtol=0, atol=1e-10
    )


def test_classes_are_predicted_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = RidgeClassifierModel(
        classes=["fir", "oak"],
        coef=np.array([[1.0, -1.0]]),
        intercept=np.zeros(1),
        alpha=1.0,
        feature_names=["height", "width"],
    )
    model.save(tmp_path / "model.json")
    new, out_file = tmp_path / "new.csv", tmp_path / "out.csv"
    new.write_text("width,height\n1,2\n,5\n3,2\n", encoding="utf-8")
    code, out, _ = run(capsys, "predict", tmp_path / "model.json", new, "-o", out_file)
    assert code == 0
    assert "3 rows, 1 of them without a prediction" in out
    found = pd.read_csv(out_file, keep_default_na=False)["predicted_class"]
    assert found.tolist() == ["oak", "", "fir"]


def test_yes_and_no_from_tables(
    sites: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(1)
    for path in sites.glob("*.csv"):
        mark = ";" if path.stem == "south" else ","
        frame = pd.read_csv(path, sep=mark, decimal="," if mark == ";" else ".")
        frame["ill"] = rng.integers(0, 2, len(frame))
        frame.to_csv(path, index=False, sep=mark, decimal="," if mark == ";" else ".")
    pooled = frames(sites)
    folder, told = tmp_path / "run", tmp_path / "predicted.csv"
    question = ["-f", "ill ~ age + bp", "--family", "binomial"]
    code, out, _ = run(capsys, "fit", sites, *question, "-o", folder)
    assert code == 0
    assert "Federated logistic regression" in out
    model = RidgeModel.load(folder / "model.json")
    peer = LogisticRegression(solver="newton-cholesky", tol=1e-12, max_iter=1000)
    peer.fit(pooled[["age", "bp"]].to_numpy(), pooled["ill"])
    assert np.allclose(model.coef_, peer.coef_[0], rtol=1e-9)
    new = folder / "model.json", sites / "north.csv"
    assert run(capsys, "predict", *new, "-o", told)[0] == 0
    found = pd.read_csv(told)["predicted_ill"].dropna()
    assert found.between(0, 1).all()


def test_predict_with_unknown_levels_and_missing_values(
    sites: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "fit", sites, "-f", FORMULA, "-o", tmp_path / "run")
    new, out_file = tmp_path / "new.csv", tmp_path / "out.csv"
    new.write_text("age,sex,stage\n50,f,1\n50,x,1\n,f,1\n", encoding="utf-8")
    model = tmp_path / "run" / "model.json"
    code, _, err = run(capsys, "predict", model, new, "-o", out_file)
    assert code == 2
    assert "line 3 has 'x' in 'sex', a level that the model does not know" in err
    code, out, _ = run(
        capsys, "predict", model, new, "-o", out_file, "--unknown", "missing"
    )
    assert code == 0
    assert "3 rows, 2 of them without a prediction" in out
    assert pd.read_csv(out_file)["predicted_bp"].isna().tolist() == [False, True, True]


def test_check_shows_what_would_be_sent(
    sites: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sent = tmp_path / "sent.json"
    code, out, _ = run(capsys, "check", sites / "south.csv", "-f", FORMULA, "-o", sent)
    assert code == 0
    assert "Rows: 35, of which 34 have all columns" in out
    assert "This site would take part" in out
    content = json.loads(sent.read_text("utf-8"))
    assert content["before the fit"]["columns"]["stage"]["levels"] == ["1", "2", "3"]
    assert content["in the round"]["rows"] == 34
    d = len(content["in the round"]["columns"])
    assert len(content["in the round"]["statistics"]) == (1 + d) * (2 + d) // 2


def test_check_says_what_a_policy_refuses(
    sites: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('min_rows = 50\nforbidden_columns = ["sex"]\n', "utf-8")
    code, out, _ = run(
        capsys, "check", sites / "north.csv", "-f", FORMULA, "--policy", policy
    )
    assert code == 1
    assert "This site would DECLINE" in out
    assert "columns are forbidden: 'sex'" in out
    assert "min_rows=50, but there are 30" in out
    code, out, err = run(capsys, "fit", sites, "-f", FORMULA, "--policy", policy)
    assert code == 2
    assert "declined by site policy" in err


def test_a_rehearsal_and_a_check_are_no_uploads(
    sites: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy, state = tmp_path / "policy.toml", tmp_path / "state"
    policy.write_text('min_row_difference = 5\nstate = "state"\n', "utf-8")
    told = ("-f", FORMULA, "--policy", policy)
    code, out, _ = run(capsys, "check", sites / "north.csv", *told)
    assert code == 1
    assert "there is no folder" in out
    state.mkdir()
    for command in (["fit", sites], ["check", sites / "north.csv"]):
        code, _, _ = run(capsys, *command, *told)
        assert code == 0
    assert list(state.iterdir()) == []


def test_check_says_what_is_wrong_with_the_table(
    sites: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "check", sites / "north.csv", "-f", "bp ~ height")
    assert code == 1
    assert "the table has no column 'height'" in out


def test_target_features_and_a_client_column(
    sites: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = frames(sites).assign(site=lambda f: np.arange(len(f)) % 4)
    whole.to_csv(tmp_path / "all.csv", index=False)
    code, out, _ = run(
        capsys,
        *("fit", tmp_path / "all.csv", "--client-column", "site"),
        *("--target", "bp", "--features", "age,stage", "--categorical", "stage"),
        *("--alphas", "0.1,1,10", "--cv", "server"),
    )
    assert code == 0
    assert "stage[T.3]" in out
    assert "clients     4" in out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["fit", "{sites}"], "there is no formula: give one"),
        (
            ["fit", "{sites}", "-f", "bp ~ age", "--target", "bp"],
            "a formula and a target are given",
        ),
        (["fit", "{sites}", "-f", "bp ~ scale(age)"], "each site's own rows"),
        (["fit", "{sites}", "-f", "bp ~ height"], "no table matches the formula"),
        (["fit", "nowhere", "-f", "bp ~ age"], "nowhere"),
        (["fit", "{sites}", "-f", "bp ~ age", "--alphas", "a,b"], "alphas must be"),
        (["fit", "{sites}", "-f", "bp ~ age", "--missing", "guess"], "missing must be"),
        (["show", "nowhere/model.json"], "nowhere"),
        (["report", "nowhere"], "nowhere"),
        (["predict", "no.json", "no.csv", "-o", "out.csv"], "no.json"),
        (["fit", "{sites}", "-f", "bp ~ Age"], "Is 'age' meant?"),
        (["fit", "{sites}", "-f", "bp ~ age + C(sex"], "formula: "),
        (["fit", "{sites}", "-f", "bp ~ age", "-o", "{sites}/west.csv"], "File exists"),
        (["check", "{sites}/west.csv", "-f", "bp ~ age", "-o", "/no/x"], "/no/x: "),
        (["check", "{sites}", "-f", "bp ~ age"], "this is a folder"),
        (["show", "{sites}"], "model.json: No such file"),
    ],
)
def test_errors_are_one_message_without_a_traceback(
    arguments: list[str],
    reason: str,
    sites: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [argument.format(sites=sites) for argument in arguments]
    code, _, err = run(capsys, *given)
    assert code == 2
    assert err.startswith("fedridge: ")
    assert reason in err
    assert "Traceback" not in err


def test_only_the_message_is_printed(
    sites: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capfd, "fit", sites, "-f", "bp ~ height")
    assert code == 2
    assert out == ""
    assert "WARNING" not in err


def test_check_says_which_column_may_be_meant(
    sites: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "check", sites / "west.csv", "-f", "bp ~ ages")
    assert code == 1
    assert "Is 'age' meant?" in out


def test_check_asks_the_policy_about_products_of_numbers(
    sites: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("min_rows = 5", encoding="utf-8")
    formula = "bp ~ age:stage"
    code, out, _ = run(
        capsys, "check", sites / "west.csv", "-f", formula, "--policy", policy
    )
    assert code == 1
    assert '"feature_maps" is not among the allowed requests' in out


def test_a_prediction_that_fails_names_the_line_and_leaves_files_alone(
    sites: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "fit", sites, "-f", FORMULA, "-o", tmp_path / "run")
    model, out = tmp_path / "run" / "model.json", tmp_path / "out.csv"
    out.write_text("of yesterday", encoding="utf-8")
    new = tmp_path / "new.csv"
    for row, reason in {
        "40,x,1": "new.csv: line 3 has 'x' in 'sex', a level that the model does not "
        "know. It knows 'f', 'm'. Correct the table, or use `--unknown missing`",
        "old,f,1": "'age' must have numbers, but 1 of 2 entries are not. The first "
        "(line 3)",
    }.items():
        new.write_text(f"age,sex,stage\n30,m,2\n{row}\n", encoding="utf-8")
        code, _, err = run(capsys, "predict", model, new, "-o", out)
        assert code == 2
        assert reason in err
    assert out.read_text(encoding="utf-8") == "of yesterday"
    code, _, err = run(capsys, "predict", model, new, "-o", new)
    assert code == 2
    assert "new.csv is the input table" in err
    assert not list(tmp_path.glob("*.part"))


def test_a_site_that_does_not_fit_ends_the_fit_unless_told_otherwise(
    sites: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (sites / "west.csv").write_text("age,sex\n1,f\n2,m\n", encoding="utf-8")
    code, _, err = run(capsys, "fit", sites, "-f", FORMULA)
    assert code == 2
    assert "client west: the table has no column 'bp'" in err
    code, out, _ = run(capsys, "fit", sites, "-f", FORMULA, "--no-strict")
    assert code == 0
    assert "MODEL OF 2 OF 3 CLIENTS" in out


def test_the_command_is_installed_and_has_help() -> None:
    command = Path(sys.executable).parent / "fedridge"
    for arguments in (["--help"], ["fit", "--help"], ["check", "--help"]):
        shown = subprocess.run(
            [command, *arguments], capture_output=True, text=True, check=True
        )
        assert "Usage: fedridge" in shown.stdout


# ---- ledger -------------------------------------------------------------------------


@pytest.mark.parametrize("form", [SufficientStatistics, FixedPointStatistics])
def test_a_ledger_by_hand(tmp_path, capsys, form) -> None:
    def ledger(*words: object, code: int = 0) -> str:
        ended, out, err = run(capsys, "ledger", *words)
        assert ended == code, err
        return out + err

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(90, 2)), rng.normal(size=90)
    file, names = tmp_path / "trial.ledger", ["clinic-a", "clinic-b", "../clinic c"]
    for k, name in enumerate(names):
        form.from_data(X[k::3], y[k::3]).save(tmp_path / f"{k}.stats")
        ledger("add", file, name, tmp_path / f"{k}.stats")
    first = file, names[0], tmp_path / "0.stats"
    assert "already" in ledger("add", *first, code=2)
    assert "total after" in ledger("add", *first, "--replace")
    assert "3 clients, 90 rows" in ledger("show", file)
    told = ledger("remove", file, "clinic-b")
    assert "erased:       yes" in told
    assert ("exact:        yes" in told) == (form is FixedPointStatistics)
    assert "2 clients, 60 rows" in ledger("verify", file)
    ledger("model", file, "--alpha", 2, "-o", tmp_path / "model.json")
    rest = np.arange(90) % 3 != 1
    pooled = Ridge(alpha=2.0).fit(X[rest], y[rest])
    model = RidgeModel.load(tmp_path / "model.json")
    np.testing.assert_allclose(model.coef_, pooled.coef_, rtol=1e-12)
    ledger("export", file, "-o", tmp_path / "out")
    content = json.loads((tmp_path / "out" / "ledger.json").read_text("utf-8"))
    assert [each["client"] for each in content["clients"]] == ["../clinic c", names[0]]
    parts = [form.load(tmp_path / "out" / c["file"]) for c in content["clients"]]
    total = form.load(tmp_path / "out" / "total.stats")
    assert sum(parts).count == total.count == 60
    told = ledger("export", file, "-o", tmp_path / "out", code=2)
    assert "export into a new folder" in told


def test_a_ledger_that_is_none_is_one_message(tmp_path, capsys) -> None:
    code, _, told = run(capsys, "ledger", "show", tmp_path / "none.ledger")
    assert code == 2
    assert told.count("\n") == 1
    assert "does not exist" in told
