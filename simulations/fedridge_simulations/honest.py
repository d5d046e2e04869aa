"""The methods that are really private, at the same (epsilon, delta)."""

from __future__ import annotations

import math
from typing import Any

from .cells import Cell
from .method import CLIPPED_FEDAVG, Method
from .problem import Array, Problem, pooled_rows
from .settings import Settings

__all__ = [
    "CORRELATED",
    "DRAWS",
    "FEDAVG_DRAWS",
    "REFINEMENTS",
    "SECURE_TRIALS",
    "SMALL_EPSILON",
    "SMALL_FEATURES",
    "X_NORM",
    "Y_BOUND",
]
__all__ += [
    "SMALL_TRUST",
    "SMALL_Y_BOUND",
    "clipped_fedavg",
    "correlated_methods",
    "gram_noise_sd",
    "honest_cells",
]
__all__ += ["levels", "methods", "once_methods", "refinement", "release"]
__all__ += ["small_release"]

X_NORM = 1.1
"""Public bound on the length of a row, over sqrt(features)."""

Y_BOUND = 3.0
REFINEMENTS = {3: 1, 20: 5}
"""Rounds of refinement, and groups of clients that are asked in turn in a round."""

FEDAVG_DRAWS = 30
"""Draws of the noise of DP-FedAvg in each trial."""

DRAWS = 5
"""Draws of the noise of refinement in each trial, below epsilon 1."""

SECURE_TRIALS = 5
"""Trials of refinement by secure sums, each of a hundred exchanges."""

CORRELATED = {"spectrum": 1.0, "rotated": True}
"""The problem with features of variance 1/i, turned so that all are correlated."""

SMALL_FEATURES = (5, 10, 20)
SMALL_EPSILON = 1.0
SMALL_Y_BOUND = 2.0
SMALL_TRUST = ("local", "secagg")


def _bounds(features: int, y_bound: float = Y_BOUND) -> dict[str, Any]:
    x_norm_bound = round(X_NORM * math.sqrt(features), 6)
    return {"x_norm_bound": x_norm_bound, "y_bound": y_bound}


def release(
    settings: Settings,
    epsilon: float,
    estimator: str = "noise_aware",
    trust: str = "local",
) -> Method:
    """Return Private One-Shot: clipped sums with exactly the noise they need."""
    return Method(
        "Private One-Shot",
        epsilon=epsilon,
        delta=settings.one("delta"),
        trust=trust,
        estimator=estimator,
        **_bounds(settings.one("features")),
    )


def small_release(settings: Settings, features: int, trust: str = "local") -> Method:
    """Return Private One-Shot where there are few features."""
    return Method(
        "Private One-Shot",
        epsilon=SMALL_EPSILON,
        delta=settings.one("delta"),
        trust=trust,
        estimator="noise_aware",
        **_bounds(features, SMALL_Y_BOUND),
    )


def refinement(
    settings: Settings, epsilon: float, rounds: int, trust: str = "local"
) -> Method:
    """Return residual refinement: the same epsilon, spread over some rounds."""
    return Method(
        "Refinement",
        rounds=rounds,
        epsilon=epsilon,
        delta=settings.one("delta"),
        trust=trust,
        waves=REFINEMENTS[rounds] if trust == "local" else 1,
        draws=DRAWS if epsilon < 1 and rounds > 3 and trust == "local" else 1,
        **_bounds(settings.one("features")),
    )


def clipped_fedavg(
    settings: Settings, epsilon: float, trust: str = "local", draws: int = FEDAVG_DRAWS
) -> Method:
    """Return DP-FedAvg with clipped records and exact accounting, tuned."""
    return Method(
        CLIPPED_FEDAVG,
        rounds=settings.one("rounds"),
        local_epochs=1,
        epsilon=epsilon,
        delta=settings.one("delta"),
        trust=trust,
        draws=draws,
    )


def methods(settings: Settings, epsilon: float) -> list[Method]:
    """Return all of them, in the order of the table."""
    return [
        *(
            release(settings, epsilon, estimator)
            for estimator in ("noise_aware", "ridge_floor", "plain", "auto")
        ),
        *(refinement(settings, epsilon, rounds) for rounds in REFINEMENTS),
        clipped_fedavg(settings, epsilon),
        release(settings, epsilon, trust="server"),
        release(settings, epsilon, trust="secagg"),
        refinement(settings, epsilon, max(REFINEMENTS), "server"),
        clipped_fedavg(settings, epsilon, "server"),
    ]


def once_methods(settings: Settings, epsilon: float) -> list[Method]:
    """Return those that add noise once per sum, in several rounds."""
    last = max(REFINEMENTS)
    return [
        refinement(settings, epsilon, last, "secagg"),
        refinement(settings, epsilon, last, "server"),
        clipped_fedavg(settings, epsilon, "server"),
    ]


def correlated_methods(settings: Settings, epsilon: float) -> list[Method]:
    """Return those that are compared on correlated features."""
    last = refinement(settings, epsilon, max(REFINEMENTS))
    return [last, clipped_fedavg(settings, epsilon)]


def honest_cells(settings: Settings) -> list[Cell]:
    """Return the cells: every method at every epsilon, then the small problems."""
    cells = []
    for trial in range(settings.private_trials):
        problem = settings.private_problem(trial)
        correlated = settings.private_problem(trial, **CORRELATED)
        for epsilon in settings.epsilon:
            among = methods(settings, epsilon)
            among += once_methods(settings, epsilon)[:1] * (trial < SECURE_TRIALS)
            cells += [Cell(problem, method) for method in among]
        for epsilon in settings.epsilon:
            among = correlated_methods(settings, epsilon)
            cells += [Cell(correlated, method) for method in among]
        for features in SMALL_FEATURES:
            small = settings.private_problem(trial, features=features)
            cells += [
                Cell(small, small_release(settings, features, trust))
                for trust in SMALL_TRUST
            ]
    return cells


def levels(problem: Problem, oracle: Array) -> dict[str, float]:
    """Return the errors of the same trial to hold a private one against."""
    rows = pooled_rows(problem)
    null = float(((rows.y_test - rows.y.mean()) ** 2).mean())
    return {"null_mse": null, "noiseless_mse": rows.test_error(oracle)}


def gram_noise_sd(problem: Problem, method: Method, gram: Array) -> float:
    """Return the deviation of the noise that a released G really has.

    Measured against the sum of clipped rows, which nobody knows outside a simulation.
    Noise of deviation s on the diagonal and s / sqrt(2) off it has an expected square
    of s² d (d + 1) / 2.
    """
    X, d = pooled_rows(problem).X, problem.features
    lengths = (X**2).sum(axis=1) ** 0.5
    X = X * (method.x_norm_bound / lengths.clip(method.x_norm_bound))[:, None]
    square = float(((gram - X.T @ X) ** 2).sum())
    return math.sqrt(square / (d * (d + 1) / 2))
