"""The best step size for FedAvg, found in its favour by repeating it in numpy."""

from __future__ import annotations

import numpy as np

from .method import SCALED, Method
from .problem import Array, Problem, client_rows, pooled_rows

__all__ = ["STEP_SIZES", "averaged_descent", "tuned_learning_rate"]

STEP_SIZES = tuple(float(f"{10.0 ** (k / 3):.3g}") for k in range(-15, 2))


def tuned_learning_rate(problem: Problem, method: Method) -> float:
    """Return the step size with the smallest test error after the method's rounds.

    Nobody could tune like this in practice: it needs all test rows. It is the best
    that FedAvg can do with a constant step.
    """
    rows = pooled_rows(problem)
    errors = [
        rows.test_error(averaged_descent(problem, method, step)) for step in STEP_SIZES
    ]
    return STEP_SIZES[int(np.argmin(errors))]


def averaged_descent(problem: Problem, method: Method, step: float) -> Array:
    """Return FedAvg's model: full-batch local steps, averaged each round.

    All clients have equally many rows, so the average is a plain one, and their
    quadratic losses make it a matter of small matrix products.
    """
    clients = [client_rows(problem, k) for k in problem.participants]
    n = len(clients[0].X)
    gram = np.stack([client.X.T @ client.X / n for client in clients])
    moment = np.stack([client.X.T @ client.y / n for client in clients])
    scaled = method.penalty == SCALED
    penalty = problem.alpha / problem.training_rows if scaled else problem.alpha
    coef = np.zeros(problem.features)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(method.rounds):
            local = np.tile(coef, (len(clients), 1))
            for _ in range(method.local_epochs):
                slope = np.matmul(gram, local[:, :, None])[:, :, 0] - moment
                slope += penalty * local + method.proximal_mu * (local - coef)
                local -= step * slope
            coef = local.mean(axis=0)
            if not np.isfinite(coef).all():
                break
    return coef
