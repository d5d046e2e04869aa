"""What a fit can ask its clients for, beside their statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from .._text import human_bytes
from .._types import Array
from ..errors import FedRidgeError
from ..privacy.curator import ReleaseRequest as Request
from .costs import BUDGET, MOST_FEATURES, oneshot_bytes

__all__ = [
    "AskColumns",
    "AskOpening",
    "AskProduct",
    "AskStatistics",
    "Limits",
    "Question",
    "check_mode",
    "choose_mode",
]

MODES = ("oneshot", "refine", "cg", "auto")


@dataclass(frozen=True)
class Limits:
    """Where `auto` changes its mind.

    Parameters
    ----------
    max_bytes : int
        Largest upload of one client in one shot.
    max_features : int
        Most features of which the server can hold a matrix of d x d.
    """

    max_bytes: int = BUDGET
    max_features: int = MOST_FEATURES


@dataclass(frozen=True)
class AskStatistics:
    """Everything at once: the statistics of all rows."""

    wire_dtype: str = "float64"


@dataclass(frozen=True)
class AskColumns:
    """Weight, means and variances of the columns, on which a feature map depends."""


@dataclass(frozen=True)
class AskOpening:
    """The first round of a refinement; in "auto", or the statistics themselves."""

    mode: str
    limits: Limits = Limits()


@dataclass(frozen=True, eq=False)
class AskProduct:
    """X'X V about the client's own mean."""

    vectors: Array


Question: TypeAlias = AskStatistics | AskColumns | AskOpening | AskProduct | Request


def check_mode(mode: object) -> str:
    """Return a mode that is known."""
    if not isinstance(mode, str) or mode not in MODES:
        known = ", ".join(f'"{name}"' for name in MODES)
        raise FedRidgeError(f"mode must be one of {known}, got {mode!r}.")
    return mode


def choose_mode(n_features: int, n_targets: int, limits: Limits) -> tuple[str, str]:
    """Return the mode that "auto" stands for, and why.

    Client and server come to it by themselves, from what both know: the columns. A
    client with few rows would send less than is counted here.

    Examples
    --------
    >>> choose_mode(100, 1, Limits())[0], choose_mode(5000, 1, Limits())[0]
    ('oneshot', 'refine')
    >>> choose_mode(2000, 1, Limits())[1]
    'statistics of up to 16.04 MB are above max_bytes, 8 MB'
    """
    size = oneshot_bytes(n_features, n_targets)
    budget = human_bytes(limits.max_bytes)
    if size <= limits.max_bytes:
        return "oneshot", (
            f"statistics of up to {human_bytes(size)} are within max_bytes, {budget}"
        )
    above = f"statistics of up to {human_bytes(size)} are above max_bytes, {budget}"
    if n_features <= limits.max_features:
        return "refine", above
    return "cg", (
        f"{above}, and {n_features} features are too many for a matrix of d x d on the "
        f"server (at most {limits.max_features})"
    )
