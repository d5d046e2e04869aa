"""What a client's products always satisfy, whoever computed them.

They are those of one matrix, which is symmetric, has no negative eigenvalue, the
client's own variances, and is like its own factor. A client that answers otherwise
would spoil the solution for all; it is found out in the round in which it does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._types import Array
from ..errors import ProtocolError
from ..statistics.validity import SMALLEST_SQUARE
from .opening import Opening

__all__ = ["Told", "check_product", "sizes_of"]

_ROUNDING = 1e-9
_MEAN_ROUNDING = 1e-10
_FACTOR_ROUNDING = 1e-3
_SIDE_ROUNDING = 4e-6
# Products of small numbers lose their digits too. Where that may be more than the
# second of these, nothing finer is looked at.
_SMALLEST_PRODUCT = 1e-300
_LOST = 1e-11


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
        own = _in_own_units(
            Told(directions, found, _sizes(directions, lengths)), lengths
        )
        longest = _check_squares(own)
        # Where products themselves are too small for digits, there is no more to see.
        clear = own.only(own.lost.max(axis=0, initial=0.0) < _LOST)
        _check_rest(clear, opening, lengths, longest[clear.kept])
        _check_factor(clear, opening, lengths)
        for told in (own, *(_in_own_units(each, lengths) for each in earlier)):
            seen = told.only(told.lost.max(axis=0, initial=0.0) < _LOST)
            _check_symmetric(clear, seen)
        _check_together(clear)
    return found


@dataclass(frozen=True, eq=False)
class _Scaled:
    """Vectors and products in units in which every column of the client has length 1.

    With C = L R L, L the lengths: W = L V / f, Q = L^-1 C V / f = R W, and f such that
    W is about 1, so that nothing underflows when it is squared. `lost` is what
    underflow may have done to Q, `kept` which of all vectors these are.
    """

    vectors: Array
    products: Array
    sizes: Array
    lost: Array
    kept: NDArray[np.bool_]

    def only(self, kept: NDArray[np.bool_]) -> _Scaled:
        return _Scaled(
            self.vectors[:, kept],
            self.products[:, kept],
            self.sizes[kept],
            self.lost[:, kept],
            kept,
        )


def _in_own_units(told: Told, lengths: Array) -> _Scaled:
    largest = _largest(told.vectors)
    vectors = told.vectors / largest * lengths[:, None]
    unit = _largest(vectors)
    products = told.products / largest / unit / lengths[:, None]
    vectors = vectors / unit
    sizes = np.maximum(told.sizes / largest / unit, np.linalg.norm(vectors, axis=0))
    lost = np.outer(_SMALLEST_PRODUCT / lengths, 1.0 / unit) / largest
    return _Scaled(vectors, products, sizes, lost, np.ones(largest.size, dtype=bool))


def _largest(vectors: Array) -> Array:
    """Return the largest number of every vector, 1 where there is none but zeros."""
    found = np.abs(vectors).max(axis=0, initial=0.0)
    return np.asarray(np.where(found > 0, found, 1.0))


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


def _check_squares(told: _Scaled) -> Array:
    """With X v = z: v'Cv = |z|², at most d times what the variances say, and every
    entry of Cv is the product of a column with z. Return |z|.
    """
    d, size = len(told.vectors), np.linalg.norm(told.vectors, axis=0)
    curvature = _dots(told.vectors, told.products)
    rounding = _ROUNDING * d * size**2 + _dots(np.abs(told.vectors), told.lost)
    if not ((curvature >= -rounding) & (curvature <= d * size**2 + rounding)).all():
        raise ProtocolError(
            "its product is not that of a sum of squares with its own variances."
        )
    longest: Array = np.sqrt(np.maximum(curvature, 0.0) + rounding)
    if not (np.abs(told.products) <= (1 + 1e-6) * longest + told.lost).all():
        raise ProtocolError("its product is larger than its own variances allow.")
    return longest


def _check_rest(
    told: _Scaled, opening: Opening, lengths: Array, longest: Array
) -> None:
    """Refuse columns whose rest, across z = X v, closes no polygon.

    With x_j = (x_j'z / z'z) z + b_j and X v = z, the sides v_j b_j add up to nothing,
    so none of them is longer than all others together; nor is v_j x_j longer than all
    others and z. For one feature it says that the product is the variance times v.
    """
    d = opening.n_features
    variances = opening.moments.variances[:d] / lengths / lengths
    least = np.maximum(2 * variances - 1.0, 0.0)[:, None]
    steps = np.abs(told.vectors)
    others = (1 + _SIDE_ROUNDING) * (steps.sum(axis=0) + longest) - steps
    far = steps * np.sqrt(least) > others
    size = np.linalg.norm(told.vectors, axis=0)
    unit = np.where(longest > 0, longest, np.inf)
    along = (told.products / unit) ** 2
    # What rounding can do to the square of a side; to the side, its root.
    spread = _SIDE_ROUNDING + 4 * _ROUNDING * d * (size / unit) ** 2
    shortest = np.sqrt(np.maximum(least - along - spread, 0.0))
    farthest = np.sqrt(np.maximum(1.0 - along, 0.0) + spread)
    sides, reach = steps * shortest, steps * farthest
    open_ = sides + reach > (1 + _SIDE_ROUNDING) * reach.sum(axis=0)
    if far.any() or open_.any():
        raise ProtocolError("its product is not that of its own variances.")


def _check_factor(told: _Scaled, opening: Opening, lengths: Array) -> None:
    factor = opening.factor
    if factor is None:
        return
    R, size = factor.matrix(), np.linalg.norm(told.vectors, axis=0)
    # The factor has no column for what is all rounding; `_check_squares` has.
    deviations = (opening.deviations / lengths)[:, None]
    flat = np.abs(told.vectors * (deviations == 0)).sum(axis=0)
    length = np.sqrt(np.maximum(_dots(told.vectors, told.products), 0.0))
    rough = R @ (told.vectors * deviations)
    error = factor.error + _FACTOR_ROUNDING
    near = np.abs(length - np.linalg.norm(rough, axis=0)) <= error * size + flat
    # (R + E)'z - R'(z - E v), with z = (R + E) v, of which only R is known.
    columns = factor.column_errors + _FACTOR_ROUNDING
    slack = np.outer(columns, length) + error * np.outer(
        np.linalg.norm(R, axis=0) + _FACTOR_ROUNDING, size
    )
    expected = deviations * (R.T @ rough)
    entries = np.abs(told.products - expected) <= slack + flat
    if not (near.all() and (entries | (deviations == 0)).all()):
        raise ProtocolError("its product is not that of its own factor.")


def _check_symmetric(own: _Scaled, told: _Scaled) -> None:
    difference = np.abs(told.vectors.T @ own.products - told.products.T @ own.vectors)
    slack = _ROUNDING * len(own.vectors) * np.outer(told.sizes, own.sizes)
    if not (difference <= slack).all():
        raise ProtocolError(
            "its product does not fit to those before: not the same rows, or not "
            "these rows at all."
        )


def _check_together(told: _Scaled) -> None:
    """Several products are of one sum of squares: V'CV has no negative eigenvalue."""
    unit = 1.0 / np.where(told.sizes > 0, told.sizes, np.inf)
    squares = (told.vectors.T @ told.products) * unit * unit[:, None]
    if not np.isfinite(squares).all():
        raise ProtocolError("its products overflow in their own units.")
    slack = _ROUNDING * len(told.vectors) * len(squares)
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
    return np.asarray(np.sqrt(moments.variances[:d] + rounding + SMALLEST_SQUARE))


def _sizes(directions: Array, lengths: Array) -> Array:
    scale = _largest(directions)
    scaled = directions / scale * lengths[:, None]
    unit = _largest(scaled)
    return np.asarray(np.linalg.norm(scaled / unit, axis=0) * unit * scale)
