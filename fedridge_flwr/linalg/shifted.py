"""Solve (S + alpha I) w = h for many alphas after reducing S once.

One orthogonal reduction to tridiagonal form, S = Q T Q', costs as much as eight
Cholesky factorisations; after it every alpha is a tridiagonal system. That takes half
the time of an eigendecomposition and is as accurate. Where the columns of S have very
different scales neither is: `solve_refined` corrects each solution by its residual
until it is as accurate as a Cholesky solution of the scaled system, or reports that it
is not.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dorgqr, dptsv, dpttrf, dsytrd, dsytrd_lwork

from .._types import Array

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
    >>> system.solve_each(np.array([[[2.0]], [[4.0]]]), np.array([1.0])).ravel()
    array([1., 1.])
    """

    def __init__(self, matrix: Array) -> None:
        size = matrix.shape[0]
        self._matrix, self._basis = matrix, np.eye(size)
        if size == 1:
            # LAPACK's wrapper needs one number even where it reads none.
            self._diagonal, self._off = matrix.diagonal().copy(), np.zeros(1)
            return
        work = int(dsytrd_lwork(size, lower=1)[0])
        reduced, self._diagonal, self._off, tau, _ = dsytrd(matrix, lower=1, lwork=work)
        reflectors = np.asfortranarray(reduced[1:, :-1])
        self._basis[1:, 1:], _, _ = dorgqr(reflectors, tau, lwork=64 * size)

    def definite(self, alpha: float) -> bool:
        """Whether S + alpha I is positive definite to rounding."""
        return bool(dpttrf(self._diagonal + alpha, self._off)[2] == 0)

    def solve_each(self, rhs: Array, alphas: Array) -> Array | None:
        """Return solutions (d, a, m) for rhs (d, a, m), or (d, 1, m) shared by all.

        None if one of the systems is not definite.
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
        return (self._basis @ solved.reshape(d, -1)).reshape(solved.shape)

    def solve_refined(
        self, rhs: Array, alphas: Array
    ) -> tuple[Array, NDArray[np.bool_]]:
        """Return W (d, a, t) with (S + alpha I) W = rhs, and which alphas are accurate.

        Parameters
        ----------
        rhs : ndarray of shape (d, t)
            Right-hand side, shared by all alphas.
        alphas : ndarray of shape (a,)
            Positive shifts.
        """
        matrix, (d, t) = self._matrix, rhs.shape
        shared = rhs[:, None, :]
        accurate = np.zeros(alphas.size, dtype=bool)
        solution = self.solve_each(shared, alphas)
        if solution is None:
            return np.full((d, alphas.size, t), np.nan), accurate
        # Errors are measured in the units in which the system has unit diagonal.
        size = np.sqrt(np.diagonal(matrix)[:, None] + alphas)[:, :, None]
        for _ in range(8):
            product = (matrix @ solution.reshape(d, -1)).reshape(solution.shape)
            left = shared - product - alphas[:, None] * solution
            correction = self.solve_each(left, alphas)
            if correction is None:  # pragma: no cover - it was definite a moment ago
                break
            solution = solution + correction
            moved = np.linalg.norm(correction * size, axis=0)
            total = np.linalg.norm(solution * size, axis=0)
            accurate = (moved <= _ACCURATE * total).all(axis=1)
            if accurate.all():
                break
        return solution, accurate

    def scaled_conditions(self, alphas: Array) -> Array:
        """Estimate the condition, in the 1-norm, of each system of unit diagonal.

        The norm of the inverse is Hager's estimate (Higham 1988), as in LAPACK, with
        the steps for all alphas taken together.
        """
        diagonal = np.diagonal(self._matrix)[:, None]
        size = np.sqrt(diagonal + alphas)
        inverse_size = 1.0 / size
        norms = np.abs(self._matrix) @ inverse_size - np.abs(diagonal) * inverse_size

        def apply_inverse(columns: Array) -> Array:
            found = self.solve_each((size * columns)[:, :, None], alphas)
            if found is None:  # pragma: no cover - the caller checked `definite`
                return np.full_like(columns, np.inf)
            return size * found[:, :, 0]

        inverse_norms = _one_norms(apply_inverse, diagonal.size, alphas.size)
        return np.asarray((1.0 + (norms / size).max(axis=0)) * inverse_norms)


def _one_norms(apply: Callable[[Array], Array], size: int, number: int) -> Array:
    """Estimate 1-norms of symmetric matrices, each applied to a column of its own."""
    every = np.arange(number)
    image = apply(np.full((size, number), 1.0 / size))
    norms: Array = np.abs(image).sum(axis=0)
    for _ in range(4):
        slope = apply(np.where(image >= 0.0, 1.0, -1.0))
        unit = np.zeros((size, number))
        unit[np.abs(slope).argmax(axis=0), every] = 1.0
        image = apply(unit)
        found = np.abs(image).sum(axis=0)
        if (found <= norms).all():
            break
        norms = np.maximum(norms, found)
    signs = np.where(np.arange(size) % 2, -1.0, 1.0)
    waves = signs * (1.0 + np.arange(size) / max(size - 1, 1))
    last = np.abs(apply(np.repeat(waves[:, None], number, axis=1))).sum(axis=0)
    return np.asarray(np.maximum(norms, 2.0 * last / (3.0 * size)))
