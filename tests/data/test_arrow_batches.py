"""Arrow streams and data frames: what is a column, and what is only stored like one."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as pads
import pytest

from fedridge_flwr import (
    DataError,
    SufficientStatistics,
    TableFile,
    TableFormula,
    read_table,
)
from fedridge_flwr.data.local_table import as_local_table
from fedridge_flwr.statistics.row_stream import RowStream

FRAME = pd.DataFrame({"x": np.arange(6.0), "y": [3.0, 1.0, 2.0, 5.0, 4.0, 6.0]})
SHUFFLED: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "sorted": lambda frame: frame.sort_values("y"),
    "without missing": lambda frame: frame.replace(2.0, np.nan).dropna(),
    "sampled": lambda frame: frame.sample(4, random_state=1),
    "filtered": lambda frame: frame[frame["x"] > 1],
    "with a named index": lambda frame: frame.rename_axis("id"),
    "with two indexes": lambda frame: frame.set_index([[1, 2] * 3, [1, 2, 3] * 2]),
}


@pytest.mark.parametrize("shuffle", SHUFFLED.values(), ids=SHUFFLED)
@pytest.mark.parametrize("options", [{}, {"compress": True}], ids=str)
def test_the_index_of_a_frame_is_no_feature(
    shuffle: Callable[[pd.DataFrame], pd.DataFrame], options: dict[str, Any]
) -> None:
    frame = shuffle(FRAME)
    expected = SufficientStatistics.from_data(frame[["x"]], frame["y"])
    found = SufficientStatistics.from_arrow(frame, "y", **options)
    assert found.feature_names == ("x",)
    assert found.count == expected.count
    np.testing.assert_allclose(found.means, expected.means)
    X, _, _ = read_table(frame, "y ~ .")
    assert list(X.columns) == ["x"]
    stream = RowStream.of((frame, "y"))
    assert stream is not None
    assert stream.statistics()[0].feature_names == ("x",)


def test_the_index_of_a_frame_is_no_feature_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "visits.parquet"
    SHUFFLED["sampled"](FRAME).to_parquet(path)
    assert "__index_level_0__" in pa.parquet.read_schema(path).names
    assert TableFile(path).names == ("x", "y")
    assert list(read_table(path, "y ~ .")[0].columns) == ["x"]
    for source in (pads.dataset(path), pa.parquet.read_table(path)):
        found = SufficientStatistics.from_arrow(source, "y")
        assert found.feature_names == ("x",)
    polars = pytest.importorskip("polars")
    for frame in (polars.read_parquet(path), polars.scan_parquet(path)):
        assert list(read_table(frame, "y ~ .")[0].columns) == ["x"]
        for options in ({}, {"compress": True}):
            found = SufficientStatistics.from_arrow(frame, "y", **options)
            assert found.feature_names == ("x",)
    X = polars.read_parquet(path).drop("y")
    assert SufficientStatistics.from_data(X, [1.0] * 4).feature_names == ("x",)


def test_a_named_index_in_a_file_is_a_column(tmp_path: Path) -> None:
    path = tmp_path / "visits.parquet"
    FRAME.sample(4, random_state=1).rename_axis("id").to_parquet(path)
    assert TableFile(path).names == ("x", "y", "id")


# ---- extension types -----------------------------------------------------------------


def extended(name: str, storage: Any) -> pa.Table:
    """Return a table with a column whose extension type nobody has registered."""
    field = pa.field("b", storage.type, metadata={"ARROW:extension:name": name})
    schema = pa.schema([field, pa.field("y", pa.float64())])
    return pa.table([storage, pa.array(Y)], schema=schema)


Y = [1.0, 2.0, 4.0, 3.0]
PERIODS = pd.DataFrame({"b": pd.period_range("2020-01", periods=4, freq="M"), "y": Y})
MONEY = pa.ExtensionArray.from_storage(
    pa.opaque(pa.int64(), "money", "bank"), pa.array([1, 2, 3, 4])
)
EXTENSIONS = {
    "periods": (PERIODS, "date"),
    "opaque": (pa.table({"b": MONEY, "y": Y}), r"extension type 'arrow\.opaque'"),
    "unknown": (extended("bank.money", pa.array([1, 2, 3, 4])), "'bank.money'"),
}


@pytest.mark.parametrize(("source", "reason"), EXTENSIONS.values(), ids=EXTENSIONS)
def test_an_extension_type_is_not_read_as_what_it_is_stored_as(
    source: Any, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=rf"column 0 \('b'\) .*{reason}"):
        SufficientStatistics.from_arrow(source, "y")
    with pytest.raises(DataError, match=rf"\('b'\) .*{reason}"):
        read_table(source, "y ~ b")
    table = source if isinstance(source, pa.Table) else pa.Table.from_pandas(source)
    path = tmp_path / "visits.parquet"
    pa.parquet.write_table(table, path)
    with pytest.raises(
        DataError, match=rf"visits.parquet: column 0 \('b'\) .*{reason}"
    ):
        read_table(path, "y ~ b")


def test_true_of_eight_bits_is_one() -> None:
    storage = pa.array([0, 2, -1, 1], pa.int8())
    bits = pa.ExtensionArray.from_storage(pa.bool8(), storage)
    table = pa.table({"b": bits, "y": Y})
    assert SufficientStatistics.from_arrow(table, "y").means[0] == 0.75
    assert read_table(table, "y ~ b")[0]["b"].tolist() == [0.0, 1.0, 1.0, 1.0]


def test_rows_are_identified_without_columns_that_cannot_be_read(
    tmp_path: Path,
) -> None:
    frame = PERIODS.assign(x=[1, 2, 3, 3])
    path = tmp_path / "visits.parquet"
    frame.to_parquet(path)
    for source in (frame, TableFile(path)):
        table = as_local_table(source)
        assert table is not None
        identities = table.scan(TableFormula("y ~ x"))[1].identities
        assert identities is not None
        assert len(np.unique(identities(), axis=0)) == 4


# ---- names ---------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"compress": True}], ids=str)
def test_a_single_name_is_one_feature(options: dict[str, Any]) -> None:
    table = pa.table(
        {name: [1.0, 2.0, 4.0, 3.0] for name in "age"} | {"age": Y, "y": Y}
    )
    found = SufficientStatistics.from_arrow(table, "y", "age", **options)
    assert found.feature_names == ("age",)
    assert TableFormula.of("y", "age").columns == ("age",)


def test_quoted_names_of_duckdb_are_not_read_as_something_else() -> None:
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.sql(
        "CREATE TABLE visits AS SELECT i::double AS age, (100 - i * i)::double AS "
        '"visits.age", i::double AS "*", (i % 3)::double AS "ROWS", (i * i)::double '
        "AS y FROM range(9) t(i)"
    )
    visits = connection.table("visits")
    expected = SufficientStatistics.from_arrow(visits, "y")
    found = SufficientStatistics.from_arrow(visits, "y", compress=True)
    assert found.feature_names == expected.feature_names
    np.testing.assert_allclose(found.means, expected.means)
    X = read_table(visits, "y ~ `visits.age` + age")[0]
    assert sorted(X["visits.age"]) == sorted(100.0 - k * k for k in range(9))


BAD = {
    "a name twice": pd.DataFrame(np.ones((4, 3)), columns=["x", "x", "y"]),
    "sparse": pd.DataFrame({"x": pd.arrays.SparseArray([0.0, 1, 0, 2]), "y": Y}),
    "several types": pd.DataFrame({"x": [1, "secret", 2, 3], "y": Y}),
    "large": pd.DataFrame({"x": [1, 2**70, 2, 3], "y": Y}),
    "a name twice in Arrow": pa.Table.from_arrays(
        [pa.array(Y)] * 3, names=["x", "x", "y"]
    ),
}


@pytest.mark.parametrize("frame", BAD.values(), ids=BAD)
@pytest.mark.parametrize("options", [{}, {"compress": True}], ids=str)
def test_what_arrow_cannot_read_is_named(frame: Any, options: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"\('x'\)") as caught:
        SufficientStatistics.from_arrow(frame, "y", **options)
    assert "secret" not in str(caught.value)
    if "twice" in str(caught.value) or "already" in str(caught.value):
        with pytest.raises(DataError, match=r"\('x'\)"):
            read_table(frame, "y ~ .")


def test_types_that_only_some_engines_have_are_named() -> None:
    polars = pytest.importorskip("polars")
    wide = polars.Series([1, 2, 3, 4], dtype=polars.Int128)
    frame = polars.DataFrame({"x": wide, "y": Y})
    for source in (frame, frame.lazy()):
        with pytest.raises(DataError, match=r"\('x'\) cannot be read as Arrow"):
            SufficientStatistics.from_arrow(source, "y")
        with pytest.raises(DataError, match=r"\('x'\) cannot be read as Arrow"):
            read_table(source, "y ~ x")
    twice = pa.Table.from_arrays([pa.array(Y)] * 4, names=["a", "a", "x", "y"])
    assert SufficientStatistics.from_arrow(twice, "y", ["x"]).count == 4
    with pytest.raises(DataError, match="already used"):
        SufficientStatistics.from_arrow(twice, "y", ["x"], compress=True)
    table = pa.table({"b": MONEY, "y": Y})
    with pytest.raises(DataError, match="Leave out compress=True"):
        SufficientStatistics.from_arrow(table, "y", compress=True)


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.decimal128(30, 2)])
def test_what_is_wrong_in_a_dropped_row_does_not_matter(kind: Any) -> None:
    huge = 1e20 if pa.types.is_decimal(kind) else float("inf")
    table = pa.table(
        {
            "x": pa.array([huge, 2.0, 3.0, 5.0], pa.float64()).cast(kind),
            "y": [None, 2.0, 4.0, 3.0],
            "n": [float("inf"), 1.0, 2.0, 1.0],
        }
    )
    found = SufficientStatistics.from_arrow(table, "y", counts="n", nulls="drop")
    assert found.count == 4
    with pytest.raises(DataError):
        SufficientStatistics.from_arrow(table, "n", ["x"], nulls="drop")


def test_a_scanner_is_read_through_its_reader(tmp_path: Path) -> None:
    path = tmp_path / "visits.parquet"
    pa.parquet.write_table(pa.table({"x": Y, "y": Y}), path)
    scanner = pads.dataset(path).scanner(filter=pads.field("x") > 2)
    assert SufficientStatistics.from_arrow(scanner, "y").count == 2


def test_the_target_is_named_where_it_is_not_finite() -> None:
    table = pa.table({"x": Y, "stay": [1.0, float("inf"), 2.0, 3.0]})
    with pytest.raises(DataError, match=r"y has 1 NaN or infinite .* 0 \('stay'\)"):
        SufficientStatistics.from_arrow(table, "stay")


def test_batches_have_weights_or_none_has() -> None:
    batches = [(np.eye(2), [1.0, 2.0], [1.0, 2.0]), (np.eye(2), [1.0, 2.0])]
    for each in (batches, batches[::-1]):
        stream = RowStream.of(each)
        assert stream is not None
        with pytest.raises(DataError, match="some batches have weights"):
            stream.statistics()


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("asked", ["NFC", "NFD"])
def test_an_accent_is_spelled_in_two_ways(
    form: str, asked: str, tmp_path: Path
) -> None:
    polars = pytest.importorskip("polars")
    name = unicodedata.normalize(form, "\u00e9t\u00e9")
    formula = unicodedata.normalize(asked, "y ~ `\u00e9t\u00e9`")
    frame = pd.DataFrame({name: Y, "y": Y})
    path = tmp_path / "visits.csv"
    frame.to_csv(path, index=False)
    sources = [frame, polars.from_pandas(frame), path]
    sources += [polars.from_pandas(frame).lazy(), pa.Table.from_pandas(frame)]
    for source in sources:
        X, _, coding = read_table(source, formula)
        assert list(X.columns) == ["\u00e9t\u00e9"]
        assert len(read_table(frame[[name]], coding)[0]) == 4


def test_a_row_with_nan_is_not_complete() -> None:
    polars = pytest.importorskip("polars")
    nan = float("nan")
    frame = polars.DataFrame({"x": [1.0, nan, None, 2.0], "y": [1.0, 2.0, 3.0, nan]})
    table = as_local_table(frame)
    assert table is not None
    profile = table.profile(TableFormula("y ~ x"))
    assert (profile.rows, profile.complete) == (4, 1)
    assert profile.missing == {"x": 2, "y": 1}
