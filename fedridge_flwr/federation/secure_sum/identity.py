"""Who a client is to the others: an Ed25519 key, and the roster of those it trusts."""

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import (
    load_pem_private_key,
    load_pem_public_key,
)

from ...errors import PolicyError
from .keys import KEY

Identity: TypeAlias = bytes | str | os.PathLike[str]
Roster: TypeAlias = Collection[bytes] | str | os.PathLike[str]

_PUBLIC = re.compile(b"-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----", re.S)
_MADE_BY = "openssl genpkey -algorithm ed25519"


def read_identity(given: Identity) -> Ed25519PrivateKey:
    """Return a private key from its 32 bytes, or from a PEM file.

    Examples
    --------
    >>> type(read_identity(bytes(32))).__name__
    'Ed25519PrivateKey'
    """
    if isinstance(given, bytes):
        if len(given) != KEY:
            raise PolicyError(f"identity must be {KEY} bytes, got {len(given)}.")
        return Ed25519PrivateKey.from_private_bytes(given)
    data = _read(given)
    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise PolicyError(
            f"identity {os.fspath(given)} must be a PEM file of an Ed25519 private key "
            f"without a password, as {_MADE_BY} writes it."
        )
    return key


def read_roster(given: Roster) -> frozenset[bytes]:
    """Return the public keys of a roster, from 32 bytes each or from a PEM file.

    The file has one public key after another, as ``openssl pkey -pubout`` writes them.
    """
    if isinstance(given, str | os.PathLike):
        members = [_read_public(each, given) for each in _PUBLIC.findall(_read(given))]
    else:
        members = list(given)
    if not members or any(type(m) is not bytes or len(m) != KEY for m in members):
        raise PolicyError(f"roster must have Ed25519 public keys of {KEY} bytes each.")
    return frozenset(members)


def _read_public(pem: bytes, file: str | os.PathLike[str]) -> bytes:
    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise PolicyError(f"roster {os.fspath(file)} has a key that is no Ed25519 key.")
    return key.public_bytes_raw()


def _read(file: str | os.PathLike[str]) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise PolicyError(f"{os.fspath(file)} cannot be read: {reason}.") from None
