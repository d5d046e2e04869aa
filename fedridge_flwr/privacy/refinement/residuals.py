"""What one row answers in residual refinement: a point of the unit ball.

Asked for coefficients w and a clip C, the row (a, b) answers

    (a/|a| sin rho, cos rho),    rho = |a| (b - a w) / C, cut to ±pi/2,

whose length is at most 1 whatever the row. The cosine is the derivative of the sine:
the vector says where to go, the number how steep it is there, and neither takes budget
from the other.
"""

import math

import numpy as np

from ..._types import Array
from ..clipping import LENGTH, Bounds, GridRows

# Coefficients are rounded to whole numbers, so that predictions are exact integers:
# 2^20 for a row times 2^32 for the coefficients is below 2^53.
_COEF_LENGTH = 2.0**32


def residual_sums(grid: GridRows, bounds: Bounds, coef: Array, clip: float) -> Array:
    """Return the sum of the rows' answers, as integers of length LENGTH² per row.

    Examples
    --------
    >>> from fedridge_flwr.data.rows import Block
    >>> bounds = Bounds(1.0, 1.0, 2, 1, intercept=False)
    >>> rows = bounds.on_grid(Block(np.array([[0.6, 0.0]]), np.array([[0.5]]), None))
    >>> (residual_sums(rows, bounds, np.zeros(2), 1.0) / LENGTH**2).round(3)
    array([0.296, 0.   , 0.955])
    """
    lengths = np.sqrt(np.einsum("ij,ij->i", grid.X, grid.X))
    # Targets need no bound here: the angle has one.
    # Very large coefficients make NaN, which fails the check of the length below.
    with np.errstate(over="ignore", invalid="ignore"):
        residuals = grid.targets[:, 0] - _predictions(grid, bounds, coef)
        angles = lengths * bounds.x_step * residuals / clip
    angles = np.clip(angles, -math.pi / 2, math.pi / 2)
    # Rounding to whole numbers lengthens an answer by half the root of its width.
    unit = LENGTH - math.sqrt(bounds.width + 1) - 1
    steps = unit * np.sin(angles) / np.maximum(lengths, 1.0)
    answers = np.column_stack([grid.X * steps[:, None], unit * np.cos(angles)])
    np.rint(answers, out=answers)
    answers[~grid.present] = 0.0
    # As for the rows: an answer that is too long must be dropped.
    kept = np.einsum("ij,ij->i", answers, answers) <= LENGTH**2
    answers[~kept] = 0.0
    return np.asarray(answers.sum(axis=0) * LENGTH)


def _predictions(grid: GridRows, bounds: Bounds, coef: Array) -> Array:
    largest = float(np.abs(coef).max())
    if largest == 0.0:
        return np.zeros(len(grid.Y))
    # The largest first: squares of very large or small numbers are not numbers.
    length = largest * float(np.linalg.norm(coef / largest))
    unit = length / (_COEF_LENGTH - math.sqrt(coef.size))
    return np.asarray((grid.X @ np.rint(coef / unit)) * unit * bounds.x_step)
