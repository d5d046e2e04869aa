"""Robust standard errors after real rounds equal statsmodels on pooled rows."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from fakes import Handler, InProcessGrid, fit
from flwr.app import Array, ArrayRecord, Message
from flwr.clientapp import ClientApp
from real_data import diabetes, exam, heart, of_full_rank

from fedridge_flwr import (
    DifferentialPrivacy,
    FedRidge,
    FedRidgeError,
    FitReport,
    LegacyFedRidge,
    PolynomialMap,
    PrivacyError,
    RidgeClient,
    SitePolicy,
    infer,
    ridge_client_app,
)

KINDS = ("HC0", "HC1", "HC2", "HC3")
ILL = pytest.mark.filterwarnings("ignore::fedridge_flwr.IllConditionedWarning")
FEW = pytest.mark.filterwarnings("ignore::fedridge_flwr.FewSitesWarning")
REAL = {"diabetes": diabetes, "heart": heart, "parkinsons": of_full_rank, "exam": exam}
APIS = pytest.mark.parametrize("strategy", [FedRidge, LegacyFedRidge])

Split = Callable[[int], Any]


def grid_of(rows: Split, n_sites: int, **options: Any) -> InProcessGrid:
    def load(context: Any) -> Any:
        return rows(int(context.node_config["partition-id"]))

    return InProcessGrid.of_app(ridge_client_app(load, **options), n_sites)


def some_rows(k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(k)
    X = rng.normal(loc=k, size=(30, 2))
    y = X @ [1.0, 2.0] + rng.normal(size=30) * (1.0 + np.abs(X[:, 0]))
    return X, y


def pooled(rows: Split, n_sites: int) -> list[np.ndarray]:
    parts = [rows(k) for k in range(n_sites)]
    return [np.concatenate(each) for each in zip(*parts, strict=True)]


def assert_same(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found.coefficients, wanted.params, rtol=1e-8)
    np.testing.assert_allclose(found.se, wanted.bse, rtol=1e-8)
    np.testing.assert_allclose(found.t, wanted.tvalues, rtol=1e-8)
    np.testing.assert_allclose(found.p, wanted.pvalues, rtol=1e-8, atol=1e-300)
    distance = np.abs(found.ci - wanted.conf_int()) / wanted.bse[:, None]
    assert distance.max() < 1e-8


# ---- equal to statsmodels -----------------------------------------------------------


@ILL
@APIS
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", REAL)
def test_real_data(name: str, kind: str, strategy: Any, shared_data: Any) -> None:
    X, y, groups = REAL[name](shared_data)
    sites = np.unique(groups)

    def rows(k: int) -> Any:
        own = groups == sites[k]
        return X[own], y[own]

    given = strategy(alpha=0.0, standard_errors=kind)
    # exam_ilea has a school with two pupils, and heart hospitals that are much alike.
    found = fit(given, grid_of(rows, len(sites)), num_rounds=2).inference_
    assert found.covariance == kind
    assert_same(found, sm.OLS(y, sm.add_constant(X)).fit(cov_type=kind))


@APIS
@pytest.mark.parametrize("kind", KINDS)
def test_weights_equal_wls_also_by_the_t_distribution(kind: str, strategy: Any) -> None:
    def rows(k: int) -> Any:
        weights = np.random.default_rng(k).uniform(0.2, 3.0, size=30)
        return *some_rows(k), weights

    given = strategy(alpha=0.0, standard_errors=kind)
    fitted = fit(given, grid_of(rows, 3), num_rounds=2)
    X, y, weights = pooled(rows, 3)
    model = sm.WLS(y, sm.add_constant(X), weights=weights)
    assert_same(fitted.inference_, model.fit(cov_type=kind))
    again = infer(
        fitted.statistics_,
        covariance=kind,
        residuals=fitted.residual_moments_,
        use_t=True,
    )
    assert_same(again, model.fit(cov_type=kind, use_t=True))


@APIS
def test_the_client_of_the_older_api(strategy: Any) -> None:
    def client(context: Any) -> Any:
        rows = some_rows(int(context.node_config["partition-id"]))
        return RidgeClient(*rows).to_client()

    grid = InProcessGrid.of_app(ClientApp(client), 3)
    found = fit(strategy(alpha=0.0, standard_errors="HC3"), grid, num_rounds=2)
    X, y = pooled(some_rows, 3)
    wanted = sm.OLS(y, sm.add_constant(X)).fit(cov_type="HC3")
    assert_same(found.inference_, wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_several_targets_no_intercept_and_a_map(kind: str) -> None:
    def rows(k: int) -> Any:
        X, y = some_rows(k)
        return X, np.column_stack([y, y**2])

    given = FedRidge(
        alpha=0.0,
        fit_intercept=False,
        feature_map=PolynomialMap(2),
        standard_errors=kind,
    )
    found = fit(given, grid_of(rows, 3)).inference_
    X, y = pooled(rows, 3)
    mapped = PolynomialMap(2).transform(X)
    for k in range(2):
        wanted = sm.OLS(y[:, k], mapped).fit(cov_type=kind)
        assert_same(found.of_target(k), wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_tables_with_a_formula(kind: str) -> None:
    def table(k: int) -> pd.DataFrame:
        X, y = some_rows(k)
        level = np.where(np.arange(30) % 3 == 0, "a", f"b{k % 2}")
        return pd.DataFrame({"y": y, "x": X[:, 0], "level": level})

    given = FedRidge(alpha=0.0, formula="y ~ x + level", standard_errors=kind)
    found = fit(given, grid_of(table, 3)).inference_
    whole = pd.concat([table(k) for k in range(3)])
    dummies = pd.get_dummies(whole["level"], dtype=float).iloc[:, 1:]
    A = np.column_stack([np.ones(len(whole)), whole["x"], dummies])
    assert found.terms == (
        "intercept",
        "x",
        *(f"level[T.{c}]" for c in dummies.columns),
    )
    assert_same(found, sm.OLS(whole["y"].to_numpy(), A).fit(cov_type=kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"standardize": True}, {"alphas": "auto"}])
def test_ridge_is_the_sandwich(kind: str, options: dict[str, Any]) -> None:
    given = FedRidge(alpha=5.0, standard_errors=kind, **options)
    found = fit(given, grid_of(some_rows, 3)).inference_
    X, y = pooled(some_rows, 3)
    A = np.column_stack([np.ones(len(y)), X])
    variances = X.var(axis=0) if "standardize" in options else np.ones(2)
    penalty = found.alpha * np.diag([0.0, *variances])
    bread = np.linalg.inv(A.T @ A + penalty)
    h = np.einsum("ij,jk,ik->i", A, bread, A)
    squares = (y - A @ (bread @ A.T @ y)) ** 2
    squares /= (1.0 - h) ** {"HC0": 0, "HC1": 0, "HC2": 1, "HC3": 2}[kind]
    wanted = bread @ (A.T * squares) @ A @ bread
    if kind == "HC1":
        hat = bread @ A.T @ A
        wanted *= len(y) / (len(y) - np.trace(hat))
    np.testing.assert_allclose(found.covariance_matrix, wanted, rtol=1e-9, atol=1e-14)


def test_features_far_from_zero_keep_their_digits() -> None:
    near, far = (
        fit(
            FedRidge(alpha=0.0, standard_errors="HC3"),
            grid_of(
                lambda k, shift=shift: (some_rows(k)[0] + shift, some_rows(k)[1]), 3
            ),
        ).inference_
        for shift in (0.0, 1e6)
    )
    np.testing.assert_allclose(far.se[1:], near.se[1:], rtol=1e-8)


@FEW
@APIS
@pytest.mark.parametrize("kind", ["CR0", "CR1"])
def test_cluster_robust_takes_no_further_round(kind: str, strategy: Any) -> None:
    grid = grid_of(some_rows, 3)
    # Nothing else would keep the statistics of single sites.
    fitted = fit(strategy(alpha=0.0, standard_errors=kind, screen="off"), grid)
    assert len(grid.sent) == 3
    X, y = pooled(some_rows, 3)
    groups = {"groups": np.repeat(np.arange(3), 30)}
    groups["use_correction"] = kind == "CR1"
    wanted = sm.OLS(y, sm.add_constant(X)).fit(cov_type="cluster", cov_kwds=groups)
    assert_same(fitted.inference_, wanted)


# ---- who does not answer ------------------------------------------------------------


def later(handler: Handler, fault: Callable[[Message], Message]) -> Handler:
    """Return a node that is honest in the first round only."""
    rounds = iter([handler])

    def answer(message: Message) -> Message:
        honest = next(rounds, None)
        return fault(handler(message)) if honest is None else honest(message)

    return answer


def gone(_: Message) -> Message:
    raise ConnectionError("gone")


def spoiled(change: Callable[[np.ndarray], Any]) -> Callable[[Message], Message]:
    def spoil(reply: Message) -> Message:
        ((key, arrays),) = reply.content.array_records.items()
        first, second = arrays
        spoilt = Array(change(arrays[first].numpy().copy()))
        reply.content[key] = ArrayRecord({first: spoilt, second: arrays[second]})
        return reply

    return spoil


def with_nan(moments: np.ndarray) -> np.ndarray:
    moments[0, 1] = np.nan
    return moments


def with_correlation(moments: np.ndarray) -> np.ndarray:
    moments[0, 1] = 10.0 * moments[0].max()
    return moments


FAULTS: dict[str, tuple[Any, str]] = {
    "gone": (gone, "gone"),
    "negative": (spoiled(lambda m: -m), "negative squared residuals"),
    "nan": (spoiled(with_nan), "not finite"),
    "huge": (spoiled(lambda m: m * 1e200), "not finite"),
    "no sums of squares": (spoiled(with_correlation), "positive semi-definite"),
    "short": (spoiled(lambda m: m[:, :-1]), "right size"),
    "float32": (spoiled(lambda m: m.astype(np.float32)), "right size"),
    "objects": (spoiled(lambda m: m.astype(complex)), "right size"),
}


@APIS
@pytest.mark.parametrize("name", FAULTS)
def test_without_one_client_there_are_none_and_the_model_stays(
    name: str, strategy: Any, tmp_path: Any
) -> None:
    grid = grid_of(some_rows, 3)
    fault, reason = FAULTS[name]
    grid.handlers[1001] = later(grid.handlers[1001], fault)
    models: list[Any] = []
    given = strategy(alpha=0.0, standard_errors="HC3", on_model=models.append)
    fitted = fit(given, grid, num_rounds=2)
    whole = fit(strategy(alpha=0.0), grid_of(some_rows, 3))
    np.testing.assert_allclose(fitted.model_.coef_, whole.model_.coef_, rtol=1e-12)
    assert models == [fitted.model_]
    with pytest.raises(AttributeError, match="no HC3 standard errors") as caught:
        _ = fitted.inference_
    assert "client partition 1" in str(caught.value)
    assert reason in str(caught.value)
    assert "run the fit again" in str(caught.value)
    report = fitted.report_
    assert list(report.residual_failures) == ["1001"]
    assert not report.failures
    assert not report.scope
    assert "no robust standard errors" in str(report)
    assert "partition 1" in report.standard_errors.not_known
    assert "std err" not in fitted.model_.summary()
    report.save(tmp_path / "report.json")
    again = FitReport.load(tmp_path / "report.json")
    assert again.standard_errors == report.standard_errors
    assert again.to_html(fitted.model_) == report.to_html(fitted.model_)


def test_rows_that_changed_between_the_rounds_are_noticed() -> None:
    calls = iter(range(100))

    def rows(k: int) -> Any:
        X, y = some_rows(k)
        n = 30 if k or next(calls) == 0 else 29
        return X[:n], y[:n]

    grid = grid_of(rows, 3, reuse_data=False)
    fitted = fit(FedRidge(alpha=0.0, standard_errors="HC0"), grid)
    with pytest.raises(AttributeError, match="29 rows now, where it had 30"):
        _ = fitted.inference_


def test_the_older_driver_with_one_round_has_the_model_only() -> None:
    given = LegacyFedRidge(alpha=0.0, standard_errors="HC1")
    fitted = fit(given, grid_of(some_rows, 3))
    assert fitted.model_.n_rows_ == 90
    for name in ("inference_", "residual_moments_"):
        with pytest.raises(AttributeError, match="num_rounds=2"):
            getattr(fitted, name)
    with pytest.raises(AttributeError, match="nobody was asked for residuals"):
        _ = fit(FedRidge(), grid_of(some_rows, 3)).residual_moments_


@APIS
def test_evaluation_comes_once_after_the_last_round(strategy: Any) -> None:
    grid = grid_of(some_rows, 3)
    given = strategy(alpha=0.0, standard_errors="HC1", fraction_evaluate=1.0)
    fitted = fit(given, grid, num_rounds=2)
    assert len(grid.sent) == 9
    assert fitted.report_.evaluation is not None
    assert fitted.inference_.covariance == "HC1"


def test_few_rows_have_no_standard_errors_and_ask_for_none() -> None:
    grid = grid_of(lambda k: tuple(each[:2] for each in some_rows(k)), 1)
    fitted = fit(FedRidge(alpha=1.0, standard_errors="HC3"), grid)
    assert fitted.inference_.df < 2
    grid = grid_of(lambda k: (np.eye(3)[:, :2], np.arange(3.0)), 1)
    fitted = fit(FedRidge(alpha=0.0, standard_errors="HC3"), grid)
    assert len(grid.sent) == 1
    with pytest.raises(AttributeError, match="no degrees of freedom"):
        _ = fitted.inference_


def test_a_row_of_leverage_one_is_named() -> None:
    def rows(k: int) -> Any:
        X, y = some_rows(k)
        alone = np.zeros(30)
        alone[0] = float(k == 1)
        return np.column_stack([X, alone]), y

    grid = grid_of(rows, 3)
    fitted = fit(FedRidge(alpha=0.0, standard_errors="HC2"), grid)
    with pytest.raises(AttributeError, match=r"partition 1.*leverage 1"):
        _ = fitted.inference_


# ---- what a site allows -------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "allowed", "answers"),
    [
        ("HC1", ["statistics"], False),
        ("HC1", ["statistics", "residuals"], True),
        ("HC3", ["statistics", "residuals"], False),
        ("HC3", ["statistics", "residuals", "leverages"], True),
    ],
)
def test_a_site_with_a_policy_allows_it_by_name(
    kind: str, allowed: list[str], answers: bool
) -> None:
    policy = SitePolicy(requests=allowed)
    grid = grid_of(some_rows, 3, site_policy=policy)
    fitted = fit(FedRidge(alpha=0.0, standard_errors=kind), grid)
    assert fitted.model_.n_rows_ == 90
    assert bool(fitted.report_.residual_failures) is not answers


def test_by_default_a_policy_declines_both() -> None:
    assert not {"residuals", "leverages"} & set(SitePolicy().requests)


# ---- settings -----------------------------------------------------------------------


@APIS
def test_what_is_refused_beforehand(strategy: Any) -> None:
    private = DifferentialPrivacy(
        epsilon=5.0, delta=1e-5, x_norm_bound=1.0, y_bound=1.0, trust="local"
    )
    with pytest.raises(FedRidgeError, match='standard_errors must be "classical"'):
        strategy(standard_errors="HC4")
    with pytest.raises(PrivacyError, match="not available with privacy"):
        strategy(standard_errors="HC3", privacy=private)
    for mode in ("refine", "cg"):
        with pytest.raises(FedRidgeError, match="never has"):
            strategy(standard_errors="CR1", mode=mode)
    with pytest.raises(FedRidgeError, match='use cv="server"'):
        strategy(standard_errors="HC0", cv="clients")


def test_auto_is_one_shot_with_robust_standard_errors() -> None:
    given = FedRidge(alpha=0.0, standard_errors="HC1", mode="auto", max_bytes=1)
    fitted = fit(given, grid_of(some_rows, 3))
    assert fitted.inference_.covariance == "HC1"
    assert "robust standard errors need the statistics" in fitted.report_.mode


# ---- looks --------------------------------------------------------------------------


def test_model_and_page_show_them_and_pickles_leave_the_statistics() -> None:
    given = FedRidge(alpha=0.0, standard_errors="HC3")
    fitted = fit(given, grid_of(some_rows, 3))
    text = fitted.model_.summary()
    for wanted in ("std err", "standard errors: robust (HC3)", "P>|z|", "AIC", "F(2,"):
        assert wanted in text
    page = fitted.report_.to_html(fitted.model_)
    assert "Least squares of y, standard errors: robust (HC3)" in page
    copy = pickle.loads(pickle.dumps(fitted.model_))
    assert copy.infer is None
    assert (copy.coef_ == fitted.model_.coef_).all()


def test_the_report_comes_back_with_them(tmp_path: Any) -> None:
    def rows(k: int) -> Any:
        X, y = some_rows(k)
        return X, np.column_stack([y, y**2])

    for split in (some_rows, rows):
        fitted = fit(FedRidge(standard_errors="HC2"), grid_of(split, 3))
        fitted.report_.save(tmp_path / "report.json")
        again = FitReport.load(tmp_path / "report.json").inference
        found = fitted.inference_
        assert again is not None
        for name in ("coefficients", "se", "t", "p", "ci", "r2", "aic", "df_test"):
            np.testing.assert_array_equal(getattr(again, name), getattr(found, name))
        assert again.summary() == found.summary()
    (tmp_path / "report.json").write_text(
        (tmp_path / "report.json").read_text().replace('"terms": [', '"terms": ["z",')
    )
    with pytest.raises(FedRidgeError, match="do not fit together"):
        FitReport.load(tmp_path / "report.json")
