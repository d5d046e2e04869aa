"""Who is whose neighbour: everybody, or the nearest on a shuffled ring."""

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from scipy.special import gammaln

from ..._types import Array

ALL_UP_TO = 40
"""Up to so many clients, everybody is everybody's neighbour."""

CORRUPT, LOST = 0.2, 0.1
"""Fractions of the clients that may side with the server, and that may be lost."""

_UNSAFE, _FAILED = 2.0**-40, 2.0**-20
_MOST = 401

_Client = TypeVar("_Client")


def neighbourhoods(
    clients: Sequence[_Client], neighbours: int
) -> dict[_Client, list[_Client]]:
    """Return the neighbours of every client, itself among them.

    Examples
    --------
    >>> neighbourhoods(["a", "b", "c"], 3)["b"]
    ['a', 'b', 'c']
    >>> {len(near) for near in neighbourhoods(range(100), 41).values()}
    {41}
    """
    if neighbours >= len(clients):
        return {client: list(clients) for client in clients}
    ring, half = list(clients), neighbours // 2
    random.SystemRandom().shuffle(ring)
    size = len(ring)
    return {
        client: [ring[(place + k) % size] for k in range(-half, half + 1)]
        for place, client in enumerate(ring)
    }


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
    return clients, two_thirds(clients)


def two_thirds(neighbours: int) -> int:
    """Return the smallest threshold above two thirds of the neighbours."""
    return 2 * neighbours // 3 + 1


def smallest_sum(clients: int, threshold: int, least: int) -> int:
    """Return how few clients a server can single out that tells each another story.

    Every client hears that `least` or `threshold` others are there, whichever is more,
    and reveals one secret of each. A sum of s clients is learned if the mask keys of r
    others, who are said to be there, can be collected from holders to whom those are
    reported as lost; no holder reports more than it may.

    Examples
    --------
    >>> smallest_sum(20, 11, 3), smallest_sum(20, 14, 3), smallest_sum(20, 20, 3)
    (1, 11, 20)
    """
    heard = max(threshold, least)
    for s in range(1, clients):
        for r in range(max(heard - s, 0), clients - s + 1):
            rest = clients - s - r
            by_summed, by_rest = min(s + r - heard, r), min(clients - heard, r)
            by_lost = min(clients - heard, max(r - 1, 0))
            holders = rest + r - 1 + (s if by_summed > 0 else 0)
            enough = rest * by_rest + r * by_lost + s * by_summed
            if r == 0 or (holders >= threshold and r * threshold <= enough):
                return s
    return clients


def _safe_threshold(clients: int, neighbours: int) -> int:
    """Return the smallest threshold that is good enough, or 0."""
    corrupt, lost = (int(np.ceil(share * clients)) for share in (CORRUPT, LOST))
    others, drawn = clients - 1, neighbours - 1
    bad, gone = (_tails(others, n, drawn) for n in (corrupt, lost))
    alone = _tails(others, corrupt + lost, drawn)[-1]
    if clients * alone >= _UNSAFE:
        return 0
    for threshold in range(neighbours // 2 + 1, neighbours + 1):
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
