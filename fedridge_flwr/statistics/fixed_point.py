"""`FixedPointStatistics`: sums of rows as whole numbers, the same bits in any order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from .._text import counted
from .._types import Array
from ..data.names import Columns
from ..data.rows import Rows, check_rows
from ..data.schema import HasSchema, Schema
from ..errors import StatisticsError
from ..features import FeatureMap, map_rows
from ..linalg import limbs
from ..linalg.packed import diagonal_positions, from_upper, upper_triangle
from .fixed_checks import check_sums, check_words
from .integer_sums import (
    DEFAULT_GRID,
    FRACTION_BITS,
    MAX_CLIENTS,
    TOTAL_BITS,
    FixedGrid,
    integer_sums,
)
from .moments import RunningSum, check_mergeable, filled_left, filled_together
from .saving import SaveStatistics
from .sufficient import SufficientStatistics
from .validity import check_count


@dataclass(frozen=True, eq=False, repr=False)
class FixedPointStatistics(HasSchema, SaveStatistics):
    """Sums ``S = sum u u'`` of rows ``u = rint(sqrt(w) [1 x y] 2^f)``, whole numbers.

    Rows are rounded to a public grid of f = 60 bits below one; from there on nothing is
    rounded. The law of all statistics holds bit for bit::

        from_data(rows A) + from_data(rows B) == from_data(rows A and B)
        (a + b) - b == a

    for every order of the rows and every split among clients. `to_sufficient` centres
    in integers, ``C = S_zz - s s' / n``, and rounds once, so that large means cost no
    digits.

    Make them with `from_data`; ``sum([...])`` adds up any number. The parameters below
    are also the attributes; with d features and t targets:

    Parameters
    ----------
    count : int
        Number of rows.
    words : ndarray of uint64, shape ((1+d+t)(2+d+t)/2, total_bits / 64)
        Upper triangle of S, row by row. Each number is in two's complement, its lowest
        word first; the first one is the total weight.
    schema : Schema
        The columns, as in `SufficientStatistics`.
    grid : FixedGrid
        `fraction_bits`, `total_bits` and `column_exponents`, which all clients share.
    n_clients : int
        How many contributions were merged.
    n_filled : int, optional
        As in `SufficientStatistics`.

    Notes
    -----
    =====================  =====================================================
    input                  result
    =====================  =====================================================
    no rows                zeros: merging them changes nothing
    values above 2^35.5    `DataError` that names the column: see `exponents`
    / sqrt(n max_clients)
    values below 2^-60     rounded to the grid; an error if a column vanishes
    sample weights         ``sqrt(w) x`` is rounded to float64 and then to the grid:
                           an integer weight is a repeated row to rounding only
    =====================  =====================================================

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import FixedPointStatistics, solve
    >>> X, y = np.arange(12.0).reshape(6, 2) ** 2 / 7, np.arange(6.0)
    >>> total = FixedPointStatistics.from_data(X, y)
    >>> parts = [FixedPointStatistics.from_data(X[k::2], y[k::2]) for k in (1, 0)]
    >>> sum(parts) == total, total - parts[0] == parts[1]
    (True, True)
    >>> solve(total.to_sufficient(), alpha=1.0)
    RidgeModel(alpha=1.0, 2 features, 6 rows, 1 client, R²=0.9539)
    """

    count: int
    words: limbs.Words
    schema: Schema
    grid: FixedGrid = DEFAULT_GRID
    n_clients: int = 1
    n_filled: int | None = None

    form: ClassVar[str] = "fixed"
    rounding: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        """Freeze the words."""
        self.words.setflags(write=False)

    # ---- from rows ------------------------------------------------------------

    @classmethod
    def from_data(
        cls,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        feature_map: FeatureMap | None = None,
        *,
        fraction_bits: int = FRACTION_BITS,
        total_bits: int = TOTAL_BITS,
        exponents: Sequence[int] | None = None,
        max_clients: int = MAX_CLIENTS,
    ) -> FixedPointStatistics:
        """Return the statistics of rows held in memory.

        Parameters
        ----------
        X, y, sample_weight, feature_map
            As in `SufficientStatistics.from_data`.
        fraction_bits : int
            Bits of the grid below one.
        total_bits : int
            Bits of every sum, a multiple of 64.
        exponents : sequence of int, optional
            A power of two for every column of [X Y], from public knowledge and the same
            at all clients: values of that size are near one on the grid.
        max_clients : int
            How many clients are added up at most.

        Raises
        ------
        DataError
            If values are not finite, too large for the sums, or vanish on the grid.

        Examples
        --------
        >>> from fedridge_flwr import FixedPointStatistics
        >>> FixedPointStatistics.from_data([[1e10]], [1.0])
        Traceback (most recent call last):
        fedridge_flwr.errors.DataError: X is too large for 192-bit sums of 1 row in \
column 0: values, times the root of their weight, must stay below 1.5e+09. Change the \
unit of the column, or give it a larger public power of two in exponents.
        >>> FixedPointStatistics.from_data([[1e10]], [1.0], exponents=[30, 0]).nbytes
        144
        """
        rows = map_rows(check_rows(X, y, sample_weight), feature_map)
        powers = None if exponents is None else tuple(exponents)
        return cls.from_rows(
            rows, FixedGrid(fraction_bits, total_bits, powers, max_clients)
        )

    @classmethod
    def from_rows(
        cls, rows: Rows, grid: FixedGrid = DEFAULT_GRID
    ) -> FixedPointStatistics:
        """Return the statistics of checked rows, perhaps behind a feature map."""
        sums, filled = integer_sums(rows, grid), rows.known_filled
        return cls(rows.n_rows, sums, rows.schema, grid, n_filled=filled)

    # ---- the law --------------------------------------------------------------

    def __add__(self, other: object) -> FixedPointStatistics:
        """Merge: the statistics of both sets of rows together, exactly."""
        if type(other) is not type(self):
            return NotImplemented
        self._check_mergeable(other)
        total = replace(
            self,
            count=self.count + other.count,
            words=limbs.add(self.words, other.words),
            schema=self.schema.with_names_of(other.schema),
            n_clients=self.n_clients + other.n_clients,
            n_filled=filled_together(self, other),
        )
        if total._has_negative_squares():
            raise StatisticsError(
                f"the sum of squares exceeds {self.total_bits} bits: there are more "
                f"than {self.grid.max_clients} clients, or some have impossible "
                "statistics. Use more total_bits or larger exponents."
            )
        return total

    def __radd__(self, other: object) -> FixedPointStatistics:
        """Let ``sum([...])`` start from 0."""
        if isinstance(other, int) and other == 0:
            return self
        return NotImplemented

    def __sub__(self, other: object) -> FixedPointStatistics:
        """Remove: the total that never had the rows of `other`, bit for bit."""
        if type(other) is not type(self):
            return NotImplemented
        self._check_mergeable(other)
        rest = replace(
            self,
            count=self.count - other.count,
            words=limbs.subtract(self.words, other.words),
            n_clients=max(self.n_clients - other.n_clients, 0),
            n_filled=filled_left(self, other),
        )
        empty = rest.count == 0 and rest.words.any()
        if rest.count < 0 or empty or rest._has_negative_squares():
            raise StatisticsError(
                f"cannot remove {counted(other.count, 'row')} from {self.count}: they "
                "were not all part of it."
            )
        return rest

    def __eq__(self, other: object) -> bool:
        """Whether both are the same whole numbers of the same columns."""
        if type(other) is not type(self):
            return NotImplemented
        return (
            (self.count, self.grid) == (other.count, other.grid)
            and self.schema.mismatch(other.schema) is None
            and np.array_equal(self.words, other.words)
        )

    __hash__ = None  # type: ignore[assignment]

    def start_total(self) -> RunningSum:
        """Return a running total that begins with these statistics."""
        return RunningSum(self)

    def arranged(self, wanted: Columns) -> FixedPointStatistics:
        """Return the same statistics with the columns in the order that is wanted."""
        places = self.schema.places_of(wanted)
        rows = np.concatenate([[0], 1 + places])
        length, powers = len(self.words), self.column_exponents
        where = from_upper(np.arange(float(length)), rows.size)[np.ix_(rows, rows)]
        moved = None if powers is None else tuple(powers[j] for j in places)
        return replace(
            self,
            words=self.words[upper_triangle(where).astype(np.intp)],
            schema=self.schema.arranged(wanted),
            grid=replace(self.grid, exponents=moved),
        )

    # ---- words ----------------------------------------------------------------

    def to_words(self) -> limbs.Words:
        """Return the words as they are sent, one array of shape (m, L).

        Examples
        --------
        >>> from fedridge_flwr import FixedPointStatistics
        >>> stats = FixedPointStatistics.from_data([[1.0], [3.0]], [2.0, 5.0])
        >>> words = stats.to_words()
        >>> words.shape, (words[:, 1] >> 56).tolist()  # 2^120 is bit 56 of word 1
        ((6, 3), [2, 4, 7, 10, 17, 29])
        """
        return self.words

    @classmethod
    def from_words(
        cls,
        words: Any,
        count: int,
        schema: Schema,
        grid: FixedGrid = DEFAULT_GRID,
        *,
        weighted: bool = False,
    ) -> FixedPointStatistics:
        """Return the statistics in words of which nothing is trusted.

        Parameters
        ----------
        words : ndarray of uint64, shape (m, L)
            What `to_words` returns.
        count : int
            Number of rows.
        schema : Schema
            The columns.
        grid : FixedGrid
            The grid that was asked for; ``max_clients=1`` for a total.
        weighted : bool
            Whether rows may have weights; otherwise the total weight must be `count`.

        Raises
        ------
        StatisticsError
            If no rows can have these sums.

        Examples
        --------
        >>> from fedridge_flwr import FixedPointStatistics
        >>> stats = FixedPointStatistics.from_data([[1.0], [3.0]], [2.0, 5.0])
        >>> words = stats.to_words()
        >>> FixedPointStatistics.from_words(words, 2, stats.schema) == stats
        True
        >>> FixedPointStatistics.from_words(words, 3, stats.schema)
        Traceback (most recent call last):
        fedridge_flwr.errors.StatisticsError: the total weight is not the number of \
rows, 3.
        """
        own = check_words(words, schema, grid)
        stats = cls(check_count(count), own, schema, grid)
        check_sums(stats, weighted=weighted)
        return stats

    # ---- views ----------------------------------------------------------------

    @property
    def fraction_bits(self) -> int:
        """Bits of the grid below one."""
        return self.grid.fraction_bits

    @property
    def total_bits(self) -> int:
        """Bits of every sum."""
        return self.grid.total_bits

    @property
    def column_exponents(self) -> tuple[int, ...] | None:
        """The public power of two of every column, if there are any."""
        return self.grid.exponents

    @property
    def nbytes(self) -> int:
        """Memory that the statistics take."""
        return self.words.nbytes

    @cached_property
    def sums(self) -> list[int]:
        """Total weight and sums of the columns of [X Y], as integers."""
        return limbs.to_ints(self.words[: 1 + self._width])

    @property
    def _width(self) -> int:
        return self.n_features + self.n_targets

    def scale(self) -> tuple[float, Array, Array]:
        """Return weight, means and sums of squared deviations of all columns."""
        weight, means, _ = self._means()
        return weight, means, np.ldexp(self.grid_variances(), 2 * self._powers)

    def grid_variances(self) -> Array:
        """Return the same sums of squared deviations in units of 2^exponent."""
        places = diagonal_positions(1 + self._width)[1:]
        sums = np.array(self.sums[1:], dtype=object)
        return self._centred(limbs.to_ints(self.words[places]), sums * sums)

    def to_sufficient(self) -> SufficientStatistics:
        """Return means and co-moments, ``(n S - s s') / n``: rounded once, at the end.

        Examples
        --------
        >>> import numpy as np
        >>> from fedridge_flwr import FixedPointStatistics
        >>> X = np.array([[1e6 + 0.25], [1e6 + 0.75]])
        >>> FixedPointStatistics.from_data(X, [0.0, 1.0]).to_sufficient().triangle
        array([0.125, 0.25 , 0.5  ])
        """
        weight, means, low = self._means()
        width = self._width
        sums = np.array(self.sums[1:], dtype=object)
        i, j = np.triu_indices(width)
        squares = limbs.to_ints(self.words[1 + width :])
        triangle = self._centred(squares, sums[i] * sums[j])
        if self.column_exponents is not None:
            triangle = np.ldexp(triangle, self._powers[i] + self._powers[j])
        return SufficientStatistics(
            count=self.count,
            total_weight=weight,
            means=means,
            triangle=triangle,
            schema=self.schema,
            n_clients=self.n_clients,
            means_low=low,
            n_filled=self.n_filled,
        )

    # ---- internals ------------------------------------------------------------

    @property
    def _powers(self) -> Any:
        return self.fraction_bits - self.grid.steps(self._width)[1:]

    def _means(self) -> tuple[float, Array, Array]:
        """Return weight and means, rounded, and what rounding cut off the means."""
        total, *sums = self.sums
        unit = 1 << 2 * self.fraction_bits
        if total <= 0:
            return 0.0, np.zeros(self._width), np.zeros(self._width)
        # Python divides integers with a single rounding.
        means = [each / total for each in sums]
        ratios = [mean.as_integer_ratio() for mean in means]
        low = [
            (each * over - under * total) / (total * over)
            for each, (under, over) in zip(sums, ratios, strict=True)
        ]
        powers = self._powers
        return total / unit, np.ldexp(means, powers), np.ldexp(low, powers)

    def _centred(self, squares: list[int], products: Any) -> Array:
        """Return ``S - s s' / n`` of these sums, in units of the columns."""
        total = self.sums[0]
        if total <= 0:
            return np.zeros(len(squares))
        unit = total << 2 * self.fraction_bits
        exact = np.array(squares, dtype=object) * total - products
        return np.array([each / unit for each in exact.tolist()])

    def _check_mergeable(self, other: FixedPointStatistics) -> None:
        check_mergeable(self.schema, other.schema)
        if self.grid != other.grid:
            raise StatisticsError(
                "the grids differ: fraction_bits, total_bits and exponents must be the "
                "same at all clients."
            )

    def _has_negative_squares(self) -> bool:
        diagonal = diagonal_positions(1 + self._width)
        return bool(limbs.is_negative(self.words[diagonal]).any())

    def __repr__(self) -> str:
        """Show what was counted, not the numbers."""
        return (
            f"FixedPointStatistics({counted(self.count, 'row')}, "
            f"{counted(self.n_features, 'feature')}, "
            f"{counted(self.n_targets, 'target')})"
        )
