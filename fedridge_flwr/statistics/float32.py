"""Statistics in half the bytes: correlations as float32, all else in float64.

Of the numbers in `SufficientStatistics`, nearly all are co-moments of two different
columns. Divided by the deviations of both they are correlations, which float32 holds
to 6e-8 whatever the units of the columns. Weight, means and variances stay float64, so
features shifted by 1e6 or scaled by 1e30 lose no more than others.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._checks import check_numbers
from .._types import Array
from ..data.schema import Schema
from ..errors import StatisticsError
from ..linalg.packed import diagonal_positions, packed_length
from .sufficient import SufficientStatistics

WIRE_DTYPES = ("float64", "float32")
ROUNDING = float(np.finfo(np.float32).eps) / 2
_LARGEST_CORRELATION = 1 + 1e-6


def to_compact(stats: SufficientStatistics) -> tuple[Array, NDArray[np.float32]]:
    """Split statistics into a float64 head and float32 correlations.

    Weight, means and variances come back bit for bit, co-moments to 6e-8 of the
    deviations of their two columns, and merging adds nothing to that::

        |C_ij - sum of what came back| <= 6e-8 sqrt(C_ii C_jj)

    Parameters
    ----------
    stats : SufficientStatistics
        Statistics of p = d + t columns.

    Returns
    -------
    head : ndarray of float64, shape (1 + 2p,)
        Total weight, means, and the diagonal of the co-moments.
    correlations : ndarray of float32, shape (p (p - 1) / 2,)
        C_ij / sqrt(C_ii C_jj) above the diagonal, row by row; 0 for constant columns.

    Examples
    --------
    >>> X = [[1.0, 0.0], [2.0, 5.0], [3.0, 1.0], [4.0, 6.0]]
    >>> stats = SufficientStatistics.from_data(X, [1.0, 2.0, 3.0, 4.0])
    >>> head, correlations = to_compact(stats)
    >>> head
    array([ 4. ,  2.5,  3. ,  2.5,  5. , 26. ,  5. ])
    >>> correlations.round(3)
    array([0.614, 1.   , 0.614], dtype=float32)
    """
    places = diagonal_positions(stats.means.size)
    variances = stats.triangle[places]
    sizes = _products(np.sqrt(variances))
    correlations = np.zeros(sizes.size)
    np.divide(
        np.delete(stats.triangle, places), sizes, out=correlations, where=sizes > 0
    )
    head = np.concatenate([[stats.total_weight], stats.means, variances])
    # Where a variance is all rounding, a co-moment can be larger than it allows.
    return head, np.clip(correlations, -1.0, 1.0).astype(np.float32)


def from_compact(
    head: Any, correlations: Any, schema: Schema, count: int | None = None
) -> SufficientStatistics:
    """Put `to_compact` together again; everything is checked, nothing is trusted.

    Parameters
    ----------
    head, correlations : ndarray
        As `to_compact` returns them.
    schema : Schema
        The columns.
    count : int, optional
        Number of rows, as in `SufficientStatistics.from_array`.

    Raises
    ------
    StatisticsError
        If no rows can have these statistics.

    Examples
    --------
    >>> stats = SufficientStatistics.from_data([[1.0], [3.0], [4.0]], [2.0, 4.0, 3.0])
    >>> back = from_compact(*to_compact(stats), stats.schema)
    >>> (back.variances == stats.variances).all().item(), back.rounding
    (True, 5.960464477539063e-08)
    """
    width = schema.n_features + schema.n_targets
    head = check_numbers(head, np.float64, 1 + 2 * width, "weight, means and variances")
    correlations = check_numbers(
        correlations, np.float32, width * (width - 1) // 2, "correlations"
    )
    variances = head[1 + width :]
    if (variances < 0).any():
        raise StatisticsError(
            f"negative variances: {int((variances < 0).sum())} of {width}."
        )
    beyond = int((np.abs(correlations) > _LARGEST_CORRELATION).sum())
    if beyond:
        raise StatisticsError(f"correlations above 1: {beyond} of {correlations.size}.")
    packed = np.empty(packed_length(schema.n_features, schema.n_targets))
    packed[: 1 + width] = head[: 1 + width]
    triangle = packed[1 + width :]
    places = diagonal_positions(width)
    above = np.ones(triangle.size, dtype=bool)
    above[places] = False
    triangle[places] = variances
    triangle[above] = correlations * _products(np.sqrt(variances))
    return SufficientStatistics.unpack(packed, schema, count, ROUNDING)


def _products(deviations: Array) -> Array:
    """Return s_i s_j above the diagonal, row by row."""
    above = ~np.tri(deviations.size, dtype=bool)
    products: Array = np.outer(deviations, deviations)[above]
    return products
