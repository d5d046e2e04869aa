"""What the second moments of any rows satisfy; anything else is refused."""

import math
import operator
from typing import Any

import numpy as np
from scipy.linalg import eigvalsh
from scipy.linalg.lapack import dpotrf, dpstrf, dtrtrs

from .._text import counted
from .._types import Array
from ..errors import StatisticsError
from ..linalg.packed import diagonal_positions, lower_half, packed_length

LARGEST = 1e150
_ROUNDING = 1e-6
SMALLEST_SQUARE = 1e-310
"""Squares of numbers around 1e-160 lose their digits, or are zero."""


def check_weight(count: int, weight: float, *, moments: bool) -> None:
    """Refuse a total weight that so many rows cannot have.

    `moments` says whether there are any, first or second.
    """
    if weight < 0:
        raise StatisticsError(f"the total weight is negative: {weight}.")
    if weight >= LARGEST:
        raise StatisticsError(
            f"a total weight of {weight:g} would overflow in the sum."
        )
    if count == 0 and (weight or moments):
        raise StatisticsError(
            "there are no rows, but weight, means or co-moments are not zero."
        )
    if weight == 0 and moments:
        raise StatisticsError(
            "the total weight is zero, but means or co-moments are not."
        )


def check_diagonal(diagonal: Array, raw_diagonal: Array, what: str) -> None:
    """Refuse second moments that are negative, or so large that sums overflow.

    Parameters are those of `check_moments`.
    """
    if (diagonal < 0).any():
        raise StatisticsError(
            f"negative {what}: {int((diagonal < 0).sum())} of {diagonal.size}."
        )
    if not (raw_diagonal < LARGEST).all():
        raise StatisticsError(
            f"second moments above {LARGEST:g} would overflow in the sum."
        )


def check_moments(
    triangle: Array,
    raw_diagonal: Array,
    most: int,
    what: str,
    rounding: float = 0.0,
) -> None:
    """Refuse a symmetric matrix that cannot be a sum of squares w z z'.

    Parameters
    ----------
    triangle : ndarray
        Raw or centred second moments, as `upper_triangle` packs them.
    raw_diagonal : ndarray of shape (p,)
        Raw sums of squares, which bound the rounding in centred ones.
    most : int
        The rank that it can have at most, besides rounding.
    what : str
        Name of the diagonal in messages, for example "variances".
    rounding : float
        How far each correlation may be off.
    """
    diagonal = triangle[diagonal_positions(raw_diagonal.size)]
    check_diagonal(diagonal, raw_diagonal, what)
    slack = _rounding_of(diagonal, raw_diagonal, rounding)
    # No scaling: Cholesky's method succeeds or fails whatever the units.
    matrix = lower_half(triangle, diagonal.size)
    matrix.reshape(-1, order="F")[:: diagonal.size + 1] = diagonal + slack
    factor, failed = dpotrf(matrix, lower=1, overwrite_a=1, clean=0)
    # LAPACK takes a pivot that is NaN, from products that overflow, for a good one.
    if failed or not np.isfinite(np.diagonal(factor)).all():
        raise StatisticsError(
            "the second moments are not positive semi-definite (as if a correlation "
            "were above 1): no rows can have them."
        )
    if most < diagonal.size:
        check_rank(triangle, slack, factor, most)


def check_rank(triangle: Array, slack: Array, factor: Array, most: int) -> None:
    """Refuse second moments A that take more than `most` rows, besides rounding.

    They are within rounding of rank `most` if the next eigenvalue is, with the
    rounding of every column as its unit. A pivoted Cholesky factorisation sees in
    `most` steps that this is so; eigenvalues are computed only where it does not.

    Parameters
    ----------
    triangle : ndarray
        A, as `upper_triangle` packs it.
    slack : ndarray of shape (p,)
        The diagonal D of the rounding.
    factor : ndarray of shape (p, p)
        L, in its lower half, with A + D = L L'.
    most : int
        The rank.
    """
    width = slack.size
    # Who sends these rather than a factor has at least so many rows.
    if (width - most) ** 2 <= width and _directions_are_flat(slack, factor, most):
        return
    unit = 1.0 / np.sqrt(slack)
    matrix = lower_half(triangle, width)
    matrix *= unit
    matrix *= unit[:, None]
    if dpstrf(matrix, tol=1.0, lower=1)[2] <= most:
        return
    _refuse_next_eigenvalue(matrix, most, width)


def _directions_are_flat(slack: Array, factor: Array, most: int) -> bool:
    """Whether p - most directions show that the next eigenvalue is small enough.

    That of A + D is not above the largest v'(A + D)v / v'Dv for v in a space of so many
    dimensions. For V, the last columns of L'^-1, V'(A + D)V is 1: so it is p + 1 at
    most if no eigenvalue of V'DV is below 1 / (p + 1).
    """
    last = np.eye(slack.size, slack.size - most, -most)
    V = dtrtrs(factor, last, lower=1, trans=1)[0]
    gap = (V.T * slack) @ V - last[most:]
    return bool(np.vdot(gap, gap) <= (1.0 - 1.0 / (slack.size + 1)) ** 2)


def check_factor_rank(
    factor: Array,
    diagonal: Array,
    raw_diagonal: Array,
    most: int,
    rounding: float = 0.0,
) -> None:
    """Do what `check_rank` does for R'R, by the few rows of R.

    A factor of few rows is a short message; p x p eigenvalues of a wide one would keep
    the server busy for minutes.

    Parameters
    ----------
    factor : ndarray of shape (m, p)
        R.
    diagonal : ndarray of shape (p,)
        The diagonal of R'R. The others are those of `check_moments`.
    """
    if most >= min(factor.shape):
        return
    unit = 1.0 / np.sqrt(_rounding_of(diagonal, raw_diagonal, rounding))
    scaled = factor * unit
    _refuse_next_eigenvalue(scaled @ scaled.T, most, factor.shape[1])


def _refuse_next_eigenvalue(matrix: Array, most: int, n_columns: int) -> None:
    """Refuse a matrix, in units of rounding, with more than `most` eigenvalues."""
    place = len(matrix) - 1 - most
    (next_one,) = eigvalsh(matrix, subset_by_index=(place, place), check_finite=False)
    if not next_one <= n_columns:
        raise StatisticsError(
            f"the second moments of {n_columns} columns need more rows than there are."
        )


def check_symmetric(matrix: Array) -> Array:
    """Return the symmetric part of a matrix that is symmetric up to rounding."""
    symmetric = (matrix + matrix.T) / 2.0
    if np.abs(matrix - symmetric).max() > 1e-9 * np.abs(matrix).max():
        raise StatisticsError("the matrix is not symmetric.")
    return symmetric


def _rounding_of(diagonal: Array, raw_diagonal: Array, rounding: float) -> Array:
    """Return how far the diagonal would have to move to cover all rounding."""
    # Whatever their signs, p roundings in a row cannot move an eigenvalue further
    # (Gershgorin).
    slack = _ROUNDING + diagonal.size * rounding
    # Squares of numbers around 1e-160 are rounded to zero, their products with others
    # are not.
    found: Array = slack * diagonal + _ROUNDING**2 * raw_diagonal + SMALLEST_SQUARE
    return found


def check_count(count: Any, weight: float | None = None) -> int:
    """Return a row count as an int; by default it is the weight, if that is whole."""
    if count is None and weight is not None:
        if weight != math.floor(weight):
            raise StatisticsError(
                f"the total weight {weight} is not a whole number: say how many "
                "rows there are with count=."
            )
        count = int(weight)
    try:
        number = operator.index(count)
    except TypeError:
        raise StatisticsError(
            f"the row count must be a whole number, got {count!r}."
        ) from None
    if number < 0:
        raise StatisticsError(f"the row count is negative: {number}.")
    return number


def check_sizes(n_features: int, n_targets: int) -> int:
    """Return the number of columns of [X Y]; there must be one of each at least."""
    if n_features < 1 or n_targets < 1:
        raise StatisticsError(
            f"{n_features} features and {n_targets} targets: both must be 1 or more."
        )
    return n_features + n_targets


def check_packed(packed: Any, n_features: int, n_targets: int) -> Array:
    """Return a packed vector of the right length, all of it finite numbers."""
    array: Array = np.asarray(packed)
    check_sizes(n_features, n_targets)
    if array.dtype != np.float64:
        raise StatisticsError(f"packed statistics are float64, got {array.dtype}.")
    expected = packed_length(n_features, n_targets)
    if array.shape != (expected,):
        raise StatisticsError(
            f"packed statistics of {counted(n_features, 'feature')} and "
            f"{counted(n_targets, 'target')} have {expected} numbers, got an array of "
            f"shape {array.shape}."
        )
    # One pass says that all is well; only otherwise is it worth counting.
    with np.errstate(over="ignore", invalid="ignore"):
        well = math.isfinite(array.sum())
    bad = 0 if well else int(np.count_nonzero(~np.isfinite(array)))
    if bad:
        raise StatisticsError(f"{bad} of {expected} numbers are NaN or infinite.")
    return array


def refuse_negative_variances(rest: Array, total: Array, width: int) -> None:
    """Refuse what is left after removing rows that were not there; clear rounding."""
    places = diagonal_positions(width)
    if (rest[places] < -1e-9 * total[places]).any():
        raise StatisticsError(
            "removing these statistics leaves negative variances: "
            "their rows were not part of the total."
        )
    rest[places] = np.maximum(rest[places], 0.0)
