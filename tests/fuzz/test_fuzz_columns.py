"""One client whose table is not like those of the others: right, or named, never wrong.

At a random client columns are permuted, renamed, retyped, dropped or added, or come in
another kind of table, in both APIs. The model must be the pooled ridge, by name, of the
clients that it says are in it, and all others must be named with a reason.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fakes import InProcessGrid, fit
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import Ridge

from fedridge_flwr import (
    FedRidge,
    LegacyFedRidge,
    NotEnoughClientsError,
    ridge_client_app,
)

pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

K, N, NAMES, TARGETS = 4, 25, "abcd", "uv"
BARE = ("numpy", "lists", "sparse")
NAMED = ("pandas", "polars", "pyarrow", "batch")
HARMLESS = ("none", "order", "integers", "decimals", "objects", "target order")
HARMFUL = ("rename", "drop", "add", "text", "dates", "target rename", "target drop")


@dataclass(frozen=True)
class Case:
    """A federation of like tables, and what is different at one client."""

    kind: str
    other_kind: str
    change: str
    order: tuple[str, ...]
    targets: str
    column: str
    client: int
    server_names: bool
    share: bool
    older_api: bool
    mode: str

    @property
    def is_bare(self) -> bool:
        return self.kind in BARE

    @property
    def mixes(self) -> bool:
        """Whether one client has names and the others do not, or the other way."""
        return self.is_bare != (self.other_kind in BARE)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kinds = st.sampled_from(BARE + NAMED)
    kind = draw(kinds)
    other = draw(st.just(kind) | kinds)
    changes = st.sampled_from(HARMLESS + HARMFUL)
    change = draw(changes)
    if other in BARE and change not in ("none", "drop", "add"):
        change = "none"  # positions are all there is
    return Case(
        *(kind, other, change),
        tuple(draw(st.permutations(NAMES))),
        draw(st.sampled_from(["u", "uv"])),
        draw(st.sampled_from(NAMES)),
        draw(st.integers(0, K - 1)),
        draw(st.booleans()) and kind not in BARE,
        *(draw(st.booleans()), draw(st.booleans())),
        draw(st.sampled_from(["oneshot", "oneshot", "refine", "cg"])),
    )


def rows_of(k: int, integers: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the columns of a client: true values by name."""
    rng = np.random.default_rng(k)
    X = dict(
        zip(
            NAMES, rng.normal(size=(len(NAMES), N)) + np.arange(4)[:, None], strict=True
        )
    )
    if integers:
        X[integers] = np.round(8 * X[integers])
    noise = 0.1 * rng.normal(size=N)
    u = X["a"] + 20 * X["b"] - 5 * X["c"] + 3 + noise
    return X, {"u": u, "v": X["d"] - 7 * X["a"]}


def table(kind: str, columns: dict[str, Any]) -> Any:
    if kind == "pandas":
        return pd.DataFrame(columns)
    if kind == "polars":
        return pl.DataFrame(columns)
    if kind == "pyarrow":
        return pa.table(columns)
    if kind == "batch":
        return pa.record_batch(columns)
    values = np.column_stack(list(columns.values()))
    if kind == "sparse":
        return sparse.csr_array(values)
    return values.tolist() if kind == "lists" else values


def data_of(case: Case, k: int) -> tuple[Any, Any]:
    changed = k == case.client
    kind, change = (case.other_kind, case.change) if changed else (case.kind, "none")
    X, Y = rows_of(k, case.column if changed and change == "integers" else "")
    Y = {name: Y[name] for name in case.targets}
    if change == "order":
        X = {name: X[name] for name in case.order}
    elif change == "rename":
        X = {f"{n}_1" if n == case.column else n: v for n, v in X.items()}
    elif change == "drop":
        X.pop(case.column)
    elif change == "add":
        X["extra"] = X["a"] ** 2
    elif change == "integers":
        X[case.column] = X[case.column].astype(int)
    elif change == "decimals":
        X[case.column] = [Decimal(repr(float(v))) for v in X[case.column]]
    elif change == "objects" and kind == "pandas":
        X[case.column] = X[case.column].astype(object)
    elif change == "text":
        X[case.column] = [f"{v:.3f}" for v in X[case.column]]
    elif change == "dates":
        start = datetime.date(2020, 1, 1)
        X[case.column] = [
            start + datetime.timedelta(int(9 * v)) for v in X[case.column]
        ]
    elif change == "target order":
        Y = dict(reversed(Y.items()))
    elif change == "target rename":
        Y = {f"{name}_1": value for name, value in Y.items()}
    elif change == "target drop" and len(Y) > 1:
        Y.pop("u")
    target_kind = "numpy" if kind in ("sparse", "lists") else kind
    return table(kind, X), table(target_kind, Y)


def is_harmless(case: Case) -> bool:
    if case.mixes:
        return False
    if case.change == "target drop":
        return case.targets == "u"
    return case.change in HARMLESS


def check(case: Case) -> None:
    event(case.change)
    app = ridge_client_app(
        lambda context: data_of(case, context.node_config["partition-id"]),
        share_feature_names=case.share,
    )
    options: dict[str, Any] = {"alpha": 0.5, "mode": case.mode, "tol": 1e-13}
    if case.server_names:
        options["feature_names"] = list(NAMES)
    grid = InProcessGrid.of_app(app, K)
    if case.older_api:
        strategy: Any = LegacyFedRidge(min_available_clients=K, **options)
    else:
        strategy = FedRidge(min_available_nodes=K, **options)
    fit(strategy, grid, 60 if case.mode != "oneshot" else 1)
    report, model = strategy.report_, strategy.model_
    everybody = {str(1000 + k) for k in range(K)}
    changed = str(1000 + case.client)
    inside = set(report.participants)
    assert inside | set(report.failures) == everybody
    assert not inside & set(report.failures)
    assert inside >= everybody - {changed}, report.failures
    assert (changed in inside) == is_harmless(case), report.failures
    X, Y = zip(
        *(
            rows_of(
                k,
                case.column if k == case.client and case.change == "integers" else "",
            )
            for k in range(K)
            if str(1000 + k) in inside
        ),
        strict=True,
    )
    pooled_X = np.concatenate([np.column_stack(list(each.values())) for each in X])
    wanted = [np.column_stack([each[t] for t in case.targets]) for each in Y]
    pooled = Ridge(alpha=0.5, solver="cholesky").fit(pooled_X, np.concatenate(wanted))
    coef = np.atleast_2d(model.coef_)
    np.testing.assert_allclose(coef, np.atleast_2d(pooled.coef_), rtol=1e-9, atol=1e-9)
    # predict takes columns by name, whatever their order.
    if not case.is_bare:
        rows = {name: X[0][name] for name in case.order}
        np.testing.assert_allclose(
            np.reshape(model.predict(table(case.kind, rows)), (N, -1)),
            np.reshape(pooled.predict(pooled_X[:N]), (N, -1)),
            rtol=1e-8,
            atol=1e-8,
        )


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases())
def test_a_table_unlike_the_others_is_right_or_named(case: Case) -> None:
    check(case)


@pytest.mark.slow
@settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases())
def test_two_thousand_tables_unlike_the_others(case: Case) -> None:
    check(case)


def test_nobody_agrees_and_nobody_is_in_a_model_alone() -> None:
    tables = [pd.DataFrame({f"x{k}": [1.0, 2.0, 4.0]}) for k in range(3)]
    app = ridge_client_app(
        lambda context: (tables[context.node_config["partition-id"]], [1.0, 2.0, 3.0])
    )
    strategy = FedRidge(min_train_nodes=2, min_available_nodes=3)
    with pytest.raises(NotEnoughClientsError, match="other feature names"):
        strategy.start(InProcessGrid.of_app(app, 3), timeout=120)
