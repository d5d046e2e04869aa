"""Errors of a model on rows, block by block, and pooled over clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._checks import check_numbers
from .._text import counted
from .._types import Array
from ..data.local_table import coded_features
from ..data.names import Columns
from ..data.rows import Block, Rows, check_rows
from ..errors import DataError, StatisticsError
from ..features import map_rows

if TYPE_CHECKING:
    from .model import RidgeModel

_FLAT = 4.0 * float(np.finfo(np.float64).eps)
_LARGEST = 1e150
_ONE_ROW = 1e-6


class Evaluation(NamedTuple):
    """Mean squared error and R² on some rows; R² is NaN where y does not vary."""

    mse: float
    r2: float
    n_rows: int


@dataclass(frozen=True, eq=False)
class ErrorMoments:
    """What mean squared error and R² over several sets of rows are made of.

    ``pool([a, b])`` equals the moments of the rows of both, to rounding.

    Attributes
    ----------
    n_rows : int
        Number of rows.
    weight : float
        Their total weight.
    mean, mean_rest : ndarray of shape (t,)
        Mean of y as the sum of two numbers: one would lose the digits in which clients
        differ where y is far from zero.
    variance : ndarray of shape (t,)
        Weighted mean of squared deviations of y; 0 where that is rounding.
    error : ndarray of shape (t,)
        Weighted mean of squared errors.
    accuracy : float, optional
        Weighted share of rows whose class is the predicted one, of a classifier.
    """

    n_rows: int
    weight: float
    mean: Array
    mean_rest: Array
    variance: Array
    error: Array
    accuracy: float | None = None

    @property
    def mse(self) -> float:
        """Mean squared error, mean over targets."""
        return float(np.mean(self.error))

    @property
    def r2(self) -> float:
        """R², mean over targets as in scikit-learn; NaN where a target is constant."""
        if self.n_rows < 2 or not (self.variance > 0).all():
            return float("nan")
        with np.errstate(over="ignore"):
            return float(np.mean(1.0 - self.error / self.variance))

    @property
    def score(self) -> float:
        """R² as scikit-learn scores: 1 or 0 where a target is constant."""
        if self.n_rows < 2:
            return float("nan")
        with np.errstate(divide="ignore", invalid="ignore"):
            r2 = 1.0 - self.error / self.variance
        constant = np.where(self.error > 0, 0.0, 1.0)
        return float(np.mean(np.where(self.variance > 0, r2, constant)))

    def to_array(self) -> Array:
        """Return weight, means, their rests, variances and errors, 1 + 4 t numbers."""
        parts = (self.mean, self.mean_rest, self.variance, self.error)
        return np.concatenate([[self.weight], *parts])

    @classmethod
    def from_array(cls, array: Any, n_rows: int, n_targets: int) -> ErrorMoments:
        """Read `to_array`; what no rows can have raises a `StatisticsError`."""
        found = check_numbers(array, np.float64, 1 + 4 * n_targets, "evaluation sums")
        weight, parts = float(found[0]), found[1:].reshape(4, n_targets)
        mean, rest, variance, error = parts
        if not weight > 0 or n_rows < 1:
            raise StatisticsError("the evaluation sums have no weight, or no rows.")
        if (variance < 0).any() or (error < 0).any():
            raise StatisticsError("some variances or errors are negative.")
        if np.maximum(np.abs(parts[:2]), np.sqrt(parts[2:])).max() > _LARGEST:
            raise StatisticsError("some evaluation sums are too large.")
        if n_rows == 1 and (np.sqrt(variance) > _ONE_ROW * np.abs(mean)).any():
            raise StatisticsError("one row has no variance.")
        return cls(n_rows, weight, mean, rest, variance, error)


def pool(parts: Sequence[ErrorMoments]) -> ErrorMoments:
    """Return the moments of the rows of all parts together.

    Examples
    --------
    >>> def moments(n, weight, mean, variance, error):
    ...     values = (np.array([x]) for x in (mean, 0.0, variance, error))
    ...     return ErrorMoments(n, weight, *values)
    >>> both = pool([moments(4, 1.0, 0.0, 1.0, 0.5), moments(5, 3.0, 4.0, 1.0, 1.0)])
    >>> both.mse, both.r2, both.n_rows
    (0.875, 0.78125, 9)
    """
    weights = np.array([part.weight for part in parts])
    shares = weights / weights.max()  # the sum of all weights may overflow
    shares = shares / shares.sum()
    start = parts[0].mean
    own = np.array([(part.mean - start) + part.mean_rest for part in parts])
    centre = shares @ own
    gaps = own - centre
    mean = start + centre
    variance = shares @ (np.array([part.variance for part in parts]) + gaps**2)
    with np.errstate(over="ignore"):
        total = float(weights.sum())
    return ErrorMoments(
        n_rows=sum(part.n_rows for part in parts),
        weight=total,
        mean=mean,
        mean_rest=(start - mean) + centre,
        variance=_without_rounding(variance, mean),
        error=shares @ np.array([part.error for part in parts]),
        accuracy=_pooled_accuracy(parts, shares),
    )


def _pooled_accuracy(parts: Sequence[ErrorMoments], shares: Array) -> float | None:
    known = [part.accuracy for part in parts if part.accuracy is not None]
    return float(shares @ known) if len(known) == len(parts) else None


def error_moments(
    model: RidgeModel,
    X: Any,
    y: Any,
    sample_weight: Any,
    is_right: Callable[[Any, Array], Any] | None = None,
) -> ErrorMoments:
    """Return the `ErrorMoments` of a model on rows.

    `is_right` says, from targets and predictions, in which rows the class is right.
    """
    X = X if model.coding is None else coded_features(model.coding, X)
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
        mean = _weighted_mean(rows, lambda block: block.Y)[0]

        def deviations(block: Block) -> Array:
            rest, predicted = block.Y - mean, block.X @ coef + model.intercept_
            parts = [rest, rest**2, (block.Y - predicted) ** 2]
            if is_right is not None:
                parts.append(is_right(block.Y, predicted)[:, None])
            return np.hstack(parts)

        means, weight = _weighted_mean(mapped, deviations)
        rest, square, error = means[: 3 * targets].reshape(3, targets)
        accuracy = None if is_right is None else float(means[-1])
        variance = _without_rounding(np.maximum(square - rest**2, 0.0), mean)
    if not np.isfinite(error).all():
        mapped.refuse_bad_values()
    return ErrorMoments(rows.n_rows, weight, mean, rest, variance, error, accuracy)


def _weighted_mean(rows: Rows, values: Callable[[Block], Array]) -> tuple[Array, float]:
    """Return the weighted mean of something over all rows, and their weight."""
    total, weight = np.zeros(1), 0.0
    for block in rows.blocks():
        own = block.weights
        total = total + own @ np.asarray(values(block), dtype=np.float64)
        weight += float(own.sum())
    return total / weight, weight


def _without_rounding(variance: Array, mean: Array) -> Array:
    """Return variances; those that the rounding of the mean explains are 0."""
    return np.where(np.sqrt(variance) > _FLAT * np.abs(mean), variance, 0.0)
