"""Real engines: DuckDB, Polars, Spark; and the how-to page, on Dask and Ray as well.

`make test-engines` installs them. Spark needs Java 17 or newer.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fakes import InProcessGrid, fit
from generators import relative_error
from sklearn.linear_model import Ridge

from fedridge_flwr import (
    DataError,
    FeatureMap,
    FedRidge,
    SitePolicy,
    SufficientStatistics,
    ridge_client_app,
    solve,
    spark_statistics,
)
from fedridge_flwr.errors import ColumnNamesError

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "data-warehouse.md"
FEATURES, PARTS = ["age", "bmi", "ward"], 6
INSTALL = "pip install 'fedridge-flwr[engines]', or make test-engines"


def visits() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    n = 6000
    age, bmi = rng.normal(60.0, 15.0, n), rng.normal(27.0, 4.0, n)
    data = pd.DataFrame({"age": age, "bmi": bmi, "ward": rng.integers(0, 4, n)})
    return data.assign(days=0.1 * age - 0.2 * bmi + data.ward + rng.normal(size=n))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("warehouse")
    (found / "visits").mkdir()
    for k in range(PARTS):
        visits()[k::PARTS].to_parquet(found / "visits" / f"{k}.parquet", index=False)
    return found


def is_pooled(stats: SufficientStatistics, data: pd.DataFrame | None = None) -> None:
    data = visits() if data is None else data
    pooled = Ridge(1.0).fit(data[FEATURES], data["days"])
    assert stats.count == len(data)
    assert stats.feature_names == tuple(FEATURES)
    assert relative_error(solve(stats, alpha=1.0).coef_, pooled.coef_) < 1e-12


# ---- DuckDB -------------------------------------------------------------------------


@pytest.fixture
def duck(folder: Path) -> Iterator[Any]:
    duckdb = pytest.importorskip("duckdb", reason=INSTALL)
    with duckdb.connect() as connection:
        files = folder / "visits" / "*.parquet"
        connection.sql(f"CREATE VIEW visits AS FROM read_parquet('{files}')")
        yield connection


@pytest.mark.parametrize("compress", [False, True])
def test_duckdb_is_pooled(duck: Any, compress: bool) -> None:
    query = duck.sql("SELECT * FROM visits")
    is_pooled(SufficientStatistics.from_arrow(query, "days", compress=compress))
    reader = query.to_arrow_reader(1000)
    is_pooled(SufficientStatistics.from_arrow(reader, "days"))


def test_duckdb_compresses_what_has_few_values(duck: Any) -> None:
    rounded = "round(age, -1) AS age, round(bmi, -1) AS bmi, ward, round(days) AS days"
    query = duck.sql(f'SELECT {rounded}, 1 AS "rows" FROM visits')
    columns = [*FEATURES, "rows"]
    found = SufficientStatistics.from_arrow(query, "days", columns, compress=True)
    plain = SufficientStatistics.from_arrow(query, "days", columns)
    assert found.count == plain.count == found.total_weight == 6000
    assert relative_error(found.to_array(), plain.to_array()) < 1e-13
    distinct = duck.sql(f"SELECT count(*) FROM (SELECT DISTINCT {rounded} FROM visits)")
    assert distinct.fetchall()[0][0] < 2000


def test_types_of_duckdb(duck: Any) -> None:
    numbers = "days::DECIMAL(9, 3) AS days, age::FLOAT AS age, ward > 1 AS high"
    found = SufficientStatistics.from_arrow(
        duck.sql(f"SELECT {numbers} FROM visits"), "days"
    )
    frame = duck.sql(f"SELECT {numbers} FROM visits").df().astype(float)
    wanted = SufficientStatistics.from_data(frame[["age", "high"]], frame["days"])
    assert relative_error(found.to_array(), wanted.to_array()) < 1e-12
    for wrong, said in {
        "'f' AS sex": "text or categories",
        "'f'::ENUM('f', 'm') AS sex": "text or categories",
        "DATE '2020-01-01' AS seen": "dates or times",
        "INTERVAL 1 DAY AS stay": "dates or times|lists, structures",
        "[1, 2] AS list": "lists, structures",
        "uuid() AS id": "text|lists, structures",
        "9007199254740993 AS id": r"2\*\*53 or more",
        "NULL::DOUBLE AS gone": "6000 of 6000 rows",
    }.items():
        with pytest.raises(DataError, match=said):
            SufficientStatistics.from_arrow(
                duck.sql(f"SELECT days, age, {wrong} FROM visits"), "days"
            )


@pytest.mark.parametrize(
    ("settings", "client"),
    [
        ({}, {}),
        ({"mode": "cg"}, {}),
        ({}, {"site_policy": SitePolicy.preset(5)}),
        ({"formula": "days ~ age + bmi + ward"}, {}),
    ],
    ids=str,
)
def test_a_client_with_a_query(duck: Any, settings: Any, client: Any) -> None:
    def load_data(context: Any) -> Any:
        k = int(context.node_config["partition-id"])
        query = duck.cursor().sql(f"SELECT * FROM visits WHERE ward % 2 = {k}")
        return query if "formula" in settings else (query, "days")

    app = ridge_client_app(load_data, **client)
    strategy = fit(FedRidge(**settings), InProcessGrid.of_app(app, 2))
    pooled = Ridge(1.0).fit(visits()[FEATURES], visits()["days"])
    limit = 1e-8 if "mode" in settings else 1e-12
    assert relative_error(strategy.model_.coef_, pooled.coef_) < limit


# ---- Polars -------------------------------------------------------------------------


@pytest.mark.parametrize("compress", [False, True])
def test_polars_is_pooled(folder: Path, compress: bool) -> None:
    polars = pytest.importorskip("polars", reason=INSTALL)
    lazy = polars.scan_parquet(folder / "visits" / "*.parquet")
    is_pooled(SufficientStatistics.from_arrow(lazy, "days", compress=compress))
    old = lazy.filter(polars.col("age") > 60)
    data = visits()
    is_pooled(SufficientStatistics.from_arrow(old, "days"), data[data.age > 60])


# ---- Spark --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    sql = pytest.importorskip("pyspark.sql", reason=INSTALL)
    java = shutil.which("java")
    if java is None or subprocess.run([java, "-version"], check=False).returncode:
        pytest.skip("Spark needs Java 17 or newer: apt install openjdk-17-jre-headless")
    patch = pytest.MonkeyPatch()
    patch.setenv("PYSPARK_PYTHON", sys.executable)
    session = (
        sql.SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "4")
        .getOrCreate()
    )
    yield session
    session.stop()
    patch.undo()


@pytest.mark.parametrize("compress", [False, True])
def test_spark_is_pooled(spark: Any, folder: Path, compress: bool) -> None:
    frame = spark.read.parquet(str(folder / "visits")).repartition(5)
    assert frame.rdd.getNumPartitions() >= 4
    found = spark_statistics(frame, "days", compress=compress)
    assert found.n_clients == 1
    is_pooled(found)


def test_spark_with_empty_partitions_weights_names_and_a_map(spark: Any) -> None:
    data = visits()[:20].rename(columns={"age": "a.ge"}).assign(w=range(20))
    frame = spark.createDataFrame(data).repartition(40)
    names, square = ["a.ge", "bmi"], FeatureMap.from_text("polynomial 2")
    found = spark_statistics(
        frame, "days", names, sample_weight="w", feature_map=square
    )
    wanted = SufficientStatistics.from_data(
        data[names], data["days"], data["w"], feature_map=square
    )
    assert found.schema == wanted.schema
    assert relative_error(found.to_array(), wanted.to_array()) < 1e-12
    nothing = spark_statistics(frame.limit(0), "days", names)
    assert nothing.count == 0


def test_errors_of_spark_are_ours(spark: Any) -> None:
    frame = spark.createDataFrame(visits()[:50].assign(sex="f")).repartition(4)
    with pytest.raises(ColumnNamesError, match="'z'"):
        spark_statistics(frame, "z")
    with pytest.raises(DataError, match=r"'sex'\) has text or categories"):
        spark_statistics(frame, "days")
    gone = frame.selectExpr("CASE WHEN ward = 1 THEN NULL ELSE age END AS age", "days")
    with pytest.raises(DataError, match=r"nulls in column 0 \('age'\)"):
        spark_statistics(gone, "days")
    kept = spark_statistics(gone, "days", nulls="drop")
    assert kept.count == int((visits()[:50].ward != 1).sum())


# ---- the how-to page ----------------------------------------------------------------


def test_the_page_runs(spark: Any, folder: Path, monkeypatch: Any) -> None:
    for name in ("duckdb", "dask.dataframe", "ray"):
        pytest.importorskip(name, reason=INSTALL)
    import ray

    spark.read.parquet(str(folder / "visits")).createOrReplaceTempView("visits")
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {"spark": spark}
    found = []
    try:
        code = PAGE.read_text(encoding="utf-8")
        for block in re.findall(
            r"^```python\n(.*?)^```$", code, re.DOTALL | re.MULTILINE
        ):
            names.pop("statistics", None)
            exec(compile(block, PAGE.name, "exec"), names)
            found += [names["statistics"]] if "statistics" in names else []
    finally:
        ray.shutdown()
    assert len(found) >= 6
    for stats in found:
        is_pooled(stats)
