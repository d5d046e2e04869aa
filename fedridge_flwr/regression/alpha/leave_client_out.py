"""Models without one client, and their errors on the rows of that client.

Leaving client k out means solving without its statistics and computing the squared
error on its rows. Both follow from the statistics that were sent once.
"""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, Unpack

import numpy as np
from scipy.linalg.lapack import dposv

from ..._text import counted
from ..._types import Array
from ...data.rows import Rows
from ...errors import DataError, SingularSystemError, StatisticsError
from ...linalg.pivoted import factor_of_matrix
from ...linalg.shifted import ShiftedSystem
from ...statistics.sufficient import SufficientStatistics
from ..normal_equations import (
    Exact,
    FitOptions,
    NormalEquations,
    normal_equations,
    residual_squares,
)
from ..solve import solve_equations

_Parts: TypeAlias = Mapping[str, Any]

_TRUSTED_CONDITION = 1e5
_CANCELLED = 1e-10
_LEVERAGE_LEFT = 1e-4


class ClampedLossWarning(UserWarning):
    """A loss computed from statistics has no correct digits left.

    The held-out error ``y'y - 2 w'h + w'G w`` cancels where the model predicts almost
    perfectly, as in data without noise. Such losses are clipped at zero, and no longer
    distinguish the candidates. In a federation, use ``cv="clients"``, which computes
    them from the rows, or ``statistics="triangular"``, which computes them from factors
    without cancellation.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> from fedridge_flwr import ClampedLossWarning, SufficientStatistics, select_alpha
    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> y = X[:, 0]  # without any noise
    >>> parts = [SufficientStatistics.from_data(X[k::6], y[k::6]) for k in range(6)]
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", ClampedLossWarning)
    ...     chosen = select_alpha(parts, [1e-9, 1e-3, 1.0])
    >>> print(caught[0].message)
    some held-out losses are below 1e-10 of the spread of y, where rounding of the \
statistics hides them: use cv="clients", or statistics="triangular".
    """


@dataclass(frozen=True)
class HeldOut:
    """Models of all others for one client: coef (a, t, d) and intercept (a, t)."""

    coef: Array
    intercept: Array

    def losses(self, part: Any) -> Array:
        """Return the mean squared error on the rows behind `part`, per alpha.

        From triangular statistics it is a sum of squares, in which nothing cancels.
        """
        weights = self.coef.transpose(2, 0, 1)
        if part.form == "triangular":
            centred = residual_squares(part.factor, weights)
        else:
            gram, moment = part.centred_gram, part.centred_moment
            squares = np.diagonal(part.centred_target_gram)
            centred = squared_errors(gram, moment, squares, weights, part.rounding)
        offset = part.target_means - self.intercept - self.coef @ part.feature_means
        return np.asarray((centred / part.total_weight + offset**2).mean(axis=1))

    def losses_of_rows(self, rows: Rows) -> Array:
        """Return the same from the rows themselves, where nothing cancels."""
        if (rows.n_targets, rows.n_features) != self.coef.shape[1:]:
            raise DataError(
                f"the models are of {self.coef.shape[2]} features and "
                f"{counted(self.coef.shape[1], 'target')}, the rows of "
                f"{rows.n_features} and {rows.n_targets}."
            )
        squares, weight = np.zeros(len(self.coef)), 0.0
        with np.errstate(invalid="ignore", over="ignore"):
            for block in rows.blocks():
                own = block.weights
                weight += float(own.sum())
                for j, coef in enumerate(self.coef):
                    errors = block.Y - (block.X @ coef.T + self.intercept[j])
                    squares[j] += own @ (errors**2).mean(axis=1)
        if not np.isfinite(squares).all():
            rows.refuse_bad_values()
        if weight == 0.0:
            raise DataError("there are no rows, or only rows of weight zero.")
        return squares / weight


def held_out_models(
    parts: _Parts, alphas: Array, **options: Unpack[FitOptions]
) -> dict[str, HeldOut]:
    """Return for every client the models of all others, the paper's w_-k(sigma)."""
    filled = _filled(parts)
    found = {
        client: _held_out(rest, client, alphas, options)
        for client, rest in each_rest(filled, set(filled))
    }
    return {client: found[client] for client in filled}


def held_out_losses(
    parts: _Parts, alphas: Array, **options: Unpack[FitOptions]
) -> dict[str, Array]:
    """Return for every client its mean squared error under the models of all others.

    One reduction per client; for a client with few rows, a small system per alpha
    by the identity e = (I - H_kk)^-1 r of its own residuals.
    """
    filled = _filled(parts)
    losses: dict[str, Array | None] = dict.fromkeys(filled)
    small = [
        client
        for client, part in filled.items()
        if part.form == "full" and part.count < part.n_features / 2
    ]
    if small and not options.get("standardize"):
        blocks = _Blocks(total_of(filled), alphas, options)
        if blocks.trusted:
            losses |= {client: blocks.losses(filled[client]) for client in small}
    missing = {client for client, found in losses.items() if found is None}
    for client, rest in each_rest(filled, missing):
        models = _held_out(rest, client, alphas, options)
        losses[client] = models.losses(filled[client])
    return {client: found for client, found in losses.items() if found is not None}


def each_rest(parts: dict[str, Any], wanted: set[str]) -> Iterator[tuple[str, Any]]:
    """Yield for every wanted client the statistics of all others, in some order."""
    if not wanted:
        return
    if any(part.form == "triangular" for part in parts.values()):
        yield from _others(list(parts.items()), wanted)  # nothing can be subtracted
        return
    total = total_of(parts)
    kept = _LEVERAGE_LEFT * np.diagonal(total.centred_gram)
    cancelled = set()
    for client in (client for client in parts if client in wanted):
        rest = total - parts[client]
        if (np.diagonal(rest.centred_gram) < kept).any():
            cancelled.add(client)
        else:
            yield client, rest
    yield from _others(list(parts.items()), cancelled)


def _others(
    parts: list[tuple[str, Any]], wanted: set[str], outside: Any = None
) -> Iterator[tuple[str, Any]]:
    """Yield for every wanted client the statistics of all others, merged by halves.

    Slower than subtraction, which would leave rounding of the client's own numbers in
    columns that are constant for all others.
    """
    if not any(client in wanted for client, _ in parts):
        return
    if len(parts) == 1 and outside is not None:
        yield parts[0][0], outside
        return
    half = len(parts) // 2
    for inner, outer in ((parts[:half], parts[half:]), (parts[half:], parts[:half])):
        rest = total_of(dict(outer))
        yield from _others(inner, wanted, rest if outside is None else outside + rest)


def _held_out(rest: Exact, client: str, alphas: Array, options: FitOptions) -> HeldOut:
    equations = normal_equations(rest, **options)
    try:
        solution, unit = solve_in_penalty_units(equations, alphas)
    except SingularSystemError as error:
        raise SingularSystemError(f"without client {client}: {error}") from error
    coef = (solution * unit[:, None, None]).transpose(1, 2, 0)
    intercept = np.zeros(coef.shape[:2])
    if equations.fit_intercept:
        intercept = rest.target_means - coef @ rest.feature_means
    return HeldOut(coef, intercept)


def solve_in_penalty_units(
    equations: NormalEquations, alphas: Array
) -> tuple[Array, Array]:
    """Return W (d, a, t) and unit, by Cholesky where the reduction is not accurate.

    The coefficients are W times unit.
    """
    matrix, rhs, unit = equations.in_penalty_units()
    if equations.factor is None:
        solution, accurate = ShiftedSystem(matrix).solve_refined(rhs, alphas)
    else:
        solution = np.empty((len(rhs), alphas.size, rhs.shape[1]))
        accurate = np.zeros(alphas.size, dtype=bool)
    for j in np.flatnonzero(~accurate):
        exact, _ = solve_equations(equations, float(alphas[j]))
        solution[:, j] = exact / unit[:, None]
    return solution, unit


class _Blocks:
    """Held-out losses of small clients from one decomposition of the total.

    With A = S + alpha I of all rows and U, V the client's own rows (a factor of its
    second moments), the residuals of the held-out model on those rows are
    e = (I - U A^-1 U')^-1 (V - U w). With an intercept, the client's mean is one more
    row of U and V.
    """

    def __init__(
        self, total: SufficientStatistics, alphas: Array, options: FitOptions
    ) -> None:
        equations = normal_equations(total, **options)
        self._total, self._equations, self._alphas = total, equations, alphas
        self._values, self._vectors = np.linalg.eigh(equations.matrix)
        rotated = (self._vectors.T @ equations.rhs)[:, None, :]
        shifted = self._values[:, None, None] + alphas[:, None]
        self._rotated_solution = rotated / shifted

    @property
    def trusted(self) -> bool:
        """Whether an unscaled decomposition keeps the digits."""
        lowest = float(self._alphas.min())
        smallest = max(float(self._values[0]), 0.0) + lowest
        return bool(self._values[-1] + lowest < _TRUSTED_CONDITION * smallest)

    def losses(self, part: SufficientStatistics) -> Array | None:
        """Return the losses of one client, None where they would be rounding."""
        total, d = self._total, self._total.n_features
        if self._equations.fit_intercept:
            rest = total.total_weight - part.total_weight
            if rest <= 0:
                return None
            lever = part.total_weight * (total.total_weight / rest)
            extra = np.sqrt(lever) * (total.means - part.means)
            last = part.total_weight / rest
        else:
            extra, last = np.sqrt(part.total_weight) * part.means, 0.0
        rows = np.vstack([_factor(part), extra])
        U, V = rows[:, :d] @ self._vectors, rows[:, d:]
        found = np.empty(self._alphas.size)
        for j, alpha in enumerate(self._alphas):
            own = V - U @ self._rotated_solution[:, j]
            remaining = -(U / (self._values + alpha)) @ U.T
            np.einsum("ii->i", remaining)[:] += 1.0
            factor, residual, failed = dposv(remaining, own, lower=1)
            # Where almost nothing remains, it is rounding of 1 - 1.
            if failed or np.diagonal(factor).min() ** 2 < _LEVERAGE_LEFT:
                return None
            squares = (residual**2).sum(axis=0) + last * residual[-1] ** 2
            found[j] = squares.mean() / part.total_weight
        return found


def _factor(part: SufficientStatistics) -> Array:
    """Return F with F'F = co-moments and as few rows as their rank."""
    moments = part.comoment
    scale = np.sqrt(np.diagonal(moments))
    scale = np.where(scale > 0, scale, 1.0)
    scaled = moments / np.outer(scale, scale)
    tolerance = scale.size * part.rounding if part.rounding else -1.0
    factor, order = factor_of_matrix(scaled, tolerance)
    return factor[:, np.argsort(order)] * scale


def _filled(parts: _Parts) -> dict[str, SufficientStatistics]:
    filled = {client: part for client, part in parts.items() if part.total_weight > 0}
    if len(filled) < 2:
        raise StatisticsError(
            "leaving one client out needs at least 2 clients with rows, got "
            f'{len(filled)}: use generalized cross-validation ("gcv").'
        )
    return filled


def total_of(parts: _Parts) -> Any:
    """Return the statistics of all rows together; there must be one part at least."""
    first, *others = parts.values()
    running = first.start_total()
    for part in others:
        running.add(part)
    return running.total()


def squared_errors(
    gram: Array,
    moment: Array,
    target_squares: Array,
    weights: Array,
    rounding: float = 0.0,
) -> Array:
    """Return y'y - 2 w'h + w'G w per alpha and target, for weights (d, a, t)."""
    d = gram.shape[0]
    product = (gram @ weights.reshape(d, -1)).reshape(weights.shape)
    product -= 2.0 * moment[:, None, :]
    errors = target_squares + np.einsum("dat,dat->at", weights, product)
    cancelled = max(_CANCELLED, rounding)
    if (errors < cancelled * target_squares).any():
        warnings.warn(
            f"some held-out losses are below {cancelled:.0e} of the spread of y, where "
            'rounding of the statistics hides them: use cv="clients", or '
            'statistics="triangular".',
            ClampedLossWarning,
            stacklevel=2,
        )
    return np.asarray(np.maximum(errors, 0.0))
