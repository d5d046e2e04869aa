"""Bytes and errors by formula, to be held against what was measured."""

from __future__ import annotations

from fedridge_flwr.app.synthetic import NOISE_SD
from fedridge_flwr.linalg.packed import packed_length

__all__ = [
    "break_even_rounds",
    "fedavg_upload",
    "least_squares_error",
    "one_shot_upload",
    "paper_upload",
]

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


def least_squares_error(features: int, rows: int) -> float:
    """Return the test error to expect of least squares: σ²(1 + d/(n - d - 1)).

    Examples
    --------
    >>> round(least_squares_error(100, 8000), 5)
    0.01013
    """
    return NOISE_SD**2 * (1 + features / (rows - features - 1))


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
