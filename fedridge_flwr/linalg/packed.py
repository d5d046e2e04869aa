"""Second moments as an upper triangle, row by row, and their rounding.

Read column by column it is the lower triangle, which is BLAS's packed form: rank-one
updates work on it in place, with half the memory traffic of the full matrix.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dspmv, dspr
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


def leading_half(packed: Array, width: int, size: int) -> Array:
    """Return the same of the first `size` columns, with zeros in the upper half.

    No other array of this size exists at any time.

    Examples
    --------
    >>> leading_half(np.arange(6.0), 3, 2)
    array([[0., 0.],
           [1., 3.]])
    """
    found, start = np.zeros((size, size), order="F"), 0
    for k in range(size):
        found[k:, k] = packed[start : start + size - k]
        start += width - k
    return found


def times(packed: Array, vectors: Array) -> Array:
    """Return C V from the triangle of C, without making C."""
    size = len(vectors)
    products = [dspmv(size, 1.0, packed, vector, lower=1) for vector in vectors.T]
    return np.column_stack(products)


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
