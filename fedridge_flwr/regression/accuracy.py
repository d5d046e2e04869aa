"""How far rounding may have moved a solution: its coefficients and its predictions.

Scaled to unit diagonal the system is S v = g. Rounding moves every entry of S by about
one unit u, and every entry of g by u times the length of y, so that::

    dv = S^-1 r,    r_i about u sqrt(|v|² + |y|²)

The coefficients v move by |r| |S^-1|, which is the condition of the system at worst and
far less for most right-hand sides; predictions, the part of dv that the rows see, move
by less again.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri

from .._types import Array
from ..linalg.packed import EPS
from .normal_equations import NormalEquations, target_squares

# Entries are sums of many products, each rounded: measured errors are between a fifth
# of what one rounding would do and ten times that.
_UNIT = 2 * EPS


class RoundingError(NamedTuple):
    """Estimates of the relative error, each of the whole vector in its norm.

    Attributes
    ----------
    coefficients : float
        Of coefficients times the spread of their columns.
    predictions : float
        Of predictions for the rows behind the statistics.
    """

    coefficients: float
    predictions: float


def rounding_error(
    equations: NormalEquations,
    alpha: float,
    solution: Array,
    *,
    dependent: bool = False,
) -> RoundingError:
    """Return how far rounding may have moved W of shape (d, t); of targets, the worst.

    It costs a few times the solution. With `dependent`, columns that are dependent but
    for rounding are taken for dependent: no row distinguishes them.

    Examples
    --------
    >>> from fedridge_flwr import SufficientStatistics, solve
    >>> from fedridge_flwr.regression.normal_equations import normal_equations
    >>> X = np.random.default_rng(0).normal(size=(50, 2))
    >>> X[:, 1] = X[:, 0] + 1e-3 * X[:, 1]
    >>> stats = SufficientStatistics.from_data(X, X[:, 0])
    >>> coef = solve(stats, alpha=0.0).coef_
    >>> found = rounding_error(normal_equations(stats), 0.0, coef[:, None])
    >>> [f"{error:.0e}" for error in found]
    ['1e-09', '8e-13']
    """
    lengths = np.sqrt(equations.penalised_diagonal(alpha))
    scaled = equations.matrix / np.outer(lengths, lengths)
    np.einsum("ii->i", scaled)[:] = 1.0
    factor, failed = dpotrf(scaled, lower=1)
    inverse, singular = dpotri(factor, lower=1)
    if failed or singular:
        return RoundingError(np.inf, np.inf)
    inverse = np.tril(inverse)
    spread = np.sqrt(2.0 * (inverse**2).sum() - (np.diagonal(inverse) ** 2).sum())
    effects = solution * lengths[:, None]
    seen = float(np.trace(inverse))
    predicted = np.einsum("dt,dt->t", effects, scaled @ effects)
    if alpha > 0:
        seen, predicted = _seen_by_rows(equations, alpha, lengths, solution, dependent)
    sizes = np.linalg.norm(effects, axis=0)
    unit = _UNIT + equations.stats.rounding
    squares = predicted  # of the targets themselves, where they are known
    if equations.full is not None:
        squares = target_squares(equations.full, centred=equations.fit_intercept)
    moved = unit * np.sqrt(sizes**2 + squares)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = moved * spread / sizes, moved * np.sqrt(seen) / np.sqrt(predicted)
    return RoundingError(*(float(np.nan_to_num(each, nan=0.0).max()) for each in found))


def _seen_by_rows(
    equations: NormalEquations,
    alpha: float,
    lengths: Array,
    solution: Array,
    dependent: bool,
) -> tuple[float, Array]:
    """Return the trace of S^-1 G S^-1 and w'G w: what only the penalty sees is out."""
    matrix, _, unit = equations.in_penalty_units()
    values, vectors = np.linalg.eigh(matrix)
    inside = vectors.T @ (solution / unit[:, None])
    predicted = np.maximum(values, 0.0) @ inside**2
    # What is below rounding may be nothing, and may be as much as rounding.
    lowest = np.sqrt(values.size) * EPS * values[-1]
    values = np.where(values > lowest, values, 0.0 if dependent else lowest)
    shares = ((vectors * (lengths * unit)[:, None]) ** 2).sum(axis=0)
    return float(values / (values + alpha) ** 2 @ shares), predicted
