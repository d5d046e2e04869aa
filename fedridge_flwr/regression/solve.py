"""Statistics and alpha to a model: one factorisation, any number of targets.

Every system is scaled to unit diagonal before it is solved, which removes the
ill-conditioning that comes from units (metres against millimetres) for free.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpocon, dpotrf, dpotrs

from .._text import counted
from .._types import Array
from ..errors import (
    FedRidgeError,
    IllConditionedWarning,
    NotConvergedWarning,
    SingularSystemError,
    StatisticsError,
)
from ..linalg.conjugate_gradient import conjugate_gradients
from ..linalg.shifted import ShiftedSystem, refine, scaled_conditions
from ..statistics.plain import PlainStatistics
from ..statistics.sufficient import SufficientStatistics
from .model import RidgeModel
from .singular import explain_singular

__all__ = [
    "NormalEquations",
    "Statistics",
    "check_alpha",
    "normal_equations",
    "solve",
    "solve_equations",
    "solve_path",
]

Statistics: TypeAlias = SufficientStatistics | PlainStatistics

_EPS = float(np.finfo(np.float64).eps)
_HALF_THE_DIGITS = 1e8
_THREE_DIGITS = 1e-3
_WORTH_REDUCING = 3
_RESIDUAL = 1e-12
_PROBED = 1e-4
_SOLVERS = ("cholesky", "cg")


def solve(
    stats: Statistics,
    alpha: float = 1.0,
    *,
    fit_intercept: bool = True,
    standardize: bool = False,
    solver: str = "cholesky",
) -> RidgeModel:
    """Minimise ``||Y - X W - b||² + alpha ||W||²`` over W and b, from statistics alone.

    Parameters
    ----------
    stats : SufficientStatistics or PlainStatistics
        Statistics of all rows, typically a sum over clients.
    alpha : float
        Penalty, zero or more; the paper's sigma, scikit-learn's alpha.
    fit_intercept : bool
        Whether there is an intercept b. It is never penalised.
    standardize : bool
        Penalise the coefficients of features scaled to unit variance, as a pipeline
        of StandardScaler and Ridge does; ``coef_`` is in the original units.
    solver : {"cholesky", "cg"}
        "cg" takes conjugate gradients, for many features and a system of moderate
        condition: it needs no second matrix of d x d numbers and as many products with
        the one there is as the square root of the condition times about 14. Its
        ``condition_`` is that of what the right-hand side can see.

    Returns
    -------
    RidgeModel
        The model, equal to ridge regression on the pooled rows.

    Raises
    ------
    SingularSystemError
        If the data do not determine the coefficients; it names the columns.
    StatisticsError
        If there are no rows, the statistics are noisy (use `solve_private`), or they
        do not hold what is asked for.
    FedRidgeError
        If alpha or solver is not what it may be.

    Warns
    -----
    IllConditionedWarning
        If rounding may cost more than half of the digits, or, where the statistics
        came as float32, leave fewer than three.
    NotConvergedWarning
        If conjugate gradients ended before they were done.

    Notes
    -----
    ===========================  ================================================
    statistics                   result
    ===========================  ================================================
    no rows                      `StatisticsError`
    one row                      coefficients 0 with intercept and alpha > 0
    constant column              coefficient 0; with alpha = 0 an error naming it
    n < d                        fine with alpha > 0, else an error
    alpha = 0                    ordinary least squares
    d = 1, t > 1                 shapes as in scikit-learn: (d,) or (t, d)
    plain (G, h) of the paper    only without intercept and standardisation
    ===========================  ================================================

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import SufficientStatistics, solve
    >>> X = np.array([[0.0], [1.0], [2.0]])
    >>> stats = SufficientStatistics.from_data(X, 3.0 * X[:, 0] + 1.0)
    >>> model = solve(stats, alpha=0.0)
    >>> round(model.coef_[0].item(), 12), round(model.intercept_, 12)
    (3.0, 1.0)

    Four clients, and scikit-learn on their rows in one place:

    >>> from sklearn.linear_model import Ridge
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(60, 3)), rng.normal(size=60)
    >>> clients = [SufficientStatistics.from_data(X[k::4], y[k::4]) for k in range(4)]
    >>> model, pooled = solve(sum(clients), alpha=1.0), Ridge(alpha=1.0).fit(X, y)
    >>> bool(np.allclose(model.coef_, pooled.coef_, rtol=1e-12))
    True
    """
    alpha = check_alpha(alpha)
    if solver not in _SOLVERS:
        raise FedRidgeError(f'solver must be "cholesky" or "cg", got {solver!r}.')
    equations = normal_equations(
        stats, fit_intercept=fit_intercept, standardize=standardize
    )
    if solver == "cg":
        return _model(equations, alpha, *_solve_by_products(equations, alpha))
    return _model(equations, alpha, *solve_equations(equations, alpha))


def solve_path(
    stats: Statistics,
    alphas: Sequence[float],
    *,
    fit_intercept: bool = True,
    standardize: bool = False,
) -> list[RidgeModel]:
    """Solve for many alphas from one reduction of the system.

    Each solution is refined against its own system until it is as accurate as
    `solve`; where that cannot be had (badly scaled columns), it *is* `solve`. To choose
    among them use `select_alpha`.

    Parameters
    ----------
    stats : SufficientStatistics or PlainStatistics
        Statistics of all rows.
    alphas : sequence of float
        Penalties, in any order.
    fit_intercept, standardize : bool
        As in `solve`.

    Returns
    -------
    list of RidgeModel
        One model for each alpha, in the order of `alphas`.

    Raises
    ------
    FedRidgeError
        As in `solve`, for any of the alphas; also if there are none.

    Examples
    --------
    >>> from fedridge_flwr import SufficientStatistics, solve_path
    >>> stats = SufficientStatistics.from_data([[0.0], [1.0], [2.0]], [1.0, 2.0, 4.0])
    >>> [round(m.coef_[0].item(), 6) for m in solve_path(stats, [0.0, 1.0, 1e9])]
    [1.5, 1.0, 0.0]
    """
    checked = [check_alpha(alpha) for alpha in alphas]
    if not checked:
        raise FedRidgeError("alphas is empty: give at least one penalty.")
    equations = normal_equations(
        stats, fit_intercept=fit_intercept, standardize=standardize
    )
    together = _solve_together(equations, {alpha for alpha in checked if alpha > 0})
    models = []
    for alpha in checked:
        solved = together.get(alpha) or solve_equations(equations, alpha)
        models.append(_model(equations, alpha, *solved))
    return models


@dataclass(frozen=True)
class NormalEquations:
    """(matrix + alpha diag(penalty)) W = rhs, and the statistics it came from."""

    rhs: Array
    penalty: Array
    constant: NDArray[np.bool_]
    stats: Statistics
    fit_intercept: bool
    standardize: bool

    @cached_property
    def matrix(self) -> Array:
        """The matrix without penalty, shape (d, d)."""
        centred, means, _ = self._parts
        return centred if means is None else self.stats.gram

    @property
    def diagonal(self) -> Array:
        """Its diagonal."""
        centred, means, weight = self._parts
        diagonal = np.diagonal(centred)
        return diagonal if means is None else diagonal + weight * means**2

    def product(self, vectors: Array) -> Array:
        """Return matrix @ vectors, without a matrix that is not there already."""
        centred, means, weight = self._parts
        found: Array = centred @ vectors
        if means is not None:
            found += np.outer(weight * means, means @ vectors)
        return found

    @property
    def _parts(self) -> tuple[Array, Array | None, float]:
        """Return (C, m, w) with matrix = C + w m m', or without m where it is C."""
        stats = self.stats
        if isinstance(stats, PlainStatistics):
            return stats.gram, None, 0.0
        if self.fit_intercept:
            return stats.centred_gram, None, 0.0
        return stats.centred_gram, stats.feature_means, stats.total_weight

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


def normal_equations(
    stats: Statistics, *, fit_intercept: bool = True, standardize: bool = False
) -> NormalEquations:
    """Return the normal equations of ridge regression for these statistics."""
    if not isinstance(stats, SufficientStatistics | PlainStatistics):
        private = type(stats).__name__ == "PrivateStatistics"
        raise StatisticsError(
            f"stats must be SufficientStatistics, got {type(stats).__name__}. Use "
            + (
                "solve_private(stats, alpha), which knows of the noise."
                if private
                else "SufficientStatistics.from_data(X, y)."
            )
        )
    if stats.count == 0:
        raise StatisticsError("the statistics are of zero rows: nothing to fit.")
    d = stats.n_features
    if isinstance(stats, PlainStatistics):
        if fit_intercept or standardize:
            what = "an intercept" if fit_intercept else "standardisation"
            raise StatisticsError(
                f"(G, h) alone does not hold the means that {what} needs: use "
                "fit_intercept=False and standardize=False, or let the clients send "
                "full statistics (RidgeClient, ridge_client_app)."
            )
        return NormalEquations(
            rhs=stats.moment,
            penalty=np.ones(d),
            constant=np.diagonal(stats.gram) == 0.0,
            stats=stats,
            fit_intercept=False,
            standardize=False,
        )
    if stats.total_weight == 0.0:
        raise StatisticsError("all sample weights are zero: nothing to fit.")
    variances = stats.variances
    # Below this, the spread of a column is rounding of its mean.
    flat = variances <= (10 * _EPS * stats.feature_means) ** 2
    penalty = np.where(flat, 1.0, variances) if standardize else np.ones(d)
    squares = np.diagonal(stats.centred_gram)
    empty = squares + stats.total_weight * stats.feature_means**2 == 0.0
    return NormalEquations(
        rhs=stats.centred_moment if fit_intercept else stats.moment,
        penalty=penalty,
        constant=flat if fit_intercept else empty,
        stats=stats,
        fit_intercept=fit_intercept,
        standardize=standardize,
    )


def check_alpha(alpha: Any) -> float:
    """Return alpha as a float; it must be a finite number, zero or more."""
    number = isinstance(alpha, int | float | np.integer | np.floating)
    try:
        value = float(alpha) if number and not isinstance(alpha, bool) else math.nan
    except OverflowError:
        value = math.inf
    if not math.isfinite(value) or value < 0:
        raise FedRidgeError(
            f"alpha must be a finite number, zero or more, got {alpha!r}."
        )
    return value


def solve_equations(equations: NormalEquations, alpha: float) -> tuple[Array, float]:
    """Return W of shape (d, t) and the condition estimate of the scaled system."""
    scale = _scale(equations, alpha)
    scaled = equations.matrix * scale
    scaled *= scale[:, None]
    np.einsum("ii->i", scaled)[:] = 1.0
    norm = float(np.abs(scaled).sum(axis=0).max())
    factor, failed = dpotrf(scaled.T, lower=1, overwrite_a=1, clean=0)
    inverse_condition = 0.0 if failed else dpocon(factor, norm, uplo="L")[0]
    if not inverse_condition >= _nearest_singular(equations):
        raise _singular(equations, alpha, [])
    solution, _ = dpotrs(factor, equations.rhs * scale[:, None], lower=1)
    return solution * scale[:, None], 1.0 / inverse_condition


def _solve_by_products(equations: NormalEquations, alpha: float) -> tuple[Array, float]:
    """Return the same by conjugate gradients on the scaled system."""
    scale = _scale(equations, alpha)[:, None]
    penalty = alpha * equations.penalty[:, None] * scale**2

    def product(vectors: Array) -> Array:
        return scale * equations.product(scale * vectors) + penalty * vectors

    nearest = _nearest_singular(equations)
    rhs = equations.rhs * scale
    t, tol = rhs.shape[1], np.full(rhs.shape[1], _RESIDUAL)
    # A right-hand side of data lies in the range of the data: it does not see that the
    # system is singular. A random one does, unless the penalty excludes it.
    if penalty.min() < nearest * rhs.shape[0] or not rhs.any():
        probe = np.random.default_rng(0).normal(size=(rhs.shape[0], 1))
        rhs, tol = np.hstack([rhs, probe]), np.append(tol, _PROBED)
    found = conjugate_gradients(product, rhs, tol=tol, lowest=nearest)
    smallest, largest = found.ritz
    if found.flat or not smallest >= nearest * largest:
        raise _singular(equations, alpha, [])
    condition = largest / smallest
    if not found.converged[:t].all():
        residual = float(found.residual[:t].max())
        warnings.warn(
            f"conjugate gradients ended after {found.steps} steps with a residual of "
            f"{residual:.1e} where {_RESIDUAL:g} was wanted: the coefficients may be "
            f"wrong by {min(1.0, residual * condition):.0e} of their size. Use "
            f'solver="cholesky" or raise alpha (now {alpha:g}).',
            NotConvergedWarning,
            stacklevel=3,
        )
    return found.solution[:, :t] * scale, condition


def _scale(equations: NormalEquations, alpha: float) -> Array:
    """Return what makes the diagonal 1 from both sides."""
    diagonal = equations.penalised_diagonal(alpha)
    empty = equations.constant if alpha == 0.0 else diagonal <= 0.0
    if empty.any():
        raise _singular(equations, alpha, np.flatnonzero(empty))
    scale: Array = 1.0 / np.sqrt(diagonal)
    return scale


def _nearest_singular(equations: NormalEquations) -> float:
    """Return the inverse condition of a system that could as well be singular."""
    rows = max(50, equations.penalty.size)
    return max(rows * _EPS, equations.stats.rounding)


def _solve_together(
    equations: NormalEquations, alphas: set[float]
) -> dict[float, tuple[Array, float]]:
    """Return W and condition by one reduction for all alphas where that is accurate."""
    if len(alphas) < _WORTH_REDUCING:
        return {}
    matrix, rhs, unit = equations.in_penalty_units()
    system = ShiftedSystem(matrix)
    wanted = np.array(sorted(alphas))
    wanted = wanted[[system.definite(alpha) for alpha in wanted]]
    if not wanted.size:
        return {}
    conditions = scaled_conditions(system, matrix, wanted)
    nearest = max(1.0 / _HALF_THE_DIGITS, equations.stats.rounding)
    good = conditions * nearest <= 1.0
    solution, accurate = refine(system, matrix, rhs, wanted)
    return {
        float(wanted[j]): (solution[:, j] * unit[:, None], float(conditions[j]))
        for j in np.flatnonzero(good & accurate)
    }


def _model(
    equations: NormalEquations, alpha: float, solution: Array, condition: float
) -> RidgeModel:
    if condition > _HALF_THE_DIGITS:
        warnings.warn(
            f"the system has condition {condition:.1e} after scaling: about "
            f"{math.log10(condition):.0f} of 16 digits of the coefficients are "
            "rounding. Drop nearly dependent columns or raise alpha "
            f"(now {alpha:g}).",
            IllConditionedWarning,
            stacklevel=3,
        )
    stats = equations.stats
    moved = condition * stats.rounding
    if moved > _THREE_DIGITS:
        warnings.warn(
            "the statistics came as float32 and the system has condition "
            f"{condition:.1e} after scaling: the coefficients may be wrong by "
            f"{moved:.1g} of their size. Have them sent as float64, drop nearly "
            f"dependent columns or raise alpha (now {alpha:g}).",
            IllConditionedWarning,
            stacklevel=3,
        )
    intercept: float | Array = 0.0
    r2 = None
    if isinstance(stats, SufficientStatistics):
        if equations.fit_intercept:
            means = stats.target_means - stats.feature_means @ solution
            intercept = float(means[0]) if stats.n_targets == 1 else means
            total = np.diagonal(stats.centred_target_gram)
        else:
            total = np.diagonal(stats.target_gram)
        explained = np.einsum("dt,dt->t", solution, equations.product(solution))
        cross = np.einsum("dt,dt->t", solution, equations.rhs)
        rss = np.maximum(total - 2.0 * cross + explained, 0.0)
        r2 = _r2(rss, stats)
    single = stats.n_targets == 1
    return RidgeModel(
        coef=solution[:, 0].copy() if single else np.ascontiguousarray(solution.T),
        intercept=intercept,
        alpha=alpha,
        fit_intercept=equations.fit_intercept,
        standardize=equations.standardize,
        # Names belong to raw columns, which `with_feature_map` brings back.
        feature_names=None if stats.feature_map else stats.feature_names,
        map_fingerprint=stats.feature_map,
        n_rows=stats.count,
        n_clients=stats.n_clients,
        condition=condition,
        r2=r2,
    )


def _r2(rss: Array, stats: SufficientStatistics) -> float | None:
    tss = np.diagonal(stats.centred_target_gram)
    # Below this, the spread of a target is rounding of its mean.
    flat = stats.total_weight * (10 * _EPS * stats.target_means) ** 2
    if (tss <= flat).any():
        return None
    return float(np.mean(1.0 - rss / tss))


def _singular(
    equations: NormalEquations, alpha: float, constant: Any
) -> SingularSystemError:
    matrix = equations.matrix.copy()
    np.einsum("ii->i", matrix)[:] = equations.penalised_diagonal(alpha)
    stats = equations.stats
    names = None if stats.feature_map else stats.feature_names
    found = explain_singular(matrix, constant, names)
    needed = stats.n_features + equations.fit_intercept
    if stats.count < needed:
        rows = counted(stats.count, "row")
        found.insert(0, f"{rows} cannot determine {needed} coefficients")
    drop = "drop these columns"
    if getattr(stats, "feature_map", None) is not None:
        drop = "use a smaller feature map (columns are those that it makes)"
    remedy = (
        f"use alpha > 0, or {drop}"
        if alpha == 0.0
        else f"raise alpha (now {alpha:g}), or {drop}"
    )
    if stats.rounding:
        remedy += ", or have the statistics sent as float64 and not as float32"
    return SingularSystemError(
        f"the data do not determine the coefficients: {'; '.join(found)}. "
        f"Remedy: {remedy}."
    )
