"""Questions that statistics answer equal fresh fits on the pooled rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st
from real_data import by_client, diabetes, exam, heart
from statsmodels.stats.outliers_influence import variance_inflation_factor

from fedridge_flwr import (
    FedRidgeError,
    PolynomialMap,
    SingularSystemError,
    StatisticsError,
    SufficientStatistics,
    infer,
    solve,
)
from fedridge_flwr.regression import (
    NamedMatrix,
    correlations,
    nested_test,
    partial_correlations,
    select_columns,
    standardized_coefficients,
    variance_inflation,
    wald_test,
)

REAL = {"diabetes": diabetes, "heart": heart, "exam": exam}


def frame_of(n: int = 60) -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n, 4)), columns=["age", "bmi", "bp", "sex"])
    X["bp"] += X["age"]
    return X, pd.Series(X["age"] - X["bp"] + rng.normal(size=n), name="score")


# ---- columns ------------------------------------------------------------------------


@pytest.mark.parametrize("name", REAL)
def test_any_subset_and_target_equal_a_fresh_fit(name: str, shared_data: Any) -> None:
    X, y, groups = REAL[name](shared_data)
    total = sum(by_client(X, y, groups).values())
    rng = np.random.default_rng(0)
    columns = np.column_stack([X, y])
    for alpha in (0.0, 1.0):
        for _ in range(10):
            order = rng.permutation(columns.shape[1])[: rng.integers(2, X.shape[1])]
            features, target = order[1:], order[0]
            stats = select_columns(total, features.tolist(), int(target))
            found = solve(stats, alpha)
            rows = columns[:, features], columns[:, target]
            fresh = solve(SufficientStatistics.from_data(*rows), alpha)
            scale = columns[:, features].std(axis=0) / columns[:, target].std()
            assert np.abs((found.coef_ - fresh.coef_) * scale).max() < 1e-10
            if alpha == 0.0:
                wanted = sm.OLS(rows[1], sm.add_constant(rows[0])).fit()
                np.testing.assert_allclose(infer(stats).se, wanted.bse, rtol=1e-10)


@given(st.integers(0, 10**6))
def test_choosing_all_columns_twice_is_the_identity(seed: int) -> None:
    rng = np.random.default_rng(seed)
    stats = SufficientStatistics.from_data(rng.normal(size=(9, 4)), rng.normal(size=9))
    order = rng.permutation(4).tolist()
    there = select_columns(stats, order)
    back = select_columns(there, [order.index(j) for j in range(4)])
    assert (back.to_array() == stats.to_array()).all()
    assert select_columns(stats, targets="y").schema == stats.schema


def test_columns_go_by_their_names() -> None:
    X, y = frame_of()
    stats = SufficientStatistics.from_data(X, y)
    chosen = select_columns(stats, ["bp", "score"], "age")
    assert chosen.feature_names == ("bp", "score")
    assert chosen.target_names == ("age",)
    model = solve(chosen, 0.0)
    rows = X.assign(score=y)
    assert model.predict(rows[["score", "bp"]]).shape == (60,)
    found = infer(chosen).predict(rows[["score", "bp"]])
    np.testing.assert_allclose(found.mean, model.predict(rows[["score", "bp"]]))


def test_columns_of_a_map_can_be_chosen() -> None:
    X, y = np.arange(12.0).reshape(6, 2) ** 2, np.arange(6.0)
    square = PolynomialMap(2)
    stats = SufficientStatistics.from_data(X, y, feature_map=square)
    chosen = select_columns(stats, ["f0", "f2"])
    fresh = SufficientStatistics.from_data(square.transform(X)[:, [0, 2]], y)
    np.testing.assert_allclose(chosen.comoment, fresh.comoment, rtol=1e-12)
    assert chosen.feature_map is None


def test_columns_that_cannot_be_chosen() -> None:
    stats = SufficientStatistics.from_data(*frame_of())
    with pytest.raises(FedRidgeError, match="'weight' is not a column; there"):
        select_columns(stats, ["weight"])
    with pytest.raises(FedRidgeError, match="there is no column 9"):
        select_columns(stats, [9])
    for features, target in ((["age", "age"], None), (["age"], "age"), ([], None)):
        with pytest.raises(FedRidgeError, match="each column is chosen once"):
            select_columns(stats, features, target)
    twice = SufficientStatistics.from_data(
        pd.DataFrame({"a": [1.0, 2.0]}), pd.Series([1.0, 2.0], name="a")
    )
    with pytest.raises(FedRidgeError, match="occurs twice: use its number"):
        select_columns(twice, targets="a")


# ---- correlations -------------------------------------------------------------------


@pytest.mark.parametrize("name", REAL)
def test_correlations_equal_numpy(name: str, shared_data: Any) -> None:
    X, y, groups = REAL[name](shared_data)
    total = sum(by_client(X, y, groups).values())
    rows = np.column_stack([X, y])
    wanted = np.corrcoef(rows.T)
    np.testing.assert_allclose(np.asarray(correlations(total)), wanted, atol=1e-12)
    inverse = np.linalg.inv(wanted)
    scale = np.sqrt(np.diagonal(inverse))
    partial = -inverse / np.outer(scale, scale)
    np.fill_diagonal(partial, 1.0)
    found = np.asarray(partial_correlations(total))
    np.testing.assert_allclose(found, partial, atol=1e-9)
    A = sm.add_constant(X)
    factors = [variance_inflation_factor(A, j + 1) for j in range(X.shape[1])]
    found = list(variance_inflation(total).values())
    np.testing.assert_allclose(found, factors, rtol=1e-8)


def test_standardized_coefficients_are_those_of_standardized_rows() -> None:
    X, y = frame_of()
    found = standardized_coefficients(SufficientStatistics.from_data(X, y))
    rows = (X - X.mean()) / X.std(), (y - y.mean()) / y.std()
    wanted = solve(SufficientStatistics.from_data(*rows), 0.0).coef_
    np.testing.assert_allclose(found.values[:, 0], wanted, rtol=1e-10)
    assert found["age", "score"] == found.values[0, 0]


def test_constant_and_dependent_columns_are_named() -> None:
    X, y = frame_of()
    constant = SufficientStatistics.from_data(X.assign(one=1.0), y)
    assert np.isnan(correlations(constant)["one", "age"])
    with pytest.raises(SingularSystemError, match=r"column 4 \('one'\) is constant"):
        variance_inflation(constant)
    twice = SufficientStatistics.from_data(X.assign(again=X["age"]), y)
    with pytest.raises(SingularSystemError, match="is a copy of"):
        partial_correlations(twice)


def test_named_matrix() -> None:
    found = NamedMatrix(np.array([[1.0, np.nan]]), ["a<b"], ["x_1", "y|"])
    assert found.to_frame().loc["a<b", "x_1"] == 1.0
    assert "a&lt;b" in found._repr_html_()
    assert r"x\_1" in found.to_latex()
    assert r"y\|" in found.to_markdown()
    assert repr(found).splitlines()[1].split() == ["a<b", "1"]
    with pytest.raises(FedRidgeError, match="'z' is not among"):
        found["z", "x_1"]
    with pytest.raises(FedRidgeError, match="1 names of rows and 1 of columns"):
        NamedMatrix(np.eye(2), ["a"], ["b"])


# ---- tests --------------------------------------------------------------------------


@pytest.mark.parametrize("name", REAL)
def test_nested_models_equal_compare_f_test(name: str, shared_data: Any) -> None:
    X, y, groups = REAL[name](shared_data)
    total = sum(by_client(X, y, groups).values())
    larger = sm.OLS(y, sm.add_constant(X)).fit()
    for kept in ([0], [1, 3], list(range(X.shape[1] - 1))):
        smaller = sm.OLS(y, sm.add_constant(X[:, kept])).fit()
        value, p, fewer = larger.compare_f_test(smaller)
        found = nested_test(total, kept)
        assert found.statistic == pytest.approx(value, rel=1e-8)
        assert found.p == pytest.approx(p, rel=1e-7, abs=1e-300)
        assert (found.df, found.df_residual) == (fewer, larger.df_resid)


def test_wald_tests_equal_statsmodels() -> None:
    X, y = frame_of(120)
    groups = np.arange(120) % 15
    parts = {
        str(k): SufficientStatistics.from_data(X[groups == k], y[groups == k])
        for k in range(15)
    }
    A = sm.add_constant(X)
    R = np.array([[0, 1, 0, 0, 0], [0, 0, 1, -1, 0]], dtype=float)
    robust = {"cov_type": "cluster", "cov_kwds": {"groups": groups}}
    for kind, by_t, fit in (
        ("classical", None, {}),
        ("CR1", False, robust),
        ("CR1", True, {**robust, "use_t": True}),
    ):
        found = infer(sum(parts.values()), parts=parts, covariance=kind, use_t=by_t)
        wanted = sm.OLS(y, A).fit(**fit)
        for options, matrix, value in (
            ({"terms": ["age", "bp"]}, np.eye(5)[[1, 3]], [0.0, 0.0]),
            ({"matrix": R, "value": [0.5, 0.0]}, R, [0.5, 0.0]),
        ):
            test = wanted.wald_test((matrix, value), scalar=True)
            ours = wald_test(found, **options)
            assert ours.statistic == pytest.approx(float(test.statistic), rel=1e-9)
            assert ours.p == pytest.approx(float(test.pvalue), rel=1e-8)
            assert ours.name == ("F" if test.distribution == "F" else "chi2")


def test_tests_that_make_no_sense() -> None:
    X, y = frame_of()
    stats = SufficientStatistics.from_data(X, y)
    found = infer(stats)
    with pytest.raises(FedRidgeError, match="give either terms"):
        wald_test(found)
    with pytest.raises(FedRidgeError, match="unknown terms: 'weight'"):
        wald_test(found, ["weight"])
    with pytest.raises(FedRidgeError, match="the matrix needs 5 columns"):
        wald_test(found, matrix=[[1.0]])
    with pytest.raises(StatisticsError, match="2 linear hypotheses are dependent"):
        wald_test(found, matrix=np.eye(5)[[1, 1]])
    with pytest.raises(FedRidgeError, match="leave some out"):
        nested_test(stats, list(X.columns))
    two = SufficientStatistics.from_data(X, np.column_stack([y, y**2]))
    with pytest.raises(StatisticsError, match="one target"):
        nested_test(two, [0])
    with pytest.raises(StatisticsError, match="one target"):
        wald_test(infer(two), ["age"])
