"""Clip, step and tail of DP-FedAvg, tuned in its favour on trials of their own."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from .clipped_descent import clipped_sum, step_noise_sd
from .method import Method
from .problem import Array, Problem, pooled_rows

__all__ = ["CLIPS", "STEPS", "TUNING_SEEDS", "Choice", "tail_rounds", "tuned_choice"]

CLIPS = (0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 3.0)
"""Clips that are tried, over sqrt(features), about the length of a row."""

STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
TUNING_SEEDS = tuple(range(900_000, 900_005))
"""Trials for tuning; far from those that are evaluated."""


@dataclass(frozen=True)
class Choice:
    """What tuning chose, and its mean test error on the tuning trials."""

    clip: float
    step: float
    tail: bool
    error: float

    def of(self, method: Method) -> Method:
        """Return the method with these settings."""
        return replace(method, clip=self.clip, learning_rate=self.step, tail=self.tail)

    def facts(self) -> dict[str, Any]:
        """Return what a result keeps of it."""
        return {
            "clip": self.clip,
            "learning_rate": self.step,
            "tail": self.tail,
            "tuning_mse": self.error,
        }


def tail_rounds(rounds: int) -> range:
    """Return the rounds whose models are averaged: the last half.

    Examples
    --------
    >>> list(tail_rounds(4)), list(tail_rounds(1))
    ([3, 4], [1])
    """
    return range(rounds // 2 + 1, rounds + 1)


def tuned_choice(problem: Problem, method: Method) -> Choice:
    """Return clip, step and tail with the smallest mean error on the tuning trials.

    They are the same for all trials of a problem. The choice sees test rows of the
    tuning trials and costs no privacy: nobody could tune like that in practice.
    """
    return _tuned(replace(problem, seed=0), method.epsilon, method.delta, method.rounds)


@lru_cache(maxsize=64)
def _tuned(problem: Problem, epsilon: float, delta: float, rounds: int) -> Choice:
    root = math.sqrt(problem.features)
    grid = list(itertools.product([round(c * root, 6) for c in CLIPS], STEPS))
    clips, steps = np.array(grid).T
    errors = np.mean(
        [
            _errors(replace(problem, seed=seed), epsilon, delta, rounds, clips, steps)
            for seed in TUNING_SEEDS
        ],
        axis=0,
    )
    tail, best = np.unravel_index(int(np.argmin(errors)), errors.shape)
    clip, step = grid[best]
    return Choice(clip, step, bool(tail), float(errors[tail, best]))


def _errors(
    problem: Problem,
    epsilon: float,
    delta: float,
    rounds: int,
    clips: Array,
    steps: Array,
) -> Array:
    """Return test errors, (last model, mean of the tail) for every clip and step.

    The rounds of all settings at once, with the same noise. All clients have equally
    many rows, so the mean of their models is one step on the rows of all.
    """
    rows, rng = pooled_rows(problem), np.random.default_rng([problem.seed, 5])
    each = np.array([step_noise_sd(epsilon, delta, clip, rounds) for clip in clips])
    noise_sd = each * math.sqrt(len(problem.participants))
    coefs = np.zeros((problem.features, len(clips)))
    tail = np.zeros_like(coefs)
    for server_round in range(1, rounds + 1):
        slopes = clipped_sum(rows.X, rows.y, coefs, clips)
        slopes += rng.normal(size=(problem.features, 1)) * noise_sd
        coefs -= steps * slopes / len(rows.X)
        if server_round in tail_rounds(rounds):
            tail += coefs / len(tail_rounds(rounds))
    both = np.stack([coefs, tail])
    return np.asarray(np.square(rows.X_test @ both - rows.y_test[:, None]).mean(axis=1))
