"""`FitSettings`: what to solve, from how many clients, in which way."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._checks import as_number, check_choice, check_flag, check_whole
from ..data.formula import TableFormula, as_formula
from ..data.schema import Schema
from ..errors import FedRidgeError
from ..features import FeatureMap
from ..privacy.mechanism import DifferentialPrivacy
from ..regression.alpha.alpha_grid import Alphas, check_alphas
from ..regression.inference.infer import COVARIANCES
from ..regression.likelihood.families import FAMILY_NAMES
from ..regression.model import RidgeModel
from ..statistics.encoding import STATISTICS
from ..statistics.float32 import WIRE_DTYPES
from .requests import MODES, Limits
from .screening.outliers import SCREENS
from .secure_sum.terms import SecureSum
from .settings_checks import (
    check_class_settings,
    check_family_settings,
    check_feature_names,
    check_form_settings,
    check_formula_settings,
    check_ledger_settings,
    check_one_alpha,
    check_private_settings,
    check_rounds_settings,
    check_secure_settings,
)

log = logging.getLogger("flwr")
_SMALLEST_TOL = 1e-15

SECURE_ROUNDS = 5
"""Exchanges of one secure sum."""

MORE_AGREEMENTS = 3
"""How often a feature map is made again because clients have gone."""

FAMILY_ROUNDS = 25
"""Rounds after the first in which a likelihood is maximised, at most."""

SCREENED_BYTES = 32 << 20
"""Statistics of clients kept together to look at their leverage, at most."""


@dataclass(frozen=True)
class FitSettings:
    """What to solve, from how many clients, and where the model goes."""

    alpha: float = 1.0
    fit_intercept: bool = True
    standardize: bool = False
    min_clients: int = 1
    feature_names: Sequence[str] | None = None
    classes: Any = None
    class_weight: Any = None
    alphas: Alphas | None = None
    cv: str | None = None
    one_standard_error: bool = False
    standard_errors: str = "classical"
    wire_dtype: str = "float64"
    statistics: str = "moments"
    on_model: Callable[[RidgeModel], object] | None = None
    save_model: str | os.PathLike[str] | None = None
    privacy: DifferentialPrivacy | None = None
    mode: str = "oneshot"
    tol: float = 1e-12
    max_rounds: int = 500
    max_bytes: int = 8_000_000
    feature_map: FeatureMap | None = None
    screen: str = "report"
    unnamed: str = "refuse"
    strict: bool = False
    secure: SecureSum | None = None
    formula: TableFormula | None = None
    family: str = "gaussian"
    ledger: str | os.PathLike[str] | None = None

    selection: str | None = field(init=False)
    """How alpha is chosen: "clients", "server", "gcv", "groups", "noise", or not."""
    options: dict[str, Any] = field(init=False)
    """The options of every solver."""
    one_shot: bool = field(init=False)
    """Whether everything is sent at once; "auto" does so where nothing else works."""
    limits: Limits = field(init=False)
    """Where "auto" stops using one shot."""
    map_needs_data: bool = field(init=False)
    """Whether the feature map waits for means and variances of the columns."""
    rounds: int = field(init=False)
    """Train rounds of the fit, at most."""
    schema: Schema | None = field(init=False)
    """The raw columns that every client must have, where the server knows them."""
    screens: bool = field(init=False)
    """Whether clients are compared with each other; noise would hide everything."""
    excludes: bool = field(init=False)
    """Whether clients that stand out are left out."""
    keeps_parts: bool = field(init=False)
    """Whether the contributions of all clients are kept, one by one."""
    keep_bytes: int = field(init=False)
    """Bytes of contributions to keep in any case, to look at their leverage."""
    asks_residuals: bool = field(init=False)
    """Whether one more round asks for residuals, for robust standard errors."""
    accepts_plain: bool = field(init=False)
    """Whether (G, h) alone is enough for what is solved."""

    def __post_init__(self) -> None:
        """Refuse settings that would only fail after the round."""
        check_one_alpha(self.alpha)
        check_choice("mode", self.mode, MODES)
        check_whole("max_rounds", self.max_rounds)
        check_whole("max_bytes", self.max_bytes)
        object.__setattr__(self, "feature_map", as_feature_map(self.feature_map))
        formula = as_formula(self.formula)
        object.__setattr__(self, "formula", formula)
        if formula is not None:
            check_formula_settings(self, formula)
        if not _SMALLEST_TOL <= as_number(self.tol) < 1.0:
            raise FedRidgeError(
                f"tol must be a number from {_SMALLEST_TOL:g} to below 1, got "
                f"{self.tol!r}."
            )
        check_choice("standard_errors", self.standard_errors, COVARIANCES)
        check_choice("screen", self.screen, SCREENS)
        check_choice("unnamed", self.unnamed, ("refuse", "accept"))
        for flag in ("fit_intercept", "standardize", "one_standard_error", "strict"):
            check_flag(flag, getattr(self, flag))
        if self.feature_names is not None:
            names = check_feature_names(self.feature_names)
            object.__setattr__(self, "feature_names", names)
        if self.classes is not None or self.class_weight is not None:
            check_class_settings(self)
        if self.privacy is not None:
            check_private_settings(self)
        elif self.cv is not None:
            check_choice("cv", self.cv, ("clients", "server", "gcv", "groups"))
            if self.cv == "groups" and self.secure is None:
                raise FedRidgeError(
                    'cv="groups" is for secure sums, where nobody sees single clients: '
                    'use cv="server".'
                )
        if self.alphas is not None and not is_auto(self.alphas):
            if isinstance(self.alphas, Iterator):  # it can be read only once
                object.__setattr__(self, "alphas", tuple(self.alphas))
            check_alphas(self.alphas)
        check_choice("family", self.family, FAMILY_NAMES)
        self._derive()
        if self.selection is not None and self.alpha != type(self).alpha:
            told = "alpha=%g is ignored: %s given, and alpha is chosen."
            which = "cv is" if self.alphas is None else "alphas are"
            log.warning(told, self.alpha, which)
        counted_first = self.class_weight == "balanced"
        if self.classes == "auto" and not self.one_shot and not counted_first:
            raise FedRidgeError(
                f'classes="auto" needs mode="oneshot": with mode="{self.mode}" give '
                "the list of all classes."
            )
        if self.family != "gaussian":
            check_family_settings(self)
        if self.mode != "oneshot":
            check_rounds_settings(self)
        if self.one_standard_error and self.selection in (None, "gcv"):
            raise FedRidgeError(
                'the one-standard-error rule needs cv="clients" or cv="server".'
            )
        if self.asks_residuals and self.selection == "clients":
            raise FedRidgeError(
                f'standard_errors="{self.standard_errors}" does not go with '
                'cv="clients", which chooses alpha after the last train round: use '
                'cv="server", which chooses by the same losses.'
            )
        check_choice("wire_dtype", self.wire_dtype, WIRE_DTYPES)
        check_choice("statistics", self.statistics, STATISTICS)
        if self.secure is not None:
            check_secure_settings(self)
        if self.statistics != "moments":
            check_form_settings(self)
        if self.ledger is not None:
            check_ledger_settings(self)
        check_whole("the number of valid answers needed", self.min_clients)
        if not isinstance(self.save_model, str | os.PathLike | None):
            raise FedRidgeError(f"save_model must be a path, got {self.save_model!r}.")
        if self.on_model is not None and not callable(self.on_model):
            raise FedRidgeError("on_model must be a function of the fitted model.")

    def _derive(self) -> None:
        """Set what follows from the settings; a fit looks at it again and again."""
        private, choice = self.privacy is not None, self.cv
        secure = self.secure is not None
        if choice is None and self.alphas is not None:
            choice = "noise" if private else "gcv" if secure else "server"
        options = {"fit_intercept": self.fit_intercept, "standardize": self.standardize}
        kind = self.standard_errors
        only_one_shot = private or secure or choice is not None or kind != "classical"
        one_shot = self.mode == "oneshot" or (self.mode == "auto" and only_one_shot)
        needs_data = self.feature_map is not None and self.feature_map.needs_data
        rounds = 1 if one_shot else self.max_rounds
        iterates = self.family != "gaussian"
        rounds += min(self.max_rounds, FAMILY_ROUNDS) if iterates else 0
        balanced = self.class_weight == "balanced"
        agrees = needs_data or self.formula is not None or balanced
        rounds += needs_data + (self.formula is not None) + balanced
        rounds += (MORE_AGREEMENTS if agrees else 0) + kind.startswith("HC")
        names, hidden = self.feature_names, private or secure
        screens = self.screen != "off" and not hidden
        excludes = screens and self.screen == "exclude"
        derived = {
            "selection": choice,
            "options": options,
            "one_shot": one_shot,
            "limits": Limits(max_bytes=self.max_bytes),
            "map_needs_data": needs_data,
            "rounds": (rounds if self.privacy is None else self.privacy.steps)
            if not secure
            else SECURE_ROUNDS * (1 if self.privacy is None else self.privacy.rounds),
            "schema": None
            if names is None
            else Schema.of(len(names), feature_names=names),
            "screens": screens,
            "excludes": excludes,
            "keeps_parts": excludes
            or secure
            or iterates
            or (self.privacy is not None and self.privacy.waves > 1)
            or choice in ("clients", "server")
            or kind.startswith("CR"),
            "asks_residuals": kind.startswith("HC"),
            "keep_bytes": SCREENED_BYTES if screens else 0,
            "accepts_plain": self.statistics == "moments"
            and self.ledger is None
            and not any([*options.values(), choice]),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)


def as_feature_map(given: object) -> FeatureMap | None:
    """Return a feature map that is given as a map or as text."""
    if given is None or isinstance(given, FeatureMap):
        return given
    if isinstance(given, str):
        return FeatureMap.from_text(given)
    if isinstance(given, type):
        got = f"the class {given.__name__}: did you mean {given.__name__}()?"
    else:
        got = f"{type(given).__name__}."
    raise FedRidgeError(
        "feature_map must be a FeatureMap, several of them joined with |, or text as "
        f'"standardize | fourier 200 gamma=0.1", got {got}'
    )


def is_auto(alphas: object) -> bool:
    """Whether the candidates for alpha are to be made from the data."""
    return isinstance(alphas, str) and alphas == "auto"
