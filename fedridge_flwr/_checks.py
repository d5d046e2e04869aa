"""Checks of single values: sizes, fractions, flags, arrays; one error text for each."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import FedRidgeError, StatisticsError

__all__ = [
    "LARGEST_SIZE",
    "check_flag",
    "check_numbers",
    "check_positive",
    "check_seed",
    "check_size",
]

LARGEST_SIZE = 1_000_000
_LARGEST_SEED = 2**63 - 1


def check_size(value: Any, what: str, largest: int = LARGEST_SIZE) -> int:
    """Return a size as an int; it must be a whole number from 1 on.

    Examples
    --------
    >>> check_size(200, "n_components")
    200
    """
    return _whole(value, what, 1, largest)


def check_seed(value: Any) -> int:
    """Return a seed as an int; it must be a whole number from 0 on.

    Examples
    --------
    >>> check_seed(3)
    3
    """
    return _whole(value, "seed", 0, _LARGEST_SEED)


def check_positive(value: Any, what: str, also: str = "") -> float:
    """Return a finite number above zero as a float.

    Examples
    --------
    >>> check_positive(2, "gamma")
    2.0
    """
    kind = int | float | np.integer | np.floating
    number = math.nan
    if isinstance(value, kind) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
    if not (math.isfinite(number) and number > 0):
        raise FedRidgeError(
            f"{what} must be a finite number above zero{also}, got {_shown(value)}."
        )
    return number


def check_flag(value: Any, what: str) -> bool:
    """Return a bool, and nothing that merely looks like one.

    Examples
    --------
    >>> check_flag(True, "bias")
    True
    """
    if not isinstance(value, bool | np.bool_):
        raise FedRidgeError(f"{what} must be true or false, got {_shown(value)}.")
    return bool(value)


def check_numbers(array: Any, dtype: type, size: int, what: str) -> NDArray[Any]:
    """Return an array of so many finite numbers of this type, or say what it is not."""
    found = np.asarray(array)
    if found.dtype != dtype:
        expected = np.dtype(dtype).name
        raise StatisticsError(f"{what} are {expected}, got {found.dtype}.")
    if found.shape != (size,):
        raise StatisticsError(
            f"{what} have {size} numbers, got an array of shape {found.shape}."
        )
    bad = int(np.count_nonzero(~np.isfinite(found)))
    if bad:
        raise StatisticsError(f"{bad} of {size} {what} are NaN or infinite.")
    return found


def _whole(value: Any, what: str, smallest: int, largest: int) -> int:
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or not smallest <= number <= largest:
        raise FedRidgeError(
            f"{what} must be a whole number from {smallest} to {largest}, "
            f"got {_shown(value)}."
        )
    return number


def _shown(value: Any) -> str:
    # Whoever sent it may have sent a megabyte, or an integer too long to print.
    if isinstance(value, int) and value.bit_length() > 100:
        return "a far larger one"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def check_whole(name: str, value: Any, smallest: int = 1) -> int:
    """Return a whole number."""
    if not isinstance(value, int) or isinstance(value, bool) or value < smallest:
        raise FedRidgeError(
            f"{name} must be a whole number of at least {smallest}, got {value!r}."
        )
    return value


def check_fraction(name: str, value: Any) -> float:
    """Return a number between 0 and 1."""
    if not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
        raise FedRidgeError(f"{name} must be between 0 and 1, got {value!r}.")
    return float(value)


def check_choice(name: str, value: Any, allowed: Any) -> str:
    """Return one of the names that are allowed."""
    if not isinstance(value, str) or value not in allowed:
        *others, last = (f'"{each}"' for each in allowed)
        known = f"{', '.join(others)} or {last}" if others else last
        raise FedRidgeError(f"{name} must be {known}, got {value!r}.")
    return value
