"""Experiment 7: what projections lose, what exact modes cost, what was measured."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from math import sqrt
from pathlib import Path

import pytest
from fedridge_simulations.cells import Cell, Outcome, Store, load_outcomes
from fedridge_simulations.experiments.projection import EXPERIMENT
from fedridge_simulations.method import ONE_SHOT, Method
from fedridge_simulations.modes import (
    axis,
    fedavg,
    mode_cells,
    mode_methods,
    projected,
    reached,
)
from fedridge_simulations.modes_tables import APPROXIMATION
from fedridge_simulations.projection_tables import kind
from fedridge_simulations.report import load
from fedridge_simulations.results import Results
from fedridge_simulations.settings import Settings, override
from test_simulations import fake_outcome

COMMITTED = Path(__file__).resolve().parents[2] / "simulations" / "results"
PAPER, TOY = (EXPERIMENT.sizes[size] for size in ("paper", "toy"))
_, REFINE, CG, *_ = mode_methods(PAPER, 0.0)


# ---- cells ---------------------------------------------------------------------------


def test_the_second_half_is_the_hard_case() -> None:
    problem = PAPER.problem(0, **axis(PAPER, 2.0))
    assert problem.rows - problem.test_rows == problem.features / 2 == 500
    assert problem.training_rows == 10_000
    assert (problem.clients, problem.alpha, problem.rotated) == (20, 0.01, True)
    assert projected(PAPER).projection == 400
    assert {c.problem.spectrum for c in mode_cells(PAPER)} == {0.0, 1.0, 2.0, 2.25}
    assert not fedavg(PAPER, 0.0).tuned
    assert fedavg(PAPER, 1.0).tuned


@pytest.mark.parametrize("features", [1, 2, 3, 10, 301])
@pytest.mark.parametrize("fraction", [0.01, 0.2, 0.5])
def test_any_number_of_features_leaves_rows_to_train_and_test(
    features: int, fraction: float
) -> None:
    change = {"features": features, "test-fraction": fraction, "projection": 1}
    settings = override(TOY, change)
    for cell in mode_cells(settings):
        assert cell.problem.test_rows >= 1


def test_what_takes_hundreds_of_rounds_runs_once() -> None:
    cells = mode_cells(PAPER)
    count = {
        name: sum(cell.method.name == name for cell in cells)
        for name in ("One-Shot", "refine", "cg", "FedAvg")
    }
    assert count == {"One-Shot": 12, "refine": 12, "cg": 4, "FedAvg": 4}
    assert override(PAPER, {"trials": 1}).beyond_trials == 1
    assert mode_cells(replace(PAPER, beyond_trials=0)) == []


def test_tolerance_and_limit_are_part_of_a_cell() -> None:
    problem = PAPER.problem(0, **axis(PAPER, 0.0))
    others = [REFINE, CG, replace(REFINE, tol=1e-6), replace(REFINE, rounds=5)]
    assert len({Cell(problem, m).key() for m in others}) == 4
    assert Method(**json.loads(json.dumps(REFINE.to_json()))) == REFINE
    flat = replace(problem, rotated=False)
    assert Cell(flat, ONE_SHOT).key() != Cell(problem, ONE_SHOT).key()


def test_rounds_are_read_off_the_path() -> None:
    path = [[10, 1, 1.0, 1.0], [20, 2, 0.1, 1e-9], [30, 3, 0.1, 1e-11]]
    outcome = Outcome(0.1, 1e-11, 1.0, 30, 3, facts={"by_round": path})
    assert reached(outcome) == (3, 33)
    assert reached(outcome, 1e-8) == (2, 22)
    assert reached(outcome, 1e-12) is None
    assert reached(Outcome(0.1, 1e-15, 1.0, 30, 3)) == (1, 33)
    assert reached(Outcome(0.1, 0.5, 1.0, 30, 3)) is None


# ---- words ---------------------------------------------------------------------------


def measured(settings: Settings, distance: float) -> Results:
    """Return results in which every projection has this distance."""
    store = Store(None)
    for cell in EXPERIMENT.cells(settings):
        outcome = fake_outcome(cell)
        if cell.method.projection:
            outcome.distance = distance
            outcome.facts["explained_lost"] = 0.0
        store.add(cell, outcome)
    return Results(settings, store)


def lines_of_projections(text: str) -> list[str]:
    """Return the lines of a text about m < d."""
    said = re.split(r"\n|\. ", text)
    small = [m for m in PAPER.projection if m < 1000]
    pattern = "|".join(rf"\| {m} +\||m = {m}\b" for m in small)
    return [line for line in said if re.search(pattern, line)]


def test_no_projection_is_ever_called_exact() -> None:
    """Not even one that came out at the oracle to the last digit."""
    results = measured(PAPER, 0.0)
    text = f"{EXPERIMENT.verdict(results)}\n{EXPERIMENT.tables(results)}"
    lines = lines_of_projections(text)
    assert len(lines) >= 4 * 6
    for line in lines:
        if "exact" in line:
            raise AssertionError(line)
    rows = [line for line in lines if line.startswith(("| equal", "| i^"))]
    assert len(rows) == 4 * 6 + 4
    assert all(APPROXIMATION in row for row in rows)
    assert APPROXIMATION in EXPERIMENT.verdict(results)
    assert [kind(PAPER, m) for m in (50, 999, 1000)] == [
        APPROXIMATION,
        APPROXIMATION,
        "exact",
    ]


def test_the_bound_is_held_against_the_distances_and_says_nothing() -> None:
    (claim,) = (
        c
        for c in EXPERIMENT.claims(measured(PAPER, 0.9))
        if c.what == "distance of the coefficients"
    )
    assert claim.holds
    assert "w = 0" in claim.reason
    (claim,) = (
        c
        for c in EXPERIMENT.claims(measured(PAPER, 2.0))
        if c.what == "distance of the coefficients"
    )
    assert not claim.holds  # √(1000/800) < 2


def test_exact_recovery_is_decided_by_the_bytes_of_refine() -> None:
    def holds(each: int) -> bool:
        store = Store(None)
        for cell in EXPERIMENT.cells(PAPER):
            outcome = fake_outcome(cell)
            if cell.method.name == "refine":
                outcome.facts["by_round"] = [[20 * each, 0, 0.01, 1e-12]]
            store.add(cell, outcome)
        claims = EXPERIMENT.claims(Results(PAPER, store))
        (claim,) = (c for c in claims if c.what == "exact recovery")
        return claim.holds

    assert not holds(500_000)
    assert holds(5_000_000)


# ---- what is committed ---------------------------------------------------------------


@pytest.fixture(scope="module")
def committed() -> Results:
    (found,) = (e for e in load(COMMITTED) if e.experiment.name == "projection")
    return found.results


def hard(results: Results, method: Method, spectrum: float) -> list[Outcome]:
    return results.outcomes(method, **axis(results.settings, spectrum))


@pytest.mark.parametrize(
    ("spectrum", "rounds", "megabytes"),
    [(0.0, 8, 0.6), (1.0, 8, 0.6), (2.0, 25, 0.9), (2.25, 35, 1.1)],
)
def test_committed_refine_is_exact_for_a_part_of_the_bytes(
    committed: Results, spectrum: float, rounds: int, megabytes: float
) -> None:
    found = hard(committed, REFINE, spectrum)
    assert len(found) == committed.settings.beyond_trials >= 3
    for outcome in found:
        end = reached(outcome)
        assert end is not None
        assert end[0] <= rounds
        assert end[1] / 20 / 1e6 <= megabytes
        assert outcome.facts["converged"]


@pytest.mark.parametrize("spectrum", PAPER.spectrum)
def test_committed_one_shot_sends_a_trapezoid(
    committed: Results, spectrum: float
) -> None:
    for outcome in hard(committed, ONE_SHOT, spectrum):
        each = (outcome.bytes_up + outcome.bytes_down) / 20 / 1e6
        assert each <= 4.02
        assert each == pytest.approx(3.01, abs=0.02)


def test_committed_conjugate_gradients_alone_are_slow(committed: Results) -> None:
    rounds = {s: hard(committed, CG, s)[0].facts for s in PAPER.spectrum}
    assert rounds[0.0]["converged"]
    assert not rounds[2.0]["converged"]
    assert rounds[2.0]["rounds"] == 200


def test_committed_projections_lose_what_no_distance_shows(committed: Results) -> None:
    for cell, outcome in load_outcomes(COMMITTED / "projection" / "results.json"):
        m, d = cell.method.projection, cell.problem.features
        if not m:
            continue
        assert outcome.distance > 0.01, "nothing is exact with m < d"
        assert outcome.distance <= sqrt(d / m)
        low, high = outcome.facts["distortion"]
        assert 0 < low < 1 < high
        if not cell.problem.spectrum:
            lost = outcome.facts["explained_lost"]
            assert lost == pytest.approx(1 - m / d, abs=0.1)


def test_committed_methods_are_all_there(committed: Results) -> None:
    for spectrum in PAPER.spectrum:
        for method in mode_methods(committed.settings, spectrum):
            assert hard(committed, method, spectrum), (spectrum, method.label)
