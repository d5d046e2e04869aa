"""solve and solve_path: known solutions, edge cases, certified digits."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from generators import client_statistics, linear_rows, relative_error
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from fedridge_flwr import (
    FedRidgeError,
    IllConditionedWarning,
    PlainStatistics,
    SingularSystemError,
    StatisticsError,
    SufficientStatistics,
    solve,
    solve_path,
)

from_data = SufficientStatistics.from_data


# ---- what is minimised --------------------------------------------------------------


@given(
    seed=st.integers(0, 10_000),
    alpha=st.floats(1e-3, 1e3),
    fit_intercept=st.booleans(),
    t=st.sampled_from([None, 2]),
)
def test_the_gradient_of_the_objective_vanishes(seed, alpha, fit_intercept, t):
    rng = np.random.default_rng(seed)
    X, y = linear_rows(20, 4, rng, t)
    model = solve(from_data(X, y), alpha, fit_intercept=fit_intercept)
    rest = y - X @ model.coef_.T - model.intercept_
    gradient = X.T @ rest - alpha * model.coef_.T
    size = np.linalg.norm(X) * np.linalg.norm(y)
    assert np.abs(gradient).max() < 1e-13 * size
    if fit_intercept:
        assert np.abs(rest.sum(axis=0)).max() < 1e-13 * size
    else:
        assert not np.any(model.intercept_)


def test_a_line_is_found_exactly():
    x = np.arange(10.0)
    model = solve(from_data(x[:, None], 3.0 * x + 1.0), alpha=0.0)
    assert model.coef_[0] == pytest.approx(3.0, rel=1e-14)
    assert model.intercept_ == pytest.approx(1.0, rel=1e-13)
    assert model.r2_ == pytest.approx(1.0, rel=1e-13)


def test_ridge_equals_least_squares_on_rows_added_for_the_penalty():
    X, y = linear_rows(30, 4, np.random.default_rng(0))
    alpha = 2.5
    more = from_data(np.sqrt(alpha) * np.eye(4), np.zeros(4))
    augmented = solve(from_data(X, y) + more, alpha=0.0, fit_intercept=False)
    ridge = solve(from_data(X, y), alpha, fit_intercept=False)
    assert relative_error(augmented.coef_, ridge.coef_) < 1e-13


@given(seed=st.integers(0, 10_000))
def test_a_larger_penalty_never_gives_larger_coefficients(seed):
    X, y = linear_rows(15, 5, np.random.default_rng(seed))
    stats = from_data(X, y)
    norms = [np.linalg.norm(solve(stats, a).coef_) for a in (0.0, 0.1, 1, 10, 1e4)]
    assert all(np.diff(norms) < 1e-12)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("t", [None, 3])
def test_r2_of_the_fit_is_scikit_learns_score(fit_intercept, weighted, t):
    rng = np.random.default_rng(0)
    X, y = linear_rows(60, 4, rng, t)
    weight = rng.exponential(size=60) if weighted else None
    model = solve(from_data(X, y, weight), 3.0, fit_intercept=fit_intercept)
    ridge = Ridge(3.0, fit_intercept=fit_intercept).fit(X, y, weight)
    assert model.r2_ == pytest.approx(ridge.score(X, y, weight), abs=1e-12)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("value", [0.0, 0.1, 1e6 / 7])
def test_r2_is_not_known_where_the_target_does_not_vary(value, fit_intercept):
    X, _ = linear_rows(200, 3, np.random.default_rng(0))
    y = np.full(200, value)
    total = sum(client_statistics(X, y, np.array_split(np.arange(200), 7)))
    assert solve(total, fit_intercept=fit_intercept).r2_ is None


def test_the_model_knows_what_it_stands_on():
    X, y = linear_rows(30, 4, np.random.default_rng(0))
    total = sum(client_statistics(X, y, np.array_split(np.arange(30), 3)))
    model = solve(total, 2, standardize=True)
    assert (model.n_rows_, model.n_clients_, model.n_features_in_) == (30, 3, 4)
    assert model.alpha_ == 2.0
    assert model.standardize
    assert model.fit_intercept
    assert 1.0 <= model.condition_ < 100.0


# ---- the table of edge cases --------------------------------------------------------


def test_no_rows_is_an_error():
    with pytest.raises(StatisticsError, match="zero rows"):
        solve(from_data(np.empty((0, 3)), []))
    with pytest.raises(StatisticsError, match="weights are zero"):
        solve(from_data(np.ones((4, 3)), np.ones(4), np.zeros(4)))


@pytest.mark.parametrize("y", [[2.5], [[2.5, -1.0]]])
def test_one_row_gives_zero_coefficients_and_its_target_as_intercept(y):
    model = solve(from_data([[3.0, -4.0, 1e6]], y))
    assert not model.coef_.any()
    assert np.array_equal(model.intercept_, np.array(y[0]))
    assert model.r2_ is None


@pytest.mark.parametrize("standardize", [False, True])
def test_a_constant_column_gets_the_coefficient_zero(standardize):
    X, y = linear_rows(40, 2, np.random.default_rng(0))
    X = np.column_stack([X[:, 0], np.full(40, 0.7), X[:, 1]])
    total = sum(client_statistics(X, y, np.array_split(np.arange(40), 5)))
    model = solve(total, 1.0, standardize=standardize)
    assert model.coef_[1] == pytest.approx(0.0, abs=1e-15)
    without = solve(from_data(X[:, [0, 2]], y), 1.0, standardize=standardize)
    assert relative_error(model.coef_[[0, 2]], without.coef_) < 1e-13
    with pytest.raises(SingularSystemError, match="column 1 is constant"):
        solve(total, 0.0, standardize=standardize)


def test_a_constant_column_serves_as_intercept_where_there_is_none():
    X, y = linear_rows(40, 2, np.random.default_rng(0))
    with_ones = from_data(np.column_stack([X, np.ones(40)]), y)
    model = solve(with_ones, 0.0, fit_intercept=False)
    expected = solve(from_data(X, y), 0.0)
    assert relative_error(model.coef_[:2], expected.coef_) < 1e-12
    assert model.coef_[2] == pytest.approx(expected.intercept_, rel=1e-12)


def test_fewer_rows_than_features_needs_a_penalty():
    X, y = linear_rows(5, 8, np.random.default_rng(0))
    stats = from_data(X, y)
    expected = Ridge(0.1).fit(X, y)
    assert relative_error(solve(stats, 0.1).coef_, expected.coef_) < 1e-12
    with pytest.raises(
        SingularSystemError, match=r"5 rows cannot determine 9 coeff.*alpha > 0"
    ):
        solve(stats, 0.0)
    with pytest.raises(SingularSystemError, match="5 rows cannot determine 8"):
        solve(stats, 0.0, fit_intercept=False)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(("d", "t"), [(1, None), (1, 3), (4, None), (4, 3)])
def test_shapes_are_those_of_scikit_learn(d, t, fit_intercept):
    X, y = linear_rows(20, d, np.random.default_rng(0), t)
    model = solve(from_data(X, y), fit_intercept=fit_intercept)
    ridge = Ridge(fit_intercept=fit_intercept).fit(X, y)
    assert model.coef_.shape == ridge.coef_.shape
    assert np.shape(model.intercept_) == np.shape(ridge.intercept_)
    assert model.predict(X).shape == ridge.predict(X).shape


def test_a_column_of_targets_is_one_target_as_in_scikit_learn():
    X, y = linear_rows(20, 3, np.random.default_rng(0))
    model, ridge = solve(from_data(X, y[:, None])), Ridge().fit(X, y[:, None])
    assert model.coef_.shape == ridge.coef_.shape == (3,)
    assert model.predict(X).shape == ridge.predict(X).shape == (20,)
    assert model.score(X, y[:, None]) == pytest.approx(model.score(X, y))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({}, "an intercept"),
        ({"standardize": True}, "an intercept"),
        ({"fit_intercept": False, "standardize": True}, "standardisation"),
    ],
)
def test_plain_statistics_solve_only_what_they_hold(options, what):
    plain = PlainStatistics.from_arrays(np.eye(2), np.ones(2), count=2)
    with pytest.raises(StatisticsError, match=f"{what} needs.*fit_intercept=False"):
        solve(plain, **options)
    model = solve(plain, 1.0, fit_intercept=False)
    assert np.allclose(model.coef_, [0.5, 0.5])
    assert model.r2_ is None


def test_rows_instead_of_statistics_are_refused_with_the_way_out():
    with pytest.raises(StatisticsError, match=r"got ndarray.*from_data\(X, y\)"):
        solve(np.ones((3, 2)))


# ---- alpha --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "alpha", [2, 2.0, np.float64(2), np.float32(2), np.int8(2), np.longdouble(2)]
)
def test_alpha_may_be_any_real_number(alpha):
    stats = from_data([[0.0], [1.0], [2.0]], [1.0, 2.0, 4.0])
    model = solve(stats, alpha)
    assert type(model.alpha_) is float
    assert model.coef_[0] == solve(stats, 2.0).coef_[0]


@pytest.mark.parametrize(
    "alpha",
    [
        *(-1, -1e-300, np.nan, np.inf, True, np.True_, "1", None, 1j, [1.0]),
        pytest.param(10**400, id="beyond float64"),
    ],
)
@pytest.mark.parametrize("solver", [solve, lambda s, a: solve_path(s, [1.0, a])])
def test_alpha_must_be_a_finite_number_zero_or_more(alpha, solver):
    stats = from_data([[0.0], [1.0], [2.0]], [1.0, 2.0, 4.0])
    with pytest.raises(FedRidgeError, match="alpha must be a finite number, zero or"):
        solver(stats, alpha)


def test_negative_zero_is_zero():
    stats = from_data([[0.0], [1.0], [2.0]], [1.0, 2.0, 4.0])
    assert solve(stats, -0.0).coef_[0] == solve(stats, 0.0).coef_[0]


# ---- paths --------------------------------------------------------------------------

PATH = [1e-3, 1e3, 0.5, 0.0, 20.0, 0.5]


@given(
    seed=st.integers(0, 10_000),
    fit_intercept=st.booleans(),
    standardize=st.booleans(),
    units=st.lists(st.sampled_from([1e-4, 1.0, 1e4]), min_size=5, max_size=5),
    t=st.sampled_from([None, 2]),
)
def test_a_path_is_what_solve_gives_one_by_one(
    seed, fit_intercept, standardize, units, t
):
    options = {"fit_intercept": fit_intercept, "standardize": standardize}
    X, y = linear_rows(25, 5, np.random.default_rng(seed), t)
    stats = from_data((X + 1.0) * units, y)
    for model, alpha in zip(solve_path(stats, PATH, **options), PATH, strict=True):
        expected = solve(stats, alpha, **options)
        # In units of each column, so that small coefficients count as well.
        found, wanted = model.coef_ * units, expected.coef_ * units
        assert np.abs(found - wanted).max() < 1e-11 * np.abs(wanted).max()
        np.testing.assert_allclose(model.intercept_, expected.intercept_, atol=1e-10)
        assert model.alpha_ == alpha
        if alpha > 0:
            assert model.r2_ == pytest.approx(expected.r2_, abs=1e-10)
        assert 0.1 < model.condition_ / expected.condition_ < 10


def test_the_same_alpha_twice_gives_the_same_bits():
    X, y = linear_rows(25, 5, np.random.default_rng(0))
    path = solve_path(from_data(X, y), PATH)
    assert path[2].coef_.tobytes() == path[5].coef_.tobytes()


def test_a_path_neither_reads_nor_moves_the_global_random_state():
    X, y = linear_rows(60, 30, np.random.default_rng(0))
    stats = from_data(X, y)
    found = []
    for seed in (0, 1):
        np.random.seed(seed)  # noqa: NPY002
        expected = np.random.RandomState(seed).random()
        found.append([model.condition_ for model in solve_path(stats, PATH)])
        assert np.random.random() == expected  # noqa: NPY002
    assert found[0] == found[1]


def test_a_path_of_one_or_two_alphas_is_solve_to_the_bit():
    X, y = linear_rows(25, 5, np.random.default_rng(0))
    stats = from_data(X, y)
    for alphas in ([0.5], [0.5, 3.0]):
        for model, alpha in zip(solve_path(stats, alphas), alphas, strict=True):
            assert model.coef_.tobytes() == solve(stats, alpha).coef_.tobytes()


def test_alphas_may_be_an_array_and_must_not_be_empty():
    stats = from_data([[0.0], [1.0], [2.0]], [1.0, 2.0, 4.0])
    assert len(solve_path(stats, np.logspace(-3, 3, 7))) == 7
    with pytest.raises(FedRidgeError, match="alphas is empty"):
        solve_path(stats, [])


def test_a_path_of_plain_statistics_is_what_solve_gives():
    X, y = linear_rows(25, 5, np.random.default_rng(0))
    plain = PlainStatistics.from_statistics(from_data(X, y))
    for model in solve_path(plain, PATH, fit_intercept=False):
        expected = solve(plain, model.alpha_, fit_intercept=False)
        assert relative_error(model.coef_, expected.coef_) < 1e-12
    with pytest.raises(StatisticsError, match="an intercept"):
        solve_path(plain, PATH)


def test_a_path_names_dependent_columns_only_where_the_penalty_is_zero():
    X, y = linear_rows(25, 3, np.random.default_rng(0))
    stats = from_data(np.column_stack([X, X[:, 0]]), y)
    models = solve_path(stats, [0.1, 1.0, 10.0])
    for model in models:
        assert relative_error(model.coef_, solve(stats, model.alpha_).coef_) < 1e-12
    with pytest.raises(SingularSystemError, match="column 3"):
        solve_path(stats, [0.0, 0.1, 1.0, 10.0])


# ---- conditioning -------------------------------------------------------------------


def nearly_dependent(distance):
    rng = np.random.default_rng(0)
    X, y = linear_rows(100, 3, rng)
    return from_data(np.column_stack([X, X[:, 0] + distance * rng.normal(size=100)]), y)


def test_units_do_not_make_a_system_ill_conditioned():
    X, y = linear_rows(100, 3, np.random.default_rng(0))
    units = np.array([1e-8, 1.0, 1e8])
    model = solve(from_data(X * units, y), 0.0)
    expected = solve(from_data(X, y), 0.0)
    assert relative_error(model.coef_ * units, expected.coef_) < 1e-12
    assert model.condition_ == pytest.approx(expected.condition_, rel=1e-6)


def test_losing_more_than_half_of_the_digits_is_a_warning():
    with pytest.warns(IllConditionedWarning, match=r"condition .*coefficients by"):
        model = solve(nearly_dependent(1e-5), 0.0)
    assert model.condition_ > 1e8
    with pytest.warns(IllConditionedWarning, match=r"raise alpha \(now 1e-09\)"):
        solve(nearly_dependent(1e-5), 1e-9)


def test_the_warning_points_at_the_caller():
    with pytest.warns(IllConditionedWarning) as caught:
        solve(nearly_dependent(1e-5), 0.0)
    assert caught[0].filename == __file__
    with pytest.warns(IllConditionedWarning) as caught:
        solve_path(nearly_dependent(1e-5), [0.0, 1.0, 2.0])
    assert caught[0].filename == __file__


def test_losing_fewer_digits_is_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = solve(nearly_dependent(1e-3), 0.0)
    assert model.condition_ < 1e8


def test_a_system_too_singular_to_trust_is_an_error():
    with pytest.raises(SingularSystemError, match=r"column.* 0.* alpha > 0"):
        solve(nearly_dependent(1e-9), 0.0)
    with pytest.raises(SingularSystemError, match=r"raise alpha \(now 1e-18\)"):
        solve(nearly_dependent(1e-9), 1e-18)
    assert solve(nearly_dependent(1e-9), 1e-3).condition_ < 1e8


def test_the_condition_estimate_is_near_the_condition():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 6)) @ rng.normal(size=(6, 6))
    model = solve(from_data(X, X[:, 0]), 0.0)
    scaled = np.corrcoef(X, rowvar=False)
    assert 0.1 < model.condition_ / np.linalg.cond(scaled, 1) < 1.5
