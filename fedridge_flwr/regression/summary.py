"""A model as text: the lines of its summary, and its repr."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from .._text import counted
from ..errors import FedRidgeError
from .inference.inference_frames import se_type
from .inference.inference_text import coefficient_cells, goodness_lines
from .likelihood.family_inference import FREQUENCIES, weighted_text
from .printed_table import plain

if TYPE_CHECKING:
    from .inference.inference_result import Inference
    from .model import RidgeModel

_HALF_THE_DIGITS = 1e8
_PRECISIONS = "a row of weight 2 has half the variance of one of weight 1 (WLS)."


def model_summary(model: RidgeModel, inference: Inference | None = None) -> str:
    """Return the facts of a fit and its table of coefficients."""
    chosen = f" ({model.alpha_chosen_by})" if model.alpha_chosen_by else ""
    facts = {}
    if model.feature_map is not None:
        facts["features"] = model.feature_map.describe(model.n_features_in_)
    facts["rows"] = _rows(model)
    facts["clients"] = f"{model.n_clients_}"
    facts["alpha"] = f"{model.alpha_:g}{chosen}"
    if model.standardize:
        facts["penalty on"] = "standardised features"
    inference = inference or _own_inference(model)
    facts["R² (train)"] = _r2(model, inference)
    if model.form != "moments":
        facts["statistics"] = model.form
    facts["condition"] = _condition(model.condition_)
    if recommends_triangular(model):
        facts["condition"] += '; statistics="triangular" keeps more digits'
    if model.privacy_ is not None:
        facts["privacy"] = _privacy(model.privacy_)
    lines = [f"  {name:<10}  {value}" for name, value in facts.items()]
    table = _coefficients(model) if inference is None else _tested(model, inference)
    note = weights_note(model)
    table += [""] if note and inference is None else []
    table += [f"  {note}"] if note else []
    lines = [kind_of(model), *lines, "", *table]
    return "\n".join([*lines, "", model.scope_] if model.scope_ else lines)


def weights_note(model: RidgeModel) -> str:
    """Return by what rows were weighted, and what standard errors make of it.

    Examples
    --------
    >>> from fedridge_flwr import RidgeModel
    >>> coef = np.array([1.0])
    >>> weights_note(RidgeModel(coef=coef, intercept=0.0, alpha=0.0, weighted_by="w"))
    'Weighted by w: a row of weight 2 has half the variance of one of weight 1 (WLS).'
    """
    if not model.weighted_by:
        return ""
    what = FREQUENCIES if hasattr(model, "family") else _PRECISIONS
    return f"{weighted_text(model.weighted_by)}: {what}"


def kind_of(model: RidgeModel) -> str:
    """Return what kind of model it is, as titles name it."""
    if hasattr(model, "labels"):
        return "Ridge classifier"
    least = model.alpha_ == 0.0 and model.privacy_ is None
    return "Linear regression (least squares)" if least else "Ridge regression"


def recommends_triangular(model: RidgeModel) -> bool:
    """Whether sums may have lost more than half of the digits."""
    known = model.form == "moments" and model.privacy_ is None
    return known and (model.condition_ or 0.0) > _HALF_THE_DIGITS


def coefficient_names(model: RidgeModel) -> list[str]:
    """Return what the coefficients are called; those behind a map have numbers."""
    mapped = model.map_fingerprint is not None
    names = [f"{'f' if mapped else 'x'}{j}" for j in range(model.coef_.shape[-1])]
    if mapped:
        return names
    return [str(name) for name in getattr(model, "feature_names_in_", names)]


def target_label(model: RidgeModel, k: int) -> str:
    """Return what one of several rows of coefficients is of: a class, or a target."""
    labels = getattr(model, "labels", ())
    if len(labels) > 2:
        return f"class {labels[k]}"
    known = None if model.targets is None else model.targets.known
    return known[k] if known else f"target {k}"


def model_repr(model: RidgeModel) -> str:
    """Return the size of a model and of the data behind it, in one line."""
    features = counted(model.coef_.shape[-1], "feature")
    if model.feature_map is not None:
        features += f" of {counted(model.n_features_in_, 'column')}"
    facts = [f"alpha={model.alpha_}", features]
    if model.n_rows_ is not None:
        facts.append(counted(model.n_rows_, "row"))
    facts.append(counted(model.n_clients_, "client"))
    if model.r2_ is not None:
        facts.append(f"R²={model.r2_:.4g}")
    return f"{type(model).__name__}({', '.join(facts)})"


def _rows(model: RidgeModel) -> str:
    if model.n_rows_ is None:
        return "hidden by the noise"
    about = "" if model.privacy_ is None else "about "
    return f"{about}{model.n_rows_}"


def _r2(model: RidgeModel, inference: Inference | None) -> str:
    """Return R², that of the inference if it is about zero, and so another one."""
    if inference is not None and not inference.has_constant:
        return f"{float(np.mean(inference.r2)):.6g} (uncentred: there is no intercept)"
    return "not known" if model.r2_ is None else f"{model.r2_:.6g}"


def _condition(condition: float | None) -> str:
    if condition is None:
        return "not known"
    return f"{condition:.1f}" if condition < 1e4 else f"{condition:.1e}"


def _privacy(privacy: dict[str, Any]) -> str:
    text = (
        f"epsilon {privacy['epsilon']:g}, delta {privacy['delta']:g} for each "
        f"{privacy['unit']} ({privacy['neighboring']}, {privacy['trust']} trust)"
    )
    if privacy["calibration"] == "paper":
        text += f"; NOT as claimed: {privacy['true_epsilon']:.3g}"
    return text


def _coefficients(model: RidgeModel) -> list[str]:
    mapped = model.map_fingerprint is not None
    coefs, names = np.atleast_2d(model.coef_), coefficient_names(model)
    n_targets, n_features = coefs.shape
    several = [f"target {k}" for k in range(n_targets)]
    labels = getattr(model, "labels", ())
    several = [f"{label:.11}" for label in labels] if len(labels) > 2 else several
    heads = several if n_targets > 1 else ["coefficient"]
    # Mapped columns have no names and little meaning of their own.
    shown = min(n_features, 5 if mapped else 40)
    table = list(zip(names[:shown], coefs.T, strict=False))
    if model.fit_intercept:
        table.append(("intercept", np.atleast_1d(model.intercept_)))
    width = max(9, *(len(name) for name, _ in table))
    lines = [f"  {'':<{width}}  " + "  ".join(f"{head:>11}" for head in heads)]
    for name, values in table:
        cells = "  ".join(f"{value:>11.6g}" for value in values)
        lines.append(f"  {name:<{width}}  {cells}")
    if shown < n_features:
        more = f"  ... and {n_features - shown} more features (see coef_)"
        lines.insert(1 + shown, more)
    return lines


def _own_inference(model: RidgeModel) -> Inference | None:
    """Return the standard errors of the fit, if it has any and they mean something."""
    if model.infer is None or model.map_fingerprint is not None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they came with the fit
        try:
            found: Inference = model.infer()
        except (FedRidgeError, ArithmeticError, ValueError):
            return None  # private, several rounds, too few rows, absurd numbers
    return found


def _tested(model: RidgeModel, inference: Inference) -> list[str]:
    """Return the table with standard errors, if it is of the same fit."""
    ours = np.atleast_2d(model.coef_)
    theirs = np.atleast_2d(inference.coefficients)[:, inference.fit_intercept :]
    settings = inference.alpha, inference.fit_intercept, inference.standardize
    same = settings == (model.alpha_, model.fit_intercept, model.standardize)
    if not same or ours.shape != theirs.shape or not np.allclose(ours, theirs):
        raise FedRidgeError(
            "the inference is of another fit: use infer(statistics, model.alpha_), "
            "with fit_intercept and standardize as in the model."
        )
    lines = []
    for each in inference.each_target():
        errors = f"standard errors: {se_type(each)}"
        lines += [f"  {each.targets[0]} ({errors})"]
        lines += [f"  {line}" for line in plain(*coefficient_cells(each)).splitlines()]
        lines += ["", *(f"  {line}" for line in goodness_lines(each))]
    return [*lines, "", *(f"  {note}" for note in inference.notes)]
