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
from ..regression.inference import COVARIANCES
from ..regression.model import RidgeModel
from ..statistics.encoding import STATISTICS
from ..statistics.float32 import WIRE_DTYPES
from .requests import MODES, Limits
from .screening.outliers import SCREENS
from .secure_sum.terms import SecureSum

_SMALLEST_TOL = 1e-15

SECURE_ROUNDS = 4

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
        check_choice("standard_errors", self.standard_errors, COVARIANCES)
        check_choice("screen", self.screen, SCREENS)
        check_choice("unnamed", self.unnamed, ("refuse", "accept"))
        check_flag("strict", self.strict)
        if isinstance(self.feature_names, str):
            raise FedRidgeError("feature_names must be a sequence of names, not text.")
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
            check_alphas(self.alphas)
        check_choice("family", self.family, FAMILY_NAMES)
        self._derive()
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
            "rounds": SECURE_ROUNDS
            if secure
            else rounds
            if self.privacy is None
            else self.privacy.steps,
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


def check_class_settings(settings: FitSettings) -> None:
    """Keep classes and their weights by label, or say what is wrong with them."""
    from ..data.labels import check_class_weight, check_classes

    classes, weight = settings.classes, settings.class_weight
    if classes is None:
        raise FedRidgeError('class_weight needs classes: use classes="auto".')
    if not (isinstance(classes, str) and classes == "auto"):
        object.__setattr__(settings, "classes", check_classes(classes))
    if weight is not None and not (isinstance(weight, str) and weight == "balanced"):
        object.__setattr__(settings, "class_weight", check_class_weight(weight))


def check_formula_settings(settings: FitSettings, formula: TableFormula) -> None:
    """Refuse what a formula says already; it may leave the intercept out."""
    if settings.feature_names is not None:
        raise FedRidgeError("the columns are those of the formula: no feature_names.")
    if settings.classes is not None:
        raise FedRidgeError(
            "classes is for clients that have X and y: the target of a formula is a "
            "number. Code two classes as 0 and 1, or let load_data return (X, labels)."
        )
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
    if settings.standard_errors != "classical":
        raise FedRidgeError(
            f'standard_errors="{settings.standard_errors}" needs the statistics, which '
            f'mode="{mode}" never has: use mode="oneshot".'
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
        "several private rounds, each of which would be a secure sum of its own, and "
        'clients take part in one per run, or "moments": use trust="server", which has '
        "the same noise, or one round": privacy is not None and privacy.uses_residuals,
        "neighbours of a client that are not all others, since each must count who "
        "adds noise": private and settings.secure.neighbours is not None,
        f'cv="{cv}" compares single clients: use cv="gcv", which needs the total '
        'only, or cv="groups"': not private and cv not in (None, "gcv", "groups"),
        f'screen="{screen}" compares single clients: leave it out': screen == "exclude",
        f'mode="{settings.mode}" sends products of single clients: use '
        'mode="oneshot"': settings.mode in ("refine", "cg"),
        f'standard_errors="{settings.standard_errors}" needs sums of single clients: '
        "leave it out": settings.standard_errors != "classical",
        "labels of classes are told by single clients": settings.classes is not None,
        f'statistics="{settings.statistics}" cannot be added up under masks: leave it '
        "out": settings.statistics == "triangular",
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


def check_form_settings(settings: FitSettings) -> None:
    """Refuse what has no sums of all rows, or would spoil what their form keeps."""
    form, mode = settings.statistics, settings.mode
    reasons = {
        "privacy adds its noise to other sums": settings.privacy is not None,
        f'mode="{mode}" sends no sums of all rows': mode != "oneshot",
        "float32 has fewer digits than it keeps": settings.wire_dtype != "float64",
        "labels of classes are sent as moments": settings.classes is not None,
        "the feature map takes numbers from the data, whose rounding depends on the "
        "order of clients (give them, as in Standardize(means=[...], scales=[...]))": (
            form == "fixed" and settings.map_needs_data
        ),
    }
    wrong = [reason for reason, applies in reasons.items() if applies]
    if wrong:
        raise FedRidgeError(
            f'statistics="{form}" is not available here: {"; ".join(wrong)}. Use '
            'statistics="moments", or leave that out.'
        )


def check_family_settings(settings: FitSettings) -> None:
    """Refuse what a likelihood that is maximised in rounds does not go with."""
    what = f'family="{settings.family}"'
    if settings.privacy is not None:
        raise PrivacyError(
            f"{what} is not available with privacy: every round would be a release of "
            'its own about the same rows. Use family="gaussian" on 0 and 1.'
        )
    others = {
        "secure": "two sums over other clients would tell single ones",
        "statistics": "it sends moments",
        "standard_errors": "they follow from the last round, as in a GLM",
        "classes": "its labels are those of y",
    }
    for name, why in others.items():
        if getattr(settings, name) != getattr(FitSettings, name):
            raise FedRidgeError(f"{name} is not available with {what}: {why}.")
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
    if settings.standard_errors != "classical":
        raise PrivacyError(
            f'standard_errors="{settings.standard_errors}" is not available with '
            "privacy: there are no standard errors of noisy statistics."
        )
    if settings.classes is not None:
        raise PrivacyError(
            "classes is not available with privacy: labels and their counts are sent "
            "as they are. Code two public classes as -1 and 1 in load_data."
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
    if privacy.uses_residuals and settings.alphas is not None:
        raise PrivacyError(
            'alpha cannot be chosen with more than one private round, or "moments": '
            "the questions to the clients depend on it. Give one alpha; beyond it, "
            "coefficients are shrunk as far as the noise demands."
        )


def is_auto(alphas: object) -> bool:
    """Whether the candidates for alpha are to be made from the data."""
    return isinstance(alphas, str) and alphas == "auto"
