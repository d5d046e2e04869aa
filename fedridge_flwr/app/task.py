"""Data of the app's clients."""

from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np

from .._types import Array
from ..errors import FedRidgeError
from .descent import curvature
from .run_config import AppSettings
from .synthetic import paper_rows

MIN_ROWS = 2


@dataclass(frozen=True)
class ClientRows:
    """Training and test rows of one client, or of all together."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array


@lru_cache(maxsize=4096)
def client_rows(settings: AppSettings, partition: int, n_partitions: int) -> ClientRows:
    """Return the rows of one client; loaded once per process and client."""
    if settings.dataset == "synthetic":
        size = {"rows": settings.n, "features": settings.d}
        X, y = paper_rows(partition, **size, gamma=settings.gamma, seed=settings.seed)
    else:
        X_all, y_all, _ = _dataset(settings.dataset)
        order = np.random.default_rng(settings.seed).permutation(len(X_all))
        mine = np.array_split(order, n_partitions)[partition]
        X, y = X_all[mine], y_all[mine]
    n_test = int(settings.test_fraction * len(X))
    return ClientRows(X[n_test:], y[n_test:], X[:n_test], y[:n_test])


def pooled_rows(settings: AppSettings, n_partitions: int) -> ClientRows:
    """Return the rows of all clients together, for comparison only.

    Clients with fewer than `MIN_ROWS` rows decline, so their rows are left out.
    """
    clients = [client_rows(settings, k, n_partitions) for k in range(n_partitions)]
    clients = [client for client in clients if len(client.X) >= MIN_ROWS]
    if not clients:
        raise FedRidgeError(
            f"{settings.dataset} has too few rows for {n_partitions} clients: every "
            f"client declines with fewer than {MIN_ROWS}. Use fewer SuperNodes."
        )
    parts = (
        [getattr(each, part.name) for each in clients] for part in fields(clients[0])
    )
    return ClientRows(*map(np.concatenate, parts))


def feature_names(settings: AppSettings) -> list[str] | None:
    """Return the names of the features, where the data set has them."""
    return None if settings.dataset == "synthetic" else _dataset(settings.dataset)[2]


@lru_cache(maxsize=2)
def _dataset(name: str) -> tuple[Array, Array, list[str]]:
    from sklearn.datasets import load_diabetes, load_digits

    table = load_diabetes() if name == "diabetes" else load_digits()
    names = [str(feature) for feature in table.feature_names]
    X, y = np.asarray(table.data), np.asarray(table.target)
    if name == "digits":
        return X, np.eye(10)[y], names
    # scikit-learn gives columns of norm one, on which gradient descent crawls. On unit
    # variance FedAvg is a fair competitor.
    return X * np.sqrt(len(X)), y, names


def largest_curvature(settings: AppSettings, n_partitions: int) -> float:
    """Return L, the largest curvature of any client's loss: 1/L is a safe step."""
    return max(
        curvature(client_rows(settings, k, n_partitions).X) for k in range(n_partitions)
    )
