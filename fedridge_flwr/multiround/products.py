"""What a client computes without a matrix of d x d: means, sums and products.

Everything is about the client's own mean, as in `SufficientStatistics`, so features
shifted by 1e6 keep their digits. What lies between the clients is the server's, which
knows all means.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._types import Array
from ..data.rows import Block, Rows


@dataclass(frozen=True)
class FirstMoments:
    """Weight, means of [X Y], and centred second moments that are no d x d matrix.

    Attributes
    ----------
    weight : float
        Sum of the sample weights.
    means : ndarray of shape (d + t,)
        Weighted means.
    variances : ndarray of shape (d + t,)
        Diagonal of the centred co-moments of [X Y].
    moment : ndarray of shape (d, t)
        Centred co-moments of X with Y.
    """

    weight: float
    means: Array
    variances: Array
    moment: Array


def first_moments(rows: Rows) -> FirstMoments:
    """Return the first moments of rows, in a few passes over their blocks.

    Examples
    --------
    >>> from fedridge_flwr.data.rows import check_rows
    >>> rows = check_rows(np.array([[1.0], [3.0]]), np.array([0.0, 4.0]))
    >>> found = first_moments(rows)
    >>> found.means, found.variances, found.moment
    (array([2., 2.]), array([2., 8.]), array([[4.]]))
    """
    d, t = rows.n_features, rows.n_targets
    weight, means = column_means(rows)
    variances, moment = np.zeros(d + t), np.zeros((d, t))
    with np.errstate(invalid="ignore", over="ignore"):
        centre = _centring(rows, means[:d])
        for block in rows.blocks():
            own, X = block.weights, centre(block)
            Y = block.Y - means[d:]
            weighted = Y * own[:, None]
            variances[d:] += np.einsum("ij,ij->j", weighted, Y)
            variances[:d] += X.squares(own)
            moment += X.transposed_times(weighted)
    if not (np.isfinite(variances).all() and np.isfinite(moment).all()):
        rows.refuse_bad_values()
    return FirstMoments(weight, means, variances, moment)


def column_means(rows: Rows) -> tuple[float, Array]:
    """Return the total weight and the weighted means of [X Y].

    The mean of what is left after subtracting a first mean is added to it: that is
    what rounding of large numbers had cut off.
    """
    total = 0.0
    means = np.zeros(rows.n_features + rows.n_targets)
    with np.errstate(invalid="ignore", over="ignore"):
        for first in (True, False):
            sums = np.zeros_like(means)
            for block in rows.blocks():
                total += float(block.weights.sum()) if first else 0.0
                sums += _shifted_sums(block, means)
            if total > 0:
                means = means + sums / total
    return total, means


def centred_product(rows: Rows, vectors: Array) -> Array:
    """Return X' W (X V) of the rows about their own mean: C V without C.

    Parameters
    ----------
    rows : Rows
        The client's rows.
    vectors : ndarray of shape (d, a)
        V.

    Examples
    --------
    >>> from fedridge_flwr.data.rows import check_rows
    >>> rows = check_rows(np.array([[1.0, 0.0], [3.0, 2.0]]), np.zeros(2))
    >>> centred_product(rows, np.array([[1.0], [1.0]])).ravel()
    array([4., 4.])
    """
    means = column_means(rows)[1][: rows.n_features]
    found = np.zeros(vectors.shape)
    with np.errstate(invalid="ignore", over="ignore"):
        centre = _centring(rows, means)
        for block in rows.blocks():
            X = centre(block)
            found += X.transposed_times(X.times(vectors) * block.weights[:, None])
    if not np.isfinite(found).all():
        rows.refuse_bad_values()
    return found


def centred_rows(rows: Rows, means: Array) -> Array:
    """Return sqrt(w) (x - mean) of all rows of weight, dense."""
    parts = []
    for block in rows.blocks():
        own = block.weights
        X = block.X.toarray() if rows.is_sparse else np.asarray(block.X, np.float64)
        parts.append(((X - means) * np.sqrt(own)[:, None])[own > 0])
    return np.concatenate(parts) if parts else np.zeros((0, rows.n_features))


class _Dense:
    """X - mean of a dense block."""

    def __init__(self, X: Any, means: Array) -> None:
        self._X: Array = X - means

    def times(self, vectors: Array) -> Array:
        return self._X @ vectors

    def transposed_times(self, image: Array) -> Array:
        return self._X.T @ image

    def squares(self, own: Array) -> Array:
        return np.asarray(np.einsum("ij,ij,i->j", self._X, self._X, own))


class _Sparse:
    """The same of a CSR block, which stays sparse.

    Columns whose mean is far above their deviation have hardly any zeros, and would
    lose their digits to the difference of two large numbers: those are made dense.
    """

    def __init__(self, X: Any, means: Array, heavy: NDArray[np.bool_]) -> None:
        self._light, self._heavy = np.flatnonzero(~heavy), np.flatnonzero(heavy)
        self._X = X[:, self._light] if heavy.any() else X
        self._means = means[self._light]
        self._dense = _Dense(X[:, self._heavy].toarray(), means[self._heavy])

    def times(self, vectors: Array) -> Array:
        light = vectors[self._light]
        image = self._X @ light - self._means @ light
        return np.asarray(image + self._dense.times(vectors[self._heavy]))

    def transposed_times(self, image: Array) -> Array:
        light = self._X.T @ image - np.outer(self._means, image.sum(axis=0))
        return self._joined(light, self._dense.transposed_times(image))

    def squares(self, own: Array) -> Array:
        X, width = self._X, self._light.size
        weights = np.repeat(own, np.diff(X.indptr))
        away = X.data - self._means[X.indices]
        squares = np.asarray(np.bincount(X.indices, weights * away**2, width), float)
        # Entries that are not stored are zeros, each as far away as the mean.
        squares += _absent(X, own, weights) * self._means**2
        return self._joined(squares, self._dense.squares(own))

    def _joined(self, light: Array, heavy: Array) -> Array:
        found = np.empty((self._light.size + self._heavy.size, *light.shape[1:]))
        found[self._light], found[self._heavy] = light, heavy
        return found


def _centring(rows: Rows, means: Array) -> Callable[[Block], _Dense | _Sparse]:
    """Return what takes the means out of a block."""
    if not rows.is_sparse:
        return lambda block: _Dense(block.X, means)
    squares, weight = np.zeros(rows.n_features), 0.0
    for block in rows.blocks():
        own = block.weights
        squares += own @ block.X.power(2)
        weight += float(own.sum())
    spread = squares - weight * means**2
    # The mean is more than two deviations away from zero.
    heavy = weight * means**2 > 4.0 * np.maximum(spread, 0.0)
    heavy &= means != 0.0
    return lambda block: _Sparse(block.X, means, heavy)


def _absent(X: Any, own: Array, weights: Array) -> Array:
    """Return the weight of the entries of a CSR block that are not stored."""
    width = X.shape[1]
    absent = own.sum() - np.bincount(X.indices, weights, width)
    full = np.bincount(X.indices, minlength=width) == X.shape[0]
    return np.where(full, 0.0, np.maximum(absent, 0.0))


def _shifted_sums(block: Block, means: Array) -> Array:
    """Return the weighted sums of what [X Y] is off the means."""
    X, own, d = block.X, block.weights, block.X.shape[1]
    if hasattr(X, "toarray"):
        weights = np.repeat(own, np.diff(X.indptr))
        away = X.data - means[X.indices]
        stored = np.bincount(X.indices, weights * away, d)
        of_features = stored - _absent(X, own, weights) * means[:d]
    else:
        of_features = own @ (X - means[:d])
    return np.concatenate([of_features, own @ (block.Y - means[d:])])
