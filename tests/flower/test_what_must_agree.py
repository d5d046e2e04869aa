"""Whatever two parties must agree on, and do not: right all the same, or refused.

docs/reference/agreement.md has a row for each, with the test that shows it.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fakes import InProcessGrid, fit, node_context
from sklearn.linear_model import Ridge

from fedridge_flwr import (
    DifferentialPrivacy,
    FedRidge,
    LegacyFedRidge,
    PrivacyPolicy,
    RidgeClient,
    RidgeModel,
    ridge_client_app,
)
from fedridge_flwr.data.names import Names
from fedridge_flwr.flower.exchange import message_bytes

pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

TRUTH = np.array([1.0, 20.0, -5.0])
FRAMES = [pd.DataFrame, pl.DataFrame, pa.table]
APIS = pytest.mark.parametrize("api", [FedRidge, LegacyFedRidge])


def site(k: int, columns: str = "abc", frame: Any = pd.DataFrame) -> tuple[Any, Any]:
    X = np.random.default_rng(k).normal(size=(200, 3))
    named = dict(zip("abc", X.T, strict=True))
    return frame({name: named[name] for name in columns}), X @ TRUTH


def fitted(
    parts: list[Any], api: Any = FedRidge, site_options: Any = None, **options: Any
):
    app = ridge_client_app(
        lambda context: parts[context.node_config["partition-id"]],
        **(site_options or {}),
    )
    strategy = api(min_available_nodes=len(parts), **options)
    return fit(strategy, InProcessGrid.of_app(app, len(parts)))


def pooled(alpha: float = 1.0, clients: range = range(5)) -> Any:
    X, y = zip(*(site(k) for k in clients), strict=True)
    return Ridge(alpha=alpha).fit(pd.concat(X), np.concatenate(y))


@APIS
@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("names", [None, list("abc"), list("bca")])
def test_columns_in_another_order_are_rearranged_by_name(api, frame, names):
    parts = [site(k, "cab" if k == 0 else "abc", frame) for k in range(5)]
    strategy = fitted(parts, api, feature_names=names)
    order = names or list("abc")
    expected = pooled().coef_[["abc".index(name) for name in order]]
    np.testing.assert_allclose(strategy.model_.coef_, expected, rtol=1e-12)
    assert strategy.report_.failures == {}
    if names is None:
        assert strategy.report_.rearranged == ["1000"]
        assert "columns rearranged by name: " in str(strategy.report_)


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "refine"},
        {"mode": "cg"},
        {"wire_dtype": "float32"},
        {"statistics": "fixed"},
        {"statistics": "triangular"},
        {"alphas": [1.0], "cv": "server"},
        {"alphas": [1.0], "cv": "clients"},
        {"screen": "exclude"},
        {"feature_map": "standardize"},
    ],
)
def test_every_way_of_fitting_rearranges_and_evaluates(options):
    parts = [site(k, "cab" if k == 0 else "abc") for k in range(5)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = fitted(parts, fraction_evaluate=1.0, **options)
        same = fitted([site(k) for k in range(5)], fraction_evaluate=1.0, **options)
    np.testing.assert_allclose(found.model_.coef_, same.model_.coef_, rtol=1e-6)
    assert found.report_.failures == found.report_.evaluation_failures == {}
    for key, value in same.report_.evaluation.items():
        assert found.report_.evaluation[key] == pytest.approx(value, rel=1e-3)


def test_behind_a_map_columns_are_rearranged_if_the_server_has_names():
    parts = [site(k, "cab" if k == 0 else "abc") for k in range(5)]
    without = fitted(parts, feature_map="polynomial 2")
    assert "set feature_names= on the server" in without.report_.failures["1000"]
    assert without.report_.participants == ["1001", "1002", "1003", "1004"]
    found = fitted(parts, feature_map="polynomial 2", feature_names=list("abc"))
    same = fitted([site(k) for k in range(5)], feature_map="polynomial 2")
    assert found.report_.failures == {}
    np.testing.assert_allclose(found.model_.coef_, same.model_.coef_, atol=1e-10)


@APIS
def test_targets_are_compared_and_rearranged_by_name(api):
    def targets(k: int) -> pd.DataFrame:
        return pd.DataFrame({"u": site(k)[1], "v": site(k)[0].a})

    parts = [
        (site(k)[0], targets(k)[["v", "u"]] if k == 0 else targets(k)) for k in range(5)
    ]
    model = fitted(parts, api).model_
    np.testing.assert_allclose(model.coef_[0], pooled().coef_, rtol=1e-12)
    other = [
        (X, Y.rename(columns={"v": "w"})) if k == 3 else (X, Y)
        for k, (X, Y) in enumerate(parts)
    ]
    strategy = fitted(other, api)
    assert "other target names" in strategy.report_.failures["1003"]
    one = [
        (X, Y["u"].rename("bp" if k == 2 else "u")) for k, (X, Y) in enumerate(parts)
    ]
    strategy = fitted(one, api)
    assert "other target names" in strategy.report_.failures["1002"]


def test_predict_finds_columns_by_name_though_names_were_not_shared(tmp_path):
    strategy = fitted([site(k, "bca") for k in range(5)])
    strategy.model_.save(tmp_path / "model.json")
    X = site(0)[0]
    for model in (strategy.model_, RidgeModel.load(tmp_path / "model.json")):
        assert not hasattr(model, "feature_names_in_")
        expected = X @ pooled().coef_ + pooled().intercept_
        for order in ("abc", "cab", "bca"):
            np.testing.assert_allclose(
                model.predict(X[list(order)]), expected, rtol=1e-12
            )
            arrow = pa.Table.from_pandas(X[list(order)])
            np.testing.assert_allclose(model.predict(arrow), expected, rtol=1e-12)
        with pytest.raises(ValueError, match="other columns than the fit"):
            model.predict(X.rename(columns={"a": "A"}))


@APIS
def test_bare_arrays_under_given_names_are_refused_unless_accepted(api):
    parts = [
        (site(k)[0].to_numpy() if k == 0 else site(k)[0], site(k)[1]) for k in range(5)
    ]
    strategy = fitted(parts, api, feature_names=list("abc"))
    assert 'unnamed="accept"' in strategy.report_.failures["1000"]
    np.testing.assert_allclose(
        strategy.model_.coef_, pooled(clients=range(1, 5)).coef_, rtol=1e-12
    )
    strategy = fitted(parts, api, feature_names=list("abc"), unnamed="accept")
    assert strategy.report_.failures == {}
    assert strategy.report_.unverified == ["1000"]
    assert "columns without names, taken to be in order" in str(strategy.report_)
    np.testing.assert_allclose(strategy.model_.coef_, pooled().coef_, rtol=1e-12)


@pytest.mark.parametrize("share", [True, False])
def test_a_real_difference_is_named_as_closely_as_names_may_be_shared(share):
    def dummies(k: int) -> tuple[Any, Any]:
        X, y = site(k)
        return (X.rename(columns={"b": "cp_1.0", "c": "cp_2.0"}) if k == 0 else X), y

    strategy = fitted(
        [dummies(k) for k in range(5)], site_options={"share_feature_names": share}
    )
    told = strategy.report_.failures["1000"]
    if share:
        assert told == "has 'cp_1.0', 'cp_2.0' where 4 other clients have 'b', 'c'"
    else:
        assert "other feature names than 4 other clients" in told
    assert str(strategy.report_).startswith("MODEL OF 4 OF 5 CLIENTS, 800 OF 1000 ROWS")
    strategy = fitted([dummies(k) for k in range(5)], feature_names=list("abc"))
    assert strategy.report_.failures["1000"] == (
        "X has other columns than the fit: columns 1, 2 are not among them, and 'b', "
        "'c' are missing."
    )


def test_one_more_column_is_named_or_counted():
    parts = [site(k) for k in range(5)]
    parts[2][0]["extra"] = 1.0
    shared = fitted(parts, site_options={"share_feature_names": True})
    assert shared.report_.failures["1002"] == (
        "has 'extra' where 4 other clients have none"
    )
    hidden = fitted(parts)
    assert "4 features against 3" in hidden.report_.failures["1002"]


@APIS
def test_clients_of_the_older_api_rearrange_too(api):
    def client_fn(context: Any) -> Any:
        k = context.node_config["partition-id"]
        return RidgeClient(*site(k, "cab" if k == 0 else "abc")).to_client()

    from flwr.clientapp import ClientApp

    app = ClientApp(client_fn=client_fn)
    for names in (None, list("abc")):
        strategy = api(min_available_nodes=5, feature_names=names)
        fit(strategy, InProcessGrid.of_app(app, 5))
        np.testing.assert_allclose(strategy.model_.coef_, pooled().coef_, rtol=1e-12)


# ---- with privacy on ----------------------------------------------------------------

PRIVACY = DifferentialPrivacy(1e4, 1e-6, x_norm_bound=1.0, y_bound=2.0)


def private_site(k: int) -> tuple[Any, Any]:
    X = np.random.default_rng(k).uniform(-0.5, 0.5, size=(3000, 2))
    table = pd.DataFrame(X, columns=["a", "b"])
    if k == 0:
        table["b"] = "about " + table["b"].astype(str)
    return (table.rename(columns={"b": "c"}) if k == 1 else table), X @ [1.0, -1.0]


@APIS
def test_other_column_names_are_told_with_privacy_too(api):
    strategy = fitted(
        [private_site(k) for k in range(5)],
        api,
        privacy=PRIVACY,
        feature_names=["a", "b"],
    )
    told = strategy.report_.failures["1001"]
    assert told.startswith("X has other columns than the fit: column 1 is not among")
    assert "1000" in strategy.report_.participants  # nobody may know of its rows


@APIS
def test_a_policy_may_report_failures_of_private_releases(api):
    def load(context: Any) -> Any:
        k = context.node_config["partition-id"]
        if k == 2:
            raise FileNotFoundError("/data/ward 7.csv")
        return private_site(k)

    policy = PrivacyPolicy(1e4, 1e-6, report_failures=True)
    app = ridge_client_app(load, privacy_policy=policy)
    strategy = api(min_available_nodes=5, privacy=PRIVACY, feature_names=["a", "b"])
    fit(strategy, InProcessGrid.of_app(app, 5))
    failures = strategy.report_.failures
    assert set(failures) == {"1000", "1001", "1002"}
    assert failures["1000"].startswith("X has no numbers in column 1.")
    assert "FileNotFoundError in load, line" in failures["1002"]
    assert "ward 7" not in str(failures)
    np.testing.assert_allclose(strategy.model_.coef_, [1.0, -1.0], atol=0.05)


def test_an_upload_of_100_columns_stays_within_43_000_bytes():
    names, sizes = [f"x{j}" for j in range(100)], []  # "x10" sorts before "x2"

    def load(context: Any) -> Any:
        X = np.random.default_rng(0).normal(size=(500, 100)) + 1e3
        return pd.DataFrame(X, columns=names), pd.Series(X.sum(axis=1), name="y")

    app, context = ridge_client_app(load), node_context(0, 1)

    def handler(message: Any) -> Any:
        reply = app(message, context)
        sizes.append(message_bytes(reply))
        return reply

    strategy = FedRidge(min_available_nodes=1)
    fit(strategy, InProcessGrid([handler]))
    assert strategy.model_.features.order
    assert 42_500 < sizes[0] <= 43_000


# ---- clients that lie about their columns --------------------------------------------


def with_liar(parts: list[Any], lies: dict[str, Any], **options: Any) -> Any:
    """Fit with a first client whose answers say something else about its columns."""
    app = ridge_client_app(lambda context: parts[context.node_config["partition-id"]])

    def node(k: int) -> Any:
        context = node_context(k, len(parts))

        def handler(message: Any) -> Any:
            reply = app(message, context)
            if k == 0:
                reply.content["config"].update(lies)
            return reply

        return handler

    strategy = FedRidge(min_available_nodes=len(parts), **options)
    return fit(strategy, InProcessGrid([node(k) for k in range(len(parts))]))


@pytest.mark.parametrize("mode", ["oneshot", "auto", "refine"])
@pytest.mark.parametrize(
    "lies",
    [
        {"feature-order": bytes([2, 1, 0])},
        {"feature-set-hash": "0" * 32},
        {"feature-hash": "1" * 32, "feature-order": bytes([2, 1, 0])},
        {"feature-hash": Names.of("abc").hash},
        {"feature-order": bytes([0, 1, 2])},
        {"feature-order": bytes(range(200))},
    ],
)
@pytest.mark.parametrize("orders", ["cab cab cab abc abc", "cab cab cab cab cab"])
def test_who_lies_about_its_columns_changes_nobody_elses(lies, orders, mode):
    parts = [site(k, order) for k, order in enumerate(orders.split())]
    strategy = with_liar(parts, lies, mode=mode)
    report, model = strategy.report_, strategy.model_
    assert set(report.participants) >= {"1001", "1002", "1003", "1004"}
    X = site(9)[0]
    first = model.predict(X)
    for order in ("cab", "bca"):
        np.testing.assert_allclose(model.predict(X[list(order)]), first, rtol=1e-12)
    if "1000" in report.failures:
        expected = pooled(clients=range(1, 5)).predict(X)
        np.testing.assert_allclose(first, expected, rtol=1e-9)
    else:  # it can lie about its own rows only, as if these were others
        assert lies.keys() == {"feature-hash", "feature-order"}


def test_names_that_the_server_expects_are_compared_before_a_map_is_made():
    parts = [site(0), site(1)]
    strategy = with_liar(
        parts,
        {"feature-hash": "1" * 32},
        feature_map="standardize",
        feature_names=list("abc"),
    )
    assert strategy.report_.failures == {
        "1000": "has other feature names than the server"
    }


def test_targets_are_rearranged_behind_a_map_too():
    def targets(k: int, order: str) -> pd.DataFrame:
        columns = {"u": site(k)[1], "v": site(k)[0].a, "w": site(k)[0].b}
        return pd.DataFrame(columns)[list(order)]

    orders = ["uvw", "uvw", "wuv", "vwu", "uvw"]
    parts = [(site(k)[0], targets(k, order)) for k, order in enumerate(orders)]
    options = {"feature_map": "polynomial 2"}
    found = fitted(parts, **options)
    same = fitted([(site(k)[0], targets(k, "uvw")) for k in range(5)], **options)
    assert found.report_.failures == {}
    np.testing.assert_allclose(found.model_.coef_, same.model_.coef_, atol=1e-9)


def test_bare_targets_that_are_accepted_are_listed():
    parts = [(site(k)[0], pd.DataFrame({"u": site(k)[1], "v": 1.0})) for k in range(4)]
    parts[2] = (parts[2][0], parts[2][1].to_numpy())
    refused = fitted(parts)
    assert "no target names" in refused.report_.failures["1002"]
    accepted = fitted(parts, unnamed="accept")
    assert accepted.report_.unverified == ["1002"]


def test_positions_in_another_order_and_scikit_learn_without_names_are_minded():
    bare = [(site(k)[0].to_numpy(), site(k)[1]) for k in range(3)]
    numbered = pd.DataFrame(bare[0][0])
    model = fitted(bare).model_
    np.testing.assert_array_equal(model.predict(numbered), model.predict(bare[0][0]))
    with pytest.raises(ValueError, match="numbered in another order"):
        model.predict(numbered[[2, 0, 1]])
    hashed = fitted([site(k) for k in range(3)]).model_
    with pytest.warns(UserWarning, match="only the hashes of its column names"):
        hashed.to_sklearn()
