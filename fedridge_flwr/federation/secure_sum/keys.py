"""Key pairs, agreed keys and signatures; every primitive is one of `cryptography`."""

import hashlib
import os
from dataclasses import dataclass
from itertools import pairwise

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ...errors import ProtocolError

SECRET = 16
"""Bytes of a secret: as many as a share has; keys are derived from it."""
KEY = 32
SIGNATURE = 64
PAIR = 2 * KEY
SIGNED = PAIR + KEY + SIGNATURE
"""Bytes of a client's public keys, without and with its identity and signature."""

_SIGNS = b"fedridge secure sum, keys 1"


def new_secret() -> bytes:
    """Return a secret from the operating system."""
    return os.urandom(SECRET)


def derive(secret: bytes, purpose: bytes) -> bytes:
    """Return a key for one purpose, by HKDF-SHA256.

    Examples
    --------
    >>> derive(bytes(16), b"one") == derive(bytes(16), b"another")
    False
    """
    return HKDF(hashes.SHA256(), KEY, salt=None, info=purpose).derive(secret)


def private_key(secret: bytes) -> X25519PrivateKey:
    """Return the X25519 key that belongs to a secret."""
    return X25519PrivateKey.from_private_bytes(derive(secret, b"x25519"))


def public_key(secret: bytes) -> bytes:
    """Return its public key."""
    return private_key(secret).public_key().public_bytes_raw()


def agree(private: X25519PrivateKey, public: bytes, purpose: bytes) -> bytes:
    """Return the key that two clients share for one purpose, and nobody else.

    Examples
    --------
    >>> ours, theirs = new_secret(), new_secret()
    >>> one = agree(private_key(ours), public_key(theirs), b"mask")
    >>> one == agree(private_key(theirs), public_key(ours), b"mask")
    True
    """
    try:
        shared = private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:  # a point of low order, with which all secrets agree alike
        raise ProtocolError("a public key is not valid.") from None
    return derive(shared, purpose)


@dataclass(frozen=True)
class PublicKeys:
    """What a client advertises: two public keys, and who says so."""

    mask: bytes
    box: bytes
    identity: bytes = b""
    signature: bytes = b""

    @classmethod
    def unpack(cls, data: bytes) -> "PublicKeys":
        """Return the keys in 64 bytes, or 160 with a signature."""
        if len(data) not in (PAIR, SIGNED):
            raise ProtocolError(f"public keys have {PAIR} or {SIGNED} bytes.")
        ends = (0, KEY, PAIR, PAIR + KEY, SIGNED)
        parts = [data[a:b] for a, b in pairwise(ends)]
        return cls(*parts)

    @property
    def fingerprint(self) -> bytes:
        """What stands for these keys where they are not shown."""
        return hashlib.sha256(b"keys" + self.mask + self.box).digest()

    def meets(self, other: "PublicKeys") -> bool:
        """Whether the two have a key in common."""
        return not {self.mask, self.box}.isdisjoint({other.mask, other.box})

    def check(self) -> None:
        """Refuse keys with which nobody can agree on a secret."""
        any_key = X25519PrivateKey.generate()
        for public in (self.mask, self.box):
            agree(any_key, public, b"check")

    def pack(self) -> bytes:
        """Return the keys as bytes."""
        return self.mask + self.box + self.identity + self.signature

    def signed(self, identity: Ed25519PrivateKey, session: bytes) -> "PublicKeys":
        """Return the same keys, signed for this session."""
        who = identity.public_key().public_bytes_raw()
        signature = identity.sign(_SIGNS + session + self.mask + self.box)
        return PublicKeys(self.mask, self.box, who, signature)

    def is_signed_for(self, session: bytes) -> bool:
        """Whether the signature is that of the identity, for this session."""
        try:
            Ed25519PublicKey.from_public_bytes(self.identity).verify(
                self.signature, _SIGNS + session + self.mask + self.box
            )
        except (InvalidSignature, ValueError):
            return False
        return True
