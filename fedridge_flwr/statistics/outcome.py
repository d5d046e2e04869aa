"""`OutcomeStatistics`: the statistics of rows with classes or counts, before any fit.

Every client describes its outcome by columns of its own: one for each of *its* labels,
or the counts, and the offset if it has one. When the labels of all are known, the
columns become those that all agree on, and the statistics can be added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._checks import check_numbers
from .._types import Array
from ..data.labels import are_whole, join_labels, read_labels, write_labels
from ..data.names import Columns
from ..data.rows import Rows
from ..data.schema import HasSchema, Schema
from ..errors import StatisticsError
from ..linalg.packed import diagonal_positions, upper_triangle
from .moments import check_mergeable
from .sufficient import SufficientStatistics

FRACTIONS = "some of its counts are not whole numbers: is the outcome a count?"
_ROUNDING, _FRACTION = 1e-9, 1e-4
_LARGEST_SUM = 1e9


@dataclass(frozen=True, eq=False)
class OutcomeStatistics(HasSchema):
    """Statistics of [X, one column per label or the counts, offset] of one client.

    ``coded(labels, offset)`` is what all clients agree on, and obeys the law of
    `SufficientStatistics`: added up over clients it is that of the rows of all.

    Parameters
    ----------
    stats : SufficientStatistics
        Of the columns above.
    labels : tuple
        The labels that the columns are of, sorted; empty for counts.
    has_offset : bool
        Whether the last column is an offset.
    sums : ndarray of shape (2,)
        Weighted sums of y log y and log y!, zero for classes.
    schema : Schema
        The features, and one target.

    Examples
    --------
    >>> from fedridge_flwr.data.rows import check_rows
    >>> rows = check_rows(np.array([[1.0], [2.0], [4.0]]), np.array([0.0, 1.0, 1.0]))
    >>> found = OutcomeStatistics.of_classes(rows, ("no", "yes"))
    >>> found.stats.means.round(3), found.count
    (array([2.333, 0.333, 0.667]), 3)
    >>> found.coded(("maybe", "no", "yes"), False).means.round(3)
    array([2.333, 0.   , 0.333, 0.667])
    """

    stats: SufficientStatistics
    labels: tuple[str, ...]
    has_offset: bool
    sums: Array
    schema: Schema

    form: ClassVar[str] = "outcome"
    rounding: ClassVar[float] = 0.0

    @classmethod
    def of_classes(
        cls, rows: Rows, labels: tuple[str, ...], offset: Array | None = None
    ) -> OutcomeStatistics:
        """Return the statistics of rows whose y is a place among the labels."""
        codes = outcome_column(rows)
        columns = (codes[:, None] == np.arange(len(labels))).astype(np.float64)
        return cls._of(rows, columns, labels, offset, np.zeros(2))

    @classmethod
    def of_counts(
        cls, rows: Rows, sums: tuple[float, float], offset: Array | None = None
    ) -> OutcomeStatistics:
        """Return the statistics of rows whose y is a count."""
        columns = outcome_column(rows)[:, None]
        return cls._of(rows, columns, (), offset, np.array(sums))

    @classmethod
    def _of(
        cls,
        rows: Rows,
        columns: Array,
        labels: tuple[str, ...],
        offset: Array | None,
        sums: Array,
    ) -> OutcomeStatistics:
        if offset is not None:
            columns = np.column_stack([columns, offset])
        wide = replace(
            rows,
            Y=np.asarray(columns, dtype=np.float64),
            target_places=None,
            schema=replace(rows.schema, n_targets=columns.shape[1], targets=None),
        )
        stats = SufficientStatistics.from_rows(wide)
        return cls(stats, labels, offset is not None, sums, rows.schema)

    # ---- what all agree on --------------------------------------------------------

    def coded(self, labels: Sequence[str], has_offset: bool) -> SufficientStatistics:
        """Return the statistics of [X, a column per label, offset], zeros if absent.

        Of two labels only the second has a column.
        """
        d = self.n_features
        kept = {label: j for j, label in enumerate(labels)}
        width = len(labels) if labels else 1
        own = [kept[label] for label in self.labels] if labels else [0]
        if self.has_offset:
            own.append(width)
        width += has_offset
        first = int(len(labels) == 2)
        places = np.concatenate([np.arange(d), d + np.array(own, dtype=int)])
        means, low = np.zeros(d + width), np.zeros(d + width)
        full = np.zeros((d + width, d + width))
        moments = self.stats.moments
        means[places], low[places] = moments.mean, moments.mean_low
        full[np.ix_(places, places)] = self.stats.comoment
        inside = np.r_[0:d, d + first : d + width]
        return replace(
            self.stats,
            means=means[inside],
            means_low=low[inside],
            triangle=upper_triangle(full[np.ix_(inside, inside)]),
            schema=replace(self.schema, n_targets=width - first, targets=None),
        )

    # ---- a contribution -----------------------------------------------------------

    @property
    def count(self) -> int:
        """Number of rows."""
        return self.stats.count

    def start_total(self) -> Outcomes:
        """Return what is known of several clients, beginning with this one."""
        return Outcomes(self.schema, self.count, [self])

    def scale(self) -> tuple[float, Array, Array]:
        """Return weight, means and sums of squares of X, and zeros for the outcome."""
        d, (weight, means, squares) = self.n_features, self.stats.scale()
        return weight, np.append(means[:d], 0.0), np.append(squares[:d], 0.0)

    def arranged(self, wanted: Columns) -> OutcomeStatistics:
        """Return the same with the features in the order that is wanted."""
        d, width = self.n_features, self.stats.means.size
        features = self.schema.places_of(wanted)[:d]
        places = np.concatenate([features, np.arange(d, width)])
        moments, comoment = self.stats.moments, self.stats.comoment
        stats = replace(
            self.stats,
            means=moments.mean[places],
            means_low=moments.mean_low[places],
            triangle=upper_triangle(comoment[np.ix_(places, places)]),
        )
        return replace(self, stats=stats, schema=self.schema.arranged(wanted))

    # ---- wire ---------------------------------------------------------------------

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that travel."""
        told = write_labels(self.labels) if self.labels else ""
        return {
            "statistics": self.stats.to_array(),
            "sums": np.append(self.sums, float(self.has_offset)),
            "labels": np.frombuffer(told.encode(), dtype=np.uint8),
        }

    @classmethod
    def from_arrays(
        cls,
        arrays: Sequence[NDArray[Any]],
        schema: Schema,
        count: int,
        *,
        classes: bool,
    ) -> OutcomeStatistics:
        """Put `to_arrays` together again; everything is checked, nothing trusted."""
        if len(arrays) != 3:
            raise StatisticsError(f"an outcome has 3 arrays, got {len(arrays)}.")
        packed, numbers, told = arrays
        sums = check_numbers(numbers, np.float64, 3, "sums of the outcome")
        labels = _read_text(told) if classes else ()
        if sums[2] not in (0.0, 1.0) or (classes and sums[:2].any()):
            raise StatisticsError("the sums of the outcome are not as clients send it.")
        has_offset = bool(sums[2])
        width = max(len(labels), 1) + has_offset
        columns = replace(schema, n_targets=width, targets=None)
        stats = SufficientStatistics.unpack(packed, columns, count)
        found = cls(stats, labels, has_offset, sums[:2].copy(), schema)
        found._check_classes() if classes else found._check_counts()
        return found

    def _check_classes(self) -> None:
        """Refuse columns that are not zeros and ones, exactly one in each row."""
        d, m, weight = self.n_features, len(self.labels), self.stats.total_weight
        means = self.stats.means[d : d + m]
        squares = self.stats.triangle[diagonal_positions(self.stats.means.size)]
        expected = weight * means * (1.0 - means)
        slack = _ROUNDING * weight
        if weight and (
            abs(means.sum() - 1.0) > _ROUNDING
            or (means < 0).any()
            or (np.abs(squares[d : d + m] - expected) > slack).any()
        ):
            raise StatisticsError("the columns of the labels are not zeros and ones.")

    def _check_counts(self) -> None:
        """Refuse counts that are negative, or whose sums contradict each other."""
        total = self.stats.total_weight * self.stats.means[self.n_features]
        weight, entropy = self.stats.total_weight, self.sums[0]
        # y log y is convex: its mean is not below that of the mean of y.
        least = total * np.log(max(total / weight, 1e-300)) if weight else 0.0
        slack = _ROUNDING * (abs(entropy) + abs(least) + total + weight)
        if total < 0 or not entropy >= least - slack:
            raise StatisticsError("no counts can have these sums.")


def has_fractions(part: OutcomeStatistics) -> bool:
    """Whether some counts are certainly no whole numbers: their sums are not.

    With weights, sums of whole numbers may be anything.

    Examples
    --------
    >>> from fedridge_flwr.data.rows import check_rows
    >>> X = np.array([[1.0], [2.0], [4.0]])
    >>> for y in ([0.0, 1.0, 4.0], [0.5, 1.0, 1.5]):
    ...     rows = check_rows(X, np.array(y))
    ...     print(has_fractions(OutcomeStatistics.of_counts(rows, (0.0, 0.0))))
    False
    True
    """
    stats, d = part.stats, part.n_features
    if stats.total_weight != stats.count:
        return False
    mean, spread = stats.means[d], float(stats.comoment[d, d])
    total = stats.count * mean
    sums = np.array([total, spread + total * mean])
    # Beyond, rounding is as large as a fraction.
    known = np.abs(sums) < _LARGEST_SUM
    return bool((np.abs(sums - np.rint(sums))[known] > _FRACTION).any())


@dataclass
class Outcomes(HasSchema):
    """What is known of the outcomes of several clients together.

    Parameters
    ----------
    schema : Schema
        The features, and one target.
    count : int
        Number of rows.
    parts : list of OutcomeStatistics
        Those of every client.
    """

    schema: Schema
    count: int
    parts: list[OutcomeStatistics] = field(repr=False)

    form: ClassVar[str] = "outcome"
    rounding: ClassVar[float] = 0.0

    def add(self, part: OutcomeStatistics) -> None:
        """Count one more client."""
        check_mergeable(self.schema, part.schema)
        self.schema = self.schema.with_names_of(part.schema)
        self.count += part.count
        self.parts.append(part)

    def __add__(self, other: Outcomes) -> Outcomes:
        """Return what is known of both."""
        schema = self.schema.with_names_of(other.schema)
        return Outcomes(schema, self.count + other.count, self.parts + other.parts)

    def arranged(self, wanted: Columns) -> Outcomes:
        """Return the same with the features in the order that is wanted."""
        parts = [part.arranged(wanted) for part in self.parts]
        return Outcomes(self.schema.arranged(wanted), self.count, parts)

    def total(self) -> Outcomes:
        """Return itself: columns are added up when all labels are known."""
        return self

    @property
    def whole(self) -> bool:
        """Whether the labels of most clients are whole numbers."""
        return 2 * sum(are_whole(part.labels) for part in self.parts) >= len(self.parts)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that are fitted, empty for counts.

        Two, where most clients have no others: one client that misspells a label must
        not make three classes of two for everybody. Otherwise those of all clients,
        text or whole numbers as most have them.
        """
        found = [p.labels for p in self.parts if are_whole(p.labels) == self.whole]
        if not any(found):
            return ()
        pairs = Counter(labels for labels in found if len(labels) == 2)
        inside = {p: sum(set(own) <= set(p) for own in found) for p in pairs}
        most = max(inside, key=lambda pair: (inside[pair], pairs[pair]), default=())
        agreed = most and 2 * inside[most] > len(found)
        return join_labels([most] if agreed else found)

    @property
    def has_offset(self) -> bool:
        """Whether any client has an offset; for the others it is zero."""
        return any(part.has_offset for part in self.parts)

    def coded(self, part: OutcomeStatistics) -> SufficientStatistics | None:
        """Return the statistics of one client in the columns of all, if it can be."""
        labels = self.labels
        if not set(part.labels) <= set(labels):
            return None
        return part.coded(labels, self.has_offset)


def outcome_column(rows: Rows) -> Array:
    """Return the one target of rows as float64."""
    blocks = [np.asarray(block.Y[:, 0], dtype=np.float64) for block in rows.blocks()]
    return np.concatenate([np.zeros(0), *blocks])


def _read_text(told: NDArray[Any]) -> tuple[str, ...]:
    if told.dtype != np.uint8 or told.ndim != 1:
        raise StatisticsError("the labels are not a text.")
    try:
        return read_labels(told.tobytes().decode("utf-8"))
    except UnicodeDecodeError:
        raise StatisticsError("the labels are not a text.") from None
