"""Leaving out every client in turn, against a loop of Cholesky solves.

Both sides start from the same statistics and return the same losses.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from threadpoolctl import threadpool_limits

from fedridge_flwr import SufficientStatistics
from fedridge_flwr.regression.alpha.leave_client_out import held_out_losses

from .measure import Ratio, race

__all__ = ["selection"]

Parts = Mapping[str, SufficientStatistics]
Losses = Mapping[str, NDArray[np.float64]]


class Case(NamedTuple):
    """K clients of n_k rows and d features, and the largest ratio allowed."""

    clients: int
    rows: int
    features: int
    alphas: int
    limit: float


CASES = [
    Case(clients=500, rows=100, features=100, alphas=20, limit=0.8),
    Case(clients=100, rows=50, features=400, alphas=20, limit=0.25),
]


def statistics(case: Case) -> dict[str, SufficientStatistics]:
    """Return statistics of clients that share one linear model."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=case.features) / np.sqrt(case.features)
    parts = {}
    for k in range(case.clients):
        X = rng.normal(size=(case.rows, case.features)) + 0.1 * rng.normal()
        y = X @ w + rng.normal(size=case.rows)
        parts[str(k)] = SufficientStatistics.from_data(X, y)
    return parts


def naive_losses(parts: Parts, alphas: NDArray[np.float64]) -> Losses:
    """Return what `held_out_losses` does, by a factorisation per client and alpha."""
    total = reduce(add, parts.values())
    losses = {}
    for client, part in parts.items():
        rest = total - part
        gram, moment = part.centred_gram, part.centred_moment[:, 0]
        found = np.empty(alphas.size)
        for j, alpha in enumerate(alphas):
            system = rest.centred_gram.copy()
            np.einsum("ii->i", system)[:] += alpha
            factor = cho_factor(system, overwrite_a=True, check_finite=False)
            w = cho_solve(factor, rest.centred_moment[:, 0], check_finite=False)
            gap = part.means - rest.means
            offset = gap[-1] - w @ gap[:-1]
            centred = part.comoment[-1, -1] - 2.0 * w @ moment + w @ gram @ w
            found[j] = centred / part.total_weight + offset**2
        losses[client] = found
    return losses


def selection() -> list[Ratio]:
    """Return the cost of all held-out losses against the loop, one BLAS thread each."""
    found = []
    for case in CASES:
        parts = statistics(case)
        alphas = np.geomspace(1e-2, 1e4, case.alphas)
        with threadpool_limits(1, user_api="blas"):
            _same(held_out_losses(parts, alphas), naive_losses(parts, alphas))
            ours, theirs = race(
                lambda: held_out_losses(parts, alphas),  # noqa: B023
                lambda: naive_losses(parts, alphas),  # noqa: B023
                2,
            )
        found.append(
            Ratio.of_times(
                f"leaving out each of {case.clients} clients against a Cholesky "
                f"loop, d={case.features}, {case.alphas} alphas",
                ours,
                theirs,
                case.limit,
            )
        )
    return found


def _same(found: Losses, expected: Losses) -> None:
    for client, losses in expected.items():
        np.testing.assert_allclose(found[client], losses, rtol=1e-9)
