"""Orthogonal factorisations, whose errors grow with cond(A) and not with its square.

Columns are divided by powers of two before, which costs no digits: units matter neither
for overflow nor for what counts as dependent.
"""

import numpy as np
from scipy.linalg import qr, solve_triangular
from scipy.linalg.lapack import dtrcon, dtrtri

from .._types import Array
from .blas import one_blas_thread
from .packed import EPS
from .pivoted import factor_of_rows

# Of a column of length one. Exactly dependent columns leave less than that.
_NEARLY_DEPENDENT = 1e-12


def triangular_factor(rows: Array, most: int) -> Array:
    """Return an upper trapezoid R with R'R = Z'Z of rows Z, and a diagonal >= 0.

    It has as many rows as Z has rank. R is a function of Z'Z alone, and so discloses no
    more of the rows: where columns depend on each other, a QR as such would leave
    differences of rows in R, so that R is made from the factor of a pivoted one.

    Parameters
    ----------
    rows : ndarray of shape (n, p)
        Z.
    most : int
        The rank that Z can have, besides rounding.

    Examples
    --------
    >>> rows = np.array([[3.0, 1.0], [4.0, 2.0], [0.0, 2.0]])
    >>> triangular_factor(rows, most=3).round(4) + 0.0
    array([[5.    , 2.2   ],
           [0.    , 2.0396]])
    """
    width = rows.shape[1]
    units = column_units(rows)
    scaled = rows / units
    if min(len(rows), most) >= width:
        factor = _upper(scaled)
        if np.abs(np.diagonal(factor)).min() > _NEARLY_DEPENDENT:
            return factor * units
    pivoted, order = factor_of_rows(scaled, width * EPS)
    factor = np.empty_like(pivoted[:most])
    factor[:, order] = pivoted[:most]
    return _upper(factor) * units if len(factor) else factor


def column_units(rows: Array) -> Array:
    """Return the powers of two next to the lengths of the columns, 1 for zeros.

    Examples
    --------
    >>> column_units(np.array([[3e-200, 0.0, 5.0], [4e-200, 0.0, 0.0]])) > 0
    array([ True,  True,  True])
    """
    largest = _power_of_two(np.abs(rows).max(axis=0, initial=0.0))
    scaled = rows / largest
    return largest * _power_of_two(np.sqrt(np.einsum("ij,ij->j", scaled, scaled)))


class OrthogonalSystem:
    """min |A w - B|² + sum p w² over w, for any B, from one pivoted QR.

    Parameters
    ----------
    matrix : ndarray of shape (n, d)
        A.
    penalty : ndarray of shape (d,), optional
        p; its roots are further rows of A.

    Attributes
    ----------
    inverse_condition : float
        Estimate of 1 / cond(A) in the 1-norm, for columns of length one, those further
        rows included; 0 if there are fewer rows than columns.

    Examples
    --------
    >>> system = OrthogonalSystem(np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]))
    >>> system.solve(np.array([[1.0], [3.0], [5.0]])).round(12).ravel()
    array([1., 2.])
    >>> system.inverse().round(6)
    array([[ 0.833333, -0.5     ],
           [-0.5     ,  0.5     ]])
    """

    def __init__(self, matrix: Array, penalty: Array | None = None) -> None:
        if penalty is not None and penalty.any():
            matrix = np.vstack([matrix, np.diag(np.sqrt(penalty))])
        self._units = column_units(matrix)
        self._matrix = matrix / self._units
        with one_blas_thread():
            self._basis, self._upper, self._order = qr(
                self._matrix, mode="economic", pivoting=True, check_finite=False
            )
        self.inverse_condition = 0.0
        lengths = np.linalg.norm(self._upper, axis=0)
        if len(matrix) >= matrix.shape[1] and lengths.all():
            unit = np.asfortranarray(self._upper / lengths)
            self.inverse_condition = float(dtrcon(unit)[0])

    def solve(self, rhs: Array) -> Array:
        """Return w for B of shape (n, t); there must be a unique one.

        The second step corrects solution and residual together (Björck 1967), where one
        alone would leave the error of the first in a large residual.
        """
        n, d = self._matrix.shape
        target = np.vstack([rhs, np.zeros((n - len(rhs), rhs.shape[1]))])
        solution, residual = np.zeros((d, rhs.shape[1])), np.zeros_like(target)
        for _ in range(2):
            left = target - residual - self._matrix @ solution
            skew = -(self._matrix.T @ residual)[self._order]
            turned = solve_triangular(self._upper, skew, trans="T")
            inside = self._basis.T @ left - turned
            solution[self._order] += solve_triangular(self._upper, inside)
            residual += left - self._basis @ inside
        return np.asarray(solution / self._units[:, None])

    def inverse(self) -> Array:
        """Return (A'A + diag(p))^-1, shape (d, d), of which the same holds."""
        root = np.empty_like(self._upper)
        root[self._order] = np.triu(dtrtri(self._upper)[0])
        root /= self._units[:, None]
        return np.asarray(root @ root.T)


def _upper(rows: Array) -> Array:
    """Return R of a QR, with a diagonal that is not negative."""
    with one_blas_thread():
        factor = qr(rows, mode="r", check_finite=False)[0][: rows.shape[1]]
    negative = np.diagonal(factor) < 0
    factor[: negative.size][negative] *= -1.0
    return np.asarray(factor)


def _power_of_two(lengths: Array) -> Array:
    """Return the power of two above each length; 1 for zero."""
    return np.asarray(np.ldexp(1.0, np.frexp(lengths)[1]))
