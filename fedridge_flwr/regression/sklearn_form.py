"""A model as a fitted estimator of scikit-learn."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import Pipeline

    from .model import RidgeModel


def fitted_estimator(model: RidgeModel) -> Ridge | Pipeline:
    """Return a Ridge with these coefficients, behind the feature map if any."""
    if model.features is not None and model.features.known is None:
        warnings.warn(
            "the model knows only the hashes of its column names, and scikit-learn "
            "takes columns by position, in the order of the fit: use model.predict, "
            "or share_feature_names=True at the clients.",
            UserWarning,
            stacklevel=3,
        )
    if model.feature_map is None:
        return _last_step(model)
    from sklearn.pipeline import Pipeline

    mapping = model.feature_map.to_sklearn(model.n_features_in_)
    if hasattr(model, "feature_names_in_"):
        first = mapping[0] if isinstance(mapping, Pipeline) else mapping
        first.feature_names_in_ = model.feature_names_in_.copy()
    return Pipeline([("features", mapping), (_name_of(model), _last_step(model))])


def _last_step(model: Any) -> Any:
    family = getattr(model, "family", "gaussian")
    if family == "gaussian":
        return _ridge(model)
    if family == "poisson":
        return _poisson(model)
    if model.coef_.ndim == 1:
        return _logistic(model, model.coef_, model.intercept_, model.classes_)
    return _one_vs_rest(model)


def _name_of(model: Any) -> str:
    return "ridge" if not hasattr(model, "family") else str(model.family)


def _with_columns(estimator: Any, model: RidgeModel) -> Any:
    estimator.n_features_in_ = model.coef_.shape[-1]
    if model.feature_map is None and hasattr(model, "feature_names_in_"):
        estimator.feature_names_in_ = model.feature_names_in_.copy()
    return estimator


def _logistic(model: RidgeModel, coef: Any, intercept: Any, classes: Any) -> Any:
    from sklearn.linear_model import LogisticRegression

    strength = np.inf if model.alpha_ == 0 else 1.0 / model.alpha_
    logistic = LogisticRegression(C=strength, fit_intercept=model.fit_intercept)
    logistic.coef_ = np.array(coef)[None, :]
    logistic.intercept_ = np.atleast_1d(np.array(intercept, dtype=float))
    logistic.classes_ = np.array(classes)
    logistic.n_iter_ = np.array([1], dtype=np.int32)
    return _with_columns(logistic, model)


def _poisson(model: RidgeModel) -> Any:
    from sklearn._loss import HalfPoissonLoss
    from sklearn.linear_model import PoissonRegressor

    share = model.alpha_ / max(model.n_rows_ or 1, 1)
    poisson = PoissonRegressor(alpha=share, fit_intercept=model.fit_intercept)
    poisson.coef_, poisson.intercept_ = model.coef_.copy(), float(model.intercept_)
    poisson.n_iter_, poisson._base_loss = 1, HalfPoissonLoss()
    return _with_columns(poisson, model)


def _one_vs_rest(model: Any) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.preprocessing import LabelBinarizer

    intercepts = np.broadcast_to(model.intercept_, len(model.coef_))
    several = OneVsRestClassifier(LogisticRegression())
    several.estimators_ = [
        _logistic(model, coef, intercept, [0, 1])
        for coef, intercept in zip(model.coef_, intercepts, strict=True)
    ]
    several.label_binarizer_ = LabelBinarizer(sparse_output=True).fit(model.classes_)
    several.classes_ = several.label_binarizer_.classes_
    return _with_columns(several, model)


def _ridge(model: RidgeModel) -> Ridge:
    from sklearn.linear_model import Ridge, RidgeClassifier
    from sklearn.preprocessing import LabelBinarizer

    classes = getattr(model, "classes_", None)
    kind = Ridge if classes is None else RidgeClassifier
    ridge = kind(alpha=model.alpha_, fit_intercept=model.fit_intercept)
    if classes is not None:
        binarizer = LabelBinarizer(pos_label=1, neg_label=-1)
        ridge._label_binarizer = binarizer.fit(classes)
        if not hasattr(ridge, "classes_"):  # in older versions a property
            ridge.classes_ = classes
    ridge.coef_ = model.coef_.copy()
    ridge.intercept_ = np.copy(model.intercept_)[()]
    ridge.n_iter_ = None
    ridge.solver_ = "cholesky"
    found: Ridge = _with_columns(ridge, model)
    return found
