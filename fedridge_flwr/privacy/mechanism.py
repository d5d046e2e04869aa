"""`DifferentialPrivacy`: what is promised, and the noise that keeps the promise."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from ..errors import MissingBoundError, PrivacyError, PrivacyWarning
from .accounting import classical_multiplier, epsilon_of, noise_multiplier
from .budget_shares import Shares, one_shot_shares, refinement_shares
from .clipping import Bounds

__all__ = [
    "CALIBRATIONS",
    "ESTIMATORS",
    "PREFIX",
    "RELATIONS",
    "TRUSTS",
    "DifferentialPrivacy",
    "check_one_of",
    "in_range",
]

RELATIONS = ("add-or-remove-one", "replace-one")
TRUSTS = ("local", "server", "secagg")
CALIBRATIONS = ("exact", "paper")
ESTIMATORS = ("noise_aware", "ridge_floor", "plain")

_MOST_ROUNDS = 1000
_MISSING = math.nan
_RANGES = {
    "epsilon": (0.0, 1e15),
    "delta": (0.0, 1.0),
    "x_norm_bound": (1e-30, 1e30),
    "y_bound": (1e-30, 1e30),
}


@dataclass(frozen=True)
class DifferentialPrivacy:
    """(epsilon, delta)-differential privacy of every single record of every client.

    A row (a, b) with ``‖a‖ <= Bx`` and ``|b| <= By`` adds::

        z = (√p_G a aᵀ / Bx², √p_h a b / (Bx By), √p_yy b² / By²)

    of length at most 1, since the shares p add up to 1. Gaussian noise of deviation
    ``sigma(epsilon, delta)`` on z, that is ``sigma · bound / √share`` on every block,
    is then exactly (epsilon, delta)-private, for the whole answer, not for each part.

    Parameters
    ----------
    epsilon, delta : float
        What is promised for the whole fit. There is no default.
    x_norm_bound : float
        Bound Bx on the Euclidean length of a row of features; longer rows are
        shortened. It must come from public knowledge, never from the data.
    y_bound : float
        Bound By on the absolute target, or on the length of several targets.
    neighboring : {"add-or-remove-one", "replace-one"}
        Data sets that must look alike: with or without one record, or with another in
        its place; the number of rows is then public.
    trust : {"local", "server", "secagg"}
        Who is trusted. "local": nobody, every client adds the whole noise. "server":
        the server, which sees the clipped sums and adds the noise once. "secagg":
        nobody who sees single sums; every client adds its part of the noise. The
        strategies refuse "secagg" in this version, which has no secure sums.
    rounds : int
        1 is the one-shot release. More is residual refinement (experimental): the
        same (epsilon, delta) spread over this many rounds.
    min_clients : int
        With "secagg", clients that must answer, or there is no release.
    max_colluding : int
        With "secagg", clients that may tell their own noise to others.
    budget_split : mapping, optional
        Shares of "gram", "moment" and, for a noisy R², "target_gram"; by default half
        and half.
    calibration : {"exact", "paper"}
        "paper" is its Algorithm 2, which is not what it claims to be; it warns with the
        true epsilon and is there to repeat the paper.
    estimator : {"noise_aware", "ridge_floor", "plain"}
        How coefficients come from noisy statistics. "noise_aware" weighs every
        direction by what the noise leaves of it. "ridge_floor" raises alpha to the
        largest eigenvalue of the noise. "plain" solves as if there were none, as the
        paper does, and can be arbitrarily wrong.

    Raises
    ------
    PrivacyError
        If anything is missing or is not clearly private.

    Warns
    -----
    PrivacyWarning
        With ``calibration="paper"``.

    Notes
    -----
    ========================  ====================================================
    input                     result
    ========================  ====================================================
    no bound                  `PrivacyError` that is a `TypeError` too: there is no
                              guess from the data
    epsilon 0, NaN, infinite  `PrivacyError`; no privacy is ``privacy=None``
    NaN or infinity in a row  the row counts for nothing
    a client without rows     sends noise only, like everybody
    sample weights            refused: the bounds do not cover them
    ========================  ====================================================

    Examples
    --------
    >>> from fedridge_flwr import DifferentialPrivacy
    >>> privacy = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=1.0, y_bound=2.0)
    >>> round(privacy.noise_multiplier, 4)
    3.7306
    >>> DifferentialPrivacy(0.0, 1e-5, x_norm_bound=1.0, y_bound=2.0)
    Traceback (most recent call last):
    fedridge_flwr.errors.PrivacyError: epsilon must be a number above 0 and below \
1e+15, got 0.0; for no privacy at all use privacy=None.
    """

    epsilon: float
    delta: float
    x_norm_bound: float = field(default=_MISSING, kw_only=True)
    y_bound: float = field(default=_MISSING, kw_only=True)
    neighboring: str = field(default="add-or-remove-one", kw_only=True)
    trust: str = field(default="local", kw_only=True)
    rounds: int = field(default=1, kw_only=True)
    min_clients: int = field(default=1, kw_only=True)
    max_colluding: int = field(default=0, kw_only=True)
    budget_split: Mapping[str, float] | None = field(default=None, kw_only=True)
    calibration: str = field(default="exact", kw_only=True)
    estimator: str = field(default="noise_aware", kw_only=True)

    def __post_init__(self) -> None:
        """Refuse whatever is not clearly private."""
        if any(_is_missing(bound) for bound in (self.x_norm_bound, self.y_bound)):
            raise MissingBoundError(
                "x_norm_bound and y_bound must be given: the longest row of features "
                "and the largest absolute target, from public knowledge and never from "
                "the data."
            )
        for name in _RANGES:
            object.__setattr__(self, name, in_range(name, getattr(self, name)))
        for name, known in (
            ("neighboring", RELATIONS),
            ("trust", TRUSTS),
            ("calibration", CALIBRATIONS),
            ("estimator", ESTIMATORS),
        ):
            check_one_of(name, getattr(self, name), known)
        _check_whole("rounds", self.rounds, 1)
        _check_whole("min_clients", self.min_clients, 1)
        _check_whole("max_colluding", self.max_colluding, 0)
        if self.rounds > _MOST_ROUNDS:
            raise PrivacyError(f"rounds must be at most {_MOST_ROUNDS}.")
        if self.max_colluding >= self.min_clients and self.trust == "secagg":
            raise PrivacyError(
                f"max_colluding={self.max_colluding} leaves none of "
                f"min_clients={self.min_clients} to add noise that stays unknown."
            )
        if self.budget_split is not None:
            object.__setattr__(self, "budget_split", dict(self.budget_split))
        self._check_together()
        self.shares(1)
        if self.calibration == "paper":
            warnings.warn(
                f'calibration="paper" claims epsilon {self.epsilon:g} and gives '
                f"{self.true_epsilon():.3g} at delta {self.delta:g}: G and h leave "
                "together but are noised as if only one did, by a formula that holds "
                "up to epsilon 1. Use it to repeat the paper, and for nothing else.",
                PrivacyWarning,
                stacklevel=3,
            )

    def _check_together(self) -> None:
        if self.rounds > 1:
            if self.calibration != "exact" or self.estimator != "noise_aware":
                raise PrivacyError(
                    "more than one round has its own solution: leave calibration and "
                    "estimator at their defaults."
                )
            if self.budget_split is not None:
                raise PrivacyError("budget_split is fixed with more than one round.")
        odd = self.budget_split is not None or self.neighboring != RELATIONS[0]
        if self.calibration == "paper" and odd:
            raise PrivacyError(
                'calibration="paper" has neither budget_split nor "replace-one".'
            )

    def bounds(self, n_features: int, n_targets: int, intercept: bool) -> Bounds:
        """Return the bounds of a row of this size, and the grid they give.

        Parameters
        ----------
        n_features : int
            Number of features.
        n_targets : int
            Number of targets.
        intercept : bool
            Whether rows carry a constant as one more feature.
        """
        return Bounds(self.x_norm_bound, self.y_bound, n_features, n_targets, intercept)

    # ---- noise ------------------------------------------------------------------

    def shares(self, server_round: int) -> Shares:
        """Return the shares of the budget that the blocks of one round have.

        Parameters
        ----------
        server_round : int
            The round, from 1; only refinement has more than one.
        """
        if self.rounds > 1:
            return refinement_shares(self.rounds, server_round)
        return one_shot_shares(self.budget_split)

    def sensitivity(self, n_targets: int = 1) -> float:
        """Return how far one record moves the whole release z, all rounds together.

        Parameters
        ----------
        n_targets : int
            Number of targets, which matters for "replace-one" only.
        """
        if self.neighboring == "add-or-remove-one":
            return 1.0
        return 2.0 if self.rounds > 1 else self.shares(1).replacement(n_targets)

    @property
    def noise_multiplier(self) -> float:
        """Deviation of the noise over the sensitivity of the whole release."""
        if self.calibration == "paper":
            # Each of the blocks gets tau, as if it were alone.
            tau = classical_multiplier(self.epsilon, self.delta)
            return tau / math.sqrt(len(self.shares(1).of))
        return noise_multiplier(self.epsilon, self.delta)

    def deviation(self, block: str, server_round: int = 1, n_targets: int = 1) -> float:
        """Return the deviation of the noise on a block with bound 1.

        Parameters
        ----------
        block : str
            "gram", "moment" or "target_gram"; in refinement "count", "trace", "gram"
            and "residual".
        server_round, n_targets : int
            As in `shares` and `sensitivity`.
        """
        share = self.shares(server_round).of[block]
        unit = self.noise_multiplier * self.sensitivity(n_targets)
        return unit / math.sqrt(share)

    @property
    def client_part(self) -> float:
        """Part of that deviation which every client adds to its own sums.

        1 with ``trust="local"``, 0 with "server".
        """
        if self.trust == "server":
            return 0.0
        if self.trust == "secagg":
            return 1.0 / math.sqrt(self.min_clients - self.max_colluding)
        return 1.0

    def mu(self, neighboring: str | None = None) -> float:
        """Return how well neighbours can be told apart: N(0, 1) against N(mu, 1).

        Under the other relation it is a bound: replacing is removing and adding.

        Parameters
        ----------
        neighboring : str, optional
            The relation; by default that of the mechanism.

        Examples
        --------
        Two fits with the same promise, together:

        >>> from fedridge_flwr import DifferentialPrivacy
        >>> from fedridge_flwr.privacy import compose, epsilon_of
        >>> privacy = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=1.0, y_bound=1.0)
        >>> round(epsilon_of(compose([privacy.mu(), privacy.mu()]), 1e-5), 3)
        1.465
        """
        mu = 1.0 / self.noise_multiplier
        harder = self.neighboring == "add-or-remove-one"
        return 2 * mu if harder and neighboring == "replace-one" else mu

    def true_epsilon(self, delta: float | None = None) -> float:
        """Return the epsilon that the noise really gives at this delta.

        Parameters
        ----------
        delta : float, optional
            Another delta than that of the promise.

        Examples
        --------
        >>> from fedridge_flwr import DifferentialPrivacy
        >>> privacy = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=1.0, y_bound=1.0)
        >>> round(privacy.true_epsilon(), 6), round(privacy.true_epsilon(1e-7), 3)
        (1.0, 1.273)
        """
        return epsilon_of(self.mu(), self.delta if delta is None else delta)

    def rows_needed(
        self, n_features: int, n_clients: int, typical_norm: float | None = None
    ) -> float:
        """Return how many rows, of all clients, make G more than noise in one round.

        ``2 sigma sqrt(K) d^1.5 (Bx / |a|)²``: from there on the average eigenvalue of G
        is above the largest one of its noise. With fewer the coefficients are shrunk
        hard, or 0.

        Parameters
        ----------
        n_features : int
            Number of features d.
        n_clients : int
            Number of clients K; with a trusted server it does not matter.
        typical_norm : float, optional
            Typical length of a row; by default that of the bound.

        Examples
        --------
        >>> from fedridge_flwr import DifferentialPrivacy
        >>> privacy = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=1.0, y_bound=1.0)
        >>> round(privacy.rows_needed(n_features=10, n_clients=5), -1)
        530.0
        """
        clients = 1 if self.trust == "server" else n_clients
        longer = self.x_norm_bound / (typical_norm or self.x_norm_bound)
        share = one_shot_shares(self.budget_split).of["gram"]
        unit = self.noise_multiplier * self.sensitivity() / math.sqrt(share)
        directions = math.sqrt(2.0 * clients * n_features)
        return unit * directions * n_features * longer**2

    # ---- on the wire --------------------------------------------------------------

    def to_config(self) -> dict[str, float | int | str]:
        """Return the settings a client needs, as scalars of a Flower config."""
        content: dict[str, float | int | str] = {
            f"{PREFIX}{name.replace('_', '-')}": getattr(self, name)
            for name in _SCALARS
        }
        for block, share in (self.budget_split or {}).items():
            content[f"{_SHARE}{block.replace('_', '-')}"] = share
        return content

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> DifferentialPrivacy | None:
        """Return what a request asks for, None if it asks for no privacy.

        Whatever is missing or unknown is an error: privacy fails closed.

        Parameters
        ----------
        config : mapping
            Configuration of a request; only keys that begin with "privacy-" count.

        Raises
        ------
        PrivacyError
            If a setting is missing, unknown, or not clearly private.

        Examples
        --------
        >>> from fedridge_flwr import DifferentialPrivacy
        >>> privacy = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=1.0, y_bound=1.0)
        >>> DifferentialPrivacy.from_config(privacy.to_config()) == privacy
        True
        """
        asked = {k: v for k, v in config.items() if str(k).startswith(PREFIX)}
        if not asked:
            return None
        values: dict[str, Any] = {}
        for name in _SCALARS:
            key = f"{PREFIX}{name.replace('_', '-')}"
            if key not in asked:
                raise PrivacyError(f"the request for privacy lacks {key}.")
            values[name] = asked.pop(key)
        split = {}
        for key in [k for k in asked if k.startswith(_SHARE)]:
            split[key.removeprefix(_SHARE).replace("-", "_")] = asked.pop(key)
        if asked:
            raise PrivacyError(
                "the request for privacy has settings this client does not know: "
                "install the same fedridge-flwr on both sides."
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            return cls(**values, budget_split=split or None)


PREFIX = "privacy-"
_SHARE = f"{PREFIX}share-"
_SCALARS = (
    "epsilon",
    "delta",
    "x_norm_bound",
    "y_bound",
    "neighboring",
    "trust",
    "rounds",
    "min_clients",
    "max_colluding",
    "calibration",
)


_HINTS = {
    "epsilon": "; for no privacy at all use privacy=None",
    "delta": "; choose it well below one over the rows of a client, as 1e-5",
}


def _is_missing(bound: object) -> bool:
    return bound is None or (isinstance(bound, float) and math.isnan(bound))


def in_range(name: str, value: object) -> float:
    """Return a number that may be this epsilon, delta or bound, or say why not."""
    low, high = _RANGES[name]
    real = isinstance(value, Real) and not isinstance(value, bool)
    number = float(value) if real else math.nan  # type: ignore[arg-type]
    if not low < number < high:
        hint = _HINTS.get(name, "") if real else ""
        raise PrivacyError(
            f"{name} must be a number above {low:g} and below {high:g}, got "
            f"{value!r}{hint}."
        )
    return number


def _check_whole(name: str, value: object, low: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise PrivacyError(
            f"{name} must be a whole number of at least {low}, got {value!r}."
        )


def check_one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    """Refuse a word that is not among those known."""
    if value not in known:
        words = ", ".join(f'"{word}"' for word in known)
        raise PrivacyError(f"{name} must be one of {words}, got {value!r}.")
