"""What clients answer in the rounds of a family; nothing that arrives is trusted."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from ...data.schema import Schema
from ...errors import ProtocolError
from ...federation.requests import AskCounts, AskOutcome, AskWorking
from ...regression.likelihood.binned import BinnedOutcomes
from ...regression.likelihood.working import WorkingStatistics, read_working
from ...statistics.outcome import OutcomeStatistics


def _read_outcome(
    request: Any, arrays: Sequence[NDArray[Any]], schema: Schema, count: int
) -> OutcomeStatistics:
    if request.task != AskOutcome.task:
        raise ProtocolError("sent the outcome of its rows, which was not asked for.")
    classes = request.family == "binomial"
    return OutcomeStatistics.from_arrays(arrays, schema, count, classes=classes)


def _read_working(
    request: Any, arrays: Sequence[NDArray[Any]], schema: Schema, count: int
) -> list[WorkingStatistics]:
    """Return what was sent; whether it fits the first round is checked later."""
    if request.task != AskWorking.task:
        raise ProtocolError("sent working statistics, which were not asked for.")
    n_points, expected = request.points.coef.shape
    if schema.n_features != expected:
        raise ProtocolError(
            f"has {schema.n_features} features now, where it had {expected}."
        )
    return read_working(arrays, schema, count, n_points)


def _read_counts(
    request: Any, arrays: Sequence[NDArray[Any]], schema: Schema, count: int
) -> BinnedOutcomes:
    if request.task != AskCounts.task:
        raise ProtocolError("sent counts in bins, which were not asked for.")
    n_points = len(request.points.coef)
    return BinnedOutcomes.from_arrays(arrays, request.family, n_points, count)


FAMILY_READERS: dict[str, Any] = {
    AskOutcome.task: _read_outcome,
    AskWorking.task: _read_working,
    AskCounts.task: _read_counts,
}
