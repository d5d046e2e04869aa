"""Evaluations of clients as one, and the choice of alpha, in Flower's spelling."""

import math
from collections.abc import Sequence

import numpy as np

from .._text import counted
from ..regression.alpha.alpha_selection import AlphaSelection
from ..regression.evaluation import ErrorMoments, Evaluation, pool


def pool_evaluations(
    evaluations: Sequence[Evaluation | ErrorMoments],
) -> tuple[dict[str, float], str]:
    """Return MSE and R² over the rows of all clients, and what is not known of them.

    Of a classifier these are errors of the targets 1 and -1, and "accuracy" is there.

    "r2" is left out where a target does not vary, or some clients (of 0.1.0, or
    foreign) told only their own R²; MSE is then weighted by rows, whatever their
    weights. "mean-site-r2" is the mean of the clients' own R², weighted by rows, over
    those that have one: another number, often far below where sites differ in level.

    Examples
    --------
    >>> pool_evaluations([Evaluation(1.0, 0.5, 10), Evaluation(4.0, 0.2, 20)])[0]
    {'mse': 3.0, 'mean-site-r2': 0.3, 'num-examples': 30.0}
    """
    evaluations = [each for each in evaluations if each.n_rows]
    if not evaluations:
        return {}, ""
    rows = sum(each.n_rows for each in evaluations)
    full = [each for each in evaluations if isinstance(each, ErrorMoments)]
    told: dict[str, float] = {}
    note = ""
    if len(full) == len(evaluations):
        whole = pool(full)
        told = {"mse": whole.mse} | ({} if math.isnan(whole.r2) else {"r2": whole.r2})
        told |= {} if whole.accuracy is None else {"accuracy": whole.accuracy}
    else:
        told["mse"] = sum(each.mse * (each.n_rows / rows) for each in evaluations)
        older = len(evaluations) - len(full)
        note = (
            f"R² over all rows is not known: {older} of "
            f"{counted(len(evaluations), 'client')} sent only its own, as 0.1.0 does"
        )
    own = [each for each in evaluations if not math.isnan(each.r2)]
    if own:
        weight = sum(each.n_rows for each in own)
        told["mean-site-r2"] = sum(each.r2 * (each.n_rows / weight) for each in own)
    return {**told, "num-examples": float(rows)}, note


def selection_metrics(chosen: AlphaSelection) -> dict[str, float]:
    """Return what strategies report of the choice of alpha."""
    best = int(np.flatnonzero(chosen.alphas == chosen.alpha)[0])
    return {"alpha": chosen.alpha, "held-out-mse": float(chosen.mean[best])}
