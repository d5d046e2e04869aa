"""`PrivateStatistics`: noisy sums of clients, and how noisy they are."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from .._text import counted
from .._types import Array
from ..data.schema import HasSchema, Schema
from ..errors import PrivacyError, StatisticsError
from ..linalg.packed import diagonal_positions, from_upper
from ..statistics.moments import RunningSum
from .clipping import LENGTH, Bounds
from .gaussian_sampler import RandomBytes
from .mechanism import DifferentialPrivacy
from .release import Layout

# Ten billion rows of a client and their noise stay below. A sum may have as much of
# each client: else one at the limit would make those after it be refused.
_LARGEST = 2.0**74
_UNLIKELY = 40.0


@dataclass(frozen=True, eq=False, repr=False)
class PrivateStatistics(HasSchema):
    """Noisy sums of clipped rows, merged by addition: ``G = Σ a aᵀ``, ``h = Σ a bᵀ``.

    With an intercept, rows have a constant as their last feature, so that G contains
    the number and the sums of rows too. Because of the noise G may be indefinite. Made
    by `private_statistics`, and kept by the strategies as ``statistics_``;
    `solve_private` makes a model of them. The parameters are also the attributes.

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
    schema : Schema, optional
        The columns.
    server_noise : bool
        Whether a trusted server has added the noise.

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
    schema: Schema = field(default=None)  # type: ignore[assignment]
    server_noise: bool = False

    form: ClassVar[str] = "private"
    # Rounding on the wire is covered by the noise.
    rounding: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be a release."""
        if self.schema is None:
            columns = Schema(self.bounds.n_features, self.bounds.n_targets)
            object.__setattr__(self, "schema", columns)
        sums, expected = self.sums, self.layout.length
        if sums.shape != (expected,) or sums.dtype != np.float64:
            raise StatisticsError(
                f"private release of {expected} float64, got {sums.dtype} {sums.shape}."
            )
        if not (np.abs(sums) <= _LARGEST * self.n_clients).all():
            raise StatisticsError("a private release has NaN or too large numbers.")
        if (sums != np.rint(sums)).any():
            raise StatisticsError("a private release must have whole numbers only.")
        if self.n_clients == 1 and not self.server_noise:
            self._check_squares()

    def _check_squares(self) -> None:
        """Refuse sums of squares so far below zero that no noise explains them."""
        diagonal = diagonal_positions(self.bounds.width)
        for block, where in (("gram", diagonal), ("trace", [0]), ("count", [0])):
            if block in self.blocks:
                noise = self.privacy.client_part * self.layout.deviation(block)
                if (self.blocks[block][where] < -_UNLIKELY * noise).any():
                    raise StatisticsError(f"private release: {block} far below zero.")

    @cached_property
    def layout(self) -> Layout:
        """How the sums are packed."""
        return Layout(self.privacy, self.bounds, self.server_round)

    def start_total(self) -> RunningSum:
        """Return a running total that begins with this release."""
        return RunningSum(self, has_count=False)

    # ---- merging -----------------------------------------------------------------

    def __add__(self, other: object) -> PrivateStatistics:
        """Merge: sums add up, and so do the variances of their noise."""
        if not isinstance(other, PrivateStatistics):
            return NotImplemented
        same = ("privacy", "bounds", "server_round", "feature_map")
        if any(getattr(self, name) != getattr(other, name) for name in same):
            raise StatisticsError("private releases need one mechanism and schema.")
        if self.server_noise or other.server_noise:
            raise PrivacyError("the server adds its noise once, to the whole sum.")
        return replace(
            self,
            sums=self.sums + other.sums,
            schema=self.schema.with_names_of(other.schema),
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
            Source of random bytes; any other than the default is for tests.

        Raises
        ------
        PrivacyError
            Unless ``trust="server"``, or if the noise was added before.

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
            raise PrivacyError('the server adds noise with trust="server", and once.')
        noise = self.layout.noise(1.0, source)
        return replace(self, sums=self.sums + noise, server_noise=True)

    # ---- views -------------------------------------------------------------------

    @cached_property
    def blocks(self) -> dict[str, Array]:
        """The blocks by name, in units of the grid."""
        return self.layout.split(self.sums)

    @cached_property
    def _units(self) -> dict[str, float]:
        """What one unit of the grid is worth in each block."""
        x, y, one = self.bounds.x_step, self.bounds.y_step, 1.0 / LENGTH**2
        units = {"gram": x * x, "moment": x * y, "target_gram": y * y}
        return units | {"trace": x * x, "count": one, "residual": one}

    def _block(self, name: str) -> Array:
        return np.asarray(self.blocks[name] * self._units[name])

    @property
    def gram(self) -> Array:
        """Noisy Gram matrix of the clipped rows, the constant feature included."""
        return from_upper(self._block("gram"), self.bounds.width)

    @property
    def moment(self) -> Array:
        """Noisy moments, shape (features, t), the constant feature included."""
        return self._block("moment").reshape(self.bounds.width, -1)

    @property
    def target_gram(self) -> Array | None:
        """Noisy ``YᵀY``, where a share of the budget went to it; otherwise None."""
        if "target_gram" not in self.blocks:
            return None
        return from_upper(self._block("target_gram"), self.n_targets)

    @property
    def count(self) -> float:
        """Noisy number of rows, in the first round of residual refinement.

        Other releases do not have it (`KeyError`).
        """
        return float(self._block("count")[0])

    @property
    def trace(self) -> float:
        """Noisy sum of squared lengths of rows, where there is a `count`."""
        return float(self._block("trace")[0])

    @property
    def residual(self) -> Array:
        """Noisy sum of the rows' answers about residuals, the cosines last.

        In residual refinement only (otherwise `KeyError`).
        """
        return self._block("residual")

    @property
    def gram_sd(self) -> float:
        """Deviation of the noise on the diagonal of `gram`; off it, over sqrt 2."""
        return self.deviation("gram") * self._units["gram"]

    @property
    def moment_sd(self) -> float:
        """Deviation of the noise on every moment."""
        return self.deviation("moment") * self._units["moment"]

    @property
    def target_gram_sd(self) -> float:
        """Deviation of the noise on the diagonal of `target_gram`, where it is."""
        return self.deviation("target_gram") * self._units["target_gram"]

    @property
    def noise_factor(self) -> float:
        """Deviation of the noise in this sum over that of one whole release."""
        if self.privacy.trust == "server" and not self.server_noise:
            return 0.0
        return self.privacy.noise_of(self.n_clients)

    def deviation(self, block: str) -> float:
        """Return the deviation of the noise on a block, in units of the grid.

        Parameters
        ----------
        block : str
            As in `DifferentialPrivacy.deviation`.
        """
        return self.layout.deviation(block) * self.noise_factor

    def __repr__(self) -> str:
        """Show sizes and epsilon, not the numbers."""
        return (
            f"PrivateStatistics({counted(self.n_clients, 'client')}, "
            f"{counted(self.n_features, 'feature')}, "
            f"{counted(self.n_targets, 'target')}, epsilon={self.privacy.epsilon})"
        )
