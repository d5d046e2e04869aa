"""`FitSettings`: what to solve, from how many clients, in which way."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import FedRidgeError, PrivacyError
from ..features import FeatureMap
from ..privacy.mechanism import DifferentialPrivacy
from ..regression.alpha_selection import Alphas, check_alphas
from ..regression.model import RidgeModel
from ..regression.solve import check_alpha
from ..statistics.float32 import WIRE_DTYPES
from .requests import Limits, check_mode
from .screening.comparison import SCREENS

__all__ = [
    "MORE_AGREEMENTS",
    "FitSettings",
    "as_feature_map",
    "check_fraction",
    "check_whole",
    "is_auto",
]

_SMALLEST_TOL = 1e-15

MORE_AGREEMENTS = 3
"""How often a feature map is made anew because clients are gone."""


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

    def __post_init__(self) -> None:
        """Refuse settings that would only fail after the round."""
        check_alpha(self.alpha)
        check_mode(self.mode)
        check_whole("max_rounds", self.max_rounds)
        check_whole("max_bytes", self.max_bytes)
        object.__setattr__(self, "feature_map", as_feature_map(self.feature_map))
        if not isinstance(self.tol, float) or not _SMALLEST_TOL <= self.tol < 1.0:
            raise FedRidgeError(
                f"tol must be a number from {_SMALLEST_TOL:g} to below 1, got "
                f"{self.tol!r}."
            )
        if not isinstance(self.screen, str) or self.screen not in SCREENS:
            raise FedRidgeError(
                f'screen must be "report", "exclude" or "off", got {self.screen!r}.'
            )
        if self.privacy is not None:
            check_private_settings(self)
        elif self.cv not in (None, "clients", "server", "gcv"):
            raise FedRidgeError(
                f'cv must be "clients", "server" or "gcv", got {self.cv!r}.'
            )
        if self.alphas is not None and not is_auto(self.alphas):
            check_alphas(self.alphas)
        if self.mode != "oneshot":
            check_rounds_settings(self)
        if self.one_standard_error and self.selection in (None, "gcv"):
            raise FedRidgeError(
                'the one-standard-error rule needs cv="clients" or cv="server".'
            )
        if not isinstance(self.wire_dtype, str) or self.wire_dtype not in WIRE_DTYPES:
            raise FedRidgeError(
                f'wire_dtype must be "float64" or "float32", got {self.wire_dtype!r}.'
            )
        check_whole("the number of valid answers needed", self.min_clients)
        if isinstance(self.feature_names, str):
            raise FedRidgeError("feature_names must be a sequence of names, not text.")
        if not isinstance(self.save_model, str | os.PathLike | None):
            raise FedRidgeError(f"save_model must be a path, got {self.save_model!r}.")
        if self.on_model is not None and not callable(self.on_model):
            raise FedRidgeError("on_model must be a function of the fitted model.")

    @property
    def selection(self) -> str | None:
        """How alpha is to be chosen: "clients", "server", "gcv", or not at all.

        With privacy on there is only "noise".
        """
        default = "server" if self.privacy is None else "noise"
        return default if self.cv is None and self.alphas is not None else self.cv

    @property
    def one_shot(self) -> bool:
        """Whether everything is sent at once, whatever the number of features.

        "auto" stays with one shot where nothing else can be had.
        """
        only = self.privacy is not None or self.selection is not None
        return self.mode == "oneshot" or (self.mode == "auto" and only)

    @property
    def limits(self) -> Limits:
        """Where "auto" changes its mind."""
        return Limits(max_bytes=self.max_bytes)

    @property
    def rounds(self) -> int:
        """Train rounds of the fit, at most."""
        if self.privacy is not None:
            return self.privacy.rounds
        needs_data = self.feature_map is not None and self.feature_map.needs_data
        first = 1 + MORE_AGREEMENTS if needs_data else 0
        return first + (1 if self.one_shot else self.max_rounds)

    @property
    def screens(self) -> bool:
        """Whether clients are compared with each other; noise would hide it all."""
        return self.screen != "off" and self.privacy is None

    @property
    def options(self) -> dict[str, Any]:
        """What every solver is told."""
        return {"fit_intercept": self.fit_intercept, "standardize": self.standardize}


def as_feature_map(given: object) -> FeatureMap | None:
    """Return a feature map that is given as such, or in words."""
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
            f'cv="{settings.cv}" cannot be had with privacy: losses of clients are a '
            "further release about the same rows, and exact statistics of single "
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


def check_whole(what: str, value: object) -> int:
    """Return a whole number of at least 1, or say what it is for."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise FedRidgeError(
            f"{what} must be a whole number of at least 1, got {value!r}."
        )
    return value


def check_fraction(name: str, value: object) -> float:
    """Return a number between 0 and 1, or say what it is for."""
    if not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
        raise FedRidgeError(f"{name} must be between 0 and 1, got {value!r}.")
    if name in ("fraction_train", "fraction_fit") and value == 0:
        raise FedRidgeError(f"{name} must be above 0: someone has to answer.")
    return float(value)


def is_auto(alphas: object) -> bool:
    """Whether the candidates for alpha are to be made from the data."""
    return isinstance(alphas, str) and alphas == "auto"
