"""`spark_statistics`: the statistics of a table on a Spark cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from ..data.arrow_batches import ArrowBatches, compressed, named_columns
from ..data.schema import Schema
from ..data.table_errors import load_arrow
from ..errors import DataError
from ..features import FeatureMap
from .row_stream import RowStream
from .sufficient import SufficientStatistics

_STATE = "count bigint, state binary, problem string"
_MERGED = 8  # so many totals reach the driver, whatever the number of partitions


def spark_statistics(
    frame: Any,
    target: str | Sequence[str],
    features: str | Sequence[str] | None = None,
    *,
    compress: bool = False,
    feature_map: FeatureMap | None = None,
    **options: Any,
) -> SufficientStatistics:
    """Return the statistics of a Spark DataFrame; rows stay on the cluster.

    Every partition becomes one row with its statistics (``mapInArrow``), some of these
    are added up on the cluster, and the driver adds up the rest. This package must be
    installed on the workers.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
        The table.
    target : str or sequence of str
        Column, or columns, of the target.
    features : str or sequence of str, optional
        Columns of the features; by default all others.
    compress : bool
        Count equal rows first, as in `SufficientStatistics.from_arrow`.
    feature_map : FeatureMap, optional
        Map of the features.
    **options
        `sample_weight`, `counts` and `nulls`, as there.

    Returns
    -------
    SufficientStatistics
        Those of all rows, as of one client.

    Raises
    ------
    DataError
        As `SufficientStatistics.from_arrow`; counts are those of one partition.

    Examples
    --------
    >>> from fedridge_flwr import spark_statistics
    >>> def load_data(context):
    ...     from pyspark.sql import SparkSession
    ...     spark = SparkSession.builder.getOrCreate()
    ...     return spark_statistics(spark.table("visits"), target="days")
    """
    if compress:
        named = named_columns(target, features, options.get("sample_weight"))
        frame, options["counts"] = compressed(frame, named)
    # Names and types are checked here and not in the tasks.
    known = ArrowBatches(frame.limit(0).toArrow(), target, features, **options)
    nothing, _ = RowStream(known).statistics(feature_map=feature_map)
    # By number: mapInArrow does not find columns whose names have a dot.
    numbered = [f"`{name}` AS c{j}" for j, name in enumerate(known.columns)]
    options |= {"target": target, "features": features, "feature_map": feature_map}
    reduce = partial(_partition_state, names=known.columns, options=options)
    states = frame.selectExpr(*numbered).mapInArrow(reduce, _STATE)
    merge = partial(_merged_state, schema=nothing.schema)
    rows = states.repartition(_MERGED).mapInArrow(merge, _STATE).collect()
    total = _total((tuple(row) for row in rows), nothing.schema) or nothing
    return replace(total, n_clients=1)


def _partition_state(
    batches: Iterator[Any], names: list[str], options: dict[str, Any]
) -> Iterator[Any]:
    """Yield one row with the statistics of a partition, or what is wrong with it."""
    named = (batch.rename_columns(names) for batch in batches)
    first = next(named, None)
    if first is None:
        return
    reader = load_arrow().RecordBatchReader.from_batches(
        first.schema, chain([first], named)
    )
    try:
        yield _row(SufficientStatistics.from_arrow(reader, **options))
    except DataError as error:
        yield _row(None, str(error))


def _merged_state(batches: Iterator[Any], schema: Schema) -> Iterator[Any]:
    states = (tuple(row.values()) for batch in batches for row in batch.to_pylist())
    try:
        total = _total(states, schema)
    except DataError as error:
        yield _row(None, str(error))
    else:
        if total is not None:
            yield _row(total)


def _total(
    states: Iterator[tuple[Any, ...]], schema: Schema
) -> SufficientStatistics | None:
    total, width = None, schema.n_features + schema.n_targets
    for count, state, problem in states:
        if problem:
            raise DataError(problem)
        numbers = np.frombuffer(state)
        part = SufficientStatistics.unpack(numbers[:-width], schema, count)
        part = replace(part, means_low=numbers[-width:])
        if total is None:
            total = part.start_total()
        else:
            total.add(part)
    return None if total is None else total.total()


def _row(stats: SufficientStatistics | None, problem: str | None = None) -> Any:
    state = b""
    if stats is not None:
        state = np.append(stats.to_array(), stats.moments.mean_low).tobytes()
    count = 0 if stats is None else stats.count
    names = ["count", "state", "problem"]
    pa = load_arrow()
    arrays = [
        pa.array([count]),
        pa.array([state], pa.binary()),
        pa.array([problem], pa.string()),
    ]
    return pa.record_batch(arrays, names=names)
