"""What the masks of Flower's SecAgg+ give away, and those of this package do not.

SecAgg+ of Flower 1.41 draws its masks from a Mersenne Twister with a seed of 32 bits.
Bit 0 of its numbers obeys one linear recurrence of degree 19,937, whatever the seed,
and so does bit 0 of the sum of any number of masks. A server that knows bit 0 of as
many entries of a client's vector, because they are zero there as the top words of
non-negative numbers are, computes bit 0 of all others, however many neighbours the
client has. The masks of this package are streams of AES-256-CTR, which obey no such
law.

    python tools/attack_flower_masks.py
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

from fedridge_flwr.federation.secure_sum.masks import stream

DEGREE = 19_937
MODULUS = 2**32
NEIGHBOURS = 9

Masks = Callable[[bytes, int], np.ndarray]


class Recurrence(NamedTuple):
    """``sum_i c_i s[n - i] = 0`` over GF(2); bit i of `taps` is c_i."""

    taps: int
    degree: int


def shortest_recurrence(bits: Sequence[int]) -> Recurrence:
    """Return the shortest linear recurrence of a sequence (Berlekamp and Massey).

    Examples
    --------
    >>> shortest_recurrence([0, 1, 1, 0, 1, 1, 0, 1, 1]).degree
    2
    """
    taps = earlier = 1
    degree, since, window = 0, 1, 0
    for n, bit in enumerate(bits):
        window = (window << 1) | bit  # bit i is the number of i steps ago
        if (window & taps).bit_count() & 1:
            taps, before = taps ^ (earlier << since), taps
            if 2 * degree <= n:
                degree, earlier, since = n + 1 - degree, before, 0
        since += 1
    return Recurrence(taps, degree)


def backwards(law: Recurrence, known: Sequence[int], count: int) -> list[int]:
    """Return the `count` bits before known ones, by the recurrence.

    Examples
    --------
    >>> backwards(Recurrence(0b111, 2), [1, 1], 4)
    [0, 1, 1, 0]
    """
    state = sum(bit << i for i, bit in enumerate(known[: law.degree]))
    mask = sum(
        1 << (law.degree - i - 1) for i in range(law.degree) if law.taps >> i & 1
    )
    found, full = [], (1 << law.degree) - 1
    for _ in range(count):
        bit = (state & mask).bit_count() & 1
        found.append(bit)
        state = ((state << 1) | bit) & full
    return found[::-1]


def flower_mask(seed: bytes, length: int) -> np.ndarray:
    """Return a mask as Flower's SecAgg+ draws it."""
    (found,) = pseudo_rand_gen(seed, MODULUS, [(length,)])
    return np.asarray(found)


def our_mask(seed: bytes, length: int) -> np.ndarray:
    """Return a mask as this package draws it, of the same length."""
    return stream(seed, (length, 1))[:, 0].astype(np.int64) % MODULUS


def masked_vector(masks: Masks, hidden: np.ndarray, known: int) -> np.ndarray:
    """Return a client's vector under the masks of all its neighbours.

    The server knows that the last `known` entries are zero without masks.
    """
    length = hidden.size + known
    total = np.concatenate([hidden, np.zeros(known, np.int64)])
    for k in range(NEIGHBOURS):
        total = total + (-1) ** k * masks(os.urandom(32), length)
    return np.asarray(total % MODULUS)


def recovered(masks: Masks, law: Recurrence, hidden: np.ndarray) -> float:
    """Return which part of the hidden low bits a server finds out; chance is a half."""
    seen = masked_vector(masks, hidden, law.degree) & 1
    known = seen[hidden.size :].tolist()
    guess = seen[: hidden.size] ^ np.array(backwards(law, known, hidden.size))
    return float((guess == (hidden & 1)).mean())


def main() -> None:
    """Attack both."""
    began = time.perf_counter()
    low = flower_mask(bytes(32), 2 * DEGREE + 100) & 1
    law = shortest_recurrence(low.tolist())
    spent = time.perf_counter() - began
    print(
        f"Bit 0 of every mask of SecAgg+: degree {law.degree}, in {spent:.1f} s, once."
    )
    hidden = np.random.default_rng(0).integers(0, 2**20, size=40_000)
    for name, masks in (("Flower's SecAgg+", flower_mask), ("this package", our_mask)):
        began = time.perf_counter()
        part = recovered(masks, law, hidden)
        spent = time.perf_counter() - began
        print(
            f"{name}: {100 * part:.1f} % of {hidden.size:,} hidden low bits right, "
            f"under {NEIGHBOURS} masks, in {spent:.1f} s (guessing: 50 %)."
        )


if __name__ == "__main__":
    main()
