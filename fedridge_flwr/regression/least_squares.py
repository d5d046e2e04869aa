"""A ridge regression with what inference needs: A^-1, residuals, degrees of freedom.

With centred features the intercept is the mean of the target, and independent of the
coefficients w. In those coordinates, (mean, w), with A = G + alpha P,

    covariance = sigma² [[1 / weight, 0], [0, A^-1 G A^-1]]

holds without any cancellation; `from_centred` turns it to (intercept, w).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri

from .._types import Array
from ..errors import SingularSystemError, StatisticsError
from ..linalg.orthogonal import OrthogonalSystem
from ..linalg.packed import mean_rounding
from ..statistics.sufficient import SufficientStatistics
from .normal_equations import FitOptions, NormalEquations, Statistics, normal_equations
from .solve import solve

_CONSTANT = 100.0


@dataclass(frozen=True)
class LeastSquares:
    """Coefficients, inverse and residual sums of squares of a ridge regression.

    Attributes
    ----------
    equations : NormalEquations
        The system behind it.
    stats : SufficientStatistics
        The statistics behind that.
    alpha : float
        Penalty.
    coef : ndarray of shape (d, t)
        Coefficients W.
    inverse : ndarray of shape (d, d)
        A^-1.
    n_intercepts : int
        Unpenalised intercepts: one, none, or one for every site.
    """

    equations: NormalEquations
    stats: SufficientStatistics
    alpha: float
    coef: Array
    inverse: Array
    n_intercepts: int

    @property
    def rows(self) -> Array | None:
        """Rows A with A'A = G, shape (m, d), if the statistics are triangular."""
        factor = self.equations.factor
        return None if factor is None else factor[:, : self.coef.shape[0]]

    def with_intercepts(self, number: int) -> LeastSquares:
        """Return the same where the statistics are centred by so many intercepts."""
        return replace(self, n_intercepts=number)

    @property
    def has_intercept(self) -> bool:
        """Whether the first parameter is an intercept."""
        return self.equations.fit_intercept

    @cached_property
    def constant(self) -> Array | None:
        """Coefficients v with X v = 1 if there is no intercept, but such columns.

        Indicators of all levels are an example. v is the regression of 1 on the columns
        about zero; X v has no variance but that of rounding.
        """
        stats, gram = self.stats, self.equations.matrix
        if self.has_intercept:
            return None
        means, weight = stats.feature_means, stats.total_weight
        scale = np.sqrt(np.maximum(np.diagonal(gram), np.finfo(float).tiny))
        scaled = gram / np.outer(scale, scale)
        found = np.linalg.lstsq(scaled, weight * means / scale, rcond=None)[0] / scale
        centred = stats.centred_gram
        rounding = _CONSTANT * max(np.finfo(float).eps, stats.rounding)
        noise = rounding * np.diagonal(centred) + weight * mean_rounding(means)
        varies = found @ centred @ found > found.size * (found**2 @ noise)
        return None if varies or found @ means < 0.5 else found

    @property
    def has_constant(self) -> bool:
        """Whether a constant can be fitted, by the intercept or by other columns."""
        return self.has_intercept or self.constant is not None

    @cached_property
    def total(self) -> Array:
        """Sums of squares that R² compares with, about the mean or about zero."""
        stats = self.stats
        gram = stats.centred_target_gram if self.has_constant else stats.target_gram
        return np.diagonal(gram).copy()

    @cached_property
    def targets(self) -> Array:
        """Sums of squares and products of the targets, about their mean if fitted."""
        stats = self.stats
        return stats.centred_target_gram if self.has_intercept else stats.target_gram

    @cached_property
    def tss(self) -> Array:
        """Total sums of squares, shape (t,)."""
        return np.diagonal(self.targets).copy()

    @cached_property
    def explained(self) -> Array:
        """What the coefficients explain of them, shape (t,); it does not cancel."""
        if self.alpha == 0 and self.rows is not None:
            return np.asarray(((self.rows @ self.coef) ** 2).sum(axis=0))
        gain = self.equations.rhs
        if self.alpha > 0:
            gain = 2.0 * gain - self.equations.product(self.coef)
        return np.asarray(np.einsum("dt,dt->t", self.coef, gain))

    @cached_property
    def rss(self) -> Array:
        """Residual sums of squares, shape (t,), right to rounding of `tss`.

        Those of triangular statistics have a square root that is right to rounding.
        """
        return np.maximum(self.equations.rss(self.coef, self.stats), 0.0)

    @cached_property
    def digits_lost(self) -> float:
        """How many of its digits the smallest residual sum of squares has lost."""
        with np.errstate(divide="ignore", invalid="ignore"):
            lost = np.log10(self.tss / self.rss)
        if self.rows is not None:
            lost = lost / 2.0
        return float(np.clip(np.nan_to_num(lost, nan=0.0, posinf=16.0), 0, 16).max())

    @cached_property
    def freedom(self) -> float:
        """Effective degrees of freedom: trace of A^-1 G, and the intercepts."""
        slopes = float(self.coef.shape[0])
        if self.alpha > 0:
            rows, matrix = self.rows, self.equations.matrix
            pair = (
                (self.inverse, matrix) if rows is None else (rows @ self.inverse, rows)
            )
            slopes = float(np.einsum("ij,ij->", *pair))
        return slopes + self.n_intercepts

    @cached_property
    def residual_freedom(self) -> float:
        """Rows less the effective degrees of freedom."""
        return self.stats.count - self.freedom

    @cached_property
    def sigma2(self) -> Array:
        """Estimated variance of a row of weight 1, shape (t,)."""
        self.check_freedom()
        return self.rss / self.residual_freedom

    def check_freedom(self) -> None:
        """Raise a `StatisticsError` if no rows are left for residuals."""
        if self.residual_freedom <= 1e-9 * self.stats.count:
            remedy = "fewer features" if self.alpha == 0 else "a larger alpha"
            raise StatisticsError(
                f"{self.stats.count} rows leave no degrees of freedom for residuals "
                f"after {self.freedom:.4g} coefficients: standard errors need more "
                f"rows, or {remedy}."
            )

    @cached_property
    def slopes_covariance(self) -> Array:
        """A^-1 G A^-1: covariance of the coefficients for sigma 1, shape (d, d)."""
        if self.alpha == 0.0:
            return self.inverse
        if self.rows is not None:
            half = self.rows @ self.inverse
            return np.asarray(half.T @ half)
        found: Array = self.inverse @ self.equations.matrix @ self.inverse
        return (found + found.T) / 2.0

    @cached_property
    def centred_covariance(self) -> Array:
        """The same of all parameters in centred coordinates, shape (p, p)."""
        return self._with_mean(self.slopes_covariance)

    @cached_property
    def bread(self) -> Array:
        """Inverse of the penalised system in centred coordinates, shape (p, p)."""
        return self._with_mean(self.inverse)

    @cached_property
    def estimates(self) -> Array:
        """Intercept, if there is one, and coefficients, shape (t, p)."""
        intercepts = self.equations.intercepts(self.coef)
        if intercepts is None:
            return self.coef.T
        return np.column_stack([intercepts, self.coef.T])

    def scores(self, part: SufficientStatistics) -> Array:
        """Return X'e of the rows of one site in centred coordinates, shape (t, p)."""
        means, targets = part.feature_means, part.target_means
        if self.has_intercept:
            means = means - self.stats.feature_means
            targets = targets - self.stats.target_means
        level = part.total_weight * (targets - means @ self.coef)
        slopes = part.centred_moment - part.centred_gram @ self.coef
        slopes = slopes + np.outer(means, level)
        if not self.has_intercept:
            return slopes.T
        return np.column_stack([level, slopes.T])

    def residuals_of(self, part: SufficientStatistics) -> tuple[Array, Array]:
        """Return mean residual and residual sum of squares of one site, each (t,)."""
        means, targets = part.feature_means, part.target_means
        if self.has_intercept:
            means = means - self.stats.feature_means
            targets = targets - self.stats.target_means
        mean = targets - means @ self.coef
        gain = 2.0 * part.centred_moment - part.centred_gram @ self.coef
        within = np.diagonal(part.centred_target_gram) - np.einsum(
            "dt,dt->t", self.coef, gain
        )
        return mean, np.maximum(within, 0.0) + part.total_weight * mean**2

    def _with_mean(self, slopes: Array) -> Array:
        if not self.has_intercept:
            return slopes
        width = slopes.shape[0] + 1
        found = np.zeros((width, width))
        found[0, 0], found[1:, 1:] = 1.0 / self.stats.total_weight, slopes
        return found


def least_squares(
    stats: Statistics,
    alpha: float = 0.0,
    *,
    fit_intercept: bool = True,
    standardize: bool = False,
) -> LeastSquares:
    """Return `solve` of these statistics with what inference needs.

    Raises
    ------
    StatisticsError
        If the statistics are (G, h) alone, without y'y.
    SingularSystemError
        If the data do not determine the coefficients.

    Examples
    --------
    >>> from fedridge_flwr import SufficientStatistics
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [1.0, 2.0, 4.0, 4.0]
    >>> fit = least_squares(SufficientStatistics.from_data(X, y))
    >>> fit.estimates.round(6).tolist(), fit.rss.round(6).tolist(), fit.freedom
    ([[1.1, 1.1]], [0.7], 2.0)
    """
    options: FitOptions = {"fit_intercept": fit_intercept, "standardize": standardize}
    equations = normal_equations(stats, **options)
    if equations.full is None:
        raise StatisticsError(
            "(G, h) alone has no sums of squares of the targets, which standard errors "
            "need: let the clients send full statistics (RidgeClient, "
            "ridge_client_app)."
        )
    model = solve(stats, alpha, **options)
    coef = np.ascontiguousarray(np.atleast_2d(model.coef_).T)
    inverse = _inverse(equations, model.alpha_)
    return LeastSquares(
        equations, equations.full, model.alpha_, coef, inverse, int(fit_intercept)
    )


def from_centred(covariance: Array, means: Array) -> Array:
    """Return the covariance of (intercept, w) from that of (mean, w).

    Parameters
    ----------
    covariance : ndarray of shape (..., 1 + d, 1 + d)
        Covariance in centred coordinates.
    means : ndarray of shape (d,)
        Means of the features.
    """
    turn = np.eye(means.size + 1)
    turn[0, 1:] = -means
    return np.asarray(turn @ covariance @ turn.T)


def _inverse(equations: NormalEquations, alpha: float) -> Array:
    """Return A^-1, by Cholesky of the system scaled to unit diagonal, or by a QR."""
    if equations.factor is not None:
        rows = equations.factor[:, : equations.penalty.size]
        return OrthogonalSystem(rows, alpha * equations.penalty).inverse()
    scale = 1.0 / np.sqrt(equations.penalised_diagonal(alpha))
    scaled = equations.matrix * np.outer(scale, scale)
    np.einsum("ii->i", scaled)[:] = 1.0
    factor, failed = dpotrf(scaled, lower=1)
    inverse, singular = dpotri(factor, lower=1)
    if failed or singular:
        raise SingularSystemError(
            "the system is singular to rounding: there are no standard errors. "
            f"Remedy: raise alpha (now {alpha:g}), or drop dependent columns."
        )
    lower = np.tril(inverse)
    full = lower + np.tril(inverse, -1).T
    return np.asarray(full * np.outer(scale, scale))
