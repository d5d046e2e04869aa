"""`TableProfile`: what a site says of its table, so that all can agree on a coding."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._checks import check_whole
from .._files import strict_json
from ..errors import ProtocolError

KINDS = ("number", "text", "date", "empty")
MOST_LEVELS = 200
"""A category with more levels is an identifier, a date, or free text."""
MOST_UNDECLARED = 20
"""Levels of text that no C() calls a category: with more it may be misread numbers."""
_LARGEST_JSON = 16 << 20
_LONGEST_NAME = 1_000
_LARGEST_COUNT = 2**53
_LARGEST_NUMBER = sys.float_info.max
_LARGEST_SUM = 1e300  # those of all sites together must not overflow


@dataclass(frozen=True)
class ColumnProfile:
    """One column of a site's table.

    Parameters
    ----------
    kind : {"number", "text", "date", "empty"}
        What is in it; "empty" if every value is missing.
    missing : int
        Rows in which it is missing.
    n_text : int
        Values that are no numbers.
    levels : tuple of str or None
        Its levels if it can be a category; None if there are too many.
    present_sum : tuple of float
        Sum of the numbers in it, as parts that add up exactly; only sent if means are
        to stand for missing values.
    """

    kind: str
    missing: int = 0
    n_text: int = 0
    levels: tuple[str, ...] | None = ()
    present_sum: tuple[float, ...] = ()


@dataclass(frozen=True)
class TableProfile:
    """The columns of a site's table, as far as a formula asks for them.

    Parameters
    ----------
    rows : int
        Rows of the table.
    complete : int
        Rows in which no column of the formula is missing.
    columns : mapping of str to ColumnProfile
        The columns asked for that the table has.

    Examples
    --------
    >>> profile = TableProfile(3, 2, {"age": ColumnProfile("number", missing=1)})
    >>> TableProfile.from_array(profile.to_array()) == profile
    True
    """

    rows: int
    complete: int
    columns: Mapping[str, ColumnProfile] = field(default_factory=dict)

    @property
    def missing(self) -> dict[str, int]:
        """Rows in which each column is missing, for columns where any is."""
        return {c: found.missing for c, found in self.columns.items() if found.missing}

    def to_array(self) -> NDArray[np.uint8]:
        """Return the profile as the bytes of its JSON, which travel as an array."""
        content = {
            "rows": self.rows,
            "complete": self.complete,
            "columns": {
                column: {
                    "kind": found.kind,
                    "missing": found.missing,
                    "text": found.n_text,
                    "levels": None if found.levels is None else list(found.levels),
                    "sum": list(found.present_sum),
                }
                for column, found in self.columns.items()
            },
        }
        text = json.dumps(content, ensure_ascii=False, allow_nan=False)
        return np.frombuffer(text.encode(), dtype=np.uint8)

    @classmethod
    def from_array(cls, array: NDArray[Any]) -> TableProfile:
        """Return the profile in bytes of which nothing is trusted."""
        if array.dtype != np.uint8 or array.ndim != 1 or array.size > _LARGEST_JSON:
            raise ProtocolError("the profile of a table is not text, or too long.")
        try:
            content = strict_json(array.tobytes().decode())
            return cls._from_content(content)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            kind = type(error).__name__
            raise ProtocolError(
                f"the profile of a table is damaged ({kind})."
            ) from None

    @classmethod
    def _from_content(cls, content: Any) -> TableProfile:
        rows = check_whole("rows", content["rows"], 0, _LARGEST_COUNT)
        complete = check_whole("complete", content["complete"], 0, rows)
        columns = {
            _short_text(name): _read_column(found, rows)
            for name, found in content["columns"].items()
        }
        return cls(rows, complete, columns)


def _read_column(content: Any, rows: int) -> ColumnProfile:
    if content["kind"] not in KINDS:
        raise ValueError("unknown kind")
    levels = content["levels"]
    if levels is not None:
        if not isinstance(levels, list) or len(levels) > MOST_LEVELS:
            raise ValueError("too many levels")
        levels = tuple(map(_short_text, levels))
    missing = check_whole("missing", content["missing"], 0, rows)
    total = content["sum"]
    if not isinstance(total, list) or not all(map(_is_sum, total)) or len(total) > 2:
        raise ValueError("a sum that no rows have")
    return ColumnProfile(
        content["kind"],
        missing,
        check_whole("text", content["text"], 0, rows),
        levels,
        tuple(map(float, total)),
    )


def _short_text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_NAME:
        raise ValueError("not a short text")
    if not value.isprintable():
        raise ValueError("invisible characters")
    return value


def _is_sum(value: Any) -> bool:
    return is_finite_number(value) and abs(value) <= _LARGEST_SUM


def is_finite_number(value: Any) -> bool:
    """Whether a value in JSON is a number that float64 has.

    Examples
    --------
    >>> [is_finite_number(value) for value in (1, 2.5, True, 10**400)]
    [True, True, False, False]
    """
    return type(value) in (int, float) and abs(value) <= _LARGEST_NUMBER
