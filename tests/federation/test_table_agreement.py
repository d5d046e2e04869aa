"""One coding for the tables of all sites, and which sites it does not fit."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedridge_flwr import (
    DataError,
    FedRidgeError,
    ProtocolError,
    TableFormula,
    read_table,
)
from fedridge_flwr.data.coding import MISSING_LEVEL
from fedridge_flwr.data.local_table import as_local_table
from fedridge_flwr.data.table_profile import ColumnProfile, TableProfile
from fedridge_flwr.federation.agreement.table_agreement import agree_on_coding


def agree(text: str, tables: dict[str, dict[str, list[Any]]], **more: Any) -> Any:
    formula = TableFormula(text, **more)
    frames = {name: pd.DataFrame(table) for name, table in tables.items()}
    profiles = {
        name: as_local_table(frame).profile(formula) for name, frame in frames.items()
    }
    return agree_on_coding(formula, profiles)


NORTH = {"y": [1.0, 2.0, 3.0], "a": [1.0, 2.0, 4.0], "b": ["u", "v", "u"]}


def test_levels_of_all_sites_together_are_the_levels_sorted() -> None:
    south = {**NORTH, "b": ["w", "v", "10"]}
    west = {**NORTH, "b": [2, 10, 2]}
    tables = {"north": NORTH, "south": south, "west": west}
    coding, misfits = agree("y ~ C(b)", tables)
    assert coding.levels == {"b": ("2", "10", "u", "v", "w")}
    assert misfits == {}


def test_the_order_of_columns_does_not_matter() -> None:
    south = {name: NORTH[name] for name in reversed(NORTH)}
    for text in ("y ~ a + b", "y ~ ."):
        coding, misfits = agree(text, {"north": NORTH, "south": south})
        assert sorted(coding.columns) == ["a", "b"]
        assert misfits == {}
        assert agree(text, {"south": south, "north": NORTH})[0].names == coding.names


SPOILED = [
    ("not there", {"y": [1.0, 2.0], "b": ["u", "v"]}, "no column 'a'"),
    ("text", {**NORTH, "a": ["1", "2", "many"]}, r"'a' has text in 1 row\(s\)"),
    ("number", {**NORTH, "b": [1.5, 2.5, 3.5]}, r"write C\(b\)"),
    ("date", {**NORTH, "a": ["2020-01-01"] * 3}, "'a' is a date"),
    ("all missing", {**NORTH, "a": [None] * 3}, "'a' is missing in all 3 rows"),
    ("text target", {**NORTH, "y": ["low", "high", "low"]}, "'y' has text"),
    ("no target", {**NORTH, "y": [None] * 3}, "'y' is missing in all"),
    (
        "no complete row",
        {"y": [1.0, None, 2.0], "a": [None, 1.0, 2.0], "b": ["u", "v", None]},
        "no row has all columns",
    ),
    (
        "free text",
        {"y": [1.0] * 300, "a": [1.0] * 300, "b": [f"t{k}" for k in range(300)]},
        "more than 20 different values",
    ),
]


@pytest.mark.parametrize(
    ("what", "table", "reason"), SPOILED, ids=[what for what, *_ in SPOILED]
)
def test_a_table_that_does_not_fit_is_named_and_the_rest_agree(
    what: str, table: dict[str, list[Any]], reason: str
) -> None:
    tables = {"north": NORTH, "east": NORTH, "south": table}
    coding, misfits = agree("y ~ a + b", tables)
    assert list(misfits) == ["south"]
    assert re.search(reason, misfits["south"])
    assert coding.levels == {"b": ("u", "v")}


def test_levels_of_a_table_that_does_not_fit_are_not_levels() -> None:
    south = {"y": [1.0, 2.0], "b": ["only here", "v"]}
    coding, misfits = agree("y ~ a + b", {"north": NORTH, "south": south})
    assert "south" in misfits
    assert coding.levels == {"b": ("u", "v")}


def test_numbers_and_text_in_equal_shares_leave_the_text_out() -> None:
    south = {**NORTH, "a": ["1", "2", "many"]}
    _, misfits = agree("y ~ a", {"north": NORTH, "south": south})
    assert list(misfits) == ["south"]


def test_nobody_fits() -> None:
    with pytest.raises(FedRidgeError, match="client north: the table has no column"):
        agree("y ~ nothing", {"north": NORTH, "south": NORTH})


def test_levels_that_were_declared_are_all_there_are() -> None:
    south = {**NORTH, "b": ["u", "w", "u"]}
    tables = {"north": NORTH, "south": south}
    coding, misfits = agree("y ~ C(b)", tables, levels={"b": ["v", "u", "x"]})
    assert coding.levels == {"b": ("v", "u", "x")}
    assert misfits == {"south": "column 'b' has undeclared levels: 'w'"}


@pytest.mark.parametrize(
    ("here", "there"), [("Yes", "yes"), ("01", "1"), ("a  b", "a b"), ("1e1", "1E1")]
)
def test_levels_that_are_spelled_alike_are_refused(here: str, there: str) -> None:
    tables = {
        "north": {"y": [1.0, 2.0], "b": [here, "other"]},
        "south": {"y": [1.0, 2.0], "b": [there, "other"]},
    }
    with pytest.raises(FedRidgeError, match="differ only in spelling") as error:
        agree("y ~ C(b)", tables)
    assert "client north" in str(error.value)
    assert "client south" in str(error.value)


def test_a_category_of_one_level_is_refused() -> None:
    table = {"y": [1.0, 2.0], "b": ["u", "u"]}
    with pytest.raises(FedRidgeError, match=r"'b' has 1 level\(s\) over all sites"):
        agree("y ~ C(b)", {"north": table, "south": table})


def test_constant_at_one_site_is_fine() -> None:
    south = {**NORTH, "a": [2.0] * 3, "b": ["u"] * 3}
    coding, misfits = agree("y ~ a + b", {"north": NORTH, "south": south})
    assert misfits == {}
    assert coding.names == ("a", "b[T.v]")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), min_size=1, max_size=8),
        min_size=1,
        max_size=4,
    )
)
def test_the_mean_that_stands_for_missing_values_is_that_of_all_sites(
    columns: list[list[float | None]],
) -> None:
    present = [v for column in columns for v in column if v is not None]
    tables = {
        f"s{k}": {"y": [1.0] * len(column), "a": column}
        for k, column in enumerate(columns)
    }
    if not present:
        return
    coding, misfits = agree("y ~ a", tables, missing="mean")
    assert misfits == {}
    expected = math.fsum(present) / len(present)
    assert coding.means["a"] == pytest.approx(expected, rel=1e-14, abs=0)


def test_indicators_are_where_anything_is_missing() -> None:
    south = {"y": [1.0, 2.0], "a": [None, 1.0], "b": ["u", None]}
    tables = {"north": NORTH, "south": south}
    coding, misfits = agree("y ~ a + b", tables, missing="indicator")
    assert misfits == {}
    assert coding.indicators == ("a",)
    assert coding.levels["b"] == ("u", "v", MISSING_LEVEL)
    assert coding.means["a"] == 2.0


def test_all_missing_is_fine_where_something_stands_for_it() -> None:
    south = {"y": [1.0, 2.0], "a": [None, None], "b": ["u", "v"]}
    _, misfits = agree("y ~ a + b", {"n": NORTH, "s": south}, missing="mean")
    assert misfits == {}


def test_a_profile_travels_and_is_not_trusted() -> None:
    profile = TableProfile(
        5,
        4,
        {
            "a": ColumnProfile("number", 1, 0, (), (1.5, 1e-17)),
            "b": ColumnProfile("text", 0, 5, ("ä", "b")),
        },
    )
    assert TableProfile.from_array(profile.to_array()) == profile
    for text in (
        "",
        "[]",
        '{"rows": -1, "complete": 0, "columns": {}}',
        '{"rows": 2, "complete": 3, "columns": {}}',
        '{"rows": 2, "complete": 1, "columns": {"a": {}}}',
        '{"rows": 2, "complete": 1, "columns": []}',
        '{"rows": true, "complete": 0, "columns": {}}',
        '{"rows": 2, "complete": 1, "columns": {"a": {"kind": "code", "missing": 0, '
        '"text": 0, "levels": [], "sum": []}}}',
        '{"rows": 2, "complete": 1, "columns": {"a": {"kind": "text", "missing": 3, '
        '"text": 0, "levels": [], "sum": []}}}',
        '{"rows": 2, "complete": 1, "columns": {"a": {"kind": "text", "missing": 0, '
        '"text": 0, "levels": [1], "sum": []}}}',
        '{"rows": 2, "complete": 1, "columns": {"a": {"kind": "number", "missing": 0, '
        '"text": 0, "levels": [], "sum": [1e999]}}}',
        '{"rows": 2, "complete": 1, "columns": {"a": {"kind": "number", "missing": 0, '
        '"text": 0, "levels": [], "sum": ["1"]}}}',
        "{" * 100_000,
    ):
        with pytest.raises(ProtocolError):
            TableProfile.from_array(np.frombuffer(text.encode(), dtype=np.uint8))
    with pytest.raises(ProtocolError):
        TableProfile.from_array(np.zeros(3))
    with pytest.raises(ProtocolError):
        TableProfile.from_array(np.full(3, 255, dtype=np.uint8))


@pytest.mark.parametrize(
    ("here", "there"),
    [("true", "1"), ("1e5", "100000"), ("1,5", "1.5"), ("+1", "1")],
)
def test_levels_that_are_one_number_are_refused(here: str, there: str) -> None:
    sites = {
        site: TableProfile(
            9,
            9,
            {
                "y": ColumnProfile("number"),
                "g": ColumnProfile("text", levels=("x", level)),
            },
        )
        for site, level in {"a": here, "b": there}.items()
    }
    with pytest.raises(FedRidgeError, match="differ only in spelling"):
        agree_on_coding(TableFormula("y ~ C(g)"), sites)


def test_large_whole_numbers_are_levels_of_their_own() -> None:
    ids = ("9007199254740992", "9007199254740993")
    columns = {"y": ColumnProfile("number"), "g": ColumnProfile("number", levels=ids)}
    coding, _ = agree_on_coding(
        TableFormula("y ~ C(g)"), {"a": TableProfile(9, 9, columns)}
    )
    assert coding.levels == {"g": ids}


def test_a_column_that_one_site_alone_has_leaves_nobody_else_out() -> None:
    south = {**NORTH, "extra": [1.0, 2.0, 3.0]}
    tables = {"north": NORTH, "east": NORTH, "south": south}
    coding, misfits = agree("y ~ .", tables)
    assert coding.columns == ("a", "b")
    assert misfits == {}


def test_levels_with_invisible_characters_are_refused_where_they_are() -> None:
    with pytest.raises(FedRidgeError, match="'b' has a level with invisible"):
        agree("y ~ C(b)", {"north": {"y": [1.0, 2.0], "b": ["u", "u\u200b"]}})
    text = (
        '{"rows": 2, "complete": 2, "columns": {"b": {"kind": "text", "missing": 0, '
        '"text": 2, "levels": ["u", "u\u200b"], "sum": []}}}'
    )
    with pytest.raises(ProtocolError):
        TableProfile.from_array(np.frombuffer(text.encode(), dtype=np.uint8))


def test_declared_levels_are_spelled_as_those_of_tables() -> None:
    tables = {"north": {"y": [1.0, 2.0, 3.0], "b": [1, 2, 2]}}
    coding, misfits = agree("y ~ C(b)", tables, levels={"b": ["1.0", "2.00", "3"]})
    assert coding.levels == {"b": ("1", "2", "3")}
    assert misfits == {}
    with pytest.raises(FedRidgeError, match="must be distinct"):
        agree("y ~ C(b)", tables, levels={"b": ["1.0", "1"]})


def test_numbers_that_were_misread_do_not_leave_as_levels() -> None:
    """With a wrong decimal mark every number is text, and its values are data."""
    text = [f"{k},5" for k in range(30)]
    table = as_local_table(pd.DataFrame({"y": text, "a": text, "b": ["u", "v"] * 15}))
    profile = table.profile(TableFormula("y ~ a + b"))
    assert profile.columns["y"].levels == ()
    assert profile.columns["a"].levels is None
    assert profile.columns["b"].levels == ("u", "v")
    assert b",5" not in profile.to_array().tobytes()
    spoiled = {"y": [1.0] * 30, "a": text, "b": ["u", "v"] * 15}
    good = {"y": [1.0] * 30, "a": [float(k) for k in range(30)], "b": ["u", "v"] * 15}
    tables = {"good": good, "better": good, "spoiled": spoiled}
    _, misfits = agree("y ~ a + b", tables)
    assert "has text in 30 row(s)" in misfits["spoiled"]


@pytest.mark.parametrize("gap", [None, "u"])
def test_a_level_called_missing_is_refused_where_another_stands_for_missing_values(
    gap: str | None,
) -> None:
    table = {**NORTH, "b": [MISSING_LEVEL, "u", gap]}
    assert agree("y ~ b", {"north": table})[0].levels["b"] == (MISSING_LEVEL, "u")
    with pytest.raises(FedRidgeError, match=r"level '\(missing\)'.*rename it"):
        agree("y ~ b", {"north": table}, missing="indicator")


@pytest.mark.parametrize("text", ["y ~ b + `b[T.v]`", "y ~ a:c + `a:c`"])
def test_two_columns_of_one_name_are_named(text: str) -> None:
    more = {"b[T.v]": [1.0, 2.0, 5.0], "c": [2.0, 3.0, 3.0], "a:c": [1.0, 2.0, 9.0]}
    with pytest.raises(FedRidgeError, match="several columns of the model"):
        agree(text, {"north": {**NORTH, **more}})


def test_a_reference_that_nobody_has_ends_the_fit() -> None:
    with pytest.raises(FedRidgeError, match=r"'b' has no level 'w'.*'u', 'v'"):
        agree("y ~ C(b, Treatment('w'))", {"north": NORTH})


@pytest.mark.parametrize("total", [[10**400], [1e301], [1.0] * 3, [True], ["1"], 1.0])
def test_sums_that_would_overflow_are_refused_on_arrival(total: object) -> None:
    column = {"kind": "number", "missing": 0, "text": 0, "levels": [], "sum": total}
    content = {"rows": 3, "complete": 3, "columns": {"a": column}}
    text = json.dumps(content).encode()
    with pytest.raises(ProtocolError, match="damaged"):
        TableProfile.from_array(np.frombuffer(text, dtype=np.uint8))


@pytest.mark.parametrize(
    "entries",
    [["x"], ["1,234"], ["inf"], ["2%"], ["\u22122"], ["1,005"] * 50, ["3a"] * 40],
    ids=ascii,
)
def test_a_few_words_make_no_category_of_numbers(entries: list[str]) -> None:
    score = [*(str(k % 5) for k in range(40)), *entries]
    frame = pd.DataFrame({"y": np.arange(len(score)), "score": score})
    n = len(entries)
    with pytest.raises(DataError, match=rf"text in {n} row\(s\), and") as caught:
        read_table(frame, "y ~ score")
    message = str(caught.value)
    assert "the first in row 41, and numbers in 40 rows." in message
    assert "write C(score)" in message
    _, _, coding = read_table(frame, "y ~ C(score)")
    assert len(coding.levels["score"]) == 6
    declared = TableFormula("y ~ score", categorical=["score"])
    assert read_table(frame, declared)[2].levels == coding.levels
    spoiled, good = (
        each.to_dict("list") for each in (frame, frame.assign(score=frame["y"]))
    )
    tables = {"a": spoiled, "b": spoiled, "good": good}
    with pytest.raises(FedRidgeError, match="no table matches"):
        agree("y ~ score", tables)


def test_words_with_a_few_numbers_are_a_category() -> None:
    frame = pd.DataFrame({"y": [1.0, 2, 3, 4, 5], "g": ["a", "b", "a", "7", "12+"]})
    assert read_table(frame, "y ~ g")[2].levels["g"] == ("7", "12+", "a", "b")
