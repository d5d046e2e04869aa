"""`GaussianProjection`: the paper's random projection to fewer columns."""

from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .._checks import check_seed, check_size
from .._text import counted
from .._types import Array
from ..data.rows import finite_block
from ..errors import DataError
from .base import FeatureMap, dense, generator, refuse_too_many


class Distortion(NamedTuple):
    """Smallest and largest ratio of squared distances, projected to original.

    Returned by `GaussianProjection.distortion`. Both are 1 where the projection keeps
    every distance, and near 1 where m is large enough.

    Parameters
    ----------
    smallest : float
        The smallest ratio.
    largest : float
        The largest ratio.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import GaussianProjection
    >>> X = np.random.default_rng(0).normal(size=(30, 400))
    >>> found = GaussianProjection(100).distortion(X)
    >>> 0.5 < found.smallest < 1.0 < found.largest < 1.5
    True
    """

    smallest: float
    largest: float


@dataclass(frozen=True)
class GaussianProjection(FeatureMap):
    """``phi(x) = x R`` with R of shape (d, m), entries ``N(0, 1/m)``.

    Squared distances are kept up to a factor ``1 ± eps`` for m of order
    ``log(n) / eps²`` (Johnson and Lindenstrauss). With m = d it is skipped; m > d is an
    error. The model is an approximation, and can be a poor one: where the statistics of
    all columns are too large, ``FedRidge(mode="refine")`` is exact. Random numbers: R,
    row by row.

    Parameters
    ----------
    n_components : int
        Number of columns m after projection.
    seed : int
        Seed of R.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import GaussianProjection
    >>> projection = GaussianProjection(50)
    >>> X = np.random.default_rng(0).normal(size=(30, 400))
    >>> projection.transform(X).shape
    (30, 50)
    >>> smallest, largest = projection.distortion(X)
    >>> 0.4 < smallest < 1.0 < largest < 1.8
    True
    """

    n_components: int
    seed: int = 0

    kind: ClassVar[str] = "projection"
    number: ClassVar[int] = 1
    spelled: ClassVar[tuple[str, ...]] = ("n_components", "seed")

    def __post_init__(self) -> None:
        """Check the parameters."""
        size = check_size("n_components", self.n_components)
        self._set(n_components=size, seed=check_seed(self.seed))

    def is_identity(self, n_features_in: int) -> bool:
        """Whether there is nothing to project: m = d."""
        return n_features_in == self.n_components

    def original_coef(self, coef: Array, n_features_in: int) -> Array:
        """Return ``R w``: coefficients of the original columns that predict the same.

        Parameters
        ----------
        coef : ndarray of shape (m,) or (t, m)
            Coefficients of the projected columns.
        n_features_in : int
            Number of original columns d.
        """
        if self.is_identity(n_features_in):
            return coef
        (R,) = self.numbers(n_features_in)
        return np.asarray(coef @ R.T)

    def distortion(self, X: Any, n_pairs: int = 1000) -> Distortion:
        """Return how much the projection changes squared distances between rows.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n, d)
            Rows; pairs of equal rows do not count.
        n_pairs : int
            Number of pairs to compare, drawn with the seed of the map.

        Returns
        -------
        Distortion
            Smallest and largest ratio of squared distances, projected to original.

        Raises
        ------
        DataError
            If there are fewer than two rows, or all are equal.
        """
        block = finite_block(X)
        n_rows = block.shape[0]
        if n_rows < 2:
            raise DataError("X needs two rows or more to have distances.")
        rng = generator(self.seed, self.number, n_rows, n_pairs)
        first = rng.integers(0, n_rows, n_pairs)
        second = (first + rng.integers(1, n_rows, n_pairs)) % n_rows
        mapped = self.map_block(block)
        before, after = (
            _squared_lengths(rows[first] - rows[second]) for rows in (block, mapped)
        )
        ratios = after[before > 0] / before[before > 0]
        if not ratios.size:
            raise DataError("all rows of X are equal: there are no distances.")
        return Distortion(float(ratios.min()), float(ratios.max()))

    def describe(self, n_features_in: int) -> str:
        """Return a one-line description of the map."""
        if self.is_identity(n_features_in):
            return f"{counted(n_features_in, 'column')} as they are, no projection"
        return (
            f"projection of {counted(n_features_in, 'column')} to {self.n_components}, "
            f"seed {self.seed}"
        )

    def kernel(self, X: Any, Z: Any) -> Array:
        """Return ``x'z``, the expectation of ``phi(x)'phi(z)``."""
        return np.asarray(dense(finite_block(X) @ finite_block(Z).T))

    def to_sklearn(self, n_features_in: int) -> Any:
        """Return a fitted ``sklearn.random_projection.GaussianRandomProjection``."""
        if self.is_identity(n_features_in):
            return super().to_sklearn(n_features_in)
        from sklearn.random_projection import GaussianRandomProjection

        (R,) = self.numbers(n_features_in)
        fitted = GaussianRandomProjection(self.n_components, random_state=self.seed)
        fitted.components_ = R.T.copy()
        fitted.n_components_ = self.n_components
        fitted.n_features_in_ = n_features_in
        return fitted

    def _width(self, n_features_in: int) -> int:
        if self.n_components > n_features_in:
            raise DataError(
                f"a projection to {self.n_components} columns needs at least as many, "
                f"but X has {n_features_in}: choose n_components of {n_features_in} "
                "or less."
            )
        refuse_too_many(n_features_in * self.n_components, self)
        return self.n_components

    def _draw(self, n_features_in: int) -> tuple[Array, ...]:
        m = self.n_components
        rng = generator(self.seed, self.number, n_features_in, m)
        return (rng.standard_normal((n_features_in, m)) / sqrt(m),)

    def _apply(self, X: Any) -> Array:
        (R,) = self.numbers(X.shape[1])
        return np.asarray(X @ R)


def _squared_lengths(rows: Any) -> Array:
    squares = rows.multiply(rows) if hasattr(rows, "indptr") else rows**2
    return np.asarray(squares.sum(axis=1)).ravel()
