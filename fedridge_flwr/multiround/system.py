"""The normal equations of a fit in several rounds, as far as the server knows them.

With C_k the centred co-moments of client k, which only the client has, and delta_k the
distance of its mean from the mean of all (from zero without intercept)::

    A = sum_k C_k + sum_k w_k delta_k delta_k' + alpha diag(penalty)

Products with the first sum come from the clients, the rest is known from their
openings. Clients that sent their statistics need not be asked: they count as one client
whose C_k is known.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotrs

from .._text import counted
from .._types import Array
from ..errors import StatisticsError
from ..linalg.conjugate_gradient import Precondition
from ..linalg.packed import mean_rounding
from ..regression.model import RidgeModel
from ..regression.normal_equations import mean_r2
from ..regression.singular import singular_error, too_few_rows
from ..regression.solve import sklearn_shapes
from ..statistics.sufficient import SufficientStatistics
from .opening import Opening
from .products import FirstMoments

_JITTER = 1e-10


class System:
    """A W = H, as far as the server knows it.

    Parameters
    ----------
    openings : mapping of str to Opening
        Those of the clients.
    alpha : float
        Penalty.
    known : SufficientStatistics, optional
        Statistics of clients that are not asked any more.
    fit_intercept, standardize : bool
        As in `solve`.

    Raises
    ------
    StatisticsError
        If there are no rows.
    SingularSystemError
        If the openings show that the rows do not determine the coefficients.
    """

    def __init__(
        self,
        openings: Mapping[str, Opening],
        alpha: float,
        known: SufficientStatistics | None = None,
        *,
        fit_intercept: bool = True,
        standardize: bool = False,
    ) -> None:
        self.openings, self.known, self.alpha = openings, known, alpha
        self.fit_intercept, self.standardize = fit_intercept, standardize
        self.known_gram = None if known is None else known.centred_gram
        moments = [opening.moments for opening in openings.values()]
        moments += [] if known is None else [_first_moments(known)]
        weights = np.array([each.weight for each in moments])
        self.weight = float(weights.sum())
        if self.weight == 0.0:
            raise StatisticsError("no rows, or weights of zero: nothing to fit.")
        d = moments[0].moment.shape[0]
        places, roots = np.stack([each.means for each in moments]), np.sqrt(weights)
        means = weights @ places / self.weight
        self.means: Array = means + weights @ (places - means) / self.weight
        spread = roots[:, None] * (places - self.means)
        # Variances of all rows, about the mean of all: what standardisation divides by.
        inside = np.sum([each.variances for each in moments], axis=0)
        self.variances: Array = inside + np.einsum("kj,kj->j", spread, spread)
        away = spread if fit_intercept else roots[:, None] * places
        self.between: Array = away[:, :d]
        within = np.sum([each.moment for each in moments], axis=0)
        self.rhs: Array = within + self.between.T @ away[:, d:]
        self._refuse_singular()

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return int(self.rhs.shape[0])

    def probe(self) -> Array:
        """Return a random right-hand side, for which a singular A has no solution.

        Moments with y lie in the range of A: for them a singular A goes unnoticed.
        """
        numbers = np.random.default_rng(0).normal(size=self.n_features)
        return np.asarray(numbers * np.sqrt(self._diagonal()))

    @property
    def penalty(self) -> Array:
        """What alpha is multiplied by, per feature."""
        d = self.n_features
        if not self.standardize:
            return np.ones(d)
        return np.where(self._constant, 1.0, self.variances[:d] / self.weight)

    @property
    def _constant(self) -> NDArray[np.bool_]:
        """Features that do not vary but for rounding of their mean."""
        d = self.n_features
        floor = self.weight * mean_rounding(self.means[:d])
        return np.asarray(self.variances[:d] <= floor)

    def beside_clients(self, vectors: Array) -> Array:
        """Return what the server adds to the clients' products."""
        found = self.between.T @ (self.between @ vectors)
        if self.known_gram is not None:
            found += self.known_gram @ vectors
        return found + self.alpha * self.penalty[:, None] * vectors

    def preconditioner(self) -> Precondition:
        """Return M^-1 with M near A: A with the clients' rough factors in place of C_k.

        Without factors M is the diagonal of A.
        """
        diagonal = self._diagonal()
        scale = 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
        rough = all(opening.factor is None for opening in self.openings.values())
        if rough and self.known_gram is None:
            return lambda residual: residual * (scale**2)[:, None]
        matrix = self.between.T @ self.between
        if self.known_gram is not None:
            matrix += self.known_gram
        for opening in self.openings.values():
            rows = opening.rough_rows()
            matrix += rows.T @ rows
        np.einsum("ii->i", matrix)[:] += self.alpha * self.penalty
        matrix *= scale
        matrix *= scale[:, None]
        factor = _positive_factor(matrix)

        def apply(residual: Array) -> Array:
            solved, _ = dpotrs(factor, residual * scale[:, None], lower=1)
            return np.asarray(solved * scale[:, None])

        return apply

    def _diagonal(self) -> Array:
        d = self.n_features
        parts = [opening.moments.variances[:d] for opening in self.openings.values()]
        if self.known_gram is not None:
            parts.append(np.diagonal(self.known_gram))
        between = np.einsum("kj,kj->j", self.between, self.between)
        return np.asarray(np.sum(parts, axis=0) + between + self.alpha * self.penalty)

    def model(self, solution: Array, image: Array) -> RidgeModel:
        """Return the model of a solution W, given A W."""
        d = self.n_features
        explained = np.einsum("dt,dt->t", solution, image)
        explained -= self.alpha * self.penalty @ solution**2
        cross = np.einsum("dt,dt->t", solution, self.rhs)
        spread, means = self.variances[d:], self.means[d:]
        raw = 0.0 if self.fit_intercept else self.weight * means**2
        rss = spread + raw - 2.0 * cross + explained
        intercepts = means - self.means[:d] @ solution if self.fit_intercept else None
        coef, intercept = sklearn_shapes(solution, intercepts)
        openings = self.openings.values()
        names = [each.schema.features for each in openings if each.schema.features]
        return RidgeModel(
            coef=coef,
            intercept=intercept,
            alpha=self.alpha,
            fit_intercept=self.fit_intercept,
            standardize=self.standardize,
            feature_names=names[0] if names else None,
            n_rows=self._count,
            n_clients=len(openings)
            + (0 if self.known is None else self.known.n_clients),
            r2=mean_r2(rss, spread, self.weight, means),
        )

    @property
    def _count(self) -> int:
        known = 0 if self.known is None else self.known.count
        return known + sum(opening.count for opening in self.openings.values())

    def _refuse_singular(self) -> None:
        """Refuse a system that the openings show to be singular."""
        if self.alpha > 0:
            return
        reasons = too_few_rows(self._count, self.n_features + self.fit_intercept)
        constant = self._constant if self.fit_intercept else self._diagonal() <= 0
        if constant.any():
            number = counted(int(constant.sum()), "feature")
            what = "do not vary" if self.fit_intercept else "are zero"
            reasons.append(f"{number} of {self.n_features} {what}")
        if reasons:
            raise singular_error(reasons)


def _first_moments(stats: SufficientStatistics) -> FirstMoments:
    """Return the first moments in statistics."""
    squares = np.diagonal(stats.comoment)
    return FirstMoments(stats.total_weight, stats.means, squares, stats.centred_moment)


def _positive_factor(matrix: Array) -> Array:
    """Return the Cholesky factor of a matrix of unit diagonal, jittered if needed."""
    jitter = 0.0
    while True:
        shifted = matrix.T.copy()
        np.einsum("ii->i", shifted)[:] += jitter
        factor, failed = dpotrf(shifted, lower=1, overwrite_a=1)
        if not failed:
            return np.asarray(factor)
        jitter = max(100.0 * jitter, _JITTER)
