"""Rows of simulated clients, the same in every process that asks for them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["client_rows", "pooled_rows"]

Array = NDArray[np.float64]
_SEED = 7


@lru_cache(maxsize=1024)
def client_rows(client: int, rows: int, features: int) -> tuple[Array, Array]:
    """Return X and y of one client; clients differ in mean and share coefficients.

    Examples
    --------
    >>> X, y = client_rows(3, rows=5, features=2)
    >>> X.shape, y.shape
    ((5, 2), (5,))
    """
    w = np.random.default_rng(_SEED).normal(size=features) / np.sqrt(features)
    rng = np.random.default_rng([_SEED, client])
    X = rng.normal(size=(rows, features)) + rng.normal()
    return X, X @ w + 0.1 * rng.normal(size=rows)


def pooled_rows(clients: int, rows: int, features: int) -> tuple[Array, Array]:
    """Return the rows of all clients."""
    parts = [client_rows.__wrapped__(k, rows, features) for k in range(clients)]
    return np.concatenate([X for X, _ in parts]), np.concatenate([y for _, y in parts])
