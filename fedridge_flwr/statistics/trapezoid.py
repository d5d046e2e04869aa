"""Statistics of fewer rows than columns, in fewer numbers: the factor of a QR.

The co-moments of n rows of p columns have rank n - 1 at most. Where that is below p,
they are R'R of an upper trapezoid R of n - 1 rows, which has fewer numbers than the
triangle of R'R.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._checks import check_numbers
from .._types import Array
from ..data.rows import Rows
from ..data.schema import Schema
from ..errors import StatisticsError
from ..linalg.packed import diagonal_positions, packed_length, upper_triangle
from ..linalg.pivoted import (
    check_height,
    check_order,
    factor_of_rows,
    packed_factor,
    trapezoid_length,
    trapezoid_places,
)
from .dense_rows import centred, dense_rows
from .float32 import ROUNDING
from .sufficient import SufficientStatistics
from .validity import (
    check_count,
    check_diagonal,
    check_factor_rank,
    check_sizes,
    check_weight,
)

FACTOR_ROUNDING = 2 * ROUNDING
"""How far a correlation is off at most if the factor comes as float32.

A column of the factor, rounded entry by entry, turns by an angle of at most 6e-8, and a
correlation is the cosine of the angle between two columns.
"""

WIDEST = 1 << 14
"""Columns beyond which no factor is read: a small answer would fill the memory."""

_UNIT = 1e-6


class Trapezoid(NamedTuple):
    """The statistics of some rows as they are sent.

    Attributes
    ----------
    head : ndarray of float64
        Total weight and means of [X Y]; with a factor of float32 also the diagonal of
        the co-moments, which comes back bit for bit.
    order : ndarray of int32, shape (p,)
        Columns of [X Y] in the order in which the factor has them.
    factor : ndarray of float64 or float32, shape (m p - m (m - 1) / 2,)
        Upper trapezoid R of m rows, row by row, with R'R = co-moments. As float32 its
        columns are of length 1, so that R'R are the correlations.
    """

    head: Array
    order: NDArray[np.int32]
    factor: NDArray[Any]


def factor_bytes(
    n_rows: int, n_features: int, n_targets: int = 1, dtype: str = "float64"
) -> int:
    """Return how many bytes a `Trapezoid` of so many rows has at most.

    Examples
    --------
    >>> factor_bytes(50, 200), 8 * packed_length(200, 1)
    (71804, 164024)
    """
    width = n_features + n_targets
    rank = max(0, min(n_rows - 1, width))
    factor = trapezoid_length(rank, width)
    if dtype == "float64":
        return 8 * (1 + width) + 4 * width + 8 * factor
    return 8 * (1 + 2 * width) + 4 * width + 4 * factor


def fewer_numbers(
    n_rows: int, n_features: int, n_targets: int = 1, dtype: str = "float64"
) -> bool:
    """Whether a factor is smaller than all co-moments, sent in the same type.

    Examples
    --------
    >>> fewer_numbers(50, 200), fewer_numbers(199, 200), fewer_numbers(500, 200)
    (True, False, False)
    """
    width = n_features + n_targets
    if width > WIDEST:
        return False
    whole = 8 * packed_length(n_features, n_targets)
    if dtype != "float64":
        whole = 8 * (1 + 2 * width) + 2 * width * (width - 1)
    return factor_bytes(n_rows, n_features, n_targets, dtype) < whole


def to_trapezoid(rows: Rows, dtype: str = "float64") -> Trapezoid:
    """Return weight, means and R with R'R = sum w (z - mean)(z - mean)'.

    The rows are centred before anything is multiplied, and the co-moments are never
    formed: a factor holds the digits of the rows. Rows of weight zero do not count.

    Parameters
    ----------
    rows : Rows
        Rows z = [x y] as `check_rows` returns them. Sparse ones become dense.
    dtype : {"float64", "float32"}
        Type of the factor.

    Examples
    --------
    >>> from fedridge_flwr.data.rows import check_rows
    >>> rows = check_rows([[1.0, 0.0, 5.0], [3.0, 4.0, 5.0]], [2.0, 4.0])
    >>> head, order, factor = to_trapezoid(rows)
    >>> head
    array([2., 2., 2., 5., 3.])
    >>> [round(number, 6) for number in factor[np.argsort(order)].tolist()]
    [1.414214, 2.828427, 0.0, 1.414214]
    """
    return trapezoid_of(rows, dtype)[0]


def trapezoid_of(rows: Rows, dtype: str = "float64") -> tuple[Trapezoid, Array]:
    """Return what `to_trapezoid` does, and what rounding cut off the means."""
    with np.errstate(invalid="ignore", over="ignore"):
        unit, mean, low, total = centred(dense_rows(rows, 0, rows.n_rows), rows.weight)
        largest = np.abs(unit).max(axis=0, initial=0.0)
        units = np.where(largest > 0, largest, 1.0)
        unit /= units
        lengths = np.sqrt(np.einsum("ij,ij->j", unit, unit))
        deviations = units * lengths
        variances = deviations**2
    if not (np.isfinite(variances).all() and np.isfinite(mean).all()):
        rows.refuse_bad_values()
    # Squares of numbers around 1e-160 are zero in the co-moments, so they are here.
    unit *= np.where(variances > 0, 1.0 / np.where(lengths > 0, lengths, 1.0), 0.0)
    factor, order = factor_of_rows(unit)
    if dtype == "float64":
        factor *= deviations[order]
        head = np.concatenate([[total], mean])
    else:
        head = np.concatenate([[total], mean, variances])
    packed = packed_factor(factor).astype(dtype, copy=False)
    return Trapezoid(head, order, packed), low


def from_trapezoid(
    head: Any,
    order: Any,
    factor: Any,
    schema: Schema,
    count: int | None = None,
    *,
    dtype: str = "float64",
) -> SufficientStatistics:
    """Return the statistics behind `to_trapezoid`; nothing that arrives is trusted.

    It costs m p² operations for m rows of the factor. R'R is positive semi-definite
    whatever R is; all else is checked.

    Parameters
    ----------
    head, order, factor : ndarray
        As `to_trapezoid` returns them.
    schema : Schema
        The columns.
    count : int, optional
        Number of rows, as in `SufficientStatistics.from_array`.
    dtype : {"float64", "float32"}
        Type of the factor.

    Raises
    ------
    StatisticsError
        If no rows can have these statistics.

    Examples
    --------
    >>> from fedridge_flwr.data.rows import check_rows
    >>> rows = check_rows([[1.0, 0.0, 5.0], [3.0, 4.0, 5.0]], [2.0, 4.0])
    >>> from_trapezoid(*to_trapezoid(rows), rows.schema).comoment.round(6)
    array([[2., 4., 0., 2.],
           [4., 8., 0., 4.],
           [0., 0., 0., 0.],
           [2., 4., 0., 2.]])
    """
    width = check_width(schema)
    rounded = dtype != "float64"
    what = "weight, means and variances" if rounded else "weight and means"
    head = check_numbers(head, np.float64, 1 + (1 + rounded) * width, what)
    weight, means = float(head[0]), head[1 : 1 + width].copy()
    count = check_count(count, weight)
    columns = _unpacked(factor, dtype, order, width, count)
    check_weight(count, weight, moments=bool(columns.any() or means.any()))
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.einsum("ij,ij->j", columns, columns)
        variances = head[1 + width :] if rounded else squares
        raw = variances + weight * means**2
    check_diagonal(variances, raw, "variances")
    if rounded:
        _refuse_other_lengths(squares, variances)
        columns *= np.sqrt(variances / np.where(variances > 0, squares, 1.0))
    triangle = upper_triangle(columns.T @ columns)
    triangle[diagonal_positions(width)] = variances
    rounding = FACTOR_ROUNDING if rounded else 0.0
    if len(columns) >= count:  # n rows less their mean leave n - 1, besides rounding
        check_factor_rank(columns, variances, raw, max(count - 1, 0), rounding)
    return SufficientStatistics(
        count=count,
        total_weight=weight,
        means=means,
        triangle=triangle,
        schema=schema,
        rounding=rounding,
    )


def check_width(schema: Schema) -> int:
    """Return the number of columns of [X Y], or refuse a factor of so many."""
    width = check_sizes(schema.n_features, schema.n_targets)
    if width > WIDEST:
        raise StatisticsError(
            f"a factor of {width} columns, but at most {WIDEST} are accepted: a few "
            "numbers would become gigabytes. Send full statistics."
        )
    return width


def _unpacked(factor: Any, dtype: str, order: Any, width: int, count: int) -> Array:
    """Return R of shape (m, p) with its columns in the order of [X Y]."""
    order = check_order(order, width)
    size = int(np.size(factor))
    rank = check_height(size, width, count)
    kind = np.float64 if dtype == "float64" else np.float32
    packed = check_numbers(factor, kind, size, "numbers of the factor")
    in_order = np.zeros((rank, width))
    in_order[trapezoid_places(rank, width)] = packed
    columns = np.empty_like(in_order)
    columns[:, order] = in_order
    return columns


def _refuse_other_lengths(squares: Array, variances: Array) -> None:
    wrong = np.where(variances > 0, np.abs(squares - 1.0) > _UNIT, squares != 0.0)
    if wrong.any():
        raise StatisticsError(
            f"{int(wrong.sum())} of {wrong.size} columns of the factor have another "
            "length than 1, or than 0 where the variance is 0."
        )
