"""From releases to a model: what it tends to, and what it costs, by real releases."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from fedridge_simulations.paper_privacy import plain_solution

from fedridge_flwr import DifferentialPrivacy, SufficientStatistics, solve
from fedridge_flwr.app.synthetic import paper_rows
from fedridge_flwr.privacy import private_statistics, solve_private
from fedridge_flwr.privacy.private_solve import centre

K = 20


def federation(d: int, seed: int = 0, rows: int = 400):
    """Training rows of all clients and their test rows, as in the paper."""
    found = [
        paper_rows(k, rows=rows + 100, features=d, gamma=0.5, seed=seed)
        for k in range(K)
    ]
    train = [(X[100:], y[100:]) for X, y in found]
    test = [np.concatenate([pair[j][:100] for pair in found]) for j in (0, 1)]
    return train, test


def released(train, privacy, fit_intercept=False):
    # The same noise in every run: how often noise looks like a signal is no matter of
    # these tests.
    options = {"fit_intercept": fit_intercept, "source": random.Random(0).randbytes}  # noqa: S311
    return sum(private_statistics(X, y, privacy, **options) for X, y in train)


def mechanism(d: int, epsilon: float, y_bound: float = 3.0, **options):
    bounds = {"x_norm_bound": 1.1 * math.sqrt(d), "y_bound": y_bound}
    return DifferentialPrivacy(epsilon, 1e-5, **bounds, **options)


def error(model, test) -> float:
    return float(np.mean((model.predict(test[0]) - test[1]) ** 2))


@pytest.mark.parametrize(("d", "fit_intercept"), [(5, False), (20, False), (5, True)])
def test_the_private_model_tends_to_the_exact_one_like_one_over_root_epsilon(
    d, fit_intercept
):
    """Rows within wide bounds, so that nothing but the noise is between the two."""
    train, _ = federation(d)
    parts = [SufficientStatistics.from_data(X, y) for X, y in train]
    exact = solve(sum(parts), alpha=1.0, fit_intercept=fit_intercept)
    epsilons = 10.0 ** np.arange(2, 9)
    distances = []
    for epsilon in epsilons:
        privacy = DifferentialPrivacy(
            epsilon, 1e-5, x_norm_bound=4 * math.sqrt(d), y_bound=8.0
        )
        own = []
        for _ in range(6):
            stats = released(train, privacy, fit_intercept)
            model = solve_private(stats, alpha=1.0, fit_intercept=fit_intercept)
            own.append(np.linalg.norm(model.coef_ - exact.coef_))
        distances.append(np.mean(own))
    slope = np.polyfit(np.log(epsilons), np.log(distances), 1)[0]
    assert -0.6 < slope < -0.4
    assert distances[-1] < 1e-3 * distances[0] * 1.5


@pytest.mark.parametrize(("d", "limit"), [(5, 0.016), (10, 0.03), (20, 0.07)])
def test_few_features_at_epsilon_one(d, limit):
    errors = []
    for seed in range(5):
        train, test = federation(d, seed)
        stats = released(train, mechanism(d, 1.0, y_bound=2.0))
        errors.append(error(solve_private(stats, 0.01, fit_intercept=False), test))
    assert np.mean(errors) <= limit


@pytest.mark.parametrize("estimator", ["noise_aware", "ridge_floor"])
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 3.0])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_never_much_worse_than_predicting_the_mean(estimator, epsilon, fit_intercept):
    # Where all is noise, the ridge floor takes it for a signal once in fifty times, and
    # a mean is taken for one in a hundred.
    credulous = estimator == "ridge_floor" or fit_intercept
    limit = 2.0 if credulous and epsilon == 0.01 else 1.05
    for seed in range(3):
        train, test = federation(30, seed, rows=100)
        train = [(X, y + fit_intercept) for X, y in train]
        privacy = mechanism(30, epsilon, estimator=estimator)
        stats = released(train, privacy, fit_intercept)
        model = solve_private(stats, 0.01, fit_intercept=fit_intercept)
        target = test[1] + fit_intercept
        # The mean itself is private: without it the best is to predict nothing.
        nothing = float(np.mean(target**2))
        assert error(model, (test[0], target)) <= limit * nothing


def test_the_intercept_is_found_and_not_penalised():
    train, test = federation(5)
    train = [(X, y + 2.0) for X, y in train]
    stats = released(train, mechanism(5, 10.0, y_bound=5.0), fit_intercept=True)
    model = solve_private(stats, alpha=1.0)
    assert model.intercept_ == pytest.approx(2.0, abs=0.2)
    X = np.concatenate([X for X, _ in train])
    square = (X**2).sum(axis=1)  # Bx² = 6.05, and κ² is a fifth of it
    effective = np.minimum(1.0, 7.26 / (square + 1.21)).sum()
    assert model.n_rows_ == pytest.approx(effective, rel=0.05)
    assert error(model, (test[0], test[1] + 2.0)) < 0.1
    strong = solve_private(stats, alpha=1e9)
    assert strong.intercept_ == pytest.approx(2.0, abs=0.2)


def test_the_mean_is_found_before_the_number_of_rows_is():
    """A target far from zero: half of its mean is better than none of it."""
    train = [(X[:20], 0.1 * y[:20] + 2.0) for X, y in federation(5)[0]]
    privacy = mechanism(5, 1.0)
    found = [
        solve_private(released(train, privacy, fit_intercept=True)).intercept_
        for _ in range(20)
    ]
    assert np.mean((np.array(found) - 2.0) ** 2) < 0.7 * 4.0


def test_means_that_are_noise_are_taken_as_zero():
    stats = released(federation(5)[0][:1], mechanism(5, 0.01), fit_intercept=True)
    equations = centre(stats, fit_intercept=True)
    if equations.count is None:
        assert not equations.feature_means.any()
    assert np.isfinite(equations.gram).all()


def test_several_targets_and_shapes():
    X = np.random.default_rng(0).uniform(-0.5, 0.5, size=(500, 3))
    W = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]])
    privacy = DifferentialPrivacy(1e9, 1e-5, x_norm_bound=1.0, y_bound=2.0)
    model = solve_private(private_statistics(X, X @ W, privacy), alpha=0.0)
    np.testing.assert_allclose(model.coef_, W.T, atol=1e-2)
    assert model.intercept_.shape == (2,)
    single = solve_private(private_statistics(X, X @ W[:, 0], privacy), alpha=0.0)
    assert single.coef_.shape == (3,)
    assert isinstance(single.intercept_, float)


def test_a_wider_relation_costs_accuracy_not_the_limit():
    train, _ = federation(5)
    for neighboring in ("add-or-remove-one", "replace-one"):
        privacy = mechanism(5, 1e8, y_bound=30.0, neighboring=neighboring)
        stats = released([(X / 10, y) for X, y in train], privacy)
        exact = solve(
            sum(SufficientStatistics.from_data(X / 10, y) for X, y in train),
            alpha=0.1,
            fit_intercept=False,
        )
        model = solve_private(stats, alpha=0.1, fit_intercept=False)
        np.testing.assert_allclose(model.coef_, exact.coef_, atol=0.05)


def test_the_papers_solution_of_correct_noise_is_useless():
    """What PRIVACY.md warns of: plain inversion of a noisy Gram matrix."""
    train, test = federation(60, rows=100)
    null = float(np.mean(test[1] ** 2))
    stats = released(train, mechanism(60, 1.0))
    coef = plain_solution(stats.gram, stats.moment[:, 0], 0.01)
    assert float(np.mean((test[0] @ coef - test[1]) ** 2)) > 2 * null
