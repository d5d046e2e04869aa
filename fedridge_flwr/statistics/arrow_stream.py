"""Statistics of rows that come as an Arrow stream, in one pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..data.arrow_batches import ArrowBatches
from ..features import FeatureMap, map_rows
from .sufficient import SufficientStatistics


def statistics_of_stream(
    batches: ArrowBatches, feature_map: FeatureMap | None = None
) -> tuple[SufficientStatistics, int]:
    """Return the statistics of all rows, and how many rows have weight.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"x": [1.0, 3.0], "y": [2.0, 4.0]})
    >>> statistics_of_stream(ArrowBatches(table, "y"))
    (SufficientStatistics(2 rows, 1 feature, 1 target), 2)
    """

    def part(rows: Any, count: int) -> SufficientStatistics:
        found = SufficientStatistics.from_rows(map_rows(rows, feature_map))
        return replace(found, count=count)

    total, filled = part(batches.no_rows, 0).start_total(), 0
    for batch in batches:
        total.add(part(batch.rows, batch.count))
        filled += batch.filled
    return replace(total.total(), n_clients=1), filled
