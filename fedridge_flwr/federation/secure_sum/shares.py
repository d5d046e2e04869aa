"""Shares of secrets (Shamir 1979), the same as those of pycryptodome, only faster.

A secret is the value at 0 of a random polynomial over GF(2^128), and share i its value
at i: ``s_i = sum_j a_j i^j``, and back ``s = sum_i c_i s_i`` with Lagrange's
``c_i = prod_{m != i} m / (m + i)``. Powers and coefficients depend on who answers and
not on the secret; they are computed once, where pycryptodome computes them for every
secret anew. The tests split with one and combine with the other.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache

from ...errors import ProtocolError
from .keys import SECRET

TAG = 16

_BITS = 8 * SECRET
_LOW = (1 << _BITS) - 1
# One bit in each byte: products of such numbers count how often each power occurs.
_ONES = int.from_bytes(b"\x01" * (2 * _BITS), "big")
_DIGITS = int.from_bytes(b"0" * (2 * _BITS), "big")


def split(secret: bytes, threshold: int, number: int) -> list[bytes]:
    """Return shares of which any `threshold` are the secret, and fewer nothing.

    Examples
    --------
    >>> shares = split(b"sixteen letters.", 2, 3)
    >>> combine({1: shares[0], 3: shares[2]}, 2)
    b'sixteen letters.'
    """
    random = (os.urandom(SECRET) for _ in range(threshold - 1))
    polynomial = [_spread(int.from_bytes(each, "big")) for each in (secret, *random)]
    return [_sum(polynomial, powers) for powers in _powers(number, threshold)]


def combine(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """Return the secret from shares by their index, which begins at 1."""
    if len(shares) < threshold:
        raise ProtocolError(f"{len(shares)} shares, {threshold} needed.")
    indices = tuple(sorted(shares)[:threshold])
    values = [_spread(int.from_bytes(shares[index], "big")) for index in indices]
    return _sum(values, _coefficients(indices))


def tag(share: bytes, context: bytes) -> bytes:
    """Return what tells a share from another one without revealing it."""
    return hashlib.sha256(b"share" + context + share).digest()[:TAG]


def _sum(ours: Sequence[int], theirs: Sequence[int]) -> bytes:
    """Return the sum of products of numbers that are spread out."""
    total = 0
    for one, other in zip(ours, theirs, strict=True):
        total ^= one * other  # no byte of a product exceeds 128: nothing is carried
    return _reduced(_gathered(total & _ONES)).to_bytes(SECRET, "big")


@lru_cache(maxsize=16)
def _powers(number: int, threshold: int) -> list[list[int]]:
    """Return ``i^0, i^1, ...`` for the indices from 1 on, spread out."""
    found = []
    for index in range(1, number + 1):
        power, row = 1, []
        for _ in range(threshold):
            row.append(_spread(power))
            power = _times(power, index)
        found.append(row)
    return found


@lru_cache(maxsize=256)
def _coefficients(indices: tuple[int, ...]) -> tuple[int, ...]:
    """Return Lagrange's coefficients at 0, spread out to be multiplied."""
    found = []
    for j in indices:
        above, below = 1, 1
        for m in indices:
            if m != j:
                above, below = _times(above, m), _times(below, m ^ j)
        found.append(_spread(_times(above, _inverse(below))))
    return tuple(found)


def _inverse(a: int) -> int:
    """Return ``a^(2^128 - 2)``, which is 1/a."""
    found = 1
    for _ in range(_BITS - 1):
        a = _times(a, a)
        found = _times(found, a)
    return found


def _times(a: int, b: int) -> int:
    """Return the product in GF(2^128)."""
    return _reduced(_gathered((_spread(a) * _spread(b)) & _ONES))


def _spread(a: int) -> int:
    """Return the bits of a number, one in each byte."""
    return int.from_bytes(f"{a:b}".encode(), "big") & _ONES


def _gathered(spread: int) -> int:
    """Return the number whose bits are one in each byte."""
    return int((spread | _DIGITS).to_bytes(2 * _BITS, "big"), 2)


def _reduced(a: int) -> int:
    """Return a polynomial modulo ``x^128 + x^7 + x^2 + x + 1``."""
    while a > _LOW:
        high = a >> _BITS
        a = (a & _LOW) ^ high ^ (high << 1) ^ (high << 2) ^ (high << 7)
    return a
