"""What a secure sum is agreed on: the server's settings, a client's policy, terms."""

from __future__ import annotations

import hashlib
import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..._checks import check_whole
from ..._text import counted
from ...errors import FedRidgeError, PolicyError, ProtocolError
from .graph import least_threshold, usual_sizes

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from .identity import Identity, Roster

STATE = "fedridge-secure-sum"
"""Where a client's state of a secure sum is kept."""

SESSION, FINGERPRINT = 16, 32
"""Bytes of the name of a session, and of what stands for a client's public keys."""

_PACKED = struct.Struct("<16s5I32s32s")
_VERSION = b"fedridge secure sum 2"


@dataclass(frozen=True)
class SecureSum:
    """Let the server learn the exact sum of all statistics, but no single client's.

    Clients hide their statistics under masks that cancel in the sum: the published
    protocol of Bonawitz et al. (2017) on the graph of Bell et al. (2020), in five
    exchanges. The total is that of `FixedPointStatistics` in a plain run, bit for bit.

    It is experimental: nobody outside the project has reviewed it. Clients confirm to
    each other who is in the sum, which protects from a server that lies about it. A
    roster at the clients (`SecurePolicy`) also protects from a server that replaces
    their keys by its own.

    Parameters
    ----------
    min_clients : int
        Number of clients that must be in the sum; with fewer, nothing is released.
        Clients can require their own minimum.
    threshold : int, optional
        Number of each client's neighbours that must stay until the end: more than two
        thirds of them, which is the default.
    neighbours : int, optional
        Number of clients with which each client shares its masks, itself included; an
        odd number. By default all clients if there are up to 40. With more clients, the
        smallest number that is safe if a fifth of the clients are corrupt (41 of 100,
        135 of 1000), on a random ring.

    Raises
    ------
    FedRidgeError
        If the numbers cannot be combined.

    Examples
    --------
    >>> from fedridge_flwr import FedRidge, SecureSum
    >>> strategy = FedRidge(alpha=1.0, secure=SecureSum(min_clients=5))
    >>> SecureSum(neighbours=9, threshold=6)
    Traceback (most recent call last):
    fedridge_flwr.errors.FedRidgeError: threshold must be a whole number from 7 to 9, \
got 6.
    """

    min_clients: int = 3
    threshold: int | None = None
    neighbours: int | None = None

    def __post_init__(self) -> None:
        """Refuse what no client would agree to."""
        check_whole("min_clients", self.min_clients, 2)
        if self.neighbours is not None:
            check_whole("neighbours", self.neighbours, 3)
            if self.neighbours % 2 == 0:
                raise FedRidgeError(
                    "neighbours must be odd, the client and as many on either side, "
                    f"got {self.neighbours}."
                )
        if self.threshold is not None:
            most = self.neighbours
            least = 2 if most is None else least_threshold(most, most)
            check_whole("threshold", self.threshold, least, most or 10**6)

    def sizes(self, clients: int, colluding: int | None = None) -> tuple[int, int]:
        """Return neighbours and threshold for so many clients.

        With `colluding` given, noise is divided among the clients: all of them are then
        neighbours, and the threshold is high enough for so many that side with the
        server.

        Examples
        --------
        >>> from fedridge_flwr import SecureSum
        >>> SecureSum().sizes(5), SecureSum(threshold=5).sizes(5)
        ((5, 4), (5, 5))
        """
        neighbours, threshold = usual_sizes(clients)
        if colluding is not None:
            neighbours = clients
        elif self.neighbours is not None:
            neighbours = min(self.neighbours, clients)
        least = least_threshold(neighbours, clients, colluding or 0)
        if colluding is not None or self.neighbours is not None:
            threshold = least
        if self.threshold is not None:
            threshold = self.threshold
        if not least <= threshold <= neighbours:
            raise FedRidgeError(
                f"threshold={threshold} does not go with "
                f"{counted(neighbours, 'neighbour')}: it must be from {least}, which "
                "is more than two thirds of them, to all."
            )
        return neighbours, threshold


@dataclass(frozen=True)
class SecurePolicy:
    """Conditions of a client before its statistics enter a secure sum.

    With a policy, a client answers secure sums and nothing else, one for each run, or
    one for each round of a private fit. It is for tests and simulations: in a
    deployment the site writes the same rules into a file of its own (`SitePolicy`),
    since code that the server ships cannot protect the site.

    Parameters
    ----------
    min_clients : int
        Number of clients that must be in the sum, as counted by this client.
    identity : bytes or path, optional
        Its Ed25519 private key, 32 bytes or a PEM file, to sign its public keys with.
    roster : collection of bytes or path, optional
        Public keys of all clients that it trusts, 32 bytes each or a PEM file. It then
        takes part only if every neighbour has signed its keys and is on the roster.

    Raises
    ------
    PolicyError
        If the number is below 2, a key is not valid, or there is a roster without an
        identity.

    Examples
    --------
    >>> from fedridge_flwr import SecurePolicy, ridge_client_app
    >>> def load_data(context):
    ...     return [[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0]
    >>> app = ridge_client_app(load_data, secure_policy=SecurePolicy(min_clients=5))
    """

    min_clients: int = 3
    identity: Identity | None = None
    roster: Roster | None = None

    def __post_init__(self) -> None:
        """Refuse a policy that could not be kept."""
        check_whole("min_clients", self.min_clients, 2, error=PolicyError)
        if self.roster is not None and self.identity is None:
            raise PolicyError(
                "a roster needs an identity: the others want this client's signature."
            )
        # Files are read when they are needed, keys are checked now.
        if not _is_file(self.identity) and not _is_file(self.roster):
            self.read_keys()

    def read_keys(self) -> tuple[Ed25519PrivateKey | None, frozenset[bytes]]:
        """Return the private key and the roster, as far as there are any."""
        if self.identity is None:
            return None, frozenset()
        # Only those who sign need more than the settings.
        from .identity import read_identity, read_roster

        roster = frozenset() if self.roster is None else read_roster(self.roster)
        return read_identity(self.identity), roster


def _is_file(given: object) -> bool:
    return isinstance(given, str | os.PathLike)


@dataclass(frozen=True)
class Terms:
    """What all clients of a session must have been told alike.

    Keys are derived from these terms: masks of clients that were told anything else do
    not cancel, and the sum is noise.

    Parameters
    ----------
    session : bytes
        Its name.
    clients, neighbours, threshold : int
        Clients that take part, neighbours of each, and how many of them must stay.
    rows, words : int
        Shape of the array that each client adds.
    subject : bytes
        Hash of what is summed: columns, their order, map and grid.
    members : bytes
        Hash of the public keys of all clients, see `in_order`.

    Examples
    --------
    >>> terms = Terms(bytes(16), 5, 5, 4, 10, 3, subject=bytes(32), members=bytes(32))
    >>> Terms.unpack(terms.pack()) == terms
    True
    """

    session: bytes
    clients: int
    neighbours: int
    threshold: int
    rows: int
    words: int
    subject: bytes
    members: bytes

    def pack(self) -> bytes:
        """Return the terms as bytes."""
        return _PACKED.pack(
            self.session,
            self.clients,
            self.neighbours,
            self.threshold,
            self.rows,
            self.words,
            self.subject,
            self.members,
        )

    @classmethod
    def unpack(cls, data: bytes) -> Terms:
        """Return the terms in so many bytes."""
        if not isinstance(data, bytes) or len(data) != _PACKED.size:
            raise ProtocolError(f"terms of a secure sum have {_PACKED.size} bytes.")
        return cls(*_PACKED.unpack(data))

    @property
    def context(self) -> bytes:
        """What every key of this session is derived with."""
        return hashlib.sha256(_VERSION + self.pack()).digest()

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the array that each client adds."""
        return self.rows, self.words

    def check(self, min_clients: int, colluding: int = 0) -> None:
        """Refuse terms under which clients could be told different lists.

        Clients that side with the server confirm any list, and reveal their shares of
        both secrets.
        """
        if self.clients < min_clients or self.neighbours < min_clients:
            raise ProtocolError(
                f"a sum over {self.clients} clients, {self.neighbours} of them "
                f"neighbours, is asked for; this client takes part from {min_clients} "
                "on."
            )
        ring = self.neighbours < self.clients
        if not self.threshold <= self.neighbours <= self.clients or (
            ring and self.neighbours % 2 == 0
        ):
            raise ProtocolError("the terms of the secure sum contradict each other.")
        least = least_threshold(self.neighbours, self.clients, colluding)
        if self.threshold < least:
            also = f", {colluding} of which may collude" if colluding else ""
            raise ProtocolError(
                f"the threshold of {self.threshold} is too low: with {self.neighbours} "
                f"neighbours{also}, it must be at least {least}."
            )
