"""The shape of a noisy Gram matrix, for the steps of a refinement."""

import math
from typing import NamedTuple

import numpy as np

from ..._types import Array
from ..denoising import contracted, denoised_eigenvalues, scatter_beyond_noise

# Standard errors of noise beyond which a signal counts as seen.
SEEN = 3.0
# Curvature that the noise of G hides is taken to be no less than 0.3 of the mean.
_FLATTEST = 0.3


class Curvature(NamedTuple):
    """A = vectors diag(values) vectors', mean value 1, and how far noise blurs it."""

    values: Array
    vectors: Array
    blur: float


def relative_curvature(gram: Array, noise: float, trace: float) -> Curvature:
    """Return denoised eigenvalues of G over their mean, and eigenvectors.

    Directions that may be noise alone keep the mean, 1. The scatter of the others is
    no more than the observed one less the noise's; an eigenvalue beyond the edge of
    the noise is a spike and is inverted as one.
    """
    d = len(gram)
    mean = trace / d
    values, vectors = np.linalg.eigh(gram)
    off = values - values.mean()
    clean = denoised_eigenvalues(off, noise)
    clean = contracted(clean - clean.mean(), scatter_beyond_noise(off, noise, SEEN))
    radius = noise * math.sqrt(d / 2)
    edge = 2 * radius * (1 + 2.5 * d ** (-2 / 3))
    spike = (off + np.sqrt(np.maximum(off**2 - 4 * radius**2, 0.0))) / 2
    beyond = (off > edge) & (spike > 0)
    spike -= radius**2 / np.where(beyond, spike, 1.0)
    clean = np.where(beyond, np.maximum(clean, spike), clean)
    blur = min(1.0, radius / mean)
    relative = np.maximum(1.0 + clean / mean, _FLATTEST * blur + 1e-12)
    return Curvature(relative / relative.mean(), vectors, blur)
