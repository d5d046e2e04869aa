"""Masks: AES-256-CTR streams added to integers modulo 2^(64 L)."""

from collections.abc import Iterable

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from ...linalg.limbs import Words, add, subtract
from .keys import agree, derive, private_key

_WORD = np.dtype("<u8")


def own_mask(seed: bytes, context: bytes, shape: tuple[int, int]) -> Words:
    """Return the mask that a client alone knows, from its seed."""
    return stream(derive(seed, b"own mask" + context), shape)


def pair_mask(
    private: X25519PrivateKey, public: bytes, context: bytes, shape: tuple[int, int]
) -> Words:
    """Return the mask that two neighbours share, from the keys they agree on."""
    return stream(agree(private, public, b"pair mask" + context), shape)


def stream(key: bytes, shape: tuple[int, int]) -> Words:
    """Return uniform integers, m rows of L words, from a key that is used once.

    Examples
    --------
    >>> stream(bytes(32), (2, 3)).shape
    (2, 3)
    >>> bool((stream(bytes(32), (2, 3)) == stream(bytes(31) + b"1", (2, 3))).any())
    False
    """
    # The key is of this one stream, so that the counter may begin at zero.
    encryptor = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    data = encryptor.update(bytes(_WORD.itemsize * shape[0] * shape[1]))
    return np.frombuffer(data, dtype=_WORD).reshape(shape).astype(np.uint64)


def add_pair_masks(
    words: Words, secret: bytes, own: bytes, others: Iterable[bytes], context: bytes
) -> Words:
    """Return ``words + sum of +-mask``, such that the masks of a pair cancel.

    Of two neighbours, the one whose public key is larger adds the mask, and the other
    one subtracts it. The mask depends on both public keys as they were sent: unlike
    bytes may be the same key to X25519, and the masks with them must not cancel.
    """
    private, shape = private_key(secret), (words.shape[0], words.shape[1])
    for other in others:
        ends = min(own, other) + max(own, other)
        mask = pair_mask(private, other, context + ends, shape)
        words = add(words, mask) if own > other else subtract(words, mask)
    return words
