"""Exact discrete Gaussian noise from the operating system's random source.

P(x) is proportional to exp(-x²/(2 sd²)) on the integers. Floating-point Gaussians are
not on any grid, and what their last digits leak can undo the guarantee; integers
cannot leak so.

The method is Karney's with finer steps. A deviation is cut into S = 16 steps of
m = ceil(sd / S) integers, so that m S >= sd, and x = sign · (k m + j), with

- k from 0 on with probability proportional to exp(-k²/(2 S²)),
- j uniform below m, and a fair sign,

is accepted with probability exp(-(x²/sd² - k²/S²) / 2). Why that is exact: |x| >= k m
>= k sd / S, so this is no more than 1; its product with the probability of k and j is
exp(-x²/(2 sd²)) but for a constant; every x other than 0 comes from one k, one j and
one sign, and 0 from one of its two signs, since the other is rejected. About 97% of all
proposals are accepted if sd is large; a sd below S is exact too, and slower.

Rounding decides nothing. k is looked up by 16 random bits where they settle it, and a
coin of probability exp(-t) by 16 or 48 bits and floating point where those settle it.
Otherwise more bits are drawn and compared with more digits, until the two differ.
They do in the end: the limits are no fractions, they have no last digit.

The one departure: k ends at 32 deviations. What is beyond has probability 1e-222, and
would not fit into an int64.
"""

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from functools import cache
from itertools import accumulate
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import FedRidgeError

RandomBytes: TypeAlias = Callable[[int], bytes]
Integers: TypeAlias = NDArray[np.int64]
Words: TypeAlias = NDArray[np.uint16]
Coins: TypeAlias = NDArray[np.bool_]

# Largest deviation: 32 times as much is still an int64.
LARGEST_SD = 2**57

# Steps of a deviation, S, and of 32 of them.
_STEPS = 16
_ALL_STEPS = 32 * _STEPS

# Bits that look k up, and of a coin: most need the first 16 only.
_LOOKUP = 16
_COIN = 48
_WORD = 64

# More than a coin's 48 bits leave open and float64 errs: 2^-48 each (see `_accepted`).
_DOUBT = 2.0**-40

# Proposals made at a time, few enough to stay in the processor's cache.
_BLOCK = 2**14


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
    for start in range(0, each.size, _BLOCK):
        todo = np.arange(start, min(start + _BLOCK, each.size))
        while todo.size:
            drawn, kept = _proposals(each[todo], source)
            found[todo[kept]] = drawn[kept]
            todo = todo[~kept]
    return found


def _proposals(sd: Integers, source: RandomBytes) -> tuple[Integers, Coins]:
    """Return one proposal for every deviation, and which of them are accepted.

    Each takes 12 bytes: 63 bits for j and one for the sign, 16 for k and for the coin.
    """
    size, drawn_bytes = sd.size, source(12 * sd.size)
    long = np.frombuffer(drawn_bytes, dtype="<u8", count=size)
    short = np.frombuffer(drawn_bytes, dtype="<u2", offset=8 * size)
    k = _lookup()[short[:size]].astype(np.int64)
    for i in np.flatnonzero(k < 0):
        k[i] = _settle_step(int(short[i]), source)
    m = (sd + (_STEPS - 1)) // _STEPS
    bits = (long >> np.uint64(1)).astype(np.int64)
    j = (bits.view(np.uint64) % m.view(np.uint64)).view(np.int64)
    # The remainder is uniform over whole multiples of m: the last, a part of one, is
    # rejected. It has less than one in a thousand of the numbers.
    kept = bits - j <= np.int64(2**63 - 1) - (m - 1)
    kept &= _accepted(k, j, m, sd, short[size:], source)
    drawn = k * m + j
    negative = (long & np.uint64(1)).astype(np.bool_)
    kept &= ~negative | (drawn > 0)
    return np.where(negative, -drawn, drawn), kept


# ---- k: a table, and as many digits as it takes -------------------------------------


@cache
def _limits(bits: int) -> list[int]:
    """Return floor(2^bits P(k <= i)) for i from 0 on, but for the last, which is 1.

    k is the number of limits at or below a uniform number. One that begins with other
    bits than all of them is on the same side of each, whatever bits follow.

    Proof of the digits: the weights exp(-k²/(2 S²)) are right to 2 in the last of their
    decimals (1 is cut off, and half a unit is rounding: `decimal` rounds correctly),
    and as integers summed without error, so every sum is right to twice their number.
    Quotients of the least and of the largest possible sums bound P, and digits are
    added until their floors are the same.
    """
    slack, divisor = 2 * _ALL_STEPS, Decimal(2 * _STEPS**2)
    decimals = bits // 3
    while True:
        decimals += 20
        context = Context(prec=decimals)
        # Exact: a square below 2^18 over 512 has fewer digits than the context.
        squares = (Decimal(-k * k) for k in range(_ALL_STEPS))
        exponents = (context.divide(square, divisor) for square in squares)
        weights = (int(context.exp(t).scaleb(decimals, context)) for t in exponents)
        *sums, total = accumulate(weights)
        low = [(s - slack << bits) // (total + slack) for s in sums]
        high = [(s + slack << bits) // (total - slack) for s in sums]
        # P is below 1, however close.
        if low == [min(limit, 2**bits - 1) for limit in high]:
            return low


@cache
def _lookup() -> NDArray[np.int16]:
    """Return k for each first 16 bits of a uniform number, -1 where they are a limit's.

    Those are one in 700, `_settle_step` draws more bits for them.
    """
    limits = np.array([limit >> _WORD - _LOOKUP for limit in _limits(_WORD)])
    table = np.searchsorted(limits, np.arange(2**_LOOKUP), side="right")
    table[limits] = -1
    return table.astype(np.int16)


def _settle_step(word: int, source: RandomBytes) -> int:
    """Return k of a uniform number that begins with the 16 bits of `word`."""
    bits, more = _WORD, _WORD - _LOOKUP
    while True:
        word = (word << more) | int.from_bytes(source(more // 8), "little")
        limits = _limits(bits)
        k = bisect_left(limits, word)
        if k == bisect_right(limits, word):
            return k
        bits, more = bits + _WORD, _WORD


# ---- coins --------------------------------------------------------------------------


def _accepted(
    k: Integers,
    j: Integers,
    m: Integers,
    sd: Integers,
    coins: Words,
    source: RandomBytes,
) -> Coins:
    """Return coins of probability exp(-t), t = (x²/sd² - k²/S²) / 2 with x = k m + j.

    With the integer a = x S - k sd >= 0, t is a/sd (a/sd + 2 k) / (2 S²): no term is
    negative, nothing cancels, and float64 has t to a relative 2^-50. So it has exp(-t),
    and 1 - t where that is above 0, to an absolute 2^-48, a few units in the last place
    of the exponential included. As 1 - t <= exp(-t), most coins need no exponential.
    """
    excess = k * (m * _STEPS - sd) + j * _STEPS
    ratio = excess / sd
    t = ratio * (ratio + 2.0 * k) * (0.5 / _STEPS**2)
    # What begins with these 16 bits is below the next number of 16 bits.
    heads = (coins + 1.0) * 2.0**-16 < 1.0 - t - _DOUBT
    close = np.flatnonzero(~heads)
    more = np.frombuffer(source(4 * close.size), dtype="<u4")
    words = (coins[close].astype(np.int64) << 32) | more
    gap = words * 2.0**-_COIN - np.exp(-t[close])
    heads[close] = gap < 0.0
    for at in np.flatnonzero(np.abs(gap) <= _DOUBT):
        i = close[at]
        a, unit = int(excess[i]), int(sd[i])
        exact = Fraction(a * (a + 2 * int(k[i]) * unit), 2 * (_STEPS * unit) ** 2)
        last = int.from_bytes(source((_WORD - _COIN) // 8), "little")
        heads[i] = _settle((int(words[at]) << _WORD - _COIN) | last, exact, source)
    return heads


def _settle(word: int, exponent: Fraction, source: RandomBytes) -> bool:
    """Return whether a uniform number that begins with `word` is below exp(-exponent).

    Bits and digits are added until the two differ for certain.
    """
    bits = _WORD
    while True:
        digits = bits // 3 + 20
        context = Context(prec=digits)
        # The sign of a Decimal would be changed in another context, and round it.
        numerator, denominator = Decimal(-exponent.numerator), exponent.denominator
        limit = context.exp(context.divide(numerator, Decimal(denominator)))
        # Quotient and exponential are right to the last digit but a few.
        slack = Fraction(1, 10 ** (digits - 10))
        low, high = Fraction(word, 2**bits), Fraction(word + 1, 2**bits)
        if high <= Fraction(limit) - slack:
            return True
        if low >= Fraction(limit) + slack:
            return False
        word = (word << _WORD) | int.from_bytes(source(_WORD // 8), "little")
        bits += _WORD
