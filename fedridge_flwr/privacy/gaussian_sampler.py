"""Exact discrete Gaussian noise from the operating system's random source.

P(x) is proportional to exp(-x²/(2 sd²)) on all integers. Floating-point Gaussians are
not on any grid, and what their last digits leak can undo the guarantee; integers
cannot leak so. The method is Karney's: x = sign · (k sd + j) with k from a small
discrete Gaussian and j uniform below sd, accepted with probability
exp(-j (2 k sd + j) / (2 sd²)).

Every coin with probability exp(-t) is decided exactly: a 64-bit uniform number is held
against exp(-t) in floating point where that settles it, and otherwise, once in about
10¹³ coins, digit by digit against exp(-t) as a decimal of any length.
"""

import os
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import FedRidgeError

RandomBytes: TypeAlias = Callable[[int], bytes]
Integers: TypeAlias = NDArray[np.int64]
Coins: TypeAlias = NDArray[np.bool_]

# Largest deviation: 32 times as much is still an int64.
LARGEST_SD = 2**57

# Relative error of exp(-t) computed in float64 for t below 2000, with room.
_DOUBT = 1e-12
_WORD = 64


def discrete_gaussian(
    sd: int | Integers, size: int | None = None, source: RandomBytes = os.urandom
) -> Integers:
    """Return independent draws with ``P(x)`` proportional to ``exp(-x² / (2 sd²))``.

    x is any whole number. The draws are exact, whatever the rounding of the machine.

    Parameters
    ----------
    sd : int or ndarray of int
        Deviation of all draws, or of each: whole numbers of at least 1.
    size : int, optional
        Number of draws; by default as many as there are deviations.
    source : callable
        Returns as many random bytes as it is asked for. Anything but the operating
        system's source is for tests only: with known bytes the noise is known.

    Returns
    -------
    ndarray of int64
        The draws.

    Raises
    ------
    FedRidgeError
        If a deviation is not a whole number, below 1, or too large for 64-bit
        integers.

    Examples
    --------
    >>> from fedridge_flwr.privacy import discrete_gaussian
    >>> draws = discrete_gaussian(1000, 10_000)
    >>> bool(950 < draws.std() < 1050)
    True
    """
    if (kind := np.asarray(sd).dtype).kind not in "iu":
        raise FedRidgeError(f"sd must be whole numbers, got {kind}: round up.")
    each = np.asarray(sd, dtype=np.int64)
    each = np.atleast_1d(each) if size is None else np.broadcast_to(each, (size,))
    if each.size and not (each.min() >= 1 and each.max() <= LARGEST_SD):
        raise FedRidgeError(
            f"sd must be from 1 to {LARGEST_SD}, got {each.min()} to {each.max()}."
        )
    found: Integers = np.empty(each.size, dtype=np.int64)
    todo = np.arange(each.size)
    while todo.size:
        own = each[todo]
        k = _small_gaussian(todo.size, source)
        j = _below(own, source)
        negative = _words(todo.size, source) >> np.uint64(63) == 1
        kept = _accepted(j, k, own, source) & ~(negative & (k == 0) & (j == 0))
        drawn = k * own + j
        found[todo[kept]] = np.where(negative, -drawn, drawn)[kept]
        todo = todo[~kept]
    return found


def _small_gaussian(size: int, source: RandomBytes) -> Integers:
    """Return k = 0, 1, 2 ... with probability proportional to exp(-k²/2)."""
    found: Integers = np.zeros(size, dtype=np.int64)
    todo = np.arange(size)
    while todo.size:
        # Geometric in exp(-1/2), then one coin of exp(-k (k - 1) / 2).
        k = np.zeros(todo.size, dtype=np.int64)
        running = np.arange(todo.size)
        while running.size:
            halves = np.full(running.size, 0.5)
            running = running[_coins(halves, lambda i: Fraction(1, 2), source)]
            k[running] += 1
        kept = k < 2
        large = np.flatnonzero(~kept)
        kept[large] = _coins_of_pairs(k[large], source)
        # Beyond 32 deviations, probability 1e-222, an int64 could overflow.
        kept &= k < 32
        found[todo[kept]] = k[kept]
        todo = todo[~kept]
    return found


def _coins_of_pairs(k: Integers, source: RandomBytes) -> Coins:
    """Return coins that show True with probability exp(-k (k - 1) / 2)."""
    pairs = k * (k - 1)
    return _coins(pairs / 2.0, lambda i: Fraction(int(pairs[i]), 2), source)


def _accepted(j: Integers, k: Integers, sd: Integers, source: RandomBytes) -> Coins:
    """Return coins that show True with probability exp(-j (2 k sd + j) / (2 sd²))."""
    x = j / sd
    exponents = x * (2.0 * k + x) / 2.0

    def exact(i: int) -> Fraction:
        own, unit = int(j[i]), int(sd[i])
        return Fraction(own * (2 * int(k[i]) * unit + own), 2 * unit * unit)

    return _coins(exponents, exact, source)


def _coins(
    exponents: NDArray[np.float64],
    exact: Callable[[int], Fraction],
    source: RandomBytes,
) -> Coins:
    """Return coins that show True with probability exp(-exponent).

    Exponents are given in floating point, and exactly where it matters.
    """
    probability = np.exp(-exponents)
    words = _words(probability.size, source)
    uniform = words / 2.0**_WORD
    heads = uniform < probability
    slack = _DOUBT * probability + 2.0**-52
    for i in np.flatnonzero(np.abs(uniform - probability) <= slack):
        heads[i] = _settle(int(words[i]), exact(int(i)), source)
    return heads


def _settle(word: int, exponent: Fraction, source: RandomBytes) -> bool:
    """Return whether a uniform number that begins with `word` is below exp(-exponent).

    Bits and digits are added until the two differ for certain.
    """
    bits = _WORD
    while True:
        digits = bits // 3 + 20
        context = Context(prec=digits)
        numerator, denominator = Decimal(exponent.numerator), exponent.denominator
        limit = context.exp(context.divide(-numerator, Decimal(denominator)))
        # Quotient and exponential are right to the last digit but a few.
        slack = Fraction(1, 10 ** (digits - 10))
        low, high = Fraction(word, 2**bits), Fraction(word + 1, 2**bits)
        if high <= Fraction(limit) - slack:
            return True
        if low >= Fraction(limit) + slack:
            return False
        word = (word << _WORD) | int.from_bytes(source(_WORD // 8), "little")
        bits += _WORD


def _below(limits: Integers, source: RandomBytes) -> Integers:
    """Return uniform integers from 0 to limit - 1, one for each limit."""
    # The smallest power of two from each limit on, less 1.
    masks = limits - 1
    for shift in (1, 2, 4, 8, 16, 32):
        masks = masks | masks >> shift
    found: Integers = np.empty(limits.size, dtype=np.int64)
    todo = np.arange(limits.size)
    while todo.size:
        words = _words(todo.size, source) >> np.uint64(1)
        drawn = words.astype(np.int64) & masks[todo]
        kept = drawn < limits[todo]
        found[todo[kept]] = drawn[kept]
        todo = todo[~kept]
    return found


def _words(size: int, source: RandomBytes) -> NDArray[np.uint64]:
    return np.frombuffer(source(8 * size), dtype="<u8")
