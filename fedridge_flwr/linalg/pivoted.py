"""Upper trapezoids R with R'R = C, as one row of numbers and an order of columns.

Columns are taken in the order of a pivoted factorisation. That makes R a function of C
alone, so that it discloses no more of the rows than C does: without pivoting, a
constant first column would leave a difference of two rows in R.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr
from scipy.linalg.lapack import dpstrf

from .._checks import check_numbers
from .._types import Array
from ..errors import StatisticsError
from .blas import one_blas_thread

Order = NDArray[np.int32]

# Rows of a factor of unit columns below this do not change a correlation in float64.
_NEGLIGIBLE = 1e-9
# In correlations themselves, rounding hides what is smaller than this.
_NEGLIGIBLE_SQUARED = 1e-13


def factor_of_rows(unit: Array, negligible: float = _NEGLIGIBLE) -> tuple[Array, Order]:
    """Return R of a pivoted QR, down to its rank and with a positive diagonal.

    Parameters
    ----------
    unit : ndarray of shape (n, p)
        Rows with columns of length one, or zero. They are overwritten.
    negligible : float
        Rows of R that begin with less are left out.
    """
    width = unit.shape[1]
    if not len(unit):
        return np.empty((0, width)), np.arange(width, dtype=np.int32)
    with one_blas_thread():
        factor, order = qr(
            unit, mode="r", pivoting=True, overwrite_a=True, check_finite=False
        )
    diagonal = np.diagonal(factor)
    rank = int(np.count_nonzero(np.abs(diagonal) > negligible))
    return factor[:rank] * np.sign(diagonal[:rank, None]), order.astype(np.int32)


def factor_of_matrix(
    correlations: Array, tolerance: float = _NEGLIGIBLE_SQUARED
) -> tuple[Array, Order]:
    """Return the same R from C = R'R, for more rows than are worth factorising.

    Parameters
    ----------
    correlations : ndarray of shape (p, p)
        C, with a diagonal of ones or zeros.
    tolerance : float
        Squares below it are rounding; if negative, below LAPACK's own.

    Examples
    --------
    >>> factor, order = factor_of_matrix(np.array([[1.0, 0.6], [0.6, 1.0]]))
    >>> factor.round(6), order
    (array([[1. , 0.6],
           [0. , 0.8]]), array([0, 1], dtype=int32))
    """
    factor, pivots, rank, _ = dpstrf(correlations, tol=tolerance, lower=0)
    return np.triu(factor)[:rank], (pivots - 1).astype(np.int32)


def packed_factor(factor: Array) -> Array:
    """Return an upper trapezoid row by row, without the zeros below."""
    return np.asarray(factor[trapezoid_places(*factor.shape)])


def trapezoid_places(height: int, width: int) -> NDArray[np.bool_]:
    """Return where the numbers of an upper trapezoid are."""
    return np.asarray(~np.tri(height, width, k=-1, dtype=bool))


def trapezoid_length(height: int, width: int) -> int:
    """Return how many numbers an upper trapezoid has.

    Examples
    --------
    >>> trapezoid_length(500, 1000), trapezoid_length(5000, 1000)
    (375250, 500500)
    """
    m = min(height, width)
    return m * width - m * (m - 1) // 2


def check_height(size: int, width: int, count: int) -> int:
    """Return the number of rows of a trapezoid, given how many numbers it has."""
    # m with size = m p - m (m - 1) / 2 and m <= p, if there is one.
    square = max((2 * width + 1) ** 2 - 8 * size, 1)
    height = (2 * width + 1 - math.isqrt(square)) // 2
    if trapezoid_length(height, width) != size:
        raise StatisticsError(f"{size} numbers are no trapezoid of {width} columns.")
    if height > count:
        raise StatisticsError(f"a factor of {height} rows where there are {count}.")
    return height


def check_order(order: Any, width: int) -> Order:
    """Return an order that names each column once."""
    found: Order = check_numbers(order, np.int32, width, "columns of the factor")
    if not np.array_equal(np.sort(found), np.arange(width)):
        raise StatisticsError("the order of columns does not name each column once.")
    return found
