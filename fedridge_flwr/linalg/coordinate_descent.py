"""Coordinate descent for w'Gw / 2 - h'w + sum a_j |w_j| + sum b_j w_j² / 2."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .._types import Array

_ALL_EVERY = 5


class Descent(NamedTuple):
    """Where a descent ended, after how many sweeps, and whether it is the minimum."""

    solution: Array
    sweeps: int
    converged: bool


@dataclass(frozen=True)
class PenalisedQuadratic:
    """The function above, with G of unit diagonal.

    Attributes
    ----------
    gram : ndarray of shape (d, d)
        G.
    moment : ndarray of shape (d,)
        h.
    first, second : ndarray of shape (d,)
        Penalties a of the absolute values and b of the squares.

    Examples
    --------
    >>> half = np.array([0.5, 0.5])
    >>> problem = PenalisedQuadratic(np.eye(2), np.array([2.0, 0.1]), half, half)
    >>> problem.descend(np.zeros(2)).solution
    array([1., 0.])
    """

    gram: Array
    moment: Array
    first: Array
    second: Array

    def descend(
        self, start: Array, tol: float = 1e-10, max_iter: int = 10_000
    ) -> Descent:
        """Return the minimum, where the conditions are met to `tol` of the largest h.

        Once the signs stay as they are, the coefficients that are not zero solve a
        linear system. If its solution meets the conditions, it is the minimum, with
        all digits; descent alone may creep for a long time.
        """
        w = start.copy()
        limit = tol * float(np.abs(self.moment).max(initial=0.0))
        gradient, signs = self.moment - self.gram @ w, np.sign(w)
        for sweep in range(1, max_iter + 1):
            # Between full sweeps, only those that are not zero.
            everybody = sweep % _ALL_EVERY == 1
            chosen = range(w.size) if everybody else np.flatnonzero(w).tolist()
            self._sweep(w, gradient, chosen)
            settled, signs = np.array_equal(np.sign(w), signs), np.sign(w)
            exact = self._with_signs(signs) if settled else None
            for found in (exact, w):
                if found is not None and self.violation(found) <= limit:
                    return Descent(found, sweep, True)
        return Descent(w, max_iter, False)

    def violation(self, w: Array) -> float:
        """Return by how much the conditions of the minimum are violated."""
        slope = self.moment - self.gram @ w - self.second * w
        inside = np.abs(slope - self.first * np.sign(w))
        broken = np.where(w != 0, inside, np.abs(slope) - self.first)
        return float(broken.max(initial=0.0))

    def _sweep(self, w: Array, gradient: Array, chosen: Iterable[int]) -> None:
        """Minimise over one coefficient after the other, in place."""
        for j in chosen:
            reach = gradient[j] + w[j]
            left = max(abs(reach) - self.first[j], 0.0)
            new = np.copysign(left / (1.0 + self.second[j]), reach)
            if new != w[j]:
                gradient -= self.gram[:, j] * (new - w[j])
                w[j] = new

    def _with_signs(self, signs: Array) -> Array | None:
        """Return the minimum among those with these signs, None if it has others."""
        inside = np.flatnonzero(signs)
        found = np.zeros_like(self.moment)
        if inside.size:
            matrix = self.gram[np.ix_(inside, inside)] + np.diag(self.second[inside])
            rhs = self.moment[inside] - self.first[inside] * signs[inside]
            try:
                found[inside] = np.linalg.solve(matrix, rhs)
            except np.linalg.LinAlgError:
                return None
        return found if np.array_equal(np.sign(found), signs) else None
