"""How sites differ, from their statistics: equal to models on the pooled rows."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st
from real_data import Rows, by_client, exam, heart, parkinsons, radon
from statsmodels.tools.sm_exceptions import ConvergenceWarning

from fedridge_flwr import (
    FedRidgeError,
    SingularSystemError,
    StatisticsError,
    SufficientStatistics,
    solve,
)
from fedridge_flwr.regression import (
    fixed_site_effects,
    random_site_effects,
    site_estimates,
    site_influence,
)


def rows_of(seed: int = 0, sites: int = 6, n: int = 90) -> Rows:
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, sites, size=n)
    groups[:sites] = np.arange(sites)
    X = rng.normal(size=(n, 2)) + rng.normal(size=(sites, 2))[groups]
    y = X @ [1.0, -1.0] + rng.normal(size=sites)[groups] + rng.normal(size=n)
    return X, y, groups


def with_dummies(X: Any, y: Any, groups: Any) -> Any:
    dummies = pd.get_dummies(pd.Series(groups)).to_numpy(float)
    return sm.OLS(y, np.column_stack([dummies, X])).fit(), dummies.shape[1]


# ---- fixed effects ------------------------------------------------------------------


def varying(name: str, shared_data: Any) -> Rows:
    """Return real rows without the columns that are constant at every site."""
    X, y, groups = {"heart": heart, "exam": exam, "parkinsons": parkinsons}[name](
        shared_data
    )
    spread = pd.DataFrame(X).groupby(groups).std(ddof=0).max().to_numpy()
    X = X[:, spread > 1e-12]
    # Jitter:DDP and Shimmer:DDA of parkinsons are copies up to rounding.
    return (np.delete(X, [5, 11], axis=1) if name == "parkinsons" else X), y, groups


@pytest.mark.parametrize("name", ["heart", "exam", "parkinsons"])
def test_fixed_effects_equal_dummy_columns(name: str, shared_data: Any) -> None:
    X, y, groups = varying(name, shared_data)
    found = fixed_site_effects(by_client(X, y, groups))
    wanted, sites = with_dummies(X, y, groups)
    ours, d = found.inference, X.shape[1]
    scale = X.std(axis=0) / y.std()
    assert np.abs((ours.coefficients - wanted.params[sites:]) * scale).max() < 1e-10
    np.testing.assert_allclose(ours.se, wanted.bse[sites:], rtol=1e-8)
    np.testing.assert_allclose(ours.p, wanted.pvalues[sites:], rtol=1e-6, atol=1e-300)
    effects = np.array(list(found.effects.values()))
    order = np.argsort([int(k) if k.isdigit() else k for k in found.effects])
    distance = (effects[order] - wanted.params[:sites]) / wanted.bse[:sites]
    assert np.abs(distance).max() < 1e-8
    np.testing.assert_allclose(
        np.array(list(found.se.values()))[order], wanted.bse[:sites], rtol=1e-8
    )
    assert ours.r2 == pytest.approx(wanted.rsquared, rel=1e-9)
    assert ours.adjusted_r2 == pytest.approx(wanted.rsquared_adj, rel=1e-9)
    assert ours.f == pytest.approx(wanted.fvalue, rel=1e-9)
    assert ours.f_df == (wanted.df_model, wanted.df_resid)
    for mine, theirs in (("log_likelihood", "llf"), ("aic", "aic"), ("bic", "bic")):
        assert getattr(ours, mine) == pytest.approx(getattr(wanted, theirs), rel=1e-9)
    pooled = sm.OLS(y, sm.add_constant(X)).fit()
    value, p, fewer = wanted.compare_f_test(pooled)
    assert found.equal.statistic == pytest.approx(value, rel=1e-8)
    assert found.equal.p == pytest.approx(p, rel=1e-6, abs=1e-300)
    assert found.equal.df == fewer == sites - 1
    assert ours.terms == tuple(f"x{j}" for j in range(d))
    predicted = wanted.predict(np.column_stack([np.zeros((2, sites)), X[:2]]))
    np.testing.assert_allclose(ours.predict(X[:2]).mean, predicted, rtol=1e-8)


def test_fixed_effects_with_a_penalty_leave_the_intercepts_alone() -> None:
    X, y, groups = rows_of()
    found = fixed_site_effects(by_client(X, y, groups), alpha=4.0)
    dummies = pd.get_dummies(pd.Series(groups)).to_numpy(float)
    A = np.column_stack([dummies, X])
    penalty = np.diag([0.0] * 6 + [4.0] * 2)
    wanted = np.linalg.solve(A.T @ A + penalty, A.T @ y)
    np.testing.assert_allclose(found.inference.coefficients, wanted[6:], rtol=1e-10)
    np.testing.assert_allclose(list(found.effects.values()), wanted[:6], rtol=1e-9)
    assert np.isnan(found.equal.p)


def test_a_feature_of_sites_has_no_fixed_effect(shared_data: Any) -> None:
    X, y, groups = radon(shared_data)
    with pytest.raises(SingularSystemError, match="column 1 is constant"):
        fixed_site_effects(by_client(X, y, groups))


# ---- random effects -----------------------------------------------------------------


@pytest.mark.parametrize("method", ["ml", "reml"])
@pytest.mark.parametrize("load", [exam, radon])
def test_random_intercept_equals_mixed_lm(
    load: Any, method: str, shared_data: Any
) -> None:
    X, y, groups = load(shared_data)
    found = random_site_effects(by_client(X, y, groups), method=method)
    model = sm.MixedLM(y, sm.add_constant(X), groups=groups)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        wanted = model.fit(reml=method == "reml", method=["powell"])
    np.testing.assert_allclose(found.coefficients, wanted.fe_params, rtol=1e-4)
    assert found.variance_sites == pytest.approx(wanted.cov_re[0, 0], rel=1e-4)
    assert found.variance_rows == pytest.approx(wanted.scale, rel=1e-4)
    assert found.log_likelihood == pytest.approx(wanted.llf, abs=1e-4)
    # Ours is the better maximum of the two, or the same.
    assert found.log_likelihood >= wanted.llf - 1e-9
    effects = {str(site): float(u.iloc[0]) for site, u in wanted.random_effects.items()}
    for site, effect in found.effects.items():
        assert effect == pytest.approx(effects[site], abs=1e-4)


def test_the_likelihood_is_that_of_the_normal_distribution() -> None:
    X, y, groups = rows_of()
    found = random_site_effects(by_client(X, y, groups), method="ml")
    same = groups[:, None] == groups[None, :]
    V = found.variance_sites * same + found.variance_rows * np.eye(len(y))
    e = y - found.coefficients[0] - X @ found.coefficients[1:]
    _, determinant = np.linalg.slogdet(2 * np.pi * V)
    wanted = -0.5 * (determinant + e @ np.linalg.solve(V, e))
    assert found.log_likelihood == pytest.approx(wanted, rel=1e-12)
    # As in lme4; statsmodels takes the joint Hessian with the variances instead.
    A = np.column_stack([np.ones(len(y)), X])
    covariance = np.linalg.inv(A.T @ np.linalg.solve(V, A))
    np.testing.assert_allclose(found.se**2, np.diagonal(covariance), rtol=1e-10)


@given(st.integers(0, 10**6))
def test_without_differences_there_are_no_effects(seed: int) -> None:
    X, y, _ = rows_of(seed)
    groups = np.arange(len(y)) % 6
    # Every site has the same rows: nothing is left between them.
    parts = by_client(np.repeat(X[:15], 6, axis=0), np.repeat(y[:15], 6), groups)
    found = random_site_effects(parts)
    assert found.variance_sites == 0.0
    assert found.variance_p == 1.0
    pooled = solve(sum(parts.values()), 0.0)
    np.testing.assert_allclose(found.coefficients[1:], pooled.coef_, rtol=1e-9)


def test_random_effects_look() -> None:
    found = random_site_effects(by_client(*rows_of()))
    assert "REML" in repr(found)
    assert "<table>" in found._repr_html_()
    assert list(found.to_frame().index) == ["intercept", "x0", "x1"]
    assert 0 < found.intraclass_correlation < 1
    with pytest.raises(FedRidgeError, match="method must be"):
        random_site_effects(by_client(*rows_of()), method="bayes")


# ---- every site by itself -----------------------------------------------------------


def test_estimates_of_sites_equal_fits_at_them(shared_data: Any) -> None:
    X, y, groups = heart(shared_data)
    found = site_estimates(by_client(X, y, groups))
    squares = freedom = 0.0
    for site in np.unique(groups):
        own = groups == site
        fit = sm.OLS(y[own], sm.add_constant(X[own])).fit()
        k = found.estimates.rows.index(site)
        np.testing.assert_allclose(found.estimates.values[k], fit.params, rtol=1e-8)
        np.testing.assert_allclose(found.se.values[k], fit.bse, rtol=1e-8)
        squares, freedom = squares + fit.ssr, freedom + fit.df_resid
    pooled = sm.OLS(y, sm.add_constant(X)).fit()
    fewer = pooled.df_resid - freedom
    f = (pooled.ssr - squares) / fewer / (squares / freedom)
    assert found.equal.statistic == pytest.approx(f, rel=1e-9)
    assert found.equal.df == fewer
    from statsmodels.stats.meta_analysis import combine_effects

    for k, term in enumerate(found.estimates.columns):
        b, se = found.estimates.values[:, k], found.se.values[:, k]
        wanted = combine_effects(b, se**2)
        assert found.q[term] == pytest.approx(wanted.q, rel=1e-9)
        assert found.i2[term] == pytest.approx(max(wanted.i2, 0.0), rel=1e-8)
        assert found.q_p[term] == pytest.approx(
            wanted.test_homogeneity().pvalue, rel=1e-8
        )
    labels = [t.get_text() for t in found.plot("x0").axes[0].get_yticklabels()]
    assert labels == [
        *found.estimates.rows,
        "average of the sites",
        "all rows, one intercept",
    ]
    with pytest.raises(FedRidgeError, match="'z' is not a term"):
        found.plot("z")


def test_constant_columns_of_a_site_go_into_its_intercept(shared_data: Any) -> None:
    X, y, groups = exam(shared_data)
    found = site_estimates(by_client(X, y, groups))
    assert np.isnan(found.estimates.values[:, 0]).all()
    assert np.isnan(found.estimates.values[:, 2]).all()  # schavg
    assert np.isnan(found.i2["x1"])
    k = found.estimates.rows.index("1")
    own = groups == 1
    spread = X[own].std(axis=0) > 1e-12
    fit = sm.OLS(y[own], sm.add_constant(X[own][:, spread])).fit()
    ours = found.estimates.values[k][1:][spread]
    np.testing.assert_allclose(ours, fit.params[1:], rtol=1e-8)
    assert "48" in found.left_out  # two pupils
    assert len(found.left_out) + len(found.estimates.rows) == 65


def test_sites_without_rows_enough() -> None:
    X, y, _ = rows_of()
    parts = [SufficientStatistics.from_data(X[k : k + 2], y[k : k + 2]) for k in (0, 2)]
    with pytest.raises(StatisticsError, match="only 0 of 2 sites"):
        site_estimates(parts)
    two = SufficientStatistics.from_data(X, np.column_stack([y, y]))
    for function in (site_estimates, fixed_site_effects, site_influence):
        with pytest.raises(StatisticsError, match="one target"):
            function([two, two])
        with pytest.raises(StatisticsError, match="at least 2 sites"):
            function([two])
    with pytest.raises(StatisticsError, match="site 0: SufficientStatistics of every"):
        site_estimates([1, 2])  # type: ignore[list-item]


# ---- influence ----------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 3.0])
def test_influence_equals_fits_without_the_site(alpha: float) -> None:
    X, y, groups = rows_of()
    parts = by_client(X, y, groups)
    found = site_influence(parts, alpha)
    whole = solve(sum(parts.values()), alpha)
    A = np.column_stack([np.ones(len(y)), X])
    bread = np.linalg.inv(A.T @ A + alpha * np.diag([0.0, 1.0, 1.0]))
    b = np.array([whole.intercept_, *whole.coef_])
    e, hat = y - A @ b, A @ bread @ A.T
    s2 = (e**2).sum() / (len(y) - np.trace(hat))
    metric = np.linalg.inv(bread @ A.T @ A @ bread) / s2
    for site in parts:
        rest = groups != int(site)
        without = solve(SufficientStatistics.from_data(X[rest], y[rest]), alpha)
        change = b - np.array([without.intercept_, *without.coef_])
        k = found.change.rows.index(site)
        np.testing.assert_allclose(found.change.values[k], change, atol=1e-11)
        own = ~rest
        assert found.fit[site, "rows"] == own.sum()
        assert found.fit[site, "mean_residual"] == pytest.approx(e[own].mean())
        spread = np.sqrt((e[own] ** 2).mean())
        assert found.fit[site, "residual_sd"] == pytest.approx(spread)
        assert found.fit[site, "r2"] == pytest.approx(1 - spread**2 / y[own].var())
        share = np.trace(hat[np.ix_(own, own)]) / np.trace(hat)
        assert found.fit[site, "leverage"] == pytest.approx(share)
        assert found.fit[site, "cook"] == pytest.approx(change @ metric @ change / 3)
    shares = [found.fit[site, "leverage"] for site in parts]
    assert sum(shares) == pytest.approx(1.0)


def test_a_site_that_the_model_cannot_do_without() -> None:
    X, y, groups = rows_of()
    X[groups != 2, 1] = 0.0
    found = site_influence(by_client(X, y, groups))
    assert "constant" in found.left_out["2"]
    assert np.isnan(found.fit["2", "cook"])
    assert np.isfinite(found.fit["1", "cook"])


def test_results_are_printed_as_tables() -> None:
    rng = np.random.default_rng(0)
    parts = {}
    for name in ("Bern", "Oslo", "Wien"):
        X, y = rng.normal(size=(40, 2)), rng.normal(size=40)
        parts[name] = SufficientStatistics.from_data(X, y)
    parts["tiny"] = SufficientStatistics.from_data(X[:2], y[:2])
    estimates = str(site_estimates(parts))
    assert "equal coefficients at 3 sites: F(6," in estimates
    for head in ("Oslo", "all rows", "I²", "p of Q", "left out: tiny: "):
        assert f"\n{head}" in estimates
    effects = str(fixed_site_effects(parts))
    assert effects.startswith("Intercept for each of 4 sites, target y, 122 rows\n")
    assert "\nWien" in effects
    assert "P>|t|" in effects
    influence = str(site_influence(parts))
    assert "mean_residual" in influence
    assert "less those without the site" in influence
    for text in (estimates, effects, influence):
        assert "array(" not in text
        assert "NamedMatrix(" not in text
