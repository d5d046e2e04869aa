"""A model as a fitted estimator of scikit-learn."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import Pipeline

    from .model import RidgeModel


def fitted_estimator(model: RidgeModel) -> Ridge | Pipeline:
    """Return a Ridge with these coefficients, behind the feature map if any."""
    if model.features is not None and model.features.known is None:
        warnings.warn(
            "the model knows the hashes of its column names only, and scikit-learn "
            "takes columns by position, in the order of the fit: use model.predict, or "
            "share_feature_names=True at the clients.",
            UserWarning,
            stacklevel=3,
        )
    if model.feature_map is None:
        return _ridge(model)
    from sklearn.pipeline import Pipeline

    mapping = model.feature_map.to_sklearn(model.n_features_in_)
    if hasattr(model, "feature_names_in_"):
        first = mapping[0] if isinstance(mapping, Pipeline) else mapping
        first.feature_names_in_ = model.feature_names_in_.copy()
    return Pipeline([("features", mapping), ("ridge", _ridge(model))])


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
    ridge.n_features_in_ = model.coef_.shape[-1]
    ridge.n_iter_ = None
    ridge.solver_ = "cholesky"
    if model.feature_map is None and hasattr(model, "feature_names_in_"):
        ridge.feature_names_in_ = model.feature_names_in_.copy()
    return ridge
