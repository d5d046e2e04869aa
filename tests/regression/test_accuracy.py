"""Estimates of the rounding error, against solutions of the rows in longer numbers."""

from __future__ import annotations

import itertools
import warnings
from typing import NamedTuple

import numpy as np
from longer_numbers import in_longer_numbers, long_enough

from fedridge_flwr import SingularSystemError, SufficientStatistics, solve
from fedridge_flwr.regression.accuracy import rounding_error
from fedridge_flwr.regression.normal_equations import normal_equations

CONDITIONS = 10.0 ** np.arange(2, 13, 2)
KINDS = ("tall", "fewer rows than columns", "weights", "nearly copied", "penalised")


class Case(NamedTuple):
    """Rows, weights and alpha of one problem."""

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    alpha: float


def case(kind: str, condition: float, shift: float, d: int, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    n = max(d // 2, 2) if kind == "fewer rows than columns" else 20 * d
    if kind == "nearly copied":
        X = rng.normal(size=(n, d))
        X[:, 1] = X[:, 0] + rng.choice([1e-9, 1e-7, 1e-5]) * rng.normal(size=n)
    else:
        turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
        X = rng.normal(size=(n, d)) @ (turn * np.geomspace(1, condition**-0.5, d))
        X = X @ turn.T
    X = X + shift
    y = X @ rng.normal(size=d) + 0.1 * rng.normal(size=n)
    weight = rng.exponential(size=n) if kind == "weights" else np.ones(n)
    return Case(X, y, weight, 0.0 if kind in ("tall", "weights") else n / condition)


def error_and_estimate(rows: Case, n_clients: int) -> np.ndarray:
    """Return measured over estimated error: of coefficients, and of predictions."""
    weighted = (rows.weight != 1.0).any()
    parts = [
        SufficientStatistics.from_data(
            rows.X[k::n_clients],
            rows.y[k::n_clients],
            rows.weight[k::n_clients] if weighted else None,
        )
        for k in range(min(n_clients, len(rows.X)))
    ]
    stats: SufficientStatistics = sum(parts)  # type: ignore[assignment]
    coef = solve(stats, rows.alpha).coef_
    exact, lengths, centred = in_longer_numbers(rows)
    moved = coef - exact
    measured = [
        np.linalg.norm((lengths * moved).astype(float))
        / np.linalg.norm((lengths * exact).astype(float)),
        np.linalg.norm((centred @ moved).astype(float))
        / np.linalg.norm((centred @ exact).astype(float)),
    ]
    return np.array(measured) / rounding_error(
        normal_equations(stats), rows.alpha, coef[:, None]
    )


def ratios() -> dict[str, np.ndarray]:
    found: dict[str, list[np.ndarray]] = {kind: [] for kind in KINDS}
    settings = itertools.product(
        KINDS, CONDITIONS, (0.0, 1e3, 1e6), (3, 10, 20), (1, 8)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed, (kind, condition, shift, d, n_clients) in enumerate(settings):
            rows = case(kind, condition, shift, d, seed)
            try:
                found[kind].append(error_and_estimate(rows, n_clients))
            except SingularSystemError:
                continue
    return {kind: np.array(values) for kind, values in found.items()}


@long_enough
def test_estimates_are_of_the_size_of_the_errors() -> None:
    by_kind = ratios()
    assert min(map(len, by_kind.values())) > 20
    for which in (0, 1):  # coefficients, predictions
        all_of_them = np.concatenate([found[:, which] for found in by_kind.values()])
        assert all_of_them.max() < 3.0
        assert (all_of_them > 1 / 30).mean() > 0.9


def test_a_system_that_cannot_be_factored_has_no_digits() -> None:
    X = np.arange(12.0).reshape(6, 2)
    equations = normal_equations(SufficientStatistics.from_data(X, X[:, 0]))
    found = rounding_error(equations, 0.0, np.ones((2, 1)))
    assert min(found) > 1.0
