"""The paper's private methods as it describes them, and what they really give.

Neither is private: rows are not clipped although the noise is made for rows of norm 1,
G and h are noised as if only one of them were sent, and the noise comes from a seed.
They reproduce the paper's Table 5. Do not use them for anything else.
"""

from __future__ import annotations

import math

import numpy as np

from fedridge_flwr.privacy import compose, epsilon_of

from .method import Method
from .problem import Array

__all__ = ["algorithm_2", "classical_multiplier", "exact_cost", "gradient_noise_sd"]
__all__ += ["one_shot_cost", "plain_solution", "theorem_cost"]


def classical_multiplier(epsilon: float, delta: float) -> float:
    """Return the paper's noise tau = sqrt(2 ln(1.25/delta)) / epsilon.

    Examples
    --------
    >>> round(classical_multiplier(1.0, 1e-5), 2)
    4.84
    """
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def plain_solution(gram: Array, moment: Array, alpha: float) -> Array:
    """Return (G + alpha I)⁻¹ h of noisy G and h, as if there were no noise.

    The system may be indefinite, and its solution arbitrarily wrong.

    Examples
    --------
    >>> plain_solution(np.diag([4.0, -1.0]), np.ones(2), 0.0)
    array([ 0.25, -1.  ])
    """
    system = gram + alpha * np.eye(len(gram))
    return np.asarray(np.linalg.solve(system, moment), dtype=np.float64)


def algorithm_2(
    X: Array, y: Array, epsilon: float, delta: float, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return (G + E, h + e) of the paper's Algorithm 2."""
    sd, d = classical_multiplier(epsilon, delta), X.shape[1]
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
    each = method.epsilon / math.sqrt(method.rounds)
    return classical_multiplier(each, method.delta) / rows


def one_shot_cost(epsilon: float, delta: float, change: float) -> float:
    """Return the true epsilon of Algorithm 2 where a row changes (G, h) by `change`.

    G and h leave together, so a row and target of norm 1 change them by sqrt(2).

    Examples
    --------
    >>> round(one_shot_cost(1.0, 1e-5, math.sqrt(2)), 2)
    1.1
    """
    return epsilon_of(change / classical_multiplier(epsilon, delta), delta)


def theorem_cost(epsilon: float, delta: float, rounds: int) -> float:
    """Return what rounds of epsilon / sqrt(rounds) cost by the paper's theorem.

    Its sqrt(2 R ln(1/delta)) e + R e (exp(e) - 1), with e for epsilon / sqrt(R).

    Examples
    --------
    >>> round(theorem_cost(1.0, 1e-5, 100), 2)
    5.85
    """
    each = epsilon / math.sqrt(rounds)
    spread = math.sqrt(2 * rounds * math.log(1 / delta)) * each
    return spread + rounds * each * math.expm1(each)


def exact_cost(epsilon: float, delta: float, rounds: int) -> float:
    """Return what the same rounds really cost, with the paper's tau and sensitivity 1.

    Examples
    --------
    >>> round(exact_cost(1.0, 1e-5, 100), 2)
    0.75
    """
    each = 1.0 / classical_multiplier(epsilon / math.sqrt(rounds), delta)
    return epsilon_of(compose([each] * rounds), delta)
