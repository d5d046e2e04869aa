"""Rows that come in batches: their statistics in one pass, or all rows collected."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...data.local_table import RawRows
from ...errors import DataError, PrivacyError, ProtocolError
from ...statistics.row_stream import RowStream
from ..requests import AskStatistics, AskTable, Request
from .respond import NO_TABLE, Guards


def as_stream(data: Any, request: Request, what: str) -> RawRows | RowStream:
    """Return rows that come in batches; those of several passes are collected."""
    if data is None:
        raise DataError(
            f"{what} is None: a return statement is missing. Return (X, y)."
        )
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


def refuse_split(data: Sequence[Any], what: str) -> None:
    """Refuse the four parts of a split, which are no rows with weights and an offset.

    A y that has the columns of X is one; an offset is for a single target.
    """
    X, y, weight, offset = map(_shape, data)
    two = len(X) == len(y) == 2 and X[1:] == y[1:]
    if two and weight[:1] == X[:1] and offset[:1] == y[:1] and (y != X or y[1] > 1):
        raise DataError(
            f"{what} is four parts like those of train_test_split, X_train, X_test, "
            "y_train, y_test: return (X_train, y_train), and the others from "
            "load_eval_data."
        )


def _shape(part: Any) -> tuple[int, ...]:
    """Return the shape of an array, a frame or nested lists, () if it has none."""
    try:
        return tuple(part.shape if hasattr(part, "shape") else np.shape(part))
    except (TypeError, ValueError):
        return ()


def reduced(request: Any, stream: RowStream, guards: Guards) -> Any:
    """Return the statistics of a stream in one pass, or rows if more is needed."""
    plain = request.statistics == "moments" and not guards.policies
    if not plain or request.feature_map is not None or request.classes is not None:
        return stream.collected()
    stats, n_filled = stream.statistics(request.columns)
    guards.check_number(n_filled)
    return stats
