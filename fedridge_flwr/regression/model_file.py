"""Values in a saved model: each is what it should be, or a `ValueError` says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from .._types import Array

__all__ = ["flag", "maybe", "names", "number", "numbers", "promise", "text", "whole"]

_T = TypeVar("_T")
_PROMISED = {
    "epsilon": (int, float),
    "delta": (int, float),
    "true_epsilon": (int, float),
    "unit": (str,),
    "neighboring": (str,),
    "trust": (str,),
    "calibration": (str,),
}


def maybe(read: Callable[[Any, str], _T], value: Any, what: str) -> _T | None:
    """Return None for None, and otherwise what `read` makes of the value.

    Examples
    --------
    >>> maybe(whole, None, "n_rows"), maybe(whole, 3, "n_rows")
    (None, 3)
    """
    return None if value is None else read(value, what)


def number(value: Any, what: str, least: float = -np.inf) -> float:
    """Return a finite number, `least` or more."""
    found = float(numbers(value, what, most=0))
    if found < least:
        raise ValueError(f"{what} is below {least:g}")
    return found


def numbers(value: Any, what: str, most: int = 2) -> Array:
    """Return lists of finite numbers, and of nothing that can be turned into one."""
    _only_numbers(value, what, most)
    try:
        found = np.asarray(value, dtype=np.float64)
    except (ValueError, OverflowError):
        raise ValueError(f"{what} is not a table of numbers") from None
    if not np.isfinite(found).all():
        raise ValueError(f"{what} is not finite")
    return found


def whole(value: Any, what: str) -> int:
    """Return a whole number, zero or more."""
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"{what} is not a whole number, zero or more")
    return value


def flag(value: Any, what: str) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        raise ValueError(f"{what} is neither true nor false")
    return value


def text(value: Any, what: str) -> str:
    """Return text."""
    if not isinstance(value, str):
        raise ValueError(f"{what} is not text")
    return value


def names(value: Any, expected: int) -> list[str] | None:
    """Return as many names as there are columns, or None."""
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValueError("feature_names is not a list of text")
    if len(value) != expected:
        raise ValueError(f"{len(value)} names for {expected} features")
    return value


def promise(value: Any, what: str) -> dict[str, Any]:
    """Return a privacy report that has all that a summary tells of it."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not a report")
    for key, kinds in _PROMISED.items():
        if type(value.get(key)) not in kinds:
            raise ValueError(f"{what} does not say its {key}")
    return value


def _only_numbers(value: Any, what: str, depth: int) -> None:
    if isinstance(value, list) and depth > 0:
        for each in value:
            _only_numbers(each, what, depth - 1)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{what} is not made of numbers")
