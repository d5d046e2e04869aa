"""The settings of a fit as its report tells them: what somebody needs to repeat it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..data.formula import TableFormula
from ..regression.likelihood.family_inference import ROWS
from .settings import FitSettings

# Names of columns are in the model; what the tables must be like is in the formula.
_TOLD = (
    "alphas",
    "cv",
    "one_standard_error",
    "standard_errors",
    "fit_intercept",
    "standardize",
    "class_weight",
    "min_clients",
    "wire_dtype",
    "statistics",
    "family",
    "mode",
    "tol",
    "max_rounds",
    "max_bytes",
    "screen",
    "unnamed",
    "strict",
)
_ROUNDING = 1e-9


def told_settings(settings: FitSettings) -> dict[str, Any]:
    """Return the settings that are not the defaults, as JSON-able values.

    Examples
    --------
    >>> asked = TableFormula("bp ~ age", missing="mean", weights="w")
    >>> told_settings(FitSettings(formula=asked, strict=True))
    {'strict': True, 'missing': 'mean', 'weights': 'w'}
    """
    given = {name: getattr(settings, name) for name in _TOLD}
    if not isinstance(given["alphas"], str | None):
        given["alphas"] = [float(alpha) for alpha in given["alphas"]]
    found = {k: v for k, v in given.items() if v != getattr(FitSettings, k)}
    return found | _of_formula(settings.formula)


def _of_formula(formula: TableFormula | None) -> dict[str, Any]:
    """Return what a formula says beside its text."""
    if formula is None:
        return {}
    told: dict[str, Any] = {
        "missing": "" if formula.missing == "drop" else formula.missing,
        "categorical": list(formula.categorical),
        "levels": {column: list(each) for column, each in formula.levels.items()},
        "weights": formula.weights,
    }
    return {name: value for name, value in told.items() if value}


def weighted_by(settings: FitSettings, total: Any) -> str:
    """Return the column of weights, "rows" if it has no name, "" if there is none.

    Weights of arrays are known by their sum, unless that is the number of rows. Those
    that `class_weight` makes are told as that setting.
    """
    if settings.formula is not None:
        return settings.formula.weights
    if settings.class_weight is not None or settings.privacy is not None:
        return ""
    parts: Sequence[Any] = getattr(total, "parts", None) or [total]
    weights = [_total_weight(part) for part in parts]
    if None in weights or not total.count:
        return ""
    apart = abs(sum(filter(None, weights)) - total.count)
    return ROWS if apart > _ROUNDING * total.count else ""


def _total_weight(part: Any) -> float | None:
    """Return the sum of weights, where these statistics have it."""
    found: float | None = getattr(getattr(part, "stats", part), "total_weight", None)
    return found
