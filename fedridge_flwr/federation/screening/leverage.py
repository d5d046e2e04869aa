"""How far one client moves what a model says of the rows of others.

Cook's distance of client k, of the others' rows and with w and w_-k the models with and
without it,

    D_k = sqrt(d' C_-k d / W_-k + s²) / sigma_-k,    d = w - w_-k,

is by how many residual standard deviations of the others (sigma_-k, under their own
model) predictions for their rows move because k is there; s is what the intercept adds
at their mean, and the largest over the targets counts. Targets that the others do not
vary are left out.

Two clients that lie the same way hide each other when one is left out in turn. So "the
others" are a core: the larger half of the clients, those that agree best with each
other. Members of the core are left out of it in turn, everybody else is added to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Unpack

import numpy as np

from ..._types import Array
from ...errors import SingularSystemError
from ...linalg.blas import one_blas_thread
from ...linalg.packed import diagonal_positions, times
from ...regression.alpha.leave_client_out import each_rest, total_of
from ...regression.normal_equations import FitOptions, normal_equations, target_squares
from ...regression.solve import solve_equations
from ...statistics.sufficient import SufficientStatistics

# Of the spread of y: no model is taken to be better than that.
_SMALLEST_RESIDUAL = 1e-3
_SMALL_PENALTY = 1e-6
_ROUNDING = 1e-12
_FLAT = 1e-13
_WIDE = 400
_CONCENTRATIONS = 3
_ALIKE = 2.0
_FEW = 32
# A fifth of what `screening` takes for far.
_NEAR = 0.02
_SMALL_PART = 0.2

Parts = Mapping[str, SufficientStatistics]


@dataclass(frozen=True)
class Influence:
    """What the presence of one client does.

    Attributes
    ----------
    distance : float
        Cook's distance D_k, NaN where it cannot be computed.
    share : float
        Its part of the weight, of its own and the others' together.
    misfit : float
        Its mean squared error under the model of the core, in residual variances of
        the core; the largest over the targets.
    rows : int
        Number of its rows.
    """

    distance: float
    share: float
    misfit: float = 1.0
    rows: int = 0


def influences(
    parts: Parts, alpha: float, **options: Unpack[FitOptions]
) -> dict[str, Influence]:
    """Return the influence of every client that has rows; there must be 2 or more.

    Where the core does not determine the coefficients, a small penalty in the units of
    each column does.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows = [(X, X[:, 0]) for X in rng.normal(size=(5, 30, 2))]
    >>> parts = {str(k): SufficientStatistics.from_data(*r) for k, r in enumerate(rows)}
    >>> X, y = rows[0]
    >>> parts["liar"] = SufficientStatistics.from_data(X, -y)
    >>> found = influences(parts, 1.0)
    >>> max(found, key=lambda client: found[client].distance)
    'liar'
    """
    filled = {client: part for client, part in parts.items() if part.total_weight > 0}
    small = all(part.n_features < _WIDE for part in parts.values())
    with np.errstate(all="ignore"), one_blas_thread() if small else nullcontext():
        try:
            return _influences(filled, alpha, options)
        except SingularSystemError:
            weight = sum(part.total_weight for part in filled.values())
            options["standardize"] = True
            return _influences(filled, _SMALL_PENALTY * weight, options)


def _influences(
    parts: Parts, alpha: float, options: FitOptions
) -> dict[str, Influence]:
    core = _core(parts, alpha, options)
    inside = {client: part for client, part in parts.items() if client in core}
    total = total_of(inside)
    everybody = _Fitted(total, alpha, options)
    found = _first_look(everybody, parts, core)
    closer = _worth_a_closer_look(found, parts, total)
    for client, rest in each_rest(inside, closer & core):
        without = _fitted(rest, alpha, options)
        distance = everybody.distance(without, everybody)
        found[client] = replace(found[client], distance=distance)
    for client in closer - core:
        joined = _fitted(total + parts[client], alpha, options)
        distance = np.nan if joined is None else joined.distance(everybody, everybody)
        found[client] = replace(found[client], distance=distance)
    return found


def _first_look(
    everybody: _Fitted, parts: Parts, core: set[str]
) -> dict[str, Influence]:
    """Return influences to first order, for one solution of all right-hand sides."""
    squares, misfits = _disagreement(everybody, parts)
    moves, found, weight = np.sqrt(squares), {}, everybody.stats.total_weight
    for client, move, misfit in zip(parts, moves, misfits, strict=True):
        own, rows = parts[client].total_weight, parts[client].count
        share = own / weight if client in core else own / (weight + own)
        found[client] = Influence(float(move * share), share, float(misfit), rows)
    return found


def _worth_a_closer_look(
    found: dict[str, Influence], parts: Parts, total: SufficientStatistics
) -> set[str]:
    """Return whose influence needs a model of its own: all, if they are not many.

    The first order is right for clients that are a small part of everything. It says
    too little of one that has much of the spread of a column.
    """
    if len(parts) <= _FEW:
        return set(parts)
    diagonal = diagonal_positions(total.n_features + total.n_targets)
    spread = total.triangle[diagonal]
    closer = set()
    for client, part in parts.items():
        first = found[client]
        largest = np.nanmax(part.triangle[diagonal] / spread, initial=first.share)
        if not (first.distance < _NEAR and largest < _SMALL_PART):
            closer.add(client)
    return closer


def _fitted(
    stats: SufficientStatistics, alpha: float, options: FitOptions
) -> _Fitted | None:
    """Return the model of these statistics, if they determine one."""
    try:
        return _Fitted(stats, alpha, options)
    except SingularSystemError:
        return None


class _Fitted:
    """Statistics, and the coefficients (d, t) they give."""

    def __init__(
        self, stats: SufficientStatistics, alpha: float, options: FitOptions
    ) -> None:
        self.stats, self.alpha = stats, alpha
        self.equations = normal_equations(stats, **options)
        self.coef, _ = solve_equations(self.equations, alpha)

    def solve(self, rhs: Array) -> Array:
        """Return what the same system has for other right-hand sides."""
        return solve_equations(replace(self.equations, rhs=rhs), self.alpha)[0]

    def distance(self, without: _Fitted | None, core: _Fitted) -> float:
        """Return Cook's distance of the one client that `without` does not have."""
        if without is None:
            return np.nan
        rest, weight = without.stats, without.stats.total_weight
        moved = self.coef - without.coef
        squares = _squares(moved, without.equations.product(moved)) / weight
        if self.equations.fit_intercept:
            there = rest.feature_means - self.stats.feature_means
            predicted = self.stats.target_means + there @ self.coef
            squares = squares + (predicted - rest.target_means) ** 2
        # Of a target that does not vary without the client, there is no unit.
        varies = without.spread > np.maximum(core.flat, _ROUNDING * core.spread)
        variances = np.where(varies, without.residual_variances, np.inf)
        return float(np.sqrt(np.max(squares / variances)))

    @cached_property
    def residual_variances(self) -> Array:
        """The variance of the residuals of every target."""
        stats, coef, equations = self.stats, self.coef, self.equations
        rest = equations.product(coef) - 2.0 * equations.rhs
        freedom = stats.count / max(stats.count - stats.n_features - 1, 1)
        squares = (self.spread + _squares(coef, rest)) * freedom
        lowest = _SMALLEST_RESIDUAL**2 * self.spread
        return np.asarray(np.maximum(squares, lowest) / stats.total_weight)

    @property
    def flat(self) -> Array:
        """The spread below which a target is the rounding of its mean."""
        stats = self.stats
        return np.asarray(stats.total_weight * (_FLAT * stats.target_means) ** 2)

    @cached_property
    def spread(self) -> Array:
        """The sum of squares of every target."""
        return target_squares(self.stats, centred=self.equations.fit_intercept)


def _core(parts: Parts, alpha: float, options: FitOptions) -> set[str]:
    """Return the larger half of the clients, those that agree best.

    As for least trimmed squares: the half that agrees best with everybody's model makes
    the next model, and so on, in which no client weighs more than a typical one. Where
    all agree about as well, the first half is as good as any.
    """
    usual = float(np.median([part.total_weight for part in parts.values()]))
    capped = {client: _capped(part, usual) for client, part in parts.items()}
    size = len(parts) - (len(parts) - 1) // 2
    clients = np.array(list(parts), dtype=object)
    core = set(clients)
    for _ in range(_CONCENTRATIONS):
        inside = {client: capped[client] for client in clients if client in core}
        scores, _ = _disagreement(_Fitted(total_of(inside), alpha, options), capped)
        order = np.argsort(np.nan_to_num(scores, nan=np.inf), kind="stable")
        before, core = core, set(clients[order[:size]])
        if core == before or scores.max() < _ALIKE * np.median(scores):
            break
    return core


def _disagreement(model: _Fitted, parts: Parts) -> tuple[Array, Array]:
    """Return how little every client agrees with a model, and the model with it.

    With r_k the moments of X with its residuals, A^-1 r_k is to first order what the
    client does to the coefficients. That counts in units of predictions, squared, and
    for its share of the weight. The second are the mean squares of the residuals.
    """
    stats, equations = model.stats, model.equations
    d, t = stats.n_features, stats.n_targets
    contrast = np.vstack([-model.coef, np.eye(t)])
    centre = stats.means if equations.fit_intercept else np.zeros(d + t)
    gaps = np.array([part.means for part in parts.values()]) - centre
    offsets = gaps @ contrast
    pulls, errors = np.empty((d, len(parts), t)), offsets**2
    for k, part in enumerate(parts.values()):
        product = times(part.triangle, contrast) / part.total_weight
        pulls[:, k] = product[:d]
        errors[k] += _squares(contrast, product)
    pulls += gaps.T[:d, :, None] * offsets
    moves = model.solve(pulls.reshape(d, -1)) * stats.total_weight
    squares = _squares(moves, equations.product(moves)).reshape(len(parts), t)
    squares = squares / stats.total_weight
    if equations.fit_intercept:
        squares += offsets**2
    variances = np.where(model.spread > model.flat, model.residual_variances, np.inf)
    misfits = np.max(errors / variances, axis=1)
    return np.asarray(np.max(squares / variances, axis=1)), np.asarray(misfits)


def _capped(part: SufficientStatistics, weight: float) -> SufficientStatistics:
    """Return the statistics of the same rows with less weight on each, if need be."""
    if part.total_weight <= weight:
        return part
    triangle = part.triangle * (weight / part.total_weight)
    return replace(part, total_weight=weight, triangle=triangle)


def _squares(left: Array, right: Array) -> Array:
    return np.asarray(np.einsum("dt,dt->t", left, right))
