"""Codings: one set of columns for all sites, and the numbers of a pooled fit."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from formulaic import Formula
from hypothesis import given, settings
from hypothesis import strategies as st

from fedridge_flwr import DataError, FedRidgeError, PrivacyError, TableFormula
from fedridge_flwr.data.coding import MISSING_LEVEL, Coding
from fedridge_flwr.data.formula_tree import FUNCTIONS

FORMULAS = [
    "y ~ a + C(b) + c",
    "y ~ a*C(b) + C(c):a",
    "y ~ 0 + C(b) + a",
    "y ~ C(b):C(c) + I(a**2)",
    "y ~ C(b, Treatment('v')) + log1p(abs(a))",
    "y ~ b + c + b:c",
]
LEVELS = {"b": ("u", "v", "w"), "c": ("0", "1")}


def frame(n: int = 40, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "y": rng.normal(size=n),
            "a": rng.normal(size=n),
            "b": rng.choice(LEVELS["b"], n),
            "c": rng.choice(LEVELS["c"], n),
        }
    )


def arrow(data: pd.DataFrame) -> dict[str, Any]:
    table = pa.table(data)
    return {name: table.column(name).combine_chunks() for name in table.column_names}


def coding_of(text: str, **more: Any) -> Coding:
    named = TableFormula(text).columns
    coded = [column for column in ("b", "c") if column in named]
    formula = TableFormula(text, categorical=coded, **more)
    levels = {c: LEVELS[c] for c in formula.columns if c in LEVELS}
    if "Treatment" not in text and "C(c)" not in text and "c" in formula.columns:
        levels.setdefault("c", LEVELS["c"])
    return Coding(formula, formula.columns, levels)


@pytest.mark.parametrize("text", FORMULAS)
def test_the_columns_are_those_of_formulaic_on_all_rows(text: str) -> None:
    data, coding = frame(), coding_of(text)
    pooled = data.copy()
    for column, levels in coding.levels.items():
        pooled[column] = pd.Categorical(pooled[column], categories=list(levels))
    context = {**FUNCTIONS, "Treatment": _treatment()}
    expected = Formula(text).get_model_matrix(pooled, context=context)
    right = expected.rhs.drop(columns="Intercept", errors="ignore")
    rows = coding.code(arrow(data))
    assert coding.names == tuple(right.columns)
    np.testing.assert_array_equal(rows.X, right.to_numpy(dtype=float))
    np.testing.assert_array_equal(rows.Y[:, 0], data["y"])


def _treatment() -> Any:
    from formulaic.transforms.contrasts import TreatmentContrasts

    return lambda reference: TreatmentContrasts(base=reference)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(FORMULAS), st.integers(1, 39))
def test_any_part_of_a_table_is_coded_as_in_the_whole(
    seed: int, text: str, cut: int
) -> None:
    """The columns follow from the coding, and from no row: parts may lack levels."""
    data, coding = frame(seed=seed), coding_of(text)
    whole = coding.code(arrow(data)).X
    parts = [coding.code(arrow(part)).X for part in (data[:cut], data[cut:])]
    np.testing.assert_array_equal(np.vstack(parts), whole)


@pytest.mark.parametrize(
    "spelled",
    [[1, 2, 2], [1.0, 2.0, 2.0], ["1", "2", "2"], ["1.0", "2.00", " 2"]],
    ids=str,
)
def test_1_and_1_point_0_and_text_are_one_level(spelled: list[Any]) -> None:
    coding = Coding(TableFormula("y ~ C(cp)"), ("cp",), {"cp": ("1", "2")})
    table = {"y": pa.array([1.0, 2.0, 3.0]), "cp": pa.array(spelled)}
    rows = coding.code(table)
    assert rows.X.tolist() == [[0.0], [1.0], [1.0]]
    assert rows.level_counts == {"cp": {"1": 1, "2": 2}}


TABLE = {
    "y": pa.array([1.0, 2.0, None, 4.0]),
    "a": pa.array([1.0, None, 3.0, 5.0]),
    "b": pa.array(["u", "v", "v", None]),
}


def coded(missing: str, **agreed: Any) -> Any:
    formula = TableFormula("y ~ a + b", missing=missing)
    levels = agreed.pop("levels", {"b": ("u", "v")})
    return Coding(formula, ("a", "b"), levels, **agreed)


def test_drop_leaves_out_rows_in_which_anything_is_missing() -> None:
    rows = coded("drop").code(TABLE)
    assert rows.kept.tolist() == [True, False, False, False]
    assert rows.X.tolist() == [[1.0, 0.0]]


def test_mean_stands_for_missing_numbers_only() -> None:
    rows = coded("mean", means={"a": 3.5}).code(TABLE)
    assert rows.kept.tolist() == [True, True, False, False]
    assert rows.X.tolist() == [[1.0, 0.0], [3.5, 1.0]]


def test_indicator_keeps_every_row_that_has_a_target() -> None:
    coding = coded(
        "indicator",
        means={"a": 3.5},
        indicators=("a",),
        levels={"b": ("u", "v", MISSING_LEVEL)},
    )
    rows = coding.code(TABLE)
    assert coding.names == ("a", "b[T.v]", "b[T.(missing)]", "missing(a)")
    assert rows.kept.tolist() == [True, True, False, True]
    assert rows.X.tolist() == [[1, 0, 0, 0], [3.5, 1, 0, 1], [5, 0, 1, 0]]


def test_error_names_columns_and_counts() -> None:
    with pytest.raises(DataError, match="1 in 'a', 1 in 'b', 1 in 'y'"):
        coded("error").code(TABLE)


def test_an_unknown_level_is_an_error_or_missing() -> None:
    table = {**TABLE, "b": pa.array(["u", "secret", "v", "v"])}
    with pytest.raises(DataError, match=r"'b' has 1 value\(s\)") as error:
        coded("drop").code(table)
    assert "secret" not in str(error.value)
    rows = coded("drop").code(table, with_target=False, unknown_is_missing=True)
    assert rows.kept.tolist() == [True, False, True, True]


def test_a_function_that_has_no_value_names_its_column() -> None:
    coding = Coding(TableFormula("y ~ log(a)"), ("a",))
    with pytest.raises(DataError, match=r"log\(a\) is not a finite number in 1 row"):
        coding.code({"y": pa.array([1.0, 2.0]), "a": pa.array([0.0, 1.0])})


def test_text_in_a_number_is_named_without_its_value() -> None:
    coding = Coding(TableFormula("y ~ a"), ("a",))
    with pytest.raises(DataError, match="column 'a'") as error:
        coding.code({"y": pa.array([1.0, 2.0]), "a": pa.array(["1", "Smith"])})
    assert "Smith" not in str(error.value)


def test_weights_are_a_column() -> None:
    formula = TableFormula("y ~ a", weights="w")
    table = {**TABLE, "w": pa.array([2.0, 1.0, 1.0, None])}
    rows = Coding(formula, ("a",)).code(table)
    assert rows.weight.tolist() == [2.0]


def test_a_coding_travels() -> None:
    coding = coded("mean", means={"a": 0.1 + 0.2})
    assert Coding.from_json(coding.to_json()) == coding
    assert hash(Coding.from_json(coding.to_json())) == hash(coding)


def _change(**changes: Any) -> str:
    return json.dumps({**coded("mean", means={"a": 3.5}).content(), **changes})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "not json",
        3,
        _change(columns=["a"]),
        _change(columns=["a", "b", "z"]),
        _change(columns="ab"),
        _change(agreed_levels={"b": ["u", "u"]}),
        _change(agreed_levels={"b": []}),
        _change(agreed_levels={"b": [1]}),
        _change(agreed_levels={"z": ["u"]}),
        _change(means={"a": "1"}),
        _change(means={"a": True}),
        _change(indicators=["z"]),
        _change(formula="y ~ I(exec('1'))"),
        _change(means={"a": 1e999}),
    ],
)
def test_a_coding_from_elsewhere_is_not_trusted(text: Any) -> None:
    with pytest.raises(FedRidgeError):
        Coding.from_json(text)


def test_with_privacy_everything_must_be_known_before() -> None:
    with pytest.raises(PrivacyError, match="levels= for 'b'"):
        Coding.public(TableFormula("y ~ C(b)"))
    with pytest.raises(PrivacyError):
        Coding.public(TableFormula("y ~ ."))
    with pytest.raises(PrivacyError):
        Coding.public(TableFormula("y ~ a", missing="mean"))
    known = Coding.public(TableFormula("y ~ a + C(b)", levels={"b": ["u", "v"]}))
    assert known.names == ("a", "C(b)[T.v]")


def test_a_column_of_the_name_intercept_is_a_column() -> None:
    coding = Coding(TableFormula("y ~ 0 + Intercept + a"), ("Intercept", "a"))
    assert coding.names == ("Intercept", "a")


def test_a_level_called_missing_is_a_level_unless_it_stands_for_missing_values() -> (
    None
):
    told = {"y": [1.0, 2.0, 3.0, 4.0], "b": [MISSING_LEVEL, "u", None, "u"]}
    coding = Coding(TableFormula("y ~ b"), ("b",), {"b": (MISSING_LEVEL, "u")})
    rows = coding.code(arrow(pd.DataFrame(told)))
    assert rows.kept.tolist() == [True, True, False, True]
    assert rows.level_counts["b"] == {MISSING_LEVEL: 1, "u": 2}
    assert rows.X.tolist() == [[0.0], [1.0], [1.0]]


@pytest.mark.parametrize("reference", ["9", "2.0", "U"])
def test_a_reference_that_is_no_level_is_refused_with_those_there_are(
    reference: str,
) -> None:
    text = f"y ~ C(c, Treatment('{reference}'))"
    coding = Coding(TableFormula(text), ("c",), {"c": ("1", "2", "u")})
    with pytest.raises(FedRidgeError, match=r"'c' has no level .*'1', '2', 'u'"):
        _ = coding.names


def test_a_coding_that_would_fill_the_memory_is_refused_at_once() -> None:
    many = [f"level {k}" for k in range(200)]
    crossed = Coding(TableFormula("y ~ b:c"), ("b", "c"), {"b": many, "c": many})
    with pytest.raises(FedRidgeError, match="40001 columns; at most 10000"):
        _ = crossed.names
    text = Coding(TableFormula("y ~ b"), ("b",), {"b": list(map(str, range(100_000)))})
    with pytest.raises(FedRidgeError, match="'b' has 100000 levels; at most 200"):
        _ = Coding.from_json(text.to_json()).names


def test_counts_are_of_levels_cells_and_gaps() -> None:
    formula = TableFormula("y ~ b*c + a", missing="mean")
    coding = Coding(formula, ("b", "c", "a"), LEVELS, {"a": 0.0})
    data = frame()
    data.loc[:2, "a"] = np.nan
    counts = coding.code(arrow(data)).level_counts
    assert counts["b"] == data["b"].value_counts().to_dict()
    assert sorted(counts["b:c"].values()) == sorted(data.groupby(["b", "c"]).size())
    assert counts["missing(a)"] == {"yes": 3, "no": 37}


@pytest.mark.parametrize(
    "more",
    [
        {"means": {"a": 10**400}},
        {"means": {"b": 1.0}},
        {"indicators": ["a"]},
        {"means": {"a": 1.0}, "indicators": ["a", "a"]},
        {"means": {"a": 1.0}, "indicators": ["b"]},
    ],
)
def test_a_coding_fills_in_numbers_only(more: dict[str, Any]) -> None:
    coding = Coding(TableFormula("y ~ a + b"), ("a", "b"), {"b": ("u", "v")})
    with pytest.raises(FedRidgeError, match="the coding"):
        Coding.from_json(json.dumps({**coding.content(), **more}))
