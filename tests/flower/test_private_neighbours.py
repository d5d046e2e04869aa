"""No single record decides whether a client answers a private request, or its words.

A refusal that depends on one record tells that the record is there, without any noise.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import fractions
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from fakes import node_context
from hypothesis import given, settings
from hypothesis import strategies as st
from test_private_requests import answer, privacy, private_request

from fedridge_flwr import FeatureMap, PrivacyPolicy, SitePolicy, ridge_client_app
from fedridge_flwr.data.coding import Coding
from fedridge_flwr.data.formula import TableFormula
from fedridge_flwr.errors import ProtocolError
from fedridge_flwr.federation.answering.respond import Guards, loaded_rows, respond
from fedridge_flwr.federation.answering.secure_respond import SecureGuard
from fedridge_flwr.federation.requests import AskKeys, AskRelease
from fedridge_flwr.federation.site.request_names import REQUESTS
from fedridge_flwr.flower.secure_memory import SecureMemory
from fedridge_flwr.privacy.curator import Curator, ReleaseRequest
from fedridge_flwr.privacy.release import ReleaseQuestion

D, N = 3, 4
BASE = [[0.1 * (i + j) for j in range(D)] for i in range(N)]
TARGETS = [0.5 * i for i in range(N)]


class Rude:
    """An object whose conversion fails in its own way."""

    def __float__(self) -> float:
        raise ZeroDivisionError("secret 4711")

    def __repr__(self) -> str:
        return "Rude()"


class Mute(Rude):
    """An object that has no text either."""

    def __str__(self) -> str:
        raise ZeroDivisionError("secret 4711")


cells = st.one_of(
    st.floats(width=64),
    st.integers(-(10**400), 10**400),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.none(),
    st.booleans(),
    st.complex_numbers(),
    st.lists(st.floats(), max_size=3),
    st.lists(st.lists(st.integers(), max_size=2), max_size=2),
    st.sampled_from(
        [
            {},
            {"a": 1},
            pd.NA,
            pd.NaT,
            pd.Timestamp("2020-01-01"),
            np.datetime64("2020-01-01"),
            np.array([1.0]),
            np.ma.masked,
            datetime.date(2020, 1, 1),
            decimal.Decimal("sNaN"),
            decimal.Decimal("1e400"),
            fractions.Fraction(10**400, 3),
            Rude(),
            Rude,
        ]
    ),
)
records = st.lists(cells, min_size=D, max_size=D)
of_any_length = st.one_of(cells, st.lists(cells, max_size=D + 2))


def objects(rows: list[Any]) -> np.ndarray:
    found = np.empty((len(rows), D), dtype=object)
    for i, row in enumerate(rows):
        for j, cell in enumerate(row):
            found[i, j] = cell
    return found


def ragged(rows: list[Any]) -> np.ndarray:
    found = np.empty(len(rows), dtype=object)
    for i, row in enumerate(rows):
        found[i] = row
    return found


def columns(rows: list[Any]) -> dict[str, list[Any]]:
    return {f"x{j}": [row[j] for row in rows] for j in range(D)}


def frame(rows: list[Any]) -> pd.DataFrame:
    found = {
        name: pd.Series(each, dtype=object) for name, each in columns(rows).items()
    }
    return pd.DataFrame(found)


def categories(rows: list[Any]) -> pd.DataFrame:
    """Return columns of categories, where the entries can be such."""
    return categories_of(frame(rows))


def categories_of(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose columns are categories, where the entries can be such."""
    found = table.copy()
    for name in found:
        with contextlib.suppress(TypeError, ValueError):  # a list is no category
            found[name] = found[name].astype("category")
    return found


def inferred(rows: list[Any]) -> pd.DataFrame:
    return frame(rows).infer_objects()


def of_polars(rows: list[Any]) -> pl.DataFrame:
    found = {}
    for name, values in columns(rows).items():
        try:
            found[name] = pl.Series(name, values, strict=False)
        except Exception:  # what polars has no type for, it keeps as objects
            found[name] = pl.Series(name, values, dtype=pl.Object)
    return pl.DataFrame(found)


RECTANGULAR = [objects, frame, categories, inferred, of_polars]
RAGGED = [list, tuple, ragged]


def told(*rows: Any) -> tuple[Any, ...]:
    """Return all of an answer but its noisy numbers."""
    content = answer(ridge_client_app(lambda _: rows), private_request())
    shapes = [
        (name, array.shape)
        for record in content.array_records.values()
        for name, array in record.items()
    ]
    return shapes, dict(content["config"]), dict(content.metric_records)


def same(kind: Any, record: Any, target: Any, y_kind: Any = list) -> None:
    before = told(kind(BASE), y_kind(TARGETS))
    after = told(kind([*BASE, record]), y_kind([*TARGETS, target]))
    assert before == after
    assert before[0]


@pytest.mark.parametrize("kind", RECTANGULAR)
@given(record=records, target=cells)
@settings(max_examples=60, deadline=None)
def test_any_record_in_a_table(kind, record, target):
    same(kind, record, target)


@pytest.mark.parametrize("kind", RAGGED)
@given(record=of_any_length, target=of_any_length)
@settings(max_examples=60, deadline=None)
def test_any_record_of_any_length(kind, record, target):
    same(kind, record, target)


@pytest.mark.parametrize("kind", [list, ragged, pd.Series])
@given(target=cells)
@settings(max_examples=30, deadline=None)
def test_any_target(kind, target):
    same(objects, [1.0] * D, target, kind)


@pytest.mark.parametrize(
    "record", [["n/a"] * D, [], [1.0, [2.0], 3.0], [1.0] * (D + 1), None, 7.0]
)
def test_records_that_used_to_decide(record):
    """One of another length, a cell that is a list, a category that is no number."""
    same(list, record, 1.0)
    if record and len(record if isinstance(record, list) else ()) == D:
        same(categories, record, 1.0)


def test_a_weight_that_is_no_number_is_refused_like_any_other():
    X, y = objects(BASE), TARGETS
    good, bad = np.ones(N), np.array([1.0, np.nan, -1.0, 1.0])
    weights = (good, bad, np.array([]), ["n/a"])
    (error,) = {told(X, y, weight)[1]["error"] for weight in weights}
    assert "none for sample weights" in error


def test_a_feature_map_that_is_too_wide_is_declined():
    wide = FeatureMap.from_text("fourier 20000 gamma=0.1")
    release = ReleaseRequest("0" * 32, privacy(), True, ReleaseQuestion())
    request = AskRelease(release, feature_map=wide)
    guards = Guards(curator=Curator(PrivacyPolicy(1.0, 1e-5)))
    with pytest.raises(ProtocolError, match="at most 8192"):
        respond(request, lambda: (BASE, TARGETS, None), guards)
    assert not guards.curator.past


# ---- tables -------------------------------------------------------------------------

TABLE = {"y": TARGETS, "g": ["a", "b", "a", "b"], "x": [0.1, 0.2, 0.3, 0.4]}
LEVELS = {"g": ("a", "b")}
ODD = ["other", "", "1", None, np.nan, np.inf, 0.0, -1.0, 1e308, 2**70, True]
ODD += [pd.NaT, datetime.date(2020, 1, 1), [1.0], Rude(), Mute(), "\ud800"]
CODINGS = [
    Coding(TableFormula("y ~ x + C(g)"), ("x", "g"), LEVELS),
    Coding(TableFormula("y ~ C(g):x + log(x)"), ("g", "x"), LEVELS),
    Coding(TableFormula("log(y) ~ x"), ("x",)),
    Coding(TableFormula("y ~ x", missing="error"), ("x",)),
    Coding(TableFormula("y ~ x", missing="mean"), ("x",), {}, {"x": 0.5}),
]


@pytest.mark.parametrize("coding", CODINGS, ids=lambda coding: coding.formula.text)
@pytest.mark.parametrize("task", [AskRelease, AskKeys])
@pytest.mark.parametrize("column", TABLE)
@pytest.mark.parametrize("kind", [pd.DataFrame, categories_of])
def test_no_record_of_a_table_is_refused_by_a_coding_of_the_server(
    coding: Coding, task: Any, column: str, kind: Any
) -> None:
    """A server that tells which levels there are would hear whether there are more."""
    for cell in ODD:
        table = pd.DataFrame(TABLE).astype(object)
        table.at[1, column] = cell
        found = asked_of_a_table(kind(table), coding, secure=task is AskKeys)
        assert found.count == 1
    rows = pd.DataFrame(TABLE)[:1].assign(**{column: "odd"})
    assert asked_of_a_table(rows, coding, secure=task is AskKeys).count == 1


def asked_of_a_table(table: pd.DataFrame, coding: Coding, *, secure: bool) -> Any:
    asked = ReleaseRequest(
        "0" * 32,
        privacy(trust="secagg" if secure else "local"),
        True,
        ReleaseQuestion(),
        secure,
    )
    request: Any = AskRelease(asked, coding=coding)
    policies: Any = (SitePolicy(max_epsilon=1e9, requests=REQUESTS),)
    guards = Guards(curator=Curator(), policies=policies)
    if secure:
        request = AskKeys(bytes(16), asked, coding=coding)
        memory = SecureMemory(node_context(0, 1))
        guards = Guards(curator=Curator(), secure=SecureGuard(memory))
    return respond(request, lambda: loaded_rows(table, request, "it"), guards)
