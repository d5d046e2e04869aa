"""`NamedMatrix`: numbers in rows and columns that have names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._text import quoted
from ..._types import Array
from ...errors import FedRidgeError
from ..printed_table import as_html, as_latex, as_markdown, number, plain


class NamedMatrix:
    """A matrix whose rows and columns have names; printed, or turned into a data frame.

    Parameters
    ----------
    values : ndarray of shape (r, c)
        The numbers.
    rows, columns : sequence of str
        Names of the rows and of the columns.

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr.regression import NamedMatrix
    >>> found = NamedMatrix(np.eye(2), ["age", "bmi"], ["age", "bmi"])
    >>> found
         age  bmi
    age    1    0
    bmi    0    1
    >>> found["age", "bmi"]
    0.0
    """

    def __init__(
        self, values: Array, rows: Sequence[str], columns: Sequence[str]
    ) -> None:
        self.values = np.asarray(values, dtype=np.float64)
        self.rows, self.columns = tuple(rows), tuple(columns)
        if self.values.shape != (len(self.rows), len(self.columns)):
            raise FedRidgeError(
                f"{len(self.rows)} names of rows and {len(self.columns)} of columns "
                f"for a matrix of shape {self.values.shape}."
            )

    def __getitem__(self, key: tuple[str, str]) -> float:
        """Return one number by the names of its row and column."""
        row, column = key
        return float(self.values[_place(row, self.rows), _place(column, self.columns)])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the numbers, so that NumPy takes it for an array."""
        return np.array(self.values, dtype=dtype)

    def __repr__(self) -> str:
        return plain(*self._cells())

    def to_frame(self) -> Any:
        """Return a pandas data frame."""
        import pandas as pd

        return pd.DataFrame(
            self.values, index=list(self.rows), columns=list(self.columns)
        )

    def to_markdown(self) -> str:
        """Return a Markdown table."""
        return as_markdown(*self._cells())

    def to_latex(self) -> str:
        """Return a LaTeX tabular, which needs the package booktabs."""
        return as_latex(*self._cells())

    def _repr_html_(self) -> str:
        return as_html(*self._cells())

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        heads = ["", *self.columns]
        body = [
            [name, *(number(value) for value in row)]
            for name, row in zip(self.rows, self.values.tolist(), strict=True)
        ]
        return heads, body


def _place(name: str, names: tuple[str, ...]) -> int:
    if name not in names:
        raise FedRidgeError(f"{name!r} is not among {quoted(names)}.")
    return names.index(name)
