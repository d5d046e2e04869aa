"""Local training of FedAvg and FedProx: gradient steps on one client's rows."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .._types import Array


def gradient_steps(
    weights: tuple[Array, ...],
    X: Array,
    y: Array,
    *,
    epochs: int,
    learning_rate: float,
    penalty: float,
    proximal_mu: float = 0.0,
    batch_size: int = 0,
    noise_sd: float = 0.0,
    rng: np.random.Generator | None = None,
) -> tuple[Array, ...]:
    """Return the weights (coef, intercept), or (coef,), after local epochs.

    The objective is (1/2n) ||y - X w - b||² + (penalty/2) ||w||²
    + (mu/2) ||(w, b) - (w, b)_global||², where penalty = alpha / (all rows) makes
    the average over clients the ridge objective itself.

    Parameters
    ----------
    weights : tuple of ndarray
        coef of shape (d,) or (t, d) and, for a model with intercept, its intercept.
    batch_size : int
        Rows of one step, drawn anew in each epoch; 0 takes all rows at once.
    noise_sd : float
        Deviation of Gaussian noise added to every gradient.
    rng : numpy.random.Generator, optional
        Needed for batches and for noise.
    """
    current = tuple(weight.copy() for weight in weights)
    for _ in range(epochs):
        for rows in _batches(len(X), batch_size, rng):
            slopes = _slopes(current, X[rows], y[rows])
            for k, (weight, slope) in enumerate(zip(current, slopes, strict=True)):
                slope += proximal_mu * (weight - weights[k])
                if k == 0:
                    slope += penalty * weight
                if noise_sd and rng is not None:
                    slope += noise_sd * rng.normal(size=slope.shape)
                weight -= learning_rate * slope
    return current


def curvature(X: Array) -> float:
    """Return L, the largest curvature of the loss of a client: 1/L is a safe step."""
    if not len(X):
        return 0.0
    X = np.column_stack([X, np.ones(len(X))])
    return float(np.linalg.norm(X, 2) ** 2 / len(X))


def _batches(
    n: int, size: int, rng: np.random.Generator | None
) -> Iterator[slice | NDArray[np.intp]]:
    if not size or size >= n or rng is None:
        yield slice(None)
        return
    order = rng.permutation(n)
    for begin in range(0, n, size):
        yield order[begin : begin + size]


def _slopes(weights: tuple[Array, ...], X: Array, y: Array) -> list[Array]:
    coef, *intercept = weights
    residual = X @ coef.T - y
    for b in intercept:
        residual += b[0] if coef.ndim == 1 else b
    n = max(len(X), 1)
    slopes: list[Array] = [np.asarray(residual.T @ X) / n]
    slopes += [np.atleast_1d(residual.sum(axis=0)) / n for _ in intercept]
    return slopes
