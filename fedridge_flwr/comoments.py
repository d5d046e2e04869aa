"""Weight, mean and centred co-moments of rows; merging and removing them.

A `Moments` of rows z with weights w is (W, m, C) with

    W = sum w,    m = sum w z / W,    C = sum w (z - m)(z - m)'.

Two of them merge by the pairwise update of Chan, Golub and LeVeque (1979), which
never forms the raw second moment and so does not lose digits to large means.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .rows import Array, Block

__all__ = ["Moments", "block_moments", "merge", "remove"]

_DENSE_RATIO = 4.0


class Moments(NamedTuple):
    """Total weight W, mean m (p,) and centred co-moments C (p, p).

    The mean is ``mean + mean_low``. Without the low part, every merge would round the
    mean, and over many unlike clients (sorted rows) those roundings cost digits of C.
    """

    weight: float
    mean: Array
    comoment: Array
    mean_low: Array

    @classmethod
    def zero(cls, width: int) -> Moments:
        """Return the moments of no rows."""
        return cls(0.0, np.zeros(width), np.zeros((width, width)), np.zeros(width))


def merge(a: Moments, b: Moments) -> Moments:
    """Return the moments of the rows of `a` and `b` together."""
    if a.weight == 0.0:
        return b
    if b.weight == 0.0:
        return a
    weight = a.weight + b.weight
    delta = (b.mean - a.mean) + (b.mean_low - a.mean_low)
    comoment = _square(delta, a.weight * (b.weight / weight))
    comoment += a.comoment
    comoment += b.comoment
    mean, low = _two_sum(a.mean, a.mean_low + delta * (b.weight / weight))
    return Moments(weight, mean, comoment, low)


def remove(total: Moments, part: Moments) -> Moments:
    """Return the moments of the rows of `total` that are not in `part`."""
    if part.weight == 0.0:
        return total
    weight = total.weight - part.weight
    delta = (total.mean - part.mean) + (total.mean_low - part.mean_low)
    comoment = total.comoment - part.comoment
    comoment -= _square(delta, part.weight * (total.weight / weight))
    mean, low = _two_sum(total.mean, total.mean_low + delta * (part.weight / weight))
    return Moments(weight, mean, comoment, low)


def block_moments(block: Block) -> Moments:
    """Return the moments of one block of rows."""
    if sparse.issparse(block.X):
        return _sparse_moments(block)
    return _dense_moments([block.X, block.Y], block.weight)


def _dense_moments(parts: list[NDArray[Any]], weight: Array | None) -> Moments:
    n_rows = parts[0].shape[0]
    widths = [part.shape[1] for part in parts]
    total = float(n_rows) if weight is None else float(weight.sum())
    if total == 0.0:
        return Moments.zero(sum(widths))
    centred = np.empty((n_rows, sum(widths)))
    shift = np.empty(sum(widths))
    start = 0
    for part, width in zip(parts, widths, strict=True):
        stop = start + width
        shift[start:stop] = _rough_mean(part, weight)
        np.subtract(part, shift[start:stop], out=centred[:, start:stop])
        start = stop
    if weight is None:
        rest = np.ones(n_rows) @ centred / total
    else:
        rest = weight @ centred / total
        centred *= np.sqrt(weight)[:, None]
    comoment = centred.T @ centred
    # The shift was only roughly the mean: take out what it left over.
    comoment -= _square(rest, total)
    mean, low = _two_sum(shift, rest)
    return Moments(total, mean, _clamp_variances(comoment), low)


def _rough_mean(part: NDArray[Any], weight: Array | None) -> Array:
    if weight is not None:
        # By weight: a far row of weight zero must not take the digits of the others.
        return np.asarray(weight @ part.astype(np.float64, copy=False) / weight.sum())
    if part.dtype in (np.float32, np.float64):
        mean = np.ones(part.shape[0], part.dtype) @ part / part.shape[0]
        if np.isfinite(mean).all():
            return np.asarray(mean, dtype=np.float64)
    return np.asarray(part.mean(axis=0, dtype=np.float64))


def _sparse_moments(block: Block) -> Moments:
    """Moments of [X Y] with X in CSR, without densifying it.

    Raw products minus W m m' lose (mean/sd)^2 in accuracy. A column can have such a
    ratio r only if at least r^2/(1+r^2) of its entries are non-zero, so columns
    above `_DENSE_RATIO` are dense anyway: they join the targets in the dense part.
    """
    X, Y = block.X, block.Y
    n_rows, n_features = X.shape
    weight = np.ones(n_rows) if block.weight is None else block.weight
    total = float(weight.sum())
    if total == 0.0:
        return Moments.zero(n_features + Y.shape[1])
    mean = np.asarray(X.T @ weight) / total
    square = np.asarray(X.multiply(X).T @ weight) / total
    offset = mean**2 * (1 + _DENSE_RATIO**-2) > square
    offset &= mean != 0.0
    light, heavy = np.flatnonzero(~offset), np.flatnonzero(offset)

    dense = _dense_moments([X[:, heavy].toarray(), Y], block.weight)
    where_dense = np.concatenate([heavy, n_features + np.arange(Y.shape[1])])
    Z = np.hstack([X[:, heavy].toarray(), Y]) - dense.mean
    Z *= weight[:, None]

    X_light = X[:, light]
    weighted = X_light if block.weight is None else sparse.diags_array(weight) @ X_light
    inner = (X_light.T @ weighted).toarray()
    inner -= _square(mean[light], total)
    cross = np.asarray(X_light.T @ Z)
    cross -= np.outer(mean[light], Z.sum(axis=0))

    width = n_features + Y.shape[1]
    moments = Moments.zero(width)._replace(weight=total)
    moments.mean[light], moments.mean[where_dense] = mean[light], dense.mean
    moments.mean_low[where_dense] = dense.mean_low
    moments.comoment[np.ix_(light, light)] = (inner + inner.T) / 2.0
    moments.comoment[np.ix_(light, where_dense)] = cross
    moments.comoment[np.ix_(where_dense, light)] = cross.T
    moments.comoment[np.ix_(where_dense, where_dense)] = dense.comoment
    return moments._replace(comoment=_clamp_variances(moments.comoment))


def _two_sum(large: Array, small: Array) -> tuple[Array, Array]:
    """Return the rounded sum and what rounding cut off (Knuth)."""
    total = large + small
    share = total - large
    return total, (large - (total - share)) + (small - share)


def _square(vector: Array, factor: float) -> Array:
    """Return factor * v v', exactly symmetric."""
    scaled = vector * np.sqrt(factor)
    return np.outer(scaled, scaled)


def _clamp_variances(comoment: Array) -> Array:
    """Set variances that rounding left below zero to zero, in place."""
    diagonal = np.einsum("ii->i", comoment)
    np.maximum(diagonal, 0.0, out=diagonal)
    return comoment
