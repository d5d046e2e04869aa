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
from ..regression.model import RidgeModel
from ..statistics.float32 import WIRE_DTYPES
from .requests import MODES, STATISTICS, Limits
from .screening.outliers import SCREENS
from .secure_sum.terms import SecureSum

_SMALLEST_TOL = 1e-15

SECURE_ROUNDS = 4

MORE_AGREEMENTS = 3
"""How often a feature map is made again because clients have gone."""

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
            check_choice("cv", self.cv, ("clients", "server", "gcv", "groups"))
            if self.cv == "groups" and self.secure is None:
                raise FedRidgeError(
                    'cv="groups" is for secure sums, where nobody sees single clients: '
                    'use cv="server".'
                )
        if self.alphas is not None and not is_auto(self.alphas):
            check_alphas(self.alphas)
        self._derive()
        if self.mode != "oneshot":
            check_rounds_settings(self)
        if self.one_standard_error and self.selection in (None, "gcv"):
            raise FedRidgeError(
                'the one-standard-error rule needs cv="clients" or cv="server".'
            )
        check_choice("wire_dtype", self.wire_dtype, WIRE_DTYPES)
        check_choice("statistics", self.statistics, STATISTICS)
        if self.secure is not None:
            check_secure_settings(self)
        if self.statistics == "fixed":
            check_fixed_settings(self)
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
        only_one_shot = private or secure or choice is not None
        one_shot = self.mode == "oneshot" or (self.mode == "auto" and only_one_shot)
        needs_data = self.feature_map is not None and self.feature_map.needs_data
        rounds = 1 if one_shot else self.max_rounds
        agrees = needs_data or self.formula is not None
        rounds += needs_data + (self.formula is not None)
        rounds += MORE_AGREEMENTS if agrees else 0
        names, hidden = self.feature_names, private or secure
        screens = self.screen != "off" and not hidden
        excludes = screens and self.screen == "exclude"
        derived = {
            "selection": choice,
            "options": options,
            "one_shot": one_shot,
            "limits": Limits(max_bytes=self.max_bytes),
            "map_needs_data": needs_data,
            "rounds": SECURE_ROUNDS
            if secure
            else rounds
            if self.privacy is None
            else self.privacy.rounds,
            "schema": None
            if names is None
            else Schema.of(len(names), feature_names=names),
            "screens": screens,
            "excludes": excludes,
            "keeps_parts": excludes or secure or choice in ("clients", "server"),
            "keep_bytes": SCREENED_BYTES if screens else 0,
            "accepts_plain": not any([*options.values(), choice])
            and self.statistics == "moments",
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


def check_secure_settings(settings: FitSettings) -> None:
    """Refuse what needs the numbers of single clients, which nobody sees."""
    if not isinstance(settings.secure, SecureSum):
        raise FedRidgeError(f"secure must be SecureSum(...), got {settings.secure!r}.")
    cv, screen, privacy = settings.cv, settings.screen, settings.privacy
    private = privacy is not None
    reasons = {
        'privacy with another trust than "secagg", by which every client adds its part '
        "of the noise": privacy is not None and privacy.trust != "secagg",
        "several private rounds": privacy is not None and privacy.rounds > 1,
        "neighbours of a client that are not all others, since each must count who "
        "adds noise": private and settings.secure.neighbours is not None,
        f'cv="{cv}" compares single clients: use cv="gcv", which needs the total '
        'only, or cv="groups"': not private and cv not in (None, "gcv", "groups"),
        f'screen="{screen}" compares single clients: leave it out': screen == "exclude",
        f'mode="{settings.mode}" sends products of single clients: use '
        'mode="oneshot"': settings.mode in ("refine", "cg"),
        f'wire_dtype="{settings.wire_dtype}" is not exact, and masks need whole '
        "numbers: leave it out": settings.wire_dtype != "float64",
        "the feature map takes means and variances from single clients: give them "
        "from public knowledge, as Standardize(means=[...], scales=[...])": (
            settings.map_needs_data
        ),
    }
    wrong = [reason for reason, applies in reasons.items() if applies]
    if wrong:
        raise FedRidgeError(f"not available with secure sums: {'; '.join(wrong)}.")
    if settings.formula is not None:
        Coding.public(settings.formula)
    if not private:
        object.__setattr__(settings, "statistics", "fixed")


def check_fixed_settings(settings: FitSettings) -> None:
    """Refuse what is not the same bits in any order, or no integers at all."""
    reasons = {
        "privacy adds its noise to other sums": settings.privacy is not None,
        f'mode="{settings.mode}" sends no sums of all rows': settings.mode != "oneshot",
        "integers are not sent as float32": settings.wire_dtype != "float64",
        "the feature map takes numbers from the data, whose rounding depends on the "
        "order of clients (give them, as in Standardize(means=[...], scales=[...]))": (
            settings.map_needs_data
        ),
    }
    wrong = [reason for reason, applies in reasons.items() if applies]
    if wrong:
        raise FedRidgeError(
            f'statistics="fixed" is not available here: {"; ".join(wrong)}. Use '
            'statistics="moments", or leave that out.'
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
    if privacy.trust == "secagg" and settings.secure is None:
        raise PrivacyError(
            'trust="secagg" is for secure sums, FedRidge(secure=SecureSum(), ...). '
            'Without them use "local", or "server" if the server may see sums of '
            "single clients."
        )
    if privacy.rounds > 1 and settings.alphas is not None:
        raise PrivacyError("alpha cannot be chosen with more than one private round.")


def is_auto(alphas: object) -> bool:
    """Whether the candidates for alpha are to be made from the data."""
    return isinstance(alphas, str) and alphas == "auto"
