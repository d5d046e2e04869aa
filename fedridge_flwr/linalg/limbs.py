"""Integers modulo 2^(64 L) as rows of L words of 64 bits, the lowest word first.

An array of shape (m, L) and dtype uint64 holds m integers in two's complement: a row
(w_0, ..., w_{L-1}) stands for ``sum w_k 2^(64 k)``, minus ``2^(64 L)`` if the highest
bit is set. Sums and differences are exact modulo ``2^(64 L)``, so that neither the
order nor the grouping of addends changes a bit.
"""

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from .._types import Array

Words: TypeAlias = NDArray[np.uint64]

WORD_BITS = 64
_BYTES = WORD_BITS // 8
_WORD = np.dtype("<u8")


def add(a: Words, b: Words) -> Words:
    """Return ``a + b`` modulo ``2^(64 L)``.

    Examples
    --------
    >>> to_ints(add(from_ints([-1, 2**64], 2), from_ints([1, 5], 2)))
    [0, 18446744073709551621]
    """
    a, b = np.broadcast_arrays(a, b)
    total = np.empty(a.shape, dtype=np.uint64)
    carry = np.zeros(a.shape[:-1], dtype=np.uint64)
    for k in range(a.shape[-1]):
        part = a[..., k] + b[..., k]
        with_carry = part + carry
        carry = ((part < a[..., k]) | (with_carry < part)).astype(np.uint64)
        total[..., k] = with_carry
    return total


def subtract(a: Words, b: Words) -> Words:
    """Return ``a - b`` modulo ``2^(64 L)``, that is ``-(-a + b)``.

    Examples
    --------
    >>> to_ints(subtract(from_ints([0, 2**64], 2), from_ints([1, 1], 2)))
    [-1, 18446744073709551615]
    """
    return ~add(~np.asarray(a, dtype=np.uint64), b)  # ~a is -a - 1


def negate(a: Words) -> Words:
    """Return ``-a`` modulo ``2^(64 L)``.

    Examples
    --------
    >>> to_ints(negate(from_ints([3, -3], 1)))
    [-3, 3]
    """
    return subtract(np.zeros_like(a), a)


def is_negative(a: Words) -> NDArray[np.bool_]:
    """Return which integers are below zero, by their highest bit.

    Examples
    --------
    >>> is_negative(from_ints([0, -1], 3)).tolist()
    [False, True]
    """
    return np.asarray(a[..., -1] >> np.uint64(WORD_BITS - 1) == 1)


def to_ints(a: Words) -> list[int]:
    """Return m integers of Python from words of shape (m, L).

    Examples
    --------
    >>> to_ints(np.array([[1, 1], [0, 2**63]], dtype=np.uint64))
    [18446744073709551617, -170141183460469231731687303715884105728]
    """
    size = _BYTES * a.shape[-1]
    data = np.ascontiguousarray(a, dtype=_WORD).tobytes()
    return [
        int.from_bytes(data[start : start + size], "little", signed=True)
        for start in range(0, len(data), size)
    ]


def from_ints(numbers: Iterable[int], n_words: int) -> Words:
    """Return integers modulo ``2^(64 L)``, with L = `n_words`, as words.

    Examples
    --------
    >>> from_ints([-1], 2).tolist()
    [[18446744073709551615, 18446744073709551615]]
    """
    size, mask = _BYTES * n_words, (1 << WORD_BITS * n_words) - 1
    data = b"".join((each & mask).to_bytes(size, "little") for each in numbers)
    words = np.frombuffer(data, dtype=_WORD).reshape(-1, n_words)
    return words.astype(np.uint64)


def to_float64(a: Words) -> Array:
    """Return the integers as float64, off by at most one unit in the last place.

    Examples
    --------
    >>> to_float64(from_ints([-3, 2**150], 3)).tolist()
    [-3.0, 1.42724769270596e+45]
    """
    negative = is_negative(a)
    size = np.where(negative[..., None], negate(a), a)
    total = np.zeros(size.shape[:-1])
    for k in reversed(range(size.shape[-1])):
        total = total * 2.0**WORD_BITS + size[..., k].astype(np.float64)
    return np.where(negative, -total, total)


def from_digits(digits: NDArray[np.int64], bits: int, n_words: int) -> Words:
    """Return ``sum_s digits[s] 2^(bits s)`` modulo ``2^(64 L)``, with L = `n_words`.

    Parameters
    ----------
    digits : ndarray of int64, shape (s, m)
        Of any sign, each of at most 62 bits.
    bits : int
        Bits of one digit, 32 at most.
    n_words : int
        Words of every integer.

    Examples
    --------
    >>> to_ints(from_digits(np.array([[-1], [3]]), 22, 2)) == [3 * 2**22 - 1]
    True
    """
    mask, word = (1 << bits) - 1, np.uint64(WORD_BITS)
    words = np.zeros((n_words, digits.shape[1]), dtype=np.uint64)
    carry = np.zeros(digits.shape[1], dtype=np.int64)
    for s in range(-(-WORD_BITS * n_words // bits)):
        if s < len(digits):
            carry = carry + digits[s]
        digit = (carry & mask).astype(np.uint64)
        carry = carry >> bits
        place, shift = divmod(bits * s, WORD_BITS)
        words[place] |= digit << np.uint64(shift)
        if shift + bits > WORD_BITS and place + 1 < n_words:
            words[place + 1] |= digit >> (word - np.uint64(shift))
    return np.ascontiguousarray(words.T)
