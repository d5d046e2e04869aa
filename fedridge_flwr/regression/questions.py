"""Questions answered from statistics alone: other columns, correlations, collinearity.

`select_columns` returns statistics, so that `solve`, `solve_path`, `select_alpha` and
`infer` answer for any subset of the features and any column as the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, cast

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri

from .._text import quoted
from .._types import Array
from ..data.names import Names
from ..data.schema import Schema
from ..errors import FedRidgeError, StatisticsError
from ..linalg.packed import mean_rounding
from .inference.named_matrix import NamedMatrix
from .normal_equations import Exact, as_moments
from .singular import explain_singular, singular_error
from .sites.site_parts import feature_labels, target_labels
from .solve import solve

_Stats = TypeVar("_Stats", bound=Exact)
Column = str | int
"""A column of [X Y] by its name, or by its number: features first, then targets."""


def column_labels(stats: Exact) -> tuple[str, ...]:
    """Return the names of all columns of [X Y]."""
    return feature_labels(stats.schema) + target_labels(stats.schema)


def select_columns(
    stats: _Stats,
    features: Sequence[Column] | None = None,
    targets: Column | Sequence[Column] | None = None,
) -> _Stats:
    """Return the statistics of some of the columns, each as a feature or a target.

    Solving them equals a fit on those columns of the pooled rows.

    Parameters
    ----------
    stats : SufficientStatistics or TriangularStatistics
        Statistics of all rows.
    features : sequence of str or int, optional
        Columns that are features: names, or numbers in [X Y]. By default all features
        that are not chosen as targets.
    targets : str, int or a sequence of them, optional
        Columns that are targets, also those that were features. By default the targets
        as they are.

    Returns
    -------
    SufficientStatistics or TriangularStatistics
        Of the same rows, in the same form.

    Raises
    ------
    FedRidgeError
        If a column is unknown, ambiguous, or chosen twice.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import SufficientStatistics, solve
    >>> from fedridge_flwr.regression import select_columns
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(50, 4)), rng.normal(size=50)
    >>> stats = SufficientStatistics.from_data(X, y)
    >>> fewer = solve(select_columns(stats, ["x0", "x2"]), alpha=0.0)
    >>> fresh = solve(SufficientStatistics.from_data(X[:, [0, 2]], y), alpha=0.0)
    >>> bool(np.allclose(fewer.coef_, fresh.coef_, rtol=1e-12))
    True

    Any column can be the target:

    >>> select_columns(stats, targets="x3")
    SufficientStatistics(50 rows, 3 features, 1 target)
    """
    labels, d = column_labels(stats), stats.n_features
    if targets is None:
        chosen = list(range(d, len(labels)))
    else:
        several = [targets] if isinstance(targets, str | int) else list(targets)
        chosen = [_place(each, labels) for each in several]
    kept = [j for j in range(d) if j not in chosen]
    if features is not None:
        kept = [_place(each, labels) for each in features]
    places = kept + chosen
    if len(set(places)) < len(places) or not kept or not chosen:
        raise FedRidgeError(
            "each column is chosen once, and there must be a feature and a target."
        )
    schema = _schema_of(
        stats.schema, *([labels[j] for j in each] for each in (kept, chosen))
    )
    return cast("_Stats", stats.taken(np.array(places), schema))


def correlations(stats: Exact) -> NamedMatrix:
    """Return the correlations of all columns, features and targets.

    Parameters
    ----------
    stats : SufficientStatistics
        Statistics of all rows.

    Returns
    -------
    NamedMatrix
        Correlations; NaN for a column that is constant.

    Examples
    --------
    >>> from fedridge_flwr import SufficientStatistics
    >>> from fedridge_flwr.regression import correlations
    >>> X, y = [[1.0, 2.0], [2.0, 1.0], [3.0, 5.0]], [1.0, 2.0, 4.0]
    >>> correlations(SufficientStatistics.from_data(X, y))
            x0      x1       y
    x0       1  0.7206   0.982
    x1  0.7206       1  0.8386
    y    0.982  0.8386       1
    """
    labels, scale = column_labels(stats), scales_of(stats)
    moments = as_moments(stats)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = moments.comoment / np.outer(scale, scale)
    np.einsum("ii->i", found)[:] = np.where(scale > 0, 1.0, np.nan)
    return NamedMatrix(np.clip(found, -1.0, 1.0), labels, labels)


def partial_correlations(stats: Exact) -> NamedMatrix:
    """Return the correlation of every two columns given all others.

    Parameters
    ----------
    stats : SufficientStatistics
        Statistics of all rows.

    Returns
    -------
    NamedMatrix
        Partial correlations of features and targets.

    Raises
    ------
    SingularSystemError
        If columns are constant or dependent; it names them.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import SufficientStatistics
    >>> from fedridge_flwr.regression import partial_correlations
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 2))
    >>> stats = SufficientStatistics.from_data(X, X.sum(axis=1) + rng.normal(size=100))
    >>> round(partial_correlations(stats)["x0", "x1"], 3)
    -0.357
    """
    labels = column_labels(stats)
    inverse = _inverse_correlations(
        as_moments(stats).comoment, scales_of(stats), labels
    )
    scale = 1.0 / np.sqrt(np.diagonal(inverse))
    found = -inverse * np.outer(scale, scale)
    np.einsum("ii->i", found)[:] = 1.0
    return NamedMatrix(found, labels, labels)


def variance_inflation(stats: Exact) -> dict[str, float]:
    """Return the variance inflation factor ``1 / (1 - R²)`` of every feature.

    R² is that of the feature regressed on all other features. Above ten, its
    coefficient can hardly be distinguished from those of the others.

    Parameters
    ----------
    stats : SufficientStatistics
        Statistics of all rows.

    Returns
    -------
    dict of str to float
        Factors by feature.

    Raises
    ------
    SingularSystemError
        If features are constant or dependent; it names them.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import SufficientStatistics
    >>> from fedridge_flwr.regression import variance_inflation
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> X[:, 1] += 2.0 * X[:, 0]
    >>> found = variance_inflation(SufficientStatistics.from_data(X, X[:, 0]))
    >>> {name: round(factor, 2) for name, factor in found.items()}
    {'x0': 5.9, 'x1': 5.9}
    """
    labels, scale = feature_labels(stats.schema), scales_of(stats)[: stats.n_features]
    inverse = _inverse_correlations(as_moments(stats).centred_gram, scale, labels)
    return dict(zip(labels, np.diagonal(inverse).tolist(), strict=True))


def standardized_coefficients(
    stats: Exact, alpha: float = 0.0, *, standardize: bool = False
) -> NamedMatrix:
    """Return coefficients in standard deviations: of the target per one of a feature.

    Parameters
    ----------
    stats : SufficientStatistics
        Statistics of all rows.
    alpha, standardize
        As in `solve`.

    Returns
    -------
    NamedMatrix
        One row per feature, one column per target; NaN where a target is constant.

    Examples
    --------
    >>> from fedridge_flwr import SufficientStatistics
    >>> from fedridge_flwr.regression import standardized_coefficients
    >>> X, y = [[1.0], [2.0], [4.0]], [3.0, 1.0, 0.0]
    >>> standardized_coefficients(SufficientStatistics.from_data(X, y))
              y
    x0  -0.9286
    """
    model, scale = solve(stats, alpha, standardize=standardize), scales_of(stats)
    features, targets = scale[: stats.n_features], scale[stats.n_features :]
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.atleast_2d(model.coef_).T * features[:, None] / targets
    return NamedMatrix(found, feature_labels(stats.schema), target_labels(stats.schema))


def scales_of(stats: Exact) -> Array:
    """Return root sums of squares of all columns, 0 for constants."""
    weight, means, squares = stats.scale()
    constant = squares <= weight * mean_rounding(means)
    return np.sqrt(np.where(constant, 0.0, squares))


def _inverse_correlations(moments: Array, scale: Array, labels: Sequence[str]) -> Array:
    constant = np.flatnonzero(scale == 0).tolist()
    if not constant:
        found = moments / np.outer(scale, scale)
        np.einsum("ii->i", found)[:] = 1.0
        factor, failed = dpotrf(found, lower=1)
        inverse, singular = dpotri(factor, lower=1)
        limit = 1.0 / (100 * np.finfo(np.float64).eps * len(labels))
        if not failed and not singular and np.diagonal(inverse).max() < limit:
            lower = np.tril(inverse)
            return np.asarray(lower + np.tril(inverse, -1).T)
    reasons = explain_singular(moments, constant, labels)
    raise singular_error(reasons, drop="leave these columns out by select_columns")


def _schema_of(old: Schema, features: list[str], targets: list[str]) -> Schema:
    """Return the schema of chosen columns, which stay what they were called.

    Columns of a map are called by their numbers, and are no longer those of the map.
    """
    if (tuple(features), tuple(targets)) == (feature_labels(old), target_labels(old)):
        return old
    return Schema(len(features), len(targets), Names.of(features), Names.of(targets))


def _place(column: Column, labels: tuple[str, ...]) -> int:
    if isinstance(column, str):
        found = [j for j, label in enumerate(labels) if label == column]
        if len(found) == 1:
            return found[0]
        problem = "occurs twice: use its number" if found else "is not a column"
        raise FedRidgeError(f"{column!r} {problem}; there are {quoted(labels, 8)}.")
    if not 0 <= column < len(labels):
        raise StatisticsError(f"there is no column {column}: 0 to {len(labels) - 1}.")
    return int(column)
