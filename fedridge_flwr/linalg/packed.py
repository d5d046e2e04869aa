"""Second moments as an upper triangle, row by row, and their rounding.

Read column by column it is the lower triangle, which is BLAS's packed form: rank-one
updates work on it in place, with half the memory traffic of the full matrix.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dspr
from scipy.linalg.lapack import dtpttr, dtrttp

from .._types import Array

EPS = float(np.finfo(np.float64).eps)


def upper_triangle(matrix: Array) -> Array:
    """Return the upper triangle of a matrix, row by row.

    Examples
    --------
    >>> upper_triangle(np.array([[1.0, 2.0], [2.0, 3.0]]))
    array([1., 2., 3.])
    """
    return np.asarray(dtrttp(matrix.T, uplo="L")[0])


def lower_half(packed: Array, width: int) -> Array:
    """Return a matrix, column by column, whose lower half is that of the symmetric one.

    It is what LAPACK needs of a symmetric matrix; the upper half has no meaning.
    """
    return np.asarray(dtpttr(width, packed, uplo="L")[0])


def from_upper(packed: Array, width: int) -> Array:
    """Return the symmetric matrix with this upper triangle."""
    upper = ~np.tri(width, k=-1, dtype=bool)
    matrix = np.empty((width, width))
    matrix[upper] = packed
    matrix.T[upper] = packed
    return matrix


@lru_cache(maxsize=64)
def diagonal_positions(width: int) -> NDArray[np.int64]:
    """Return where the diagonal is in the triangle.

    Examples
    --------
    >>> diagonal_positions(3)
    array([0, 3, 5])
    """
    k = np.arange(width)
    places = np.asarray(k * width - k * (k - 1) // 2)
    places.setflags(write=False)
    return places


def add_square(packed: Array, vector: Array, factor: float) -> None:
    """Add factor * v v' to a triangle, in place."""
    dspr(len(vector), factor, vector, packed, lower=1, overwrite_ap=1)


def mean_rounding(means: Array) -> Array:
    """Return the variances at or below which a column is constant to rounding.

    Examples
    --------
    >>> bool(mean_rounding(np.array(1e6)) < 1e-17)
    True
    """
    return np.asarray((10 * EPS * means) ** 2)


def packed_length(n_features: int, n_targets: int) -> int:
    """Return how many numbers weight, means and co-moments of [X Y] are.

    Examples
    --------
    >>> packed_length(100, 1)
    5253
    """
    width = n_features + n_targets
    return (1 + width) * (2 + width) // 2
