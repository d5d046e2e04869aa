"""The normal equations of ridge regression, as the statistics give them."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, TypedDict

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyr

from .._checks import check_flag
from .._types import Array
from ..errors import StatisticsError, column_labels
from ..linalg.packed import leading_half, mean_rounding, times
from ..statistics.plain import PlainStatistics
from ..statistics.sufficient import SufficientStatistics
from ..statistics.triangular import TriangularStatistics

Statistics: TypeAlias = SufficientStatistics | TriangularStatistics | PlainStatistics
Exact: TypeAlias = SufficientStatistics | TriangularStatistics
"""Statistics from which everything follows: all sums, without noise."""

UNLIKE_SCALES = 1e3
"""Spreads of columns that differ by more deserve ``standardize=True``, or a reason."""


_FEW = 8


class FitOptions(TypedDict, total=False):
    """Options of a fit that functions pass on; both as in `solve`."""

    fit_intercept: bool
    standardize: bool


@dataclass(frozen=True)
class NormalEquations:
    """(matrix + alpha diag(penalty)) W = rhs, and the statistics it came from.

    Attributes
    ----------
    stats : SufficientStatistics or PlainStatistics
        The statistics.
    full : SufficientStatistics or None
        The same, or None where they are only G and h, without means.
    rhs : ndarray of shape (d, t)
        Right-hand side.
    penalty : ndarray of shape (d,)
        What alpha is multiplied by.
    constant : ndarray of bool, shape (d,)
        Features that carry no information.
    fit_intercept, standardize : bool
        As in `solve`.
    factor : ndarray of shape (m, d + t) or None
        [A B] with matrix = A'A and rhs = A'B, where the statistics are triangular.
    """

    stats: SufficientStatistics | PlainStatistics
    full: SufficientStatistics | None
    rhs: Array
    penalty: Array
    constant: NDArray[np.bool_]
    fit_intercept: bool
    standardize: bool
    factor: Array | None = None

    @cached_property
    def matrix(self) -> Array:
        """The matrix without penalty, shape (d, d)."""
        centred, means, _ = self._parts
        return centred if means is None else self.stats.gram

    @cached_property
    def diagonal(self) -> Array:
        """Its diagonal."""
        if self.full is None:
            return np.diagonal(self.stats.gram)
        squares, means = self.full.squares, self.full.feature_means
        if self.fit_intercept:
            return squares
        return np.asarray(squares + self.full.total_weight * means**2)

    def lower_half(self) -> Array:
        """Return the lower half of the matrix, column by column, to be overwritten."""
        full = self.full
        if full is None:
            return np.asfortranarray(np.tril(self.stats.gram))
        found = leading_half(full.triangle, full.means.size, full.n_features)
        if not self.fit_intercept:
            means, weight = full.feature_means, full.total_weight
            found = dsyr(weight, means, a=found, lower=1, overwrite_a=1)
        return found

    def product(self, vectors: Array) -> Array:
        """Return matrix @ vectors, without laying out a second matrix."""
        centred, means, weight = self._parts
        found: Array = centred @ vectors
        if means is not None:
            found += np.outer(weight * means, means @ vectors)
        return found

    def _product_once(self, vectors: Array) -> Array:
        """Return the same of few vectors, without laying out a matrix at all."""
        full, t = self.full, vectors.shape[1]
        if full is None or t > _FEW:
            return self.product(vectors)
        found = times(full.triangle, np.pad(vectors, ((0, full.n_targets), (0, 0))))
        found = found[: full.n_features]
        if not self.fit_intercept:
            means = full.feature_means
            found += np.outer(full.total_weight * means, means @ vectors)
        return found

    @property
    def _parts(self) -> tuple[Array, Array | None, float]:
        """Return (C, m, w) with matrix = C + w m m', or without m where it is C."""
        if self.full is None:
            return self.stats.gram, None, 0.0
        if self.fit_intercept:
            return self.full.centred_gram, None, 0.0
        return self.full.centred_gram, self.full.feature_means, self.full.total_weight

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns; behind a feature map they have none."""
        return None if self.stats.feature_map else self.stats.feature_names

    def penalised_diagonal(self, alpha: float) -> Array:
        """Return the diagonal of the left-hand side."""
        return self.diagonal + alpha * self.penalty

    def in_penalty_units(self) -> tuple[Array, Array, Array]:
        """Return matrix, rhs and unit so that the penalty is alpha times identity.

        The coefficients are the solution times unit.
        """
        if not self.standardize:
            return self.matrix, self.rhs, np.ones(self.penalty.size)
        unit = 1.0 / np.sqrt(self.penalty)
        return self.matrix * np.outer(unit, unit), self.rhs * unit[:, None], unit

    def unlike_scales(self) -> str:
        """Say which columns differ most in scale if one alpha cannot fit both, or "".

        Examples
        --------
        >>> X = [[0.0, 1e4], [1.0, 3e4], [2.0, 2e4]]
        >>> stats = SufficientStatistics.from_data(X, [1.0, 2.0, 3.0])
        >>> normal_equations(stats).unlike_scales()
        'column 1 varies 1e+04 times as much as column 0'
        """
        scales = np.sqrt(np.maximum(self.diagonal, 0.0))
        varying = np.flatnonzero(~self.constant & (scales > 0))
        if self.standardize or varying.size < 2:
            return ""
        low = varying[np.argmin(scales[varying])]
        high = varying[np.argmax(scales[varying])]
        ratio = float(scales[high] / scales[low])
        if ratio <= UNLIKE_SCALES:
            return ""
        large, small = (
            column_labels([int(j)], self.feature_names) for j in (high, low)
        )
        return f"{large} varies {ratio:.0e} times as much as {small}"

    def intercepts(self, solution: Array) -> Array | None:
        """Return the intercepts (t,) of coefficients (d, t), None if not fitted."""
        if self.full is None or not self.fit_intercept:
            return None
        return self.full.target_means - self.full.feature_means @ solution

    def r2(self, solution: Array) -> float | None:
        """Return R² of coefficients (d, t) on the rows, None where it is not known."""
        full = self.full
        if full is None:
            return None
        spread = target_squares(full, centred=True)
        rss = self.rss(solution, full)
        return mean_r2(rss, spread, full.total_weight, full.target_means)

    def rss(self, solution: Array, full: SufficientStatistics) -> Array:
        """Return residual sums of squares (t,) of coefficients (d, t).

        The form y'y - 2 w'h + w'Gw has no error of first order in w. It cancels where
        they are small; the sum of squares of B - A w does not.
        """
        if self.factor is not None:
            return np.asarray(residual_squares(self.factor, solution[:, None])[0])
        gain = 2.0 * self.rhs - self._product_once(solution)
        total = target_squares(full, centred=self.fit_intercept)
        return np.asarray(total - np.einsum("dt,dt->t", solution, gain))


def residual_squares(factor: Array, weights: Array) -> Array:
    """Return |B - A w|² of [A B] per alpha and target, for weights (d, a, t)."""
    d = len(weights)
    fitted = (factor[:, :d] @ weights.reshape(d, -1)).reshape(-1, *weights.shape[1:])
    left = factor[:, None, d:] - fitted
    return np.asarray(np.einsum("mat,mat->at", left, left))


def as_moments(stats: Any) -> Any:
    """Return statistics in any exact form as `SufficientStatistics`.

    Examples
    --------
    >>> rows = [[0.0], [1.0]], [1.0, 2.0]
    >>> as_moments(TriangularStatistics.from_data(*rows))
    SufficientStatistics(2 rows, 1 feature, 1 target)
    """
    convert = getattr(stats, "to_sufficient", None)
    return stats if convert is None else convert()


def target_squares(stats: SufficientStatistics, *, centred: bool) -> Array:
    """Return the sum of squares of every target, about its mean or about zero."""
    return np.diagonal(stats.centred_target_gram if centred else stats.target_gram)


def mean_r2(rss: Array, spread: Array, weight: float, means: Array) -> float | None:
    """Return 1 - rss / spread, mean over targets, None if a target is constant."""
    if (spread <= weight * mean_rounding(means)).any():
        return None
    return float(np.mean(1.0 - np.maximum(rss, 0.0) / spread))


def normal_equations(
    stats: Statistics, *, fit_intercept: bool = True, standardize: bool = False
) -> NormalEquations:
    """Return the normal equations of ridge regression for these statistics."""
    for name, flag in (("fit_intercept", fit_intercept), ("standardize", standardize)):
        if type(flag) is not bool:
            check_flag(name, flag)
    if isinstance(stats, PlainStatistics):
        return _plain_equations(stats, fit_intercept, standardize)
    full = as_moments(stats)
    if not isinstance(full, SufficientStatistics):
        remedy = "SufficientStatistics.from_data(X, y)"
        if type(stats).__name__ == "PrivateStatistics":
            remedy = "solve_private(stats, alpha), which accounts for the noise"
        raise StatisticsError(
            f"stats must be SufficientStatistics, got {type(stats).__name__}. "
            f"Use {remedy}."
        )
    _refuse_no_rows(full.count)
    if full.total_weight == 0.0:
        raise StatisticsError("all sample weights are zero: nothing to fit.")
    constant = full.variances <= mean_rounding(full.feature_means)
    variances = full.variances if standardize else 1.0
    penalty = np.where(constant, 1.0, variances)
    if not fit_intercept:
        # A constant column serves as intercept, unless it is zero.
        constant = full.squares + full.total_weight * full.feature_means**2 == 0.0
    rhs = full.centred_moment if fit_intercept else full.moment
    factor: Array | None = getattr(stats, "factor", None)
    if factor is not None and not fit_intercept:
        factor = np.vstack([factor, np.sqrt(full.total_weight) * full.means])
    return NormalEquations(
        full, full, rhs, penalty, constant, fit_intercept, standardize, factor
    )


def _plain_equations(
    stats: PlainStatistics, fit_intercept: bool, standardize: bool
) -> NormalEquations:
    _refuse_no_rows(stats.count)
    if fit_intercept or standardize:
        what = "an intercept" if fit_intercept else "standardisation"
        raise StatisticsError(
            f"(G, h) alone does not contain the means that {what} needs: use "
            "fit_intercept=False and standardize=False, or let the clients send full "
            "statistics (RidgeClient, ridge_client_app)."
        )
    constant = np.diagonal(stats.gram) == 0.0
    penalty = np.ones(stats.n_features)
    return NormalEquations(stats, None, stats.moment, penalty, constant, False, False)


def _refuse_no_rows(count: int) -> None:
    if count == 0:
        raise StatisticsError("the statistics are of zero rows: nothing to fit.")
