"""The paper's private methods as it describes them, and what they really give.

Neither is private: rows are not clipped although the noise is made for rows of norm 1,
G and h are noised as if only one of them were sent, and the noise comes from a seed.
They are here to repeat the paper's Table 5, and for nothing else.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

from .method import Method
from .problem import Array

__all__ = ["algorithm_2", "gradient_noise_sd", "noise_sd", "true_epsilon"]


def noise_sd(epsilon: float, delta: float) -> float:
    """Return the paper's tau = sqrt(2 ln(1.25/delta)) / epsilon.

    Examples
    --------
    >>> round(noise_sd(1.0, 1e-5), 2)
    4.84
    """
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def algorithm_2(
    X: Array, y: Array, epsilon: float, delta: float, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return (G + E, h + e) of the paper's Algorithm 2."""
    sd, d = noise_sd(epsilon, delta), X.shape[1]
    noise = rng.normal(scale=sd, size=(d, d))
    moment_noise = rng.normal(scale=sd, size=d)
    return X.T @ X + (noise + noise.T) / 2, X.T @ y + moment_noise


def gradient_noise_sd(method: Method, rows: int) -> float:
    """Return the deviation of the noise on one local gradient of DP-FedAvg.

    The paper gives each round epsilon / sqrt(rounds) and does not say more. Read as
    the same tau on the sum of gradients of rows, so tau / rows on their mean.
    """
    if not method.epsilon:
        return 0.0
    return noise_sd(method.epsilon / math.sqrt(method.rounds), method.delta) / rows


def true_epsilon(sd: float, sensitivity: float, delta: float) -> float:
    """Return the epsilon that Gaussian noise of this deviation really gives.

    The exact trade-off of the Gaussian mechanism, solved for epsilon at `delta`.

    Examples
    --------
    >>> round(true_epsilon(3.731, 1.0, 1e-5), 2)
    1.0
    """
    mu = sensitivity / sd

    def excess(epsilon: float) -> float:
        first = log_ndtr(mu / 2 - epsilon / mu)
        second = epsilon + log_ndtr(-mu / 2 - epsilon / mu)
        if second >= first:
            return -math.log(delta) - 800.0
        return float(first + math.log(-math.expm1(second - first)) - math.log(delta))

    high = mu * mu / 2 + mu * 10 + 10
    if excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, high, xtol=1e-10, rtol=1e-12))
