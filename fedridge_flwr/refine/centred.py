"""What a client computes without a matrix of d x d: means, sums and products.

Everything is about the client's own mean, as in `SufficientStatistics`, so features
shifted by 1e6 keep their digits. What lies between the clients is the server's, which
knows all means.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..rows import Array, Block, Rows

__all__ = ["FirstMoments", "centred_product", "centred_rows", "first_moments"]


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
    """Return the first moments of rows, in three passes over their blocks.

    Examples
    --------
    >>> from fedridge_flwr.rows import check_rows
    >>> rows = check_rows(np.array([[1.0], [3.0]]), np.array([0.0, 4.0]))
    >>> found = first_moments(rows)
    >>> found.means, found.variances, found.moment
    (array([2., 2.]), array([2., 8.]), array([[4.]]))
    """
    d, t = rows.n_features, rows.n_targets
    weight, means = column_means(rows)
    variances, moment = np.zeros(d + t), np.zeros((d, t))
    with np.errstate(invalid="ignore", over="ignore"):
        for block in rows.blocks():
            own = _weights(block)
            Y = block.Y - means[d:]
            weighted = Y * own[:, None]
            variances[d:] += np.einsum("ij,ij->j", weighted, Y)
            if rows.is_sparse:
                moment += block.X.T @ weighted
                moment -= np.outer(means[:d], weighted.sum(axis=0))
                variances[:d] += _sparse_squares(block, own, means[:d])
            else:
                X = block.X - means[:d]
                moment += X.T @ weighted
                variances[:d] += np.einsum("ij,ij,i->j", X, X, own)
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
                own = _weights(block)
                total += float(own.sum()) if first else 0.0
                sums += _shifted_sums(block, own, means, rows.n_features)
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
    >>> from fedridge_flwr.rows import check_rows
    >>> rows = check_rows(np.array([[1.0, 0.0], [3.0, 2.0]]), np.zeros(2))
    >>> centred_product(rows, np.array([[1.0], [1.0]])).ravel()
    array([4., 4.])
    """
    means = column_means(rows)[1][: rows.n_features]
    found = np.zeros(vectors.shape)
    offset = means @ vectors
    with np.errstate(invalid="ignore", over="ignore"):
        for block in rows.blocks():
            own = _weights(block)[:, None]
            if rows.is_sparse:
                image = (block.X @ vectors - offset) * own
                found += block.X.T @ image
                found -= np.outer(means, image.sum(axis=0))
            else:
                X = block.X - means
                found += X.T @ ((X @ vectors) * own)
    if not np.isfinite(found).all():
        rows.refuse_bad_values()
    return found


def centred_rows(rows: Rows, means: Array) -> Array:
    """Return sqrt(w) (x - mean) of all rows of weight, dense."""
    parts = []
    for block in rows.blocks():
        own = _weights(block)
        X = block.X.toarray() if rows.is_sparse else np.asarray(block.X, np.float64)
        parts.append(((X - means) * np.sqrt(own)[:, None])[own > 0])
    return np.concatenate(parts) if parts else np.zeros((0, rows.n_features))


def _weights(block: Block) -> Array:
    return np.ones(len(block.Y)) if block.weight is None else block.weight


def _shifted_sums(block: Block, own: Array, shift: Array, n_features: int) -> Array:
    if hasattr(block.X, "toarray"):
        of_features = own @ block.X - own.sum() * shift[:n_features]
    else:
        of_features = own @ (block.X - shift[:n_features])
    of_targets = own @ (block.Y - shift[n_features:])
    return np.concatenate([np.asarray(of_features).ravel(), of_targets])


def _sparse_squares(block: Block, own: Array, means: Array) -> Array:
    """Return sum w (x - mean)² per column of a CSR block without making it dense."""
    X, d = block.X, means.size
    weights = np.repeat(own, np.diff(X.indptr))
    away = X.data - means[X.indices]
    squares = np.bincount(X.indices, weights * away**2, d)
    # Entries that are not stored are zeros.
    stored = np.bincount(X.indices, weights, d)
    return np.asarray(squares + (own.sum() - stored) * means**2)
