"""Data of the app's clients, and the local steps of FedAvg and FedProx on them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import FedRidgeError
from .settings import AppSettings

__all__ = [
    "ClientRows",
    "client_rows",
    "feature_names",
    "gradient_steps",
    "largest_curvature",
    "pooled_rows",
]

Array = NDArray[np.float64]
NOISE_SD = 0.1
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
        X, y = _synthetic(settings, partition)
    else:
        X_all, y_all = _dataset(settings.dataset)
        order = np.random.default_rng(settings.seed).permutation(len(X_all))
        mine = np.array_split(order, n_partitions)[partition]
        X, y = X_all[mine], y_all[mine]
    n_test = int(settings.test_fraction * len(X))
    return ClientRows(X[n_test:], y[n_test:], X[:n_test], y[:n_test])


def pooled_rows(settings: AppSettings, n_partitions: int) -> ClientRows:
    """Return the rows of all clients, as nobody has them outside a demonstration.

    Clients with fewer than `MIN_ROWS` hold back, so their rows are not here either.
    """
    clients = [client_rows(settings, k, n_partitions) for k in range(n_partitions)]
    clients = [client for client in clients if len(client.X) >= MIN_ROWS]
    if not clients:
        raise FedRidgeError(
            f"{settings.dataset} has too few rows for {n_partitions} clients: every "
            f"client holds back with fewer than {MIN_ROWS}. Use fewer SuperNodes."
        )
    return ClientRows(
        X=np.concatenate([client.X for client in clients]),
        y=np.concatenate([client.y for client in clients]),
        X_test=np.concatenate([client.X_test for client in clients]),
        y_test=np.concatenate([client.y_test for client in clients]),
    )


def feature_names(settings: AppSettings) -> list[str] | None:
    """Return the names of the features, where the data set has them."""
    from sklearn.datasets import load_diabetes, load_digits

    if settings.dataset == "synthetic":
        return None
    load = load_diabetes if settings.dataset == "diabetes" else load_digits
    return [str(name) for name in load().feature_names]


@lru_cache(maxsize=2)
def _dataset(name: str) -> tuple[Array, Array]:
    from sklearn.datasets import load_diabetes, load_digits

    if name == "diabetes":
        X, y = load_diabetes(return_X_y=True)
        return np.asarray(X), np.asarray(y)
    X, labels = load_digits(return_X_y=True)
    return np.asarray(X), np.eye(10)[labels]


def _synthetic(settings: AppSettings, partition: int) -> tuple[Array, Array]:
    """Rows of one client by the paper's generator (its section V-A).

    Every client has a stream of its own, so that a client makes only its own rows
    and adding clients does not change those of others.
    """
    d = settings.d
    shared = np.random.default_rng([settings.seed, 0])
    w = shared.normal(size=d)
    w /= np.linalg.norm(w)
    own = np.random.default_rng([settings.seed, 1, partition])
    direction = own.normal(size=d)
    direction /= np.linalg.norm(direction)
    variances = own.uniform(0.8, 1.2, size=d)
    X = own.normal(size=(settings.n, d)) * np.sqrt(variances)
    X += settings.gamma * direction
    return X, X @ w + NOISE_SD * own.normal(size=settings.n)


def gradient_steps(
    weights: tuple[Array, Array],
    rows: ClientRows,
    *,
    steps: int,
    learning_rate: float,
    penalty: float,
    proximal_mu: float = 0.0,
) -> tuple[Array, Array]:
    """Return (coef, intercept) after full-batch gradient steps on a client's rows.

    The objective is (1/2n) ||y - X w - b||² + (penalty/2) ||w||²
    + (mu/2) ||(w, b) - (w, b)_global||², where penalty = alpha / (all rows) makes
    the average over clients the ridge objective itself.
    """
    coef_global, intercept_global = weights
    coef, intercept = coef_global.copy(), intercept_global.copy()
    n_rows = max(len(rows.X), 1)
    single = coef.ndim == 1
    for _ in range(steps):
        residual = rows.X @ coef.T + (intercept[0] if single else intercept) - rows.y
        coef_slope = residual.T @ rows.X / n_rows + penalty * coef
        coef_slope += proximal_mu * (coef - coef_global)
        intercept_slope = np.atleast_1d(residual.sum(axis=0)) / n_rows
        intercept_slope += proximal_mu * (intercept - intercept_global)
        coef -= learning_rate * coef_slope
        intercept -= learning_rate * intercept_slope
    return coef, intercept


def largest_curvature(settings: AppSettings, n_partitions: int) -> float:
    """Return L, the largest curvature of any client's loss: 1/L is a safe step."""
    return max(
        _curvature(client_rows(settings, k, n_partitions).X)
        for k in range(n_partitions)
    )


def _curvature(X: Array) -> float:
    if not len(X):
        return 0.0
    with_intercept: Any = np.column_stack([X, np.ones(len(X))])
    return float(np.linalg.norm(with_intercept, 2) ** 2 / len(X))
