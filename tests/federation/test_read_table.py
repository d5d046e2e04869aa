"""`read_table`: rows as a client has them, and new rows without the target."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedridge_flwr import DataError, TableOptions, read_table

FRAME = pd.DataFrame(
    {
        "bp": [110.0, 120.0, 135.0, 140.0],
        "age": [41.0, None, 63.0, 50.0],
        "sex": ["f", "f", "m", "m"],
    }
)


@pytest.mark.parametrize("missing", ["drop", "mean", "indicator"])
def test_new_rows_need_no_target(missing: str) -> None:
    X, y, coding = read_table(FRAME, "bp ~ age + sex", missing=missing)
    again, same, _ = read_table(FRAME, coding)
    new, nothing, kept = read_table(FRAME.drop(columns="bp"), coding)
    assert nothing is None
    assert kept is coding
    for found in (again, new):
        pd.testing.assert_frame_equal(found, X)
    np.testing.assert_array_equal(same, y)


def test_a_target_is_missed_unless_a_coding_is_given() -> None:
    with pytest.raises(DataError, match="no column 'bp'"):
        read_table(FRAME.drop(columns="bp"), "bp ~ age + sex")
    _, _, coding = read_table(FRAME, "bp ~ age + sex")
    with pytest.raises(DataError, match="no column 'sex'"):
        read_table(FRAME[["age"]], coding)
    _, _, several = read_table(FRAME.assign(pulse=1.0), "bp + pulse ~ age")
    with pytest.raises(DataError, match="no column 'pulse'"):
        read_table(FRAME, several)  # one of two targets may be a slip


def test_options_beside_a_file_are_read_as_by_the_command(tmp_path: Path) -> None:
    file = tmp_path / "north.csv"
    FRAME.fillna(-9).to_csv(file, index=False)
    (tmp_path / "table.toml").write_text("missing = [-9]", "utf-8")
    X, _, coding = read_table(file, "bp ~ age")
    assert X["age"].tolist() == [41.0, 63.0, 50.0]
    assert read_table(str(file), coding)[0].equals(X)
    plain, _, _ = read_table(file, "bp ~ age", options=TableOptions())
    assert plain["age"].tolist() == [41.0, -9.0, 63.0, 50.0]
