"""Who is whose neighbour: everybody, or the nearest on a ring in random order."""

import hashlib
from collections.abc import Collection
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import gammaln

from ..._types import Array

ALL_UP_TO = 40
"""Up to so many clients, everybody is everybody's neighbour."""

CORRUPT, LOST = 0.2, 0.1
"""Fractions of the clients that may side with the server, and that may be lost."""

_UNSAFE, _FAILED = 2.0**-40, 2.0**-20
_MOST = 401


def in_order(fingerprints: Collection[bytes]) -> tuple[bytes, list[bytes]]:
    """Return what commits to the keys of all clients, and their order on the ring.

    The order depends on all keys together: nobody can choose a place by choosing a key.

    Examples
    --------
    >>> commitment, ring = in_order([b"one", b"two", b"three"])
    >>> (commitment, ring) == in_order([b"three", b"one", b"two"])
    True
    """
    commitment = hashlib.sha256(b"".join(sorted(fingerprints))).digest()
    return commitment, sorted(
        fingerprints, key=lambda each: hashlib.sha256(commitment + each).digest()
    )


def window(place: int, clients: int, neighbours: int) -> list[int]:
    """Return the places of the neighbours of a client, its own among them.

    Examples
    --------
    >>> window(1, 3, 3), window(1, 7, 5)
    ([0, 1, 2], [6, 0, 1, 2, 3])
    """
    if neighbours >= clients:
        return list(range(clients))
    half = neighbours // 2
    return [(place + k) % clients for k in range(-half, half + 1)]


@lru_cache(maxsize=32)
def usual_sizes(clients: int) -> tuple[int, int]:
    """Return how many neighbours and which threshold so many clients need.

    All are neighbours up to `ALL_UP_TO`, with a threshold of two thirds. Beyond that
    the fewest for which, by union bounds over all clients (Bell et al. 2020), a fifth
    of corrupt clients learn nothing of anybody else but with probability 2^-40, and a
    tenth of lost ones prevent the sum with 2^-20.

    Examples
    --------
    >>> usual_sizes(20), usual_sizes(100), usual_sizes(1000)
    ((20, 14), (41, 31), (135, 100))
    """
    if clients > ALL_UP_TO:
        for neighbours in range(ALL_UP_TO + 1, min(clients, _MOST), 2):
            threshold = _safe_threshold(clients, neighbours)
            if threshold:
                return neighbours, threshold
    return clients, least_threshold(clients, clients)


def least_threshold(neighbours: int, clients: int, colluding: int = 0) -> int:
    """Return the smallest threshold by which all clients agree on one list.

    Any two sets of so many confirmations have a client in common that is honest: more
    than two thirds, and more than half beside those that side with the server. On a
    ring they are of clients next to each other, whose neighbours differ by few.

    Examples
    --------
    >>> least_threshold(4, 4), least_threshold(20, 20), least_threshold(20, 20, 9)
    (3, 14, 15)
    """
    ring = neighbours < clients
    return max((2 * neighbours + ring) // 3, (neighbours + colluding) // 2) + 1


def _safe_threshold(clients: int, neighbours: int) -> int:
    """Return the smallest threshold that is good enough, or 0."""
    corrupt, lost = (int(np.ceil(share * clients)) for share in (CORRUPT, LOST))
    others, drawn = clients - 1, neighbours - 1
    bad, gone = (_tails(others, n, drawn) for n in (corrupt, lost))
    alone = _tails(others, corrupt + lost, drawn)[-1]
    if clients * alone >= _UNSAFE:
        return 0
    for threshold in range(least_threshold(neighbours, clients), neighbours + 1):
        # So many corrupt neighbours add their shares of the other kind.
        both = bad[min(2 * threshold - neighbours, drawn)]
        missing = neighbours - threshold + 1
        fails = gone[missing] if missing <= drawn else 0.0
        if clients * both < _UNSAFE and clients * fails < _FAILED:
            return threshold
    return 0


def _tails(population: int, marked: int, drawn: int) -> Array:
    """Return the probabilities of at least 0, 1, ... marked ones among those drawn."""
    number = np.arange(drawn + 1.0)
    possible = (number <= marked) & (drawn - number <= population - marked)
    k = number[possible]
    chances = np.zeros(drawn + 1)
    chances[possible] = np.exp(
        _log_choose(marked, k)
        + _log_choose(population - marked, drawn - k)
        - _log_choose(population, drawn)
    )
    return np.asarray(chances[::-1].cumsum()[::-1])


def _log_choose(n: int, k: Any) -> Any:
    return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
