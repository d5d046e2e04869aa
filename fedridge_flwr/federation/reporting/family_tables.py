"""Logistic and Poisson regression on the page: titles, D², tests and ratios."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...regression.likelihood.family_inference import RATIOS
from ...regression.printed_table import p_text
from .markup import Markup, facts, table, tag

_TERMS = 500
_NO_ERRORS = "No standard errors: the fit has a penalty. Use alpha 0."
_CLASSES = (
    "No standard errors: the outcome has {} classes. They are available for two "
    "classes and for counts."
)


def is_family(model: object) -> bool:
    """Whether a model is a logistic or Poisson regression."""
    return hasattr(model, "family")


def family_tables(model: Any) -> Iterable[Markup]:
    """Yield coefficients with tests and ratios, or why there are none.

    Examples
    --------
    >>> from fedridge_flwr import FamilyModel
    >>> model = FamilyModel(
    ...     family="poisson", coef=np.array([0.1]), intercept=0.5, alpha=1.0
    ... )
    >>> print(*family_tables(model))
    <p>No standard errors: the fit has a penalty. Use alpha 0.</p>
    """
    if model.coef_.ndim == 2:
        yield tag("p", _CLASSES.format(len(model.labels)))
    elif model.covariance_ is None or model.log_likelihood_ is None:
        yield tag("p", _NO_ERRORS)
    else:
        yield from _tested(model)


def _tested(model: Any) -> Iterable[Markup]:
    found, ratio = model.inference(), RATIOS[model.family].capitalize()
    heads = ["Term", "Coefficient", "Std. error", "z", "p", ratio, "95% from", "to"]
    numbers = np.column_stack([found.coefficients, found.se, found.z])
    rows = [
        [
            term,
            *map(_text, numbers[k]),
            p_text(float(found.p[k])).replace("-", "−"),
            *map(_text, ratios),
        ]
        for k, (term, ratios) in enumerate(
            zip(found.terms[:_TERMS], found.ratios(), strict=False)
        )
    ]
    caption = f"{_title(model)}, standard errors by maximum likelihood; the interval "
    caption += f"is that of the {RATIOS[model.family]}"
    yield table(caption, heads, rows, numbers=7, class_="cards wide")
    if len(found.terms) > _TERMS:
        told = f"And {len(found.terms) - _TERMS} more terms: see coefficients.csv."
        yield tag("p", told, class_="muted")
    fit = [("Deviance", found.deviance), ("Null deviance", found.null_deviance)]
    fit += [("Log-likelihood", found.log_likelihood), ("AIC", found.aic)]
    shown = [(name, _text(value, 6)) for name, value in fit if not math.isnan(value)]
    yield facts(
        [*shown, ("Df (residual)", f"{len(found.terms)} ({found.df_residual})")]
    )


def _title(model: Any) -> str:
    known = None if model.targets is None else model.targets.known
    title = str(model.title)
    title += f" of {known[0]}" if known else ""
    if model.labels:
        title += f", {model.labels[1]} against {model.labels[0]}"
    return title


def _text(value: float, digits: int = 4) -> str:
    return f"{value:#.{digits}g}".rstrip(".").replace("-", "−")
