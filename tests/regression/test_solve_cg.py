"""solve(solver="cg"): the same model by products alone, and when it says it is not."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from generators import linear_rows, relative_error
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from fedridge_flwr import (
    FedRidgeError,
    IllConditionedWarning,
    NotConvergedWarning,
    PlainStatistics,
    SingularSystemError,
    SufficientStatistics,
    solve,
)
from fedridge_flwr.statistics.float32 import from_compact, to_compact

from_data = SufficientStatistics.from_data


# ---- as a solver --------------------------------------------------------------------


@given(
    seed=st.integers(0, 10_000),
    d=st.integers(1, 30),
    t=st.sampled_from([None, 3]),
    alpha=st.sampled_from([0.0, 1e-3, 1.0, 1e3]),
    fit_intercept=st.booleans(),
    standardize=st.booleans(),
    scale=st.sampled_from([0, 8]),
)
def test_the_model_is_that_of_cholesky(
    seed, d, t, alpha, fit_intercept, standardize, scale
):
    rng = np.random.default_rng(seed)
    X, y = linear_rows(6 * d + 20, d, rng, t)
    X = X * 10.0 ** rng.uniform(-scale, scale, size=d)
    stats = from_data(X, y)
    options = {"fit_intercept": fit_intercept, "standardize": standardize}
    expected = solve(stats, alpha, **options)
    model = solve(stats, alpha, **options, solver="cg")
    units = X.std(axis=0)
    assert relative_error(model.coef_ * units, expected.coef_ * units) < 1e-10
    assert model.intercept_ == pytest.approx(expected.intercept_, rel=1e-8, abs=1e-8)
    assert model.r2_ == pytest.approx(expected.r2_, abs=1e-10)
    assert 1.0 <= model.condition_ <= 3.0 * expected.condition_


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_many_features_as_scikit_learn_has_them(fit_intercept):
    X, y = linear_rows(1500, 300, np.random.default_rng(0))
    model = solve(from_data(X + 3.0, y), 2.0, fit_intercept=fit_intercept, solver="cg")
    ridge = Ridge(2.0, fit_intercept=fit_intercept).fit(X + 3.0, y)
    assert relative_error(model.coef_, ridge.coef_) < 1e-10


def test_plain_statistics_can_be_solved_too():
    X, y = linear_rows(50, 4, np.random.default_rng(0))
    plain = PlainStatistics.from_statistics(from_data(X, y))
    model = solve(plain, 1.0, fit_intercept=False, solver="cg")
    expected = solve(plain, 1.0, fit_intercept=False)
    assert relative_error(model.coef_, expected.coef_) < 1e-11


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_there_is_no_second_matrix(fit_intercept):
    d = 600
    X, y = linear_rows(2 * d, d, np.random.default_rng(0))
    stats = from_data(X, y)
    assert stats.comoment.shape == (d + 1, d + 1)  # laid out once, for all solvers

    def peak(solver):
        tracemalloc.start()
        solve(stats, 1.0, fit_intercept=fit_intercept, solver=solver)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert peak("cholesky") > 8 * d * d > 4 * peak("cg")


def test_the_condition_is_that_of_the_scaled_system():
    X, y = linear_rows(400, 40, np.random.default_rng(0))
    stats = from_data(X * np.geomspace(1e-5, 1e5, 40), y)
    matrix = stats.centred_gram
    scale = 1.0 / np.sqrt(np.diagonal(matrix))
    exact = np.linalg.cond(matrix * np.outer(scale, scale))
    assert solve(stats, 0.0, solver="cg").condition_ == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("y", [np.zeros(20), np.full(20, 2.5)])
def test_a_constant_target_gives_zero_coefficients(y):
    X, _ = linear_rows(20, 3, np.random.default_rng(0))
    model = solve(from_data(X, y), 1.0, solver="cg")
    assert np.abs(model.coef_).max() < 1e-15
    assert model.condition_ >= 1.0


# ---- what it refuses, and what it warns of ------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 1e-15])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda X: np.column_stack([X, X[:, 1]]), "copy"),
        (lambda X: np.column_stack([X, X.sum(axis=1)]), "linear combination"),
    ],
)
def test_dependent_columns_are_named_as_ever(change, words, alpha):
    # The right-hand side lies in the range of the data, so that the steps for it alone
    # would end well, at one of many solutions.
    X, y = linear_rows(50, 5, np.random.default_rng(0))
    with pytest.raises(SingularSystemError, match=words):
        solve(from_data(change(X), y), alpha, solver="cg")


def test_constant_columns_and_too_few_rows_are_named():
    X, y = linear_rows(50, 5, np.random.default_rng(0))
    X[:, 2] = 7.0
    with pytest.raises(SingularSystemError, match="column 2 is constant"):
        solve(from_data(X, y), 0.0, solver="cg")
    assert solve(from_data(X, y), 1.0, solver="cg").coef_[2] == pytest.approx(0.0)
    with pytest.raises(SingularSystemError, match="4 rows cannot determine 6"):
        solve(from_data(*linear_rows(4, 5, np.random.default_rng(0))), 0, solver="cg")


def test_what_float32_cannot_tell_from_singular_is_refused():
    X = np.random.default_rng(0).normal(size=(50, 2))
    exact = from_data(np.column_stack([X, X.sum(axis=1)]), X[:, 0])
    rounded = from_compact(*to_compact(exact), exact.schema, 50)
    with pytest.raises(SingularSystemError, match="sent as float64"):
        solve(rounded, 0.0, solver="cg")


def test_ill_conditioned_systems_are_warned_about():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 400))
    stats = from_data(np.column_stack([a, a + 1e-5 * b]), a + b)
    with pytest.warns(IllConditionedWarning, match="after scaling"):
        solve(stats, 0.0, solver="cg")


def test_ending_early_is_a_warning_with_the_remedy():
    rng = np.random.default_rng(0)
    d = 200
    Q, _ = np.linalg.qr(rng.normal(size=(d, d)))
    X = rng.normal(size=(2 * d, d)) * np.arange(1, d + 1) ** -1.2 @ Q
    stats = from_data(X, X.sum(axis=1) + rng.normal(size=2 * d))
    with pytest.warns(NotConvergedWarning, match='Use solver="cholesky" or raise'):
        model = solve(stats, 0.0, solver="cg")
    assert relative_error(model.coef_, solve(stats, 0.0).coef_) < 1e-2
    assert (
        relative_error(solve(stats, 1.0, solver="cg").coef_, solve(stats, 1.0).coef_)
        < 1e-9
    )


@pytest.mark.parametrize("solver", ["lu", "", None, 3, ["cg"]])
def test_another_solver_is_refused_with_the_known_ones(solver):
    stats = from_data(*linear_rows(20, 3, np.random.default_rng(0)))
    with pytest.raises(FedRidgeError, match='solver must be "cholesky" or "cg", got'):
        solve(stats, 1.0, solver=solver)
