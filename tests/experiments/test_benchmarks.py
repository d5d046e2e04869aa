"""The benchmarks measure what they say; no test here looks at a clock."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import run_app
from fedridge_benchmarks import kernels, simulated
from fedridge_benchmarks.__main__ import main
from fedridge_benchmarks.client_app import app as client_app
from fedridge_benchmarks.curves import draw, exponent
from fedridge_benchmarks.ledgers import ledger_files
from fedridge_benchmarks.machine import facts
from fedridge_benchmarks.measure import Ratio, race
from fedridge_benchmarks.problem import client_rows, pooled_rows
from fedridge_benchmarks.replies import many, replies
from fedridge_benchmarks.report import Results, table
from fedridge_benchmarks.scaling import Costs, costs_of
from fedridge_benchmarks.server_app import app as server_app
from fedridge_benchmarks.simulated import Simulator
from fedridge_benchmarks.solvers import CASES, solvers
from fedridge_benchmarks.wide import by_products, one_shot, write_answer

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "benchmarks" / "results"
PROJECT = tomllib.loads((ROOT / "benchmarks" / "pyproject.toml").read_text("utf-8"))
DEFAULTS = PROJECT["tool"]["flwr"]["app"]["config"]
MACHINE = {
    "cores": 2,
    "memory_gib": 1,
    "blas": "some",
    "python": "3",
    "versions": {"numpy": "2"},
}


def test_both_sides_of_a_race_run_in_turn():
    order: list[str] = []
    race(lambda: order.append("ours"), lambda: order.append("theirs"), 3)
    assert order == ["ours", "theirs"] * 3


def test_a_number_on_the_wrong_side_is_shown_as_such(tmp_path):
    ratios = [
        Ratio("good", 1.0, 2.0, detail="1 s against 1 s"),
        Ratio("too slow", 3.0, 2.0),
        Ratio("too little", 40.0, 50.0, at_least=True),
        Ratio("memory", 12.3, 60.0, unit="MB"),
    ]
    lines = table(ratios, MACHINE).splitlines()
    assert [line.split("|")[-2].strip() for line in lines[2:6]] == [
        "yes",
        "NO",
        "NO",
        "yes",
    ]
    results = Results({"some": ratios[:3], "other": ratios[3:]}, {}, MACHINE)
    results.write(tmp_path)
    assert Results.read(tmp_path) == results
    assert results.ratios == ratios


def test_rows_are_the_same_wherever_they_are_made():
    X, y = pooled_rows(3, rows=4, features=2)
    own, target = client_rows(2, rows=4, features=2)
    assert np.array_equal(X[8:], own)
    assert np.array_equal(y[8:], target)


def test_kernels_return_positive_ratios_with_their_limits():
    found = kernels.merging(4, 5) + kernels.solving(6) + kernels.alphas(6, 4)
    assert [ratio.limit for ratio in found] == [3.0, 1.5, 3.0]
    assert all(ratio.value > 0 and "against" in ratio.detail for ratio in found)


def test_fixed_point_is_raced_with_the_bare_product():
    found = kernels.fixed_point(9, 4)
    assert [ratio.limit for ratio in found] == [40.0, 40.0, 100.0]
    assert all("X.T @ X, 9 x 4" in ratio.what for ratio in found)


def test_answers_and_contributions_are_raced_with_all_of_them_in():
    found = [*replies(clients=4, features=5), *many(number=600, features=3)]
    assert [ratio.limit for ratio in found] == [6.0, 8.0, 100.0]


def test_wide_fits_are_those_of_the_pooled_rows(tmp_path):
    for client in range(5):
        write_answer(str(tmp_path), client, 60)
    shot = one_shot(str(tmp_path), 60)
    assert shot["apart"] < 1e-12
    assert shot["held"] <= shot["peak"]
    assert by_products(60)["apart"] < 1e-8


def test_solvers_are_raced_on_systems_of_the_condition_they_name(monkeypatch):
    monkeypatch.setattr("fedridge_benchmarks.solvers._REST", 0.0)
    found = solvers([40])
    assert len(found) == len(CASES)
    assert all(ratio.value > 0 and ", d=40" in ratio.what for ratio in found)
    well, ill = (float(ratio.detail.split("condition ")[1]) for ratio in found)
    assert 10 * well < ill


def test_curves_are_fitted_and_drawn(tmp_path):
    x = [10, 100, 1000, 10_000]
    assert exponent(x, [5.0, 5.0, 8.0, 8.0e1]) == pytest.approx(1.0)
    curves = {"rows": {"x": x, "from_data": [1.0, 2.0, 4.0, 8.0]}}
    draw(curves, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_arithmetic_of_scaling():
    costs = Costs(answers=[(10, 0.1), (1000, 10.0)], solve=[(1000, 1.0)])
    assert costs.fold_seconds(10, 100) == pytest.approx(10 * 1.0)
    assert costs.fold_seconds(10, 2000) == pytest.approx(10 * 80.0)
    assert costs.solve_seconds(2000) == 8.0


def test_an_unknown_benchmark_is_refused_with_the_known_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(simulated, "simulator", NoSimulator)
    with pytest.raises(SystemExit) as stopped:
        raise SystemExit(main(["--only", "nothing", "--output-dir", str(tmp_path)]))
    assert stopped.value.code == 1


def test_a_benchmark_writes_table_and_results(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(simulated, "simulator", NoSimulator)
    monkeypatch.setattr(kernels, "merging", lambda: [Ratio("merging", 1.0, 3.0)])
    assert main(["--only", "merging", "--output-dir", str(tmp_path)]) == 0
    assert "merging" in capsys.readouterr().out
    monkeypatch.setattr(kernels, "merging", lambda: [Ratio("merging", 4.0, 3.0)])
    assert main(["--only", "merging", "--output-dir", str(tmp_path)]) == 1
    assert Results.read(tmp_path).ratios == [Ratio("merging", 4.0, 3.0)]


def test_what_is_not_measured_anew_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(simulated, "simulator", NoSimulator)
    monkeypatch.setattr(kernels, "merging", lambda: [Ratio("merging", 1.0, 3.0)])
    before = {"solving": [Ratio("solving", 1.0, 2.0)], "crowd": [Ratio("c", 1.0, 2.0)]}
    Results(before, {}, facts()).write(tmp_path)
    assert main(["--only", "merging", "--output-dir", str(tmp_path)]) == 0
    assert list(Results.read(tmp_path).benchmarks) == ["merging", "solving", "crowd"]
    Results(before, {}, MACHINE).write(tmp_path)
    assert main(["--only", "merging", "--output-dir", str(tmp_path)]) == 1
    assert Results.read(tmp_path).benchmarks == before


class NoSimulator:
    def __init__(self, *, echo: bool) -> None:
        pass

    def __enter__(self) -> Any:
        return None

    def __exit__(self, *_: object) -> None:
        pass


# ---- in a simulation -----------------------------------------------------------------


@pytest.mark.superlink
def test_rounds_of_both_kinds_are_timed_and_the_model_is_exact(superlink, tmp_path):
    simulator = Simulator(superlink, tmp_path, echo=False)
    found = simulator.run("rounds", 3, features=4, rows=10, repeats=2)
    assert len(found["ridge"]) == len(found["no-op"]) == 2
    assert found["apart"] < 1e-12


@pytest.fixture
def scene(tmp_path):
    """Run a scene in this process: what it measures is not the transport."""

    def run(name: str, clients: int, **changed: object) -> dict[str, Any]:
        output = tmp_path / "measured.json"
        own = {"scene": name, "clients": clients, "output": str(output)}
        config = {**DEFAULTS, **own, **changed}
        run_app(server_app, client_app, clients, config)
        return json.loads(output.read_text(encoding="utf-8"))

    return run


def test_fedavg_runs_its_rounds_next_to_one(scene):
    found = scene("fedavg", 2, features=4, rows=10, rounds=3)
    assert found["fedavg"] > 0
    assert found["ridge"] > 0


def test_files_are_read_by_the_clients(scene, tmp_path):
    rng = np.random.default_rng(0)
    table = np.column_stack([rng.normal(size=(40, 3)), rng.normal(size=40) > 0])
    names = "Elevation,Slope,Wilderness_Area1,Wilderness_Area2"
    for name, part in [("pooled", table), ("0", table[:25]), ("1", table[25:])]:
        np.savetxt(
            tmp_path / f"{name}.csv", part, "%.17g", ",", header=names, comments=""
        )
    found = scene("files", 2, folder=str(tmp_path), repeats=1)
    assert found["apart"] < 1e-12


def test_secure_sums_are_timed_next_to_plain_rounds(scene):
    found = scene("secure", 4, features=4, rows=10, repeats=2)
    assert len(found["secure"]) == len(found["plain"]) == 2
    assert found["apart"] < 1e-12

    class InProcess(Simulator):
        def __init__(self) -> None:
            pass

        def run(self, name: str, clients: int, **config: object) -> dict[str, Any]:
            return scene(name, clients, **{**config, "repeats": 1})

    ratios = simulated.secure(InProcess(), {3: 12.0, 4: 15.0}, features=(3, 5))
    assert [ratio.limit for ratio in ratios] == [12.0, 15.0, 135.0, 2000.0, 10.0, 1e-12]
    assert all(ratio.holds for ratio in ratios[2:])


def test_ledgers_are_timed_next_to_solves_and_plain_rounds(scene, tmp_path):
    found = ledger_files(12, 40, repeats=2)
    assert [ratio.limit for ratio in found] == [3.0, 20.0]
    assert all(ratio.value > 0 and "against" in ratio.detail for ratio in found)
    config = {"features": 4, "rows": 10, "repeats": 2, "ledger-folder": str(tmp_path)}
    times = scene("ledger", 4, **config)
    assert len(times["ledger"]) == len(times["plain"]) == 2


@pytest.mark.parametrize("no_op", [True, False])
def test_memory_is_that_of_the_server(scene, no_op):
    peak = scene("memory", 2, features=4, rows=10, **{"no-op": no_op})["peak"]
    assert 50 < peak < 5000


# ---- what is committed ---------------------------------------------------------------


def test_the_committed_table_comes_from_the_committed_results():
    results = Results.read(COMMITTED)
    committed = (COMMITTED / "table.md").read_text(encoding="utf-8")
    assert f"{table(results.ratios, results.machine)}\n" == committed


def test_every_committed_number_is_on_the_right_side_of_its_limit():
    ratios = Results.read(COMMITTED).ratios
    assert len(ratios) >= 18
    assert [ratio.what for ratio in ratios if not ratio.holds] == []


def test_costs_behind_the_arithmetic_are_the_measured_ones():
    curves = Results.read(COMMITTED).curves
    costs, answers = costs_of(curves), curves["answers"]
    assert costs.fold_seconds(3, answers["x"][1]) == pytest.approx(
        3 * answers["fold"][1]
    )
    assert costs.solve_seconds(curves["solve"]["x"][-1]) == curves["solve"]["solve"][-1]
