"""`PlainStatistics`: the paper's own pair (G, h), with nothing beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from .._types import Array
from ..data.schema import HasSchema, Schema
from ..errors import StatisticsError
from ..linalg.packed import from_upper, upper_triangle
from .moments import RunningSum, check_mergeable
from .sufficient import SufficientStatistics
from .validity import (
    LARGEST,
    SMALLEST_SQUARE,
    check_count,
    check_moments,
    check_symmetric,
)


@dataclass(frozen=True, eq=False, repr=False)
class PlainStatistics(HasSchema):
    """Gram matrix ``G = X'X`` and moments ``h = X'Y``, merged by addition.

    This is what Algorithm 1 of the paper sends. It solves the problem without
    intercept; the means, variances and ``Y'Y`` that an intercept, standardisation or R²
    would need are not in it, and asking for them is an error that says so.

    Make one with `from_arrays`, which checks what it is given. The parameters are also
    the attributes; with d features and t targets:

    Parameters
    ----------
    count : int
        Number of rows.
    gram : ndarray of shape (d, d)
        The Gram matrix G.
    moment : ndarray of shape (d, t)
        The moments h.
    n_clients : int
        How many contributions were merged.
    rounding : float
        How far each correlation may be off, as in `SufficientStatistics`.
    schema : Schema
        The columns; names never travel in the plain form.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import PlainStatistics, solve
    >>> X, y = np.eye(3), np.array([1.0, 2.0, 3.0])
    >>> a = PlainStatistics.from_arrays(X.T @ X, X.T @ y, count=3)
    >>> (a + a).gram.diagonal()
    array([2., 2., 2.])
    >>> solve(a + a, alpha=2.0, fit_intercept=False).coef_
    array([0.5, 1. , 1.5])
    """

    count: int
    gram: Array
    moment: Array
    schema: Schema
    n_clients: int = 1
    rounding: float = 0.0

    form: ClassVar[str] = "plain"

    @classmethod
    def from_arrays(cls, gram: Any, moment: Any, count: int) -> PlainStatistics:
        """Check G, full or packed as its upper triangle row by row, and h.

        Parameters
        ----------
        gram : ndarray of shape (d, d) or (d (d + 1) / 2,)
            Gram matrix.
        moment : ndarray of shape (d,) or (d, t)
            Moments.
        count : int
            Number of rows.

        Raises
        ------
        StatisticsError
            If no rows can have these sums: G is not symmetric or not positive
            semi-definite, or of a higher rank than there are rows.

        Examples
        --------
        >>> from fedridge_flwr import PlainStatistics
        >>> packed = [1.0, 0.5, 1.0]  # the upper triangle of [[1, .5], [.5, 1]]
        >>> PlainStatistics.from_arrays(packed, [1.0, 1.0], count=2).gram
        array([[1. , 0.5],
               [0.5, 1. ]])
        """
        gram, moment = _as_float64(gram, "G"), _as_float64(moment, "h")
        count = check_count(count)
        if moment.ndim not in (1, 2) or moment.size == 0:
            raise StatisticsError(
                f"h must have shape (d,) or (d, t), got {moment.shape}."
            )
        if not (np.abs(moment) < LARGEST).all():
            raise StatisticsError(f"h has numbers above {LARGEST:g}: they overflow.")
        if count == 0 and (gram.any() or moment.any()):
            raise StatisticsError("there are no rows, but G or h is not zero.")
        full = _full_gram(gram, moment.shape[0], count)
        moment = moment.reshape(moment.shape[0], -1)
        # Of the targets nothing is known but that their squares do not overflow.
        longest = np.sqrt(LARGEST) * np.sqrt(np.diagonal(full) + SMALLEST_SQUARE)
        if (np.abs(moment) > longest[:, None]).any():
            raise StatisticsError("h is not zero where the features in G are.")
        return cls(count, full, moment, Schema(*moment.shape))

    @classmethod
    def from_statistics(cls, stats: SufficientStatistics) -> PlainStatistics:
        """Keep of the full statistics only G and h.

        Parameters
        ----------
        stats : SufficientStatistics
            Full statistics; the means, R² and names are gone afterwards.
        """
        return cls(
            count=stats.count,
            gram=stats.gram,
            moment=stats.moment,
            n_clients=stats.n_clients,
            rounding=stats.rounding,
            schema=stats.schema.unnamed,
        )

    def __add__(self, other: object) -> PlainStatistics:
        """Merge: G and h add up."""
        if not isinstance(other, PlainStatistics):
            return NotImplemented
        check_mergeable(self.schema, other.schema)
        return replace(
            self,
            count=self.count + other.count,
            gram=self.gram + other.gram,
            moment=self.moment + other.moment,
            n_clients=self.n_clients + other.n_clients,
            rounding=max(self.rounding, other.rounding),
        )

    def __radd__(self, other: object) -> PlainStatistics:
        """Let ``sum([...])`` start from 0."""
        if isinstance(other, int) and other == 0:
            return self
        return NotImplemented

    @property
    def nbytes(self) -> int:
        """Memory that the statistics take."""
        return self.gram.nbytes

    def start_total(self) -> RunningSum:
        """Return a running total that begins with these statistics."""
        return RunningSum(self)

    def scale(self) -> tuple[float, None, Array]:
        """Return the number of rows, no means, and sums of squares of the features."""
        return float(self.count), None, np.diagonal(self.gram)

    def __repr__(self) -> str:
        """Show what was counted, not the numbers."""
        return (
            f"PlainStatistics({self.count} rows, {self.n_features} features, "
            f"{self.n_targets} targets)"
        )


def _as_float64(array: Any, name: str) -> Array:
    found = np.asarray(array)
    if found.dtype.kind not in "iuf":
        raise StatisticsError(f"{name} must be real numbers, not {found.dtype}.")
    with np.errstate(over="ignore"):  # of longdouble, which users may hold
        numbers = found.astype(np.float64)
    if not np.isfinite(numbers).all():
        bad = int(np.count_nonzero(~np.isfinite(numbers)))
        raise StatisticsError(f"{name} has {bad} NaN or infinite numbers.")
    return numbers


def _full_gram(gram: Array, n_features: int, count: int) -> Array:
    if gram.ndim == 1:
        expected = n_features * (n_features + 1) // 2
        if gram.size != expected:
            raise StatisticsError(
                f"a packed G of {n_features} features has {expected} numbers, "
                f"got {gram.size}."
            )
        triangle, full = gram, from_upper(gram, n_features)
    elif gram.shape == (n_features, n_features):
        full = check_symmetric(gram)
        triangle = upper_triangle(full)
    else:
        raise StatisticsError(
            f"G must have shape ({n_features}, {n_features}) or be its packed upper "
            f"triangle, got {gram.shape}."
        )
    diagonal = np.diagonal(full)
    check_moments(triangle, diagonal, count, "sums of squares in G")
    return full
