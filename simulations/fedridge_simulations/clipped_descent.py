"""The local step of DP-FedAvg done right: clipped records, and noise for all rounds."""

from __future__ import annotations

import math

import numpy as np

from fedridge_flwr.privacy.accounting import noise_multiplier

from .problem import Array

__all__ = ["clipped_sum", "private_step", "step_noise_sd"]


def clipped_sum(X: Array, y: Array, coefs: Array, clips: Array) -> Array:
    """Return the sums of the records' gradients, each cut to a length of at most clip.

    The gradient of a record (a, b) at w is a (a'w - b). One column for each of the
    models in `coefs`, (d, m), with its own clip.

    Examples
    --------
    >>> X, y = np.array([[3.0], [1.0]]), np.array([1.0, 1.0])
    >>> clipped_sum(X, y, np.zeros((1, 2)), np.array([2.0, 10.0]))
    array([[-3., -4.]])
    """
    residuals = X @ coefs - y[:, None]
    lengths = np.abs(residuals) * np.linalg.norm(X, axis=1)[:, None]
    residuals *= np.minimum(1.0, clips / np.maximum(lengths, 1e-300))
    return np.asarray(X.T @ residuals)


def step_noise_sd(epsilon: float, delta: float, clip: float, rounds: int) -> float:
    """Return the noise on each of a client's sums that keeps all rounds private.

    A record changes each sum by at most `clip`, and R such releases are as one with
    sqrt(R) times the change: exactly, for Gaussian noise.

    Examples
    --------
    >>> round(step_noise_sd(1.0, 1e-5, 0.3, 100), 2)
    11.19
    """
    return math.sqrt(rounds) * noise_multiplier(epsilon, delta) * clip


def private_step(
    X: Array,
    y: Array,
    coef: Array,
    *,
    step: float,
    clip: float,
    noise_sd: float,
    rows: int,
    rng: np.random.Generator,
) -> Array:
    """Return w - step (sum of clipped gradients + noise) / rows; `rows` is public."""
    total = clipped_sum(X, y, coef[:, None], np.array([clip]))[:, 0]
    noise = rng.normal(scale=noise_sd, size=len(coef))
    return np.asarray(coef - step * (total + noise) / rows)
