"""Conjugate gradients: A x = b by products with A alone, for large systems."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh_tridiagonal

from .._types import Array

__all__ = ["ConjugateSolution", "Product", "conjugate_gradients"]

Product: TypeAlias = Callable[[Array], Array]

# A residual this small against A x is rounding of the product.
_ROUNDING = 1e-14
_HALVED = 0.5


class ConjugateSolution(NamedTuple):
    """What `conjugate_gradients` found.

    Attributes
    ----------
    solution : ndarray of shape (d, t)
        One column for each right-hand side.
    steps : int
        Products with A, one for all right-hand sides together.
    residual : ndarray of shape (t,)
        |b - A x| / |b|, computed anew from the solution; 0 where b is.
    converged : ndarray of bool, shape (t,)
        Whether that is within the tolerance, or all rounding.
    flat : bool
        Whether a direction p with p'Ap <= lowest p'p was met: A is singular, or not
        positive definite.
    ritz : tuple of float
        Smallest and largest Ritz value: both lie within the eigenvalues of A, or of the
        preconditioned A, and tend to the outermost that the right-hand sides can see;
        NaN if there were no steps.
    """

    solution: Array
    steps: int
    residual: Array
    converged: NDArray[np.bool_]
    flat: bool
    ritz: tuple[float, float]


def conjugate_gradients(
    product: Product,
    rhs: Array,
    precondition: Product | None = None,
    *,
    tol: float | Array = 1e-12,
    max_steps: int | None = None,
    lowest: float = 0.0,
) -> ConjugateSolution:
    """Solve A x = b until |b - A x| <= tol |b|, for a symmetric positive definite A.

    All right-hand sides take their steps together, so that A is read once per step.
    The residual that the steps carry along drifts off the true one; where they differ,
    the steps begin again from the true one, as long as that at least halves it.

    Parameters
    ----------
    product : callable
        ``product(V)`` returns A V for V of shape (d, k).
    rhs : ndarray of shape (d, t)
        Right-hand sides.
    precondition : callable, optional
        ``precondition(V)`` returns M^-1 V for a positive definite M near A.
    tol : float or ndarray of shape (t,)
        Residual wanted, as a part of each right-hand side.
    max_steps : int, optional
        Steps after which to give up; 2 d + 200 by default.
    lowest : float
        Curvature p'Ap / p'p at which the system counts as singular.

    Examples
    --------
    >>> A = np.array([[4.0, 1.0], [1.0, 3.0]])
    >>> found = conjugate_gradients(lambda V: A @ V, np.array([[1.0], [2.0]]))
    >>> found.solution.round(6).tolist(), found.steps
    ([[0.090909], [0.636364]], 2)
    >>> round(found.ritz[1] / found.ritz[0], 6), round(np.linalg.cond(A).item(), 6)
    (1.938749, 1.938749)
    """
    left = 2 * len(rhs) + 200 if max_steps is None else max_steps
    size = np.linalg.norm(rhs, axis=0)
    goal = np.broadcast_to(tol, size.shape) * size
    solution, true = np.zeros_like(rhs), rhs
    run = _Run(product, precondition, lowest)
    before = np.full(size.shape, np.inf)
    while True:
        length = np.linalg.norm(true, axis=0)
        attainable = _ROUNDING * run.largest * np.linalg.norm(solution, axis=0)
        converged = length <= np.maximum(goal, attainable)
        worth = ~converged & (length <= _HALVED * before)
        if run.flat or run.steps >= left or not worth.any():
            break
        columns = np.flatnonzero(worth)
        solution[:, columns] += run.steps_from(true[:, columns], goal[columns], left)
        before = np.where(worth, length, before)
        true = rhs - product(solution)
    residual = np.divide(length, size, out=np.zeros_like(size), where=size > 0)
    ritz = run.smallest, run.largest if run.steps else np.nan
    return ConjugateSolution(solution, run.steps, residual, converged, run.flat, ritz)


class _Run:
    """Steps, and what they tell about the spectrum."""

    def __init__(
        self, product: Product, precondition: Product | None, lowest: float
    ) -> None:
        self._product, self._precondition = product, precondition
        self._lowest = lowest
        self.steps, self.flat = 0, False
        self.smallest, self.largest = np.nan, 0.0

    def steps_from(self, residual: Array, goal: Array, max_steps: int) -> Array:
        """Return x with |residual - A x| <= goal, as far as the steps know."""
        solution, r = np.zeros_like(residual), residual.copy()
        z = r if self._precondition is None else self._precondition(r)
        p, rz = z.copy(), _dots(r, z)
        active = np.flatnonzero(rz > 0)
        lengths: list[Array] = []
        ratios: list[Array] = []
        while active.size and self.steps < max_steps and not self.flat:
            q = self._product(p[:, active])
            self.steps += 1
            curvature, square = (
                _dots(p[:, active], q),
                _dots(p[:, active], p[:, active]),
            )
            if not (curvature > self._lowest * square).all():
                self.flat = True
                break
            length, ratio = np.full((2, rz.size), np.nan)
            length[active] = rz[active] / curvature
            solution[:, active] += length[active] * p[:, active]
            r[:, active] -= length[active] * q
            z = r if self._precondition is None else self._precondition(r)
            after = _dots(r, z)
            ratio[active] = after[active] / rz[active]
            p[:, active] = z[:, active] + ratio[active] * p[:, active]
            rz = after
            lengths.append(length)
            ratios.append(ratio)
            done = np.linalg.norm(r[:, active], axis=0) <= goal[active]
            active = active[~done & (rz[active] > 0)]
        self._remember(np.array(lengths), np.array(ratios))
        return solution

    def _remember(self, lengths: Array, ratios: Array) -> None:
        """Take the Ritz values from the coefficients of the steps (Lanczos)."""
        for length, ratio in zip(lengths.T, ratios.T, strict=True):
            known = np.isfinite(length)
            if not known.any():
                continue
            length, ratio = length[known], ratio[known]
            diagonal = 1.0 / length
            diagonal[1:] += ratio[:-1] / length[:-1]
            beside = np.sqrt(ratio[:-1]) / length[:-1]
            last = length.size - 1
            low, high = (
                float(eigvalsh_tridiagonal(diagonal, beside, "i", (k, k))[0])
                for k in (0, last)
            )
            self.smallest = float(np.fmin(self.smallest, low))
            self.largest = max(self.largest, high)


def _dots(a: Array, b: Array) -> Array:
    """Return the inner products of the columns of two matrices."""
    return np.asarray(np.einsum("ij,ij->j", a, b))
