"""`RowStream`: rows that come in batches, reduced in one pass or collected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..data.arrow_batches import ArrowBatches, RowBatch
from ..data.local_table import RawRows, Spool, named_frame
from ..data.names import Columns
from ..data.rows import check_rows, is_batch
from ..errors import DataError
from ..features import FeatureMap, map_rows
from .dense_rows import dense_rows
from .moments import check_mergeable
from .sufficient import SufficientStatistics

_NONE = "there are no batches: at least one is needed to know the columns."


class RowStream:
    """Rows that come in batches; they can be read once.

    Parameters
    ----------
    batches : iterable of RowBatch
        The batches; each is forgotten before the next.

    Examples
    --------
    >>> import numpy as np
    >>> batches = [(np.eye(2), [1.0, 2.0]), (np.ones((1, 2)), [3.0])]
    >>> RowStream.of(batches).statistics()
    (SufficientStatistics(3 rows, 2 features, 1 target), 3)
    >>> RowStream.of(iter(batches)).collected()[1]
    array([1., 2., 3.])
    """

    def __init__(self, batches: Iterable[RowBatch]) -> None:
        self._batches = batches

    @classmethod
    def of(cls, data: Any) -> RowStream | None:
        """Return a stream and its target, or an iterable of (X, y); else None."""
        if isinstance(data, tuple):
            stream, *names = data
            named = len(names) in (1, 2) and isinstance(names[0], str)
            target, weight = (*names, None)[:2]
            return cls(ArrowBatches(stream, target, None, weight)) if named else None
        if isinstance(data, list) and not all(isinstance(b, tuple) for b in data):
            return None
        if not isinstance(data, Iterable) or isinstance(data, np.ndarray | str | dict):
            return None
        return cls(map(_checked, data))

    def statistics(
        self, columns: Columns | None = None, feature_map: FeatureMap | None = None
    ) -> tuple[SufficientStatistics, int]:
        """Return the statistics of all rows, and how many rows have weight."""
        total, filled = None, 0
        for batch in self._all_or_none_weighted():
            rows = map_rows(batch.rows.arranged(columns), feature_map)
            found = SufficientStatistics.from_rows(rows)
            known = batch.n_filled if batch.has_weights else None
            part = replace(found, count=batch.n_rows, n_filled=known)
            filled += batch.n_filled
            if total is None:
                total = part.start_total()
            else:
                total.add(part)
        if total is None:
            raise DataError(_NONE)
        return replace(total.total(), n_clients=1), filled

    def collected(self) -> RawRows:
        """Return X, y and weights, in memory or, if they are many, in a file."""
        spool, first = Spool(), None
        for rows in self._same_columns():
            first = first or rows
            block = dense_rows(rows, 0, rows.n_rows)
            weight = [] if rows.weight is None else [rows.weight]
            spool.add(np.column_stack([block, *weight]))
        if first is None:
            raise DataError(_NONE)
        d, t, weighted = first.n_features, first.n_targets, first.weight is not None
        block = spool.finish(d + t + weighted)
        X, Y = block[:, :d], block[:, d : d + t]
        if first.feature_names is not None:
            X = named_frame(X, first.feature_names)
        if first.target_names is not None:
            Y = named_frame(Y, first.target_names)
            Y = Y.iloc[:, 0] if t == 1 else Y
        elif t == 1:
            Y = Y[:, 0]
        return RawRows(X, Y, block[:, -1] if weighted else None)

    def _same_columns(self) -> Iterator[Any]:
        first: Any = None
        for rows, *_ in self._all_or_none_weighted():
            first = first or rows
            check_mergeable(first.schema, rows.schema)
            yield rows

    def _all_or_none_weighted(self) -> Iterator[RowBatch]:
        """Yield the batches; a batch without weights would weigh 1, unlike others."""
        weighted: bool | None = None
        for batch in self._batches:
            weighted = batch.has_weights if weighted is None else weighted
            if batch.has_weights != weighted:
                raise DataError("some batches have weights, and others have none.")
            yield batch


def _checked(batch: Any) -> RowBatch:
    if not is_batch(batch):
        got = type(batch).__name__
        got += f" of {len(batch)}" if isinstance(batch, tuple | list) else ""
        raise DataError(
            f"each batch must be a tuple (X, y) or (X, y, sample_weight), got a {got}."
        )
    rows = check_rows(*batch)
    return RowBatch(rows, rows.n_rows, rows.n_filled, rows.weight is not None)
