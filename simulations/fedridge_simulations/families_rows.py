"""Rows with two classes at several clients, their objective, and local training."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from .datasets import DATA_VARIABLE, beside_the_project
from .problem import Array

__all__ = ["ALPHA", "DATA", "Client", "Local", "Tuned", "clients_of", "is_there"]
__all__ += ["objective", "pooled", "trained", "tuned_average", "tuned_server_step"]

ALPHA = 1.0
_HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
_COMPLETE = [0, 1, 2, 3, 6, 7, 8, 9]
_EPOCHS = (1, 5, 20)
_STEPS = tuple(2.0**k for k in range(-2, 6))
_SERVER_STEPS = (0.003, 0.01, 0.03, 0.1, 0.3)
_MOST_ROWS = 6_000
_NUMERATOR = 2.0


@dataclass(frozen=True)
class Client:
    """Rows of one client: a column of ones first, then features of unit variance."""

    X: Array
    y: Array


@dataclass(frozen=True)
class Local:
    """What a client does in a round: steps of gradient descent on all of its rows."""

    epochs: int
    step: float
    proximal_mu: float = 0.0


@dataclass(frozen=True)
class Tuned:
    """Settings, and by the emulation: rounds until near, and where they end."""

    local: Local
    server_step: float
    rounds: float
    excess: float


def _folder() -> Path:
    return Path(os.environ.get(DATA_VARIABLE) or beside_the_project())


def _heart() -> list[tuple[Array, Array]]:
    parts = []
    for name in _HOSPITALS:
        path = _folder() / "heart_disease" / f"processed.{name}.data"
        table = np.genfromtxt(path, delimiter=",", missing_values="?")
        rows = table[~np.isnan(table[:, _COMPLETE]).any(axis=1)]
        parts.append((rows[:, _COMPLETE], (rows[:, -1] > 0).astype(float)))
    return parts


def _breast_cancer() -> list[tuple[Array, Array]]:
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    return [(X[k::20], y[k::20].astype(float)) for k in range(20)]


def _covtype() -> list[tuple[Array, Array]]:
    import pandas as pd

    table = pd.read_csv(_folder() / "covtype" / "covtype.csv.xz").to_numpy(float)
    order = np.argsort(table[:, 0], kind="stable")  # by elevation: unlike clients
    X, y = table[order, :-1], (table[order, -1] == 2).astype(float)
    return list(zip(np.array_split(X, 10), np.array_split(y, 10), strict=True))


DATA: dict[str, tuple[str, Callable[[], list[tuple[Array, Array]]]]] = {
    "heart disease": ("4 hospitals", _heart),
    "breast cancer": ("20 clients", _breast_cancer),
    "covtype": ("10 clients, sorted by elevation", _covtype),
}


def is_there(name: str) -> bool:
    """Whether the files of a data set are at hand."""
    folders = {"heart disease": "heart_disease", "covtype": "covtype"}
    return name not in folders or (_folder() / folders[name]).is_dir()


@lru_cache(maxsize=1)
def clients_of(name: str) -> tuple[Client, ...]:
    """Return the clients of a data set, their columns scaled by those of all rows."""
    parts = DATA[name][1]()
    X = np.concatenate([part[0] for part in parts])
    means, scales = X.mean(axis=0), X.std(axis=0)
    scales = np.where(scales > 0, scales, 1.0)
    return tuple(
        Client(np.column_stack([np.ones(len(y)), (X - means) / scales]), y)
        for X, y in parts
    )


def objective(clients: Sequence[Client], coef: Array) -> float:
    """Return deviance + alpha ||w||², the intercept not penalised."""
    total = ALPHA * float(coef[1:] @ coef[1:])
    with np.errstate(over="ignore", invalid="ignore"):
        for client in clients:
            eta = client.X @ coef
            away = np.where(client.y > 0.5, -eta, eta)
            total += _NUMERATOR * float(np.logaddexp(0.0, away).sum())
    return total


def pooled(clients: Sequence[Client]) -> Array:
    """Return the coefficients of scikit-learn on the pooled rows."""
    from sklearn.linear_model import LogisticRegression

    X = np.concatenate([client.X[:, 1:] for client in clients])
    y = np.concatenate([client.y for client in clients])
    model = LogisticRegression(
        C=1 / ALPHA, solver="newton-cholesky", tol=1e-14, max_iter=1000
    ).fit(X, y)
    return np.append(model.intercept_, model.coef_[0])


def trained(client: Client, coef: Array, local: Local, rows: int) -> Array:
    """Return the coefficients after local training; all clients' rows are `rows`.

    The mean of the clients' losses, weighted by rows, is the objective over 2 rows.
    """
    now, penalty = coef.copy(), np.full(len(coef), ALPHA / rows)
    penalty[0] = 0.0
    for _ in range(local.epochs):
        wrong = expit(client.X @ now) - client.y
        slope = client.X.T @ wrong / len(client.y) + penalty * now
        now = now - local.step * (slope + local.proximal_mu * (now - coef))
    return now


def tuned_average(clients: Sequence[Client], rounds: int, near: float) -> Tuned:
    """Return the local steps with which FedAvg comes near the pooled fit first."""
    some = _thinned(clients)
    smooth = 0.25 * max(np.linalg.eigvalsh(c.X.T @ c.X / len(c.y))[-1] for c in some)
    return _best(
        _emulated(some, Local(epochs, factor / smooth), 0.0, rounds, near)
        for epochs in _EPOCHS
        for factor in _STEPS
    )


def tuned_server_step(
    clients: Sequence[Client], rounds: int, near: float, local: Local
) -> Tuned:
    """Return the server's step of FedAdam, for clients that train as in FedAvg."""
    some = _thinned(clients)
    return _best(_emulated(some, local, step, rounds, near) for step in _SERVER_STEPS)


def _best(found: Iterable[Tuned]) -> Tuned:
    """Return what is near first, or else ends nearest."""
    return min(found, key=lambda each: (each.rounds, each.excess))


def _thinned(clients: Sequence[Client]) -> list[Client]:
    """Return a part of the rows, to tune on."""
    rows = sum(len(client.y) for client in clients)
    every = max(1, rows // _MOST_ROWS)
    return [Client(c.X[::every], c.y[::every]) for c in clients]


def _emulated(
    clients: Sequence[Client],
    local: Local,
    server_step: float,
    rounds: int,
    near: float,
) -> Tuned:
    """Emulate FedAvg, or FedAdam if the server has a step of its own."""
    rows = sum(len(client.y) for client in clients)
    least = objective(clients, pooled(clients))
    weights = np.array([len(client.y) / rows for client in clients])
    coef = np.zeros(clients[0].X.shape[1])
    first, second, excess = np.zeros_like(coef), np.zeros_like(coef), np.inf
    with np.errstate(over="ignore", invalid="ignore"):
        for number in range(1, rounds + 1):
            ends = [trained(client, coef, local, rows) for client in clients]
            change = weights @ np.array(ends) - coef
            if server_step:
                first = 0.9 * first + 0.1 * change
                second = 0.99 * second + 0.01 * change**2
                rate = server_step * np.sqrt(1 - 0.99**number) / (1 - 0.9**number)
                change = rate * first / (np.sqrt(second) + 1e-3)
            coef = coef + change
            excess = objective(clients, coef) / least - 1.0
            if not np.isfinite(excess):
                return Tuned(local, server_step, np.inf, np.inf)
            if excess <= near:
                return Tuned(local, server_step, number, excess)
    return Tuned(local, server_step, np.inf, excess)


def as_facts(tuned: Tuned) -> dict[str, Any]:
    """Return the settings as JSON-able values."""
    facts = {"epochs": tuned.local.epochs, "step": float(f"{tuned.local.step:.3g}")}
    return facts | ({"server_step": tuned.server_step} if tuned.server_step else {})
