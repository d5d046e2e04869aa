"""Errors of a model on rows, block by block."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._text import counted
from .._types import Array
from ..data.names import Columns
from ..data.rows import Block, Rows, check_rows
from ..errors import DataError
from ..features import map_rows

if TYPE_CHECKING:
    from .model import RidgeModel


class Evaluation(NamedTuple):
    """Mean squared error and R² on some rows; R² is NaN where y does not vary."""

    mse: float
    r2: float
    n_rows: int


def errors_on(
    model: RidgeModel, X: Any, y: Any, sample_weight: Any
) -> tuple[Array, Array, int]:
    """Return mean squared error and variance of y per target, and the row count."""
    rows = check_rows(X, y, sample_weight)
    if rows.n_rows == 0:
        raise DataError("there are no rows to evaluate on.")
    if rows.weight is not None and not rows.weight.any():
        raise DataError("sample_weight is zero for every row to evaluate on.")
    model._check_width(rows.n_features)
    rows = rows.arranged(Columns(model.features, model.targets))
    targets = len(np.atleast_2d(model.coef_))
    if rows.n_targets != targets:
        raise DataError(
            f"y has {counted(rows.n_targets, 'target')}, but the model "
            f"predicts {targets}."
        )
    coef = np.atleast_2d(model.coef_).T
    mapped = map_rows(rows, model.feature_map)
    with np.errstate(invalid="ignore", over="ignore"):
        mean = _weighted_mean(rows, lambda block: block.Y)
        error = _weighted_mean(
            mapped, lambda block: (block.Y - (block.X @ coef + model.intercept_)) ** 2
        )
        spread = _weighted_mean(rows, lambda block: (block.Y - mean) ** 2)
    if not np.isfinite(error).all():
        mapped.refuse_bad_values()
    return error, spread, rows.n_rows


def _weighted_mean(rows: Rows, values: Callable[[Block], Array]) -> Array:
    """Return the weighted mean of something over all rows, block by block."""
    total, weight = np.zeros(rows.n_targets), 0.0
    for block in rows.blocks():
        own = block.weights
        total = total + own @ np.asarray(values(block), dtype=np.float64)
        weight += float(own.sum())
    return total / weight
