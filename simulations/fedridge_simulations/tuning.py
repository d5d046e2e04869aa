"""The best step size for FedAvg, found in its favour by computing where it ends."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import numpy as np

from .method import Method
from .problem import Array, Problem, client_rows, pooled_rows

__all__ = ["STEP_SIZES", "AveragedDescent", "tuned_learning_rate"]

STEP_SIZES = tuple(float(f"{10.0 ** (k / 3):.3g}") for k in range(-15, 2))
_LAST = len(STEP_SIZES) - 1


def tuned_learning_rate(problem: Problem, method: Method) -> float:
    """Return the step size with the smallest test error after the method's rounds.

    Nobody could tune like this in practice: it needs all test rows. It is about the
    best that FedAvg can do with a constant step. A coarse grid is searched first,
    then, between the neighbours of its best, a grid of steps 4% apart: the best step
    is often just below the one that diverges.
    """
    rows, descent = pooled_rows(problem), AveragedDescent(problem, method)

    def best(steps: Sequence[float]) -> int:
        return int(np.argmin([rows.test_error(descent.model(step)) for step in steps]))

    coarse = best(STEP_SIZES)
    low, high = STEP_SIZES[max(coarse - 1, 0)], STEP_SIZES[min(coarse + 1, _LAST)]
    fine = [float(f"{step:.3g}") for step in np.geomspace(low, high, 40)]
    return fine[best(fine)]


class AveragedDescent:
    """Where full-batch FedAvg ends, for any step size, without running it.

    E local steps of length s on a client's quadratic loss with Hessian H and moment h
    take w to (I - sH)^E w + s Σ_j C(E, j+1) (-s)^j H^j h. All clients have equally many
    rows, so the round is the plain mean of these maps, and the means of H^j and
    H^j h serve every step size.
    """

    def __init__(self, problem: Problem, method: Method) -> None:
        penalty = method.local_penalty(problem.alpha, problem.training_rows)
        self._rounds, self._epochs = method.rounds, method.local_epochs
        d, clients = problem.features, problem.participants
        self._powers = np.zeros((self._epochs + 1, d, d))
        self._moments = np.zeros((self._epochs, d))
        for k in clients:
            rows = client_rows(problem, k)
            hessian = rows.X.T @ rows.X / len(rows.X) + penalty * np.eye(d)
            moment = rows.X.T @ rows.y / len(rows.X)
            power = np.eye(d)
            for j in range(self._epochs + 1):
                self._powers[j] += power / len(clients)
                if j < self._epochs:
                    self._moments[j] += power @ moment / len(clients)
                    power = power @ hessian

    def model(self, step: float) -> Array:
        """Return the coefficients after all rounds, not finite if it diverges."""
        turn, shift = self._round(step)
        coef: Array = np.zeros(len(shift))
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(self._rounds):
                coef = turn @ coef + shift
        return coef

    def limit(self, step: float) -> Array | None:
        """Return where endless rounds would end, or None if they diverge."""
        turn, shift = self._round(step)
        if np.abs(np.linalg.eigvals(turn)).max() >= 1:
            return None
        return np.asarray(np.linalg.solve(np.eye(len(shift)) - turn, shift))

    def _round(self, step: float) -> tuple[Array, Array]:
        E = self._epochs
        signs = [comb(E, j) * (-step) ** j for j in range(E + 1)]
        pulls = [step * comb(E, j + 1) * (-step) ** j for j in range(E)]
        turn = np.tensordot(signs, self._powers, axes=1)
        return turn, np.tensordot(pulls, self._moments, axes=1)
