"""FedRidge's modes, a projection and FedAvg on the same rows: the hard case of each.

Every client has half as many rows as features, and the features are rotated, so that
their spectrum cannot be undone by scaling columns.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from .cells import Cell, Outcome
from .method import CENTRALIZED, ONE_SHOT, SCALED, Method
from .settings import Settings

__all__ = ["NEAR", "PROJECTED", "REFINE_ROUNDS", "TOLERANCE", "axis", "fedavg"]
__all__ += ["mode_cells", "mode_methods", "projected", "reached", "rounds_of"]

TOLERANCE = 1e-12
REFINE_ROUNDS = 100
PROJECTED = 0.4
"""The paper's advice: m = 0.4 d where a few percent of error are acceptable."""

NEAR = 1e-10
"""Relative error of the coefficients that counts as exact."""


def axis(settings: Settings, spectrum: float) -> dict[str, Any]:
    """Return what makes the problems of this half other ones than the paper's."""
    test = settings.one("test_fraction")
    rows = round(settings.one("features") / 2 / (1 - test))
    # With very few features, enough for a test row and two others.
    rows = max(rows, 2 + ceil(1 / test))
    return {"spectrum": spectrum, "rows": rows, "rotated": True}


def projected(settings: Settings) -> Method:
    """Return the projection to 0.4 d."""
    dimension = max(round(PROJECTED * settings.one("features")), 1)
    return Method("Projected One-Shot", projection=dimension)


def fedavg(settings: Settings, spectrum: float) -> Method:
    """Return FedAvg; unlike scales need a step of their own."""
    rounds = settings.one("rounds")
    return settings.iterative("FedAvg", SCALED, rounds, tuned=spectrum > 0)


def mode_methods(settings: Settings, spectrum: float) -> list[Method]:
    """Return all methods, in the order of the table; cg has the rounds of FedAvg."""
    limits = {"refine": REFINE_ROUNDS, "cg": max(settings.one("rounds"), 2)}
    refine, cg = (
        Method(mode, rounds=rounds, tol=TOLERANCE) for mode, rounds in limits.items()
    )
    return [ONE_SHOT, refine, cg, projected(settings), fedavg(settings, spectrum)]


def mode_cells(settings: Settings) -> list[Cell]:
    """Return the cells: what takes hundreds of rounds runs in the first trial only."""
    cells = []
    for trial in range(settings.beyond_trials):
        for spectrum in settings.spectrum:
            problem = settings.problem(trial, **axis(settings, spectrum))
            cells += [
                Cell(problem, method)
                for method in [CENTRALIZED, *mode_methods(settings, spectrum)]
                if trial == 0 or not (method.penalty or method.name == "cg")
            ]
    return cells


def rounds_of(method: Method, outcome: Outcome) -> int:
    """Return the rounds that a run took, the first one included."""
    return int(outcome.facts.get("rounds", method.rounds))


def reached(outcome: Outcome, near: float = NEAR) -> tuple[int, int] | None:
    """Return rounds, and bytes of all clients both ways, until the error was `near`.

    None where it never was. What has one round is there at once or not at all.
    """
    by_round = outcome.facts.get("by_round")
    if by_round is None:
        total = outcome.bytes_up + outcome.bytes_down
        by_round = [[total, 0, outcome.test_mse, outcome.distance]]
    for number, (up, down, _, distance) in enumerate(by_round, start=1):
        if distance is not None and distance <= near:
            return number, int(up + down)
    return None
