"""`PrivateStatistics`: noisy sums of clients, and how noisy they are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt

import numpy as np

from .._text import counted
from .._types import Array
from ..errors import PrivacyError, StatisticsError
from ..linalg.packed import diagonal_positions, from_upper
from .clipping import LENGTH, Bounds
from .gaussian_sampler import RandomBytes
from .mechanism import DifferentialPrivacy
from .release import Layout

__all__ = ["PrivateStatistics"]

# Ten billion rows and their noise stay below.
_LARGEST = 2.0**74
_UNLIKELY = 40.0


@dataclass(frozen=True, eq=False, repr=False)
class PrivateStatistics:
    """Noisy sums of clipped rows, merged by addition: ``G = Σ a aᵀ``, ``h = Σ a bᵀ``.

    With an intercept, rows carry a constant as their last feature, so that G holds the
    number and the sums of rows too. G may be indefinite: nothing that exact statistics
    satisfy can be expected of it. Made by `private_statistics`, and kept by the
    strategies as ``statistics_``; `solve_private` makes a model of them. The parameters
    are also the attributes.

    Parameters
    ----------
    sums : ndarray
        All blocks one after another, as `layout` says, in units of the integer grid.
    privacy : DifferentialPrivacy
        The mechanism all of it was released under.
    bounds : Bounds
        Bounds and size of a row (`DifferentialPrivacy.bounds`).
    server_round : int
        Round of the answer.
    n_clients : int
        Answers in the sum.
    feature_hash, feature_names
        Schema of the columns, where known.
    server_noise : bool
        Whether a trusted server has added the noise.
    feature_map : str or None
        Fingerprint of the feature map the rows went through.
    n_features_in : int or None
        Number of raw columns, where there is a map and it is known.

    Examples
    --------
    >>> from fedridge_flwr import DifferentialPrivacy
    >>> from fedridge_flwr.privacy import private_statistics
    >>> privacy = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=1.0, y_bound=1.0)
    >>> a = private_statistics([[0.5], [1.0]], [1.0, 0.5], privacy)
    >>> b = private_statistics([[0.1], [0.9]], [0.2, 0.8], privacy)
    >>> a + b
    PrivateStatistics(2 clients, 1 feature, 1 target, epsilon=1.0)
    >>> round((a + b).gram_sd / a.gram_sd, 6)  # the noise of two clients
    1.414214
    """

    sums: Array
    privacy: DifferentialPrivacy
    bounds: Bounds
    server_round: int = 1
    n_clients: int = 1
    feature_hash: str | None = None
    feature_names: Sequence[str] | None = None
    server_noise: bool = False
    feature_map: str | None = None
    n_features_in: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be a release, whoever sent it."""
        expected = self.layout.length
        if self.sums.shape != (expected,) or self.sums.dtype != np.float64:
            raise StatisticsError(
                f"a private release of {counted(self.n_features, 'feature')} and "
                f"{counted(self.n_targets, 'target')} has {expected} numbers, got "
                f"{self.sums.dtype} of shape {self.sums.shape}."
            )
        if not (np.abs(self.sums) < _LARGEST).all():
            raise StatisticsError("a private release has NaN or absurd numbers.")
        if (self.sums != np.rint(self.sums)).any():
            raise StatisticsError("a private release is of whole numbers.")
        if self.n_clients == 1 and not self.server_noise:
            self._check_squares()

    def _check_squares(self) -> None:
        """Refuse sums of squares so far below zero that no noise explains them."""
        diagonal = diagonal_positions(self.bounds.width)
        for block, where in (("gram", diagonal), ("trace", [0]), ("count", [0])):
            if block in self.blocks:
                noise = self.privacy.client_part * self.layout.deviations(block)[0]
                if (self.blocks[block][where] < -_UNLIKELY * noise).any():
                    raise StatisticsError(
                        f"the {block} of a private release is further below zero than "
                        "noise can be."
                    )

    @cached_property
    def layout(self) -> Layout:
        """How the sums are packed."""
        return Layout(self.privacy, self.bounds, self.server_round)

    @property
    def n_features(self) -> int:
        """Number of features d, without the constant."""
        return self.bounds.n_features

    @property
    def n_targets(self) -> int:
        """Number of targets t."""
        return self.bounds.n_targets

    @property
    def rounding(self) -> float:
        """Always 0, since nothing is rounded on the wire that noise does not cover."""
        return 0.0

    # ---- merging -----------------------------------------------------------------

    def __add__(self, other: object) -> PrivateStatistics:
        """Merge: sums add up, and so do the variances of their noise."""
        if not isinstance(other, PrivateStatistics):
            return NotImplemented
        same = ("privacy", "bounds", "server_round", "feature_map")
        if any(getattr(self, name) != getattr(other, name) for name in same):
            raise StatisticsError(
                "these releases were not made under one mechanism with one schema, so "
                "they cannot be added."
            )
        if self.server_noise or other.server_noise:
            raise PrivacyError("the server's noise is added once, to the whole sum.")
        return replace(
            self,
            sums=self.sums + other.sums,
            n_clients=self.n_clients + other.n_clients,
        )

    def __radd__(self, other: object) -> PrivateStatistics:
        """Let ``sum([...])`` start from 0."""
        if isinstance(other, int) and other == 0:
            return self
        return NotImplemented

    def with_server_noise(self, source: RandomBytes = os.urandom) -> PrivateStatistics:
        """Return the sum with the noise of a trusted server, once for all clients.

        Parameters
        ----------
        source : callable
            Random bytes; anything but the operating system's are for tests.

        Raises
        ------
        PrivacyError
            Unless ``trust="server"``, and if the noise is there already.

        Examples
        --------
        >>> from fedridge_flwr import DifferentialPrivacy
        >>> from fedridge_flwr.privacy import private_statistics
        >>> privacy = DifferentialPrivacy(
        ...     1.0, 1e-5, x_norm_bound=1.0, y_bound=1.0, trust="server"
        ... )
        >>> a = private_statistics([[0.5], [1.0]], [1.0, 0.5], privacy)
        >>> b = private_statistics([[0.1], [0.9]], [0.2, 0.8], privacy)
        >>> noisy = (a + b).with_server_noise()
        >>> a.noise_factor, noisy.noise_factor
        (0.0, 1.0)
        """
        if self.privacy.trust != "server" or self.server_noise:
            raise PrivacyError(
                'only with trust="server", and once, the server adds noise.'
            )
        noise = self.layout.noise(1.0, source)
        return replace(self, sums=self.sums + noise, server_noise=True)

    # ---- views -------------------------------------------------------------------

    @cached_property
    def blocks(self) -> dict[str, Array]:
        """The blocks by name, in units of the grid."""
        return self.layout.split(self.sums)

    @property
    def gram(self) -> Array:
        """Noisy Gram matrix of the clipped rows, the constant feature included."""
        packed = from_upper(self.blocks["gram"], self.bounds.width)
        return packed * self.bounds.x_step**2

    @property
    def count(self) -> float:
        """Noisy number of rows, in the first round of residual refinement.

        Other releases do not have it (`KeyError`).
        """
        return float(self.blocks["count"][0]) / LENGTH**2

    @property
    def trace(self) -> float:
        """Noisy sum of squared lengths of rows, where there is a `count`."""
        return float(self.blocks["trace"][0]) * self.bounds.x_step**2

    @property
    def residual(self) -> Array:
        """Noisy sum of what rows answer about residuals, the cosines last.

        In residual refinement only (otherwise `KeyError`).
        """
        return self.blocks["residual"] / LENGTH**2

    @property
    def moment(self) -> Array:
        """Noisy moments, shape (features, t), the constant feature included."""
        unit = self.bounds.x_step * self.bounds.y_step
        return self.blocks["moment"].reshape(self.bounds.width, -1) * unit

    @property
    def target_gram(self) -> Array | None:
        """Noisy ``YᵀY``, where a share of the budget went to it; otherwise None."""
        if "target_gram" not in self.blocks:
            return None
        packed = from_upper(self.blocks["target_gram"], self.n_targets)
        return packed * self.bounds.y_step**2

    @property
    def gram_sd(self) -> float:
        """Deviation of the noise on the diagonal of `gram`; off it, over sqrt 2."""
        return self.deviation("gram") * self.bounds.x_step**2

    @property
    def moment_sd(self) -> float:
        """Deviation of the noise on every moment."""
        return self.deviation("moment") * self.bounds.x_step * self.bounds.y_step

    @property
    def target_gram_sd(self) -> float:
        """Deviation of the noise on the diagonal of `target_gram`, where it is."""
        return self.deviation("target_gram") * self.bounds.y_step**2

    @property
    def noise_factor(self) -> float:
        """Deviation of the noise in this sum over that of one whole release."""
        privacy = self.privacy
        if privacy.trust == "server":
            return 1.0 if self.server_noise else 0.0
        return privacy.client_part * sqrt(self.n_clients)

    def deviation(self, block: str) -> float:
        """Return the deviation of the noise on a block, in units of the grid.

        Parameters
        ----------
        block : str
            As in `DifferentialPrivacy.deviation`.
        """
        return float(self.layout.deviations(block)[0]) * self.noise_factor

    def __repr__(self) -> str:
        """Show what it is of, not the numbers."""
        return (
            f"PrivateStatistics({counted(self.n_clients, 'client')}, "
            f"{counted(self.n_features, 'feature')}, "
            f"{counted(self.n_targets, 'target')}, epsilon={self.privacy.epsilon})"
        )
