"""Validation of single values: one function, and one error text, for each kind.

Each returns the value in the type it should have, or raises "X must be ..., got ...".
`error` is the class to raise, for callers whose errors have a class of their own.
"""

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import FedRidgeError, StatisticsError

LARGEST_SIZE = 1_000_000
_LARGEST_SEED = 2**63 - 1
_LONGEST = 60


def check_whole(
    name: str,
    value: Any,
    smallest: int = 1,
    largest: float = math.inf,
    error: type[FedRidgeError] = FedRidgeError,
) -> int:
    """Return a whole number from `smallest` to `largest` as an int.

    Examples
    --------
    >>> check_whole("max_rounds", 0)
    Traceback (most recent call last):
    fedridge_flwr.errors.FedRidgeError: max_rounds must be a whole number of at least \
1, got 0.
    """
    try:
        number = None if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        number = None
    if number is None or not smallest <= number <= largest:
        limits = f"from {smallest} to {largest}"
        if largest == math.inf:
            limits = f"of at least {smallest}"
        raise must_be(name, f"a whole number {limits}", value, error)
    return number


def check_size(name: str, value: Any, largest: int = LARGEST_SIZE) -> int:
    """Return a size as an int: a whole number from 1 on, of bounded memory.

    Examples
    --------
    >>> check_size("n_components", 200)
    200
    """
    return check_whole(name, value, 1, largest)


def check_seed(value: Any) -> int:
    """Return a seed as an int: a whole number from 0 on.

    Examples
    --------
    >>> check_seed(3)
    3
    """
    return check_whole("seed", value, 0, _LARGEST_SEED)


def check_alpha(value: Any) -> float:
    """Return a penalty as a float: a finite number, zero or more.

    Examples
    --------
    >>> check_alpha(2)
    2.0
    """
    number = as_number(value)
    if not (math.isfinite(number) and number >= 0):
        raise must_be("alpha", "a finite number, zero or more", value)
    return number


def check_positive(
    name: str, value: Any, also: str = "", error: type[FedRidgeError] = FedRidgeError
) -> float:
    """Return a finite number above zero as a float; `also` says what else is allowed.

    Examples
    --------
    >>> check_positive("gamma", 2)
    2.0
    """
    number = as_number(value)
    if not (math.isfinite(number) and number > 0):
        raise must_be(name, f"a finite number above zero{also}", value, error)
    return number


def check_fraction(name: str, value: Any) -> float:
    """Return a number between 0 and 1 as a float; both are allowed.

    Examples
    --------
    >>> check_fraction("fraction_train", 1)
    1.0
    """
    number = as_number(value)
    if not 0.0 <= number <= 1.0:
        raise must_be(name, "between 0 and 1", value)
    return number


def check_flag(
    name: str, value: Any, error: type[FedRidgeError] = FedRidgeError
) -> bool:
    """Return a bool, and nothing that merely looks like one.

    Examples
    --------
    >>> check_flag("bias", True)
    True
    """
    if not isinstance(value, bool | np.bool_):
        raise must_be(name, "true or false", value, error)
    return bool(value)


def check_choice(
    name: str,
    value: Any,
    allowed: Sequence[str],
    error: type[FedRidgeError] = FedRidgeError,
) -> str:
    """Return one of the allowed texts.

    Examples
    --------
    >>> check_choice("solver", "lu", ["cholesky", "cg"])
    Traceback (most recent call last):
    fedridge_flwr.errors.FedRidgeError: solver must be "cholesky" or "cg", got 'lu'.
    """
    if not isinstance(value, str) or value not in allowed:
        *others, last = (f'"{each}"' for each in allowed)
        known = f"{', '.join(others)} or {last}" if others else last
        raise must_be(name, known, value, error)
    return value


def check_numbers(array: Any, dtype: type, size: int, what: str) -> NDArray[Any]:
    """Return an array of `size` finite numbers of this type."""
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


def as_number(value: Any) -> float:
    """Return a real number as a float, NaN for everything else, bools among them."""
    if isinstance(value, bool) or not isinstance(
        value, int | float | np.integer | np.floating
    ):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def must_be(
    name: str, expected: str, value: Any, error: type[FedRidgeError] = FedRidgeError
) -> FedRidgeError:
    """Return the error "name must be expected, got value.", the value cut short."""
    # Python refuses to print integers of more than 4300 digits.
    if isinstance(value, int) and value.bit_length() > 100:
        shown = f"an integer of {value.bit_length()} bits"
    else:
        shown = repr(value)
        shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}..."
    return error(f"{name} must be {expected}, got {shown}.")
