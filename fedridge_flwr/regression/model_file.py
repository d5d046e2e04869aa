"""A model as a JSON file: written so that it comes back exactly, read without trust."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._checks import check_alpha, check_flag, check_whole, must_be
from .._files import read_file, strict_json
from .._types import Array
from ..errors import FedRidgeError
from ..features import FeatureMap

if TYPE_CHECKING:
    from .model import RidgeModel

__all__ = ["read_model", "write_model"]

_FORMAT = "fedridge-model"
_VERSION = 1
_LONGEST_REASON = 300
_LARGEST_COUNT = 2**63 - 1
# What a summary shows of a privacy report.
_PRIVACY_NUMBERS = ("epsilon", "delta", "true_epsilon")
_PRIVACY_TEXTS = ("unit", "neighboring", "trust", "calibration")


def write_model(model: RidgeModel, path: Path) -> None:
    """Write a model; missing folders are made."""
    names = getattr(model, "feature_names_in_", None)
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "coef": model.coef_.tolist(),
        "intercept": np.asarray(model.intercept_).tolist(),
        "alpha": model.alpha_,
        "fit_intercept": model.fit_intercept,
        "standardize": model.standardize,
        "feature_names": None if names is None else names.tolist(),
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
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n",
        encoding="utf-8",
    )


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
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise FedRidgeError(f"{path} is not a model written by RidgeModel.save.")
    version = content.get("version")
    if type(version) is not int or version != _VERSION:
        raise FedRidgeError(
            f"{path} has version {str(version)[:60]} of the model format, "
            f"this package reads {_VERSION}: install a matching fedridge-flwr."
        )
    try:
        return build(**_parameters(content))
    except KeyError as error:
        raise FedRidgeError(f"{path} is damaged: it has no {error}.") from error
    except ValueError as error:
        reason = str(error)[:_LONGEST_REASON].rstrip(".")
        raise FedRidgeError(f"{path} is damaged: {reason}.") from error


def _parameters(content: dict[str, Any]) -> dict[str, Any]:
    coef, intercept = (_numbers(key, content[key]) for key in ("coef", "intercept"))
    shapes = ((), coef.shape[:-1])
    if coef.ndim not in (1, 2) or coef.size == 0 or intercept.shape not in shapes:
        raise ValueError(
            f"coef of shape {coef.shape}, intercept of shape {intercept.shape}"
        )
    found: dict[str, Any] = {
        "coef": coef,
        "intercept": float(intercept) if intercept.ndim == 0 else intercept,
        "alpha": check_alpha(content["alpha"]),
        "n_clients": check_whole("n_clients", content["n_clients"], 0, _LARGEST_COUNT),
        "n_rows": _count("n_rows", content["n_rows"]),
        "feature_names": _names(content["feature_names"]),
        "privacy": _privacy(content.get("privacy")),
    }
    n_columns = coef.shape[-1]
    if content.get("feature_map") is not None:
        n_columns = check_whole("n_features_in", content["n_features_in"])
        found["n_features_in"] = n_columns
        found["feature_map"] = FeatureMap.from_json(json.dumps(content["feature_map"]))
    if found["feature_names"] is not None and len(found["feature_names"]) != n_columns:
        raise ValueError(f"{len(found['feature_names'])} names, {n_columns} features")
    for key in ("fit_intercept", "standardize"):
        found[key] = check_flag(key, content[key])
    for key in ("condition", "r2"):
        value = content[key]
        found[key] = None if value is None else float(_numbers(key, value, depth=0))
    for key in ("alpha_chosen_by", "map_fingerprint"):
        found[key] = content.get(key)
        if not isinstance(found[key], str | None):
            raise must_be(key, "text", found[key])
    return found


def _count(name: str, value: Any) -> int | None:
    return None if value is None else check_whole(name, value, 0, _LARGEST_COUNT)


def _numbers(name: str, value: Any, depth: int = 2) -> Array:
    """Return lists of finite numbers; text or bools are not converted."""
    _refuse_non_numbers(name, value, depth)
    try:
        found = np.asarray(value, dtype=np.float64)
    except (ValueError, OverflowError):
        raise ValueError(f"{name} is not a table of numbers") from None
    if not np.isfinite(found).all():
        raise ValueError(f"{name} is not finite")
    return found


def _refuse_non_numbers(name: str, value: Any, depth: int) -> None:
    if isinstance(value, list) and depth > 0:
        for each in value:
            _refuse_non_numbers(name, each, depth - 1)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} has entries that are not numbers")


def _names(value: Any) -> list[str] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValueError("feature_names is not a list of text")
    return value


def _privacy(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ValueError("privacy is not a privacy report")
    for keys, kinds in ((_PRIVACY_NUMBERS, (int, float)), (_PRIVACY_TEXTS, (str,))):
        for key in keys:
            if type(value.get(key)) not in kinds:
                raise ValueError(f"privacy has no valid {key}")
    return value
