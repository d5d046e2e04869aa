"""How large residuals are, followed from round to round of a refinement."""

import math
from dataclasses import dataclass

import numpy as np

# Before any answer the scale is known within a factor exp(0.5). It may drift by 1.5%
# per answer unforeseen; no answer ever quarters it more than once, so that a lucky one
# cannot close the clip.
_SPREAD = 0.5
_DRIFT = 0.015
_LARGEST_DROP = 4.0

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)
_ANGLES, _WEIGHTS = (_NODES + 1) * np.pi / 4, _WEIGHTS * np.pi / 4


def unclipped(width: float) -> float:
    """E cos(clip(z / width, +-pi/2)) for standard normal z.

    width * sqrt(2/pi) when narrow; exp(-1/(2 width^2)) when no z is clipped.
    """
    if width > 4.0:
        return math.exp(-0.5 / width**2)
    density = math.sqrt(2 / math.pi) * width * np.exp(-((_ANGLES * width) ** 2) / 2)
    return float(_WEIGHTS @ (np.cos(_ANGLES) * density))


@dataclass
class Scale:
    """Root mean square of |a| (b - a.w), followed as a Gaussian in its logarithm."""

    log: float
    variance: float = _SPREAD**2
    foreseen: float = 0.0

    @property
    def value(self) -> float:
        """The estimate."""
        return math.exp(self.log)

    @property
    def at_start(self) -> float:
        """The scale for w = 0: today's, with every foreseen drop undone."""
        return math.exp(self.log + self.foreseen)

    def observe(self, fraction: float, clip: float, noise: float) -> None:
        """Kalman update by a noisy `unclipped(clip / scale)`."""
        width = clip / self.value
        expected = unclipped(width)
        slope = (unclipped(width * 0.99) - unclipped(width * 1.01)) / 0.02
        spread = noise**2 + (_DRIFT * slope) ** 2 + np.finfo(float).tiny
        gain = self.variance * slope / (slope**2 * self.variance + spread)
        self.log += min(max(gain * (fraction - expected), -1.5), 1.5)
        self.variance *= 1.0 - gain * slope

    def foresee(self, ratio: float) -> None:
        """Let the scale shrink to `ratio` of itself, half sure that it will."""
        drop = -math.log(min(max(ratio, 1.0 / _LARGEST_DROP), 1.0))
        self.log -= drop
        self.foreseen += drop
        self.variance += (drop / 2) ** 2 + _DRIFT**2
