"""The fields of a private request: what a client must know to make its release."""

from collections.abc import Mapping
from typing import Any

from ..errors import PrivacyError

# Beginning of every key of a private request.
PREFIX = "privacy-"

# A client of 0.1.0 refuses a request that lacks one of these. How the server estimates,
# and in which order it asks, is its own affair: a client answers every round once.
_SENT = (
    *("epsilon", "delta", "x_norm_bound", "y_bound", "neighboring", "trust"),
    *("rounds", "min_clients", "max_colluding", "calibration"),
)
_KEYS = {name: f"{PREFIX}{name.replace('_', '-')}" for name in _SENT}
_SHARE = f"{PREFIX}share-"
_RULES = f"{PREFIX}rules"


def to_fields(privacy: Any) -> dict[str, float | int | str]:
    """Return the settings a client needs; the split travels share by share."""
    content = {key: getattr(privacy, name) for name, key in _KEYS.items()}
    for block, share in (privacy.budget_split or {}).items():
        content[f"{_SHARE}{block.replace('_', '-')}"] = share
    # 0.1.0 knows no such field, and refuses a request that has it.
    return content if privacy.rules == 1 else content | {_RULES: privacy.rules}


def from_fields(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the settings of a private request, None if it is not private."""
    asked = {k: v for k, v in config.items() if str(k).startswith(PREFIX)}
    if not asked:
        return None
    missing = sorted(set(_KEYS.values()) - set(asked))
    if missing:
        raise PrivacyError(f"the private request lacks {', '.join(missing)}.")
    values = {name: asked.pop(key) for name, key in _KEYS.items()}
    rules = asked.pop(_RULES, 1)
    split = {
        key.removeprefix(_SHARE).replace("-", "_"): asked.pop(key)
        for key in list(asked)
        if key.startswith(_SHARE)
    }
    if asked or rules not in (1, 2):
        raise PrivacyError(
            "this client does not know a setting: install the same fedridge-flwr."
        )
    return {**values, "budget_split": split or None, "rules": rules}
