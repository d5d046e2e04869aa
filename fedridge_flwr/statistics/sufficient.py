"""`SufficientStatistics`: all that ridge regression needs to know of some rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from .._text import counted
from .._types import Array
from ..data.arrow_batches import ArrowBatches
from ..data.names import Columns, Names
from ..data.rows import Rows, check_rows, is_batch
from ..data.schema import Schema
from ..errors import StatisticsError
from ..features import FeatureMap, map_rows
from ..linalg.packed import diagonal_positions, upper_triangle
from .moments import (
    Moments,
    MomentViews,
    RunningTotal,
    check_mergeable,
    filled_left,
    moments_of,
    remove,
)
from .saving import SaveStatistics
from .validity import (
    check_count,
    check_moments,
    check_packed,
    check_weight,
    refuse_negative_variances,
)


@dataclass(frozen=True, eq=False, repr=False)
class SufficientStatistics(MomentViews, SaveStatistics):
    """Count, weight, means and centred co-moments of the rows [X Y].

    The statistics of some rows determine their ridge regression exactly, for every
    alpha, with or without intercept or standardisation. They obey one law::

        from_data(rows A) + from_data(rows B) == from_data(rows A and B)

    up to rounding, whatever the split, and ``(a + b) - b == a``. The centred form
    ``C = sum w (z - mean)(z - mean)'`` keeps its digits where raw Gram matrices lose
    them: features shifted by 1e6 cost raw sums 14 of the 16 digits of the
    coefficients, and this form four.

    Make them with `from_data` or `from_batches`; ``sum([...])`` adds up any number.
    The parameters below are also the attributes; with d features and t targets:

    Parameters
    ----------
    count : int
        Number of rows.
    total_weight : float
        Sum of the sample weights (equal to `count` without weights).
    means : ndarray of shape (d + t,)
        Weighted means of [X Y].
    triangle : ndarray
        Upper triangle of `comoment`, row by row: what is kept, merged and sent.
    schema : Schema
        The columns; `n_features`, `n_targets`, `feature_names`, `feature_hash`,
        `feature_map` and `n_features_in` are its fields.
    n_clients : int
        How many contributions were merged.
    means_low : ndarray of shape (d + t,), optional
        The rounding errors of the means. They keep merging accurate when many clients
        differ, and are not part of packed statistics.
    rounding : float
        How far each correlation may be off: 6e-8 where some of the rows came as
        float32, 1.2e-7 where they came as a factor in float32 (clients with fewer rows
        than features), otherwise 0.
    n_filled : int, optional
        How many rows have a weight above zero; None where they had no weights, or where
        that is not known, as of statistics that were sent.

    Notes
    -----
    ======================  ====================================================
    input                   result
    ======================  ====================================================
    no rows (empty client)  the neutral element: merging it changes nothing
    one row                 means are the row, co-moments are zero; such
                            statistics *are* the row, see ``min_rows`` of
                            `ridge_client_app`
    constant column         zero variance; only ``alpha=0`` cannot be solved
    n < d                   fine: only the sum over clients needs enough rows
    d = 1                   X must still be 2-D, of shape (n, 1)
    t > 1                   one Gram matrix serves all targets
    NaN, inf, text          `DataError` naming the column and how many
    zero weights            the row counts in `count` and nowhere else
    ======================  ====================================================

    Examples
    --------
    >>> import numpy as np
    >>> from fedridge_flwr import SufficientStatistics
    >>> X, y = np.arange(12.0).reshape(6, 2) ** 2, np.arange(6.0)
    >>> a = SufficientStatistics.from_data(X[:2], y[:2])
    >>> b = SufficientStatistics.from_data(X[2:], y[2:])
    >>> a + b
    SufficientStatistics(6 rows, 2 features, 1 target)
    >>> bool(np.allclose((a + b).gram, X.T @ X))
    True
    >>> sum([a, b]).to_array().size
    10
    """

    count: int
    total_weight: float
    means: Array
    triangle: Array
    schema: Schema
    n_clients: int = 1
    means_low: Array | None = None
    rounding: float = 0.0
    n_filled: int | None = None

    form: ClassVar[str] = "full"

    def __post_init__(self) -> None:
        """Freeze the arrays: statistics share them when nothing has to be added."""
        self.means.setflags(write=False)
        self.triangle.setflags(write=False)

    # ---- from rows ------------------------------------------------------------

    @classmethod
    def from_data(
        cls,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        feature_map: FeatureMap | None = None,
    ) -> SufficientStatistics:
        """Return the statistics of rows held in memory.

        Rows are read in blocks of a few megabytes and accumulated in float64, so
        extra memory is bounded whatever the number of rows. Sparse X stays sparse.

        Parameters
        ----------
        X : array of any real dtype, data frame, or sparse matrix, shape (n, d)
            Features. Column names of a data frame become `feature_names`.
        y : array of shape (n,) or (n, t)
            Targets.
        sample_weight : array of shape (n,), optional
            Non-negative weights; an integer weight equals a repeated row.
        feature_map : FeatureMap, optional
            Map of the features; only a block of mapped rows exists at any time.

        Raises
        ------
        DataError
            If X is not 2-D, rows and targets do not match, or there are NaN, infinite
            or non-numeric values; it names the columns and never quotes a value.

        Examples
        --------
        >>> from fedridge_flwr import SufficientStatistics
        >>> SufficientStatistics.from_data([[1.0], [3.0]], [2.0, 4.0]).means
        array([2., 3.])

        A weight of 2 is equivalent to two equal rows:

        >>> twice = SufficientStatistics.from_data([[1.0], [3.0]], [2.0, 4.0], [2, 1])
        >>> twice.count, twice.total_weight, twice.gram.round(6).tolist()
        (2, 3.0, [[11.0]])
        """
        return cls.from_rows(map_rows(check_rows(X, y, sample_weight), feature_map))

    @classmethod
    def from_rows(cls, rows: Rows) -> SufficientStatistics:
        """Return the statistics of checked rows, perhaps behind a feature map."""
        # Values are checked through their sums: only when those are not finite is it
        # worth looking at every value to say which.
        with np.errstate(invalid="ignore", over="ignore"):
            total = moments_of(rows)
        if not (np.isfinite(total.triangle).all() and np.isfinite(total.mean).all()):
            rows.refuse_bad_values()
        fields = {"count": rows.n_rows, "n_filled": rows.known_filled}
        return cls.of_moments(total, schema=rows.schema, **fields)

    @classmethod
    def of_moments(cls, moments: Moments, **fields: Any) -> SufficientStatistics:
        """Return the statistics that have these moments, and these other fields."""
        weight, mean, triangle, low = moments
        return cls(
            total_weight=weight, means=mean, triangle=triangle, means_low=low, **fields
        )

    @classmethod
    def from_batches(
        cls, batches: Iterable[tuple[Any, ...]], feature_map: FeatureMap | None = None
    ) -> SufficientStatistics:
        """Return the statistics of rows in batches, for data larger than memory.

        Parameters
        ----------
        batches : iterable of (X, y) or (X, y, sample_weight)
            Batches with the same columns; only one is in memory at a time.
        feature_map : FeatureMap, optional
            Map of the features.

        Returns
        -------
        SufficientStatistics
            Those of all rows together, to rounding; they count as one client.

        Raises
        ------
        StatisticsError
            If there are no batches, one is not (X, y), or their columns differ.

        Examples
        --------
        >>> import numpy as np
        >>> from fedridge_flwr import SufficientStatistics
        >>> def read():  # a database cursor, a Parquet file, pandas with chunksize ...
        ...     for start in range(0, 100, 10):
        ...         X = np.arange(start, start + 10.0).reshape(-1, 1)
        ...         yield X, 2.0 * X[:, 0]
        >>> SufficientStatistics.from_batches(read())
        SufficientStatistics(100 rows, 1 feature, 1 target)
        """
        total: RunningTotal | None = None
        for batch in batches:
            if not is_batch(batch):
                raise StatisticsError(
                    "each batch must be a tuple (X, y) or (X, y, sample_weight), "
                    f"got {type(batch).__name__}."
                )
            part = cls.from_rows(map_rows(check_rows(*batch), feature_map))
            if total is None:
                total = part.start_total()
            else:
                total.add(part)
        if total is None:
            raise StatisticsError(
                "no batches: at least one is needed to know the number of features."
            )
        return replace(total.total(), n_clients=1)

    @classmethod
    def from_arrow(
        cls,
        stream: Any,
        target: str | Sequence[str],
        features: str | Sequence[str] | None = None,
        feature_map: FeatureMap | None = None,
        **options: Any,
    ) -> SufficientStatistics:
        """Return the statistics of an Arrow stream, read once, without a second copy.

        Parameters
        ----------
        stream : object with ``__arrow_c_stream__``
            A relation of DuckDB, a frame of pandas or Polars, a table or reader of
            pyarrow; or a LazyFrame of Polars, or a dataset of pyarrow.
        target : str or sequence of str
            Column, or columns, of the target.
        features : str or sequence of str, optional
            Columns of the features; by default all others.
        feature_map : FeatureMap, optional
            Map of the features.
        **options
            `sample_weight` and `counts` are names of columns; a row with a count of 3
            is three rows. ``compress=True`` lets the engine count equal rows first,
            which is faster where columns have few values. ``nulls="drop"`` leaves out
            rows with nulls or NaN, and logs how many; the default "error" refuses
            them.

        Raises
        ------
        DataError
            If a column has nulls, text, categories, dates, or whole numbers of 2**53 or
            more; it names columns, how many, and what to do.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from fedridge_flwr import SufficientStatistics
        >>> table = pa.table({"age": [41, 36, 50], "days": [3.5, 2.0, 4.0]})
        >>> SufficientStatistics.from_arrow(table, target="days").feature_names
        ('age',)
        """
        from .row_stream import RowStream

        batches = ArrowBatches(stream, target, features, **options)
        return RowStream(batches).statistics(feature_map=feature_map)[0]

    # ---- the law --------------------------------------------------------------

    def __add__(self, other: object) -> SufficientStatistics:
        """Merge: the statistics of both sets of rows together."""
        if not isinstance(other, SufficientStatistics):
            return NotImplemented
        total = self.start_total()
        total.add(other)
        return total.total()

    def __radd__(self, other: object) -> SufficientStatistics:
        """Let ``sum([...])`` start from 0."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __sub__(self, other: object) -> SufficientStatistics:
        """Remove: the statistics of the rows of `self` that are not in `other`."""
        if not isinstance(other, SufficientStatistics):
            return NotImplemented
        check_mergeable(self.schema, other.schema)
        count = self.count - other.count
        weight = self.total_weight - other.total_weight
        rounding = 1e-12 * self.total_weight
        if count < 0 or weight < -rounding or (count == 0 and weight > rounding):
            raise StatisticsError(
                f"cannot remove {other.count} rows of weight {other.total_weight:g} "
                f"from {self.count} rows of weight {self.total_weight:g}: "
                "they were not all part of it."
            )
        if weight <= rounding:
            rest = Moments.zero(self.means.size)
        elif other.total_weight == 0.0:
            rest = self.moments
        else:
            rest = remove(self.moments, other.moments)
            refuse_negative_variances(rest.triangle, self.triangle, self.means.size)
        return self.of_moments(
            rest,
            count=count,
            schema=self.schema,
            n_clients=max(self.n_clients - other.n_clients, 0),
            rounding=max(self.rounding, other.rounding),
            n_filled=filled_left(self, other),
        )

    def start_total(self) -> RunningTotal:
        """Return a running total that begins with these statistics."""
        return RunningTotal(self)

    def with_feature_names(self, names: Sequence[str]) -> SufficientStatistics:
        """Return the same statistics under these names of the raw columns.

        A `StatisticsError` says if their number, or the hash that came with the
        statistics, is another.

        Examples
        --------
        >>> from fedridge_flwr import SufficientStatistics
        >>> stats = SufficientStatistics.from_data([[1.0, 5.0]], [2.0])
        >>> stats.with_feature_names(["age", "bmi"]).feature_names
        ('age', 'bmi')
        """
        known, features = tuple(names), self.schema.features
        named = Names.of(known) if features is None else features.with_known(known)
        return replace(self, schema=replace(self.schema, features=named))

    def arranged(self, wanted: Columns) -> SufficientStatistics:
        """Return the same statistics with the columns in the order that is wanted."""
        return self.taken(self.schema.places_of(wanted), self.schema.arranged(wanted))

    def taken(self, places: Any, schema: Schema) -> Self:
        """Return the statistics of some of the columns, by their places in [X Y]."""
        low = self.means_low
        return replace(
            self,
            means=self.means[places],
            means_low=None if low is None else low[places],
            triangle=upper_triangle(self.comoment[np.ix_(places, places)]),
            schema=schema,
        )

    # ---- packing --------------------------------------------------------------

    def to_array(self) -> Array:
        """Pack into one float64 vector of ``(1+d+t)(2+d+t)/2`` numbers.

        It is the upper triangle, row by row, of ``[[weight, means], [., comoment]]``.
        The row count and the feature names are not in it.

        Examples
        --------
        Weight, means of x and y, and the co-moments xx, xy, yy:

        >>> from fedridge_flwr import SufficientStatistics
        >>> SufficientStatistics.from_data([[1.0], [3.0]], [2.0, 5.0]).to_array()
        array([2. , 2. , 3.5, 2. , 3. , 4.5])
        """
        return np.concatenate([[self.total_weight], self.means, self.triangle])

    @classmethod
    def from_array(
        cls,
        array: Any,
        n_features: int,
        n_targets: int = 1,
        *,
        count: int | None = None,
        rounding: float = 0.0,
        **schema: Any,
    ) -> SufficientStatistics:
        """Unpack the result of `to_array`, after checking it.

        Parameters
        ----------
        array : ndarray of float64
            The packed vector.
        n_features : int
            Number of features d.
        n_targets : int
            Number of targets t.
        count : int, optional
            Number of rows; by default the total weight, which then must be whole.
        rounding : float
            How far each correlation may be off.
        **schema
            Other fields of `schema`: feature_names, feature_hash, feature_map,
            n_features_in.

        Raises
        ------
        StatisticsError
            If no rows can have these statistics.

        Examples
        --------
        >>> from fedridge_flwr import SufficientStatistics
        >>> stats = SufficientStatistics.from_data([[1.0], [3.0]], [2.0, 4.0])
        >>> back = SufficientStatistics.from_array(stats.to_array(), 1, 1)
        >>> (back.to_array() == stats.to_array()).all().item()
        True
        """
        columns = Schema.of(n_features, n_targets, **schema)
        return cls.unpack(array, columns, count, rounding)

    @classmethod
    def unpack(
        cls, array: Any, schema: Schema, count: int | None, rounding: float = 0.0
    ) -> SufficientStatistics:
        """Return the statistics in a packed vector, after checking it."""
        array = check_packed(array, schema.n_features, schema.n_targets)
        width = schema.n_features + schema.n_targets
        weight = float(array[0])
        stats = cls(
            count=check_count(count, weight),
            total_weight=weight,
            means=_own(array[1 : 1 + width]),
            triangle=_own(array[1 + width :]),
            schema=schema,
            rounding=rounding,
        )
        stats._check_plausible()
        return stats

    # ---- internals ------------------------------------------------------------

    def __repr__(self) -> str:
        """Show what was counted, not the numbers."""
        return (
            f"SufficientStatistics({counted(self.count, 'row')}, "
            f"{counted(self.n_features, 'feature')}, "
            f"{counted(self.n_targets, 'target')})"
        )

    @property
    def moments(self) -> Moments:
        """Weight, means and co-moments as one tuple."""
        low = np.zeros_like(self.means) if self.means_low is None else self.means_low
        return Moments(self.total_weight, self.means, self.triangle, low)

    @property
    def nbytes(self) -> int:
        """Memory that the statistics take."""
        return self.triangle.nbytes

    def scale(self) -> tuple[float, Array, Array]:
        """Return weight, means and sums of squared deviations of all columns."""
        squares = self.triangle[diagonal_positions(self.means.size)]
        return self.total_weight, self.means, squares

    def _check_plausible(self) -> None:
        moments = bool(self.triangle.any() or self.means.any())
        check_weight(self.count, self.total_weight, moments=moments)
        variances = self.triangle[diagonal_positions(self.means.size)]
        with np.errstate(over="ignore"):
            raw = variances + self.total_weight * self.means**2
        most = max(self.count - 1, 0)
        check_moments(self.triangle, raw, most, "variances", self.rounding)


def _own(part: Array) -> Array:
    """Return numbers that nobody else can change, without a copy if they cannot."""
    base: Any = part
    while isinstance(base, np.ndarray):
        base = base.base
    return part if isinstance(base, bytes) and part.flags.aligned else part.copy()
