"""`RandomFourierFeatures`: Gaussian kernel regression as ridge regression."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import pi, sqrt
from typing import Any, ClassVar

import numpy as np

from .._checks import check_positive, check_seed, check_size
from .._text import counted
from .._types import Array
from ..data.rows import finite_block
from ..errors import FedRidgeError
from .base import FeatureMap, dense, generator, refuse_too_many
from .column_moments import ColumnMoments


@dataclass(frozen=True)
class RandomFourierFeatures(FeatureMap):
    """``phi(x) = sqrt(2/D) cos(x W + b)``, ``W ~ N(0, 2 gamma)``, ``b ~ U(0, 2 pi)``.

    ``phi(x)'phi(z)`` approximates the Gaussian kernel ``exp(-gamma |x - z|²)`` with an
    error of order ``D^(-1/2)`` (Rahimi and Recht), so ridge regression on them is about
    kernel ridge regression. Random numbers: W of shape (d, D), row by row, then b (D,).

    Parameters
    ----------
    n_components : int
        Number of features D.
    gamma : float or "scale"
        Sharpness of the kernel; "scale" is ``1 / (d X.var())`` over the entries of all
        clients, as in scikit-learn.
    seed : int
        Seed of W and b.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import RandomFourierFeatures
    >>> feature_map = RandomFourierFeatures(4000, gamma=0.5)
    >>> X = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 2.0]])
    >>> phi = feature_map.transform(X)
    >>> bool(np.abs(phi @ phi.T - feature_map.kernel(X, X)).max() < 0.05)
    True
    """

    n_components: int
    gamma: float | str = 1.0
    seed: int = 0

    kind: ClassVar[str] = "fourier"
    number: ClassVar[int] = 2
    spelled: ClassVar[tuple[str, ...]] = ("n_components", "gamma", "seed")
    unresolved: ClassVar[str] = 'gamma="scale" is not a number yet: give gamma'

    def __post_init__(self) -> None:
        """Check the parameters."""
        gamma = self.gamma
        if not (isinstance(gamma, str) and gamma == "scale"):
            gamma = check_positive("gamma", gamma, ' or "scale"')
        size = check_size("n_components", self.n_components)
        self._set(n_components=size, gamma=gamma, seed=check_seed(self.seed))

    @property
    def needs_data(self) -> bool:
        """Whether gamma is ``"scale"`` and no number yet."""
        return isinstance(self.gamma, str)

    def resolve(self, columns: ColumnMoments) -> RandomFourierFeatures:
        """Return the same map with ``gamma = 1 / (d X.var())`` in place of "scale"."""
        if not self.needs_data:
            return self
        if columns.weight == 0.0:
            raise FedRidgeError('gamma="scale" needs rows, there are none: give gamma.')
        variance = columns.overall_variance
        gamma = 1.0 / (columns.n_features * variance) if variance > 0 else 1.0
        return replace(self, gamma=gamma)

    def describe(self, n_features_in: int) -> str:
        """Return a one-line description of the map."""
        gamma = self.gamma if isinstance(self.gamma, str) else f"{self.gamma:g}"
        return (
            f"{counted(self.n_components, 'random Fourier feature')} of "
            f"{counted(n_features_in, 'column')}, gamma {gamma}, seed {self.seed}"
        )

    def kernel(self, X: Any, Z: Any) -> Array:
        """Return the Gaussian kernel ``exp(-gamma |x - z|²)``."""
        from scipy.spatial.distance import cdist

        left, right = dense(finite_block(X)), dense(finite_block(Z))
        squares = cdist(left, right, "sqeuclidean")
        return np.asarray(np.exp(-self._gamma() * squares))

    def to_sklearn(self, n_features_in: int) -> Any:
        """Return a fitted ``sklearn.kernel_approximation.RBFSampler``."""
        from sklearn.kernel_approximation import RBFSampler

        W, b = self.numbers(n_features_in)
        fitted = RBFSampler(
            gamma=self._gamma(), n_components=self.n_components, random_state=self.seed
        )
        fitted.random_weights_, fitted.random_offset_ = W.copy(), b.copy()
        fitted._n_features_out = self.n_components
        fitted.n_features_in_ = n_features_in
        return fitted

    def _gamma(self) -> float:
        self.refuse_unresolved()
        return float(self.gamma)

    def _width(self, n_features_in: int) -> int:
        refuse_too_many(n_features_in * self.n_components, self)
        return self.n_components

    def _draw(self, n_features_in: int) -> tuple[Array, ...]:
        size = self.n_components
        rng = generator(self.seed, self.number, n_features_in, size)
        W = sqrt(2.0 * self._gamma()) * rng.standard_normal((n_features_in, size))
        return W, 2.0 * pi * rng.random(size)

    def _apply(self, X: Any) -> Array:
        W, b = self.numbers(X.shape[1])
        features = np.asarray(X @ W)
        features += b
        np.cos(features, out=features)
        features *= sqrt(2.0 / self.n_components)
        return features
