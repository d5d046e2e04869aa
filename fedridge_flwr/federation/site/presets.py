"""Presets of `SitePolicy`: where they come from, and what makes one weaker."""

from collections.abc import Callable, Mapping
from typing import Any

from ..._checks import must_be
from ...errors import PolicyError

_RATIO = 0.33
PRESETS: dict[int, dict[str, Any]] = {
    3: {"min_rows": 3, "min_rows_per_level": 3, "max_columns_per_row": _RATIO},
    5: {"min_rows": 5, "min_rows_per_level": 5, "max_columns_per_row": _RATIO},
    6: {"min_rows": 6, "min_rows_per_level": 6, "max_columns_per_row": _RATIO},
    10: {
        "min_rows": 10,
        "min_rows_per_level": 3,
        "max_columns_per_row": 0.1,
        "min_sites": 3,
    },
    11: {"min_rows": 11, "min_rows_per_level": 11, "max_columns_per_row": _RATIO},
}


def preset_rules(k: Any) -> dict[str, Any]:
    """Return the rules of a preset.

    Examples
    --------
    >>> preset_rules(3)
    {'min_rows': 3, 'min_rows_per_level': 3, 'max_columns_per_row': 0.33}
    """
    if type(k) is not int or k not in PRESETS:
        known = ", ".join(map(str, PRESETS))
        raise must_be("preset", f"one of {known}", k, PolicyError)
    return dict(PRESETS[k])


def refuse_weaker(k: int, given: Mapping[str, Any], policy: Any, base: Any) -> None:
    """Raise if a rule that was given allows more than the preset.

    Parameters
    ----------
    k : int
        The preset.
    given : mapping
        The rules that were given beside it, as they were written.
    policy, base : SitePolicy
        The preset with these rules, and without them.
    """
    for name, written in given.items():
        if is_weaker(name, getattr(policy, name), getattr(base, name)):
            raise PolicyError(
                f"{name}={written!r} is weaker than preset {k}, which has "
                f"{getattr(base, name)!r}: leave it out, or add override=True."
            )


def _is_less(given: Any, base: Any) -> bool:
    return bool(given < base)


def _allows_more_columns(given: Any, base: Any) -> bool:
    return base is not None and (given is None or given > base)


def _allows_more_requests(given: Any, base: Any) -> bool:
    return not set(given) <= set(base)


def _is_never_weaker(given: Any, base: Any) -> bool:
    """No preset has the rule, so what a file says of it is the site's own choice."""
    return False


_WEAKER: dict[str, Callable[[Any, Any], bool]] = {
    "min_rows": _is_less,
    "min_rows_per_level": _is_less,
    "max_columns_per_row": _allows_more_columns,
    "allowed_columns": _is_never_weaker,
    "forbidden_columns": _is_never_weaker,
    "requests": _allows_more_requests,
    "require_privacy": _is_never_weaker,
    "max_epsilon": _is_never_weaker,
    "max_delta": _is_never_weaker,
    "require_secure_sums": _is_never_weaker,
    "min_sites": _is_less,
    "min_row_difference": _is_less,
    "state": _is_never_weaker,
    "identity": _is_never_weaker,
    "roster": _is_never_weaker,
}


def is_weaker(name: str, given: Any, base: Any) -> bool:
    """Return whether a rule allows more than that of a preset.

    Examples
    --------
    >>> is_weaker("min_rows", 5, 11), is_weaker("min_rows", 50, 11)
    (True, False)
    >>> is_weaker("min_beds", 5, 11)
    Traceback (most recent call last):
    fedridge_flwr.errors.PolicyError: it is not known whether min_beds=5 is weaker \
than 11: add the rule to presets.py.
    """
    if name not in _WEAKER:
        # A rule that is forgotten here must not let a file weaken a preset.
        raise PolicyError(
            f"it is not known whether {name}={given!r} is weaker than {base!r}: add "
            "the rule to presets.py."
        )
    return _WEAKER[name](given, base)
