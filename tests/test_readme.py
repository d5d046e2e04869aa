"""README's code runs, and its diffs turn a stock FedAvg app into ours."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import InProcessGrid, node_context
from generators import paper_clients
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
HIGH_DIMENSION = (ROOT / "docs" / "high-dimension.md").read_text(encoding="utf-8")


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def block_with(language: str, words: str, text: str = README) -> str:
    (found,) = (block for block in blocks(language, text) if words in block)
    return found


def load_data(context: Any) -> tuple[np.ndarray, np.ndarray]:
    X, y = load_diabetes(return_X_y=True)
    k = int(context.node_config["partition-id"])
    n = int(context.node_config["num-partitions"])
    return X[k::n], y[k::n]


def run(code: str, **names: Any) -> dict[str, Any]:
    exec(compile(code, "README.md", "exec"), names)
    return names


def test_every_python_block_is_run_by_a_test_here() -> None:
    markers = ("# client_app.py", "# server_app.py", "# choose alpha", "# Phase 1")
    markers += ("# private server", "# private client", "# many features")
    markers += ("# not linear",)
    assert all(any(m in block for m in markers) for block in blocks("python"))
    assert len(blocks("python")) == len(markers)


def test_the_plug_in_snippets_fit_and_print(capsys: Any) -> None:
    client = run(block_with("python", "# client_app.py"), load_data=load_data)
    server = run(block_with("python", "# server_app.py"))
    server["app"](InProcessGrid.of_app(client["app"], 4), node_context(0, 4))
    printed = capsys.readouterr().out
    assert "intercept" in printed
    assert "clients     4 in, 0 out" in printed


def test_the_private_snippets_run(tmp_path: Any, capsys: Any) -> None:
    client = run(
        block_with("python", "# private client"),
        load_data=load_data,
        ledger_file=tmp_path / "ledger.json",
    )
    grid = InProcessGrid.of_app(client["app"], 5)
    server = run(block_with("python", "# private server"), grid=grid)
    printed = capsys.readouterr().out
    assert "verdict" in printed
    assert "epsilon 3, delta 1e-05 for each record" in printed
    ledger = client["PrivacyLedger"](tmp_path / "ledger.json", 6.0, 1e-5)
    assert all(ledger.spent(f"clinic-{k}").releases == 1 for k in range(5))
    X, y = load_diabetes(return_X_y=True)
    assert server["strategy"].model_.score(X, y - 150.0) > 0.1


def test_the_snippets_about_many_features_run(capsys: Any) -> None:
    from fedridge_flwr import FedRidge, ridge_client_app

    grid = InProcessGrid.of_app(ridge_client_app(load_data), 4)
    run(block_with("python", "# many features"), FedRidge=FedRidge, grid=grid)
    assert "One-shot federated ridge" in capsys.readouterr().out
    X, y = load_diabetes(return_X_y=True)
    for text, words in ((README, "# not linear"), (HIGH_DIMENSION, "# nonlinear")):
        found = run(block_with("python", words, text), grid=grid, X=X)
        model = found["strategy"].model_
        mapped = model.feature_map.transform(X)
        ridge = Ridge(alpha=model.alpha_).fit(mapped, y)
        np.testing.assert_allclose(model.predict(X), ridge.predict(mapped), rtol=1e-9)
    run(block_with("python", "# advice", HIGH_DIMENSION))
    assert "| refine" in capsys.readouterr().out
    assert len(blocks("python", HIGH_DIMENSION)) == 2


def test_the_three_lines_that_choose_alpha_run(tmp_path: Any, monkeypatch: Any) -> None:
    from fedridge_flwr import FedRidge, ridge_client_app

    monkeypatch.chdir(tmp_path)
    grid = InProcessGrid.of_app(ridge_client_app(load_data), 5)
    names = run(block_with("python", "# choose alpha"), FedRidge=FedRidge, grid=grid)
    assert names["strategy"].model_.alpha_ == names["strategy"].selection_.alpha
    assert (tmp_path / "alpha.png").stat().st_size > 10_000


def test_algorithm_1_runs_word_for_word() -> None:
    data, sigma, d = paper_clients(d=10, n_k=30, K=5, gamma=1, seed=0), 0.01, 10
    names = run(block_with("python", "# Phase 1"), data=data, sigma=sigma, d=d)
    A, b = (np.concatenate(part) for part in zip(*data, strict=True))
    expected = np.linalg.solve(A.T @ A + sigma * np.eye(d), A.T @ b)
    np.testing.assert_allclose(names["w_sigma"], expected, rtol=1e-12)


def sides(diff: str) -> tuple[str, str]:
    """Return the file before and after a diff."""
    lines = diff.splitlines()
    before = [line[1:] for line in lines if not line.startswith("+")]
    after = [line[1:] for line in lines if not line.startswith("-")]
    return "\n".join(before), "\n".join(after)


def simulate(code: str) -> list[Any]:
    from flwr.simulation import run_simulation

    results: list[Any] = []
    names = run(code, load_data=load_data, results=results)
    run_simulation(
        names["server_app"],
        names["client_app"],
        num_supernodes=4,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0}},
    )
    return results


def assert_pooled(coef: Any, intercept: Any) -> None:
    ridge = Ridge(alpha=1.0).fit(*load_diabetes(return_X_y=True))
    np.testing.assert_allclose(coef, ridge.coef_, rtol=1e-11)
    np.testing.assert_allclose(intercept, ridge.intercept_, rtol=1e-12)


@pytest.mark.ray
def test_the_message_api_diff_turns_fedavg_into_fedridge() -> None:
    before, after = sides(block_with("diff", "ridge_client_app"))
    (stock,) = simulate(before)
    assert len(stock.train_metrics_clientapp) == 5, "FedAvg ran its five rounds"
    (ours,) = simulate(after)
    arrays = ours.arrays
    assert_pooled(arrays["coef"].numpy(), arrays["intercept"].numpy()[0])


@pytest.mark.ray
def test_the_numpyclient_diff_turns_fedavg_into_fedridge() -> None:
    before, after = sides(block_with("diff", "LegacyFedRidge"))
    assert simulate(before) == [], "the stock app runs, and never gives its model back"
    (model,) = simulate(after)
    assert_pooled(model.coef_, model.intercept_)


def test_the_main_table_is_that_of_the_committed_experiments() -> None:
    from readme_table import EXPERIMENTS, main_table

    begin, end = EXPERIMENTS
    assert README.split(begin)[1].split(end)[0].strip() == main_table()


def test_the_table_is_one_that_the_app_wrote() -> None:
    begin = "<!-- table: written by `make readme` from the last `make run` -->"
    table = README.split(begin)[1].split("<!-- end of table -->")[0]
    for words in (
        "One-Shot (FedRidge)",
        "FedAvg",
        "FedProx",
        "scikit-learn",
        "flwr 1.",
    ):
        assert words in table


def test_the_tables_of_modes_and_kernels_are_those_of_the_experiments() -> None:
    from readme_table import KERNELS, MODES, kernels_table, modes_table

    for text, marks, table in (
        (README, MODES, modes_table(short=True)),
        (HIGH_DIMENSION, MODES, modes_table(short=False)),
        (README, KERNELS, kernels_table()),
    ):
        begin, end = marks
        assert text.split(begin)[1].split(end)[0].strip() == table


def test_the_privacy_table_is_that_of_the_committed_experiment() -> None:
    from readme_table import PRIVACY, privacy_table

    begin, end = PRIVACY
    assert README.split(begin)[1].split(end)[0].strip() == privacy_table()


def test_the_deployment_tables_are_those_of_the_kept_demonstration() -> None:
    from fedridge_deployment.demo import Demo
    from readme_table import APP, DEMO, app_files, deployed_demo

    guide = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    for text, (begin, end), content in (
        (README, DEMO, deployed_demo()),
        (guide, DEMO, deployed_demo()),
        (guide, APP, app_files()),
    ):
        assert text.split(begin)[1].split(end)[0].strip() == content
    kept = Demo.load(ROOT / "docs" / "results" / "demo.json")
    assert kept.times_faster >= 5.0
    assert kept.methods[0].distance < 1e-12


PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / folder / "README.md" for folder in ("simulations", "benchmarks")),
    ROOT / "deployment" / "README.md",
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)
    links = re.findall(r"\]\(([^)#\s]+)", text)
    gone = [
        link
        for link in links
        if not link.startswith("http") and not (page.parent / link).exists()
    ]
    assert gone == []
