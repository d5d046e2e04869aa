"""Tables of every library: names, types and numbers, by one rule."""

from __future__ import annotations

import datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from fedridge_flwr import DataError, SufficientStatistics
from fedridge_flwr.data.record_numbers import as_numbers
from fedridge_flwr.data.rows import check_rows

pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

FRAMES = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "pyarrow": pa.table,
    "record batch": pa.record_batch,
}
KINDS = pytest.mark.parametrize("frame", FRAMES.values(), ids=list(FRAMES))
Y = [1.0, 2.0, 4.0]


def numbers(rows) -> np.ndarray:
    return np.vstack([block.X for block in rows.blocks()])


@KINDS
def test_every_library_gives_names_and_the_same_numbers(frame):
    columns = {
        "b": [1, 2, 3],
        "a": [0.5, 1.5, -2.0],
        "c": [True, False, True],
        "d": [Decimal("1.25"), Decimal("-2"), Decimal("0.5")],
    }
    rows = check_rows(frame(columns), Y)
    assert rows.feature_names == ("b", "a", "c", "d")
    expected = [[1, 0.5, 1, 1.25], [2, 1.5, 0, -2], [3, -2, 1, 0.5]]
    assert numbers(rows).tolist() == expected
    assert numbers(check_rows(np.array(expected), Y)).tolist() == expected


@KINDS
@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        ([datetime.date(2020, 1, k) for k in (1, 2, 3)], "date|Date|object"),
        ([datetime.datetime(2020, 1, k) for k in (1, 2, 3)], "date|Date|time"),
        ([datetime.timedelta(k) for k in (1, 2, 3)], "Duration|timedelta"),
        (["1", "2", "3"], "str|Str|object"),
    ],
)
def test_dates_and_text_are_refused_everywhere(frame, bad, kind):
    table = frame({"age": [1.0, 2.0, 3.0], "born": bad})
    words = rf"column 1 \('born'\) has the type .*({kind})"
    with pytest.raises(DataError, match=words) as error:
        check_rows(table, Y)
    assert "born" not in error.value.anonymous()
    assert "years since birth" in str(error.value)
    with pytest.raises(DataError, match=r"y must be numeric.*predicts numbers"):
        check_rows([[1.0]] * 3, table)


@KINDS
def test_missing_values_are_counted_by_column(frame):
    with pytest.raises(DataError, match=r"1 NaN or infinite value in column 1 \('b'\)"):
        SufficientStatistics.from_data(frame({"a": [1, 2, 3], "b": [1, None, 3]}), Y)


@KINDS
def test_targets_have_names_too(frame):
    rows = check_rows([[1.0]] * 3, frame({"u": Y, "v": [0, 1, 0]}))
    assert rows.target_names == ("u", "v")
    assert np.vstack([b.Y for b in rows.blocks()]).tolist() == [[1, 0], [2, 1], [4, 0]]


@pytest.mark.parametrize(
    ("y", "names"),
    [
        (pd.Series(Y, name="u"), ("u",)),
        (pd.Series(Y), None),
        (pl.Series("u", Y), ("u",)),
        (pl.Series(Y), None),
        (pa.chunked_array([Y]), None),
        (np.array(Y), None),
    ],
)
def test_a_single_target_has_a_name_if_its_column_has(y, names):
    rows = check_rows([[1.0]] * 3, y)
    assert rows.target_names == names
    assert next(rows.blocks()).Y.ravel().tolist() == Y


def test_labels_that_are_no_text_are_names_and_positions_are_not():
    X, pairs = np.eye(3), [("a", 1), ("a", 2), ("b", 1)]
    for labels, names in (
        ([2019, 2020, 2021], ("2019", "2020", "2021")),
        ([1, 0, 2], ("1", "0", "2")),
        (["a", 1, 2.5], ("a", "1", "2.5")),
        (pd.MultiIndex.from_tuples(pairs), ("a / 1", "a / 2", "b / 1")),
        ([0, 1, 2], None),
        (range(3), None),
    ):
        assert check_rows(pd.DataFrame(X, columns=labels), Y).feature_names == names


@pytest.mark.parametrize("labels", [["a", "a"], ["1", 1]])
def test_a_name_that_occurs_twice_is_refused(labels):
    with pytest.raises(DataError, match=r"the name of column 1 .* is already used"):
        check_rows(pd.DataFrame(np.ones((3, 2)), columns=labels), Y)
    with pytest.raises(DataError, match="is already used"):
        check_rows(pa.table([pa.array(Y), pa.array(Y)], names=["a", "a"]), Y)


@pytest.mark.parametrize("wrap", [np.array, lambda v, dtype: pd.Series(v, dtype=dtype)])
def test_objects_are_numbers_if_all_of_them_are(wrap):
    good = [Decimal("1.5"), Fraction(1, 2), True]
    rows = check_rows([[1.0]] * 3, wrap(good, dtype=object))
    assert next(rows.blocks()).Y.ravel().tolist() == [1.5, 0.5, 1.0]
    for bad in ("2", 1j, datetime.date(2020, 1, 1), [1.0]):
        with pytest.raises(DataError, match="y must be numeric"):
            check_rows([[1.0]] * 2, wrap([1.0, bad], dtype=object))


def test_what_is_not_there_yet_is_refused_with_the_remedy():
    with pytest.raises(DataError, match="collect it first"):
        check_rows(pl.LazyFrame({"a": Y}), Y)
    with pytest.raises(DataError, match=r"got generator.*from_batches"):
        check_rows((row for row in [[1.0]]), [1.0])
    with pytest.raises(DataError, match="X must be 2-D"):
        check_rows(pl.Series("a", Y), Y)


@KINDS
def test_of_a_private_release_only_the_rows_that_are_numbers_stay(frame):
    table = frame({"a": [1.0, 2.0, 3.0], "b": ["1.5", "n/a", None]})
    found = check_rows(as_numbers(table), as_numbers(Y))
    assert found.feature_names == ("a", "b")
    np.testing.assert_array_equal(
        numbers(found), [[1.0, 1.5], [2.0, np.nan], [3.0, np.nan]]
    )
