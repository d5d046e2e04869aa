"""What a client's products always satisfy, whoever computed them.

They are those of one matrix, which is symmetric, has no negative eigenvalue, the
client's own variances, and is like its own factor. A client that answers otherwise
would spoil the solution for all; it is found out in the round in which it does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import ProtocolError
from ..rows import Array
from .opening import Opening

__all__ = ["Told", "check_product", "sizes_of"]

_ROUNDING = 1e-9
_MEAN_ROUNDING = 1e-10
_FACTOR_ROUNDING = 1e-3
_SIDE_ROUNDING = 4e-6
# Squares of numbers around 1e-160 lose their digits, or are zero.
_SMALLEST_SQUARE = 1e-310


class Told(NamedTuple):
    """Vectors V, their products C V, and the sizes that rounding goes by."""

    vectors: Array
    products: Array
    sizes: Array


def check_product(
    opening: Opening, directions: Array, product: Any, earlier: Iterable[Told] = ()
) -> Array:
    """Return a product C V that rows with this opening can have.

    Parameters
    ----------
    opening : Opening
        What the client sent first.
    directions : ndarray of shape (d, a)
        V.
    product : ndarray of float64 and the same shape
        What it sent now.
    earlier : iterable of Told
        What it has told before.

    Raises
    ------
    ProtocolError
        If no rows have both.
    """
    found = _formed(product, directions)
    lengths = _lengths(opening)
    # Comparisons are such that NaN, from numbers that overflow, does not pass.
    with np.errstate(over="ignore", invalid="ignore"):
        longest = _check_squares(directions, found, lengths)
        _check_rest(directions, found, opening, longest)
        _check_factor(opening, directions, found, lengths)
        own = Told(directions, found, _sizes(directions, lengths))
        for told in (own, *earlier):
            _check_symmetric(directions, found, told, lengths)
        _check_together(own, lengths)
    return found


def _formed(product: Any, directions: Array) -> Array:
    found: NDArray[Any] = np.asarray(product)
    if found.dtype != np.float64 or found.shape != directions.shape:
        raise ProtocolError(
            f"expected a product of float64 and shape {directions.shape}, got "
            f"{found.dtype} and {found.shape}."
        )
    if not np.isfinite(found).all():
        raise ProtocolError("some numbers of the product are NaN or infinite.")
    return found


def _check_squares(directions: Array, product: Array, lengths: Array) -> Array:
    """With X v = z: v'Cv = |z|², at most d times what the variances say, and every
    entry of Cv is the product of a column with z. Return |z|.
    """
    d = lengths.size
    curvature = _dots(directions, product)
    size = _sizes(directions, lengths)
    rounding = _ROUNDING * d * size**2
    if not ((curvature >= -rounding) & (curvature <= d * size**2 + rounding)).all():
        raise ProtocolError(
            "its product is not that of a sum of squares with its own variances."
        )
    longest = np.sqrt(np.maximum(curvature, 0.0) + rounding)
    limit = (1 + 1e-6) * np.outer(lengths, longest)
    if not (np.abs(product) <= limit).all():
        raise ProtocolError("its product is larger than its own variances allow.")
    return longest


def _check_rest(
    directions: Array, product: Array, opening: Opening, longest: Array
) -> None:
    """Refuse columns whose rest, across z = X v, closes no polygon.

    With x_j = (x_j'z / z'z) z + b_j and X v = z, the sides v_j b_j add up to nothing,
    so none of them is longer than all others together; nor is v_j x_j longer than all
    others and z. For one feature it says that the product is the variance times v.
    """
    lengths, d = _lengths(opening), opening.n_features
    least = np.maximum(2 * opening.moments.variances[:d] - lengths**2, 0.0)
    steps = np.abs(directions)
    whole = steps * lengths[:, None]
    others = (1 + _SIDE_ROUNDING) * (whole.sum(axis=0) + longest) - whole
    far = steps * np.sqrt(least)[:, None] > others
    size = _sizes(directions, lengths)
    unit = np.where(longest > 0, longest, np.inf)
    along = (product / unit) ** 2
    # What rounding can do to the square of a side; to the side, its root.
    rounding = _SIDE_ROUNDING + 4 * _ROUNDING * d * (size / unit) ** 2
    spread = np.outer(lengths**2, rounding)
    shortest = np.sqrt(np.maximum(least[:, None] - along - spread, 0.0))
    farthest = np.sqrt(np.maximum(lengths[:, None] ** 2 - along, 0.0) + spread)
    sides, reach = steps * shortest, steps * farthest
    open_ = sides + reach > (1 + _SIDE_ROUNDING) * reach.sum(axis=0)
    if far.any() or open_.any():
        raise ProtocolError("its product is not that of its own variances.")


def _check_factor(
    opening: Opening, directions: Array, product: Array, lengths: Array
) -> None:
    factor = opening.factor
    if factor is None:
        return
    R, size = factor.matrix(), _sizes(directions, lengths)
    length = np.sqrt(np.maximum(_dots(directions, product), 0.0))
    rough = R @ (directions * opening.deviations[:, None])
    error = factor.error + _FACTOR_ROUNDING
    near = np.abs(length - np.linalg.norm(rough, axis=0)) <= error * size
    # (R + E)'z - R'(z - E v), with z = (R + E) v, of which only R is known.
    columns = factor.column_errors + _FACTOR_ROUNDING
    slack = np.outer(columns, length) + error * np.outer(
        np.linalg.norm(R, axis=0) + _FACTOR_ROUNDING, size
    )
    expected = opening.deviations[:, None] * (R.T @ rough)
    entries = np.abs(product - expected) <= lengths[:, None] * slack
    if not (near.all() and entries.all()):
        raise ProtocolError("its product is not that of its own factor.")


def _check_symmetric(
    directions: Array, product: Array, told: Told, lengths: Array
) -> None:
    difference = np.abs(told.vectors.T @ product - told.products.T @ directions)
    sizes = np.outer(told.sizes, _sizes(directions, lengths))
    if not (difference <= _ROUNDING * lengths.size * sizes).all():
        raise ProtocolError(
            "its product does not fit to those before: not the same rows, or not "
            "these rows at all."
        )


def _check_together(told: Told, lengths: Array) -> None:
    """Several products are of one sum of squares: V'CV has no negative eigenvalue."""
    unit = 1.0 / np.where(told.sizes > 0, told.sizes, np.inf)
    squares = (told.vectors.T @ told.products) * unit * unit[:, None]
    if not np.isfinite(squares).all():
        raise ProtocolError("its products overflow in their own units.")
    slack = _ROUNDING * lengths.size * len(squares)
    if not np.linalg.eigvalsh((squares + squares.T) / 2.0).min(initial=0.0) >= -slack:
        raise ProtocolError("its products are not those of one sum of squares.")


def sizes_of(opening: Opening, vectors: Array) -> Array:
    """Return the sizes of vectors in the units of a client's columns."""
    return _sizes(vectors, _lengths(opening))


def _dots(a: Array, b: Array) -> Array:
    return np.asarray(np.einsum("da,da->a", a, b))


def _lengths(opening: Opening) -> Array:
    """Return the lengths of the client's columns, with what rounding may leave."""
    moments, d = opening.moments, opening.n_features
    rounding = _MEAN_ROUNDING**2 * moments.weight * moments.means[:d] ** 2
    return np.asarray(np.sqrt(moments.variances[:d] + rounding + _SMALLEST_SQUARE))


def _sizes(directions: Array, lengths: Array) -> Array:
    return np.asarray(np.linalg.norm(directions * lengths[:, None], axis=0))
