"""Numbers as int8 in blocks of 64, each with a float32 scale of its own."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from .._types import Array

Codes: TypeAlias = NDArray[np.int8]
Scales: TypeAlias = NDArray[np.float32]

BLOCK = 64
_LEVELS = 127


def quantise(values: Array) -> tuple[Codes, Scales]:
    """Return codes and scales with |values - codes * scale| <= scale / 2.

    Parameters
    ----------
    values : ndarray of shape (n,)
        Numbers; the largest of each block of 64 sets its scale.

    Examples
    --------
    >>> codes, scales = quantise(np.array([1.0, -0.5, 0.25]))
    >>> codes
    array([127, -64,  32], dtype=int8)
    >>> dequantise(codes, scales).round(2)
    array([ 1.  , -0.5 ,  0.25])
    """
    padded = np.zeros((n_blocks(values.size), BLOCK))
    padded.ravel()[: values.size] = values
    scales = (np.abs(padded).max(axis=1) / _LEVELS).astype(np.float32)
    unit = np.where(scales > 0, scales, 1.0).astype(np.float64)
    codes = np.rint(padded / unit[:, None])
    np.clip(codes, -_LEVELS, _LEVELS, out=codes)
    return codes.ravel()[: values.size].astype(np.int8), scales


def dequantise(codes: Codes, scales: Scales) -> Array:
    """Return the numbers that codes and scales stand for."""
    return codes * np.repeat(scales.astype(np.float64), BLOCK)[: codes.size]


def n_blocks(size: int) -> int:
    """Return how many scales so many numbers need."""
    return -(-size // BLOCK)
