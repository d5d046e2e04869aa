"""`infer` equals statsmodels on the pooled rows, and obeys its laws."""

from __future__ import annotations

import json
import math
import warnings
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st
from real_data import Rows, by_client, diabetes, exam, heart, of_full_rank

from fedridge_flwr import (
    FedRidgeError,
    FewSitesWarning,
    IllConditionedWarning,
    Inference,
    PlainStatistics,
    SingularSystemError,
    StatisticsError,
    SufficientStatistics,
    infer,
    select_alpha,
    solve,
)

ILL = pytest.mark.filterwarnings("ignore::fedridge_flwr.IllConditionedWarning")


REAL = {"diabetes": diabetes, "heart": heart, "parkinsons": of_full_rank, "exam": exam}


def rows_of(seed: int = 0, n: int = 80, d: int = 3, sites: int = 12) -> Rows:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + rng.normal(size=d)
    y = X @ rng.normal(size=d) + rng.normal(size=n) * (1.0 + np.abs(X[:, 0]))
    return X, y, np.arange(n) % sites


def pooled(X: Any, y: Any, weights: Any = None, **fit: Any) -> Any:
    A = sm.add_constant(X, has_constant="add")
    model = sm.OLS(y, A) if weights is None else sm.WLS(y, A, weights=weights)
    return model.fit(**fit)


def by_site(groups: Any, **options: Any) -> dict[str, Any]:
    numbers = np.unique(groups, return_inverse=True)[1]
    return {"cov_type": "cluster", "cov_kwds": {"groups": numbers, **options}}


def assert_same(found: Inference, wanted: Any, rtol: float = 1e-8) -> None:
    """Compare all that statsmodels tells; intervals on the scale of standard errors."""
    np.testing.assert_allclose(found.coefficients, wanted.params, rtol=rtol)
    np.testing.assert_allclose(found.se, wanted.bse, rtol=rtol)
    np.testing.assert_allclose(found.t, wanted.tvalues, rtol=rtol)
    np.testing.assert_allclose(found.p, wanted.pvalues, rtol=rtol, atol=1e-300)
    distance = np.abs(found.ci - wanted.conf_int()) / wanted.bse[:, None]
    assert distance.max() < rtol
    for ours, theirs in {
        "r2": "rsquared",
        "adjusted_r2": "rsquared_adj",
        "log_likelihood": "llf",
        "aic": "aic",
        "bic": "bic",
        "df_residual": "df_resid",
    }.items():
        value = getattr(found, ours)
        assert value == pytest.approx(getattr(wanted, theirs), rel=rtol), ours
    assert found.sigma**2 == pytest.approx(wanted.scale, rel=rtol)
    assert found.rss == pytest.approx(wanted.scale * wanted.df_resid, rel=rtol)
    size = np.outer(wanted.bse, wanted.bse)
    assert (np.abs(found.covariance_matrix - wanted.cov_params()) / size).max() < rtol


def assert_same_f(found: Inference, wanted: Any, rtol: float = 1e-8) -> None:
    assert found.f == pytest.approx(wanted.fvalue, rel=rtol)
    assert found.f_p == pytest.approx(float(wanted.f_pvalue), rel=rtol, abs=1e-300)


def f_by_correlations(wanted: Any) -> float:
    scaled = wanted.tvalues[1:]
    covariance = wanted.cov_params()[1:, 1:]
    correlations = covariance / np.outer(wanted.bse[1:], wanted.bse[1:])
    return float(scaled @ np.linalg.solve(correlations, scaled) / scaled.size)


# ---- equal to statsmodels -----------------------------------------------------------


@ILL
@pytest.mark.parametrize("name", REAL)
def test_least_squares_equals_statsmodels(name: str, shared_data: Any) -> None:
    X, y, groups = REAL[name](shared_data)
    found = infer(sum(by_client(X, y, groups).values()))
    wanted = pooled(X, y)
    assert_same(found, wanted)
    assert_same_f(found, wanted)
    assert found.n_rows == len(y)
    assert found.n_sites == np.unique(groups).size


@ILL
@pytest.mark.parametrize("name", REAL)
def test_weights_equal_wls(name: str, shared_data: Any) -> None:
    X, y, _ = REAL[name](shared_data)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, size=len(y))
    found = infer(SufficientStatistics.from_data(X, y, weights))
    wanted = pooled(X, y, weights)
    # The one number of WLS that no statistics have: it is a constant of the weights.
    constant = 0.5 * np.log(weights / weights.mean()).sum()
    assert found.log_likelihood + constant == pytest.approx(wanted.llf, rel=1e-10)
    assert found.aic - 2 * constant == pytest.approx(wanted.aic, rel=1e-10)
    assert found.bic - 2 * constant == pytest.approx(wanted.bic, rel=1e-10)
    for name in ("llf", "aic", "bic"):
        wanted._cache[name] = getattr(found, {"llf": "log_likelihood"}.get(name, name))
    assert_same(found, wanted)
    assert_same_f(found, wanted)
    assert any("constant of the weights" in note for note in found.notes)


@pytest.mark.filterwarnings("ignore::fedridge_flwr.FewSitesWarning")
@pytest.mark.parametrize(("kind", "corrected"), [("CR0", False), ("CR1", True)])
@pytest.mark.parametrize("name", REAL)
def test_by_site_equals_statsmodels(
    name: str, kind: str, corrected: bool, shared_data: Any
) -> None:
    X, y, groups = REAL[name](shared_data)
    parts = by_client(X, y, groups)
    found = infer(sum(parts.values()), parts=parts, covariance=kind)
    wanted = pooled(X, y, **by_site(groups, use_correction=corrected))
    assert_same(found, wanted)
    if found.n_sites <= X.shape[1]:
        assert math.isnan(found.f)
    elif name == "parkinsons":
        # statsmodels inverts a covariance whose entries differ by 1e12: its F of CR0
        # and CR1 do not have the ratio of their factors to more than 4e-8.
        assert found.f == pytest.approx(f_by_correlations(wanted), rel=1e-8)
    else:
        assert_same_f(found, wanted)
    t = infer(sum(parts.values()), parts=parts, covariance=kind, use_t=True)
    wanted = pooled(X, y, use_t=True, **by_site(groups, use_correction=corrected))
    assert_same(t, wanted)
    assert t.df_test == len(parts) - 1


def test_weights_by_site_equal_statsmodels() -> None:
    X, y, groups = rows_of(sites=16)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, size=len(y))
    parts = [
        SufficientStatistics.from_data(*(each[groups == k] for each in (X, y, weights)))
        for k in range(16)
    ]
    found = infer(sum(parts), parts=parts, covariance="CR1")
    wanted = pooled(X, y, weights, **by_site(groups))
    np.testing.assert_allclose(found.se, wanted.bse, rtol=1e-11)
    np.testing.assert_allclose(found.ci, wanted.conf_int(), rtol=1e-11)


def test_without_intercept() -> None:
    X, y, groups = rows_of()
    parts = by_client(X, y, groups)
    for kind, fit in {"classical": {}, "CR1": by_site(groups)}.items():
        found = infer(
            sum(parts.values()), fit_intercept=False, parts=parts, covariance=kind
        )
        wanted = sm.OLS(y, X).fit(**fit)
        assert_same(found, wanted, rtol=1e-10)
        assert_same_f(found, wanted, rtol=1e-10)


def indicators(weighted: bool = False) -> tuple[Any, Any, Any, Any]:
    """Return rows whose first three columns are all indicators of a category."""
    rng = np.random.default_rng(3)
    X = np.hstack([np.eye(3)[rng.integers(0, 3, 90)], rng.normal(60, 9, (90, 2))])
    y = X @ [100.0, 104.0, 90.0, 0.3, 0.0] + rng.normal(size=90) * 5
    return X, y, np.arange(90) % 9, rng.uniform(0.5, 2, 90) if weighted else None


def summed(X: Any, y: Any, groups: Any, weights: Any) -> dict[str, Any]:
    return {
        str(g): SufficientStatistics.from_data(
            X[groups == g],
            y[groups == g],
            None if weights is None else weights[groups == g],
        )
        for g in np.unique(groups)
    }


CONSTANTS = {
    "indicators": lambda X: X,
    "a column of ones": lambda X: np.column_stack([X[:, 1:], np.full(len(X), 7.0)]),
    "shares": lambda X: np.column_stack([X[:, 3] / 100, 1.0 - X[:, 3] / 100, X[:, 4]]),
    "large numbers": lambda X: X * [1e6, 1e6, 1e6, 1.0, 1.0],
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("form", CONSTANTS)
def test_columns_that_imply_a_constant(form: str, weighted: bool) -> None:
    X, y, groups, weights = indicators(weighted)
    X = CONSTANTS[form](X)
    parts = summed(X, y, groups, weights)
    found = infer(sum(parts.values()), fit_intercept=False)
    model = sm.OLS(y, X) if weights is None else sm.WLS(y, X, weights=weights)
    wanted = model.fit()
    assert wanted.k_constant == 1
    if weighted:
        for name in ("llf", "aic", "bic"):  # less a constant of the weights
            ours = {"llf": "log_likelihood"}.get(name, name)
            wanted._cache[name] = getattr(found, ours)
    assert_same(found, wanted)
    assert_same_f(found, wanted)
    assert found.has_constant
    assert found.f_df == (wanted.df_model, wanted.df_resid)
    assert found.glance()["df"][0] == wanted.df_model
    assert found.n_rows == wanted.nobs
    summary = solve(sum(parts.values()), 0.0, fit_intercept=False).summary(found)
    assert f"R² (train)  {wanted.rsquared:.6g}\n" in summary
    assert f"adjusted R² {wanted.rsquared_adj:.4g}" in summary


@pytest.mark.parametrize("kind", ["classical", "CR0", "CR1"])
def test_an_implied_constant_is_an_intercept(kind: str) -> None:
    """The F of statsmodels is NaN where it is robust; that of the same model is not."""
    X, y, groups, _ = indicators()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewSitesWarning)
        implied, other = (
            infer(sum(p.values()), parts=p, covariance=kind, fit_intercept=bool(k))
            for k in (0, 1)
            for p in [summed(X[:, k:], y, groups, None)]
        )
    wanted = pooled(
        X[:, 1:],
        y,
        **(
            {} if kind == "classical" else by_site(groups, use_correction=kind == "CR1")
        ),
    )
    assert_same_f(implied, wanted)
    assert implied.f_df == other.f_df
    for name in ("r2", "adjusted_r2", "f", "f_p", "aic", "bic", "sigma", "df"):
        assert getattr(implied, name) == pytest.approx(getattr(other, name), rel=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_no_constant_is_uncentred_and_says_so(weighted: bool) -> None:
    X, y, groups, weights = indicators(weighted)
    X = X[:, 1:]
    X[:, 2] += 1e4  # nearly a constant is none
    stats = sum(summed(X, y, groups, weights).values())
    found = infer(stats, fit_intercept=False)
    model = sm.OLS(y, X) if weights is None else sm.WLS(y, X, weights=weights)
    wanted = model.fit()
    assert wanted.k_constant == 0
    for name in ("llf", "aic", "bic") if weighted else ():
        wanted._cache[name] = getattr(found, {"llf": "log_likelihood"}.get(name, name))
    assert_same(found, wanted)
    assert_same_f(found, wanted)
    assert not found.has_constant
    summary = solve(stats, 0.0, fit_intercept=False).summary(found)
    assert f"R² (train)  {wanted.rsquared:.6g} (uncentred" in summary
    assert f"adj. uncentred R² {wanted.rsquared_adj:.4g}" in summary
    assert "Uncentred R-squared" in found.summary("R")
    assert any("uncentred" in note for note in found.notes)


def test_a_constant_that_penalties_do_not_hide() -> None:
    X, y, groups, _ = indicators()
    stats = sum(summed(X, y, groups, None).values())
    found = infer(stats, 1e-9, fit_intercept=False)
    assert found.r2 == pytest.approx(infer(stats, fit_intercept=False).r2, rel=1e-8)
    assert infer(stats, 1.0).has_constant


def test_other_level_and_normal_distribution() -> None:
    X, y, _ = rows_of()
    found = infer(SufficientStatistics.from_data(X, y), level=0.9, use_t=False)
    wanted = pooled(X, y, use_t=False)
    np.testing.assert_allclose(found.ci, wanted.conf_int(0.1), rtol=1e-11)
    np.testing.assert_allclose(found.p, wanted.pvalues, rtol=1e-9)


def test_several_targets_are_one_by_one() -> None:
    X, y, groups = rows_of()
    Y = np.column_stack([y, X[:, 0] ** 2, y**2])
    parts = by_client(X, Y, groups)
    several = infer(sum(parts.values()), parts=parts, covariance="CR1")
    assert several.coefficients.shape == (3, 4)
    assert several.targets == ("y0", "y1", "y2")
    for k in range(3):
        one = by_client(X, Y[:, k], groups)
        wanted = infer(sum(one.values()), parts=one, covariance="CR1")
        found = several.of_target(k)
        for name in ("coefficients", "se", "p", "ci", "r2", "f", "aic", "sigma"):
            np.testing.assert_allclose(
                getattr(found, name), getattr(wanted, name), rtol=1e-11
            )
    assert several.of_target("y1").targets == ("y1",)
    with pytest.raises(FedRidgeError, match="'y9' is not a target"):
        several.of_target("y9")


@ILL
def test_predictions_equal_get_prediction(shared_data: Any) -> None:
    for load in REAL.values():
        X, y, _ = load(shared_data)
        new = X[::7] * 1.1 + X.mean(axis=0)
        found = infer(SufficientStatistics.from_data(X, y)).predict(new).to_frame()
        wanted = pooled(X, y).get_prediction(sm.add_constant(new, has_constant="add"))
        wanted = wanted.summary_frame(alpha=0.05)
        for name in wanted.columns:
            scale = 1.0 if name == "mean_se" else np.abs(wanted["mean"])
            scale = np.maximum(scale, wanted["mean_se"])
            assert (np.abs(found[name] - wanted[name]) / scale).max() < 1e-8, name


# ---- ridge --------------------------------------------------------------------------


def test_ridge_covariance_is_the_textbook_one() -> None:
    X, y, _ = rows_of()
    n, d, alpha = *X.shape, 7.0
    A = np.column_stack([np.ones(n), X])
    penalty = alpha * np.diag([0.0, *np.ones(d)])
    bread = np.linalg.inv(A.T @ A + penalty)
    w = bread @ A.T @ y
    hat = A @ bread @ A.T
    s2 = ((y - A @ w) ** 2).sum() / (n - np.trace(hat))
    wanted = s2 * bread @ A.T @ A @ bread
    found = infer(SufficientStatistics.from_data(X, y), alpha)
    np.testing.assert_allclose(found.coefficients, w, rtol=1e-11)
    np.testing.assert_allclose(found.covariance_matrix, wanted, rtol=1e-10)
    assert found.df == pytest.approx(np.trace(hat))
    assert math.isnan(found.f)
    notes = " ".join(found.notes)
    assert "bias" in notes
    assert "choice of alpha" in notes
    assert "not defined" not in found.summary()


def test_ridge_by_site_is_the_sandwich() -> None:
    X, y, groups = rows_of()
    A = np.column_stack([np.ones(len(y)), X])
    bread = np.linalg.inv(A.T @ A + 7.0 * np.diag([0.0, 1.0, 1.0, 1.0]))
    e = y - A @ (bread @ A.T @ y)
    scores = np.stack([A[groups == k].T @ e[groups == k] for k in range(12)])
    parts = by_client(X, y, groups)
    found = infer(sum(parts.values()), 7.0, parts=parts, covariance="CR0")
    wanted = bread @ scores.T @ scores @ bread
    np.testing.assert_allclose(found.covariance_matrix, wanted, rtol=1e-9, atol=1e-14)


def test_the_coefficients_are_those_of_solve_and_the_choice_is_named() -> None:
    X, y, groups = rows_of()
    parts = by_client(X, y, groups)
    chosen = select_alpha(parts, [0.1, 1.0, 10.0, 100.0])
    found = infer(sum(parts.values()), chosen, standardize=True)
    model = solve(sum(parts.values()), chosen.alpha, standardize=True)
    assert (found.coefficients[1:] == model.coef_).all()
    assert found.coefficients[0] == model.intercept_
    assert chosen.describe() in found.summary()
    assert found.alpha == chosen.alpha


def test_more_features_than_rows_with_a_penalty() -> None:
    X, y, _ = rows_of(n=20, d=30)
    found = infer(SufficientStatistics.from_data(X, y), 5.0)
    assert 0 < found.df < 20
    assert (found.se > 0).all()


# ---- laws ---------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(1, 9))
def test_any_split_is_the_whole(seed: int, sites: int) -> None:
    X, y, _ = rows_of(seed)
    groups = np.random.default_rng(seed).integers(0, sites, size=len(y))
    split = infer(sum(by_client(X, y, groups).values()))
    whole = infer(SufficientStatistics.from_data(X, y))
    np.testing.assert_allclose(split.se, whole.se, rtol=1e-10)
    np.testing.assert_allclose(split.ci, whole.ci, rtol=1e-9, atol=1e-12)
    assert split.aic == pytest.approx(whole.aic, rel=1e-10)


@given(
    st.integers(0, 10**6),
    st.floats(1e-3, 1e3),
    st.floats(-1e3, 1e3),
    st.floats(1e-3, 1e3),
)
def test_units_do_not_matter(
    seed: int, scale: float, shift: float, unit: float
) -> None:
    """t, p, R² and F are the same; coefficients and errors are in the new units."""
    X, y, groups = rows_of(seed)
    for kind in ("classical", "CR1"):
        found = []
        for features, target in ((X, y), (X * scale + shift, y * unit)):
            parts = by_client(features, target, groups)
            total = sum(parts.values())
            found.append(infer(total, parts=parts, covariance=kind))
        one, other = found
        np.testing.assert_allclose(other.t[1:], one.t[1:], rtol=1e-6)
        np.testing.assert_allclose(other.se[1:] * scale / unit, one.se[1:], rtol=1e-6)
        assert other.r2 == pytest.approx(one.r2, rel=1e-8)
        assert other.f == pytest.approx(one.f, rel=1e-6)


@given(st.integers(0, 10**6), st.floats(1e-3, 1e3))
def test_weights_matter_by_their_ratios_only(seed: int, factor: float) -> None:
    X, y, _ = rows_of(seed)
    weights = np.random.default_rng(seed).uniform(0.1, 3.0, size=len(y))
    one = infer(SufficientStatistics.from_data(X, y, weights))
    other = infer(SufficientStatistics.from_data(X, y, factor * weights))
    np.testing.assert_allclose(other.se, one.se, rtol=1e-10)
    assert other.log_likelihood == pytest.approx(one.log_likelihood, rel=1e-10)


def test_features_far_from_zero_keep_their_digits() -> None:
    X, y, groups = rows_of()
    near, far = (
        infer(sum(parts.values()), parts=parts, covariance="CR1")
        for parts in (by_client(X, y, groups), by_client(X + 1e6, y, groups))
    )
    np.testing.assert_allclose(far.se[1:], near.se[1:], rtol=1e-8)
    predicted = infer(sum(by_client(X + 1e6, y, groups).values())).predict(X + 1e6)
    wanted = infer(sum(by_client(X, y, groups).values())).predict(X)
    np.testing.assert_allclose(predicted.se, wanted.se, rtol=1e-8)


def test_few_sites_warn() -> None:
    X, y, groups = rows_of(sites=9)
    parts = by_client(X, y, groups)
    with pytest.warns(FewSitesWarning, match="9 sites"):
        infer(sum(parts.values()), parts=parts, covariance="CR0")
    parts = by_client(X, y, np.arange(len(y)) % 10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        infer(sum(parts.values()), parts=parts, covariance="CR0")


@pytest.mark.parametrize(
    ("sites", "use_t", "remedy"),
    [
        (9, None, "at least 10 sites, or use_t=True."),
        (9, True, "at least 10 sites."),
        (3, True, "at least 10 sites, or classical ones with an intercept"),
    ],
)
def test_few_sites_are_not_told_to_do_what_they_do(
    sites: int, use_t: bool | None, remedy: str
) -> None:
    X, y, groups = rows_of(sites=sites)
    parts = by_client(X, y, groups)
    with pytest.warns(FewSitesWarning, match=remedy):
        found = infer(sum(parts.values()), parts=parts, covariance="CR1", use_t=use_t)
    assert f"With only {sites} sites" in " ".join(found.notes)


def test_lost_digits_are_told() -> None:
    X, y, _ = rows_of()
    near = X @ [1.0, 2.0, 3.0]
    noisy = infer(SufficientStatistics.from_data(X, near + 1e-3 * y))
    assert 4 < noisy.digits_lost < 8
    assert any("triangular" in note for note in noisy.notes)
    with pytest.warns(IllConditionedWarning, match="residual sum of squares lost"):
        infer(SufficientStatistics.from_data(X, near + 1e-6 * y))


# ---- what cannot be answered --------------------------------------------------------


def test_what_is_refused() -> None:
    X, y, groups = rows_of()
    parts = by_client(X, y, groups)
    total = sum(parts.values())
    with pytest.raises(FedRidgeError, match='covariance must be "classical"'):
        infer(total, covariance="HC9")
    with pytest.raises(FedRidgeError, match="needs the statistics of every site"):
        infer(total, covariance="CR1")
    with pytest.raises(FedRidgeError, match="level must be between 0 and 1"):
        infer(total, level=95)
    with pytest.raises(FedRidgeError, match="use_t must be true or false"):
        infer(total, use_t="yes")
    missing = {site: part for site, part in parts.items() if site != "3"}
    with pytest.raises(StatisticsError, match="of every site in stats"):
        infer(total, parts=missing, covariance="CR1")
    with pytest.raises(StatisticsError, match="at least 2 sites"):
        infer(total, parts=[total], covariance="CR1")
    with pytest.raises(StatisticsError, match="no degrees of freedom"):
        infer(SufficientStatistics.from_data(X[:4], y[:4]))
    with pytest.raises(SingularSystemError, match="is a copy of"):
        infer(SufficientStatistics.from_data(np.hstack([X, X[:, :1]]), y))
    with pytest.raises(StatisticsError, match="sums of squares of the targets"):
        infer(PlainStatistics.from_arrays(X.T @ X, X.T @ y, 80), fit_intercept=False)


# ---- looks --------------------------------------------------------------------------


@pytest.fixture
def found() -> Inference:
    pd = pytest.importorskip("pandas")
    X, y, groups = rows_of(sites=12)
    frame = pd.DataFrame(X, columns=["age", "b|m<i>", "x_$"])
    parts = {
        str(k): SufficientStatistics.from_data(
            frame[groups == k], pd.Series(y[groups == k], name="score")
        )
        for k in range(12)
    }
    return infer(sum(parts.values()), parts=parts, covariance="CR1")


def test_tidy_and_glance_have_the_names_of_broom(found: Inference) -> None:
    tidy, glance = found.tidy(), found.glance()
    assert list(tidy.columns) == [
        *("term", "estimate", "std.error", "statistic", "p.value"),
        *("conf.low", "conf.high"),
    ]
    assert list(tidy["term"]) == ["intercept", "age", "b|m<i>", "x_$"]
    assert list(glance.columns)[:12] == [
        *("r.squared", "adj.r.squared", "sigma", "statistic", "p.value", "df"),
        *("logLik", "AIC", "BIC", "deviance", "df.residual", "nobs"),
    ]
    assert glance["nobs"].item() == 80
    assert found.to_frame().loc["age", "std.error"] == found.se[1]
    X, y, _ = rows_of()
    both = infer(SufficientStatistics.from_data(X, np.column_stack([y, y**2])))
    assert set(both.tidy()["response"]) == {"y0", "y1"}
    assert len(both.glance()) == 2
    assert both.to_frame().shape == (8, 6)


def test_texts_say_what_matters_and_escape_names(found: Inference) -> None:
    text, as_r = found.summary(), found.summary("R")
    for wanted in ("score", "by site (CR1)", "P>|z|", "[0.025", "R²", "age"):
        assert wanted in text
    assert "Signif. codes" in as_r
    assert "Pr(>|z|)" in as_r
    assert repr(found) == text
    assert "b&lt;" not in text
    assert "b|m&lt;i&gt;" in found._repr_html_()
    assert r"b\|m<i>" in found.to_markdown()
    assert r"x\_\$" in found.to_latex()
    with pytest.raises(FedRidgeError, match="style must be"):
        found.summary("SAS")


def test_json_comes_back(found: Inference) -> None:
    content = json.loads(found.to_json())
    assert content["coefficients"] == found.coefficients.tolist()
    assert content["df_test"] is None
    assert content["covariance"] == "CR1"


def test_forest_plot(found: Inference) -> None:
    axis = found.plot().axes[0]
    labels = [tick.get_text() for tick in axis.get_yticklabels()]
    assert labels == ["age", "b|m<i>", r"x_\$"]
    assert len(found.plot(["age"]).axes[0].get_yticklabels()) == 1
    with pytest.raises(FedRidgeError, match="no such terms: 'weight'"):
        found.plot(["weight"])


def test_maketables_reads_it(found: Inference) -> None:
    table = found.__maketables_coef_table__
    assert list(table.columns) == ["b", "se", "t", "p", "ci95l", "ci95u"]
    assert table.index.name == "Coefficient"
    assert found.__maketables_stat__("N") == 80
    assert found.__maketables_stat__("r2") == found.r2
    assert found.__maketables_stat__("unheard of") is None
    assert found.__maketables_depvar__ == "score"
    maketables = pytest.importorskip("maketables")
    made = maketables.ETable([found]).df
    assert "age" in str(made)
