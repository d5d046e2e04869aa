"""A feature map as a scikit-learn transformer; imported only where it is used."""

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ..data.rows import finite_block
from ..errors import DataError
from .base import FeatureMap


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

    def fit(self, X: Any, y: Any = None) -> Self:
        """Note the number of columns, and their names if X is a frame."""
        n_features = int(finite_block(X).shape[1])
        self._n_features_out = self._map().n_features_out(n_features)
        self.n_features_in_ = n_features
        names = _names(X)
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return self

    def transform(self, X: Any) -> Any:
        """Return phi of every row."""
        check_is_fitted(self, "n_features_in_")
        block = finite_block(X)
        if block.shape[1] != self.n_features_in_:
            raise DataError(
                f"X has {block.shape[1]} features, but the map was fitted with "
                f"{self.n_features_in_}."
            )
        known, names = getattr(self, "feature_names_in_", None), _names(X)
        if known is not None and names is not None and list(known) != names:
            raise DataError("the feature names of X are not those of the fit.")
        return self._map().transform(block)

    def _map(self) -> FeatureMap:
        return FeatureMap.from_json(self.feature_map)


def _names(X: Any) -> list[str] | None:
    labels = list(getattr(X, "columns", ()))
    return labels if labels and all(isinstance(x, str) for x in labels) else None
