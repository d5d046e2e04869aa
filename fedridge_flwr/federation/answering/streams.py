"""Rows that come in batches: their statistics in one pass, or all rows collected."""

from typing import Any

from ...data.local_table import RawRows
from ...errors import DataError, PrivacyError, ProtocolError
from ...statistics.row_stream import RowStream
from ..requests import AskStatistics, AskTable, Request
from .respond import NO_TABLE, Guards


def as_stream(data: Any, request: Request, what: str) -> RawRows | RowStream:
    """Return rows that come in batches; those of several passes are collected."""
    stream = RowStream.of(data)
    if stream is None:
        got = type(data).__name__
        got += f" of {len(data)}" if isinstance(data, tuple | list) else ""
        raise DataError(
            f"{what} must be (X, y), (X, y, sample_weight) or (X, y, sample_weight, "
            f"offset), batches of (X, y), an Arrow stream and its target, finished "
            f"statistics, or a whole table, got a {got}."
        )
    if request.task == AskTable.task or request.coding is not None:
        raise ProtocolError(NO_TABLE)
    if request.is_private:
        # A batch that cannot be read would tell of one record that it is there.
        raise PrivacyError("a private release needs (X, y), neither batches nor names.")
    return stream if request.task == AskStatistics.task else stream.collected()


def reduced(request: Any, stream: RowStream, guards: Guards) -> Any:
    """Return the statistics of a stream in one pass, or rows if more is needed."""
    plain = request.statistics == "moments" and not guards.policies
    if not plain or request.feature_map is not None or request.classes is not None:
        return stream.collected()
    stats, n_filled = stream.statistics(request.columns)
    guards.check_number(n_filled)
    return stats
