"""Signal in noisy eigenvalues and noisy moments, where the noise is Gaussian and known.

All functions are post-processing of a release and cost no privacy.
"""

import math

import numpy as np

from .._types import Array
from ..linalg.packed import EPS

# Least eigenvalue, in units of s_G / sqrt(d), the sd of the mean eigenvalue.
_FLOOR = 0.1

# Twice the log likelihood ratio a signal must gain over none: two standard errors.
_EVIDENCE = 4.0

LEAST_SD = 1e-100
_GRID = np.linspace(0.0, 1.0, 128)
_SECTION = np.linspace(0.0, 1.0, 65)
_NEGLIGIBLE = 1e-3


def noise_edge(gram_sd: float, n_features: int) -> float:
    """Return the largest eigenvalue of the noise alone, s_G sqrt(2 d)."""
    return gram_sd * math.sqrt(2.0 * n_features)


def denoised_eigenvalues(values: Array, gram_sd: float) -> Array:
    """Return what each noisy eigenvector v explains of G, v'Gv, in ascending order.

    g_i = λ_i − s_G² Σ_j (λ_i − λ_j) / ((λ_i − λ_j)² + s_G²/2): noise pushes
    eigenvalues apart, and this brings them back (the rotationally invariant estimator
    of Bun et al., 2016, with a kernel of the width of one entry's noise).

    Examples
    --------
    >>> import numpy as np
    >>> denoised_eigenvalues(np.array([1.0, 9.0]), 0.0)
    array([1., 9.])
    >>> denoised_eigenvalues(np.array([1.0, 9.0]), 2.0).round(2)
    array([1.48, 8.52])
    """
    if gram_sd <= EPS * float(np.abs(values).max()):
        return values
    gaps = values[:, None] - values[None, :]
    push = np.sum(gaps / (gaps**2 + gram_sd**2 / 2.0), axis=1)
    return np.sort(values - gram_sd**2 * push)


def scatter_beyond_noise(values: Array, gram_sd: float, margin: float = 0.0) -> float:
    """Return the scatter of eigenvalues less what noise adds to it, at least 0.

    `margin` is in standard errors of the scatter of noise alone.
    """
    entries = len(values) * (len(values) + 1)
    noise = gram_sd**2 * (entries / 2.0 - 1.0 + margin * math.sqrt(entries))
    return max(_scatter(values) - noise, 0.0)


def contracted(values: Array, largest: float) -> Array:
    """Draw values together about their mean, to a scatter of `largest` at most.

    The kernel of `denoised_eigenvalues` leaves some scatter of pure noise behind.
    """
    scatter = _scatter(values) if values.size else 0.0
    if scatter == 0.0:
        return values
    centre = np.mean(values)
    return np.asarray(centre + min(1.0, largest / scatter) * (values - centre))


def _scatter(values: Array) -> float:
    return float(np.sum((values - np.mean(values)) ** 2))


def shrunken_eigenvalues(values: Array, gram_sd: float) -> tuple[Array, float]:
    """Return denoised eigenvalues above 0, and the energy |G|² that they leave out.

    The energy is per direction. Eigenvalues within the reach of the noise are
    contracted; those beyond it are not changed.
    """
    shrunken = denoised_eigenvalues(values, gram_sd)
    if shrunken is values:
        return np.maximum(values, 0.0), 0.0
    size = len(values)
    bulk = np.abs(values - np.median(values)) <= noise_edge(gram_sd, size)
    beyond = scatter_beyond_noise(values[bulk], gram_sd) if bulk.any() else 0.0
    shrunken[bulk] = contracted(shrunken[bulk], beyond)
    left_out = scatter_beyond_noise(values, gram_sd) - _scatter(shrunken)
    # No more than the noise it was lost in can be left out.
    energy = min(max(left_out / size, 0.0), gram_sd**2 * size / 2.0)
    least = _FLOOR * gram_sd / math.sqrt(size)
    return np.maximum(np.sort(shrunken), least), energy


def signal_in(energy: Array, moment: Array, moment_sd: float) -> tuple[float, float]:
    """Return f and s_h² / v, v by marginal likelihood of h_i ~ N(0, v energy_i + s_h²).

    With R twice the log likelihood ratio of v against v = 0, the moments are trusted
    by the share f = 1 − (4 / R)², and not at all for R ≤ 4.
    """
    if moment_sd <= LEAST_SD:
        return 1.0, 0.0
    informative = energy > 0.0
    gain = energy[informative] / moment_sd**2
    squares = (moment[informative] / moment_sd) ** 2
    largest = float(np.max((squares - 1.0) / gain, initial=0.0))
    smallest = _NEGLIGIBLE / float(np.max(gain, initial=LEAST_SD))
    if not largest > smallest:
        return 0.0, 0.0
    variance = _likeliest(gain, squares, smallest, largest)
    evidence = -float(_deviance(gain, squares, np.array([variance]))[0])
    if not evidence > _EVIDENCE:
        return 0.0, 0.0
    return 1.0 - (_EVIDENCE / evidence) ** 2, float(moment_sd**2 / variance)


def _deviance(gain: Array, squares: Array, variance: Array) -> Array:
    """Minus twice the log likelihood of each variance, against variance 0."""
    spread = np.multiply.outer(variance, gain)
    fitted = squares * (spread / (1.0 + spread))
    return np.asarray(np.sum(np.log1p(spread) - fitted, axis=-1))


def _likeliest(gain: Array, squares: Array, smallest: float, largest: float) -> float:
    """Find the best variance on a grid, then the zero of the slope between neighbours.

    That makes the result a smooth function of its input. Each of ten turns divides the
    interval by 64, in one pass over an array: as much as 60 bisections.
    """
    low, high = math.log(smallest), math.log(largest)
    grid = low + (high - low) * _GRID
    best = int(np.argmin(_deviance(gain, squares, np.exp(grid))))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    for _ in range(10):
        points = low + (high - low) * _SECTION
        spread = np.multiply.outer(np.exp(points[1:-1]), gain)
        share = spread / (1.0 + spread)
        rising = np.sum(share * (1.0 - squares * (1.0 - share)), axis=1) > 0.0
        first = int(np.argmax(rising)) if rising.any() else len(rising)
        low, high = points[first], points[first + 1]
    return math.exp((low + high) / 2.0)
