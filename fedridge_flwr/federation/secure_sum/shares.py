r"""Shares of secrets: split by pycryptodome, put together by Lagrange's coefficients.

A secret is the value at 0 of a polynomial over GF(2^128), ``s = sum_j c_j s_j`` with
``c_j = prod_{m != j} x_m / (x_m + x_j)``. The coefficients depend on who answers, and
not on the secret: they are computed once for a set of indices, where ``Shamir.combine``
computes them for every secret anew.
"""

import hashlib
from collections.abc import Mapping
from functools import lru_cache

from Crypto.Protocol.SecretSharing import Shamir

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
    return [share for _, share in Shamir.split(threshold, number, secret, ssss=False)]


def combine(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """Return the secret from shares by their index, which begins at 1."""
    if len(shares) < threshold:
        raise ProtocolError(f"{len(shares)} shares, {threshold} needed.")
    indices = tuple(sorted(shares)[:threshold])
    total = 0
    for index, coefficient in zip(indices, _coefficients(indices), strict=True):
        share = _spread(int.from_bytes(shares[index], "big"))
        total ^= (coefficient * share) & _ONES
    return _reduced(_gathered(total)).to_bytes(SECRET, "big")


def tag(share: bytes, context: bytes) -> bytes:
    """Return what tells a share from another one without revealing it."""
    return hashlib.sha256(b"share" + context + share).digest()[:TAG]


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
