"""A `Problem`: the synthetic clients of one trial, known by a handful of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedridge_flwr.app import task
from fedridge_flwr.app.synthetic import paper_rows

__all__ = ["ClientRows", "Problem", "centralized", "client_rows", "pooled_rows"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """What the clients of one trial hold, and the penalty that is to be fitted.

    Parameters
    ----------
    clients, rows, features : int
        Number of clients, rows of each (test rows included), features.
    gamma : float
        Heterogeneity: length of each client's own feature mean.
    alpha : float
        Ridge penalty, the paper's sigma.
    seed : int
        Seed of the trial.
    missing : float
        Fraction of clients that never answer.
    features_seen : int
        Features each client sees; 0 means all.
    spectrum : float
        Feature i has variance i**-spectrum.
    test_fraction : float
        Fraction of each client's rows that no training sees.
    rotated : bool
        The features are turned by one orthogonal matrix, so that no scaling of columns
        undoes the spectrum.
    dataset : str
        Name of a data set (`datasets`) instead of the paper's rows; `features` are its
        columns then.
    """

    clients: int = 20
    rows: int = 500
    features: int = 100
    gamma: float = 0.5
    alpha: float = 0.01
    seed: int = 0
    missing: float = 0.0
    features_seen: int = 0
    spectrum: float = 0.0
    test_fraction: float = 0.2
    rotated: bool = False
    dataset: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the settings by name.

        Those that came later are left out where they are not set, so that cells from
        before they existed keep their keys.
        """
        values = dict(vars(self))
        for name in ("rotated", "dataset"):
            if not values[name]:
                del values[name]
        return values

    @property
    def test_rows(self) -> int:
        """Number of test rows of each client."""
        return int(self.test_fraction * self.rows)

    @property
    def participants(self) -> list[int]:
        """Partitions of the clients that answer: at least one."""
        absent = min(round(self.missing * self.clients), self.clients - 1)
        order = np.random.default_rng([self.seed, 2]).permutation(self.clients)
        return sorted(int(k) for k in order[absent:])

    @property
    def training_rows(self) -> int:
        """Number of training rows of all clients that answer."""
        return (self.rows - self.test_rows) * len(self.participants)


class ClientRows(task.ClientRows):
    """Training and test rows, and how well a model does on the test rows."""

    def test_error(self, coef: Array) -> float:
        """Return the mean squared error on the test rows, infinite if diverged."""
        with np.errstate(over="ignore", invalid="ignore"):
            residual = self.X_test @ coef - self.y_test
            error = float(residual @ residual / len(residual))
        return error if np.isfinite(error) else float("inf")


class _Cache:
    """Rows of the problem at hand; those of the one before are let go."""

    def __init__(self) -> None:
        self.problem: Problem | None = None
        self.rows: dict[int, ClientRows] = {}


_cache = _Cache()


def client_rows(problem: Problem, partition: int) -> ClientRows:
    """Return the rows of one client, made once per process and problem."""
    if _cache.problem != problem:
        _cache.problem, _cache.rows = problem, {}
    if partition not in _cache.rows:
        X, y = paper_rows(
            partition,
            rows=problem.rows,
            features=problem.features,
            gamma=problem.gamma,
            seed=problem.seed,
            spectrum=problem.spectrum,
            features_seen=problem.features_seen,
        )
        if problem.rotated:
            X = X @ _rotation(problem.features)
        n = problem.test_rows
        _cache.rows[partition] = ClientRows(X[n:], y[n:], X[:n], y[:n])
    return _cache.rows[partition]


@lru_cache(maxsize=1)
def _rotation(features: int) -> Array:
    """Return an orthogonal matrix, the same in every trial."""
    entries = np.random.default_rng([6, features]).normal(size=(features, features))
    return np.linalg.qr(entries)[0]


@lru_cache(maxsize=1)
def pooled_rows(problem: Problem) -> ClientRows:
    """Return what nobody has in a real federation: the rows of all together.

    Training rows are those of the clients that answer, test rows those of everybody.
    """
    clients = [client_rows(problem, k) for k in range(problem.clients)]
    taking_part = [clients[k] for k in problem.participants]
    return ClientRows(
        X=np.concatenate([client.X for client in taking_part]),
        y=np.concatenate([client.y for client in taking_part]),
        X_test=np.concatenate([client.X_test for client in clients]),
        y_test=np.concatenate([client.y_test for client in clients]),
    )


@lru_cache(maxsize=1)
def centralized(problem: Problem) -> Array:
    """Return scikit-learn's ridge on the pooled training rows: the oracle.

    Of rotated features X'X is so badly conditioned that its solution is wrong in the
    11th digit, where others are to be measured: there the triangle of X is solved.
    """
    from sklearn.linear_model import Ridge

    rows = pooled_rows(problem)
    if problem.rotated:
        return _by_triangle(rows, problem.alpha)
    ridge = Ridge(alpha=problem.alpha, fit_intercept=False, solver="cholesky")
    return np.asarray(ridge.fit(rows.X, rows.y).coef_)


def _by_triangle(rows: ClientRows, alpha: float) -> Array:
    """Return the ridge solution from the QR decomposition of [X; sqrt(alpha) I]."""
    from scipy.linalg import solve_triangular

    d = rows.X.shape[1]
    both = np.zeros((len(rows.X) + d, d + 1))
    both[: len(rows.X), :d], both[: len(rows.X), d] = rows.X, rows.y
    both[len(rows.X) :, :d] = np.sqrt(alpha) * np.eye(d)
    R = np.asarray(np.linalg.qr(both, mode="r"))
    return np.asarray(solve_triangular(R[:d, :d], R[:d, d]))
