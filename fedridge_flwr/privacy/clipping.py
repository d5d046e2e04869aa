"""Rows clipped to public bounds and put on an integer grid.

The grid makes the bound exact: every row, whatever float64 numbers it has, adds to any
sum a vector of integers of length `LENGTH` at most, to the last unit, and sums of
integers depend on neither order nor rounding.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .._types import Array
from ..data.rows import Block

# Largest length of a row of features, or of targets, on the grid.
LENGTH = 2**20

# Rows whose products float64 adds up exactly: 2^13 · 2^20 · 2^20 = 2^53.
EXACT_ROWS = 2**13


@dataclass(frozen=True)
class GridRows:
    """Rows on the grid: whole numbers, kept as float64 so that BLAS multiplies them.

    Rows that were dropped are zero, and not `present`. `targets` are in their own
    units, shortened with the features but not cut to their bound.
    """

    X: Array
    Y: Array
    targets: Array
    present: NDArray[np.bool_]
    n_shortened: int
    n_cut: int

    @property
    def n_dropped(self) -> int:
        """Number of rows that were dropped."""
        return int(np.count_nonzero(~self.present))


@dataclass(frozen=True)
class Bounds:
    """Public bounds of one row, and the grid they give.

    Parameters
    ----------
    x_norm : float
        Bound on the Euclidean length of the features.
    y_norm : float
        Bound on the absolute target, or on the length of several.
    n_features, n_targets : int
        Size of a row.
    intercept : bool
        Whether every row gets one more feature, the constant κ = x_norm / sqrt(d).
    clip_constant : bool
        Whether κ is shortened with the features, so that the fit is not biased. The
        rules of 0.1.0 left it as it was, which pulled the intercept towards 0.

    Examples
    --------
    >>> bounds = Bounds(1.0, 1.0, 2, 1, intercept=False)
    >>> block = Block(np.array([[3e300, 4e300]]), np.array([[1.0]]), None)
    >>> rows = bounds.on_grid(block)
    >>> (rows.X * bounds.x_step).round(5)
    array([[0.6, 0.8]])
    """

    x_norm: float
    y_norm: float
    n_features: int
    n_targets: int
    intercept: bool
    clip_constant: bool = True

    @property
    def width(self) -> int:
        """Number of features on the grid, the constant included."""
        return self.n_features + self.intercept

    @property
    def x_step(self) -> float:
        """What one unit of the grid is worth in the features."""
        return self.x_norm * math.sqrt(1.0 + self.intercept / self.n_features) / LENGTH

    @property
    def y_step(self) -> float:
        """What one unit of the grid is worth in the targets."""
        return self.y_norm / LENGTH

    @property
    def constant(self) -> int:
        """The constant feature on the grid."""
        return math.floor(self.x_norm / math.sqrt(self.n_features) / self.x_step)

    @property
    def _clips_constant(self) -> bool:
        return self.intercept and self.clip_constant

    def on_grid(self, block: Block) -> GridRows:
        """Clip rows jointly, round them, and drop those that are not finite.

        A row (a, κ) longer than the bound is multiplied by
        ``s = min(1, sqrt(Bx² + κ²) / |(a, κ)|)``, and its target with it, which
        preserves y = a w + κ c; then the target is cut to its own bound. The result is
        safe for every float64: NaN and infinity drop the row, 1e308 does not overflow.
        """
        X, Y = _dense(block.X), _dense(block.Y)
        # Rounding to whole numbers lengthens a row by half the root of its width at
        # most: it cannot push these lengths over the bounds.
        constant = self.constant * self.x_step if self._clips_constant else 0.0
        longest = LENGTH * self.x_step if self._clips_constant else self.x_norm
        longest -= (math.sqrt(self.width) + 1) * self.x_step
        largest = self.y_norm - (math.sqrt(self.n_targets) + 1) * self.y_step
        within = _squares(X) + constant**2 <= longest**2
        within &= _squares(Y) <= largest**2
        # Rows that are not certainly within the bounds, NaN included, are clipped.
        odd = np.flatnonzero(~within)
        U = np.empty((len(X), self.width))
        with np.errstate(over="ignore", invalid="ignore"):
            np.multiply(X, 1.0 / self.x_step, out=U[:, : self.n_features])
            V = Y * (1.0 / self.y_step)
        if self.intercept:
            U[:, -1] = self.constant
        present = np.ones(len(X), dtype=bool)
        n_shortened = n_cut = 0
        if odd.size:
            sane = np.asarray(np.isfinite(np.hstack([X[odd], Y[odd]])).all(axis=1))
            present[odd] = sane
            rows = np.where(sane[:, None], X[odd], 0.0)
            rows = np.column_stack([rows, np.full(len(odd), constant)])
            short, factors = _shortened(rows, longest)
            targets = np.where(sane[:, None], Y[odd], 0.0) * factors[:, None]
            kept = self.width if self._clips_constant else self.n_features
            U[odd, :kept] = short[:, :kept] / self.x_step
            cut, shares = _shortened(targets, largest)
            V[odd] = cut / self.y_step
            n_shortened = int(np.count_nonzero(sane & (factors < 1.0)))
            n_cut = int(np.count_nonzero(sane & (shares < 1.0)))
            Y = Y.copy()
            Y[odd] = targets
        np.rint(U, out=U)
        np.rint(V, out=V)
        # Should a row be too long all the same, it must be dropped, not counted.
        present &= (_squares(U) <= LENGTH**2) & (_squares(V) <= LENGTH**2)
        if not present.all():
            U[~present], V[~present] = 0.0, 0.0
        return GridRows(U, V, Y, present, n_shortened, n_cut)


def _shortened(rows: Array, bound: float) -> tuple[Array, Array]:
    """Return rows of length at most `bound`, and the factors, without overflow."""
    largest = np.abs(rows).max(axis=1, initial=0.0)
    safe = np.where(largest > 0, largest, 1.0)
    unit = rows / safe[:, None]
    lengths = np.sqrt(_squares(unit))
    with np.errstate(over="ignore", divide="ignore", under="ignore"):
        factors = np.minimum(1.0, bound / safe / np.where(lengths > 0, lengths, 1.0))
    longest = unit / np.where(lengths > 0, lengths, 1.0)[:, None] * bound
    return np.where((factors == 1.0)[:, None], rows, longest), factors


def _squares(rows: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(np.einsum("ij,ij->i", rows, rows))


def _dense(X: Any) -> Array:
    return np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)
