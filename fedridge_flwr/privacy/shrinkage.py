"""Eigenvalues of a matrix under symmetric noise, brought back to where they were."""

from __future__ import annotations

import math

import numpy as np

from .._types import Array

__all__ = ["noise_edge", "shrunken_eigenvalues"]

_FLOOR = 0.1
"""Least eigenvalue, in units of s_G / sqrt(d), the sd of the mean eigenvalue."""

_ROUNDING = float(np.finfo(np.float64).eps)


def noise_edge(gram_sd: float, n_features: int) -> float:
    """Return the largest eigenvalue of the noise alone, s_G sqrt(2 d)."""
    return gram_sd * math.sqrt(2.0 * n_features)


def shrunken_eigenvalues(values: Array, gram_sd: float) -> tuple[Array, float]:
    """Shrink each eigenvalue to what its eigenvector v explains of G, v'Gv.

    g_i = λ_i − s_G² Σ_j (λ_i − λ_j) / ((λ_i − λ_j)² + s_G²/2): noise pushes
    eigenvalues apart, and this brings them back (the rotationally invariant estimator
    of Bun et al., 2016, with a kernel of the width of one entry's noise). Also
    returns the energy |G|² that g leaves out, per direction.
    """
    size = len(values)
    if gram_sd <= _ROUNDING * float(np.abs(values).max()):
        return np.maximum(values, 0.0), 0.0
    variance = gram_sd**2
    gaps = values[:, None] - values[None, :]
    push = np.sum(gaps / (gaps**2 + variance / 2.0), axis=1)
    shrunken = np.sort(values - variance * push)
    bulk = np.abs(values - np.median(values)) <= noise_edge(gram_sd, size)
    shrunken[bulk] = _gathered(shrunken[bulk], values[bulk], variance)
    left_out = (_signal_energy(values, variance) - _scatter(shrunken)) / size
    least = _FLOOR * gram_sd / math.sqrt(size)
    # Left out can be no more than the noise it was lost in, whatever rounding says.
    bounded = min(max(left_out, 0.0), variance * size / 2.0)
    return np.maximum(np.sort(shrunken), least), bounded


def _gathered(shrunken: Array, values: Array, variance: float) -> Array:
    """Draw eigenvalues that noise alone can spread together, to the scatter it leaves.

    The kernel leaves some scatter of pure noise behind, which matters only within
    the reach of the noise; what stands out of it is not touched.
    """
    scatter = _scatter(shrunken) if shrunken.size else 0.0
    if scatter == 0.0:
        return shrunken
    share = min(1.0, _signal_energy(values, variance) / scatter)
    centre = np.mean(shrunken)
    gathered: Array = centre + share * (shrunken - centre)
    return gathered


def _scatter(values: Array) -> float:
    return float(np.sum((values - np.mean(values)) ** 2))


def _signal_energy(values: Array, variance: float) -> float:
    """Scatter of the eigenvalues less what noise adds to it, at least 0."""
    size = len(values)
    noise = variance * (size * (size + 1) / 2.0 - 1.0)
    return max(_scatter(values) - noise, 0.0)
