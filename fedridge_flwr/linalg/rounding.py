"""What rounding of float64 leaves where there should be nothing."""

from __future__ import annotations

import numpy as np

from .._types import Array

__all__ = ["EPS", "mean_rounding"]

EPS = float(np.finfo(np.float64).eps)


def mean_rounding(means: Array) -> Array:
    """Return the variances at or below which a column is constant to rounding.

    Examples
    --------
    >>> bool(mean_rounding(np.array(1e6)) < 1e-17)
    True
    """
    return np.asarray((10 * EPS * means) ** 2)
