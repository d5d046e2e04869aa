"""The paper's random projection: a plain Gaussian matrix from a shared seed."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from .problem import Array

__all__ = ["project", "projection_matrix"]


@lru_cache(maxsize=2)
def projection_matrix(features: int, dimension: int, seed: int) -> Array:
    """Return R of shape (features, dimension) with entries from N(0, 1/dimension)."""
    rng = np.random.default_rng([seed, 5, features, dimension])
    entries: Array = rng.normal(size=(features, dimension))
    return entries / float(np.sqrt(dimension))


def project(X: Array, dimension: int, seed: int) -> Array:
    """Return X R, or X itself where there is nothing to project."""
    features = X.shape[1]
    if dimension in (0, features):
        return X
    return X @ projection_matrix(features, dimension, seed)
