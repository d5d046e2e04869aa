"""How far one client moves what a model says of the rows of others.

Cook's distance of client k, of the others' rows and with w and w_-k the models with and
without it,

    D_k = sqrt(d' C_-k d / W_-k + s²) / sigma_-k,    d = w - w_-k,

is by how many residual standard deviations of the others (sigma_-k, under their own
model) predictions for their rows move because k is there; s is what the intercept adds
at their mean, and the largest over the targets counts.

Two clients that lie the same way hide each other when one is left out in turn. So "the
others" are a core: the larger half of the clients, those that agree best with a first
model in which no client weighs more than a typical one. Members of the core are left
out of it in turn, everybody else is added to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg.blas import dspmv

from .errors import SingularSystemError
from .heldout import each_rest, total_of
from .rows import Array
from .solve import NormalEquations, normal_equations, solve_equations
from .statistics import SufficientStatistics
from .threads import one_blas_thread

__all__ = ["Influence", "influences"]

# Of the spread of y: no model is taken to be better than that.
_SMALLEST_RESIDUAL = 1e-3
_SMALL_PENALTY = 1e-6
_ROUNDING = 1e-12
_WIDE = 400

Parts = Mapping[str, SufficientStatistics]


@dataclass(frozen=True)
class Influence:
    """What the presence of one client does.

    Attributes
    ----------
    distance : float
        Cook's distance D_k, NaN where nothing can be said.
    share : float
        Its part of the weight, of its own and the others' together.
    """

    distance: float
    share: float


def influences(
    parts: Parts,
    alpha: float,
    *,
    fit_intercept: bool = True,
    standardize: bool = False,
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
    options = {"fit_intercept": fit_intercept, "standardize": standardize}
    small = all(part.n_features < _WIDE for part in parts.values())
    with np.errstate(all="ignore"), one_blas_thread() if small else nullcontext():
        try:
            return _influences(filled, alpha, options)
        except SingularSystemError:
            weight = sum(part.total_weight for part in filled.values())
            options["standardize"] = True
            return _influences(filled, _SMALL_PENALTY * weight, options)


def _influences(
    parts: Parts, alpha: float, options: dict[str, bool]
) -> dict[str, Influence]:
    core = _core(parts, alpha, options)
    inside = {client: part for client, part in parts.items() if client in core}
    total = total_of(inside)
    everybody = _Fitted.of(total, alpha, options)
    found = {}
    for client, rest in each_rest(inside, set(inside)):
        found[client] = _influence(everybody, rest, alpha, options)
    for client, part in parts.items():
        if client not in core:
            joined = _Fitted.of(total + part, alpha, options)
            found[client] = joined.influence(everybody)
    return {client: found[client] for client in parts}


def _influence(
    everybody: _Fitted, rest: SufficientStatistics, alpha: float, options: Any
) -> Influence:
    """Return what there is to say of a member of the core."""
    try:
        return everybody.influence(_Fitted.of(rest, alpha, options))
    except SingularSystemError:
        share = 1.0 - rest.total_weight / everybody.stats.total_weight
        return Influence(np.nan, share)


@dataclass(frozen=True)
class _Fitted:
    """Statistics, and the coefficients (d, t) they give."""

    stats: SufficientStatistics
    equations: NormalEquations
    coef: Array

    @classmethod
    def of(
        cls, stats: SufficientStatistics, alpha: float, options: dict[str, bool]
    ) -> _Fitted:
        equations = normal_equations(stats, **options)
        return cls(stats, equations, solve_equations(equations, alpha)[0])

    def influence(self, without: _Fitted) -> Influence:
        """Return the influence of the one client that `without` does not have."""
        rest, weight = without.stats, without.stats.total_weight
        moved = self.coef - without.coef
        squares = _squares(moved, without.equations.product(moved)) / weight
        if self.equations.fit_intercept:
            there = rest.feature_means - self.stats.feature_means
            predicted = self.stats.target_means + there @ self.coef
            squares = squares + (predicted - rest.target_means) ** 2
        variances = without.residual_variances(self)
        distance = np.sqrt(np.max(np.where(squares > 0, squares / variances, 0.0)))
        return Influence(float(distance), 1.0 - weight / self.stats.total_weight)

    @cached_property
    def _residual_squares(self) -> Array:
        coef, equations = self.coef, self.equations
        rest = equations.product(coef) - 2.0 * equations.rhs
        return np.asarray(self._spread + _squares(coef, rest))

    def residual_variances(self, larger: _Fitted) -> Array:
        """Return the variance of the residuals of every target."""
        stats = self.stats
        freedom = stats.count / max(stats.count - stats.n_features - 1, 1)
        # What is left of a target that only one client varies is rounding.
        own = self._spread > _ROUNDING * larger._spread
        spread = np.where(own, self._spread, larger._spread)
        lowest = _SMALLEST_RESIDUAL**2 * spread
        squares = np.maximum(self._residual_squares * freedom, lowest)
        return np.asarray(squares / stats.total_weight)

    @cached_property
    def _spread(self) -> Array:
        stats = self.stats
        centred = self.equations.fit_intercept
        return np.diagonal(stats.centred_target_gram if centred else stats.target_gram)


def _core(parts: Parts, alpha: float, options: dict[str, bool]) -> set[str]:
    """Return the larger half of the clients, those that agree best.

    With r_k the moments of X with the residuals of client k under the first model,
    A^-1 r_k is to first order what it does to the coefficients. That, in units of
    predictions and for its share of the weight, is how little it agrees.
    """
    usual = float(np.median([part.total_weight for part in parts.values()]))
    capped = {client: _capped(part, usual) for client, part in parts.items()}
    first = _Fitted.of(total_of(capped), alpha, options)
    stats, equations = first.stats, first.equations
    d, t = stats.n_features, stats.n_targets
    contrast = np.vstack([-first.coef, np.eye(t)])
    centre = stats.means if equations.fit_intercept else np.zeros(d + t)
    pulls, offsets = np.empty((d, len(parts), t)), np.empty((len(parts), t))
    for k, part in enumerate(capped.values()):
        gap = part.means - centre
        offsets[k] = gap @ contrast
        own = _times(part.triangle, contrast)[:d]
        pulls[:, k] = own + part.total_weight * np.outer(gap[:d], offsets[k])
    pulled = replace(equations, rhs=pulls.reshape(d, -1))
    moves = solve_equations(pulled, alpha)[0]
    squares = _squares(moves, equations.product(moves)).reshape(len(parts), t)
    shares = np.array([part.total_weight for part in capped.values()])
    shares = shares / stats.total_weight
    disagreement = squares / stats.total_weight / shares[:, None] ** 2
    if equations.fit_intercept:
        disagreement += offsets**2
    scores = np.max(disagreement / first.residual_variances(first), axis=1)
    kept = len(parts) - (len(parts) - 1) // 2
    clients = list(parts)
    order = np.argsort(np.nan_to_num(scores, nan=np.inf), kind="stable")
    return {clients[k] for k in order[:kept]}


def _capped(part: SufficientStatistics, weight: float) -> SufficientStatistics:
    """Return the statistics of the same rows with less weight on each, if need be."""
    if part.total_weight <= weight:
        return part
    triangle = part.triangle * (weight / part.total_weight)
    return replace(part, total_weight=weight, triangle=triangle)


def _times(triangle: Array, vectors: Array) -> Array:
    """Return C V from the upper triangle of C, without making C."""
    width = len(vectors)
    # Rows of the upper triangle are columns of the lower, as BLAS wants them.
    columns = [dspmv(width, 1.0, triangle, vector, lower=1) for vector in vectors.T]
    return np.column_stack(columns)


def _squares(left: Array, right: Array) -> Array:
    return np.asarray(np.einsum("dt,dt->t", left, right))
