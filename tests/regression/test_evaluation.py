"""`ErrorMoments`: pooled over clients they are those of all rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedridge_flwr import StatisticsError, SufficientStatistics, solve
from fedridge_flwr.regression.evaluation import ErrorMoments, error_moments, pool


def some_rows(n: int, t: int, seed: int, offset: float = 0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(loc=seed, size=(n, 2))
    Y = X @ rng.normal(size=(2, t)) + rng.normal(size=(n, t)) + offset
    return X, Y, rng.exponential(size=n)


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    t=st.integers(1, 3),
    offset=st.sampled_from([0.0, 1e3, -1e8]),
)
def test_pooled_moments_are_those_of_the_pooled_rows(sizes, t, offset):
    parts = [some_rows(n, t, k, offset) for k, n in enumerate(sizes)]
    X, Y, weight = (np.concatenate(part) for part in zip(*parts, strict=True))
    fitted_to = np.vstack([X, X[:1] + 1.0, X[:1] - [2.0, 5.0]])
    model = solve(
        SufficientStatistics.from_data(fitted_to, np.vstack([Y, Y[:1], Y[:1]]))
    )
    found = pool([error_moments(model, *part) for part in parts])
    whole = error_moments(model, X, Y, weight)
    assert found.n_rows == whole.n_rows == sum(sizes)
    assert found.weight == pytest.approx(whole.weight, rel=1e-13)
    np.testing.assert_allclose(found.error, whole.error, rtol=1e-7 if offset else 1e-12)
    mean = np.average(Y - offset, axis=0, weights=weight)
    exact = np.average((Y - offset - mean) ** 2, axis=0, weights=weight)
    rounding = (1e-15 * offset) ** 2
    size = 1e-14 + 1e-15 * abs(offset)
    np.testing.assert_allclose(
        (found.mean - offset) + found.mean_rest, mean, rtol=1e-12, atol=size
    )
    # The rows themselves are rounded by what they are away from zero.
    np.testing.assert_allclose(
        found.variance, exact, rtol=1e-12 + 3e-16 * abs(offset), atol=rounding + 1e-13
    )


def test_a_constant_target_does_not_vary_whatever_its_digits():
    X = np.arange(7.0)[:, None]
    model = solve(SufficientStatistics.from_data(X, np.arange(7.0)))
    parts = [error_moments(model, X, np.full(7, 0.1), None)] * 3
    for found in (*parts, pool(parts)):
        assert found.variance.tolist() == [0.0]
        assert np.isnan(found.r2)


@pytest.mark.parametrize("weight", [1e-300, 1.0, 1e300])
def test_extreme_weights_overflow_nothing(weight):
    one = ErrorMoments(5, weight, *np.array([[1e150], [0.0], [1e299], [1e299]]))
    other = ErrorMoments(5, 1e300, *np.array([[-1e150], [0.0], [1e299], [1e299]]))
    found = pool([one, other])
    assert np.isfinite([*found.to_array()[1:], found.mse, found.r2]).all()


def test_the_array_is_read_back():
    found = ErrorMoments(5, 2.0, *np.arange(1.0, 9.0).reshape(4, 2))
    back = ErrorMoments.from_array(found.to_array(), 5, 2)
    np.testing.assert_array_equal(back.to_array(), found.to_array())
    with pytest.raises(StatisticsError, match="13 numbers"):
        ErrorMoments.from_array(found.to_array(), 5, 3)
