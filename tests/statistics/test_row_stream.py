"""Arrow streams: the statistics of the rows, or an error that names columns."""

from __future__ import annotations

import datetime
import tracemalloc
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest
from generators import assert_same_statistics, relative_error
from hypothesis import given, settings
from hypothesis import strategies as st

from fedridge_flwr import (
    DataError,
    FeatureMap,
    FedRidgeError,
    SufficientStatistics,
)
from fedridge_flwr.data import arrow_batches
from fedridge_flwr.errors import ColumnNamesError

from_arrow = SufficientStatistics.from_arrow
NAMES = ["age", "bmi", "dose"]


def frame(n: int = 1000, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    X = rng.normal(loc=[50.0, 25.0, 1e6], size=(n, 3))
    y = X @ [0.1, -0.2, 1e-3] + rng.normal(size=n)
    return pd.DataFrame(X, columns=NAMES).assign(days=y, w=rng.random(n))


def expected(data: pd.DataFrame, weight: Any = None) -> SufficientStatistics:
    return SufficientStatistics.from_data(data[NAMES], data["days"], weight)


def same(found: SufficientStatistics, wanted: SufficientStatistics) -> None:
    assert found.count == wanted.count
    assert found.feature_names == wanted.feature_names
    assert found.n_clients == 1
    assert relative_error(found.to_array(), wanted.to_array()) < 1e-13


def dataset(table: pa.Table, folder: Path) -> Any:
    for k in range(3):
        part = table.slice(k * 334, 334)
        pyarrow.parquet.write_table(part, folder / f"{k}.parquet", row_group_size=100)
    return pyarrow.dataset.dataset(sorted(folder.glob("*.parquet")))


SOURCES: dict[str, Callable[[pa.Table, Path], Any]] = {
    "pyarrow table": lambda table, _: table,
    "pyarrow reader": lambda table, _: table.to_reader(max_chunksize=77),
    "pyarrow dataset": dataset,
    "pandas": lambda table, _: table.to_pandas(),
    "polars": lambda table, _: pl.from_arrow(table),
    "polars lazy": lambda table, _: pl.from_arrow(table).lazy(),
}
sources = pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)


# ---- exact --------------------------------------------------------------------------


@sources
def test_any_source_is_from_data(source: Any, tmp_path: Path) -> None:
    data = frame()
    stream = source(pa.Table.from_pandas(data.drop(columns="w")), tmp_path)
    same(from_arrow(stream, target="days"), expected(data))


@sources
def test_features_in_the_order_asked_for_and_weights(
    source: Any, tmp_path: Path
) -> None:
    data = frame()
    data["w"].iloc[::7] = 0.0
    stream = source(pa.Table.from_pandas(data), tmp_path)
    found = from_arrow(stream, "days", ["dose", "age"], sample_weight="w")
    wanted = SufficientStatistics.from_data(
        data[["dose", "age"]], data["days"], data["w"]
    )
    same(found, wanted)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(1, 50))
def test_any_division_into_batches_is_from_data(sizes: list[int], rows: int) -> None:
    data = frame(sum(sizes)).drop(columns="w")
    table = pa.Table.from_pandas(data, preserve_index=False)
    ends = np.cumsum([0, *sizes])
    parts = [table.slice(a, n) for a, n in zip(ends, sizes, strict=False)]
    batches = [b for part in parts for b in part.to_batches()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_batches, "BATCH_ROWS", rows)
        reader = pa.RecordBatchReader.from_batches(table.schema, batches)
        found = from_arrow(reader, "days")
    assert_same_statistics(found, expected(data))


def test_several_targets_and_a_feature_map() -> None:
    data, square = frame(), FeatureMap.from_text("polynomial 2")
    found = from_arrow(
        pa.Table.from_pandas(data), ["days", "w"], ["age", "bmi"], square
    )
    wanted = SufficientStatistics.from_data(
        data[["age", "bmi"]], data[["days", "w"]], feature_map=square
    )
    assert found.target_names == ("days", "w")
    same(found, wanted)


def test_no_rows_are_the_neutral_element() -> None:
    data = frame().drop(columns="w")
    nothing = from_arrow(pa.Table.from_pandas(data[:0]), "days")
    same(nothing + expected(data) - nothing, expected(data))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([3, 1, 4, 1, 5]),
        pa.array([3, 1, 4, 1, 5], pa.uint8()),
        pa.array([2**53 - 1, 0, 1, 2, 3]),
        pa.array([0.5, 1.5, 0.1, 0.2, 0.3], pa.float32()),
        pa.array([True, False, True, True, False]),
        pa.array([Decimal("0.1"), Decimal("2.5"), Decimal(0), Decimal(1), Decimal(7)]),
        pa.array([3, 1, 4, 1, 5]).dictionary_encode(),
    ],
    ids=lambda column: str(column.type),
)
def test_all_types_of_numbers(column: Any) -> None:
    y = pa.array([1.0, 2.0, 3.0, 5.0, 8.0])
    found = from_arrow(pa.table({"x": column, "y": y}), "y")
    X = np.array([[float(value)] for value in column.to_pylist()])
    wanted = SufficientStatistics.from_data(X, y.to_numpy())
    assert relative_error(found.to_array(), wanted.to_array()) < 1e-15


# ---- low cardinality ----------------------------------------------------------------


def coarse(n: int = 2000) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    data = pd.DataFrame(rng.integers(0, 3, size=(n, 3)), columns=NAMES)
    return data.assign(days=data.sum(axis=1) + rng.integers(0, 2, n))


@pytest.mark.parametrize("kind", ["pandas", "pyarrow table", "polars", "polars lazy"])
def test_equal_rows_become_one_and_are_counted(kind: str, tmp_path: Path) -> None:
    data = coarse()
    stream = SOURCES[kind](pa.Table.from_pandas(data, preserve_index=False), tmp_path)
    found = from_arrow(stream, "days", compress=True)
    assert found.total_weight == found.count == 2000
    same(found, expected(data))
    less = from_arrow(stream, "days", ["dose", "age"], compress=True)
    assert less.count == 2000


def test_counts_of_ones_own_and_weights_multiply() -> None:
    data = coarse().rename(columns={"bmi": "rows"}).assign(w=2.0)
    names = ["age", "rows", "dose"]
    grouped = data.groupby([*names, "days", "w"]).size().reset_index(name="n")
    assert len(grouped) < 100
    found = from_arrow(grouped, "days", names, sample_weight="w", counts="n")
    whole = SufficientStatistics.from_data(data[names], data["days"], data["w"])
    same(found, whole)
    same(from_arrow(data, "days", names, sample_weight="w", compress=True), whole)


@pytest.mark.parametrize("wrong", [[1.5, 1.0], [-1.0, 2.0], [np.inf, 1.0]])
def test_counts_are_whole_numbers(wrong: list[float]) -> None:
    table = pa.table({"x": [1.0, 2.0], "y": [1.0, 2.0], "n": wrong})
    with pytest.raises(DataError, match=r"column 2 \('n'\), must be whole numbers"):
        from_arrow(table, "y", counts="n")


def test_a_reader_cannot_be_compressed() -> None:
    reader = pa.table({"x": [1.0], "y": [1.0]}).to_reader()
    with pytest.raises(DataError, match="needs DuckDB, Polars, Spark"):
        from_arrow(reader, "y", compress=True)


# ---- refused ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (["f", "m"], r"column 0 \('x'\) has text or categories.*FedRidge\(formula"),
        (pa.array(["f", "m"]).dictionary_encode(), "has text or categories"),
        ([datetime.date(2020, 1, 1)] * 2, "has dates or times. Select the number"),
        ([datetime.datetime(2020, 1, 1)] * 2, "has dates or times"),
        ([datetime.timedelta(1)] * 2, "has dates or times"),
        ([[1.0], [2.0]], "has lists, structures or binary data"),
        ([b"a", b"b"], "has lists, structures or binary data"),
        ([2**53, 1], r"\('x'\) must have numbers, but 1 of 2 .*2\*\*53 or more"),
        ([1.0, None], r"nulls in column 0 \('x'\) \(1 of 2 rows\).*nulls=\"drop\""),
        (pa.nulls(2), r"nulls in column 0 \('x'\) \(2 of 2 rows\)"),
        ([1.0, np.nan], r"NaN or infinite value in column 0 \('x'\)"),
        ([1.0, np.inf], r"NaN or infinite value in column 0 \('x'\)"),
    ],
    ids=str,
)
def test_what_is_no_number_is_named(column: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        from_arrow(pa.table({"x": column, "y": [1.0, 2.0]}), "y")


def test_nulls_of_all_batches_are_counted() -> None:
    x = [1.0, None, 3.0, None, 5.0, None]
    table = pa.table({"x": x, "z": [1.0] * 6, "y": [*x[:5], 0.0]})
    with pytest.raises(DataError, match=r"'x'\), 2 \('y'\) \(3, 2 of 6 rows\)"):
        from_arrow(table.to_reader(max_chunksize=2), "y")


def test_rows_with_nulls_are_left_out_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    data = frame(100).drop(columns="w")
    data.loc[::9, "age"] = np.nan
    data.loc[::30, "days"] = np.nan
    with caplog.at_level("INFO", "flwr"):
        found = from_arrow(pl.from_pandas(data), "days", nulls="drop")
    kept = data.dropna()
    same(found, expected(kept))
    assert f"{100 - len(kept)} rows with nulls left out" in caplog.text
    twice = pd.concat([data.round(), data.round()])
    caplog.clear()
    with caplog.at_level("INFO", "flwr"):
        found = from_arrow(pl.from_pandas(twice), "days", nulls="drop", compress=True)
    same(found, expected(twice.dropna()))
    assert f"{200 - 2 * len(kept)} rows with nulls left out" in caplog.text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"target": "z"}, r"the stream has no column 2 \('z'\)"),
        ({"target": "y", "features": ["x", "q"]}, r"no column 1 \('q'\)"),
        (
            {"target": "y", "features": ["x", "y"]},
            r"'y'\) is there twice, or used twice",
        ),
        ({"target": "y", "sample_weight": "y"}, r"'y'\) is there twice, or used twice"),
        ({"target": ["x", "y"]}, "no columns but the target"),
        ({"target": "y", "nulls": "ignore"}, 'nulls must be "error" or "drop"'),
    ],
    ids=str,
)
def test_columns_that_cannot_be_meant(options: Any, said: str) -> None:
    with pytest.raises(FedRidgeError, match=said):
        from_arrow(pa.table({"x": [1.0], "y": [2.0]}), **options)


def test_columns_of_the_same_name() -> None:
    table = pa.table([[1.0], [2.0], [3.0]], names=["x", "x", "y"])
    with pytest.raises(ColumnNamesError, match=r"'x'\) is there twice"):
        from_arrow(table, "y")


def test_what_is_no_stream() -> None:
    with pytest.raises(DataError, match="a ndarray is no Arrow stream"):
        from_arrow(np.eye(2), "y")


@pytest.mark.parametrize("weight", [[-1.0, 1.0], [np.nan, 1.0]])
def test_weights_are_checked(weight: list[float]) -> None:
    table = pa.table({"x": [1.0, 2.0], "y": [1.0, 2.0], "w": weight})
    with pytest.raises(DataError, match="sample_weight"):
        from_arrow(table, "y", sample_weight="w")


# ---- memory -------------------------------------------------------------------------


def test_there_is_no_second_copy() -> None:
    table = pa.table({f"x{j}": np.arange(300_000.0) % 997 for j in range(32)})
    assert table.nbytes > 70e6
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    from_arrow(table, "x0")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6
    assert pa.total_allocated_bytes() - before < 1e6
