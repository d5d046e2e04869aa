"""The shape of a noisy Gram matrix, for the steps of a refinement."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..._types import Array

__all__ = ["SEEN", "Curvature", "relative_curvature"]

# Anything is "seen" when three deviations of noise cannot explain it.
SEEN = 3.0
# Curvature that the noise of G hides is taken to be no less than 0.3 of the mean.
_FLATTEST = 0.3


class Curvature(NamedTuple):
    """A = vectors diag(values) vectors', mean value 1, and how far noise blurs it."""

    values: Array
    vectors: Array
    blur: float


def relative_curvature(gram: Array, noise: float, trace: float) -> Curvature:
    """Eigenvalues of G over their mean, cleaned of symmetric noise; eigenvectors.

    Directions that the noise could have made alone keep the mean, 1. What is left
    follows lambda_i - 2 s^2 H(lambda_i), H the Hilbert transform of the spectrum and
    s = noise * sqrt(d/2) the noise's own radius, scaled so that the spread of
    the result is no more than the observed spread less the noise's; an eigenvalue
    beyond the noise's edge is a spike and is inverted as one.
    """
    d = len(gram)
    mean = trace / d
    values, vectors = np.linalg.eigh(gram)
    off = values - values.mean()
    radius = noise * math.sqrt(d / 2)
    gap = off[:, None] - off[None, :]
    width = radius / math.sqrt(d)
    hilbert = (gap / (gap**2 + width**2 + np.finfo(float).tiny)).mean(axis=1)
    clean = np.sort(off - 2 * radius**2 * hilbert)
    clean -= clean.mean()
    by_chance = noise**2 * (d * (d + 1) / 2 - 1 + SEEN * math.sqrt(d * (d + 1)))
    spread = max(float(off @ off) - by_chance, 0.0)
    clean *= min(1.0, spread / max(float(clean @ clean), np.finfo(float).tiny))
    edge = 2 * radius * (1 + 2.5 * d ** (-2 / 3))
    spike = (off + np.sqrt(np.maximum(off**2 - 4 * radius**2, 0.0))) / 2
    beyond = (off > edge) & (spike > 0)
    spike -= radius**2 / np.where(beyond, spike, 1.0)
    clean = np.where(beyond, np.maximum(clean, spike), clean)
    blur = min(1.0, radius / mean)
    relative = np.maximum(1.0 + clean / mean, _FLATTEST * blur + 1e-12)
    return Curvature(relative / relative.mean(), vectors, blur)
