"""Attacks of a server that makes up formulas and codings for a site's whole table.

Each reads one patient, or whether there is one, without a site policy, and gets nothing
from a site that has one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedridge_flwr import PolicyError, SitePolicy, SufficientStatistics, TableFormula
from fedridge_flwr.data.coding import Coding
from fedridge_flwr.data.table_profile import TableProfile
from fedridge_flwr.errors import ColumnNamesError, DataError
from fedridge_flwr.federation.answering.respond import Guards, loaded_rows, respond
from fedridge_flwr.federation.requests import AskEvaluation, AskStatistics, AskTable
from fedridge_flwr.flower.error_text import DECLINED, readable_error

N, SECRET = 200, 17
POLICY = SitePolicy.preset(5)


def table(seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "stay": rng.exponential(9.0, N),
            "age": rng.integers(20, 90, N).astype(float),
            "bmi": rng.uniform(18.0, 40.0, N).round(1),
            "sex": rng.choice(["f", "m"], N),
            "ward": np.where(np.arange(N) % 2, "north", "south"),
            "name": [f"patient {k}" for k in range(N)],
        }
    )
    frame.loc[SECRET, "bmi"] = np.nan
    return frame


def asked(request: Any, frame: pd.DataFrame, *policies: SitePolicy) -> Any:
    """Return the answer of a site to a server that asks as it likes."""
    guards = Guards(policies=policies)
    return respond(request, lambda: loaded_rows(frame, request, "the table"), guards)


def statistics(
    coding: Coding, frame: pd.DataFrame, *policies: SitePolicy
) -> SufficientStatistics:
    answer = asked(AskStatistics(coding=coding), frame, *policies)
    d = len(coding.names)
    array = answer.arrays["statistics"]
    return SufficientStatistics.from_array(array, d, count=answer.count)


def filled_with(mean: float) -> Coding:
    formula = TableFormula("stay ~ age + bmi", missing="mean")
    return Coding(formula, ("age", "bmi"), {}, {"bmi": mean})


def test_a_patient_from_two_values_for_what_is_missing() -> None:
    frame = table()
    one, two = (statistics(filled_with(mean), frame) for mean in (0.0, 1.0))
    age = (two.gram - one.gram)[0, 1]  # of the one row that is filled in
    assert age == pytest.approx(frame["age"][SECRET], rel=1e-9)
    for mean in (0.0, 1.0):
        with pytest.raises(PolicyError, match=r"missing\(bmi\).*only 1 row"):
            statistics(filled_with(mean), frame, POLICY)


def test_values_that_are_missing_often_enough_are_filled_in() -> None:
    frame = table()
    frame.loc[:4, "bmi"] = np.nan
    assert statistics(filled_with(25.0), frame, POLICY).count == N


def test_a_patient_from_sums_before_the_fit(tmp_path: Path) -> None:
    """The mean of a column is over all rows, the statistics over complete ones."""
    frame = table()
    policy = SitePolicy(min_row_difference=5, state=tmp_path)
    means = AskTable(TableFormula("stay ~ age", missing="mean"))
    complete = Coding(TableFormula("stay ~ age + bmi"), ("age", "bmi"))

    def attack(*policies: SitePolicy) -> float:
        answer = asked(means, frame, *policies)
        told = TableProfile.from_array(answer.arrays["profile"]).columns["age"]
        stats = statistics(complete, frame, *policies)
        return float(sum(told.present_sum) - stats.count * stats.feature_means[0])

    assert attack() == pytest.approx(frame["age"][SECRET], rel=1e-9)
    with pytest.raises(PolicyError, match="earlier upload in 1 row"):
        attack(policy)


def test_sums_are_told_of_features_only() -> None:
    asks = AskTable(TableFormula("stay ~ age", missing="mean", weights="bmi"))
    told = TableProfile.from_array(asked(asks, table()).arrays["profile"]).columns
    assert {name: len(column.present_sum) for name, column in told.items()} == {
        "age": 2,
        "stay": 0,
        "bmi": 0,
    }


def made_up(*levels: str) -> Coding:
    return Coding(TableFormula("stay ~ C(name)"), ("name",), {"name": levels})


@pytest.mark.parametrize("ask", [AskStatistics, AskEvaluation])
def test_whether_somebody_is_there_by_levels_that_are_made_up(ask: Any) -> None:
    def told(coding: Coding, *policies: SitePolicy) -> str:
        more = {} if ask is AskStatistics else {"model": None}
        try:
            asked(ask(coding=coding, **more), table(), *policies)
        except (DataError, PolicyError) as error:
            return readable_error(error, share_names=True)
        raise AssertionError("an answer")

    present, absent = made_up("patient 3", "x"), made_up("nobody", "x")
    assert told(present) != told(absent)
    for policy in (POLICY, SitePolicy(forbidden_columns=["name"])):
        assert told(present, policy) == told(absent, policy) == DECLINED


def test_a_column_that_is_not_there_is_no_secret() -> None:
    coding = Coding(TableFormula("stay ~ height"), ("height",))
    with pytest.raises(ColumnNamesError, match="no column 'height'"):
        statistics(coding, table(), POLICY)


def test_forbidden_columns_are_not_even_read() -> None:
    policy = SitePolicy(forbidden_columns=["name"])
    guards = Guards(policies=(policy,))

    def load() -> Any:
        raise AssertionError("the table was read")

    formula = TableFormula("stay ~ age", weights="name")
    for request in (
        AskTable(formula),
        AskStatistics(coding=Coding(formula, ("age",))),
        AskStatistics(coding=made_up("a", "b")),
    ):
        with pytest.raises(PolicyError, match="forbidden: 'name'"):
            respond(request, load, guards)
    with pytest.raises(PolicyError, match="forbidden: 'name'"):
        asked(AskTable(TableFormula("stay ~ .")), table(), policy)


@pytest.mark.parametrize("spelled", ["NAME", " Name", "ＮＡＭＥ"])
def test_a_forbidden_column_is_forbidden_in_any_letters(spelled: str) -> None:
    policy = SitePolicy(forbidden_columns=[spelled])
    with pytest.raises(PolicyError, match="forbidden: 'name'"):
        asked(AskTable(TableFormula("stay ~ C(name)")), table(), policy)


def test_a_product_of_numbers_is_a_map_however_it_is_written() -> None:
    frame = table().dropna()
    maps = SitePolicy(requests=["statistics", "feature_maps"])
    for text in ("stay ~ age:bmi", "stay ~ age*bmi", "stay ~ I(age*bmi)"):
        coding = Coding(TableFormula(text), ("age", "bmi"))
        with pytest.raises(PolicyError, match="feature_maps"):
            statistics(coding, frame, POLICY)
        assert statistics(coding, frame, maps).count == N - 1
    by_group = Coding(
        TableFormula("stay ~ age*sex"), ("age", "sex"), {"sex": ("f", "m")}
    )
    assert statistics(by_group, frame, POLICY).count == N - 1


def test_the_cell_of_an_interaction_that_has_no_column() -> None:
    """Rows of one level without those of an interaction with it are the rest."""
    frame = table()
    frame["ward"] = np.where(frame["sex"] == "f", "south", frame["ward"])
    levels = {"sex": ("f", "m"), "ward": ("south", "north")}
    coding = Coding(
        TableFormula("stay ~ age + sex*ward"), ("age", "sex", "ward"), levels
    )
    secret = int(np.flatnonzero((frame["sex"] == "m") & (frame["ward"] == "south"))[0])
    others = (frame["sex"] == "m") & (frame["ward"] == "south") & (frame.index > secret)
    frame.loc[others, "ward"] = "north"
    stats = statistics(coding, frame)
    at = {name: j for j, name in enumerate(coding.names)}
    male, both = at["sex[T.m]"], at["sex[T.m]:ward[T.north]"]
    age = stats.gram[at["age"], male] - stats.gram[at["age"], both]
    assert age == pytest.approx(frame["age"][secret], rel=1e-9)
    with pytest.raises(PolicyError, match=r"'sex:ward' has a level with only 1 row"):
        statistics(coding, frame, POLICY)
