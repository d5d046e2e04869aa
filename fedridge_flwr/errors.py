"""Errors and warnings that say what was wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "DataError",
    "FedRidgeError",
    "IllConditionedWarning",
    "MissingBoundError",
    "NotConvergedWarning",
    "NotEnoughClientsError",
    "PrivacyError",
    "PrivacyWarning",
    "ProtocolError",
    "SingularSystemError",
    "StatisticsError",
]

_SHOWN = 6


class FedRidgeError(ValueError):
    """Base of every error this package raises on purpose."""


class DataError(FedRidgeError):
    """Rows that cannot become statistics.

    The message names columns. Column names may be confidential, so a client that
    does not share them sends `anonymous()` instead: the same sentence with column
    numbers only. No message ever contains a value of the data.

    Parameters
    ----------
    template : str
        The sentence, with ``{columns}`` where the columns are to be named.
    columns : sequence of int
        Numbers of the columns concerned.
    names : sequence of str, optional
        Names of all columns.

    Examples
    --------
    >>> error = DataError("NaN in {columns}", [1], names=["age", "income"])
    >>> print(error)
    NaN in column 1 ('income')
    >>> error.anonymous()
    'NaN in column 1'
    """

    def __init__(
        self,
        template: str,
        columns: Sequence[int] = (),
        names: Sequence[str] | None = None,
    ) -> None:
        self._template = template
        self._columns = [int(column) for column in columns]
        super().__init__(self._fill(names))

    def anonymous(self) -> str:
        """Return the message without column names."""
        return self._fill(None)

    def _fill(self, names: Sequence[str] | None) -> str:
        return self._template.replace("{columns}", column_labels(self._columns, names))


class StatisticsError(FedRidgeError):
    """Statistics that do not fit together, or that no rows can have."""


class ProtocolError(FedRidgeError):
    """A message that is not what the protocol says."""


class SingularSystemError(FedRidgeError):
    """The data do not determine the coefficients."""


class NotEnoughClientsError(FedRidgeError):
    """Fewer valid answers than the strategy was told to accept."""


class PrivacyError(FedRidgeError):
    """Privacy that was not asked for properly, or is not granted.

    The message never depends on the data, so a client may send it.
    """


class MissingBoundError(PrivacyError, TypeError):
    """A public bound that privacy needs was not given."""


class PrivacyWarning(UserWarning):
    """Less privacy, or less accuracy for it, than one may think."""


class IllConditionedWarning(UserWarning):
    """More than half of the digits of the coefficients are lost to rounding."""


class NotConvergedWarning(UserWarning):
    """Conjugate gradients ended before they reached their tolerance."""


def column_labels(columns: Sequence[int], names: Sequence[str] | None = None) -> str:
    """Name columns by number and, where known, by name.

    Examples
    --------
    >>> column_labels([0, 2], ["age", "bmi", "height"])
    "columns 0 ('age'), 2 ('height')"
    """
    shown = [
        f"{column} ({names[column]!r})" if names is not None else f"{column}"
        for column in columns[:_SHOWN]
    ]
    if len(columns) > _SHOWN:
        shown.append(f"and {len(columns) - _SHOWN} more")
    return ("column " if len(columns) == 1 else "columns ") + ", ".join(shown)
