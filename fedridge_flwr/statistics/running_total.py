"""Totals of statistics that arrive one after another; knows nothing of clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..data.schema import Schema
from ..errors import StatisticsError
from .moments import merge

if TYPE_CHECKING:
    from .sufficient import SufficientStatistics

__all__ = ["RunningSum", "RunningTotal", "check_mergeable"]


def check_mergeable(ours: Schema, theirs: Schema) -> None:
    """Raise a `StatisticsError` if statistics of these columns cannot be added up."""
    reason = ours.mismatch(theirs)
    if reason is not None:
        raise StatisticsError(
            f"the columns differ: {reason}. Statistics merge only over the same "
            "columns in the same order; bring every client to one schema."
        )


class RunningTotal:
    """The sum of `SufficientStatistics`, added up in place.

    It is `sum`, without a new triangle for every addend.

    Examples
    --------
    >>> from fedridge_flwr import SufficientStatistics
    >>> a = SufficientStatistics.from_data([[1.0], [3.0]], [2.0, 4.0])
    >>> running = RunningTotal(a)
    >>> running.add(a)
    >>> running.total(), running.count
    (SufficientStatistics(4 rows, 1 feature, 1 target), 4)
    """

    def __init__(self, first: SufficientStatistics) -> None:
        self._kind = type(first)
        moments = first.moments
        self._moments = moments._replace(triangle=moments.triangle.copy())
        self._schema, self.count = first.schema, first.count
        self._n_clients = first.n_clients
        self._rounding = first.rounding if first.total_weight else 0.0

    def add(self, part: SufficientStatistics) -> None:
        """Add the statistics of other rows with the same columns."""
        check_mergeable(self._schema, part.schema)
        self._moments = merge(self._moments, part.moments, in_place=True)
        self.count += part.count
        self._n_clients += part.n_clients
        if part.total_weight:
            self._rounding = max(self._rounding, part.rounding)
        if self._schema.feature_names is None or self._schema.n_features_in is None:
            self._schema = self._schema.with_names_of(part.schema)

    def total(self) -> SufficientStatistics:
        """Return the sum so far; what is added later does not change it."""
        return self._kind.of_moments(
            self._moments._replace(triangle=self._moments.triangle.copy()),
            count=self.count,
            schema=self._schema,
            n_clients=self._n_clients,
            rounding=self._rounding,
        )


class RunningSum:
    """The sum of contributions that are merged by plain addition.

    Of private ones the number of rows is not known (`has_count`).
    """

    def __init__(self, first: Any, *, has_count: bool = True) -> None:
        self._total, self._has_count = first, has_count

    def add(self, part: Any) -> None:
        """Add one more."""
        self._total = self._total + part

    def total(self) -> Any:
        """Return the sum so far."""
        return self._total

    @property
    def count(self) -> int:
        """Number of rows in it, as far as it is known."""
        return int(self._total.count) if self._has_count else 0
