"""Solve (S + alpha I) w = h for many alphas after reducing S once.

One orthogonal reduction to tridiagonal form, S = Q T Q', costs as much as eight
Cholesky factorisations; after it every alpha is a tridiagonal system. That takes half
the time of an eigendecomposition and is as accurate. Where the columns of S have very
different scales neither is: `solve_refined` corrects each solution by its residual
until it is as good as a Cholesky solution of the scaled system, or says it is not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dorgqr, dptsv, dsytrd, dsytrd_lwork

from .rows import Array

__all__ = ["ShiftedSystem", "refine", "solve_refined"]

_STEPS = 8
_ACCURATE = 1e-12


class ShiftedSystem:
    """The systems S + alpha I of one symmetric matrix S.

    Parameters
    ----------
    matrix : ndarray of shape (d, d)
        S, positive semi-definite.

    Examples
    --------
    >>> system = ShiftedSystem(np.diag([1.0, 3.0]))
    >>> system.solve(np.array([[2.0], [4.0]]), 1.0).ravel()
    array([1., 1.])
    """

    def __init__(self, matrix: Array) -> None:
        size = matrix.shape[0]
        self._basis = np.eye(size)
        if size == 1:
            # LAPACK's wrapper wants one number even where it reads none.
            self._diagonal, self._off = matrix.diagonal().copy(), np.zeros(1)
            return
        work = int(dsytrd_lwork(size, lower=1)[0])
        reduced, self._diagonal, self._off, tau, _ = dsytrd(matrix, lower=1, lwork=work)
        reflectors = np.asfortranarray(reduced[1:, :-1])
        self._basis[1:, 1:], _, _ = dorgqr(reflectors, tau, lwork=64 * size)

    def solve(self, rhs: Array, alpha: float) -> Array | None:
        """Return (S + alpha I)^-1 rhs for rhs (d, m), None if it is not definite."""
        return self.solve_each(rhs[:, None, :], np.array([alpha]), one=True)

    def solve_each(
        self, rhs: Array, alphas: Array, *, one: bool = False
    ) -> Array | None:
        """Return solutions (d, a, m) for rhs (d, a, m), or (d, 1, m) shared by all.

        With `one`, return the single solution as (d, m).
        """
        d, _, m = rhs.shape
        rotated = (self._basis.T @ rhs.reshape(d, -1)).reshape(rhs.shape)
        solved = np.empty((d, alphas.size, m))
        for j, alpha in enumerate(alphas):
            own = rotated[:, 0 if rhs.shape[1] == 1 else j]
            *_, column, failed = dptsv(self._diagonal + alpha, self._off, own)
            if failed:
                return None
            solved[:, j] = column
        found = (self._basis @ solved.reshape(d, -1)).reshape(solved.shape)
        return found[:, 0] if one else found


def solve_refined(
    matrix: Array, rhs: Array, alphas: Array
) -> tuple[Array, NDArray[np.bool_]]:
    """Return W (d, a, t) with (S + alpha I) W = rhs, and which alphas are accurate.

    Parameters
    ----------
    matrix : ndarray of shape (d, d)
        S.
    rhs : ndarray of shape (d, t)
        Right-hand side, shared by all alphas.
    alphas : ndarray of shape (a,)
        Positive shifts.
    """
    return refine(ShiftedSystem(matrix), matrix, rhs, alphas)


def refine(
    system: ShiftedSystem, matrix: Array, rhs: Array, alphas: Array
) -> tuple[Array, NDArray[np.bool_]]:
    """Do the same with a reduction that is already there."""
    d, t = rhs.shape
    shared = rhs[:, None, :]
    solution = system.solve_each(shared, alphas)
    if solution is None:
        shape = (d, alphas.size, t)
        return np.full(shape, np.nan), np.zeros(alphas.size, dtype=bool)
    # Errors are measured in the units in which the system has unit diagonal.
    size = np.sqrt(np.diagonal(matrix)[:, None] + alphas)[:, :, None]
    accurate = np.zeros(alphas.size, dtype=bool)
    for _ in range(_STEPS):
        product = (matrix @ solution.reshape(d, -1)).reshape(solution.shape)
        correction = system.solve_each(
            shared - product - alphas[:, None] * solution, alphas
        )
        if correction is None:  # pragma: no cover - it was definite a moment ago
            break
        solution = solution + correction
        moved = np.linalg.norm(correction * size, axis=0)
        total = np.linalg.norm(solution * size, axis=0)
        accurate = (moved <= _ACCURATE * total).all(axis=1)
        if accurate.all():
            break
    return solution, accurate
