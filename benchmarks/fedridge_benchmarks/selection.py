"""Time of leaving out every client in turn, as a ratio to a loop of Cholesky solves.

Run ``python benchmarks/selection.py``: both sides start from the same statistics, use
one BLAS thread and return the same losses. It exits with 1 if a limit is exceeded.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import NamedTuple

import numpy as np
import scipy
from scipy.linalg import cho_factor, cho_solve
from threadpoolctl import threadpool_limits

from fedridge_flwr import SufficientStatistics
from fedridge_flwr.heldout import held_out_losses
from fedridge_flwr.words import text_table

Parts = Mapping[str, SufficientStatistics]
Losses = dict[str, np.ndarray]


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
_REPEATS = 3


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


def naive_losses(parts: Parts, alphas: np.ndarray) -> Losses:
    """Return what `held_out_losses` does, by a factorisation per client and alpha."""
    total = sum(parts.values())
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


def seconds(
    compute: Callable[[Parts, np.ndarray], Losses], parts: Parts, alphas: np.ndarray
) -> tuple[float, Losses]:
    """Return the best time of a few, and what was computed."""
    best = np.inf
    for _ in range(_REPEATS):
        start = perf_counter()
        found = compute(parts, alphas)
        best = min(best, perf_counter() - start)
    return best, found


def main() -> int:
    """Print a table of both times; return 1 if a limit is exceeded, else 0."""
    rows, failed = [], False
    for case in CASES:
        parts = statistics(case)
        alphas = np.geomspace(1e-2, 1e4, case.alphas)
        with threadpool_limits(1):
            fast, found = seconds(held_out_losses, parts, alphas)
            slow, expected = seconds(naive_losses, parts, alphas)
        apart = max(np.abs(found[k] / expected[k] - 1).max() for k in parts)
        ratio = fast / slow
        failed |= bool(ratio > case.limit)
        rows.append(
            [
                f"K={case.clients}, d={case.features}, n_k={case.rows}",
                f"{slow:.2f} s",
                f"{fast:.2f} s",
                f"{ratio:.2f}",
                f"{case.limit:.2f}",
                f"{apart:.0e}",
            ]
        )
    heads = ["clients", "Cholesky loop", "held_out_losses", "ratio", "limit", "apart"]
    print(text_table(heads, rows))
    print(
        f"{os.cpu_count()} cores, 1 BLAS thread, best of {_REPEATS}; "
        f"Python {platform.python_version()}, NumPy {np.__version__}, "
        f"SciPy {scipy.__version__}"
    )
    if failed:
        print("a ratio is above its limit.", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
