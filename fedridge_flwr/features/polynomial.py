"""`PolynomialMap`: powers and products of columns."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, combinations_with_replacement
from math import comb
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._checks import check_flag, check_size
from .._text import counted
from .._types import Array
from .base import FeatureMap, dense


@dataclass(frozen=True)
class PolynomialMap(FeatureMap):
    """All products ``x_i x_j ...`` of up to `degree` columns.

    The columns are those of scikit-learn's ``PolynomialFeatures(include_bias=False)``,
    in its order; a constant is what the intercept is for. Nothing in it is random.

    Parameters
    ----------
    degree : int
        Largest number of factors, from 1 to 20.
    interaction_only : bool
        Whether each column may occur only once in a product.

    Examples
    --------
    >>> from fedridge_flwr import PolynomialMap
    >>> PolynomialMap(2).transform([[2.0, 3.0]])
    array([[2., 3., 4., 6., 9.]])
    >>> PolynomialMap(2, interaction_only=True).transform([[2.0, 3.0]])
    array([[2., 3., 6.]])
    """

    degree: int
    interaction_only: bool = False

    kind: ClassVar[str] = "polynomial"
    number: ClassVar[int] = 4
    spelled: ClassVar[tuple[str, ...]] = ("degree", "interaction_only")

    def __post_init__(self) -> None:
        """Check the parameters."""
        self._set(
            degree=check_size("degree", self.degree, largest=20),
            interaction_only=check_flag("interaction_only", self.interaction_only),
        )

    def is_identity(self, n_features_in: int) -> bool:
        """Whether there are no products: degree 1."""
        return self.degree == 1

    def describe(self, n_features_in: int) -> str:
        """Return a one-line description of the map."""
        what = "products" if self.interaction_only else "powers and products"
        return (
            f"{self._width(n_features_in)} {what} of "
            f"{counted(n_features_in, 'column')}, degree {self.degree}"
        )

    def to_sklearn(self, n_features_in: int) -> Any:
        """Return a fitted ``sklearn.preprocessing.PolynomialFeatures``."""
        from sklearn.preprocessing import PolynomialFeatures

        self.n_features_out(n_features_in)
        fitted = PolynomialFeatures(
            self.degree, interaction_only=self.interaction_only, include_bias=False
        )
        return fitted.fit(np.zeros((1, n_features_in)))

    def _width(self, n_features_in: int) -> int:
        if self.interaction_only:
            return sum(comb(n_features_in, k) for k in range(1, self.degree + 1))
        return comb(n_features_in + self.degree, self.degree) - 1

    def _apply(self, X: Any) -> Array:
        columns = dense(X)
        n_rows, d = columns.shape
        features = np.empty((n_rows, self._width(d)))
        features[:, :d] = columns
        start, stop = 0, d
        for first, rest in _plan(d, self.degree, self.interaction_only):
            lower = features[:, start:stop]
            start, stop = stop, stop + first.size
            np.multiply(columns[:, first], lower[:, rest], out=features[:, start:stop])
        return features


_Places = NDArray[np.intp]


@lru_cache(maxsize=8)
def _plan(
    n_columns: int, degree: int, interaction_only: bool
) -> list[tuple[_Places, _Places]]:
    """Return for every degree from 2 on: first factor, and where the others are."""
    choose = combinations if interaction_only else combinations_with_replacement
    plan: list[tuple[_Places, _Places]] = []
    lower: dict[tuple[int, ...], int] = {(j,): j for j in range(n_columns)}
    for size in range(2, degree + 1):
        here = list(choose(range(n_columns), size))
        first = np.array([each[0] for each in here], dtype=np.intp)
        rest = np.array([lower[each[1:]] for each in here], dtype=np.intp)
        plan.append((first, rest))
        lower = {each: place for place, each in enumerate(here)}
    return plan
