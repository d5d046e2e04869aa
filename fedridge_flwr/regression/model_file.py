"""A model as a JSON file: written so that it comes back exactly, read without trust."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._checks import (
    as_number,
    check_alpha,
    check_choice,
    check_flag,
    check_whole,
    must_be,
)
from .._files import read_file, strict_json
from .._types import Array
from ..data.coding import Coding
from ..data.labels import read_labels
from ..data.names import Names
from ..errors import FedRidgeError
from ..features import FeatureMap
from ..statistics.encoding import STATISTICS
from .likelihood.families import FAMILY_NAMES

if TYPE_CHECKING:
    from .model import RidgeModel


_FORMAT = "fedridge-model"
_FAMILY_FORMAT = "fedridge-family-model"
_VERSION, _CLASSIFIER_VERSION = 1, 2


def write_model(model: RidgeModel, path: Path) -> None:
    """Write a model; missing folders are made."""
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "coef": model.coef_.tolist(),
        "intercept": np.asarray(model.intercept_).tolist(),
        "alpha": model.alpha_,
        "fit_intercept": model.fit_intercept,
        "standardize": model.standardize,
        "feature_names": _known(model.features),
        "n_rows": model.n_rows_,
        "n_clients": model.n_clients_,
        "condition": model.condition_,
        "r2": model.r2_,
        "alpha_chosen_by": model.alpha_chosen_by,
        "privacy": model.privacy_,
    }
    if model.map_fingerprint is not None:
        content["map_fingerprint"] = model.map_fingerprint
    if model.feature_map is not None:
        content["feature_map"] = model.feature_map.content()
        content["n_features_in"] = model.n_features_in_
    for key in ("features", "targets"):
        known: Names | None = getattr(model, key)
        if known is not None:
            content[key] = {
                "hash": known.hash,
                "sorted_hash": known.sorted_hash,
                "order": list(known.order),
            }
    if _known(model.targets):
        content["target_names"] = _known(model.targets)
    if model.scope_:
        content["scope"] = model.scope_
    if model.weighted_by:
        content["weighted_by"] = model.weighted_by
    if model.form != "moments":
        content["statistics"] = model.form
    if model.coding is not None:
        content["coding"] = model.coding.content()
    if hasattr(model, "family"):
        content |= _family_content(model)
    labels = getattr(model, "labels", None)
    if labels is not None and not hasattr(model, "family"):
        # Readers that know no classes would take it for a model of numbers.
        content |= {"version": _CLASSIFIER_VERSION, "classes": list(labels)}
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False)
    path.write_text(f"{text}\n", encoding="utf-8")


def read_model(path: Path, build: Callable[..., RidgeModel]) -> RidgeModel:
    """Return what `build` makes of the parameters in a file."""
    try:
        content = strict_json(read_file(path))
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise FedRidgeError(
            f"{path} is not a model file, or is damaged: {error}."
        ) from error
    known = isinstance(content, dict) and content.get("format")
    if known == _FAMILY_FORMAT:
        from .likelihood.family_model import FamilyModel

        build = FamilyModel
    elif known != _FORMAT:
        raise FedRidgeError(f"{path} is not a model written by RidgeModel.save.")
    version = content.get("version")
    known = (_VERSION, _CLASSIFIER_VERSION)
    if type(version) is not int or version not in known:
        raise FedRidgeError(
            f"{path} has version {str(version)[:60]} of the model format, this package "
            f"reads {known[0]} and {known[1]}: install a matching fedridge-flwr."
        )
    try:
        if version == _CLASSIFIER_VERSION:
            return _build_classifier(content)
        return build(**_parameters(content))
    except KeyError as error:
        raise FedRidgeError(f"{path} is damaged: it has no {error}.") from error
    except ValueError as error:
        reason = str(error)[:300].rstrip(".")
        raise FedRidgeError(f"{path} is damaged: {reason}.") from error


def _build_classifier(content: dict[str, Any]) -> RidgeModel:
    from .classification import RidgeClassifierModel

    classes = _names("classes", content["classes"])
    return RidgeClassifierModel(classes=classes, **_parameters(content))


def _parameters(content: dict[str, Any]) -> dict[str, Any]:
    # Files of the first version lack some keys; of the others none may be missing.
    content = {**dict.fromkeys(_LATER_KEYS), **content}
    found = {key: read(key, content[key]) for key, read in _READERS.items()}
    found["form"] = found.pop("statistics")
    coef, intercept = found["coef"], found["intercept"]
    shapes = ((), coef.shape[:-1])
    if coef.ndim not in (1, 2) or coef.size == 0 or intercept.shape not in shapes:
        raise ValueError(
            f"coef of shape {coef.shape}, intercept of shape {intercept.shape}"
        )
    found["intercept"] = float(intercept) if intercept.ndim == 0 else intercept
    n_columns = coef.shape[-1]
    if content["feature_map"] is not None:
        n_columns = _count("n_features_in", content["n_features_in"])
        found["n_features_in"] = n_columns
        found["feature_map"] = FeatureMap.from_json(json.dumps(content["feature_map"]))
    family = content["format"] == _FAMILY_FORMAT
    if family:
        found |= _family_parameters(content, coef.shape)
    single = coef.ndim == 1 or family
    widths = {"feature": n_columns, "target": 1 if single else len(coef)}
    for noun, width in widths.items():
        key, hashes = f"{noun}_names", found.pop(f"{noun}s")
        names = None if found[key] is None else Names.of(found[key])
        if hashes is not None:
            names = hashes.with_known(names and names.known)
        for told in () if names is None else (names.order, names.known):
            if told and len(told) != width:
                raise ValueError(f"{len(told)} names for {width} {noun}s")
        found[key] = names
    return found


def _known(names: Names | None) -> list[str] | None:
    return None if names is None or names.known is None else list(names.known)


def _numbers(name: str, value: Any) -> Array:
    """Return lists of finite numbers; text or bools are not converted."""
    # Lists of unequal lengths stay lists, which are not numbers either.
    entries = np.asarray(value, dtype=object)
    numbers = [as_number(each) for each in entries.ravel()]
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name} has entries that are not finite numbers")
    return np.reshape(numbers, entries.shape)


def _number(name: str, value: Any) -> float:
    number = as_number(value)
    if not math.isfinite(number):
        raise must_be(name, "a finite number", value)
    return number


def _count(name: str, value: Any) -> int:
    return check_whole(name, value, 0, 2**63 - 1)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise must_be(name, "text", value)
    return value


def _names(name: str, value: Any) -> list[str]:
    if not isinstance(value, list):
        raise must_be(name, "a list of text", value)
    return [_text(name, each) for each in value]


def _hashes(name: str, value: Any) -> Names:
    """Return names of columns, or what stands for them."""
    if not isinstance(value, dict):
        raise must_be(name, "names of columns", value)
    order = value.get("order")
    if not isinstance(order, list) or sorted(order) != list(range(len(order))):
        raise must_be(f"{name} order", "each place once", order)
    digest, in_order = (_text(f"{name} hash", value.get(key)) for key in _DIGESTS)
    return Names(digest, in_order, tuple(order))


def _privacy(name: str, value: Any) -> dict[str, Any]:
    """Return a privacy report that has all that a summary shows of it."""
    if not isinstance(value, dict):
        raise must_be(name, "a privacy report", value)
    for key in ("epsilon", "delta", "true_epsilon"):
        _number(f"{name} {key}", value.get(key))
    for key in ("unit", "neighboring", "trust", "calibration"):
        _text(f"{name} {key}", value.get(key))
    return value


def _optional(read: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    return lambda name, value: None if value is None else read(name, value)


def _family_content(model: Any) -> dict[str, Any]:
    covariance = model.covariance_
    return {
        "format": _FAMILY_FORMAT,
        "family": model.family,
        "labels": list(model.labels),
        "deviance": _with_none(model.deviance_),
        "null_deviance": _with_none(model.null_deviance_),
        "log_likelihood": model.log_likelihood_,
        "covariance": None if covariance is None else covariance.tolist(),
        "has_offset": model.has_offset,
    }


def _with_none(values: Any) -> Any:
    """Return numbers as lists, with None for those that are not known."""
    array = np.asarray(values, dtype=float)
    return None if np.isnan(array).any() else array.tolist()


def _family_parameters(
    content: dict[str, Any], shape: tuple[int, ...]
) -> dict[str, Any]:
    family = check_choice("family", content["family"], FAMILY_NAMES[1:])
    told, covariance = content["labels"], content["covariance"]
    labels = read_labels(json.dumps(told)) if told else ()
    expected = {1: 2, 2: shape[0]}[len(shape)] if family == "binomial" else 0
    if len(labels) != expected or (not labels and len(shape) != 1):
        raise ValueError(f"{len(labels)} labels for coef of shape {shape}")
    found: dict[str, Any] = {
        key: np.nan if content[key] is None else _numbers(key, content[key])[()]
        for key in ("deviance", "null_deviance")
    }
    size = shape[-1] + check_flag("fit_intercept", content["fit_intercept"])
    if covariance is not None:
        covariance = _numbers("covariance", covariance)
        if covariance.shape != (size, size) or (np.diagonal(covariance) < 0).any():
            raise ValueError(f"covariance of shape {covariance.shape}")
    return found | {
        "family": family,
        "labels": labels,
        "covariance": covariance,
        "log_likelihood": _optional(_number)(
            "log_likelihood", content["log_likelihood"]
        ),
        "has_offset": check_flag("has_offset", content["has_offset"]),
    }


_DIGESTS = ("hash", "sorted_hash")
_LATER_KEYS = (
    *("alpha_chosen_by", "privacy", "map_fingerprint", "feature_map"),
    *("target_names", "features", "targets", "scope", "coding", "statistics"),
    "weighted_by",
)
_READERS: dict[str, Callable[[str, Any], Any]] = {
    "coef": _numbers,
    "intercept": _numbers,
    "alpha": lambda _, value: check_alpha(value),
    "fit_intercept": check_flag,
    "standardize": check_flag,
    "feature_names": _optional(_names),
    "target_names": _optional(_names),
    "features": _optional(_hashes),
    "targets": _optional(_hashes),
    "n_rows": _optional(_count),
    "n_clients": _count,
    "condition": _optional(_number),
    "r2": _optional(_number),
    "alpha_chosen_by": _optional(_text),
    "privacy": _optional(_privacy),
    "map_fingerprint": _optional(_text),
    "scope": lambda name, value: "" if value is None else _text(name, value),
    "weighted_by": lambda name, value: "" if value is None else _text(name, value),
    "statistics": lambda name, value: check_choice(
        name, "moments" if value is None else value, STATISTICS
    ),
    "coding": _optional(lambda _, value: Coding.from_content(value)),
}
