"""A feature map as a scikit-learn transformer; the only room that needs it to load."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ..rows import Array
from .base import FeatureMap

__all__ = ["FeatureMapTransformer"]


class FeatureMapTransformer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """phi(x) for scikit-learn's pipelines; `fit` learns the number of columns only.

    Parameters
    ----------
    feature_map : str
        JSON of the map, so that clones and pickles hold text and no arrays.

    Examples
    --------
    >>> transformer = FeatureMapTransformer('{"kind":"polynomial","degree":2}')
    >>> transformer.fit_transform([[2.0, 3.0]])
    array([[2., 3., 4., 6., 9.]])
    """

    def __init__(self, feature_map: str) -> None:
        self.feature_map = feature_map

    def fit(self, X: Any, y: Any = None) -> FeatureMapTransformer:
        """Note the number of columns."""
        validate_data(self, X, accept_sparse="csr")
        FeatureMap.from_json(self.feature_map).n_features_out(self.n_features_in_)
        return self

    def transform(self, X: Any) -> Array:
        """Return phi of every row."""
        check_is_fitted(self, "n_features_in_")
        X = validate_data(self, X, accept_sparse="csr", reset=False)
        mapped: Array = FeatureMap.from_json(self.feature_map).transform(X)
        return mapped
