"""Any split of the rows gives what scikit-learn gives on all of them together."""

from __future__ import annotations

import csv
from functools import cache

import numpy as np
import pytest
from generators import (
    SPLITS,
    client_statistics,
    linear_rows,
    paper_clients,
    pooled,
    relative_error,
    split_rows,
)
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fedridge_flwr import RidgeModel, SufficientStatistics, solve

EXACT = 1e-12
ALPHAS = (0.01, 1.0, 100.0)


def assert_equals_ridge(model: RidgeModel, X, y, alpha, **fit) -> None:
    """Compare with scikit-learn; an intercept near zero relative to the size of y."""
    expected = Ridge(alpha=alpha).fit(X, y, **fit)
    assert relative_error(model.coef_, expected.coef_) < EXACT
    size = np.maximum(np.abs(expected.intercept_), np.sqrt(np.mean(np.square(y))))
    assert (np.abs(model.intercept_ - expected.intercept_) < EXACT * size).all()


# ---- every split equals pooled ridge ------------------------------------------------


@pytest.mark.parametrize("K", [1, 2, 20, 442])
@pytest.mark.parametrize("kind", SPLITS)
def test_every_split_of_diabetes_equals_pooled_ridge(kind, K):
    X, y = load_diabetes(return_X_y=True)
    parts = split_rows(len(y), K, np.random.default_rng(K), kind, key=y)
    total = sum(client_statistics(X, y, parts))
    for alpha in ALPHAS:
        model = solve(total, alpha)
        assert_equals_ridge(model, X, y, alpha)
        expected = Ridge(alpha=alpha).fit(X, y).intercept_
        assert abs(model.intercept_ - expected) < EXACT * abs(expected)


@cache
def paper_fit(d, K, gamma):
    """Return pooled rows and summed statistics; at least 1.2 d rows in all."""
    n_k = max(3, -(-12 * d // (10 * K)))
    clients = paper_clients(d, n_k, K, gamma, seed=d + K)
    total = sum(SufficientStatistics.from_data(A, b) for A, b in clients)
    return *pooled(clients), total


@pytest.mark.parametrize("gamma", [0.0, 1.0])
@pytest.mark.parametrize("K", [2, 20, 100])
@pytest.mark.parametrize("d", [10, 100, 400])
def test_clients_of_the_paper_equal_pooled_ridge(d, K, gamma):
    A, b, total = paper_fit(d, K, gamma)
    assert len(b) >= 1.2 * d
    for alpha in (0.01, 1.0):
        assert_equals_ridge(solve(total, alpha), A, b, alpha)


@pytest.mark.parametrize("gamma", [0.0, 1.0])
@pytest.mark.parametrize("K", [2, 20, 100])
@pytest.mark.parametrize("d", [10, 100, 400])
def test_without_intercept_the_answer_is_the_closed_form_of_the_paper(d, K, gamma):
    A, b, total = paper_fit(d, K, gamma)
    for sigma in (0.01, 1.0):
        closed_form = np.linalg.solve(A.T @ A + sigma * np.eye(d), A.T @ b)
        model = solve(total, sigma, fit_intercept=False)
        assert relative_error(model.coef_, closed_form) < EXACT
        assert model.intercept_ == 0.0


@pytest.mark.parametrize("kind", SPLITS)
@pytest.mark.parametrize("K", [2, 20, 100])
def test_every_split_of_the_papers_rows_equals_pooled_ridge(kind, K):
    A, b = pooled(paper_clients(10, 10, 100, gamma=1.0, seed=K))
    parts = split_rows(len(b), K, np.random.default_rng(K), kind, key=b)
    total = sum(client_statistics(A, b, parts))
    assert_equals_ridge(solve(total, 0.01), A, b, 0.01)


def wine_rows(folder):
    """Return X, y and the client (0 red, 1 white) of every row."""
    tables = []
    for colour in ("red", "white"):
        with open(folder / f"winequality-{colour}.csv", newline="") as file:
            lines = list(csv.reader(file, delimiter=";"))[1:]
        tables.append(np.array(lines, dtype=np.float64))
    rows = np.concatenate(tables)
    return rows[:, :-1], rows[:, -1], np.repeat([0, 1], [len(t) for t in tables])


def test_two_wine_cellars_equal_pooled_ridge(shared_data):
    X, y, colour = wine_rows(shared_data("wine_quality"))
    parts = [np.flatnonzero(colour == k) for k in (0, 1)]
    assert [part.size for part in parts] == [1599, 4898]
    total = sum(client_statistics(X, y, parts))
    for alpha in ALPHAS:
        model = solve(total, alpha)
        assert_equals_ridge(model, X, y, alpha)
        expected = Ridge(alpha=alpha).fit(X, y).intercept_
        assert abs(model.intercept_ - expected) < EXACT * abs(expected)


@pytest.mark.parametrize("kind", SPLITS)
@pytest.mark.parametrize("K", [2, 20, 100])
def test_every_split_of_wine_equals_pooled_ridge(shared_data, kind, K):
    X, y, _ = wine_rows(shared_data("wine_quality"))
    parts = split_rows(len(y), K, np.random.default_rng(K), kind, key=y)
    total = sum(client_statistics(X, y, parts))
    for alpha in (0.01, 1.0):
        assert_equals_ridge(solve(total, alpha), X, y, alpha)


def test_wine_frames_equal_a_pipeline_with_a_scaler(shared_data):
    pd = pytest.importorskip("pandas")
    folder = shared_data("wine_quality")
    frames = [
        pd.read_csv(folder / f"winequality-{colour}.csv", sep=";")
        for colour in ("red", "white")
    ]
    total = sum(
        SufficientStatistics.from_data(frame.drop(columns="quality"), frame["quality"])
        for frame in frames
    )
    model = solve(total, 10.0, standardize=True)
    both = pd.concat(frames)
    pipeline = make_pipeline(StandardScaler(), Ridge(10.0))
    X, y = both.drop(columns="quality"), both["quality"]
    expected = pipeline.fit(X, y).predict(X)
    assert relative_error(model.predict(X), expected) < EXACT
    assert list(model.feature_names_in_) == list(X.columns)


# ---- subsets, order, weights --------------------------------------------------------

K_SMALL = 12


@cache
def small_clients():
    clients = paper_clients(5, 8, K_SMALL, gamma=1.0, seed=3)
    return clients, [SufficientStatistics.from_data(A, b) for A, b in clients]


subsets = st.sets(st.integers(0, K_SMALL - 1), min_size=1)


@given(chosen=subsets, alpha=st.sampled_from(ALPHAS))
def test_any_subset_of_clients_equals_pooled_ridge_on_that_subset(chosen, alpha):
    clients, parts = small_clients()
    X, y = pooled([clients[k] for k in chosen])
    assert_equals_ridge(solve(sum(parts[k] for k in chosen), alpha), X, y, alpha)


@given(kept=subsets, alpha=st.sampled_from(ALPHAS))
def test_removing_clients_equals_pooled_ridge_on_the_others(kept, alpha):
    clients, parts = small_clients()
    rest = sum(parts)
    for k in set(range(K_SMALL)) - kept:
        rest = rest - parts[k]
    X, y = pooled([clients[k] for k in kept])
    assert rest.n_clients == len(kept)
    expected = Ridge(alpha=alpha).fit(X, y)
    # What is left keeps the rounding of what was there.
    assert relative_error(solve(rest, alpha).coef_, expected.coef_) < 1e-11


@given(order=st.permutations(range(K_SMALL)))
def test_the_order_of_clients_does_not_matter(order):
    _, parts = small_clients()
    expected = solve(sum(parts))
    model = solve(sum(parts[k] for k in order))
    assert relative_error(model.coef_, expected.coef_) < 1e-13
    assert abs(model.intercept_ - expected.intercept_) < 1e-13


@given(order=st.permutations(range(K_SMALL)))
def test_merging_as_a_tree_equals_merging_in_a_row(order):
    _, parts = small_clients()
    left, right = order[:5], order[5:]
    tree = sum(parts[k] for k in left) + sum(parts[k] for k in right)
    assert relative_error(solve(tree).coef_, solve(sum(parts)).coef_) < 1e-13


@given(
    repeats=st.lists(st.integers(0, 4), min_size=30, max_size=30),
    alpha=st.sampled_from(ALPHAS),
)
def test_integer_weights_equal_repeated_rows(repeats, alpha):
    X, y = linear_rows(30, 3, np.random.default_rng(1))
    repeats = np.array(repeats)
    if not repeats.any():
        repeats[0] = 1
    weighted = solve(SufficientStatistics.from_data(X, y, repeats), alpha)
    X, y = np.repeat(X, repeats, axis=0), np.repeat(y, repeats)
    repeated = solve(SufficientStatistics.from_data(X, y), alpha)
    assert np.linalg.norm(weighted.coef_ - repeated.coef_) < EXACT
    assert abs(weighted.intercept_ - repeated.intercept_) < 10 * EXACT


@pytest.mark.parametrize("kind", SPLITS)
def test_weighted_splits_equal_pooled_ridge_with_sample_weight(kind):
    rng = np.random.default_rng(7)
    X, y = linear_rows(300, 6, rng)
    weight = rng.exponential(size=300)
    parts = split_rows(300, 9, rng, kind, key=y)
    model = solve(sum(client_statistics(X, y, parts, weight)), 0.5)
    assert_equals_ridge(model, X, y, 0.5, sample_weight=weight)


def test_alpha_zero_equals_ordinary_least_squares():
    X, y = load_diabetes(return_X_y=True)
    parts = split_rows(len(y), 10, np.random.default_rng(0), "random-size")
    model = solve(sum(client_statistics(X, y, parts)), 0.0)
    expected = LinearRegression().fit(X, y)
    assert relative_error(model.coef_, expected.coef_) < EXACT
    assert abs(model.intercept_ / expected.intercept_ - 1) < EXACT


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_several_targets_equal_one_at_a_time(fit_intercept):
    X, Y = linear_rows(100, 5, np.random.default_rng(2), t=4)
    parts = np.array_split(np.arange(100), 7)
    together = solve(
        sum(client_statistics(X, Y, parts)), 0.3, fit_intercept=fit_intercept
    )
    for k in range(4):
        alone = solve(
            sum(client_statistics(X, Y[:, k], parts)), 0.3, fit_intercept=fit_intercept
        )
        assert relative_error(together.coef_[k], alone.coef_) < 1e-13
        assert abs(np.broadcast_to(together.intercept_, 4)[k] - alone.intercept_) < (
            1e-13
        )


# ---- scale and shift ----------------------------------------------------------------

scales = st.lists(
    st.floats(-4, 4).map(lambda exponent: 10.0**exponent), min_size=4, max_size=4
)


@given(scale=scales, alpha=st.sampled_from([0.0, *ALPHAS]))
def test_standardised_coefficients_follow_the_units_of_the_columns(scale, alpha):
    X, y = linear_rows(60, 4, np.random.default_rng(5))
    parts = np.array_split(np.arange(60), 4)
    plain = solve(sum(client_statistics(X, y, parts)), alpha, standardize=True)
    scaled = solve(sum(client_statistics(X * scale, y, parts)), alpha, standardize=True)
    assert relative_error(scaled.coef_ * scale, plain.coef_) < EXACT
    assert abs(scaled.intercept_ - plain.intercept_) < EXACT


@given(scale=scales, alpha=st.sampled_from(ALPHAS))
def test_columns_in_any_units_equal_pooled_ridge(scale, alpha):
    X, y = linear_rows(60, 4, np.random.default_rng(5))
    X *= scale
    total = sum(client_statistics(X, y, np.array_split(np.arange(60), 4)))
    assert_equals_ridge(solve(total, alpha), X, y, alpha)


@given(factor=st.floats(1e-6, 1e6))
def test_coefficients_scale_with_the_target(factor):
    X, y = linear_rows(40, 3, np.random.default_rng(5))
    plain = solve(SufficientStatistics.from_data(X, y))
    scaled = solve(SufficientStatistics.from_data(X, factor * y))
    assert relative_error(scaled.coef_, factor * plain.coef_) < EXACT
    assert scaled.r2_ == pytest.approx(plain.r2_, rel=EXACT)


@pytest.mark.parametrize("weighted", [False, True])
def test_standardize_equals_a_pipeline_of_scaler_and_ridge(weighted):
    rng = np.random.default_rng(4)
    X, y = linear_rows(200, 5, rng)
    X = X * [1.0, 1e-3, 1e4, 7.0, 1.0] + [0.0, 1.0, 1e5, -3.0, 2.0]
    X = np.column_stack([X, np.full(200, 3.25)])
    weight = rng.exponential(size=200) if weighted else None
    total = sum(client_statistics(X, y, np.array_split(np.arange(200), 6), weight))
    model = solve(total, 2.0, standardize=True)
    pipeline = make_pipeline(StandardScaler(), Ridge(2.0)).fit(
        X, y, standardscaler__sample_weight=weight, ridge__sample_weight=weight
    )
    scaler, ridge = pipeline[0], pipeline[1]
    expected = ridge.coef_ / scaler.scale_
    assert relative_error(model.coef_[:5] * scaler.scale_[:5], ridge.coef_[:5]) < EXACT
    assert model.coef_[5] == pytest.approx(0.0, abs=1e-15)
    intercept = ridge.intercept_ - scaler.mean_ @ expected
    assert abs(model.intercept_ - intercept) < EXACT * abs(intercept)


def test_standardize_without_intercept_scales_but_does_not_centre():
    rng = np.random.default_rng(4)
    X, y = linear_rows(80, 3, rng)
    X = X * [1.0, 50.0, 0.02] + [1.0, 20.0, 0.3]
    model = solve(
        SufficientStatistics.from_data(X, y), 2.0, fit_intercept=False, standardize=True
    )
    scaler = StandardScaler(with_mean=False).fit(X)
    ridge = Ridge(2.0, fit_intercept=False).fit(scaler.transform(X), y)
    assert relative_error(model.coef_ * scaler.scale_, ridge.coef_) < EXACT


def shifted_coefficients(X, y, shift, alpha=1.0):
    parts = np.array_split(np.arange(len(y)), 20)
    return solve(sum(client_statistics(X + shift, y, parts)), alpha).coef_


@pytest.mark.parametrize("shift", [1e3, 1e6, -1e6])
def test_shifted_features_leave_the_coefficients_where_they_were(shift):
    A, b = pooled(paper_clients(10, 100, 20, gamma=0.5, seed=8))
    # Multiples of 2^-20 are exact also after the shift: the rows really are the same.
    A = np.round(A * 2**20) / 2**20
    coef = shifted_coefficients(A, b, 0.0)
    assert relative_error(shifted_coefficients(A, b, shift), coef) < 1e-10


def test_raw_gram_matrices_would_not_have_survived_the_shift():
    A, b = pooled(paper_clients(10, 100, 20, gamma=0.5, seed=8))
    coef = shifted_coefficients(A, b, 0.0)
    X = A + 1e6
    mean, n = X.mean(axis=0), len(b)
    gram = X.T @ X - n * np.outer(mean, mean)
    raw = np.linalg.solve(gram + np.eye(10), X.T @ b - n * mean * b.mean())
    assert relative_error(raw, coef) > 1e-4
    assert relative_error(shifted_coefficients(A, b, 1e6), coef) < 1e-10


@given(shift=st.lists(st.floats(-1e4, 1e4), min_size=4, max_size=4))
def test_a_shift_of_y_moves_only_the_intercept(shift):
    X, Y = linear_rows(50, 3, np.random.default_rng(6), t=4)
    plain = solve(SufficientStatistics.from_data(X, Y))
    moved = solve(SufficientStatistics.from_data(X, Y + shift))
    assert relative_error(moved.coef_, plain.coef_) < 1e-10
    np.testing.assert_allclose(moved.intercept_ - plain.intercept_, shift, atol=1e-10)
