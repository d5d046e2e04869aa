"""Bytes by formula, to be held against the bytes of real messages."""

from __future__ import annotations

from fedridge_flwr.statistics import packed_length

__all__ = ["break_even_rounds", "fedavg_upload", "one_shot_upload", "paper_upload"]

_FLOAT = 8


def paper_upload(features: int) -> int:
    """Return the paper's upload of one client: d(d+1)/2 + d numbers.

    Examples
    --------
    >>> [paper_upload(d) for d in (50, 100, 200, 400, 1000)]
    [10600, 41200, 162400, 644800, 4012000]
    """
    return _FLOAT * (features * (features + 1) // 2 + features)


def one_shot_upload(features: int) -> int:
    """Return what FedRidge packs for one client and one target.

    Means, total weight and y'y travel too, so that an intercept, standard errors and
    R² need no second round.

    Examples
    --------
    >>> one_shot_upload(100) / paper_upload(100)
    1.02
    """
    return _FLOAT * packed_length(features, 1)


def fedavg_upload(features: int, rounds: int) -> int:
    """Return FedAvg's upload of one client."""
    return _FLOAT * features * rounds


def break_even_rounds(features: int) -> int:
    """Return the smallest whole R with R > (d + 5) / 4: One-Shot is then cheaper.

    Examples
    --------
    >>> [break_even_rounds(d) for d in (50, 100, 200, 400, 1000)]
    [14, 27, 52, 102, 252]
    """
    return (features + 5) // 4 + 1
