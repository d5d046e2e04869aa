"""Entries of table files as numbers and as levels, and what a scan finds out."""

from __future__ import annotations

import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedridge_flwr import DataError
from fedridge_flwr.data.column_scan import ColumnScan
from fedridge_flwr.data.table_values import level_text, numbers

FINITE = st.floats(allow_nan=False, allow_infinity=False)
INTEGERS = st.integers(-(2**63), 2**63 - 1)


def levels(*entries: Any, kind: Any = None) -> list[str | None]:
    found: list[str | None] = level_text(pa.array(entries, kind)).to_pylist()
    return found


# ---- numbers -------------------------------------------------------------------------


@given(st.lists(FINITE))
def test_text_is_the_number_that_python_reads(values) -> None:
    for spelling in (repr, "{:.17e}".format, "{:+.20g}".format):
        texts = [spelling(v) for v in values]
        expected = [float(text) for text in texts if not _is_long(text)]
        texts = [text for text in texts if not _is_long(text)]
        assert numbers(pa.array(texts, pa.string())).tolist() == expected


def _is_long(text: str) -> bool:
    return text.strip("+-").isdigit() and len(text) > 15


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([1, None], pa.int8()), [1, np.nan]),
        (pa.array([1, 2], pa.uint64()), [1, 2]),
        (pa.array([1.5, None, float("nan")]), [1.5, np.nan, np.nan]),
        (pa.array([1.5], pa.float32()), [1.5]),
        (pa.array([True, False, None]), [1, 0, np.nan]),
        (pa.array(["true", "FALSE", None, "1"]), [1, 0, np.nan, 1]),
        (pa.array([Decimal("0.1"), None]), [0.1, np.nan]),
        (pa.array(["1", "2", "1"]).dictionary_encode(), [1, 2, 1]),
        (pa.chunked_array([["1"], ["2"]]), [1, 2]),
        (pa.array(["1", "x"], pa.large_string()).slice(0, 1), [1]),
        (pa.array(["3"], pa.string_view()), [3]),
        (pa.nulls(2), [np.nan, np.nan]),
        (pa.array([], pa.string()), []),
        (pa.array([str(2**53 - 1), "1e300"]), [2**53 - 1, 1e300]),
    ],
)
def test_numbers_of_every_type(array, expected) -> None:
    found = numbers(array)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, np.array(expected, float))


@pytest.mark.parametrize(
    ("array", "first", "message"),
    [
        (pa.array(["1", None, "x", "y"]), 3, "2 of 4 entries .* text"),
        (pa.array([1, 2**53]), 2, "identifier"),
        (pa.array([2**64 - 1], pa.uint64()), 1, "identifier"),
        (pa.array([-(2**63)]), 1, "identifier"),
        (pa.array(["0009007199254740993"]), 1, "identifier"),
        (pa.array([Decimal(2**60)]), 1, "identifier"),
        (pa.array([1.0, float("-inf")]), 2, "infinite"),
        (pa.array(["1e999"]), 1, "infinite"),
        (pa.array(["nan", "1"]), 1, "infinite"),
        (pa.array([datetime.date(2024, 1, 1)]), 1, "a date or time"),
        (pa.array([datetime.datetime(2024, 1, 1)]), 1, "a date or time"),
        (pa.array([datetime.timedelta(1)]), 1, "a date or time"),
        (pa.array(["31.01.2024 12:30"]), 1, "a date or time"),
        (pa.array(["1", "1,5"]), 2, "comma"),
        (pa.array(["1 234 567"]), 1, "separators of thousands"),
        (pa.array(["1.234.567"]), 1, "separators of thousands"),
        (pa.array(["-$12.5"]), 1, "currency"),
        (pa.array(["0x10"]), 1, "text"),
        (pa.array(["١"]), 1, "text"),
    ],
)
def test_what_is_not_a_number_is_refused(array, first, message) -> None:
    with pytest.raises(DataError, match=message) as caught:
        numbers(array)
    assert f"(entry {first})" in str(caught.value)


# ---- levels --------------------------------------------------------------------------


def test_one_level_has_one_spelling() -> None:
    assert set(levels("1", "1.0", " 1.00 ", "1.", "1e+00")) == {"1"}
    assert levels(1, kind=pa.int16()) == levels(1.0) == levels(Decimal("1.00")) == ["1"]
    assert set(levels(".5", "0.5", "0.500", "5e-01")) == {"0.5"} == set(levels(0.5))
    assert set(levels("-0", "0.0", "-0.00")) == {"0"} == set(levels(-0.0))
    assert levels(0.1, kind=pa.float32()) == ["0.1"] == levels("0.10")
    assert levels("1e-05") == levels(1e-5) == levels("0.00001") == ["0.00001"]
    assert levels("1e+05") == levels(1e5) == levels(100_000) == ["100000"]
    assert set(levels("TRUE", "True", "true")) == {"true"} == set(levels(True))
    assert levels("Caf\u00e9") == levels("Cafe\u0301")
    assert levels("", "  ", None, kind=pa.string()) == [None] * 3
    assert levels(float("nan"), None) == [None, None]


def test_what_is_not_a_plain_number_stays_as_it_is() -> None:
    codes = [
        "007",
        "00.5",
        "1.2.3",
        "1e5",
        "2E3",
        "+1",
        "1-2",
        "1,0",
        "T",
        "a.0",
        "٣.0",
    ]
    assert levels(*codes) == codes
    assert levels(datetime.date(2024, 1, 31)) == ["2024-01-31"]


@given(st.lists(INTEGERS))
def test_whole_numbers_of_any_size_are_exact(values) -> None:
    expected = [str(value) for value in values]
    assert levels(*values, kind=pa.int64()) == expected
    assert levels(*expected, kind=pa.string()) == expected
    assert levels(*[f"{v}.0" for v in values], kind=pa.string()) == expected


@given(st.lists(FINITE, min_size=1))
def test_a_level_is_the_number_and_does_not_change_again(values) -> None:
    found = levels(*values, kind=pa.float64())
    assert [float(level) for level in found if level] == [v + 0.0 for v in values]
    assert levels(*found) == found
    assert levels(*[repr(v) for v in values]) == found


# ---- scans ---------------------------------------------------------------------------


FEW = [str(k % 5) for k in range(40)]


@pytest.mark.parametrize(
    ("entries", "likely"),
    [
        ([*FEW, "x"], True),
        ([*FEW, "inf"], True),
        (["990", "1,005", "1,234", "995"], True),
        (["2%", "4%", "6 %"], True),
        (["1.234.567", "1'234", "1\u202f234"], True),
        (["\u22122", "\u22124", "x"], True),
        (["1", "2", "3a"], True),
        (["1a", "2", "3a"], False),
        (["a", "b", "12+", "7"], False),
        (["yes", "no", None, None, "1"], False),
        (FEW, False),
        ([None, None], False),
    ],
)
def test_what_may_be_numbers(entries: list[str | None], likely: bool) -> None:
    assert scan(pa.array(entries, pa.string())).may_be_numbers is likely


def scan(*batches: Any, **options: Any) -> ColumnScan:
    found, line = ColumnScan(**options), 2
    for batch in batches:
        array = batch if isinstance(batch, pa.Array) else pa.array(batch, pa.string())
        found.add(array, line)
        line += len(array)
    return found


@pytest.mark.parametrize(
    ("entries", "kind"),
    [
        (["1", None, "2.5"], "number"),
        (["true", "False"], "number"),
        (["1", "x"], "text"),
        (["yes", "no"], "text"),
        (["2024-01-31", None, "2024-02-01"], "date"),
        (["2024-01-31", "later"], "text"),
        (["2024-01-31", "1"], "text"),
        (pa.array([datetime.datetime(2024, 1, 31), None]), "date"),
        ([None, None], "empty"),
        ([], "empty"),
        (["12345678901234567890"], "text"),
        (["inf"], "text"),
    ],
)
def test_the_kind_of_a_column(entries, kind) -> None:
    assert scan(entries).kind == kind


def test_counts_over_batches() -> None:
    found = scan(["1", None, "x"], ["1.0", "y", "y", None], [])
    assert (found.rows, found.missing, found.n_text, found.n_numbers) == (7, 2, 3, 2)
    assert found.level_counts == {"1": 2, "x": 1, "y": 2}
    assert found.levels == {"1", "x", "y"}
    assert found.first_text == 4
    assert "3 of 5 entries are not. The first (line 4) is text" in found.problem(
        "line 4"
    )
    assert not found.constant
    assert not found.too_many_levels


def test_a_scan_takes_the_rows_of_a_batch() -> None:
    found = ColumnScan()
    found.add(pa.array(["1", "x"]), np.array([10, 20]))
    found.add(pa.array(["y"]), range(30, 31))
    assert found.first_text == 20


def test_constant_columns() -> None:
    assert scan(["1", "1.0", None], ["1.00"]).constant
    assert not scan(["1"], ["2"]).constant
    assert not scan([None]).constant


def test_too_many_levels() -> None:
    few = scan([str(k) for k in range(100)], max_levels=100)
    assert len(few.levels) == 100
    for batches in ([range(101)], [range(60), range(60, 101)], [range(5000)]):
        many = scan(*[list(map(str, batch)) for batch in batches], max_levels=100)
        assert many.too_many_levels
        assert many.levels == set()
        assert many.kind == "number"
        assert not many.constant


@given(st.lists(st.lists(FINITE), max_size=5))
def test_means_of_sites_add_up_exactly(sites) -> None:
    """Rounded once, whatever the split, the order and the cancellation."""
    scans = [scan(pa.array(site, pa.float64())) for site in sites]
    everything = [value for site in sites for value in site]
    total = sum((s.exact_sum for s in scans), Fraction(0))
    assert total == sum(map(Fraction, everything), Fraction(0))
    assert sum(s.n_numbers for s in scans) == len(everything)
    one = scan(*[pa.array(site, pa.float64()) for site in sites])
    assert one.exact_sum == total
    if everything:
        assert one.mean == float(total / len(everything))
    else:
        assert np.isnan(one.mean)


def test_the_mean_of_many_numbers() -> None:
    values = np.random.default_rng(0).normal(size=3_000_000) + 1e8
    half = scan(pa.array(values[: len(values) // 2]), max_levels=10)
    rest = scan(pa.array(values[len(values) // 2 :]), max_levels=10)
    total = half.exact_sum + rest.exact_sum
    parts = [Fraction(float(np.float64(v))) for v in values[:1000]]
    assert scan(pa.array(values[:1000])).exact_sum == sum(parts)
    assert float(total / len(values)) == pytest.approx(values.mean(), rel=1e-14)
