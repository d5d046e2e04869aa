"""What each method costs one client: bytes up and down, and rounds.

Bytes are those of the numbers in the payload. Rounds of the methods that come back to
the clients were measured for 1,000 features and 20 clients of 500 rows, to a relative
error of 1e-10; elsewhere they are an estimate.
"""

import math
from collections.abc import Sequence

from ..linalg.packed import packed_length
from ..linalg.pivoted import trapezoid_length
from ..multiround.int8 import n_blocks
from ..multiround.opening import head_length
from ..statistics.trapezoid import factor_bytes, fewer_numbers

BUDGET = 8_000_000
"""Bytes per client up to which one round is worth more than fewer bytes."""

MEMORY = 16e9
"""Bytes that a server is taken to have for matrices, if it does not say."""

MATRICES = 24
"""Bytes that it needs for every entry of a matrix of d x d: three of them at once."""

MOST_FEATURES = math.isqrt(int(MEMORY / MATRICES))
"""Features of which such a server can hold matrices of d x d."""

MOST_PRIVATE_FEATURES = 8192
"""Features of which a client draws noise for d x d / 2 numbers: about one gigabyte."""

_SPECTRA = (0.0, 1.0, 2.0)


def oneshot_bytes(d: int, t: int = 1, n: int | None = None) -> int:
    """Return 8 (1+d+t)(2+d+t)/2, or less where a client has fewer rows than columns.

    Examples
    --------
    >>> oneshot_bytes(1000), oneshot_bytes(1000, n=50)
    (4020024, 395004)
    """
    if n is not None and fewer_numbers(n, d, t):
        return factor_bytes(n, d, t)
    return 8 * packed_length(d, t)


def refine_bytes(d: int, t: int = 1, n: int | None = None, *, rounds: int = 6) -> int:
    """Return the bytes of an int8 factor of X, and of `rounds` vectors in float64.

    A factor of m = min(n, d) rows has m d - m(m-1)/2 numbers of one byte, a scale of
    four bytes for 64 of them, and an order of its columns.

    Examples
    --------
    >>> refine_bytes(1000, n=500, rounds=6)
    522730
    """
    numbers = trapezoid_length(d if n is None else n, d)
    factor = numbers + 4 * n_blocks(numbers) + 4 * d
    return factor + cg_bytes(d, t, rounds=rounds)


def cg_bytes(d: int, t: int = 1, *, rounds: int) -> int:
    """Return the bytes of means, variances and moments, and 16 d t for every round.

    Examples
    --------
    >>> cg_bytes(1000, rounds=20)
    344024
    """
    return 8 * head_length(d, t) + 16 * d * t * rounds


def fedavg_bytes(d: int, t: int = 1, *, rounds: int) -> int:
    """Return 16 (d + 1) t for every round: a model down and one up.

    Examples
    --------
    >>> fedavg_bytes(1000, rounds=200)
    3203200
    """
    return 16 * (d + 1) * t * rounds


def refine_rounds(spectrum: float | None) -> int:
    """Return about how many vector rounds preconditioned refinement needs.

    Between what was measured (0, 1, 2: 5, 6, 14 rounds), the logarithm is interpolated;
    beyond, it goes on, up to 3. An unknown spectrum counts as 1.

    Examples
    --------
    >>> [refine_rounds(s) for s in (0, 1, 1.5, 2, None)]
    [5, 6, 10, 14, 6]
    """
    return _interpolated(spectrum, (5.0, 6.0, 14.0))


def cg_rounds(spectrum: float | None) -> int:
    """Return the same for conjugate gradients (21, 128, 1318 rounds).

    Examples
    --------
    >>> [cg_rounds(s) for s in (0, 1, 2, 3)]
    [21, 128, 1318, 13572]
    """
    return _interpolated(spectrum, (21.0, 128.0, 1318.0))


def _interpolated(spectrum: float | None, measured: Sequence[float]) -> int:
    place = min(1.0 if spectrum is None else spectrum, 3.0)
    k = 0 if place < _SPECTRA[1] else 1
    growth = math.log(measured[k + 1] / measured[k])
    rounds = measured[k] * math.exp(growth * (place - _SPECTRA[k]))
    return math.ceil(rounds - 1e-6)


def private_bytes(d: int, t: int) -> int:
    """Return the bytes of noisy sums G and h, with the intercept as a feature."""
    return 8 * ((d + 1) * (d + 2) // 2 + (d + 1) * t)


def private_refine_bytes(d: int, rounds: int) -> int:
    """Return those of a noisy G once, and in every round d + 1 numbers and one more."""
    return 8 * ((d + 1) * (d + 2) // 2 + 2) + 8 * (2 * d + 3) * rounds
