"""Clients that return finished statistics: exact, guarded, and refused where rows are
needed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fakes import InProcessGrid, fit
from generators import relative_error
from sklearn.linear_model import Ridge

from fedridge_flwr import (
    DataError,
    DifferentialPrivacy,
    FeatureMap,
    FedRidge,
    FixedPointStatistics,
    LegacyFedRidge,
    NotEnoughClientsError,
    PlainStatistics,
    PolicyError,
    SecureSum,
    SitePolicy,
    SufficientStatistics,
    TriangularStatistics,
    ridge_client_app,
)
from fedridge_flwr.federation.answering.respond import Guards, respond
from fedridge_flwr.federation.requests import AskStatistics
from fedridge_flwr.statistics.packing import pack, unpack

K, NAMES = 4, ["a", "b", "c"]
strategies = pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
Make = Callable[[pd.DataFrame, pd.Series], Any]


def rows_of(k: int) -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(k)
    X = rng.normal(loc=k, size=(20 + k, 3))
    y = X[:, 0] - X[:, 1] + rng.normal(size=len(X))
    return pd.DataFrame(X, columns=NAMES), pd.Series(y, name="y")


def pooled(clients: range = range(K)) -> tuple[np.ndarray, np.ndarray]:
    X, y = zip(*map(rows_of, clients), strict=True)
    return np.vstack(X), np.concatenate(y)


def run(make: Make, kind: Any = FedRidge, client: Any = None, **settings: Any) -> Any:
    """Fit with the first client's rows as `make` returns them, the others' as usual."""

    def load_data(context: Any) -> Any:
        k = int(context.node_config["partition-id"])
        return make(*rows_of(k)) if k == 0 else rows_of(k)

    app = ridge_client_app(load_data, **(client or {}))
    given = {"min_available_nodes": K, "strict": False, **settings}
    return fit(kind(**given), InProcessGrid.of_app(app, K))


def reason(strategy: Any) -> str:
    (found,) = strategy.report_.failures.values()
    return str(found)


# ---- exact --------------------------------------------------------------------------


@strategies
@pytest.mark.parametrize(
    "form", [SufficientStatistics, TriangularStatistics, FixedPointStatistics]
)
def test_finished_statistics_are_the_pooled_fit(kind: Any, form: Any) -> None:
    strategy = run(form.from_data, kind)
    expected = Ridge(1.0).fit(*pooled())
    assert strategy.statistics_.n_clients == K
    assert relative_error(strategy.model_.coef_, expected.coef_) < 1e-12


def test_columns_in_another_order_are_brought_into_that_of_the_fit() -> None:
    def other_order(X: pd.DataFrame, y: pd.Series) -> SufficientStatistics:
        return SufficientStatistics.from_data(X[["c", "a", "b"]], y)

    strategy = run(other_order)
    expected = Ridge(1.0).fit(*pooled())
    assert strategy.statistics_.n_clients == K
    assert relative_error(strategy.model_.coef_, expected.coef_) < 1e-12


def test_triangular_statistics_answer_a_triangular_fit() -> None:
    strategy = run(TriangularStatistics.from_data, statistics="triangular")
    expected = Ridge(1.0).fit(*pooled())
    assert strategy.statistics_.n_clients == K
    assert relative_error(strategy.model_.coef_, expected.coef_) < 1e-12


def test_a_map_is_fine_if_the_statistics_went_through_the_same() -> None:
    same = FeatureMap.from_text("polynomial 2")

    def mapped(X: pd.DataFrame, y: pd.Series) -> SufficientStatistics:
        return SufficientStatistics.from_data(X, y, feature_map=same)

    strategy = run(mapped, feature_map=same)
    everybody = run(lambda X, y: (X, y), feature_map=same)
    assert strategy.statistics_.n_clients == K
    found, expected = strategy.model_.coef_, everybody.model_.coef_
    assert relative_error(found, expected) < 1e-12


def test_the_total_of_a_fit_is_a_client_of_another() -> None:
    region = run(lambda X, y: (X, y))
    both = run(lambda X, y: region.statistics_)
    X, y = zip(pooled(), pooled(range(1, K)), strict=True)
    expected = Ridge(1.0).fit(np.vstack(X), np.concatenate(y))
    assert relative_error(both.model_.coef_, expected.coef_) < 1e-12
    assert both.statistics_.n_clients == K


def test_auto_takes_them_where_one_shot_is_chosen() -> None:
    assert run(SufficientStatistics.from_data, mode="auto").statistics_.n_clients == K


# ---- refused where rows are needed ---------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mode": "cg"}, 'use mode="oneshot", or let load_data return the rows'),
        ({"feature_map": FeatureMap.from_text("polynomial 2")}, "behind none"),
        ({"statistics": "fixed"}, 'use statistics="moments"'),
        ({"statistics": "triangular"}, 'use statistics="moments"'),
        ({"classes": ["0", "1"]}, "asks for labels"),
        ({"family": "poisson"}, "asks for a family: let"),
        ({"standard_errors": "HC3"}, 'use standard_errors="classical"'),
        ({"alphas": [0.1, 1.0], "cv": "clients"}, 'use cv="server"'),
        ({"formula": "y ~ a + b"}, "leave out formula="),
        ({"fraction_evaluate": 1.0}, "pass load_eval_data="),
    ],
    ids=str,
)
def test_what_needs_rows_is_refused_with_the_remedy(
    settings: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.suppress(NotEnoughClientsError):  # the others' rows may not fit
        run(SufficientStatistics.from_data, **settings)
    assert "let load_data return the rows" in caplog.text
    assert said in caplog.text


def test_secure_sums_need_rows() -> None:
    strategy = run(SufficientStatistics.from_data, secure=SecureSum(min_clients=3))
    assert "let load_data return the rows" in reason(strategy)


def test_so_do_private_releases() -> None:
    private = DifferentialPrivacy(
        epsilon=1.0, delta=1e-5, x_norm_bound=9.0, y_bound=9.0
    )
    strategy = run(SufficientStatistics.from_data, privacy=private)
    assert "let load_data return the rows" in reason(strategy)


def test_plain_sums_are_no_statistics_of_rows() -> None:
    found = reason(
        run(lambda X, y: PlainStatistics.from_arrays(np.eye(3), np.ones(3), count=3))
    )
    assert "PlainStatistics cannot stand for rows" in found


def test_other_columns_are_named() -> None:
    def other(X: pd.DataFrame, y: pd.Series) -> SufficientStatistics:
        return SufficientStatistics.from_data(X.rename(columns={"a": "z"}), y)

    assert "other columns" in reason(run(other)) or "names" in reason(run(other))


def test_float32_statistics_are_not_sent_as_if_they_were_exact() -> None:
    region = run(lambda X, y: (X, y), wire_dtype="float32")
    assert "float32" in reason(run(lambda X, y: region.statistics_))
    both = run(lambda X, y: region.statistics_, wire_dtype="float32")
    assert both.statistics_.n_clients == K


# ---- guards -------------------------------------------------------------------------


def test_min_rows_holds() -> None:
    strategy = run(SufficientStatistics.from_data, client={"min_rows": 21})
    assert "fewer rows than its min_rows=21" in reason(strategy)


def weighted(X: pd.DataFrame, y: pd.Series) -> SufficientStatistics:
    return SufficientStatistics.from_data(X, y, np.r_[1e6, np.ones(len(y) - 1)])


@pytest.mark.parametrize(
    ("policy", "make"),
    [
        (SitePolicy(min_rows=21), SufficientStatistics.from_data),
        (SitePolicy(min_rows=5), weighted),
        (SitePolicy(max_columns_per_row=0.19), SufficientStatistics.from_data),
        (SitePolicy(min_rows_per_level=2), SufficientStatistics.from_data),
        (SitePolicy.preset(5), SufficientStatistics.from_data),
        (SitePolicy(forbidden_columns=["C"]), SufficientStatistics.from_data),
        (SitePolicy(allowed_columns=["a", "b", "y"]), SufficientStatistics.from_data),
        (SitePolicy(requests=["evaluation"]), SufficientStatistics.from_data),
        (
            SitePolicy(require_privacy=True, max_epsilon=1.0),
            SufficientStatistics.from_data,
        ),
    ],
    ids=range(9),
)
def test_a_site_policy_declines_what_it_cannot_check(
    policy: SitePolicy, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    def load_data(context: Any) -> Any:
        return make(*rows_of(0))

    app = ridge_client_app(load_data, site_policy=policy)
    strategy = FedRidge(min_available_nodes=1, strict=False)
    with pytest.raises(Exception, match="declined by site policy"):
        fit(strategy, InProcessGrid.of_app(app, 1))


ONE_ROW = 20.0 * (np.arange(20) == 7)  # its weight is that of twenty rows


def in_batches(X: Any, y: Any, weight: Any) -> SufficientStatistics:
    halves = slice(None, 10), slice(10, None)
    return SufficientStatistics.from_batches((X[h], y[h], weight[h]) for h in halves)


def by_arrow(X: Any, y: Any, weight: Any) -> SufficientStatistics:
    table = pa.Table.from_pandas(X.assign(y=y, w=weight), preserve_index=False)
    return SufficientStatistics.from_arrow(table, "y", sample_weight="w")


def saved(X: Any, y: Any, weight: Any) -> Any:
    return unpack(*pack(SufficientStatistics.from_data(X, y, weight)))


def added_and_removed(X: Any, y: Any, weight: Any) -> SufficientStatistics:
    one, other = (SufficientStatistics.from_data(X, y, w) for w in (weight, None))
    assert (one + other).n_filled == np.count_nonzero(weight) + 20
    return one + other - other


@pytest.mark.parametrize(
    "make",
    [
        SufficientStatistics.from_data,
        FixedPointStatistics.from_data,
        TriangularStatistics.from_data,
        in_batches,
        by_arrow,
        saved,
        added_and_removed,
        lambda *rows: FixedPointStatistics.from_data(*rows).to_sufficient(),
        lambda *rows: TriangularStatistics.from_data(*rows).to_sufficient(),
    ],
)
def test_weights_of_mean_one_hide_no_row(make: Make) -> None:
    X, y = rows_of(0)
    stats = make(X, y, ONE_ROW)
    assert stats.n_filled == 1
    with pytest.raises(DataError, match="fewer rows than its min_rows=2"):
        respond(AskStatistics(), lambda: stats, Guards())
    even = make(X, y, np.full(20, 1.0))
    assert respond(AskStatistics(), lambda: even, Guards()).count in (20, 40)
    policy = SitePolicy(min_rows=5)
    with pytest.raises(PolicyError, match="one may outweigh all others"):
        respond(AskStatistics(), lambda: even, Guards(policies=(policy,)))


def test_counts_of_equal_rows_are_no_weights() -> None:
    X, y = rows_of(0)
    table = pa.Table.from_pandas(X.assign(y=y, n=2), preserve_index=False)
    stats = SufficientStatistics.from_arrow(table, "y", counts="n")
    assert (stats.count, stats.n_filled) == (40, None)
    guards = Guards(policies=(SitePolicy(min_rows=40),))
    assert respond(AskStatistics(), lambda: stats, guards).count == 40


def test_rows_remembered_between_uploads_are_needed(tmp_path: Any) -> None:
    policy = SitePolicy(min_row_difference=3, state=tmp_path)
    strategy = run(SufficientStatistics.from_data, client={"site_policy": policy})
    assert reason(strategy) == "declined by site policy."


def test_a_policy_that_can_be_checked_lets_them_pass() -> None:
    policy = SitePolicy(min_rows=20, max_columns_per_row=0.33)
    strategy = run(SufficientStatistics.from_data, client={"site_policy": policy})
    assert strategy.statistics_.n_clients == K
