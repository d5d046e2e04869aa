"""`ColumnMoments`: weight, means and variances of columns, merged over clients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from scipy import sparse

from .._checks import check_numbers
from .._text import counted
from .._types import Array
from ..data.names import Columns
from ..data.rows import Rows
from ..data.schema import Schema
from ..errors import StatisticsError

_LARGEST = 1e150


@dataclass(frozen=True, eq=False, repr=False)
class ColumnMoments:
    """Weight W, means m and variances ``v = sum w (x - m)² / W`` of every raw column.

    What clients send to resolve rules that need data: 1 + 2d numbers. They obey the law
    of statistics::

        from_rows(A) + from_rows(B) == from_rows(A and B)

    up to rounding, by the update of Chan, Golub and LeVeque.

    Parameters
    ----------
    weight : float
        Sum of the weights W; the number of rows where there are none.
    means, variances : ndarray of shape (d,)
        Of every column; the divisor of variances is W.
    schema : Schema, optional
        The columns, of one client.

    Examples
    --------
    >>> from fedridge_flwr.features import ColumnMoments
    >>> from fedridge_flwr.data.rows import check_rows
    >>> a = ColumnMoments.from_rows(check_rows([[1.0], [3.0]], [0.0, 0.0]))
    >>> b = ColumnMoments.from_rows(check_rows([[8.0]], [0.0]))
    >>> a + b
    ColumnMoments(weight 3, 1 column)
    >>> (a + b).means
    array([4.])
    """

    weight: float
    means: Array
    variances: Array
    schema: Schema | None = None

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        self.means.setflags(write=False)
        self.variances.setflags(write=False)

    @property
    def n_features(self) -> int:
        """Number of columns d."""
        return int(self.means.size)

    @property
    def overall_variance(self) -> float:
        """Variance of all entries of X as one set of numbers, as ``X.var()``."""
        spread = self.means - self.means.mean()
        return float(self.variances.mean() + (spread**2).mean())

    @classmethod
    def from_rows(cls, rows: Rows) -> ColumnMoments:
        """Return the moments of the features of checked rows, read block by block.

        Parameters
        ----------
        rows : Rows
            Rows, as ``fedridge_flwr.data.rows.check_rows`` returns them.

        Raises
        ------
        DataError
            If there are NaN or infinite values, or values that overflow.
        """
        zero = cls(0.0, np.zeros(rows.n_features), np.zeros(rows.n_features))
        with np.errstate(over="ignore", invalid="ignore"):
            parts = (_of_block(block.X, block.weight) for block in rows.blocks())
            total = reduce(lambda a, b: a + b, parts, zero)
        if not (np.isfinite(total.means).all() and np.isfinite(total.variances).all()):
            rows.refuse_bad_values()
        return total

    def __add__(self, other: object) -> ColumnMoments:
        """Merge: the moments of both sets of rows together."""
        if not isinstance(other, ColumnMoments):
            return NotImplemented
        if self.n_features != other.n_features:
            raise StatisticsError(
                f"moments of {self.n_features} columns on one side, "
                f"{other.n_features} on the other: bring every client to one schema."
            )
        if self.weight == 0.0 or other.weight == 0.0:
            return other if self.weight == 0.0 else self
        weight = self.weight + other.weight
        mine, theirs = self.weight / weight, other.weight / weight
        delta = other.means - self.means
        variances = mine * self.variances + theirs * other.variances
        return ColumnMoments(
            weight, self.means + theirs * delta, variances + mine * theirs * delta**2
        )

    def __radd__(self, other: object) -> ColumnMoments:
        """Let ``sum([...])`` start from 0."""
        if isinstance(other, int) and other == 0:
            return self
        return NotImplemented

    def arranged(self, wanted: Columns) -> ColumnMoments:
        """Return the same moments with the columns in the order that is wanted."""
        if self.schema is None:
            return self
        places = self.schema.places_of(wanted)[: self.n_features]
        return replace(
            self,
            means=self.means[places],
            variances=self.variances[places],
            schema=self.schema.arranged(wanted),
        )

    def scale(self) -> tuple[float, Array, Array]:
        """Return weight, means and sums of squared deviations of all columns."""
        return self.weight, self.means, self.variances * self.weight

    def to_array(self) -> Array:
        """Pack into one float64 vector: weight, means, variances."""
        return np.concatenate([[self.weight], self.means, self.variances])

    @classmethod
    def from_array(cls, array: Any) -> ColumnMoments:
        """Unpack `to_array`; every value is checked.

        Parameters
        ----------
        array : ndarray of float64, shape (1 + 2d,)
            The packed vector.

        Raises
        ------
        StatisticsError
            If no rows can have these moments.

        Examples
        --------
        >>> import numpy as np
        >>> from fedridge_flwr.features import ColumnMoments
        >>> ColumnMoments.from_array(np.array([2.0, 5.0, 6.0, 1.0, 0.0])).means
        array([5., 6.])
        """
        packed = check_numbers(array, np.float64, np.size(array), "column moments")
        if packed.size < 3 or packed.size % 2 == 0:
            raise StatisticsError(
                "column moments are 1 + 2d numbers (weight, means, variances), "
                f"got {packed.size}."
            )
        if (np.abs(packed) > _LARGEST).any():
            raise StatisticsError(f"some column moments are above {_LARGEST:g}.")
        d = packed.size // 2
        weight, means, variances = float(packed[0]), packed[1 : 1 + d], packed[1 + d :]
        if weight < 0 or (variances < 0).any():
            raise StatisticsError("column moments have a negative weight or variance.")
        if weight == 0 and packed.any():
            raise StatisticsError("there are no rows, but column moments.")
        return cls(weight, means.copy(), variances.copy())

    def __repr__(self) -> str:
        """Show what was counted, not the numbers."""
        columns = counted(self.n_features, "column")
        return f"ColumnMoments(weight {self.weight:g}, {columns})"


def _of_block(X: Any, weight: Array | None) -> ColumnMoments:
    n_rows, d = X.shape
    own = np.ones(n_rows) if weight is None else weight
    total = float(own.sum())
    if total == 0.0:
        return ColumnMoments(0.0, np.zeros(d), np.zeros(d))
    if sparse.issparse(X):
        each = np.repeat(own, np.diff(X.indptr))
        means = np.bincount(X.indices, each * X.data, d) / total
        centred = X.data - means[X.indices]
        squares = np.bincount(X.indices, each * centred**2, d)
        # Entries that are not stored are zeros, each as far away as the mean.
        absent = np.maximum(total - np.bincount(X.indices, each, d), 0.0)
        return ColumnMoments(total, means, (squares + absent * means**2) / total)
    means = own @ np.asarray(X, dtype=np.float64) / total
    return ColumnMoments(total, means, own @ (X - means) ** 2 / total)
