"""The experiments: settings, cells, claims, and each at toy size."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import run_app
from fedridge_simulations.cells import Cell, Outcome, Store, alone, load_outcomes
from fedridge_simulations.client_app import app as client_app
from fedridge_simulations.experiments import EXPERIMENTS
from fedridge_simulations.formulas import one_shot_upload, paper_upload
from fedridge_simulations.method import (
    CENTRALIZED,
    CLIPPED_FEDAVG,
    ONE_SHOT,
    SCALED,
    Method,
)
from fedridge_simulations.output import write_experiment
from fedridge_simulations.problem import Problem
from fedridge_simulations.properties import PROPERTIES, properties_table
from fedridge_simulations.report import load, render, write_report
from fedridge_simulations.results import Results
from fedridge_simulations.server_app import app as server_app
from fedridge_simulations.server_app import choose, facts
from fedridge_simulations.settings import Settings, SettingsError, override
from fedridge_simulations.trials import run_trials
from shared_simulation import SharedSimulation

from fedridge_flwr.app.launch import LocalSuperLink
from fedridge_flwr.errors import FedRidgeError

ROOT = Path(__file__).resolve().parents[2]
APP = ROOT / "simulations"
COMMITTED = APP / "results"
SMALL = Problem(clients=4, rows=60, features=6)
LOCAL = {"learning_rate": 0.05, "local_epochs": 2}


# ---- settings ------------------------------------------------------------------------


def test_an_unknown_experiment_lists_the_valid_ones() -> None:
    with pytest.raises(SettingsError, match=r"baselines, heterogeneity.*got 'base'"):
        choose({"experiment": "base"})


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("features", "ten", 'whole numbers .* as in "1, 2, 5"'),
        ("features", 10.5, "whole numbers"),
        ("features", True, "whole numbers"),
        ("gamma", "0, x", "numbers of at least 0"),
        ("gamma", -1, "numbers of at least 0"),
        ("missing", 1.0, "below 1"),
        ("trials", "five", "a whole number"),
        ("methods", "SCAFFOLD", "FedAdam.*FedAvg.*FedProx"),
        ("methods", 3, "FedAvg"),
        ("penalty", "sigma", "scaled, unscaled"),
        ("size", "huge", "paper, quick, toy"),
        ("experiment", 3, "one or more of baselines"),
    ],
)
def test_a_wrong_value_says_what_is_valid(key: str, value: Any, expected: str) -> None:
    config = {"experiment": "baselines", "size": "toy", key: value}
    with pytest.raises(SettingsError, match=expected) as caught:
        choose(config)
    assert key in str(caught.value)


def test_what_is_not_swept_takes_one_value() -> None:
    with pytest.raises(SettingsError, match=r"baselines: .*features takes one value"):
        choose({"experiment": "baselines", "features": "50, 100"})


def test_one_override_changes_one_setting() -> None:
    ((_, settings, cells),) = choose({"experiment": "baselines", "features": 50})
    assert {cell.problem.features for cell in cells} == {50}
    assert settings == replace(EXPERIMENTS["baselines"].sizes["paper"], features=(50,))


def test_fewer_trials_are_fewer_trials_for_everything() -> None:
    settings = override(Settings(), {"trials": 2})
    assert (settings.trials, settings.iterative_trials) == (2, 2)
    assert override(Settings(), {"trials": 0, "gamma": ""}) == Settings()


def test_methods_take_any_stock_strategy() -> None:
    config = {"experiment": "convergence", "methods": "FedAdam, FedAvgM"}
    ((_, _, cells),) = choose(config)
    assert {"FedAdam", "FedAvgM"} <= {cell.method.name for cell in cells}
    assert "FedProx" not in {cell.method.name for cell in cells}


@pytest.mark.parametrize("size", ["paper", "quick", "toy"])
def test_every_size_of_every_experiment_has_cells(size: str) -> None:
    for experiment, _, cells in choose({"experiment": "all", "size": size}):
        methods = {cell.method for cell in cells}
        assert {ONE_SHOT, CENTRALIZED} <= methods, experiment.name


def test_the_papers_settings_are_the_papers() -> None:
    for _, _, cells in choose({"experiment": "baselines, convergence, privacy"}):
        for cell in cells:
            # Private methods are shown with few features and correlated ones too.
            private, given = cell.method.private, vars(cell.problem)
            others = ("features", "spectrum", "rotated") if private else ()
            assert replace(cell.problem, seed=0) == Problem(
                **{
                    **{"clients": 20, "rows": 500, "features": 100},
                    **{"gamma": 0.5, "alpha": 0.01},
                    **{name: given[name] for name in others},
                }
            )
    _, settings, _ = choose({"experiment": "scalability"})[0]
    assert settings.clients == (10, 20, 50, 100, 200, 500)
    assert settings.rows == (200,)


# ---- cells are not run twice ---------------------------------------------------------


def fedavg(rounds: int) -> Method:
    return Method("FedAvg", rounds=rounds, penalty=SCALED, **LOCAL)


def outcome_of(rounds: int) -> Outcome:
    trace = [1.0 / r for r in range(1, rounds + 1)]
    marks = {r: [0.1 * r, 10 * r, 20 * r] for r in range(10, rounds + 1, 10)}
    return Outcome(
        trace[-1], 0.5, 0.1 * rounds, 10 * rounds, 20 * rounds, trace, trace, marks
    )


def test_a_shorter_run_is_read_off_a_longer_one() -> None:
    store = Store(None)
    store.add(Cell(SMALL, fedavg(40)), outcome_of(40))
    found = store.find(Cell(SMALL, fedavg(20)))
    assert found is not None
    assert (found.test_mse, found.seconds, found.bytes_up) == (1 / 20, 2.0, 200)
    assert len(found.mse_by_round) == 20
    assert store.find(Cell(SMALL, fedavg(25))) is None  # no mark there
    assert store.find(Cell(SMALL, fedavg(50))) is None
    assert store.find(Cell(replace(SMALL, seed=1), fedavg(20))) is None


def test_what_is_finished_is_not_run_again(tmp_path: Path) -> None:
    cells = [Cell(replace(SMALL, seed=s), fedavg(10)) for s in range(3)]
    ran: list[Cell] = []

    def run(cell: Cell) -> Outcome:
        if len(ran) == 2:
            raise KeyboardInterrupt
        ran.append(cell)
        return outcome_of(10)

    about = {"experiment": "x"}
    with pytest.raises(KeyboardInterrupt):
        run_trials("x", cells, Store(tmp_path / "x"), run, about)
    assert len(load_outcomes(tmp_path / "x" / "results.json")) == 2
    ran.clear()
    run_trials("x", cells, Store(tmp_path / "x"), run, about)
    assert ran == cells[2:]
    # Another experiment in the same folder finds them; other settings do not.
    ran.clear()
    run_trials("y", cells, Store(tmp_path / "y"), run, about)
    assert ran == []
    other = Cell(replace(SMALL, gamma=0.1), fedavg(10))
    run_trials("x", [other], Store(tmp_path / "x"), run, about)
    assert ran == [other]
    assert len(load_outcomes(tmp_path / "x" / "results.json")) == 4


def test_outcomes_survive_the_file_also_when_diverged(tmp_path: Path) -> None:
    store = Store(tmp_path / "x")
    cell = Cell(SMALL, fedavg(1))
    store.add(cell, Outcome(np.inf, np.inf, 1.0, 5, 6, [np.inf], [np.inf]))
    store.save([cell], {"experiment": "x"})
    ((loaded, outcome),) = load_outcomes(tmp_path / "x" / "results.json")
    assert loaded == cell
    assert outcome.test_mse == outcome.mse_by_round[0] == np.inf


def test_an_experiment_that_was_stopped_early_has_no_verdict(tmp_path: Path) -> None:
    ((experiment, settings, cells),) = choose({"experiment": "dropout", "size": "toy"})
    store = Store(tmp_path / "dropout")
    for cell in cells[:5]:
        store.add(cell, Outcome(test_mse=1.0, distance=1.0, seconds=1.0))
    store.save(cells, facts(experiment, settings, "toy"))
    render(tmp_path)
    report = (tmp_path / "REPORT.md").read_text(encoding="utf-8")
    assert f"5 of {len(cells)} cells are finished" in report
    assert not (tmp_path / "dropout" / "table.md").exists()


def test_cells_with_other_numbers_of_clients_wait_for_their_own_run(
    tmp_path: Path,
) -> None:
    config = {"experiment": "scalability", "size": "toy"}
    ((experiment, settings, cells),) = choose(config)
    store, about = Store(tmp_path / "scalability"), facts(experiment, settings, "toy")
    left = run_trials("x", cells, store, fake_outcome, about, only_clients=2)
    assert left == sum(cell.problem.clients != 2 for cell in cells) > 0
    render(tmp_path)
    assert not (tmp_path / "scalability" / "table.md").exists()
    assert run_trials("x", cells, store, fake_outcome, about) == 0


def test_two_runs_do_not_work_in_one_folder(tmp_path: Path) -> None:
    with (
        alone(tmp_path),
        pytest.raises(FedRidgeError, match="another run"),
        alone(tmp_path),
    ):
        raise AssertionError
    with alone(tmp_path), alone(None):
        pass


# ---- claims follow what was measured -------------------------------------------------


def fake_outcome(cell: Cell) -> Outcome:
    """Return numbers like real ones; every method ends a little above the oracle."""
    rounds, excess = cell.method.rounds, 0.002 * (cell.method.penalty != "")
    trace = [0.01 * (1 + excess + 100 * 0.9**r) for r in range(1, rounds + 1)]
    single = not cell.method.penalty and cell.method.name != "Conjugate gradients"
    if single:
        trace = []
    marks = {r: [0.2 * r, 900.0 * r, 900.0 * r] for r in range(1, rounds + 1)}
    return Outcome(
        test_mse=trace[-1] if trace else 0.01,
        distance=1e-15 if cell.method == ONE_SHOT else 0.1,
        seconds=0.2 * rounds,
        bytes_up=900 * rounds,
        bytes_down=900 * rounds,
        mse_by_round=trace,
        distance_by_round=list(trace),
        marks={} if single else marks,
        facts=fake_facts(cell.method) | fake_scores(cell),
    )


def fake_scores(cell: Cell) -> dict[str, Any]:
    if not cell.problem.dataset:
        return {}
    facts = {"features": 7, "training_rows": 80, "test_rows": 20, "test_variance": 1.0}
    return facts | {"accuracy": 0.9, "other_labels": 0}


def fake_facts(method: Method) -> dict[str, Any]:
    facts: dict[str, Any] = {"learning_rate": 0.01} if method.tuned else {}
    if method.projection:
        facts = {"explained_lost": 0.4, "distortion": [0.7, 1.4]}
    if method.tol:
        path = [[900 * r, 900 * r, 0.01, 10.0 ** (3 - 3 * r)] for r in range(1, 7)]
        facts = {"rounds": 6, "converged": method.name == "refine", "by_round": path}
    if method.private:
        facts = {"null_mse": 1.0, "noiseless_mse": 0.01, "gram_noise_sd": 2.0}
    if method.name == CLIPPED_FEDAVG:
        facts |= {"clip": 0.3, "learning_rate": 0.1, "tail": True, "tuning_mse": 0.01}
    return facts


CHANGES: list[dict[str, Any]] = [
    {},
    {"trials": 1},
    {"penalty": "scaled"},
    {"penalty": "unscaled"},
    {"methods": "FedAdam"},
    {"gamma": 2.0},
    {"rounds": 12},
]


@pytest.mark.parametrize("size", ["paper", "toy"])
@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_override_can_be_shown(name: str, size: str) -> None:
    for change in CHANGES:
        if "methods" in change and name in ("privacy", "scalability", "projection"):
            with pytest.raises(SettingsError, match="methods is always FedAvg"):
                choose({"experiment": name, "size": size, **change})
            continue
        config = {"experiment": name, "size": size, **change}
        ((experiment, settings, cells),) = choose(config)
        store = Store(None)
        for cell in cells:
            if store.find(cell) is None:
                store.add(cell, fake_outcome(cell))
        results, about = Results(settings, store), facts(experiment, settings, size)
        text = write_experiment(experiment, results, about, None)
        assert "nan" not in text
        claims = experiment.claims(results)
        if size != "paper" or "methods" in change or "rounds" in change:
            assert not claims, "only the paper's own settings are held against it"
        if claims:
            assert "not run" not in text
            assert len(experiment.verdict(results)) > 40


@pytest.mark.parametrize("change", [{}, {"trials": 1, "penalty": "unscaled"}], ids=str)
@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_experiment_has_figures(
    name: str, change: dict[str, Any], tmp_path: Path
) -> None:
    ((experiment, settings, cells),) = choose(
        {"experiment": name, "size": "toy", **change}
    )
    store = Store(None)
    for cell in cells:
        store.add(cell, fake_outcome(cell))
    for figure in experiment.draw(Results(settings, store)).values():
        figure.savefig(tmp_path / "figure.png", dpi=20)
        assert (tmp_path / "figure.png").stat().st_size > 1000
        assert words_in(figure) == []


def words_in(figure: Any) -> list[str]:
    """Return what is written into panels that have nothing to show."""
    written = [text.get_text() for panel in figure.axes for text in panel.texts]
    return [text for text in written if text in ("no data", "not timed")]


@pytest.mark.parametrize("size", ["paper", "toy"])
@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_figure_and_table_does_without_times(
    name: str, size: str, tmp_path: Path
) -> None:
    ((experiment, settings, cells),) = choose({"experiment": name, "size": size})
    store = Store(None)
    for cell in cells:
        if store.find(cell) is None:
            outcome = fake_outcome(cell)
            outcome.facts["busy"] = True
            store.add(cell, outcome)
    results, about = Results(settings, store), facts(experiment, settings, size)
    text = write_experiment(experiment, results, about, None)
    assert "nan" not in text
    timed = name in ("baselines", "communication", "scalability")
    assert ("not timed" in text.partition("\nSettings")[0]) == timed
    if experiment.claims(results):
        assert "nan" not in experiment.verdict(results)
    if size == "toy":
        for figure in experiment.draw(results).values():
            figure.savefig(tmp_path / "figure.png", dpi=20)
            assert words_in(figure) == ["not timed"] * timed


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_figure_can_be_drawn_of_nothing(name: str, tmp_path: Path) -> None:
    ((experiment, settings, _),) = choose({"experiment": name, "size": "toy"})
    for figure in experiment.draw(Results(settings, Store(None))).values():
        figure.savefig(tmp_path / "figure.png", dpi=20)
        assert words_in(figure)


def test_times_are_shown_however_busy_the_machine_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (99.0, 99.0, 99.0))
    ((_, settings, cells),) = choose({"experiment": "baselines", "size": "toy"})
    store = Store(None)
    run_trials("x", cells, store, fake_outcome, {})
    assert Results(settings, store).seconds(ONE_SHOT).trials == settings.trials


def test_times_recorded_beside_other_work_are_not_shown() -> None:
    ((_, settings, cells),) = choose({"experiment": "baselines", "size": "toy"})
    store = Store(None)
    for cell in cells:
        outcome = fake_outcome(cell)
        outcome.facts["busy"] = cell.problem.seed == 0
        store.add(cell, outcome)
    results = Results(settings, store)
    assert results.seconds(ONE_SHOT).trials == 1
    assert results.mse(ONE_SHOT).trials == 2
    assert (
        results.seconds(settings.iterative("FedAvg", SCALED, 3)).text() == "not timed"
    )


def test_a_claim_is_decided_by_the_numbers() -> None:
    """The same experiment with a FedAvg that stays 2.5% above the oracle."""
    ((experiment, settings, cells),) = choose({"experiment": "baselines"})

    def gap(excess: float) -> bool:
        store = Store(None)
        for cell in cells:
            outcome = fake_outcome(cell)
            if cell.method.penalty:
                outcome.test_mse = 0.01 * (1 + excess)
                outcome.mse_by_round = [outcome.test_mse] * cell.method.rounds
            store.add(cell, outcome)
        claims = experiment.claims(Results(settings, store))
        (claim,) = (c for c in claims if c.what == "FedAvg's gap persists")
        return claim.holds

    assert gap(0.025)
    assert not gap(0.0001)


# ---- every experiment, at toy size, in this process; one of them by `flwr run` -------


TOY = {"size": "toy"}


class Toys:
    """Experiments at toy size, each run when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def folder(self, *names: str) -> Path:
        own = {**TOY, "output-dir": str(self._folder)}
        for name in names:
            if not (self._folder / name / "table.md").exists():
                config = {**own, "experiment": name}
                run_app(server_app, client_app, 5, config, as_bytes=True)
        return self._folder


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Toys:
    return Toys(tmp_path_factory.mktemp("toy"))


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_an_experiment_at_toy_size(toys: Toys, name: str) -> None:
    toy = toys.folder(name)
    cells = dict(load_outcomes(toy / name / "results.json"))
    ((_, _, expected),) = choose({"experiment": name, "size": "toy"})
    assert set(cells) == set(expected)
    for cell, outcome in cells.items():
        if cell.method == ONE_SHOT:
            assert outcome.distance < 1e-12
            answered = len(cell.problem.participants)
            assert outcome.facts["answered"] == answered
            if cell.problem.features >= 100:
                each = outcome.bytes_up / answered
                assert each == pytest.approx(
                    one_shot_upload(cell.problem.features), rel=0.04
                )
                assert each == pytest.approx(
                    paper_upload(cell.problem.features), rel=0.04
                )
    table = (toy / name / "table.md").read_text(encoding="utf-8")
    assert "One-Shot" in table or name == "privacy"
    assert "σ/n" in table
    assert "flwr 1." in table
    for block in re.findall(r"(?:^\|.*\|\n)+", table, re.MULTILINE):
        assert len({line.count("|") for line in block.splitlines()}) == 1
    pictures = list((toy / name).glob("*.png"))
    assert pictures
    assert all(p.with_suffix(".svg").exists() for p in pictures)


@pytest.mark.superlink
def test_flwr_run_gives_what_this_process_gives(
    superlink: LocalSuperLink, toys: Toys, tmp_path: Path
) -> None:
    own = {"experiment": "baselines", "output-dir": str(tmp_path)}
    superlink.run(APP, num_supernodes=5, run_config={**TOY, **own}, echo=False)
    here, there = (
        dict(load_outcomes(folder / "baselines" / "results.json"))
        for folder in (toys.folder("baselines"), tmp_path)
    )
    assert list(here) == list(there)
    for cell, outcome in there.items():
        assert outcome.test_mse == pytest.approx(here[cell].test_mse, rel=1e-9)
        assert outcome.facts.get("answered") == here[cell].facts.get("answered")
    assert (tmp_path / "baselines" / "table.md").exists()


def test_the_report_of_a_run_names_every_experiment(toys: Toys) -> None:
    toy = toys.folder(*EXPERIMENTS)
    report = write_report(toy)
    assert (toy / "REPORT.md").read_text(encoding="utf-8") == report
    assert all(f"[{name}]({name}/table.md)" in report for name in EXPERIMENTS)
    assert "not at the paper's settings" in report
    facts = json.loads((toy / "baselines" / "results.json").read_text())
    assert facts["versions"]["flwr"].startswith("1.")
    assert facts["settings"]["seed"] == 0


# ---- what is committed ---------------------------------------------------------------


def test_properties_are_shown_by_tests_and_experiments_that_exist() -> None:
    for each in PROPERTIES:
        for _, path, *names in each.shown_by:
            assert (ROOT / path).exists(), path
            for name in names:
                assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")
    assert properties_table("../..").count("\n") == len(PROPERTIES) + 1


def test_committed_tables_and_report_come_from_the_committed_results(
    tmp_path: Path,
) -> None:
    finished = load(COMMITTED)
    assert [each.experiment.name for each in finished] == list(EXPERIMENTS)
    assert all(each.finished for each in finished)
    for each in finished:
        assert each.about["size"] == "paper"
        text = write_experiment(each.experiment, each.results, each.about, None)
        written = COMMITTED / each.experiment.name / "table.md"
        assert written.read_text(encoding="utf-8") == text + "\n"
        for name in each.experiment.figures(each.results):
            for kind in ("png", "svg"):
                assert (written.parent / f"{name}.{kind}").exists()
    committed = (COMMITTED / "REPORT.md").read_text(encoding="utf-8")
    for each in finished:
        copy = tmp_path / each.experiment.name
        copy.mkdir()
        source = COMMITTED / each.experiment.name / "results.json"
        (copy / "results.json").write_bytes(source.read_bytes())
    assert write_report(tmp_path) == committed


def test_committed_cells_are_complete_and_one_shot_is_exact_in_all_of_them() -> None:
    exact = 0
    for name in EXPERIMENTS:
        cells = dict(load_outcomes(COMMITTED / name / "results.json"))
        ((_, _, expected),) = choose({"experiment": name})
        if not any(cell.method.private for cell in cells):
            expected = [cell for cell in expected if not cell.method.private]
        assert set(expected) <= set(cells), name
        for cell, outcome in cells.items():
            if cell.method == ONE_SHOT:
                exact += 1
                # Rotated, the system has a condition of up to 1e7.
                limit = 1e-9 if cell.problem.rotated else 1e-12
                assert outcome.distance < limit
    assert exact > 100


@pytest.mark.ray
def test_a_committed_cell_is_computed_again(
    simulation: SharedSimulation, tmp_path: Path
) -> None:
    config = {"trials": 1, "rounds": "10", "methods": "FedAvg"}
    own = {"experiment": "baselines", "output-dir": str(tmp_path)}
    simulation.run(server_app, client_app, 20, {**config, **own})
    again = dict(load_outcomes(tmp_path / "baselines" / "results.json"))
    committed = Store(COMMITTED / "baselines")
    for cell, outcome in again.items():
        known = committed.find(cell)
        assert known is not None, cell
        assert outcome.test_mse == pytest.approx(known.test_mse, rel=1e-6)
        assert outcome.mse_by_round == pytest.approx(known.mse_by_round, rel=1e-6)
        # Ids of runs, nodes and tasks are drawn at random, and so is their length.
        ids = 40 * 20 * max(len(outcome.mse_by_round), 1)
        near = 0.01 * known.bytes_up + ids
        assert outcome.bytes_up == pytest.approx(known.bytes_up, abs=near)
