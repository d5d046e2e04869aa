"""Data for the tests: the paper's generator, splits of rows, how far apart two are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fedridge_flwr import SufficientStatistics

SPLITS = ("even", "random-size", "sorted", "with-empty-clients")


def paper_clients(
    d: int, n_k: int, K: int, gamma: float, seed: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (A_k, b_k) of K clients as the paper draws them.

    One unit vector w* is shared. Every client has its own mean of length gamma and
    its own variances U[0.8, 1.2]; the noise has standard deviation 0.1.
    """
    rng = np.random.default_rng(seed)
    w = unit_vector(d, rng)
    clients = []
    for _ in range(K):
        deviations = np.sqrt(rng.uniform(0.8, 1.2, size=d))
        A = gamma * unit_vector(d, rng) + deviations * rng.normal(size=(n_k, d))
        clients.append((A, A @ w + 0.1 * rng.normal(size=n_k)))
    return clients


def unit_vector(d: int, rng: np.random.Generator) -> np.ndarray:
    vector = rng.normal(size=d)
    return vector / np.linalg.norm(vector)


def linear_rows(
    n: int, d: int, rng: np.random.Generator, t: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return n noisy rows of a linear model, y of shape (n,) or (n, t)."""
    X = rng.normal(size=(n, d))
    y = X @ rng.normal(size=(d, 1 if t is None else t)) + 2.0
    y += 0.5 * rng.normal(size=y.shape)
    return X, y[:, 0] if t is None else y


def split_rows(
    n: int,
    K: int,
    rng: np.random.Generator,
    kind: str = "even",
    key: np.ndarray | None = None,
) -> list[np.ndarray]:
    """Return the row numbers of K clients; together they hold every row once.

    Parameters
    ----------
    kind : str
        One of `SPLITS`: "even", "random-size", "sorted" (by `key`, so that clients
        are as unlike as can be) or "with-empty-clients" (every second one).
    """
    if kind == "even":
        return np.array_split(rng.permutation(n), K)
    if kind == "sorted":
        return np.array_split(np.argsort(key, kind="stable"), K)
    if kind == "random-size":
        cuts = np.sort(rng.integers(0, n + 1, size=K - 1))
        return np.split(rng.permutation(n), cuts)
    if kind == "with-empty-clients":
        full = iter(np.array_split(rng.permutation(n), (K + 1) // 2))
        nobody = np.empty(0, dtype=np.int64)
        return [nobody if k % 2 else next(full) for k in range(K)]
    raise ValueError(f"no split of kind {kind!r}")


def client_statistics(
    X: Any, y: Any, parts: Iterable[np.ndarray], sample_weight: Any = None
) -> list[SufficientStatistics]:
    """Return the statistics of every client of a split."""
    return [
        SufficientStatistics.from_data(
            X[rows], y[rows], None if sample_weight is None else sample_weight[rows]
        )
        for rows in parts
    ]


def pooled(
    clients: Sequence[tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of all clients as one X and one y."""
    return (
        np.concatenate([A for A, _ in clients]),
        np.concatenate([b for _, b in clients]),
    )


def relative_error(found: Any, expected: Any) -> float:
    """Return the distance of two arrays relative to the norm of the second."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape, (found.shape, expected.shape)
    size = float(np.linalg.norm(expected))
    distance = float(np.linalg.norm(found - expected))
    return distance / size if size else distance


def assert_same_statistics(
    found: SufficientStatistics,
    expected: SufficientStatistics,
    rtol: float = 1e-12,
    scale: SufficientStatistics | None = None,
) -> None:
    """Check that two statistics are equal up to rounding, entry by entry.

    A co-moment may be wrong by `rtol` times (deviation of one column) times (root
    mean square of the other): what centred sums promise and raw sums break as soon
    as a mean is large. `scale` is where deviations are taken from, if not from
    `expected`: a difference can be no better than what it was taken from.
    """
    scale = expected if scale is None else scale
    variance = np.diagonal(scale.comoment)
    deviation = np.sqrt(variance)
    size = np.sqrt(variance + scale.total_weight * scale.means**2)
    allowed = rtol * (np.outer(deviation, size) + np.outer(size, deviation))
    allowed += rtol**2 * np.outer(size, size)
    assert found.count == expected.count
    assert found.n_features == expected.n_features
    assert found.n_targets == expected.n_targets
    np.testing.assert_allclose(
        found.total_weight, expected.total_weight, atol=rtol * scale.total_weight
    )
    if expected.total_weight > 0:
        spread = size / np.sqrt(expected.total_weight)
        assert (np.abs(found.means - expected.means) <= rtol * spread).all()
    assert (np.abs(found.comoment - expected.comoment) <= allowed).all()
