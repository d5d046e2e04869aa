"""Smallest and largest numbers of a table, for whoever has it, and nobody else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._text import counted
from ..data.local_table import LocalTable
from ..data.table_profile import TableProfile
from ..data.table_values import parse_numbers

_CODES = frozenset({-9, -99, -999, -9999, 99, 999, 9999, 99999})
_REPEATED = 2
_ENDS = 2


@dataclass(frozen=True)
class ColumnRange:
    """Values at the ends of a column of numbers, with the rows that have them.

    Parameters
    ----------
    values : ndarray
        The two smallest and the two largest different values, sorted.
    counts : ndarray
        Rows that have them.

    Examples
    --------
    >>> found = ColumnRange.of(np.array([31.0, 22.5, 999.0, 999.0, np.nan, 27.0]))
    >>> found.low, found.high, found.codes()
    (22.5, 999.0, [(999.0, 2, 31.0)])
    """

    values: NDArray[np.float64]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, numbers: NDArray[np.float64]) -> ColumnRange:
        """Return the ends of some numbers; NaN is missing."""
        known = numbers[~np.isnan(numbers)]
        values, counts = np.unique(known, return_counts=True)
        return cls(values, counts)._ends()

    def __add__(self, other: ColumnRange) -> ColumnRange:
        """Return the ends of the rows of both."""
        values = np.concatenate([self.values, other.values])
        values, place = np.unique(values, return_inverse=True)
        both = np.concatenate([self.counts, other.counts])
        counts = np.zeros(len(values), dtype=np.int64)
        np.add.at(counts, place, both)
        return ColumnRange(values, counts)._ends()

    def _ends(self) -> ColumnRange:
        places = np.arange(len(self.values))
        kept = (places < _ENDS) | (places >= len(places) - _ENDS)
        return ColumnRange(self.values[kept], self.counts[kept])

    @property
    def low(self) -> float:
        """The smallest number."""
        return float(self.values[0])

    @property
    def high(self) -> float:
        """The largest number."""
        return float(self.values[-1])

    def codes(self) -> list[tuple[float, int, float]]:
        """Return repeated ends that are often codes, their rows, and the next value."""
        if len(self.values) < 2:
            return []
        return [
            (float(self.values[k]), int(self.counts[k]), float(self.values[beside]))
            for k, beside in ((0, 1), (-1, -2))
            if self.values[k] in _CODES and self.counts[k] >= _REPEATED
        ]


def column_ranges(table: LocalTable, profile: TableProfile) -> dict[str, ColumnRange]:
    """Return the ends of all columns of numbers that are no categories."""
    numbers = [
        name
        for name, column in profile.columns.items()
        if column.kind == "number" and not column.levels
    ]
    found: dict[str, ColumnRange] = {}
    for part in table.parts(numbers) if numbers else ():
        for name in numbers:
            values, bad, _ = parse_numbers(part[name])
            own = ColumnRange.of(np.where(bad, np.nan, values))
            found[name] = found[name] + own if name in found else own
    return {name: each for name, each in found.items() if len(each.values)}


def code_notes(ranges: Mapping[str, ColumnRange]) -> Iterator[str]:
    """Ask whether repeated ends such as 999 stand for missing values."""
    for name, found in ranges.items():
        for value, rows, beside in found.codes():
            which = "largest" if value > beside else "smallest"
            yield (
                f"column {name!r} has {value:g} in {counted(rows, 'row')}, its "
                f"{which} value (the next is {beside:g}): if this stands for a missing "
                f'value, write missing_in = {{ "{name}" = ["{value:g}"] }} into '
                "table.toml."
            )
