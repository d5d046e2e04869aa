"""`DifferentialPrivacy`: the guarantee, and the noise it needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any

from .._checks import check_whole
from ..errors import MissingBoundError, PrivacyError
from .accounting import epsilon_of, noise_multiplier
from .budget_shares import one_shot_shares, refinement_shares, replacement
from .clipping import Bounds
from .request_fields import from_fields, to_fields
from .validators import check_choice, check_number, check_setting

RELATIONS = ("add-or-remove-one", "replace-one")
CHOICES = {
    "neighboring": RELATIONS,
    "trust": ("local", "server", "secagg"),
    "calibration": ("exact",),
    "estimator": ("noise_aware", "ridge_floor", "moments", "auto"),
}

_WHOLE = (
    ("rules", 1, 2),
    ("rounds", 1, 1000),
    ("waves", 1, 1000),
    ("min_clients", 1, 2**31),
    ("max_colluding", 0, 2**31),
)
_MISSING = math.nan


@dataclass(frozen=True)
class DifferentialPrivacy:
    """(epsilon, delta)-differential privacy for every record of every client.

    A row (a, b) with ``‖a‖ <= Bx`` and ``|b| <= By`` adds::

        z = (√p_G a aᵀ / Bx², √p_h a b / (Bx By), √p_yy b² / By²)

    of length at most 1, since the shares p add up to 1. Gaussian noise of deviation
    ``sigma(epsilon, delta)`` on z, that is ``sigma · bound / √share`` on every block,
    is then exactly (epsilon, delta)-private, for the whole answer, not for each part.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee for the whole fit. There is no default.
    x_norm_bound : float
        Bound Bx on the Euclidean length of a row of features; longer rows are
        shortened. It must come from public knowledge, never from the data.
    y_bound : float
        Bound By on the absolute target, or on the length of several targets.
    neighboring : {"add-or-remove-one", "replace-one"}
        Which data sets are neighbours: with or without one record, or with one record
        replaced by another; the number of rows is then public.
    trust : {"local", "server", "secagg"}
        Who is trusted. "local": nobody; every client adds all of the noise. "server":
        the server, which sees the clipped sums and adds the noise once. "secagg": the
        secure sum; every client adds a part of the noise, and takes part only if
        `min_clients` are in the sum, in every round: ``FedRidge(secure=SecureSum(),
        privacy=...)``.
    rounds : int
        1 is the one-shot release. More is residual refinement: the same (epsilon,
        delta) spread over this many rounds. With "secagg" each is a secure sum.
    waves : int
        Between the first and the last round, ask this many groups of clients one after
        another and update the coefficients after each. Every client still answers
        `rounds` times. For ``trust="local"`` only: noise that is added once per sum
        would be added to the sum of every group.
    min_clients : int
        With "secagg", the number of clients needed for a release.
    max_colluding : int
        With "secagg", the number of clients that may reveal their own noise.
    budget_split : mapping, optional
        Shares of "gram", "moment" and, for a noisy R², "target_gram"; by default
        0.35 and 0.65.
    calibration : {"exact"}
        How the noise is calibrated. The paper's own calibration is less private than it
        claims and is part of the experiments only.
    estimator : {"noise_aware", "ridge_floor", "moments", "auto"}
        How coefficients are estimated from one round. "noise_aware" weighs every
        direction by how much of it is noise. "ridge_floor" raises alpha to the largest
        eigenvalue of the noise. "moments" is the first round of residual refinement
        alone, with hardly any Gram matrix: for many features of about equal variance
        and a small epsilon, with one target. "auto" becomes the estimator and split
        with the smallest `expected_loss`, before anything is released.
    expected : mapping, optional
        For "auto": "n_features", "n_rows" and "n_clients" of all clients together, from
        public knowledge. If features are known to be correlated, "decay" says how fast
        the variances of their principal components fall, as 1/i**decay; by default 0,
        all equal. If they fall like 1/i and "decay" is not given, "auto" may lose
        nearly all of the signal (100 features, 8000 rows, epsilon 0.5: 95% instead of
        51%).
    expected_r2 : float
        With several rounds, how much of the target's variance the features explain, as
        far as is known beforehand: the prior of the estimate. If the features explain
        nothing, so that 1.0 is wrong, the error is about 14, 7 and 4% above predicting
        zero at epsilon 0.1, 0.5 and 1; with 0.6 it is 7, 3 and 2%.
    rules : {2, 1}
        How clients make a release. 1 is version 0.1.0, whose clients refuse any other:
        rows are shortened without the constant of the intercept, which biases it if
        many rows are too long, and the budget is split in halves, or in several rounds
        as in 0.1.0.

    Raises
    ------
    PrivacyError
        If a setting is missing or invalid.

    Notes
    -----
    ========================  ====================================================
    input                     result
    ========================  ====================================================
    no bound                  `PrivacyError` that is also a `TypeError`: bounds are
                              never estimated from the data
    epsilon 0, NaN, infinite  `PrivacyError`; no privacy is ``privacy=None``
    NaN or infinity in a row  the row is dropped
    a client without rows     sends noise only
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
    _: KW_ONLY
    x_norm_bound: float = _MISSING
    y_bound: float = _MISSING
    neighboring: str = "add-or-remove-one"
    trust: str = "local"
    rounds: int = 1
    waves: int = 1
    min_clients: int = 1
    max_colluding: int = 0
    budget_split: Mapping[str, float] | None = None
    calibration: str = "exact"
    estimator: str = "noise_aware"
    expected: Mapping[str, float] | None = None
    expected_r2: float = 1.0
    rules: int = 2

    def __post_init__(self) -> None:
        """Validate all settings."""
        bounds = (self.x_norm_bound, self.y_bound)
        if any(bound is None or bound is _MISSING for bound in bounds):
            raise MissingBoundError(
                "x_norm_bound and y_bound must be given: the longest row of features "
                "and the largest absolute target, from public knowledge and never from "
                "the data."
            )
        for name in ("epsilon", "delta", "x_norm_bound", "y_bound"):
            object.__setattr__(self, name, check_setting(name, getattr(self, name)))
        for name, allowed in CHOICES.items():
            check_choice(name, getattr(self, name), allowed)
        for name, smallest, largest in _WHOLE:
            number = getattr(self, name)
            number = check_whole(name, number, smallest, largest, PrivacyError)
            object.__setattr__(self, name, number)
        if self.max_colluding >= self.min_clients and self.trust == "secagg":
            raise PrivacyError(
                "max_colluding must be below min_clients: some noise must stay unknown."
            )
        if self.budget_split is not None:
            object.__setattr__(self, "budget_split", dict(self.budget_split))
        if self.estimator in ("auto", "moments"):
            self._settle_release()
        fixed = (self.budget_split, self.estimator) == (None, "noise_aware")
        if self.rounds > 1 and not fixed:
            raise PrivacyError(
                "budget_split and estimator are fixed with more than one round."
            )
        self._check_rounds()
        self.shares(1)

    def _settle_release(self) -> None:
        """Put what was chosen in the place of "auto", and the shares of "moments"."""
        if self.budget_split is not None and not self.uses_residuals:
            raise PrivacyError(f"estimator={self.estimator!r} fixes budget_split.")
        if self.estimator == "moments":
            split = refinement_shares(1, 1, self.epsilon, self.rules)
        elif self.rounds == 1:
            from .planning import choose_release

            plain = replace(self, estimator="noise_aware", expected=None)
            estimator, split = choose_release(plain, self.expected)
            object.__setattr__(self, "estimator", estimator)
        else:
            return
        object.__setattr__(self, "budget_split", dict(split))

    @property
    def uses_residuals(self) -> bool:
        """Whether rows answer about residuals, as they do in refinement."""
        return self.rounds > 1 or "residual" in (self.budget_split or ())

    def _check_rounds(self) -> None:
        """Refuse what only several rounds have."""
        if self.waves > 1 and (self.rounds == 1 or self.trust != "local"):
            raise PrivacyError(
                'waves need rounds of 2 or more and trust="local": noise that is added '
                "once per sum would be added to the sum of every wave."
            )
        r2 = check_number("expected_r2", self.expected_r2, above=0.0)
        if r2 > 1.0 or (r2 != 1.0 and self.rounds == 1):
            raise PrivacyError(
                f"expected_r2 must be above 0 and at most 1, got {r2!r}; it is a prior "
                "for several rounds, rounds=20."
            )
        object.__setattr__(self, "expected_r2", r2)

    @property
    def steps(self) -> int:
        """Number of consecutive exchanges; the first and the last ask all clients."""
        return min(self.rounds, 2) + max(self.rounds - 2, 0) * self.waves

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
        return Bounds(
            self.x_norm_bound,
            self.y_bound,
            n_features,
            n_targets,
            intercept,
            clip_constant=self.rules > 1,
        )

    # ---- noise ------------------------------------------------------------------

    def shares(self, server_round: int) -> Mapping[str, float]:
        """Return the shares of the budget that the blocks of one round have.

        Parameters
        ----------
        server_round : int
            The round, from 1; only refinement has more than one.
        """
        if self.rounds > 1:
            return refinement_shares(
                self.rounds, server_round, self.epsilon, self.rules
            )
        return one_shot_shares(self.budget_split, self.rules)

    def sensitivity(self, n_targets: int = 1) -> float:
        """Return how far one record moves the whole release z, all rounds together.

        Parameters
        ----------
        n_targets : int
            Number of targets, which matters for "replace-one" only.
        """
        if self.neighboring == "add-or-remove-one":
            return 1.0
        return 2.0 if self.uses_residuals else replacement(self.shares(1), n_targets)

    @cached_property
    def noise_multiplier(self) -> float:
        """Deviation of the noise over the sensitivity of the whole release."""
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
        share = self.shares(server_round)[block]
        unit = self.noise_multiplier * self.sensitivity(n_targets)
        return unit / math.sqrt(share)

    @property
    def client_part(self) -> float:
        """Fraction of that deviation that every client adds to its own sums.

        1 with ``trust="local"``, 0 with "server".
        """
        if self.trust == "secagg":
            return 1.0 / math.sqrt(self.min_clients - self.max_colluding)
        return 0.0 if self.trust == "server" else 1.0

    def noise_of(self, n_clients: int) -> float:
        """Return the deviation of the noise in a sum of clients over that of one.

        Parameters
        ----------
        n_clients : int
            Number of clients; a trusted server adds noise once whatever it is.
        """
        if self.trust == "server":
            return 1.0
        return self.client_part * math.sqrt(n_clients)

    @property
    def mus(self) -> dict[str, float]:
        """`mu` by relation."""
        return {relation: self.mu(relation) for relation in RELATIONS}

    def mu(self, neighboring: str | None = None) -> float:
        """Return how well neighbours can be told apart: N(0, 1) against N(mu, 1).

        Under the other relation it is a bound: to replace is to remove and to add.

        Parameters
        ----------
        neighboring : str, optional
            The relation; by default that of the mechanism.

        Examples
        --------
        Two fits with the same guarantee, together:

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
        """Return the epsilon of the same noise at another delta.

        Parameters
        ----------
        delta : float, optional
            By default that of the mechanism.

        Examples
        --------
        >>> from fedridge_flwr import DifferentialPrivacy
        >>> privacy = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=1.0, y_bound=1.0)
        >>> round(privacy.true_epsilon(), 6), round(privacy.true_epsilon(1e-7), 3)
        (1.0, 1.273)
        """
        return epsilon_of(self.mu(), self.delta if delta is None else delta)

    def rows_needed(
        self,
        n_features: int,
        n_clients: int,
        typical_norm: float | None = None,
        *,
        explained_sd: float | None = None,
        lost: float = 0.1,
    ) -> float:
        """Return the rows of all clients with which one round loses little to noise.

        ``σ sqrt(K) (d + 1) sqrt([(By/τ)² r²/p_h + d r⁴/(2 p_G)] / lost)``, with r the
        bound on a row over its typical length: the squared error that noise in G and h
        makes is then `lost` of the explained variance τ², to first order and on
        average; one more than d, because a few directions scatter more. With
        0.1, at most 0.2 were lost in nine of ten simulations with 5 to 50 features of
        equal variance.

        Parameters
        ----------
        n_features : int
            Number of features d.
        n_clients : int
            Number of clients K; not used with a trusted server.
        typical_norm : float, optional
            Typical length of a row; by default that of the bound.
        explained_sd : float, optional
            Deviation τ of what a model can explain of the target; by default a third
            of its bound.
        lost : float
            Share of the explained variance that may be lost, above 0.

        Examples
        --------
        >>> from fedridge_flwr import DifferentialPrivacy
        >>> privacy = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=1.0, y_bound=1.0)
        >>> round(privacy.rows_needed(n_features=10, n_clients=5), -1)
        1540.0
        """
        longer = self.x_norm_bound / (typical_norm or self.x_norm_bound)
        larger = self.y_bound / (explained_sd or self.y_bound / 3.0)
        check_number("lost", lost, above=0.0)
        split = None if self.uses_residuals else self.budget_split
        shares = one_shot_shares(split, self.rules)
        noise = self.noise_multiplier * self.sensitivity() * self.noise_of(n_clients)
        from_moment = (larger * longer) ** 2 / shares["moment"]
        from_gram = n_features * longer**4 / (2.0 * shares["gram"])
        return noise * (n_features + 1) * math.sqrt((from_moment + from_gram) / lost)

    def expected_loss(
        self,
        n_features: int,
        n_rows: int,
        n_clients: int,
        *,
        typical_norm: float | None = None,
        explained_sd: float | None = None,
        decay: float = 0.0,
    ) -> float:
        """Return the share of R² that the noise of one round is expected to take.

        Simulated from these public numbers.

        Parameters
        ----------
        n_features, n_rows, n_clients : int
            Of all clients together.
        typical_norm : float, optional
            Typical length of a row; by default 0.9 of its bound.
        explained_sd : float, optional
            Deviation of what can be explained; by default a third of `y_bound`.
        decay : float
            How fast variances of principal components fall, as in `expected`.

        Examples
        --------
        >>> from fedridge_flwr import DifferentialPrivacy
        >>> privacy = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=1.0, y_bound=1.0)
        >>> few, many = (privacy.expected_loss(10, n, 5) for n in (500, 5000))
        >>> few > 0.3, many < 0.1
        (True, True)
        """
        if self.rounds > 1:
            raise PrivacyError("expected_loss is about one round: use rounds=1.")
        from .planning import predicted_loss

        return predicted_loss(
            self,
            n_features,
            n_rows,
            n_clients,
            typical_norm=typical_norm,
            explained_sd=explained_sd,
            decay=check_number("decay", decay),
        )

    # ---- on the wire --------------------------------------------------------------

    def to_config(self) -> dict[str, float | int | str]:
        """Return the settings a client needs, as scalars of a Flower config."""
        return to_fields(self)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> DifferentialPrivacy | None:
        """Return the privacy of a request, None if the request is not private.

        Parameters
        ----------
        config : mapping
            Configuration of a request; only keys that begin with "privacy-" count.

        Raises
        ------
        PrivacyError
            If a setting is missing, unknown or invalid.

        Examples
        --------
        >>> from fedridge_flwr import DifferentialPrivacy
        >>> privacy = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=1.0, y_bound=1.0)
        >>> DifferentialPrivacy.from_config(privacy.to_config()) == privacy
        True
        """
        settings = from_fields(config)
        return None if settings is None else cls(**settings)
