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

__all__ = ["CLIPS", "STEPS", "TUNING_SEEDS", "Choice", "drawn_errors", "tail_rounds"]
__all__ += ["tuned_choice"]

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
    return _tuned(replace(problem, seed=0), replace(method, draws=1))


@lru_cache(maxsize=64)
def _tuned(problem: Problem, method: Method) -> Choice:
    root = math.sqrt(problem.features)
    grid = list(itertools.product([round(c * root, 6) for c in CLIPS], STEPS))
    clips, steps = np.array(grid).T
    errors = np.mean(
        [
            # All settings of a trial have the same noise.
            _errors(replace(problem, seed=seed), method, clips, steps, [seed, 5], 1)
            for seed in TUNING_SEEDS
        ],
        axis=0,
    )
    tail, best = np.unravel_index(int(np.argmin(errors)), errors.shape)
    clip, step = grid[best]
    return Choice(clip, step, bool(tail), float(errors[tail, best]))


def drawn_errors(problem: Problem, method: Method) -> list[float]:
    """Return the test errors of as many runs of a tuned method as it has draws.

    By the same rounds as those that tune, each run with noise of its own, which has no
    seed; nothing is sent.
    """
    clips = np.full(method.draws, method.clip)
    steps = np.full(method.draws, method.learning_rate)
    errors = _errors(problem, method, clips, steps, None, method.draws)
    return [float(error) for error in errors[int(method.tail)]]


def _errors(
    problem: Problem,
    method: Method,
    clips: Array,
    steps: Array,
    seed: list[int] | None,
    noises: int,
) -> Array:
    """Return test errors, (last model, mean of the tail) for every clip and step.

    The rounds of all settings at once, all with the same noise or each with its own.
    All clients have equally many rows, so the mean of their models is one step on the
    rows of all.
    """
    rng, size = np.random.default_rng(seed), (problem.features, noises)
    rows, rounds = pooled_rows(problem), method.rounds
    # A trusted server adds once what else every client adds.
    clients = 1 if method.trust == "server" else len(problem.participants)
    budget = method.epsilon, method.delta
    noise_sd = np.array([step_noise_sd(*budget, clip, rounds) for clip in clips])
    noise_sd *= math.sqrt(clients)
    coefs = np.zeros((problem.features, len(clips)))
    tail = np.zeros_like(coefs)
    for server_round in range(1, rounds + 1):
        slopes = clipped_sum(rows.X, rows.y, coefs, clips)
        slopes += rng.normal(size=size) * noise_sd
        coefs -= steps * slopes / len(rows.X)
        if server_round in tail_rounds(rounds):
            tail += coefs / len(tail_rounds(rounds))
    both = np.stack([coefs, tail])
    return np.asarray(np.square(rows.X_test @ both - rows.y_test[:, None]).mean(axis=1))
