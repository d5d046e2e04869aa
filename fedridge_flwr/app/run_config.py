"""The run-config of the app, checked: Flower itself does not check value types."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import FedRidgeError
from ..features import FeatureMap
from ..federation.requests import MODES
from ..federation.screening.comparison import SCREENS
from ..privacy import DifferentialPrivacy
from ..statistics.float32 import WIRE_DTYPES

__all__ = ["AppSettings", "read_settings"]

METHODS = ("server", "clients", "gcv", "noise")
DATASETS = ("diabetes", "digits", "synthetic")


@dataclass(frozen=True)
class AppSettings:
    """Settings of one run; see `[tool.flwr.app.config]` in pyproject.toml."""

    dataset: str = "diabetes"
    alpha: float = 1.0
    alphas: str = ""
    cv: str = ""
    wire_dtype: str = "float64"
    mode: str = "oneshot"
    feature_map: str = ""
    screen: str = "report"
    epsilon: float = 0.0
    delta: float = 1e-5
    x_norm_bound: float = 0.0
    y_bound: float = 0.0
    privacy_rounds: int = 1
    test_fraction: float = 0.2
    seed: int = 0
    compare_rounds: int = 0
    output_dir: str = ""
    d: int = 100
    n: int = 500
    gamma: float = 0.5

    def candidates(self) -> list[float] | Literal["auto"] | None:
        """Return the alphas to choose from, if alpha is to be chosen."""
        if not self.alphas:
            return "auto" if self.cv else None
        if self.alphas == "auto":
            return "auto"
        try:
            return [float(number) for number in self.alphas.split(",")]
        except ValueError:
            _refuse("alphas", '"auto" or numbers like "0.1, 1, 10"', self.alphas)
            raise

    def mapping(self) -> FeatureMap | None:
        """Return the feature map asked for, if there is one."""
        if not self.feature_map:
            return None
        try:
            return FeatureMap.from_text(self.feature_map)
        except FedRidgeError as error:
            raise FedRidgeError(f"run-config feature-map: {error}") from None

    def privacy(self) -> DifferentialPrivacy | None:
        """Return the privacy asked for; epsilon 0 asks for none."""
        if not self.epsilon:
            return None
        return DifferentialPrivacy(
            self.epsilon,
            self.delta,
            x_norm_bound=self.x_norm_bound,
            y_bound=self.y_bound,
            rounds=self.privacy_rounds,
        )


def read_settings(run_config: Mapping[str, Any]) -> AppSettings:
    """Return the settings, or an error that says what was expected.

    Examples
    --------
    >>> read_settings({"alpha": "large"})
    Traceback (most recent call last):
    fedridge_flwr.errors.FedRidgeError: run-config alpha must be a number of at least 0\
, got 'large' (str).
    """
    defaults = AppSettings()

    def number(key: str, default: float, low: float, high: float = 1e300) -> float:
        value = run_config.get(key, default)
        top = "" if high == 1e300 else f" and below {high:g}"
        if _is_bool_or_text(value) or not low <= value < high:
            _refuse(key, f"a number of at least {low:g}{top}", value)
        return float(value)

    def whole(key: str, default: int, low: int) -> int:
        value = run_config.get(key, default)
        if _is_bool_or_text(value) or not isinstance(value, int) or value < low:
            _refuse(key, f"a whole number of at least {low}", value)
        return int(value)

    def text(key: str, default: str) -> str:
        value = run_config.get(key, default)
        if not isinstance(value, str):
            _refuse(key, "text", value)
        return str(value)

    settings = AppSettings(
        dataset=text("dataset", defaults.dataset),
        alpha=number("alpha", defaults.alpha, 0.0),
        alphas=text("alphas", defaults.alphas),
        cv=text("cv", defaults.cv),
        wire_dtype=text("wire-dtype", defaults.wire_dtype),
        mode=text("mode", defaults.mode),
        feature_map=text("feature-map", defaults.feature_map),
        screen=text("screen", defaults.screen),
        epsilon=number("epsilon", defaults.epsilon, 0.0),
        delta=number("delta", defaults.delta, 0.0, 1.0),
        x_norm_bound=number("x-norm-bound", defaults.x_norm_bound, 0.0),
        y_bound=number("y-bound", defaults.y_bound, 0.0),
        privacy_rounds=whole("privacy-rounds", defaults.privacy_rounds, 1),
        test_fraction=number("test-fraction", defaults.test_fraction, 0.0, 1.0),
        seed=whole("seed", defaults.seed, 0),
        compare_rounds=whole("compare-rounds", defaults.compare_rounds, 0),
        output_dir=text("output-dir", defaults.output_dir),
        d=whole("d", defaults.d, 1),
        n=whole("n", defaults.n, 1),
        gamma=number("gamma", defaults.gamma, 0.0),
    )
    if settings.dataset not in DATASETS:
        _refuse("dataset", f"one of {', '.join(DATASETS)}", settings.dataset)
    if settings.cv not in ("", *METHODS):
        _refuse("cv", f"one of {', '.join(METHODS)}, or empty", settings.cv)
    if settings.wire_dtype not in WIRE_DTYPES:
        _refuse("wire-dtype", f"one of {', '.join(WIRE_DTYPES)}", settings.wire_dtype)
    if settings.mode not in MODES:
        _refuse("mode", f"one of {', '.join(MODES)}", settings.mode)
    if settings.screen not in SCREENS:
        _refuse("screen", f"one of {', '.join(SCREENS)}", settings.screen)
    settings.candidates()
    if settings.mapping() is not None and settings.compare_rounds:
        _refuse(
            "compare-rounds",
            "0 with a feature-map: FedAvg here fits the columns as they are (the "
            "kernels experiment in simulations/ has FedAvg on the same features)",
            settings.compare_rounds,
        )
    if settings.privacy() is not None and settings.compare_rounds:
        _refuse(
            "compare-rounds",
            "0 with privacy: FedAvg would tell the same rows without noise",
            settings.compare_rounds,
        )
    if settings.output_dir and not os.path.isabs(settings.output_dir):
        _refuse(
            "output-dir",
            "an absolute path (a ServerApp's working directory is that of the "
            "SuperLink)",
            settings.output_dir,
        )
    return settings


def _is_bool_or_text(value: Any) -> bool:
    return isinstance(value, bool) or not isinstance(value, int | float)


def _refuse(key: str, expected: str, value: Any) -> None:
    raise FedRidgeError(
        f"run-config {key} must be {expected}, got {value!r} ({type(value).__name__})."
    )
