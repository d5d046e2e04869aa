"""Validators of privacy settings: every failure is a `PrivacyError`."""

from numbers import Real
from typing import Any

from .. import _checks
from ..errors import PrivacyError

_RANGES = {
    "epsilon": (0.0, 1e15, "; for no privacy at all use privacy=None"),
    "delta": (0.0, 1.0, "; choose it well below one over the rows of a client"),
    "x_norm_bound": (1e-30, 1e30, ""),
    "y_bound": (1e-30, 1e30, ""),
}

# Settings of 0.1.0 that only the experiments still have.
_EXPERIMENTS_ONLY = {"calibration": "paper", "estimator": "plain"}


def check_number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    below: float | None = None,
    hint: str = "",
) -> float:
    """Return a number within these limits as a float; by default, 0 or more.

    Examples
    --------
    >>> check_number("mu", 2)
    2.0
    """
    real = isinstance(value, Real) and not isinstance(value, bool)
    # NaN passes none of these comparisons.
    enough = real and (value >= 0 if above is None else value > above)
    if not enough or not (below is None or value < below):
        limit = "of at least 0" if above is None else f"above {above:g}"
        limit += "" if below is None else f" and below {below:g}"
        raise PrivacyError(
            f"{name} must be a number {limit}, got {value!r}{hint if real else ''}."
        )
    return float(value)


def check_setting(name: str, value: Any) -> float:
    """Return a valid epsilon, delta, x_norm_bound or y_bound as a float.

    Examples
    --------
    >>> check_setting("epsilon", 1)
    1.0
    """
    low, high, hint = _RANGES[name]
    return check_number(name, value, above=low, below=high, hint=hint)


def check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """Return a value that is one of those allowed."""
    if isinstance(value, str) and value == _EXPERIMENTS_ONLY.get(name):
        raise PrivacyError(
            f"{name} must be other than {value!r}, for experiments (make experiments, "
            "simulations/fedridge_simulations/paper_privacy.py)."
        )
    return _checks.check_choice(name, value, allowed, PrivacyError)
