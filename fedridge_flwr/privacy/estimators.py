"""Coefficients from a noisy Gram matrix and noisy moments.

A private release gives G + E and h + e instead of G = X'X and h = X'Y: E symmetric
with known sd s_G on the diagonal and s_G / sqrt(2) off it, e with known sd s_h. That
noise has no preferred direction, so every estimator here keeps the eigenvectors of
the noisy G and differs from the others only in how it treats the eigenvalues.
Nothing here sees data: it is post-processing, and costs no privacy.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from .._checks import check_alpha
from .._types import Array
from ..linalg.packed import EPS
from .denoising import LEAST_SD, noise_edge, shrunken_eigenvalues, signal_in

# Eigenvalues below this many s_G count as unresolved and are damped.
_UNRESOLVED = 3.0

_LARGEST = float(np.finfo(np.float64).max)
_HUGE = 1e300


@dataclass(frozen=True)
class NoisyEquations:
    """Noisy normal equations, and the size of their noise.

    Parameters
    ----------
    gram : ndarray of shape (d, d)
        Noisy Gram matrix, symmetric, perhaps indefinite.
    moment : ndarray of shape (d, t)
        Noisy moments, one column per target.
    gram_sd : float
        Sd s_G of the noise on the diagonal of `gram`; off it s_G / sqrt(2).
    moment_sd : float
        Sd s_h of the noise on `moment`.
    """

    gram: Array
    moment: Array
    gram_sd: float
    moment_sd: float


def estimate(estimator: str, equations: NoisyEquations, alpha: float) -> Array:
    """Return coefficients of shape (d, t), always finite; targets are independent.

    "noise_aware" solves (g² + alpha g + l) w = f g h in the eigenvectors of the noisy
    Gram matrix, with g its eigenvalues, denoised, and l = max(s_h² / v, 9 s_G²) + p:

    - v is the prior variance of a coefficient, found by marginal likelihood;
    - f is 0, and with it w, unless the moments differ from noise alone by about two
      standard errors, and tends to 1 as the evidence grows;
    - 9 s_G² damps directions whose eigenvalue is below 3 s_G, unknown in size;
    - p is the energy of G that the denoised eigenvalues leave out, per direction.

    l falls with the square of the noise, so w tends to the plain ridge solution
    (gram + alpha I)⁻¹ moment, and is that without noise.

    "ridge_floor" solves (max(g, 0) + r) w = f h with a ridge r = max(alpha,
    s_G sqrt(2 d)), g the noisy eigenvalues. s_G sqrt(2 d) is the largest eigenvalue of
    the noise alone, so no divisor is smaller than what noise can make, and
    |w| ≤ |h| / r. f is 0 as long as |h|² is less than two standard errors above the
    d s_h² of noise alone, 1 from three on, and linear between.

    Parameters
    ----------
    estimator : {"noise_aware", "ridge_floor"}
        How the noise is taken into account.
    equations : NoisyEquations
        Noisy statistics.
    alpha : float
        Ridge penalty.

    Examples
    --------
    >>> import numpy as np
    >>> gram, moment = np.diag([4.0, 1.0]), np.array([[4.0], [1.0]])
    >>> exact = NoisyEquations(gram, moment, 0.0, 0.0)
    >>> estimate("noise_aware", exact, alpha=1.0).ravel()
    array([0.8, 0.5])
    >>> noisy = NoisyEquations(gram, moment, 0.0, 100.0)
    >>> estimate("noise_aware", noisy, alpha=1.0).ravel()
    array([0., 0.])
    >>> indefinite = NoisyEquations(np.diag([4.0, -1.0]), np.ones((2, 1)), 0.5, 0.0)
    >>> estimate("ridge_floor", indefinite, alpha=0.0).ravel()
    array([0.2, 1. ])
    """
    problem = _scaled(equations)
    penalty = problem.penalty(alpha)
    with np.errstate(all="ignore"):
        vectors, solve = problem.solver(_RULES[estimator])
        return problem.in_units(vectors @ solve(np.array([penalty]))[0])


def choose_alpha(
    estimator: str, equations: NoisyEquations, alphas: Sequence[float], repeats: int = 8
) -> tuple[float, Array]:
    """Choose alpha by splitting the noise: the least w'(G−E)w − 2w'(h−e) on average.

    With fresh noise E, e of the known sds, G + E and G − E carry independent noise of
    sqrt(2) the sd: w is fitted on one, and scored on the other by its loss up to the
    constant y'y, summed over targets. Nothing but the noisy statistics is used, so
    the choice is free; the fresh noise is no secret and comes from a fixed generator,
    so the choice repeats.

    The split tests against the noise of the release, not against the sampling of the
    rows. Without any noise the score is the training loss, the statistics hold
    nothing out, and the smallest alpha is returned. Equal scores go to the largest.

    Parameters
    ----------
    estimator, equations
        As in `estimate`.
    alphas : sequence of float
        Penalties to choose from.
    repeats : int, default 8
        Number of splits; each costs one eigendecomposition.

    Returns
    -------
    alpha : float
        The choice.
    scores : ndarray of shape (len(alphas),)
        Mean score of every alpha, in the order given; 0 is the score of w = 0.

    Examples
    --------
    >>> import numpy as np
    >>> equations = NoisyEquations(100.0 * np.eye(3), np.full((3, 1), 50.0), 1.0, 1.0)
    >>> choose_alpha("ridge_floor", equations, [0.1, 1e6])[0]
    0.1
    """
    problem, rule = _scaled(equations), _RULES[estimator]
    penalties = np.array([problem.penalty(alpha) for alpha in alphas])
    rng = np.random.default_rng(20)
    with np.errstate(all="ignore"):
        splits = [problem.split_scores(rule, penalties, rng) for _ in range(repeats)]
        scores = np.mean(splits, axis=0)
    scores = np.where(np.isnan(scores), _LARGEST, scores)
    if equations.gram_sd == 0.0 and equations.moment_sd == 0.0:
        choice = min(alphas)
    else:
        choice = max(np.asarray(alphas)[scores == scores.min()])
    return float(choice), np.clip(scores, -_LARGEST, _LARGEST)


def mostly_noise(gram: Array, gram_sd: float) -> bool:
    """Whether s_G sqrt(2 d) > trace / d: the noise outgrows the mean eigenvalue.

    Examples
    --------
    >>> import numpy as np
    >>> mostly_noise(np.eye(2), 0.4), mostly_noise(np.eye(2), 0.6)
    (False, True)
    """
    return bool(noise_edge(gram_sd, len(gram)) > np.mean(np.diagonal(gram)))


# From alphas (a,) to coefficients in the eigenvectors, shape (a, d, t).
Solver: TypeAlias = Callable[[Array], Array]

# From eigenvalues (d,), moments (d, t), s_G and s_h (t,) to a `Solver`.
Rule: TypeAlias = Callable[[Array, Array, float, Array], Solver]


@dataclass(frozen=True)
class _Problem:
    """Noisy statistics in units, powers of two, that make squares safe.

    The unit of the Gram matrix is about the larger of its largest entry and its
    noise; each target has a unit of its own, so that none can disturb another.
    """

    gram: Array
    moment: Array
    gram_sd: float
    moment_sd: Array
    gram_exponent: int
    moment_exponent: Array

    def penalty(self, alpha: float) -> float:
        """Return alpha, checked, in the unit of the Gram matrix."""
        with np.errstate(over="ignore"):
            return float(np.ldexp(check_alpha(alpha), -self.gram_exponent))

    def solver(self, rule: Rule) -> tuple[Array, Solver]:
        """Decompose once: the eigenvectors, and what solves for any alpha."""
        values, vectors = np.linalg.eigh(self.gram)
        moment = vectors.T @ self.moment
        return vectors, rule(values, moment, self.gram_sd, self.moment_sd)

    def in_units(self, coefficients: Array) -> Array:
        """Undo the units; what overflows becomes the largest float."""
        back = np.ldexp(coefficients, self.moment_exponent - self.gram_exponent)
        return np.clip(back, -_LARGEST, _LARGEST)

    def split_scores(
        self, rule: Rule, penalties: Array, generator: np.random.Generator
    ) -> Array:
        """Fit on the statistics plus fresh noise, score on them minus it."""
        noise = generator.normal(size=self.gram.shape) * self.gram_sd
        noise = (noise + noise.T) / 2.0
        shift = generator.normal(size=self.moment.shape) * self.moment_sd
        fitted = replace(
            self,
            gram=self.gram + noise,
            moment=self.moment + shift,
            gram_sd=self.gram_sd * math.sqrt(2.0),
            moment_sd=self.moment_sd * math.sqrt(2.0),
        )
        vectors, solve = fitted.solver(rule)
        gram, moment = self.gram - noise, self.moment - shift
        unit = 2 * self.moment_exponent - self.gram_exponent
        w = vectors @ solve(penalties)
        loss = np.sum(w * (gram @ w) - 2.0 * w * moment, axis=1)
        return np.asarray(np.sum(np.ldexp(loss, unit), axis=1))


def _scaled(equations: NoisyEquations) -> _Problem:
    gram_sd, moment_sd = equations.gram_sd, equations.moment_sd
    gram, moment = equations.gram, equations.moment
    _, gram_exponent = np.frexp(max(float(np.abs(gram).max()), gram_sd))
    _, exponent = np.frexp(np.maximum(np.abs(moment).max(axis=0), moment_sd))
    unit = np.ldexp(gram, -gram_exponent)
    return _Problem(
        gram=(unit + unit.T) / 2.0,
        moment=np.ldexp(moment, -exponent),
        gram_sd=float(np.ldexp(gram_sd, -gram_exponent)),
        moment_sd=np.ldexp(np.full(exponent.shape, float(moment_sd)), -exponent),
        gram_exponent=int(gram_exponent),
        moment_exponent=exponent,
    )


def _divide(moment: Array, divisor: Array, damping: Array | float = 0.0) -> Array:
    """Divide by both, and give 0 where rounding could have made the divisor."""
    size = np.abs(divisor)
    safe = size > size.shape[1] * EPS * np.max(size, axis=1, keepdims=True)
    quotient = moment / (np.where(safe, divisor, 1.0) + damping)
    # Infinities would turn into NaN when they are rotated back.
    return np.where(safe, np.clip(quotient, -_HUGE, _HUGE), 0.0)


def _floor(values: Array, moment: Array, gram_sd: float, moment_sd: Array) -> Solver:
    kept, floor = np.maximum(values, 0.0), noise_edge(gram_sd, len(values))
    trusted = moment * _trust(moment, moment_sd)
    return lambda alphas: _divide(trusted, _plus(kept, np.maximum(alphas, floor)))


def _trust(moment: Array, moment_sd: Array) -> Array:
    """Return f of "ridge_floor" for every target."""
    size = len(moment)
    excess = np.sum((moment / np.maximum(moment_sd, LEAST_SD)) ** 2, axis=0) - size
    return np.asarray(np.clip(excess / math.sqrt(2.0 * size) - 2.0, 0.0, 1.0))


def _shrink(values: Array, moment: Array, gram_sd: float, moment_sd: Array) -> Solver:
    shrunken, left_out = shrunken_eigenvalues(values, gram_sd)
    energy = shrunken**2 + left_out
    targets = zip(moment.T, moment_sd, strict=True)
    found = [signal_in(energy, column, sd) for column, sd in targets]
    trust, level = np.array(found).reshape(-1, 2).T
    damping = np.maximum(level, (_UNRESOLVED * gram_sd) ** 2) + left_out
    # An eigenvalue of 0 is left to alpha where nothing is damped, as in plain ridge.
    extra = np.where(damping > 0.0, damping / shrunken[:, None], 0.0)
    return lambda alphas: _divide(trust * moment, _plus(shrunken, alphas), extra)


def _plus(values: Array, alphas: Array) -> Array:
    """Return eigenvalues (d,) plus each of the alphas (a,), shape (a, d, 1)."""
    return np.asarray(values[:, None] + alphas[:, None, None])


_RULES: dict[str, Rule] = {"noise_aware": _shrink, "ridge_floor": _floor}
