"""From statistics and alpha to a model: one factorisation, any number of targets.

Every system is scaled to unit diagonal before it is solved, which removes the
ill-conditioning that comes from units (metres against millimetres) for free.
"""

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpocon, dpotrf, dpotrs

from .._checks import check_alpha, check_choice
from .._types import Array
from ..errors import (
    FedRidgeError,
    IllConditionedWarning,
    NotConvergedWarning,
    SingularSystemError,
)
from ..linalg.conjugate_gradient import conjugate_gradients
from ..linalg.orthogonal import OrthogonalSystem
from ..linalg.packed import EPS
from ..linalg.shifted import ShiftedSystem
from .accuracy import rounding_error
from .model import RidgeModel
from .normal_equations import NormalEquations, Statistics, normal_equations
from .singular import explain_singular, singular_error, too_few_rows, what_to_drop

_HALF_THE_DIGITS = 1e8
_THREE_DIGITS = 1e-3
_DETERMINED = 1e-6
_WORTH_REDUCING = 3
_RESIDUAL = 1e-12
_PROBED = 1e-4
_COLUMNS = 512
# Sums cannot tell these from dependent columns; copies are hardly ever anything else.
_MAYBE_NEARLY = ("linear combination", "nearly dependent")


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
    stats : SufficientStatistics, TriangularStatistics or PlainStatistics
        Statistics of all rows, typically a sum over clients. Triangular ones are solved
        by a QR: rounding is multiplied by the condition of the rows, and not by that of
        the system, its square.
    alpha : float
        Penalty, zero or more; the paper's sigma, scikit-learn's alpha.
    fit_intercept : bool
        Whether there is an intercept b. It is never penalised.
    standardize : bool
        Penalise the coefficients of features scaled to unit variance, as a pipeline
        of StandardScaler and Ridge does; ``coef_`` is in the original units.
    solver : {"cholesky", "cg"}
        "cg" uses conjugate gradients, for many features and a moderate condition
        number. It needs no second d x d matrix, and about 14 times the square root of
        the condition number matrix-vector products. Its ``condition_`` covers only
        directions that occur in the right-hand side.

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
        do not contain what the options need.
    FedRidgeError
        If alpha or solver is not valid.

    Warns
    -----
    IllConditionedWarning
        If rounding may cost more than half of the digits, or, where the statistics
        came as float32, leave fewer than three. It says how far coefficients and
        predictions may be off. Also if, with alpha > 0, the coefficients are lost to
        rounding but predictions for similar rows are not.
    NotConvergedWarning
        If conjugate gradients did not converge.

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
    check_choice("solver", solver, ("cholesky", "cg"))
    equations = normal_equations(
        stats, fit_intercept=fit_intercept, standardize=standardize
    )
    method = _solve_by_products if solver == "cg" else _solve_or_warn
    if solver == "cg" and equations.factor is not None:
        raise FedRidgeError(
            'solver="cg" is for sums and would lose the digits of a triangular factor: '
            'use "cholesky" (then a QR), or stats.to_sufficient().'
        )
    return _model(equations, alpha, *method(equations, alpha))


def solve_path(
    stats: Statistics,
    alphas: Sequence[float],
    *,
    fit_intercept: bool = True,
    standardize: bool = False,
) -> list[RidgeModel]:
    """Solve for many alphas from one reduction of the system.

    Each solution is refined against its own system until it is as accurate as
    `solve`; where that fails (badly scaled columns), `solve` itself is used. To choose
    among the models use `select_alpha`.

    Parameters
    ----------
    stats : SufficientStatistics, TriangularStatistics or PlainStatistics
        Statistics of all rows; triangular ones take a QR for every alpha.
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
        solved = together.get(alpha) or _solve_or_warn(equations, alpha)
        models.append(_model(equations, alpha, *solved))
    return models


def solve_equations(equations: NormalEquations, alpha: float) -> tuple[Array, float]:
    """Return W of shape (d, t) and the condition estimate of the scaled system.

    Raises
    ------
    SingularSystemError
        If the system is singular to rounding; it names the columns.
    """
    found = cholesky_solve(equations, alpha)
    if found is None:
        raise _singular(equations, alpha)
    return found


def _solve_or_warn(equations: NormalEquations, alpha: float) -> tuple[Array, float]:
    """Return what `solve_equations` does, also where only predictions are determined.

    With a penalty there is an answer, whose predictions may be right to many digits
    for rows like these; the rows of a client that was left out need not be like them.
    """
    found = cholesky_solve(equations, alpha, nearest=0.0 if alpha > 0 else None)
    if found is None:
        raise _singular(equations, alpha)
    solution, condition = found
    if condition * _nearest_singular(equations) > 1.0:
        # Lost even if nearly dependent columns are taken for dependent?
        error = rounding_error(equations, alpha, solution, dependent=True)
        if error.predictions > _DETERMINED:
            raise _singular(equations, alpha)
    return found


def cholesky_solve(
    equations: NormalEquations, alpha: float, *, nearest: float | None = None
) -> tuple[Array, float] | None:
    """Return W and the condition by Cholesky, or None if singular to rounding.

    `nearest` is the inverse condition up to which it is, by default that of the data.
    """
    diagonal = equations.penalised_diagonal(alpha)
    if (equations.constant if alpha == 0.0 else diagonal <= 0.0).any():
        return None
    least = _nearest_singular(equations) if nearest is None else nearest
    if equations.factor is not None:
        return _orthogonal_solve(equations, equations.factor, alpha, least)
    scale = 1.0 / np.sqrt(diagonal)
    # The only matrix of d x d numbers: scaled and factorised where it is.
    scaled = equations.lower_half()
    scaled *= scale[:, None]
    scaled *= scale
    np.einsum("ii->i", scaled)[:] = 1.0
    norm = _norm_of_half(scaled)
    factor, failed = dpotrf(scaled, lower=1, overwrite_a=1, clean=0)
    inverse_condition = 0.0 if failed else dpocon(factor, norm, uplo="L")[0]
    if not (inverse_condition >= least and inverse_condition > 0.0):
        return None
    solution, _ = dpotrs(factor, equations.rhs * scale[:, None], lower=1)
    return solution * scale[:, None], 1.0 / inverse_condition


def _norm_of_half(lower: Array) -> float:
    """Return the 1-norm of a symmetric matrix of unit diagonal, by its lower half."""
    sums = np.full(len(lower), -1.0)
    for start in range(0, len(lower), _COLUMNS):
        part = np.abs(lower[:, start : start + _COLUMNS])
        sums += part.sum(axis=1)
        sums[start : start + _COLUMNS] += part.sum(axis=0)
    return float(sums.max())


def _orthogonal_solve(
    equations: NormalEquations, factor: Array, alpha: float, least: float
) -> tuple[Array, float] | None:
    """Return what `cholesky_solve` does, by a QR of the rows [A B] of a factor."""
    d = equations.penalty.size
    system = OrthogonalSystem(factor[:, :d], alpha * equations.penalty)
    inverse_condition = system.inverse_condition**2
    if not (inverse_condition >= least and inverse_condition > 0.0):
        return None
    return system.solve(factor[:, d:]), 1.0 / inverse_condition


def _solve_by_products(equations: NormalEquations, alpha: float) -> tuple[Array, float]:
    """Return W and the condition by conjugate gradients on the scaled system."""
    if _empty_columns(equations, alpha).any():
        raise _singular(equations, alpha)
    scale = 1.0 / np.sqrt(equations.penalised_diagonal(alpha))[:, None]
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
        raise _singular(equations, alpha)
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


def _empty_columns(equations: NormalEquations, alpha: float) -> NDArray[np.bool_]:
    """Return which columns neither the data nor the penalty determine."""
    if alpha == 0.0:
        return equations.constant
    return np.asarray(equations.penalised_diagonal(alpha) <= 0.0)


def _nearest_singular(equations: NormalEquations) -> float:
    """Return the inverse condition at which rounding may hide that A is singular."""
    smallest = max(50, equations.penalty.size) * EPS
    if equations.factor is not None:  # the condition is the square of that of A
        return smallest**2
    return max(smallest, equations.stats.rounding)


def _solve_together(
    equations: NormalEquations, alphas: set[float]
) -> dict[float, tuple[Array, float]]:
    """Return W and condition by one reduction for all alphas where that is accurate."""
    if len(alphas) < _WORTH_REDUCING or equations.factor is not None:
        return {}
    matrix, rhs, unit = equations.in_penalty_units()
    system = ShiftedSystem(matrix)
    wanted = np.array(sorted(alphas))
    wanted = wanted[[system.definite(alpha) for alpha in wanted]]
    if not wanted.size:
        return {}
    conditions = system.scaled_conditions(wanted)
    nearest = max(1.0 / _HALF_THE_DIGITS, equations.stats.rounding)
    good = conditions * nearest <= 1.0
    solution, accurate = system.solve_refined(rhs, wanted)
    return {
        float(wanted[j]): (solution[:, j] * unit[:, None], float(conditions[j]))
        for j in np.flatnonzero(good & accurate)
    }


def _model(
    equations: NormalEquations, alpha: float, solution: Array, condition: float
) -> RidgeModel:
    stats = equations.stats
    few_left = condition * stats.rounding > _THREE_DIGITS
    error = condition if equations.factor is None else np.sqrt(condition)
    if error > _HALF_THE_DIGITS or few_left:
        text = _rounding_text(equations, alpha, solution, condition)
        warnings.warn(text, IllConditionedWarning, stacklevel=3)
    coef, intercept = sklearn_shapes(solution, equations.intercepts(solution))
    return RidgeModel(
        coef=coef,
        intercept=intercept,
        alpha=alpha,
        fit_intercept=equations.fit_intercept,
        standardize=equations.standardize,
        feature_names=None if stats.feature_map else stats.schema.features,
        target_names=stats.schema.targets,
        map_fingerprint=stats.feature_map,
        n_rows=stats.count,
        n_clients=stats.n_clients,
        condition=condition,
        r2=equations.r2(solution),
        form="moments" if equations.factor is None else "triangular",
    )


def _rounding_text(
    equations: NormalEquations, alpha: float, solution: Array, condition: float
) -> str:
    """Say how far coefficients and predictions may be off, each of their own size."""
    rounded, triangular = equations.stats.rounding, equations.factor is not None
    causes = "the statistics came as float32 and " if rounded else ""
    remedies = "Have them sent as float64, drop" if rounded else "Drop"
    if condition * _nearest_singular(equations) > 1.0:
        error = rounding_error(equations, alpha, solution, dependent=True)
        verdict = (
            "the data do not determine the coefficients "
            f"({'; '.join(_reasons(equations, alpha))}). Predictions are right to "
            f"about {error.predictions:.0e} of their size, for rows whose columns "
            "depend on each other in the same way"
        )
    elif triangular:
        moved = EPS * np.sqrt(condition)
        verdict = f"rounding may move the coefficients by {moved:.0e} of their size"
    else:
        error = rounding_error(equations, alpha, solution)
        verdict = (
            f"rounding may move the coefficients by {error.coefficients:.0e} of their "
            f"size, and predictions by {error.predictions:.0e} of theirs"
        )
    return (
        f"{causes}the system has condition {condition:.1e} after scaling: {verdict}. "
        f"{remedies} nearly dependent columns or raise alpha (now {alpha:g})"
        f"{_standardize_remedy(equations, alpha)}{_triangular_remedy(equations)}."
    )


def _reasons(equations: NormalEquations, alpha: float) -> list[str]:
    """Return why the rows do not determine the coefficients."""
    matrix = equations.matrix.copy()
    np.einsum("ii->i", matrix)[:] = equations.penalised_diagonal(alpha)
    empty = np.flatnonzero(_empty_columns(equations, alpha)).tolist()
    found = explain_singular(matrix, empty, equations.feature_names)
    needed = equations.stats.n_features + equations.fit_intercept
    return [*too_few_rows(equations.stats.count, needed), *found]


def _standardize_remedy(equations: NormalEquations, alpha: float) -> str:
    """Return that scaling helps, where one alpha cannot fit all columns."""
    if alpha == 0.0 or not (unlike := equations.unlike_scales()):
        return ""
    return f", or use standardize=True: {unlike}"


def _triangular_remedy(equations: NormalEquations, condition: str = "") -> str:
    """Return that a factor in place of sums keeps more digits, where it would."""
    if equations.full is None or equations.factor is not None:
        return ""
    return f', or use statistics="triangular" (TriangularStatistics){condition}'


def _singular(equations: NormalEquations, alpha: float) -> SingularSystemError:
    stats = equations.stats
    reasons = _reasons(equations, alpha)
    drop = what_to_drop(*reasons)
    if stats.feature_map is not None:
        drop = "use a smaller feature map (columns are those that it makes)"
    if stats.rounding:
        drop += ", or have the statistics sent as float64 and not as float32"
    drop += _standardize_remedy(equations, alpha)
    if any(text in reason for text in _MAYBE_NEARLY for reason in reasons):
        drop += _triangular_remedy(equations, " if they depend only nearly")
    return singular_error(reasons, alpha, drop)


def sklearn_shapes(
    solution: Array, intercepts: Array | None
) -> tuple[Array, float | Array]:
    """Return coef_ and intercept_ of coefficients (d, t) and intercepts (t,) or None.

    Examples
    --------
    >>> sklearn_shapes(np.array([[1.0], [2.0]]), np.array([3.0]))
    (array([1., 2.]), 3.0)
    """
    if solution.shape[1] == 1:
        intercept = 0.0 if intercepts is None else float(intercepts[0])
        return solution[:, 0].copy(), intercept
    coef = np.ascontiguousarray(solution.T)
    return coef, 0.0 if intercepts is None else intercepts
