"""What a client's products always satisfy, whoever computed them.

They are those of one matrix, which is symmetric, has no negative eigenvalue and is like
the client's own factor. A client that answers otherwise would spoil the solution for
all; it is found out in the round in which it does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ProtocolError
from ..rows import Array
from .opening import Opening

__all__ = ["check_factor", "check_positive", "check_product", "check_symmetric"]

_ROUNDING = 1e-9
_MEAN_ROUNDING = 1e-10
_FACTOR_ROUNDING = 1e-3


def check_product(product: Any, directions: Array) -> Array:
    """Return a product that has the right form."""
    found = np.asarray(product)
    if found.dtype != np.float64 or found.shape != directions.shape:
        raise ProtocolError(
            f"expected a product of float64 and shape {directions.shape}, got "
            f"{found.dtype} and {found.shape}."
        )
    if not np.isfinite(found).all():
        raise ProtocolError("some numbers of the product are NaN or infinite.")
    return found


def check_positive(opening: Opening, directions: Array, product: Array) -> None:
    """Refuse v'Cv that no rows with these variances can have."""
    curvature = _curvatures(directions, product)
    size = _sizes(opening, directions) ** 2
    d = opening.n_features
    slack = _ROUNDING * d * size
    if (curvature < -slack).any() or (curvature > d * size + slack).any():
        raise ProtocolError(
            "its product is not that of a sum of squares with its own variances."
        )


def check_factor(opening: Opening, directions: Array, product: Array) -> None:
    """Refuse a product that is not like that of the client's own factor."""
    factor = opening.factor
    if factor is None:
        return
    scaled = directions * opening.deviations[:, None]
    length = np.sqrt(np.maximum(_curvatures(directions, product), 0.0))
    rough = np.linalg.norm(factor.matrix() @ scaled, axis=0)
    size = np.linalg.norm(scaled, axis=0)
    slack = (factor.error + _FACTOR_ROUNDING) * size
    if (np.abs(length - rough) > slack).any():
        raise ProtocolError("its product is not that of its own factor.")


def check_symmetric(
    opening: Opening, now: tuple[Array, Array], before: tuple[Array, Array]
) -> None:
    """Refuse two products that are not of one symmetric matrix.

    Parameters
    ----------
    opening : Opening
        What the client sent first.
    now, before : tuple of ndarray
        Directions and products of two rounds, of shape (d, a).
    """
    (p, q), (earlier_p, earlier_q) = now, before
    difference = np.abs(earlier_p.T @ q - earlier_q.T @ p)
    sizes = np.outer(_sizes(opening, earlier_p), _sizes(opening, p))
    if (difference > _ROUNDING * opening.n_features * sizes).any():
        raise ProtocolError(
            "its product does not fit to the one before: not the same rows, or not "
            "these rows at all."
        )


def _curvatures(directions: Array, product: Array) -> Array:
    return np.asarray(np.einsum("da,da->a", directions, product))


def _sizes(opening: Opening, directions: Array) -> Array:
    moments, d = opening.moments, opening.n_features
    # What rounding of a mean leaves of a column that does not vary.
    rounding = _MEAN_ROUNDING**2 * moments.weight * moments.means[:d] ** 2
    lengths = np.sqrt(moments.variances[:d] + rounding)
    return np.asarray(np.linalg.norm(directions * lengths[:, None], axis=0))
