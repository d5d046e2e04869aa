"""Coefficients with standard errors in a report: as JSON, and on the page."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ..._types import Array
from ...errors import FedRidgeError
from ...linalg.blas import one_blas_thread
from ...regression.inference.inference_frames import se_type
from ...regression.inference.inference_result import Inference
from ...regression.inference.inference_text import r2_names, title_of
from ...regression.likelihood.family_inference import FamilyInference
from ...regression.printed_table import p_text
from .markup import Markup, facts, table, tag

_UNSOLVED = (FedRidgeError, ArithmeticError, ValueError)
_TARGETS, _TERMS = 3, 500
_LARGE, _MOST_TERMS = ("means", "centred_covariance"), 100
_BY_TERM = ("coefficients", "se", "t", "p")
_BY_TARGET = ("r2", "adjusted_r2", "sigma", "f", "f_p", "log_likelihood", "aic", "bic")
_WHOLE = ("n_rows", "n_sites")
_FLAGS = ("fit_intercept", "standardize")
_NUMBERS = ("df", "df_residual", "total_weight", "alpha", "level", "digits_lost")


@dataclass(frozen=True)
class StandardErrors:
    """What a report has of standard errors.

    Parameters
    ----------
    inference : Inference, FamilyInference or None
        Coefficients with standard errors; read from a file, without the covariance of
        more than 100 of them.
    not_known : str
        Why there are none.
    """

    inference: Inference | FamilyInference | None = None
    not_known: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return everything but a large covariance as JSON-able values."""
        if self.inference is None:
            return {"not_known": self.not_known} if self.not_known else {}
        found = self.inference.to_dict()
        if len(self.inference.terms) <= _MOST_TERMS:
            return found
        if isinstance(self.inference, FamilyInference):
            return found | {"covariance": _variances(found["covariance"])}
        return {name: each for name, each in found.items() if name not in _LARGE}

    @classmethod
    def from_dict(cls, content: Any) -> StandardErrors:
        """Return what `to_dict` wrote; a ValueError says what it cannot be."""
        if not content or "not_known" in content:
            return cls(not_known=str((content or {}).get("not_known", "")))
        if "family" in content:
            return cls(FamilyInference.from_dict(content))
        return cls(read_inference(content))


def standard_errors_of(
    infer: Callable[[], Inference | FamilyInference] | None,
) -> StandardErrors:
    """Return standard errors, or why there are none."""
    if infer is None:
        return StandardErrors()
    with warnings.catch_warnings(), one_blas_thread():
        warnings.simplefilter("ignore")  # what they say is in the notes
        try:
            return StandardErrors(infer())
        except _UNSOLVED as error:
            return StandardErrors(not_known=str(error))


def read_inference(content: Mapping[str, Any]) -> Inference:
    """Return an inference from its JSON form; a large covariance is not known.

    Raises
    ------
    ValueError
        If the parts do not fit together.
    """
    terms, targets = (tuple(map(str, content[key])) for key in ("terms", "targets"))
    several = (len(targets),) if len(targets) > 1 else ()
    p = len(terms)
    found: dict[str, Any] = {
        "terms": terms,
        "targets": targets,
        "ci": _numbers(content["ci"], (*several, p, 2)),
        "covariance": str(content["covariance"]),
        "alpha_chosen_by": str(content["alpha_chosen_by"]),
        "notes": tuple(map(str, content["notes"])),
        "df_test": _number(content["df_test"], math.inf),
    }
    shapes = (p - bool(content["fit_intercept"]),), (*several, p, p)
    for key, shape in zip(_LARGE, shapes, strict=True):
        known = key in content
        found[key] = _numbers(content[key], shape) if known else np.full(shape, np.nan)
    first, second = content["f_df"]
    found["f_df"] = _number(first), _number(second)
    found |= {key: _numbers(content[key], (*several, p)) for key in _BY_TERM}
    for key in _BY_TARGET:
        values = _numbers(content[key], several)
        found[key] = values if several else float(values)
    found |= {key: int(content[key]) for key in _WHOLE}
    found |= {key: bool(content[key]) for key in _FLAGS}
    found["has_constant"] = bool(content.get("has_constant", found["fit_intercept"]))
    found |= {key: _number(content[key]) for key in _NUMBERS}
    return Inference(**{each.name: found[each.name] for each in fields(Inference)})


def _variances(covariance: list[list[float]]) -> list[list[float | None]]:
    """Return the diagonal of a covariance, and nothing beside it."""
    return [
        [each if j == k else None for k, each in enumerate(row)]
        for j, row in enumerate(covariance)
    ]


def _number(value: Any, instead: float = math.nan) -> float:
    return instead if value is None else float(value)


def _numbers(values: Any, shape: tuple[int, ...]) -> Array:
    found = np.array(values, dtype=np.float64)  # what is not known is NaN
    if found.shape != shape:
        raise ValueError("the numbers of the inference do not fit together")
    return found


def standard_error_tables(found: StandardErrors) -> Iterable[Markup]:
    """Yield a table for each target, and what is assumed."""
    inference: Any = found.inference
    if found.not_known:
        told = found.not_known
        yield tag("p", told[0].upper() + told[1:])
    if inference is None:
        return
    for each in list(inference.each_target())[:_TARGETS]:
        caption = f"{title_of(each)} of {each.targets[0]}, standard errors: "
        heads = ["Term", "Coefficient", "Std. error", "t" if each.use_t else "z", "p"]
        heads += [f"{100 * each.level:g}% from", "to"]
        rows = list(_rows(each))
        caption += se_type(each)
        yield table(caption, heads, rows, numbers=6, class_="cards wide")
        if len(each.terms) > len(rows):
            told = f"And {len(each.terms) - len(rows)} more terms: see report.json."
            yield tag("p", told, class_="muted")
        yield facts(_goodness(each))
    if len(inference.targets) > _TARGETS:
        more = len(inference.targets) - _TARGETS
        yield tag("p", f"And {more} more targets: see report.json.", class_="muted")
    for note in inference.notes:
        yield tag("p", note, class_="muted")


def _rows(inference: Inference) -> Iterable[list[str]]:
    for k, term in enumerate(inference.terms[:_TERMS]):
        estimate, se, ratio = (
            _text(each[k])
            for each in (inference.coefficients, inference.se, inference.t)
        )
        p = p_text(float(inference.p[k])).replace("-", "−")
        yield [term, estimate, se, ratio, p, *(_text(end) for end in inference.ci[k])]


def _goodness(inference: Inference) -> Iterable[tuple[str, str]]:
    adjusted = r2_names(inference)[1]
    yield adjusted[0].upper() + adjusted[1:], _text(inference.adjusted_r2)
    yield "Residual std. error", _text(inference.sigma)
    if not math.isnan(inference.f):
        first, second = inference.f_df
        yield f"F({first:g}, {second:g})", _text(inference.f)
        yield "p of F", p_text(inference.f_p).replace("-", "−")
    df, rest = _plain(inference.df), _plain(inference.df_residual)
    yield "Df (residual)", f"{df} ({rest})"
    yield "Log-likelihood", _likelihood(inference.log_likelihood)
    yield "AIC", _likelihood(inference.aic)
    yield "BIC", _likelihood(inference.bic)


def _plain(value: float) -> str:
    """Return a number of four digits, or as many as it has before its point."""
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def _likelihood(value: float) -> str:
    """Return a number of which differences matter, whatever its size."""
    return f"{value:,.1f}".replace("-", "−") if abs(value) >= 1e4 else _text(value)


def _text(value: float) -> str:
    """Return a number in a few digits, zeros at its end included; "" for NaN."""
    if math.isnan(value):
        return ""
    return f"{value:#.4g}".rstrip(".").replace("-", "−")
