"""The data: scikit-learn's diabetes, some rows at every client."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_diabetes


def load_data(partition_id: int, num_partitions: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the training rows of one client."""
    X, y, held_out = _rows()
    X, y = X[~held_out], y[~held_out]
    return X[partition_id::num_partitions], y[partition_id::num_partitions]


def held_out_error(coef: np.ndarray, intercept: np.ndarray) -> float:
    """Return the mean squared error on the rows that no client has."""
    X, y, held_out = _rows()
    residuals = X[held_out] @ coef + intercept - y[held_out]
    return float(np.mean(residuals**2))


def _rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X, y = load_diabetes(return_X_y=True)
    X = X * np.sqrt(len(X))  # columns of unit variance, for gradient descent
    return X, y, np.arange(len(y)) % 5 == 0
