"""Arrow streams and data frames: what is a column, and what is only stored like one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as pads
import pytest

from fedridge_flwr import SufficientStatistics, TableFile, read_table
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
