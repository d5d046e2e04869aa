"""The run-config of the app, checked: Flower itself does not check value types."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from .._checks import as_number, check_choice, check_flag, check_whole, must_be
from ..data.formula import MISSING, TableFormula, formula_of
from ..data.site_files import SiteFile, find_site_files
from ..errors import FedRidgeError
from ..features import FeatureMap
from ..federation.requests import MODES
from ..federation.screening.outliers import SCREENS
from ..federation.secure_sum.terms import SecureSum
from ..privacy import DifferentialPrivacy
from ..regression.inference.infer import COVARIANCES
from ..regression.likelihood.families import FAMILY_NAMES
from ..statistics.float32 import WIRE_DTYPES

_SMALLEST = {"d": 1, "n": 1, "privacy_rounds": 1}
_BELOW = {"delta": 1.0, "test_fraction": 1.0}
_CHOICES = {
    "dataset": ("diabetes", "digits", "synthetic"),
    "cv": ("server", "clients", "gcv", "groups", "noise", ""),
    "standard_errors": COVARIANCES,
    "wire_dtype": WIRE_DTYPES,
    "mode": MODES,
    "family": FAMILY_NAMES,
    "screen": SCREENS,
    "missing": MISSING,
}


@dataclass(frozen=True)
class AppSettings:
    """Settings of one run; see `[tool.flwr.app.config]` in pyproject.toml."""

    dataset: str = "diabetes"
    data: str = ""
    formula: str = ""
    target: str = ""
    features: str = ""
    categorical: str = ""
    levels: str = ""
    missing: str = "drop"
    weights: str = ""
    client_column: str = ""
    table: str = ""
    alpha: float = 1.0
    family: str = "gaussian"
    alphas: str = ""
    cv: str = ""
    standard_errors: str = "classical"
    wire_dtype: str = "float64"
    mode: str = "oneshot"
    feature_map: str = ""
    screen: str = "report"
    strict: bool = True
    secure: bool = False
    standardize: bool = False
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

    def of_strategy(self) -> dict[str, Any]:
        """Return the settings of `FedRidge`."""
        return {
            "alpha": self.alpha,
            "family": self.family,
            "alphas": self.candidates(),
            "cv": self.cv or None,
            "standardize": self.standardize,
            "standard_errors": self.standard_errors,
            "wire_dtype": self.wire_dtype,
            "privacy": self.privacy(),
            "mode": self.mode,
            "feature_map": self.mapping(),
            "screen": self.screen,
            "strict": self.strict,
            "secure": SecureSum() if self.secure else None,
        }

    def candidates(self) -> list[float] | Literal["auto"] | None:
        """Return the alphas to choose from, if alpha is to be chosen."""
        if not self.alphas:
            return "auto" if self.cv else None
        if self.alphas == "auto":
            return "auto"
        try:
            return [float(number) for number in self.alphas.split(",")]
        except ValueError:
            expected = '"auto" or numbers like "0.1, 1, 10"'
            raise must_be("run-config alphas", expected, self.alphas) from None

    def site_files(self) -> list[SiteFile]:
        """Return the tables of the clients of a simulation."""
        table = self.table or None
        return find_site_files(
            self.data,
            client_column=self.client_column,
            table=table,
            strict=self.strict,
        )

    def table_formula(self) -> TableFormula | None:
        """Return what is asked of tables, if the clients have tables."""
        if not (self.formula or self.target):
            if self.data:
                raise FedRidgeError(
                    "run-config data needs a formula, as in "
                    'formula="bp ~ age + C(sex)", or a target.'
                )
            return None
        try:
            return formula_of(
                self.formula,
                self.target,
                self.features,
                categorical=self.categorical,
                levels=self.levels,
                missing=self.missing,
                weights=self.weights,
            )
        except FedRidgeError as error:
            raise FedRidgeError(f"run-config {error}") from None

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
, got 'large'.
    """
    found = (_read(run_config, each.name, each.default) for each in fields(AppSettings))
    settings = AppSettings(*found)
    settings.candidates()
    if settings.table_formula() is not None and settings.compare_rounds:
        raise FedRidgeError(
            "run-config compare-rounds must be 0 with tables: their rows are at the "
            "clients only, and the app's FedAvg knows its own data sets."
        )
    if settings.table_formula() is None and settings.family != "gaussian":
        raise FedRidgeError(
            f'run-config family="{settings.family}" needs tables: give a formula, or a '
            "target. The app's own data sets are compared with ridge regression."
        )
    if settings.mapping() is not None and settings.compare_rounds:
        raise FedRidgeError(
            "run-config compare-rounds must be 0 with a feature-map: FedAvg here fits "
            "the columns as they are (the kernels experiment in simulations/ has "
            "FedAvg on the same features)."
        )
    if settings.privacy() is not None and settings.compare_rounds:
        raise FedRidgeError(
            "run-config compare-rounds must be 0 with privacy: FedAvg would use the "
            "same rows without noise."
        )
    if settings.secure and settings.compare_rounds:
        raise FedRidgeError(
            "run-config compare-rounds must be 0 with secure sums: FedAvg would "
            "reveal the model of every single client."
        )
    if settings.output_dir and not os.path.isabs(settings.output_dir):
        place = "a ServerApp's working directory is that of the SuperLink"
        expected = f"an absolute path ({place})"
        raise must_be("run-config output-dir", expected, settings.output_dir)
    return settings


def _read(run_config: Mapping[str, Any], field: str, default: Any) -> Any:
    key = field.replace("_", "-")
    name, value = f"run-config {key}", run_config.get(key, default)
    if isinstance(default, bool):
        return check_flag(name, value)
    if isinstance(default, int):
        return check_whole(name, value, _SMALLEST.get(field, 0))
    if isinstance(default, float):
        number, below = as_number(value), _BELOW.get(field, math.inf)
        if not 0 <= number < below:
            top = f" and below {below:g}" if field in _BELOW else ""
            raise must_be(name, f"a number of at least 0{top}", value)
        return number
    if field in _CHOICES:
        return check_choice(name, value, _CHOICES[field])
    if not isinstance(value, str):
        raise must_be(name, "text", value)
    return value
