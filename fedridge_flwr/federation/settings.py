"""`FitSettings`: what to solve, from how many clients, in which way."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._checks import check_alpha, check_choice, check_flag, check_whole
from ..data.coding import Coding
from ..data.formula import TableFormula, as_formula
from ..data.schema import Schema
from ..errors import FedRidgeError, PrivacyError
from ..features import FeatureMap
from ..privacy.mechanism import DifferentialPrivacy
from ..regression.alpha_grid import Alphas, check_alphas
from ..regression.families import FAMILY_NAMES
from ..regression.model import RidgeModel
from ..statistics.float32 import WIRE_DTYPES
from .requests import MODES, Limits
from .screening.outliers import SCREENS

_SMALLEST_TOL = 1e-15

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
    alphas: Alphas | None = None
    cv: str | None = None
    one_standard_error: bool = False
    wire_dtype: str = "float64"
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
    formula: TableFormula | None = None
    family: str = "gaussian"

    selection: str | None = field(init=False)
    """How alpha is chosen: "clients", "server", "gcv", with privacy "noise", or not."""
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
    accepts_plain: bool = field(init=False)
    """Whether (G, h) alone is enough for what is solved."""

    def __post_init__(self) -> None:
        """Refuse settings that would only fail after the round."""
        check_alpha(self.alpha)
        check_choice("mode", self.mode, MODES)
        check_whole("max_rounds", self.max_rounds)
        check_whole("max_bytes", self.max_bytes)
        object.__setattr__(self, "feature_map", as_feature_map(self.feature_map))
        formula = as_formula(self.formula)
        object.__setattr__(self, "formula", formula)
        if formula is not None:
            check_formula_settings(self, formula)
        if not isinstance(self.tol, float) or not _SMALLEST_TOL <= self.tol < 1.0:
            raise FedRidgeError(
                f"tol must be a number from {_SMALLEST_TOL:g} to below 1, got "
                f"{self.tol!r}."
            )
        check_choice("screen", self.screen, SCREENS)
        check_choice("unnamed", self.unnamed, ("refuse", "accept"))
        check_flag("strict", self.strict)
        if isinstance(self.feature_names, str):
            raise FedRidgeError("feature_names must be a sequence of names, not text.")
        if self.privacy is not None:
            check_private_settings(self)
        elif self.cv is not None:
            check_choice("cv", self.cv, ("clients", "server", "gcv"))
        if self.alphas is not None and not is_auto(self.alphas):
            check_alphas(self.alphas)
        check_choice("family", self.family, FAMILY_NAMES)
        self._derive()
        if self.family != "gaussian":
            check_family_settings(self)
        if self.mode != "oneshot":
            check_rounds_settings(self)
        if self.one_standard_error and self.selection in (None, "gcv"):
            raise FedRidgeError(
                'the one-standard-error rule needs cv="clients" or cv="server".'
            )
        check_choice("wire_dtype", self.wire_dtype, WIRE_DTYPES)
        check_whole("the number of valid answers needed", self.min_clients)
        if not isinstance(self.save_model, str | os.PathLike | None):
            raise FedRidgeError(f"save_model must be a path, got {self.save_model!r}.")
        if self.on_model is not None and not callable(self.on_model):
            raise FedRidgeError("on_model must be a function of the fitted model.")

    def _derive(self) -> None:
        """Set what follows from the settings; a fit looks at it again and again."""
        private, choice = self.privacy is not None, self.cv
        if choice is None and self.alphas is not None:
            choice = "noise" if private else "server"
        options = {"fit_intercept": self.fit_intercept, "standardize": self.standardize}
        only_one_shot = private or choice is not None
        one_shot = self.mode == "oneshot" or (self.mode == "auto" and only_one_shot)
        needs_data = self.feature_map is not None and self.feature_map.needs_data
        rounds = 1 if one_shot else self.max_rounds
        iterates = self.family != "gaussian"
        rounds += min(self.max_rounds, FAMILY_ROUNDS) if iterates else 0
        agrees = needs_data or self.formula is not None
        rounds += needs_data + (self.formula is not None)
        rounds += MORE_AGREEMENTS if agrees else 0
        names, screens = self.feature_names, self.screen != "off" and not private
        excludes = screens and self.screen == "exclude"
        derived = {
            "selection": choice,
            "options": options,
            "one_shot": one_shot,
            "limits": Limits(max_bytes=self.max_bytes),
            "map_needs_data": needs_data,
            "rounds": rounds if self.privacy is None else self.privacy.rounds,
            "schema": None
            if names is None
            else Schema.of(len(names), feature_names=names),
            "screens": screens,
            "excludes": excludes,
            "keeps_parts": excludes or iterates or choice in ("clients", "server"),
            "keep_bytes": SCREENED_BYTES if screens else 0,
            "accepts_plain": not any([*options.values(), choice]),
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


def check_formula_settings(settings: FitSettings, formula: TableFormula) -> None:
    """Refuse what a formula says already; it may leave the intercept out."""
    if settings.feature_names is not None:
        raise FedRidgeError("the columns are those of the formula: no feature_names.")
    if not formula.intercept:
        object.__setattr__(settings, "fit_intercept", False)
    if settings.privacy is not None:
        Coding.public(formula)


def check_rounds_settings(settings: FitSettings) -> None:
    """Refuse what needs all statistics, which are not sent in several rounds."""
    mode = settings.mode
    if settings.max_rounds < 2:
        raise FedRidgeError(
            f'mode="{mode}" needs max_rounds of 2 or more, got {settings.max_rounds}.'
        )
    if mode == "auto":
        return
    if settings.selection is not None:
        raise FedRidgeError(
            f'alpha cannot be chosen with mode="{mode}", which never has the '
            'statistics: use mode="oneshot", or one run for each alpha.'
        )
    if settings.wire_dtype != "float64":
        raise FedRidgeError(
            f'wire_dtype="{settings.wire_dtype}" is for mode="oneshot"; mode="{mode}" '
            "sends vectors of float64, and all else as small as it may be."
        )


def check_family_settings(settings: FitSettings) -> None:
    """Refuse what a likelihood that is maximised in rounds does not go with."""
    what = f'family="{settings.family}"'
    if settings.privacy is not None:
        raise PrivacyError(
            f"{what} is not available with privacy: every round would be a release of "
            'its own about the same rows. Use family="gaussian" on 0 and 1.'
        )
    if settings.mode not in ("oneshot", "auto"):
        raise FedRidgeError(
            f'{what} has rounds of its own, each with all statistics: mode="'
            f'{settings.mode}" is for family="gaussian".'
        )
    if settings.wire_dtype != "float64":
        raise FedRidgeError(
            f"{what} sends float64: rounding to {settings.wire_dtype} would move where "
            "the rounds end."
        )
    if settings.selection == "gcv":
        raise FedRidgeError(
            f'cv="gcv" is for family="gaussian": with {what} alpha is chosen by the '
            'deviance of clients that are left out, cv="server" or cv="clients".'
        )


def check_private_settings(settings: FitSettings) -> None:
    """Refuse what would tell more than a private release does, with the reason."""
    privacy = settings.privacy
    if not isinstance(privacy, DifferentialPrivacy):
        raise PrivacyError(
            f"privacy must be DifferentialPrivacy(...), got {privacy!r}."
        )
    if settings.cv == "gcv":
        raise PrivacyError(
            'cv="gcv" needs the exact sum of squared residuals, which is not sent with '
            'privacy. Give alphas alone (cv="noise"): alpha is then chosen from the '
            "noisy statistics, at no cost in privacy."
        )
    if settings.cv not in (None, "noise"):
        raise PrivacyError(
            f'cv="{settings.cv}" is not available with privacy: losses of clients are '
            "a further release about the same rows, and exact statistics of single "
            'clients are not sent. Give alphas alone (cv="noise"): alpha is then '
            "chosen from the noisy statistics, at no cost in privacy."
        )
    if settings.mode in ("refine", "cg"):
        raise PrivacyError(
            f'mode="{settings.mode}" asks for exact products, which are not private. '
            "Private rounds are DifferentialPrivacy(..., rounds=R)."
        )
    if settings.feature_map is not None and settings.feature_map.needs_data:
        raise PrivacyError(
            "the feature map would take numbers from the data, which are private: give "
            "them from public knowledge, as Standardize(means=[...], scales=[...]) and "
            "RandomFourierFeatures(200, gamma=0.1)."
        )
    if settings.screen == "exclude":
        raise PrivacyError(
            'screen="exclude" compares the statistics of single clients, which noise '
            "hides: a private fit cannot tell who is unlike the others. Leave "
            "screen alone; nothing is then compared."
        )
    if settings.standardize:
        raise PrivacyError(
            "standardize=True would scale by variances of the data, which are private: "
            "scale features by public constants in load_data."
        )
    if settings.wire_dtype != "float64":
        raise PrivacyError('a private release is sent as wire_dtype="float64".')
    if privacy.trust == "secagg":
        raise PrivacyError(
            'trust="secagg" needs secure sums, which this version does not have: use '
            '"local", or "server" if the server may see sums of single clients.'
        )
    if privacy.rounds > 1 and settings.alphas is not None:
        raise PrivacyError("alpha cannot be chosen with more than one private round.")


def is_auto(alphas: object) -> bool:
    """Whether the candidates for alpha are to be made from the data."""
    return isinstance(alphas, str) and alphas == "auto"
