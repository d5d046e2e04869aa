"""Lasso and elastic net by coordinate descent on the Gram matrix, and CV over sites.

With n the total weight, minimises scikit-learn's objective::

    ||y - X w - b||² / (2 n) + alpha l1 ||w||_1 + alpha (1 - l1) ||w||² / 2

No row is read again: Gram matrix and moments are all that the descent needs.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._checks import check_alpha, check_fraction, check_positive, check_whole
from .._types import Array
from ..errors import FedRidgeError, NotConvergedWarning, StatisticsError
from ..linalg.coordinate_descent import PenalisedQuadratic
from ..statistics.sufficient import SufficientStatistics
from .alpha.alpha_grid import check_alphas
from .alpha.leave_client_out import HeldOut, each_rest, total_of
from .model import RidgeModel
from .normal_equations import NormalEquations, normal_equations
from .sites.site_parts import Parts, feature_labels, named_parts
from .solve import sklearn_shapes

_SMALLEST = 1e-3
_GRID = 100


@dataclass(frozen=True, eq=False)
class ElasticNetModel:
    """Coefficients of a lasso or elastic net, of which many may be zero.

    Parameters
    ----------
    coef_ : ndarray of shape (d,) or (t, d)
        Coefficients in the units of the features.
    intercept_ : float or ndarray of shape (t,)
        Intercept.
    alpha_, l1_ratio_ : float
        Penalty, as in scikit-learn's ElasticNet, and its share of the L1 norm.
    n_iter_ : int
        Sweeps over all coefficients that it took.
    features : tuple of str
        Names of the features.
    model : RidgeModel
        The same coefficients, for predictions.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import SufficientStatistics
    >>> from fedridge_flwr.regression import elastic_net
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 5))
    >>> y = 3.0 * X[:, 1] + rng.normal(size=100)
    >>> model = elastic_net(SufficientStatistics.from_data(X, y), 0.3, l1_ratio=1.0)
    >>> model.selected
    ('x1',)
    >>> model.predict(X[:2]).shape
    (2,)
    """

    coef_: Array
    intercept_: float | Array
    alpha_: float
    l1_ratio_: float
    n_iter_: int
    features: tuple[str, ...]
    model: RidgeModel = field(repr=False)

    @property
    def selected(self) -> tuple[str, ...]:
        """Features that have a coefficient, for several targets in any of them."""
        used = np.atleast_2d(self.coef_).any(axis=0)
        return tuple(np.array(self.features, dtype=object)[used])

    def predict(self, X: Any) -> Array:
        """Return predictions, as `RidgeModel.predict` does."""
        return self.model.predict(X)


@dataclass(frozen=True, eq=False)
class ElasticNetSelection:
    """How the penalty of an elastic net was chosen.

    Parameters
    ----------
    alpha : float
        The choice.
    alphas : ndarray of shape (a,)
        Candidates, descending.
    mean : ndarray of shape (a,)
        Mean squared error over all rows of left-out sites.
    losses : ndarray of shape (sites, a)
        The same on the rows of each site.
    sites : list of str
        Sites behind the rows of `losses`.
    model : ElasticNetModel
        The model at `alpha`, fitted on all rows.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import SufficientStatistics
    >>> from fedridge_flwr.regression import select_elastic_net
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 5))
    >>> y = 3.0 * X[:, 1] + rng.normal(size=100)
    >>> parts = [SufficientStatistics.from_data(X[k::5], y[k::5]) for k in range(5)]
    >>> chosen = select_elastic_net(parts, [0.01, 0.1, 1.0], l1_ratio=1.0)
    >>> chosen
    ElasticNetSelection(alpha=0.1, of 3 candidates, by leaving 5 sites out in turn)
    >>> chosen.losses.shape
    (5, 3)
    """

    alpha: float
    alphas: Array
    mean: Array
    losses: Array
    sites: list[str]
    model: ElasticNetModel

    def __repr__(self) -> str:
        return (
            f"ElasticNetSelection(alpha={self.alpha:.4g}, of {len(self.alphas)} "
            f"candidates, by leaving {len(self.sites)} sites out in turn)"
        )


def elastic_net(
    stats: SufficientStatistics,
    alpha: float,
    *,
    l1_ratio: float = 0.5,
    fit_intercept: bool = True,
    tol: float = 1e-10,
    max_iter: int = 10_000,
) -> ElasticNetModel:
    """Return the elastic net on the pooled rows; ``l1_ratio=1`` is the lasso.

    Minimises ``||y - X w - b||² / (2 n) + alpha l1_ratio ||w||_1 +
    alpha (1 - l1_ratio) ||w||² / 2``, with n the total weight: scikit-learn's
    ElasticNet and Lasso. (Its alpha is not that of `solve`: ridge regression with
    alpha a is ``elastic_net(stats, a / n, l1_ratio=0)``.)

    Parameters
    ----------
    stats : SufficientStatistics
        Statistics of all rows.
    alpha : float
        Penalty, zero or more.
    l1_ratio : float
        Share of the L1 norm, from 0 to 1.
    fit_intercept : bool
        Whether there is an intercept; it is not penalised.
    tol : float
        How far the optimality conditions may be violated, of the largest ``|X'y|``.
    max_iter : int
        Sweeps over all coefficients at most.

    Returns
    -------
    ElasticNetModel
        The model.

    Raises
    ------
    FedRidgeError
        If an argument is not valid.

    Warns
    -----
    NotConvergedWarning
        If `max_iter` sweeps did not suffice.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Lasso
    >>> from fedridge_flwr import SufficientStatistics
    >>> from fedridge_flwr.regression import elastic_net
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(100, 5)), rng.normal(size=100)
    >>> model = elastic_net(SufficientStatistics.from_data(X, y), 0.05, l1_ratio=1.0)
    >>> pooled = Lasso(alpha=0.05, tol=1e-12).fit(X, y)
    >>> bool(np.allclose(model.coef_, pooled.coef_, atol=1e-8))
    True
    """
    (model,) = elastic_net_path(
        stats,
        [check_alpha(alpha)],
        l1_ratio=l1_ratio,
        fit_intercept=fit_intercept,
        tol=tol,
        max_iter=max_iter,
    )
    return model


def elastic_net_path(
    stats: SufficientStatistics,
    alphas: Sequence[float] | Array,
    *,
    l1_ratio: float = 0.5,
    fit_intercept: bool = True,
    tol: float = 1e-10,
    max_iter: int = 10_000,
) -> list[ElasticNetModel]:
    """Return the elastic nets of many penalties, each starting at the one before.

    Parameters
    ----------
    stats : SufficientStatistics
        Statistics of all rows.
    alphas : sequence of float
        Penalties; in descending order they are found fastest.
    l1_ratio, fit_intercept, tol, max_iter
        As in `elastic_net`.

    Returns
    -------
    list of ElasticNetModel
        One model for each penalty.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import SufficientStatistics
    >>> from fedridge_flwr.regression import elastic_net_path
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 5))
    >>> stats = SufficientStatistics.from_data(X, X[:, 0] + 0.5 * X[:, 3])
    >>> [len(m.selected) for m in elastic_net_path(stats, [1.0, 0.6, 0.1], l1_ratio=1)]
    [0, 1, 2]
    """
    equations = normal_equations(stats, fit_intercept=fit_intercept)
    share = check_fraction("l1_ratio", l1_ratio)
    checked = [check_alpha(alpha) for alpha in alphas]
    problem = _Problem(
        equations, share, check_positive("tol", tol), check_whole("max_iter", max_iter)
    )
    models, coef = [], np.zeros_like(equations.rhs)
    for alpha in checked:
        coef, sweeps = problem.solve(alpha, coef)
        models.append(_model(equations, coef, alpha, share, sweeps))
    return models


def lasso_alphas(
    stats: SufficientStatistics, l1_ratio: float = 1.0, *, fit_intercept: bool = True
) -> Array:
    """Return 100 penalties, from the smallest that removes all columns to 1/1000 of it.

    Parameters
    ----------
    stats : SufficientStatistics
        Statistics of all rows.
    l1_ratio : float
        Share of the L1 norm, above zero.
    fit_intercept : bool
        Whether there is an intercept.

    Returns
    -------
    ndarray of shape (100,)
        Penalties, descending; those that scikit-learn's LassoCV tries by default.

    Examples
    --------
    >>> from fedridge_flwr import SufficientStatistics
    >>> from fedridge_flwr.regression import lasso_alphas
    >>> stats = SufficientStatistics.from_data([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0])
    >>> lasso_alphas(stats)[[0, -1]].round(6)
    array([0.666667, 0.000667])
    """
    share = check_fraction("l1_ratio", l1_ratio)
    equations = normal_equations(stats, fit_intercept=fit_intercept)
    largest = float(np.abs(equations.rhs).max()) / stats.total_weight
    if share == 0.0 or largest == 0.0:
        raise FedRidgeError(
            "there is no automatic grid if l1_ratio is zero or no feature is "
            "correlated with the target: give alphas."
        )
    return np.geomspace(largest / share, largest / share * _SMALLEST, _GRID)


def select_elastic_net(
    parts: Parts,
    alphas: Sequence[float] | str = "auto",
    *,
    l1_ratio: float = 1.0,
    fit_intercept: bool = True,
    tol: float = 1e-8,
) -> ElasticNetSelection:
    """Choose the penalty that predicts the rows of left-out sites best.

    Parameters
    ----------
    parts : mapping or iterable of SufficientStatistics
        Statistics by site.
    alphas : sequence of float or "auto"
        Positive candidates, or `lasso_alphas` of all rows.
    l1_ratio, fit_intercept, tol
        As in `elastic_net`.

    Returns
    -------
    ElasticNetSelection
        The choice, the losses behind it, and the model refitted on all rows.

    Raises
    ------
    StatisticsError
        If fewer than two sites have rows.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import SufficientStatistics
    >>> from fedridge_flwr.regression import select_elastic_net
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 5))
    >>> y = 3.0 * X[:, 1] + rng.normal(size=100)
    >>> parts = [SufficientStatistics.from_data(X[k::5], y[k::5]) for k in range(5)]
    >>> select_elastic_net(parts).model.selected
    ('x1',)
    """
    sites = named_parts(parts, fewest=2)
    total = total_of(sites)
    if isinstance(alphas, str):
        if alphas != "auto":
            raise FedRidgeError(f'alphas must be "auto" or numbers, got {alphas!r}.')
        grid = lasso_alphas(total, l1_ratio, fit_intercept=fit_intercept)
    else:
        grid = check_alphas(alphas)[::-1]
    options: dict[str, Any] = {
        "l1_ratio": l1_ratio,
        "fit_intercept": fit_intercept,
        "tol": tol,
    }
    found: dict[str, Array] = {}
    for site, rest in each_rest(sites, set(sites)):
        path = elastic_net_path(rest, grid, **options)
        coef = np.stack([np.atleast_2d(each.coef_) for each in path])
        levels = [np.broadcast_to(m.intercept_, coef.shape[1]) for m in path]
        found[site] = HeldOut(coef, np.stack(levels)).losses(sites[site])
    losses = np.stack([found[site] for site in sites])
    if not np.isfinite(losses).all():
        raise StatisticsError("some losses are not finite: the sites differ too much.")
    weights = np.array([part.total_weight for part in sites.values()])
    mean = weights / weights.sum() @ losses
    best = int(np.argmin(mean))
    model = elastic_net_path(total, grid[: best + 1], **options)[-1]
    return ElasticNetSelection(
        float(grid[best]), grid, mean, losses, list(sites), model
    )


class _Problem:
    """The elastic nets of one Gram matrix, in columns of unit length.

    Scaling the columns scales the penalties with them: nothing else changes.
    """

    def __init__(
        self, equations: NormalEquations, share: float, tol: float, max_iter: int
    ) -> None:
        weight = equations.full.total_weight if equations.full else 1.0
        scale = np.sqrt(np.maximum(equations.diagonal, 0.0) / weight)
        self._used = np.flatnonzero((scale > 0) & ~equations.constant)
        self._scale = scale = scale[self._used]
        square = np.ix_(self._used, self._used)
        self._gram = equations.matrix[square] / (weight * np.outer(scale, scale))
        np.einsum("ii->i", self._gram)[:] = 1.0
        self._moment = equations.rhs[self._used] / (weight * scale[:, None])
        self._share, self._tol, self._max_iter = share, tol, max_iter

    def solve(self, alpha: float, start: Array) -> tuple[Array, int]:
        """Return the coefficients (d, t) for one alpha, and the sweeps they took."""
        first = alpha * self._share / self._scale
        second = alpha * (1.0 - self._share) / self._scale**2
        found, sweeps = np.zeros_like(start), 0
        for k, moment in enumerate(self._moment.T):
            begin = start[self._used, k] * self._scale
            problem = PenalisedQuadratic(self._gram, moment, first, second)
            ended = problem.descend(begin, self._tol, self._max_iter)
            found[self._used, k] = ended.solution / self._scale
            sweeps = max(sweeps, ended.sweeps)
            if not ended.converged:
                warnings.warn(
                    f"coordinate descent ended after {ended.sweeps} sweeps before it "
                    "converged: raise max_iter, tol or alpha.",
                    NotConvergedWarning,
                    stacklevel=4,
                )
        return found, sweeps


def _model(
    equations: NormalEquations, found: Array, alpha: float, share: float, sweeps: int
) -> ElasticNetModel:
    stats = equations.stats
    coef, intercept = sklearn_shapes(found, equations.intercepts(found))
    model = RidgeModel(
        coef=coef,
        intercept=intercept,
        alpha=alpha,
        fit_intercept=equations.fit_intercept,
        feature_names=None if stats.feature_map else stats.schema.features,
        target_names=stats.schema.targets,
        map_fingerprint=stats.feature_map,
        n_rows=stats.count,
        n_clients=stats.n_clients,
        r2=equations.r2(found),
    )
    labels = feature_labels(stats.schema)
    return ElasticNetModel(coef, intercept, alpha, share, sweeps, labels, model)
