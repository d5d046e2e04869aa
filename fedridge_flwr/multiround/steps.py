"""Preconditioned conjugate gradients, one round at a time.

Whoever holds the matrix is asked for its product with the `directions`, and told to
`take` the answer. Directions are made conjugate to all earlier ones and not only to the
last: a round costs more than the few products of vectors that this takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from .._types import Array

__all__ = ["ConjugateSteps", "Precondition"]

Precondition: TypeAlias = Callable[[Array], Array]

_REMEMBERED = 60
_PROGRESS = 0.9


@dataclass
class _Target:
    """One right-hand side and how far it is solved."""

    solution: Array
    residual: Array
    size: float
    energy: float = 0.0
    direction: Array = field(default_factory=lambda: np.empty(0))
    past: list[tuple[Array, Array, float]] = field(default_factory=list)
    best: float = np.inf
    vain: int = 0
    ended: str = ""

    @property
    def estimate(self) -> float:
        """Return sqrt(r'M^-1 r / h'M^-1 h)."""
        return float(np.sqrt(max(self.energy, 0.0) / self.size)) if self.size else 0.0


class ConjugateSteps:
    """Solve A W = H for several right-hand sides, given products with A.

    Parameters
    ----------
    rhs : ndarray of shape (d, t)
        H.
    precondition : callable
        M^-1 times a matrix of d rows, for an M that is like A.
    tol : float
        Where to stop: sqrt(r' M^-1 r / h' M^-1 h), which is near the relative error of
        the predictions where M is like A.
    patience : int
        Rounds without progress after which it is given up.
    start, image : ndarray of shape (d, t), optional
        Where to start, and A times that.

    Examples
    --------
    >>> A, H = np.array([[4.0, 1.0], [1.0, 3.0]]), np.array([[1.0], [2.0]])
    >>> steps = ConjugateSteps(H, lambda r: r, tol=1e-12)
    >>> while not steps.done:
    ...     _ = steps.take(A @ steps.directions)
    >>> steps.solution.ravel().round(6)
    array([0.090909, 0.636364])
    """

    def __init__(
        self,
        rhs: Array,
        precondition: Precondition,
        tol: float,
        patience: int = 25,
        start: Array | None = None,
        image: Array | None = None,
    ) -> None:
        self._precondition = precondition
        self._tol, self._patience = tol, patience
        sizes = np.einsum("dt,dt->t", rhs, precondition(rhs))
        solution = np.zeros_like(rhs) if start is None else start
        residual = rhs if image is None else rhs - image
        self._targets = [
            _Target(solution[:, j].copy(), residual[:, j].copy(), float(sizes[j]))
            for j in range(rhs.shape[1])
        ]
        self._aim()

    @property
    def active(self) -> list[int]:
        """Targets that are not solved yet."""
        return [j for j, target in enumerate(self._targets) if not target.ended]

    @property
    def done(self) -> bool:
        """Whether nothing is left to ask for."""
        return not self.active

    @property
    def converged(self) -> bool:
        """Whether all targets reached the tolerance."""
        return all(target.estimate <= self._tol for target in self._targets)

    @property
    def estimate(self) -> float:
        """Estimated relative error, of the worst target."""
        return max(target.estimate for target in self._targets)

    @property
    def estimates(self) -> list[float]:
        """Estimated relative errors, target by target."""
        return [target.estimate for target in self._targets]

    @property
    def stuck(self) -> list[int]:
        """Targets that have come to an end above the tolerance."""
        return [
            j
            for j, target in enumerate(self._targets)
            if target.ended and target.estimate > self._tol
        ]

    @property
    def ended(self) -> str:
        """Why it ended without reaching the tolerance, "" if it did not."""
        reasons = [t.ended for t in self._targets if t.estimate > self._tol]
        return next((reason for reason in reasons if reason), "")

    @property
    def solution(self) -> Array:
        """W as far as it is known, shape (d, t)."""
        return np.stack([target.solution for target in self._targets], axis=1)

    @property
    def directions(self) -> Array:
        """What to multiply by A now, shape (d, number of active targets)."""
        return np.stack([self._targets[j].direction for j in self.active], axis=1)

    def take(
        self,
        images: Array,
        directions: Array | None = None,
        targets: list[int] | None = None,
    ) -> Array:
        """Go along the directions, given their images; return how far, by target.

        Other directions, for some of the targets, are taken as well: after a restart
        there are some whose images are known already.
        """
        lengths = np.zeros(len(self._targets))
        along = self.directions if directions is None else directions
        for column, j in enumerate(self.active if targets is None else targets):
            target, p, q = self._targets[j], along[:, column], images[:, column]
            curvature = float(p @ q)
            # Rounding makes it negative once the solution is as good as it gets.
            if not (np.isfinite(curvature) and curvature > 0):
                target.ended = "not positive definite, or solved to rounding"
                continue
            length = float(p @ target.residual) / curvature
            target.solution = target.solution + length * p
            target.residual = target.residual - length * q
            target.past = [*target.past[1 - _REMEMBERED :], (p, q, curvature)]
            lengths[j] = length
        self._aim()
        return lengths

    def _aim(self) -> None:
        active = self.active
        if not active:
            return
        residuals = np.stack([self._targets[j].residual for j in active], axis=1)
        steepest = self._precondition(residuals)
        for column, j in enumerate(active):
            target, z = self._targets[j], steepest[:, column]
            target.energy = float(target.residual @ z)
            self._judge(target)
            for p, q, curvature in target.past:
                z = z - p * (float(q @ z) / curvature)
            target.direction = z

    def _judge(self, target: _Target) -> None:
        estimate = target.estimate
        if not np.isfinite(estimate):
            target.ended = "numbers beyond all measure"
        elif estimate <= self._tol:
            target.ended = "solved"
        elif estimate < _PROGRESS * target.best:
            target.best, target.vain = estimate, 0
        else:
            target.vain += 1
            if target.vain >= self._patience:
                target.ended = f"no progress in {self._patience} rounds"
