"""Checks of the products C V that a client sends in the rounds after its opening.

C is one matrix: symmetric, without negative eigenvalues, with the client's own
variances on its diagonal and near its own factor. A client whose products contradict
this would spoil the solution for all; it is detected in the round in which it happens.
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

_ROUNDING = 1e-9
_MEAN_ROUNDING = 1e-10
_FACTOR_ROUNDING = 1e-3
_SIDE_ROUNDING = 4e-6
# Products of small numbers underflow. Vectors for which that may cost more than _LOST
# are exempt from the finer checks.
_SMALLEST_PRODUCT = 1e-300
_LOST = 1e-11


class KnownProduct(NamedTuple):
    """Vectors V, their products C V, and the sizes that rounding is relative to."""

    vectors: Array
    products: Array
    sizes: Array


def check_product(
    opening: Opening,
    directions: Array,
    product: Any,
    earlier: Iterable[KnownProduct] = (),
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
    earlier : iterable of KnownProduct
        What it sent before.

    Raises
    ------
    ProtocolError
        If no rows have this opening and these products.
    """
    found: NDArray[Any] = np.asarray(product)
    if found.dtype != np.float64 or found.shape != directions.shape:
        raise ProtocolError(
            f"expected float64 of {directions.shape}, got {found.dtype} {found.shape}."
        )
    if not np.isfinite(found).all():
        raise ProtocolError("some numbers of the product are NaN or infinite.")
    lengths = _lengths(opening)
    known = KnownProduct(directions, found, sizes_of(opening, directions))
    # Comparisons are such that NaN, from numbers that overflow, does not pass.
    with np.errstate(over="ignore", invalid="ignore"):
        own = _in_own_units(known, lengths)
        longest = _check_squares(own)
        precise = own.only(own.precise)
        _check_variances(precise, opening, lengths, longest[own.precise])
        _check_factor(precise, opening, lengths)
        for each in (own, *(_in_own_units(told, lengths) for told in earlier)):
            _check_symmetric(precise, each.only(each.precise))
        _check_definite(precise)
    return found


def sizes_of(opening: Opening, vectors: Array) -> Array:
    """Return the sizes of vectors in the units of a client's columns."""
    scale = _largest(vectors)
    scaled = vectors / scale * _lengths(opening)[:, None]
    unit = _largest(scaled)
    return np.asarray(np.linalg.norm(scaled / unit, axis=0) * unit * scale)


@dataclass(frozen=True, eq=False)
class _Scaled:
    """Vectors and products in units in which every column of the client has length 1.

    With C = L R L, L the lengths: W = L V / f, Q = L^-1 C V / f = R W, and f such that
    W is about 1, so that nothing underflows when it is squared. `lost` bounds what
    underflow may have done to Q.
    """

    vectors: Array
    products: Array
    sizes: Array
    lost: Array

    @property
    def norms(self) -> Array:
        """Lengths of the vectors."""
        return np.asarray(np.linalg.norm(self.vectors, axis=0))

    @property
    def precise(self) -> NDArray[np.bool_]:
        """Which products have not lost digits to underflow."""
        return np.asarray(self.lost.max(axis=0, initial=0.0) < _LOST)

    def only(self, kept: NDArray[np.bool_]) -> _Scaled:
        """Return some of the vectors, with their products."""
        parts = (self.vectors, self.products, self.sizes, self.lost)
        return _Scaled(*(part[..., kept] for part in parts))


def _in_own_units(known: KnownProduct, lengths: Array) -> _Scaled:
    largest = _largest(known.vectors)
    vectors = known.vectors / largest * lengths[:, None]
    unit = _largest(vectors)
    products = known.products / largest / unit / lengths[:, None]
    vectors = vectors / unit
    sizes = np.maximum(known.sizes / largest / unit, np.linalg.norm(vectors, axis=0))
    lost = np.outer(_SMALLEST_PRODUCT / lengths, 1.0 / unit) / largest
    return _Scaled(vectors, products, sizes, lost)


def _check_squares(own: _Scaled) -> Array:
    """Check v'Cv = |z|² with z = X v, and return |z|.

    It is at most d times what the variances allow, and every entry of Cv is the product
    of a column with z.
    """
    d, size = len(own.vectors), own.norms
    curvature = _dots(own.vectors, own.products)
    rounding = _ROUNDING * d * size**2 + _dots(np.abs(own.vectors), own.lost)
    if not ((curvature >= -rounding) & (curvature <= d * size**2 + rounding)).all():
        raise ProtocolError("its product is no sum of squares of its own variances.")
    longest: Array = np.sqrt(np.maximum(curvature, 0.0) + rounding)
    if not (np.abs(own.products) <= (1 + 1e-6) * longest + own.lost).all():
        raise ProtocolError("its product is larger than its own variances allow.")
    return longest


def _check_variances(
    own: _Scaled, opening: Opening, lengths: Array, longest: Array
) -> None:
    """Refuse columns whose parts orthogonal to z = X v close no polygon.

    With x_j = (x_j'z / z'z) z + b_j and X v = z, the sides v_j b_j add up to zero, so
    none of them is longer than all others together; nor is v_j x_j longer than all
    others and z. For one feature it says that the product is the variance times v.
    """
    d = opening.n_features
    variances = opening.moments.variances[:d] / lengths / lengths
    least = np.maximum(2 * variances - 1.0, 0.0)[:, None]
    steps = np.abs(own.vectors)
    others = (1 + _SIDE_ROUNDING) * (steps.sum(axis=0) + longest) - steps
    too_long = steps * np.sqrt(least) > others
    unit = np.where(longest > 0, longest, np.inf)
    along = (own.products / unit) ** 2
    # What rounding can do to the square of a side; to the side, its root.
    spread = _SIDE_ROUNDING + 4 * _ROUNDING * d * (own.norms / unit) ** 2
    shortest = np.sqrt(np.maximum(least - along - spread, 0.0))
    farthest = np.sqrt(np.maximum(1.0 - along, 0.0) + spread)
    sides, reach = steps * shortest, steps * farthest
    not_closed = sides + reach > (1 + _SIDE_ROUNDING) * reach.sum(axis=0)
    if too_long.any() or not_closed.any():
        raise ProtocolError("its product is not that of its own variances.")


def _check_factor(own: _Scaled, opening: Opening, lengths: Array) -> None:
    """Compare with the products that the client's rough factor R gives."""
    factor = opening.factor
    if factor is None:
        return
    R, size = factor.matrix(), own.norms
    # The factor has no column for features that are constant to rounding; they are
    # left to `_check_squares`.
    deviations = (opening.deviations / lengths)[:, None]
    constant = np.abs(own.vectors * (deviations == 0)).sum(axis=0)
    length = np.sqrt(np.maximum(_dots(own.vectors, own.products), 0.0))
    rough = R @ (own.vectors * deviations)
    error = factor.error + _FACTOR_ROUNDING
    near = np.abs(length - np.linalg.norm(rough, axis=0)) <= error * size + constant
    # (R + E)'z - R'(z - E v), with z = (R + E) v, of which only R is known.
    columns = factor.column_errors + _FACTOR_ROUNDING
    longest = np.linalg.norm(R, axis=0) + _FACTOR_ROUNDING
    slack = np.outer(columns, length) + error * np.outer(longest, size)
    expected = deviations * (R.T @ rough)
    entries = np.abs(own.products - expected) <= slack + constant
    if not (near.all() and (entries | (deviations == 0)).all()):
        raise ProtocolError("its product is not that of its own factor.")


def _check_symmetric(own: _Scaled, other: _Scaled) -> None:
    difference = np.abs(other.vectors.T @ own.products - other.products.T @ own.vectors)
    slack = _ROUNDING * len(own.vectors) * np.outer(other.sizes, own.sizes)
    if not (difference <= slack).all():
        raise ProtocolError("its products contradict each other: not the same rows.")


def _check_definite(own: _Scaled) -> None:
    """Check that V'CV has no negative eigenvalue."""
    unit = 1.0 / np.where(own.sizes > 0, own.sizes, np.inf)
    squares = (own.vectors.T @ own.products) * unit * unit[:, None]
    if not np.isfinite(squares).all():
        raise ProtocolError("its products overflow in their own units.")
    slack = _ROUNDING * len(own.vectors) * len(squares)
    if not np.linalg.eigvalsh((squares + squares.T) / 2.0).min(initial=0.0) >= -slack:
        raise ProtocolError("its products are not those of one sum of squares.")


def _lengths(opening: Opening) -> Array:
    """Return the lengths of the client's columns, with what rounding may leave."""
    moments, d = opening.moments, opening.n_features
    rounding = _MEAN_ROUNDING**2 * moments.weight * moments.means[:d] ** 2
    return np.asarray(np.sqrt(moments.variances[:d] + rounding + SMALLEST_SQUARE))


def _largest(vectors: Array) -> Array:
    """Return the largest entry of every vector, 1 where all are zero."""
    found = np.abs(vectors).max(axis=0, initial=0.0)
    return np.asarray(np.where(found > 0, found, 1.0))


def _dots(a: Array, b: Array) -> Array:
    return np.asarray(np.einsum("da,da->a", a, b))
