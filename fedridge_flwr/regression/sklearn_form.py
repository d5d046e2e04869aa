"""A model in scikit-learn's form: shapes of its arrays, and fitted estimators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .._types import Array

if TYPE_CHECKING:
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import Pipeline

    from .model import RidgeModel

__all__ = ["fitted_estimator", "sklearn_shapes"]


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


def fitted_estimator(model: RidgeModel) -> Ridge | Pipeline:
    """Return a Ridge with these coefficients, behind the feature map if any."""
    if model.feature_map is None:
        return _ridge(model)
    from sklearn.pipeline import Pipeline

    mapping = model.feature_map.to_sklearn(model.n_features_in_)
    if hasattr(model, "feature_names_in_"):
        first = mapping[0] if isinstance(mapping, Pipeline) else mapping
        first.feature_names_in_ = model.feature_names_in_.copy()
    return Pipeline([("features", mapping), ("ridge", _ridge(model))])


def _ridge(model: RidgeModel) -> Ridge:
    from sklearn.linear_model import Ridge

    ridge = Ridge(alpha=model.alpha_, fit_intercept=model.fit_intercept)
    ridge.coef_ = model.coef_.copy()
    ridge.intercept_ = np.copy(model.intercept_)[()]
    ridge.n_features_in_ = model.coef_.shape[-1]
    ridge.n_iter_ = None
    ridge.solver_ = "cholesky"
    if model.feature_map is None and hasattr(model, "feature_names_in_"):
        ridge.feature_names_in_ = model.feature_names_in_.copy()
    return ridge
