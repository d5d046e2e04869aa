"""Errors of table files, and what is said where reading them is not installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError


class TableFileError(DataError):
    """A table file that cannot be read, or entries of it that cannot be used.

    The message begins with the name of the file, without its folder. `anonymous` has
    neither that name nor the names of columns.

    Parameters
    ----------
    file : str
        Name of the file.
    problem : str
        The sentence, with ``{columns}`` where columns are to be named.
    columns : sequence of int
        Numbers of the columns that the message is about.
    names : sequence of str, optional
        Names of all columns.
    local : str
        What to add for a reader at the site only, such as names in the file.

    Examples
    --------
    >>> error = TableFileError("visits.csv", "{columns} has dates", [0], ["seen"])
    >>> print(error)
    visits.csv: column 0 ('seen') has dates
    >>> error.anonymous()
    "the site's file: column 0 has dates"
    """

    def __init__(
        self,
        file: str,
        problem: str,
        columns: Sequence[int] = (),
        names: Sequence[str] | None = None,
        local: str = "",
    ) -> None:
        self._problem = problem
        super().__init__(f"{file}: {problem}{local}", columns, names)

    def anonymous(self) -> str:
        """Return the message without names of the file and its columns."""
        return str(DataError(f"the site's file: {self._problem}", self._columns))


class UnknownLevelsError(DataError):
    """Entries of a category that are not among its levels; it does not say which.

    Parameters
    ----------
    table : mapping of str to pyarrow array
        Some rows of a table.
    column : str
        The category.
    unknown : array of bool
        The rows with such entries.
    """

    def __init__(
        self, table: Mapping[str, Any], column: str, unknown: NDArray[np.bool_]
    ) -> None:
        self.column, self.first = column, int(np.argmax(unknown))
        self.place = place_of(table, self.first)
        super().__init__(
            f"column {column!r} has {int(unknown.sum())} value(s) that are not among "
            f"the levels agreed on, the first in {self.place}. Correct the table."
        )


def place_of(table: Any, row: int) -> str:
    """Return where a row is: the line of a file, where the table is one."""
    return str(table.place(row)) if hasattr(table, "place") else f"row {row + 1}"


def load_arrow() -> Any:
    """Return pyarrow, with the parts of it that read tables.

    Raises
    ------
    DataError
        If it is not installed; the core of this package does not need it.
    """
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError:
        raise DataError(
            "reading table files needs pyarrow, which is not installed here: "
            "pip install 'fedridge-flwr[tables]'"
        ) from None
    return pyarrow
