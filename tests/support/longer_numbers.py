"""Ridge regression in numbers longer than float64, to measure errors against."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

Long = np.longdouble
long_enough = pytest.mark.skipif(
    np.finfo(Long).eps > 1e-18, reason="numbers longer than float64 are needed"
)


def in_longer_numbers(rows: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the coefficients, the lengths of the columns and the centred rows.

    `rows` have X, y, weight and alpha.
    """
    weight = rows.weight.astype(Long)
    X, y = rows.X.astype(Long), rows.y.astype(Long)
    for _ in range(2):
        X = X - weight @ X / weight.sum()
        y = y - weight @ y / weight.sum()
    matrix = X.T @ (X * weight[:, None])
    matrix[np.diag_indices(len(matrix))] += Long(rows.alpha)
    lengths = np.sqrt(np.diagonal(matrix))
    matrix, rhs = matrix / np.outer(lengths, lengths), X.T @ (weight * y) / lengths
    d = len(rhs)
    lower = np.zeros_like(matrix)
    for j in range(d):
        lower[j, j] = np.sqrt(matrix[j, j] - lower[j, :j] @ lower[j, :j])
        below = matrix[j + 1 :, j] - lower[j + 1 :, :j] @ lower[j, :j]
        lower[j + 1 :, j] = below / lower[j, j]
    for i in range(d):
        rhs[i] = (rhs[i] - lower[i, :i] @ rhs[:i]) / lower[i, i]
    for i in reversed(range(d)):
        rhs[i] = (rhs[i] - lower[i + 1 :, i] @ rhs[i + 1 :]) / lower[i, i]
    return rhs / lengths, lengths, X * np.sqrt(weight)[:, None]
