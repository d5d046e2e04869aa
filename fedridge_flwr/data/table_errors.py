"""Errors of table files, and what is said where reading them is not installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
