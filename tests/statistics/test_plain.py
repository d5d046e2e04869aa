"""PlainStatistics: the paper's (G, h), full or packed, added up."""

from __future__ import annotations

import numpy as np
import pytest
from generators import linear_rows, paper_clients, pooled, relative_error
from hypothesis import given
from hypothesis import strategies as st

from fedridge_flwr import (
    PlainStatistics,
    StatisticsError,
    SufficientStatistics,
    solve,
)

from_arrays = PlainStatistics.from_arrays


def plain(A, b):
    return from_arrays(A.T @ A, A.T @ b, count=len(A))


@given(seed=st.integers(0, 1000), sigma=st.floats(1e-3, 1e3), K=st.integers(1, 8))
def test_the_sum_of_plain_clients_is_the_closed_form_of_the_paper(seed, sigma, K):
    clients = paper_clients(4, 3, K, gamma=1.0, seed=seed)
    total = sum(plain(A, b) for A, b in clients)
    A, b = pooled(clients)
    expected = np.linalg.solve(A.T @ A + sigma * np.eye(4), A.T @ b)
    model = solve(total, sigma, fit_intercept=False)
    assert relative_error(model.coef_, expected) < 1e-11
    assert (model.n_rows_, model.n_clients_) == (3 * K, K)


@given(d=st.integers(1, 8), seed=st.integers(0, 1000))
def test_a_packed_gram_matrix_equals_the_full_one(d, seed):
    A, b = linear_rows(5, d, np.random.default_rng(seed))
    G, h = A.T @ A, A.T @ b
    packed = from_arrays(G[np.triu_indices(d)], h, count=5)
    full = from_arrays(G, h, count=5)
    assert np.array_equal(packed.gram, full.gram)
    assert np.array_equal(packed.moment, full.moment)
    assert np.array_equal(packed.gram, packed.gram.T)


def test_full_statistics_can_be_cut_down_to_plain_ones():
    X, Y = linear_rows(20, 3, np.random.default_rng(0), t=2)
    stats = SufficientStatistics.from_data(X, Y)
    cut = PlainStatistics.from_statistics(stats + stats)
    assert relative_error(cut.gram, 2 * X.T @ X) < 1e-14
    assert relative_error(cut.moment, 2 * X.T @ Y) < 1e-14
    assert (cut.count, cut.n_clients) == (40, 2)
    expected = solve(stats + stats, fit_intercept=False)
    assert relative_error(solve(cut, fit_intercept=False).coef_, expected.coef_) < 1e-13


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "longdouble", "int8"])
def test_any_real_dtype_becomes_float64(dtype):
    found = from_arrays(np.diag([4, 9]).astype(dtype), np.array([1, 2], dtype), 3)
    assert found.gram.dtype == found.moment.dtype == np.float64
    assert np.array_equal(found.gram, np.diag([4.0, 9.0]))


def test_several_targets_and_shapes():
    one = from_arrays(np.eye(3), np.ones(3), 3)
    two = from_arrays(np.eye(3), np.ones((3, 2)), 3)
    assert (one.n_features, one.n_targets) == (3, 1)
    assert (two.n_features, two.n_targets) == (3, 2)
    assert solve(one, fit_intercept=False).coef_.shape == (3,)
    assert solve(two, fit_intercept=False).coef_.shape == (2, 3)
    assert one.feature_names is None


def test_the_arrays_handed_in_may_change_afterwards():
    G, h = np.eye(2), np.ones(2)
    stats = from_arrays(G, h, 2)
    G[:], h[:] = 5.0, 5.0
    assert np.array_equal(stats.gram, np.eye(2))
    assert np.array_equal(stats.moment[:, 0], np.ones(2))


@pytest.mark.parametrize(
    ("G", "h", "count", "words"),
    [
        (np.full((2, 2), np.nan), np.ones(2), 2, "G has 4 NaN or infinite"),
        (np.eye(2), [1.0, np.inf], 2, "h has 1 NaN or infinite"),
        (np.eye(2) * 1j, np.ones(2), 2, "G must be real numbers, not complex128"),
        (np.eye(2), ["a", "b"], 2, "h must be real numbers"),
        (np.eye(2, dtype=bool), np.ones(2), 2, "G must be real numbers, not bool"),
        (np.eye(2), np.ones(2), -1, "row count is negative"),
        (np.eye(2), np.ones(0), 2, r"h must have shape \(d,\) or \(d, t\)"),
        (np.eye(2), np.ones((2, 1, 1)), 2, r"h must have shape"),
        (np.eye(2), 1.0, 2, r"h must have shape"),
        (np.eye(3), np.ones(2), 2, r"G must have shape \(2, 2\)"),
        (np.ones((2, 2, 2)), np.ones(2), 2, r"G must have shape \(2, 2\)"),
        (np.ones(4), np.ones(2), 2, "packed G of 2 features has 3 numbers, got 4"),
        ([[1.0, 0.5], [0.0, 1.0]], np.ones(2), 2, "not symmetric"),
        (np.diag([1.0, -1.0]), np.ones(2), 2, "negative"),
        ([[1.0, 2.0], [2.0, 1.0]], np.ones(2), 2, r"Gram matrix|semi-definite"),
        (np.eye(2) * 1e160, np.ones(2), 2, "overflow"),
        (np.eye(2), [1e308, 0.0], 2, "h "),
        (np.eye(2), np.ones(2), 2.5, "row count"),
    ],
)
def test_what_no_rows_can_have_is_refused(G, h, count, words):
    with pytest.raises(StatisticsError, match=words):
        from_arrays(G, h, count)


def test_other_columns_are_refused():
    with pytest.raises(StatisticsError, match="2 features against 3"):
        from_arrays(np.eye(2), np.ones(2), 2) + from_arrays(np.eye(3), np.ones(3), 3)


def test_plain_and_full_statistics_do_not_add_up_by_accident():
    full = SufficientStatistics.from_data(np.eye(2), np.ones(2))
    with pytest.raises(TypeError):
        from_arrays(np.eye(2), np.ones(2), 2) + full
    with pytest.raises(TypeError):
        full + from_arrays(np.eye(2), np.ones(2), 2)
    with pytest.raises(TypeError):
        1 + from_arrays(np.eye(2), np.ones(2), 2)


def test_the_repr_counts():
    shown = repr(from_arrays(np.eye(3), np.ones((3, 2)), 7))
    assert shown == "PlainStatistics(7 rows, 3 features, 2 targets)"


def test_numbers_that_overflow_in_the_check_are_refused():
    gram = np.array([[0.0, 0.0, 1e300], [0.0, 1.0, 0.0], [1e300, 0.0, 1.0]])
    with pytest.raises(StatisticsError):
        PlainStatistics.from_arrays(gram, np.zeros(3), 10)
