"""`NeuralTangentFeatures`: a wide network where it starts, as a linear model."""

from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar

import numpy as np

from .._checks import check_flag, check_seed, check_size
from .._text import counted
from .._types import Array
from ..data.rows import finite_block
from .base import FeatureMap, dense, generator, refuse_too_many


@dataclass(frozen=True)
class NeuralTangentFeatures(FeatureMap):
    """Gradient of ``f(x) = sum_j a_j relu(w_j'x) / sqrt(width)`` where it starts.

    With ``w_j ~ N(0, I)`` and ``a_j = ±1`` the features are::

        df/da_j = relu(w_j'x) / sqrt(width)              width columns
        df/dw_j = a_j 1[w_j'x > 0] x / sqrt(width)       width d columns, j by j

    and ``phi(x)'phi(z)`` approximates the neural tangent kernel ``k1 + x'z k0`` of that
    network, with the arc-cosine kernels of order 1 and 0 (Cho and Saul), with an error
    of order ``width^(-1/2)``. Ridge regression on them is the network trained near its
    start. Random numbers: w of shape (d, width), row by row, then a.

    A hidden unit's d columns span its first one, so the columns are dependent: use
    ``alpha > 0``.

    Parameters
    ----------
    width : int
        Hidden units; there are width (1 + d) features, width (2 + d) with bias.
    bias : bool
        Whether the network sees a constant 1 beside x.
    seed : int
        Seed of w and a.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import NeuralTangentFeatures
    >>> feature_map = NeuralTangentFeatures(3000)
    >>> X = np.array([[0.0, 1.0], [2.0, 1.0]])
    >>> phi = feature_map.transform(X)
    >>> phi.shape
    (2, 12000)
    >>> bool(np.allclose(phi @ phi.T, feature_map.kernel(X, X), rtol=0.1))
    True
    """

    width: int
    bias: bool = True
    seed: int = 0

    kind: ClassVar[str] = "tangent"
    number: ClassVar[int] = 3
    spelled: ClassVar[tuple[str, ...]] = ("width", "bias", "seed")

    def __post_init__(self) -> None:
        """Check the parameters."""
        self._set(
            width=check_size("width", self.width),
            bias=check_flag("bias", self.bias),
            seed=check_seed(self.seed),
        )

    def describe(self, n_features_in: int) -> str:
        """Return a one-line description of the map."""
        return (
            f"{self._width(n_features_in)} tangent features of "
            f"{counted(self.width, 'hidden unit')} on "
            f"{counted(n_features_in, 'column')}{' and a bias' if self.bias else ''}, "
            f"seed {self.seed}"
        )

    def kernel(self, X: Any, Z: Any) -> Array:
        """Return ``k1(x, z) + x'z k0(x, z)``, the limit of infinite width.

        With t the angle between x and z, ``k0 = (pi - t) / (2 pi)`` and
        ``k1 = |x| |z| (sin t + (pi - t) cos t) / (2 pi)``.
        """
        left, right = self._inputs(finite_block(X)), self._inputs(finite_block(Z))
        products = left @ right.T
        lengths = np.outer(np.linalg.norm(left, axis=1), np.linalg.norm(right, axis=1))
        cosines = np.ones_like(products)
        np.divide(products, lengths, out=cosines, where=lengths > 0)
        cosines = np.clip(cosines, -1.0, 1.0)
        angles = np.arccos(cosines)
        order_0 = (np.pi - angles) / (2 * np.pi)
        sines = np.sqrt(1.0 - cosines**2)
        order_1 = lengths * (sines / (2 * np.pi) + order_0 * cosines)
        return np.asarray(order_1 + products * order_0)

    def _width(self, n_features_in: int) -> int:
        refuse_too_many((n_features_in + self.bias) * self.width, self)
        return self.width * (1 + n_features_in + self.bias)

    def _draw(self, n_features_in: int) -> tuple[Array, ...]:
        inputs = n_features_in + self.bias
        rng = generator(self.seed, self.number, inputs, self.width)
        w = rng.standard_normal((inputs, self.width))
        signs = rng.integers(0, 2, self.width).astype(np.float64)
        return w, 1.0 - 2.0 * signs

    def _apply(self, X: Any) -> Array:
        w, a = self.numbers(X.shape[1])
        inputs = self._inputs(X)
        n_rows, d = inputs.shape
        hidden = inputs @ w
        features = np.empty((n_rows, self.width * (1 + d)))
        np.maximum(hidden, 0.0, out=features[:, : self.width])
        features[:, : self.width] /= sqrt(self.width)
        active = (hidden > 0) * (a / sqrt(self.width))
        # Splitting the last axis makes a view, so the products go where they belong.
        by_unit = features[:, self.width :].reshape(n_rows, self.width, d)
        np.multiply(active[:, :, None], inputs[:, None, :], out=by_unit)
        return features

    def _inputs(self, X: Any) -> Array:
        inputs = np.asarray(dense(X))
        return np.hstack([inputs, np.ones((len(inputs), 1))]) if self.bias else inputs
