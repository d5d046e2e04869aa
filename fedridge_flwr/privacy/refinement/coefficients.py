"""Residual refinement: a private model in a few rounds, without a learning rate.

The server reads the sum of what rows answer (`residuals`) as a noisy linear measurement
of the model,

    y_t = j_t A (w* - w_t) + noise,    j_t = sum of cosines * E|a|² / (d C),

A the Gram matrix over its mean eigenvalue, and solves for w* from all rounds by
generalised least squares.
"""

import copy
import math
from dataclasses import dataclass

import numpy as np

from ..._types import Array
from ..clipping import LENGTH, Bounds
from ..noisy_statistics import PrivateStatistics
from .curvature import SEEN, Curvature, relative_curvature
from .scale import Scale, unclipped

# The clip in units of the residual scale. Noise per unit of signal is least for a clip
# of zero and 0.5% more at 0.15, where the cosines can still be counted ...
_NARROW = 0.15
# ... but the cosines' sum, about 0.8 * clip * n, must not drown in its noise. The scale
# is averaged over rounds, so that half of the noise is enough in each.
_LEGIBLE = 0.5
# Rounding answers to whole numbers moves their mean by less than this. With less noise
# the cosines of a wide clip would all look like 1, and the clip would grow for ever.
_ROUNDED = 1e-5
# Before any answer: targets fill a third of their bound.
_TARGET_FILLS = 1.0 / 3.0

# Variance of the relative error of the assumed curvature (0.45 squared): the part that
# an answer shows, and the part in flat directions that hides in the noise.
_SEEN_DOUBT = 0.2
_HIDDEN_DOUBT = 1.0
# A fully clipped answer departs from linearity by about 17% on its own, an unclipped
# one not at all: variance 0.03 times the clipped fraction squared.
_NONLINEARITY = 0.03

# Before any answer: E|a|² is 0.75 of its bound, within a factor of about exp(0.3).
_SQUARE_FRACTION = 0.75
_SQUARE_SPREAD = 0.3


def first_clip(x_norm: float, y_bound: float) -> float:
    """Return the clip of the first question, from public bounds."""
    return _NARROW * _TARGET_FILLS * x_norm * y_bound


@dataclass
class _Round:
    """One answer as a measurement: value = A (w* - w_t) + noise of this variance."""

    value: Array
    at: Array
    noise: float
    doubt: float
    clipped: float


class ResidualRefinement:
    """Minimises Σ (b - a w)² + alpha |w|² through noisy answers, round by round.

    The estimate is Σ omega_t (w_t + A⁻¹ y_t / j_t), shrunk towards zero. omega
    minimises the variance of the sum under three errors: the noise of the answers; the
    part of each answer that a wrong A left in plain sight (so that answers which
    overshot one another cancel, as in Anderson acceleration); and what it left in flat
    directions, which only later answers lack. A number of rows that does not stand out
    of its noise leaves the coefficients at zero.

    Parameters
    ----------
    bounds : Bounds
        Bounds and size of a row. With an intercept the constant feature is one more
        coefficient, penalised like the others.
    alpha : float
        Ridge penalty, reached as epsilon grows.
    clip : float
        Clip of the question that the first answer is to: `first_clip`.
    expected_r2 : float
        Prior of the signal: the part of the target's variance that it explains. The
        smaller it is, the wider the prior.
    """

    def __init__(
        self, bounds: Bounds, alpha: float, clip: float, expected_r2: float = 1.0
    ) -> None:
        self._prior = math.log(expected_r2), 0.9 - 0.5 * expected_r2
        self._width, self._alpha, self._step = bounds.width, alpha, bounds.x_step
        self._shape = Curvature(np.ones(self._width), np.eye(self._width), 1.0)
        self._rotated = np.zeros(self._width)
        self._clip = clip
        self._most = self._clip / _NARROW
        self._scale = Scale(math.log(self._most))
        self._history: list[_Round] = []
        self._error = self._unexplained = math.inf
        self._count = self._square = 0.0

    @property
    def coef(self) -> Array:
        """The coefficients after the last answer, that of the constant feature last."""
        return np.asarray(self._shape.vectors @ self._rotated)

    @property
    def question(self) -> tuple[Array, float]:
        """What the next round asks: coefficients and clip."""
        return self.coef, self._clip

    @property
    def blind(self) -> bool:
        """Whether the first answer was all noise, so that coefficients stay 0."""
        return self._count == 0.0

    def update(self, answer: PrivateStatistics, share: float = 1.0) -> bool:
        """Update by a noisy sum over clients that have this share of all rows.

        Returns whether it was usable. If not, nothing has changed.
        """
        before = copy.deepcopy(vars(self))
        try:
            with np.errstate(over="raise", divide="raise", invalid="raise"):
                if answer.server_round == 1:
                    self._meet(answer)
                if not self.blind:
                    self._learn(answer, share)
            if np.isfinite(self.coef).all() and 0 < self._clip < math.inf:
                return True
        except (ArithmeticError, ValueError, np.linalg.LinAlgError):
            pass
        vars(self).update(before)
        return False

    def _meet(self, answer: PrivateStatistics) -> None:
        """Learn in round 1 how many rows there are, how long, and how curved."""
        count, most = answer.count, (LENGTH * self._step) ** 2
        count_sd = answer.deviation("count") / LENGTH**2
        if count < max(SEEN * count_sd, 1.0):
            return
        trace_sd = answer.deviation("trace") * self._step**2 + 1e-12 * most
        trace = max(answer.trace, trace_sd)
        # The mean of two logarithms, weighted by how much each is in doubt.
        doubt = (trace_sd / trace) ** 2 + (count_sd / count) ** 2
        known = _SQUARE_SPREAD**2 / (_SQUARE_SPREAD**2 + doubt)
        usual = _SQUARE_FRACTION * most
        self._square = min(usual * (trace / count / usual) ** known, most)
        self._count = count
        self._shape = relative_curvature(
            answer.gram, answer.gram_sd, self._square * count
        )

    def _learn(self, answer: PrivateStatistics, share: float) -> None:
        count, square, scale = self._count * share, self._square, self._scale
        noise = max(answer.deviation("residual") / LENGTH**2, _ROUNDED * count)
        sines, cosines = answer.residual[:-1], float(answer.residual[-1])
        scale.observe(cosines / count, self._clip, noise / count)
        width = self._clip / scale.value
        slope = count * unclipped(width) * square / (self._width * self._clip)
        # The rows of some clients are a sample: the rest may differ from them.
        sines_square = 1.0 - unclipped(width) ** 2
        sampling = max(1.0 - share, 0.0) * count * sines_square / self._width
        variance = (noise**2 + sampling) / slope**2
        value = self._shape.vectors.T @ sines / slope
        if not self._history:
            steep = self._steeper(value, variance)
            value, variance = value / steep, variance / steep**2
        start = (min(scale.at_start, self._most) / square) ** 2
        doubt = self._error if self._history else start
        clipped = 1.0 - unclipped(width)
        self._history.append(_Round(value, self._rotated, variance, doubt, clipped))
        target, variance = self._combine()
        signal = self._signal(target, variance, start)
        self._solve(target, variance, signal, count)
        self._look_ahead(variance, signal)
        self._choose_clip(count, noise)

    def _steeper(self, value: Array, variance: float) -> float:
        """How much steeper than A the first answer must be, to be possible at all.

        At w = 0 the step A^-1 y/j would explain y' A^-1 y/j^2 * E|a|^2/d of the
        target's variance; what is more than all of it is curvature, not signal.
        """
        flat = 1.0 / self._shape.values
        by_chance = float(flat.sum()) + SEEN * math.sqrt(2 * float(flat @ flat))
        explained = float(value**2 @ flat) - variance * by_chance
        available = self._scale.value**2 / self._square
        return max(1.0, explained * self._square / self._width / available)

    def _combine(self) -> tuple[Array, float]:
        """Estimate A w* from all answers so far; also the variance of its entries."""
        history = self._history
        values = np.array([r.value for r in history])
        noise = np.array([r.noise for r in history])
        seen = _signal_gram(values, noise)
        variance = _SEEN_DOUBT * self._shape.blur * seen
        bent = _NONLINEARITY * np.array([r.clipped for r in history]) ** 2
        own = np.maximum((values**2).mean(axis=1) - noise, 0.0)
        variance += np.diag(noise + bent * own)
        latest = np.maximum.outer(np.arange(len(history)), np.arange(len(history)))
        hidden = np.array([r.doubt for r in history])
        hidden = np.maximum(hidden - hidden[-1], 0.0)
        hidden *= _HIDDEN_DOUBT * self._shape.blur
        weights = _least_squares_weights(variance + hidden[latest])
        points = values + self._shape.values * np.array([r.at for r in history])
        return weights @ points, float(weights @ variance @ weights)

    def _signal(self, target: Array, variance: float, start: float) -> float:
        """Variance of the coefficients: most likely given A w*, and the prior."""
        grid = start * np.exp(np.linspace(-7.0, 1.0, 65))
        spread = grid[:, None] * self._shape.values**2 + variance
        fit = (np.log(spread) + target**2 / spread).sum(axis=1)
        center, width = self._prior
        prior = ((np.log(grid / start) - center) / width) ** 2
        return float(grid[np.argmin(fit + prior)])

    def _solve(
        self, target: Array, variance: float, signal: float, count: float
    ) -> None:
        """Solve w = A x / (A^2 + A alpha / (n E|a|^2 / d) + variance / signal)."""
        curvature = self._shape.values
        penalty = self._alpha * self._width / (count * self._square)
        shrink = curvature**2 + curvature * penalty + variance / signal
        self._rotated = curvature * target / shrink

    def _look_ahead(self, variance: float, signal: float) -> None:
        """Foresee what the new coefficients leave unexplained, and the scale."""
        curvature = self._shape.values
        left = curvature * signal * variance / (signal * curvature**2 + variance)
        self._error = float(left.mean())
        unexplained = self._error * self._square
        before = min(self._unexplained, signal * self._square)
        now = self._scale.value**2 / self._square
        after = max(now - max(before - unexplained, 0.0), unexplained)
        self._unexplained = unexplained
        self._scale.foresee(math.sqrt(min(after / now, 1.0)))

    def _choose_clip(self, count: float, noise: float) -> None:
        """Clip narrowly while privacy noise rules; as it vanishes, ever wider.

        Yet so slowly that the noise let in, width * noise, vanishes too.
        """
        width = max(_NARROW, min(_LEGIBLE * noise / count, 1.0))
        ratio = count / self._width / noise**2
        width = max(width, ratio ** (0.5 if ratio < 1.0 else 0.25))
        self._clip = width * self._scale.value


def _signal_gram(answers: Array, noise: Array) -> Array:
    """Gram matrix over d of the answers without their noise, t by t.

    Whitened, the noise's eigenvalues fill (1 +- sqrt(t/d))^2; those above are
    lambda = (1 + l)(1 + (t/d)/l) for a signal l, those within are no signal.
    """
    rounds, d = answers.shape
    root = np.sqrt(noise)
    white = answers / root[:, None]
    values, vectors = np.linalg.eigh(white @ white.T / d)
    ratio = rounds / d
    lift = values - 1.0 - ratio
    signal = (lift + np.sqrt(np.maximum(lift**2 - 4 * ratio, 0.0))) / 2
    signal = np.where(values > (1 + math.sqrt(ratio)) ** 2, signal, 0.0)
    return np.asarray((vectors * signal) @ vectors.T * np.outer(root, root))


def _least_squares_weights(covariance: Array) -> Array:
    """K^-1 1 / (1' K^-1 1), from K scaled to unit diagonal."""
    root = np.sqrt(np.diag(covariance))
    weights = np.linalg.solve(covariance / np.outer(root, root), 1.0 / root) / root
    return np.asarray(weights / weights.sum())
