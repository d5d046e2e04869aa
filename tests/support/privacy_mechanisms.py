"""Our private release, and broken ones that the tests of privacy must tell from it.

All of them are called alike: ``release(X, y, source)`` gives noisy (G, h), and
`privacy` says what they claim to be.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from fedridge_simulations.paper_privacy import classical_multiplier

from fedridge_flwr.privacy import DifferentialPrivacy, private_statistics

Source = Callable[[int], bytes]


def seeded_source(seed: int) -> Source:
    return np.random.default_rng(seed).bytes


@dataclass(frozen=True)
class Ours:
    """The mechanism of the package."""

    privacy: DifferentialPrivacy

    def release(self, X, y, source: Source = os.urandom):
        found = private_statistics(
            X, y, self.privacy, fit_intercept=False, source=source
        )
        return found.gram, found.moment[:, 0]

    @property
    def gram_sd(self) -> float:
        return self.privacy.deviation("gram") * self.privacy.x_norm_bound**2

    @property
    def moment_sd(self) -> float:
        privacy = self.privacy
        bound = privacy.x_norm_bound * privacy.y_bound
        return privacy.deviation("moment") * bound


class _Float(Ours):
    """A release in floating point, whose parts can be broken one by one."""

    multiplier = 1.0

    def clipped(self, X, y):
        bound, own = self.privacy.x_norm_bound, np.linalg.norm(X, axis=1)
        shrink = np.minimum(1.0, bound / np.maximum(own, 1e-300))
        limit = self.privacy.y_bound
        return X * shrink[:, None], np.clip(y * shrink, -limit, limit)

    def noise(self, d, rng):
        E = rng.normal(size=(d, d)) * self.gram_sd
        return (E + E.T) / 2, rng.normal(size=d) * self.moment_sd

    def release(self, X, y, source: Source = os.urandom):
        X, y = self.clipped(np.asarray(X, float), np.asarray(y, float))
        seed = int.from_bytes(source(16), "little")
        E, e = self.noise(X.shape[1], np.random.default_rng(seed))
        return X.T @ X + self.multiplier * E, X.T @ y + self.multiplier * e


class HalvedOffDiagonal(_Float):
    """Noise of one triangle, mirrored and halved: too little off the diagonal."""

    def noise(self, d, rng):
        U = np.triu(rng.normal(size=(d, d)) * self.gram_sd)
        return (U + U.T) / 2, rng.normal(size=d) * self.moment_sd


class PairAsOne(_Float):
    """Sensitivity 1 for G and h each, as if only one of them were sent."""

    multiplier = float(np.sqrt(0.5))


class Seeded(_Float):
    """Noise from a generator that everybody knows the seed of."""

    def release(self, X, y, source: Source = os.urandom):
        return super().release(X, y, lambda n: bytes(n))


class ClipAfter(_Float):
    """Statistics of raw rows, cut to what as many clipped rows could have."""

    def clipped(self, X, y):
        longest = np.linalg.norm(X, axis=1).max(initial=1e-300)
        scale = self.privacy.x_norm_bound / longest
        return X * scale, np.clip(y, -self.privacy.y_bound, self.privacy.y_bound)


class Unclipped(_Float):
    """Rows as they are."""

    def clipped(self, X, y):
        return X, y


class HalfSigma(Ours):
    """Our own mechanism with half of its noise."""

    def release(self, X, y, source: Source = os.urandom):
        own = self.privacy
        weaker = replace(own, epsilon=_epsilon_for(own.noise_multiplier / 2, own.delta))
        return Ours(weaker).release(X, y, source)


class PaperAlgorithm2(Ours):
    """The paper's noise on clipped rows: tau for G and h each.

    It is our mechanism at another epsilon, the one that the paper really gives.
    """

    def release(self, X, y, source: Source = os.urandom):
        true_epsilon = _epsilon_for(self.tau / np.sqrt(2.0), self.privacy.delta)
        return Ours(replace(self.privacy, epsilon=true_epsilon)).release(X, y, source)

    @property
    def tau(self) -> float:
        return classical_multiplier(self.privacy.epsilon, self.privacy.delta)


def _epsilon_for(multiplier: float, delta: float) -> float:
    from fedridge_flwr.privacy import epsilon_of

    return epsilon_of(1.0 / multiplier, delta)
