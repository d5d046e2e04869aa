"""`ColumnScan`: what a column of a table has, before anybody says what it is."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .table_errors import load_arrow
from .table_values import (
    DATE,
    MISREAD,
    NotNumbersError,
    cause_of,
    level_text,
    matches,
    parse_numbers,
)


class ColumnScan:
    """What a column has: kind, missing entries, levels, and the exact mean.

    Parameters
    ----------
    max_levels : int
        A column with more distinct entries has too many levels to be a category; they
        are no longer counted.

    Attributes
    ----------
    rows, missing : int
        How many entries there were, and how many of them are missing.
    n_text : int
        How many present entries are not numbers.
    level_counts : dict of str to int
        How often each level occurs; empty where there are too many.
    too_many_levels : bool
        Whether there are more than `max_levels`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> scan = ColumnScan()
    >>> scan.add(pa.array(["1", "2.0", None]))
    >>> scan.add(pa.array(["1.0", "2"]))
    >>> scan.kind, scan.rows, scan.missing, scan.level_counts, scan.mean
    ('number', 5, 1, {'1': 2, '2': 2}, 1.5)
    """

    def __init__(self, max_levels: int = 1_000) -> None:
        self.max_levels = max_levels
        self.rows = self.missing = self.n_text = self.n_numbers = 0
        self.level_counts: dict[str, int] = {}
        self.too_many_levels = False
        self._n_dates = self._n_misread = 0
        self._sum = 0  # in units of _UNIT, of all numbers
        self._first: tuple[int, str] | None = None

    def add(self, array: Any, first_line: int | Sequence[int] = 1) -> None:
        """Count the entries of one more batch.

        Parameters
        ----------
        array : pyarrow.Array
            The entries.
        first_line : int or sequence of int
            Line or row of the first entry, or of each.
        """
        pa = load_arrow()
        values, bad, array = parse_numbers(array)
        present = ~np.isnan(values) & ~bad
        n_bad, n_numbers = int(bad.sum()), int(present.sum())
        self.rows += len(array)
        self.n_text += n_bad
        self.n_numbers += n_numbers
        self.missing += len(array) - n_bad - n_numbers
        self._sum += _exact_sum(values[present])
        if n_bad:
            self._add_text(pa, array, bad, first_line)
        if not self.too_many_levels:
            self._add_levels(pa, array)

    def _add_text(
        self, pa: Any, array: Any, bad: Any, lines: int | Sequence[int]
    ) -> None:
        if self._first is None:
            first = int(np.argmax(bad))
            line = lines + first if isinstance(lines, int) else int(lines[first])
            self._first = (line, cause_of(array[first].as_py()))
        if pa.types.is_string(array.type):
            self._n_dates += int((bad & matches(pa, array, f"^({DATE})$")).sum())
            self._n_misread += int((bad & matches(pa, array, f"^({MISREAD})$")).sum())
        elif pa.types.is_temporal(array.type):
            self._n_dates += int(bad.sum())

    def _add_levels(self, pa: Any, array: Any) -> None:
        # More than ten spellings of each level are not worth the time to tell.
        if len(array.unique()) <= 10 * self.max_levels:
            counts = level_text(array).drop_null().value_counts()
            for level, count in zip(*counts.flatten(), strict=True):
                name = level.as_py()
                found = self.level_counts.get(name, 0)
                self.level_counts[name] = found + count.as_py()
            if len(self.level_counts) <= self.max_levels:
                return
        self.level_counts = {}
        self.too_many_levels = True

    @property
    def kind(self) -> str:
        """One of "number", "text", "date" and "empty" (all entries are missing)."""
        if self.rows == self.missing:
            return "empty"
        if self.n_text == 0:
            return "number"
        return "date" if self._n_dates == self.rows - self.missing else "text"

    @property
    def may_be_numbers(self) -> bool:
        """Whether it is text although most entries are numbers, or written like them.

        A few words among numbers, or percent signs, would make a category of them.
        """
        likely = self.n_numbers + self._n_misread
        return self.kind == "text" and 2 * likely >= self.rows - self.missing

    @property
    def levels(self) -> set[str]:
        """The distinct levels; empty where there are too many."""
        return set(self.level_counts)

    @property
    def constant(self) -> bool:
        """Whether all present entries are the same level."""
        return len(self.level_counts) == 1

    @property
    def exact_sum(self) -> Fraction:
        """The sum of all numbers, without rounding: sums of sites add up exactly."""
        return Fraction(self._sum, _UNIT)

    @property
    def mean(self) -> float:
        """The mean of all numbers, rounded once; NaN without numbers."""
        if not self.n_numbers:
            return float("nan")
        return float(self.exact_sum / self.n_numbers)

    @property
    def first_text(self) -> int | None:
        """Line or row of the first entry that is not a number, as `add` was told."""
        return None if self._first is None else self._first[0]

    def problem(self, place: str) -> str:
        """Say why the column is not one of numbers, for a first entry at `place`."""
        if self._first is None:
            return "has numbers."
        present = self.rows - self.missing
        return NotNumbersError(self.n_text, present, 0, self._first[1]).problem(place)


def _exact_sum(values: NDArray[np.float64]) -> int:
    """Return the sum of finite numbers in units of 2**-1127, as a whole number.

    Mantissas are added up by exponent, in halves of 26 and 27 bits, whose sums float64
    has exactly for up to 2**26 numbers at a time.
    """
    total = 0
    for start in range(0, len(values), 2**20):
        mantissa, exponent = np.frexp(values[start : start + 2**20])
        whole = (mantissa * 2.0**53).astype(np.int64)
        places = exponent + 1074
        high = np.bincount(places, weights=whole >> 27)
        low = np.bincount(places, weights=whole & (2**27 - 1))
        for place in np.flatnonzero((high != 0) | (low != 0)):
            part = (int(high[place]) << 27) + int(low[place])
            total += part << int(place)
    return total


_UNIT = 2 ** (1074 + 53)
