"""Laws of the estimators that solve from noisy statistics."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fedridge_simulations.paper_privacy import plain_solution
from hypothesis import given, settings
from hypothesis import strategies as st

from fedridge_flwr.errors import FedRidgeError
from fedridge_flwr.privacy.estimators import (
    NoisyEquations,
    choose_alpha,
    estimate,
    mostly_noise,
)


def noise_aware(*noisy_statistics_and_alpha):
    *equations, alpha = noisy_statistics_and_alpha
    return estimate("noise_aware", NoisyEquations(*equations), alpha)


def ridge_floor(*noisy_statistics_and_alpha):
    *equations, alpha = noisy_statistics_and_alpha
    return estimate("ridge_floor", NoisyEquations(*equations), alpha)


ESTIMATORS = [noise_aware, ridge_floor]


def symmetric_noise(rng, d, sd):
    noise = rng.normal(size=(d, d)) * sd
    return (noise + noise.T) / 2.0


def statistics(seed, d, t=1, n=2000, power=0.0, scales=None):
    """Gram matrix and moments of rows with variances i^-power, and a test loss."""
    rng = np.random.default_rng(seed)
    scale = np.arange(1, d + 1.0) ** (-power / 2.0)
    scale = scale if scales is None else scale * scales
    w = rng.normal(size=(d, t)) / math.sqrt(d) / scale[:, None]
    X = rng.normal(size=(2 * n, d)) * scale
    Y = X @ w + 0.1 * rng.normal(size=(2 * n, t))
    train, test = slice(0, n), slice(n, None)
    gram, moment = X[train].T @ X[train], X[train].T @ Y[train]

    def relative_loss(coefficients):
        residual = Y[test] - X[test] @ coefficients
        return np.mean(residual**2, axis=0) / np.mean(Y[test] ** 2, axis=0)

    return gram, moment, relative_loss


def noisy(seed, gram, moment, gram_sd, moment_sd):
    rng = np.random.default_rng(seed)
    shift = moment_sd * rng.normal(size=moment.shape)
    return gram + symmetric_noise(rng, len(gram), gram_sd), moment + shift


def relative_sds(gram, moment, level):
    """Noise of `level` times the mean eigenvalue, and of the moments' rms."""
    return level * np.trace(gram) / len(gram), level * math.sqrt(np.mean(moment**2))


seeds = st.integers(0, 10_000)
sizes = st.sampled_from([1, 2, 5, 12])
levels = st.sampled_from([0.0, 1e-6, 1e-3, 0.05, 0.3, 1.0])


@pytest.mark.parametrize("estimator", ESTIMATORS)
@given(seed=seeds, d=sizes, level=levels)
@settings(max_examples=30, deadline=None)
def test_rotating_the_features_rotates_the_coefficients(estimator, seed, d, level):
    gram, moment, _ = statistics(seed, d, t=2, n=200)
    sds = relative_sds(gram, moment, level)
    gram, moment = noisy(seed, gram, moment, *sds)
    rng = np.random.default_rng(seed + 1)
    Q = np.linalg.qr(rng.normal(size=(d, d)))[0]
    rotated = Q @ gram @ Q.T
    here = estimator((rotated + rotated.T) / 2, Q @ moment, *sds, 1.0)
    there = Q @ estimator(gram, moment, *sds, 1.0)
    np.testing.assert_allclose(here, there, atol=1e-7 * max(1, np.abs(there).max()))


@pytest.mark.parametrize("estimator", ESTIMATORS)
@given(seed=seeds, d=sizes, level=levels, factor=st.floats(1e-30, 1e30))
@settings(max_examples=30, deadline=None)
def test_a_common_factor_changes_nothing(estimator, seed, d, level, factor):
    gram, moment, _ = statistics(seed, d, n=200)
    sds = relative_sds(gram, moment, level)
    gram, moment = noisy(seed, gram, moment, *sds)
    expected = estimator(gram, moment, *sds, 2.0)
    scaled = estimator(
        factor * gram, factor * moment, factor * sds[0], factor * sds[1], factor * 2.0
    )
    np.testing.assert_allclose(scaled, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@given(seed=seeds, level=levels, factor=st.floats(1e-30, 1e30))
@settings(max_examples=20, deadline=None)
def test_units_of_the_target_are_units_of_the_coefficients(
    estimator, seed, level, factor
):
    gram, moment, _ = statistics(seed, 6, n=200)
    gram_sd, moment_sd = relative_sds(gram, moment, level)
    gram, moment = noisy(seed, gram, moment, gram_sd, moment_sd)
    expected = factor * estimator(gram, moment, gram_sd, moment_sd, 1.0)
    scaled = estimator(gram, factor * moment, gram_sd, factor * moment_sd, 1.0)
    np.testing.assert_allclose(
        scaled, expected, rtol=1e-6, atol=1e-12 * np.abs(expected).max()
    )


@pytest.mark.parametrize("estimator", ESTIMATORS)
@given(seed=seeds, d=sizes, level=levels)
@settings(max_examples=20, deadline=None)
def test_targets_do_not_know_each_other(estimator, seed, d, level):
    gram, moment, _ = statistics(seed, d, t=3, n=200)
    sds = relative_sds(gram, moment, level)
    gram, moment = noisy(seed, gram, moment, *sds)
    together = estimator(gram, moment * [1.0, 1e-3, 1.0], *sds, 1.0)
    for column, factor in enumerate((1.0, 1e-3, 1.0)):
        alone = estimator(gram, factor * moment[:, [column]], *sds, 1.0)
        np.testing.assert_allclose(together[:, [column]], alone, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@given(seed=seeds, d=sizes, alpha=st.sampled_from([0.0, 1e-3, 1.0, 1e6]))
@settings(max_examples=30, deadline=None)
def test_without_noise_every_estimator_is_plain_ridge(estimator, seed, d, alpha):
    gram, moment, _ = statistics(seed, d, t=2, n=200)
    expected = np.linalg.solve(gram + alpha * np.eye(d), moment)
    np.testing.assert_allclose(
        estimator(gram, moment, 0.0, 0.0, alpha), expected, rtol=1e-10, atol=1e-13
    )


@pytest.mark.parametrize("d", [1, 5, 20, 60])
def test_the_error_falls_in_proportion_to_the_noise(d):
    gram, moment, _ = statistics(d, d)
    exact = np.linalg.solve(gram + 0.01 * np.eye(d), moment)
    levels, distances = np.logspace(-3, -7, 9), []
    for level in levels:
        sds = relative_sds(gram, moment, level)
        solved = [
            noise_aware(*noisy(seed, gram, moment, *sds), *sds, 0.01)
            for seed in range(4)
        ]
        distances.append(np.mean([np.linalg.norm(w - exact) for w in solved]))
    slope = np.polyfit(np.log(levels), np.log(distances), 1)[0]
    assert 0.9 < slope < 1.1
    assert (np.diff(distances) < 0.0).all()


sizes_of_numbers = st.sampled_from([0.0, 1e-320, 1e-200, 1e-9, 1.0, 1e9, 1e200, 1e308])


@pytest.mark.parametrize("estimator", ESTIMATORS)
@given(
    seed=seeds,
    d=st.sampled_from([1, 2, 7]),
    rank=st.integers(0, 7),
    sizes=st.tuples(*[sizes_of_numbers] * 5),
)
@settings(max_examples=150, deadline=None)
def test_finite_input_gives_finite_coefficients(estimator, seed, d, rank, sizes):
    rng = np.random.default_rng(seed)
    gram_size, moment_size, gram_sd, moment_sd, alpha = sizes
    base = rng.uniform(-1, 1, size=(d, min(rank, d)))
    gram = (base @ base.T / d) * gram_size * rng.choice([-1.0, 1.0])
    moment = rng.uniform(-1, 1, size=(d, 2)) * moment_size
    solved = estimator(gram, moment, gram_sd, moment_sd, alpha)
    assert solved.shape == (d, 2)
    assert np.isfinite(solved).all()
    equations = NoisyEquations(gram, moment, gram_sd, moment_sd)
    chosen, scores = choose_alpha(
        estimator.__name__, equations, [alpha, 1.0], repeats=1
    )
    assert chosen in (alpha, 1.0)
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_nothing_in_nothing_out(estimator):
    zero, moment = np.zeros((3, 3)), np.ones((3, 1))
    assert not estimator(np.eye(3), 0.0 * moment, 0.1, 0.1, 0.0).any()
    assert not estimator(zero, moment, 0.0, 0.0, 0.0).any()
    np.testing.assert_allclose(estimator(zero, moment, 0.0, 0.0, 2.0), 0.5)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_singular_system_is_solved_by_least_squares(estimator):
    X = np.random.default_rng(0).normal(size=(50, 3))
    X = np.column_stack([X, X[:, 0]])
    gram, moment = X.T @ X, X.T @ X[:, :1]
    expected = np.linalg.lstsq(gram, moment, rcond=None)[0]
    solved = estimator(gram, moment, 0.0, 0.0, 0.0)
    np.testing.assert_allclose(solved, expected, atol=1e-10)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("level", [0.03, 0.3, 1.0, 3.0, 30.0, 1e6, 1e12])
@pytest.mark.parametrize("d", [20, 60])
def test_never_much_worse_than_predicting_zero(estimator, level, d):
    for seed in range(6):
        gram, moment, relative_loss = statistics(seed, d, t=3)
        sds = relative_sds(gram, moment, level)
        solved = estimator(*noisy(seed + 50, gram, moment, *sds), *sds, 0.01)
        assert relative_loss(solved).max() < 1.05


@pytest.mark.parametrize("power", [1.0, 2.0])
@pytest.mark.parametrize("level", [0.01, 1.0, 1e3])
def test_correlated_features_and_features_of_other_scales(power, level):
    scales = np.tile([1.0, 10.0, 0.1], 7)[:20]
    for seed in range(5):
        gram, moment, relative_loss = statistics(seed, 20, power=power, scales=scales)
        sds = relative_sds(gram, moment, level)
        solved = noise_aware(*noisy(seed + 50, gram, moment, *sds), *sds, 0.0)
        assert relative_loss(solved).max() < 1.05


def plain(gram, moment, gram_sd, moment_sd, alpha):
    return plain_solution(gram, moment, alpha)


def test_noise_aware_beats_the_floor_and_the_plain_solution():
    losses = {estimator: [] for estimator in (*ESTIMATORS, plain)}
    for seed in range(8):
        gram, moment, relative_loss = statistics(seed, 40)
        sds = relative_sds(gram, moment, 0.15)
        released = noisy(seed + 50, gram, moment, *sds)
        for estimator, found in losses.items():
            found.append(relative_loss(estimator(*released, *sds, 0.01))[0])
    mean = {estimator: np.mean(found) for estimator, found in losses.items()}
    assert mean[noise_aware] < 0.6 * mean[ridge_floor]
    assert mean[noise_aware] < 0.6 * mean[plain]
    assert mean[noise_aware] < 0.1


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_choosing_alpha_repeats_and_is_no_loss(estimator):
    alphas = [1e5, 1e3, 10.0, 0.01]
    gram, moment, relative_loss = statistics(3, 20)
    sds = relative_sds(gram, moment, 0.2)
    released = noisy(9, gram, moment, *sds)
    equations = NoisyEquations(*released, *sds)
    alpha, scores = choose_alpha(estimator.__name__, equations, alphas)
    again, same = choose_alpha(estimator.__name__, equations, alphas)
    assert (alpha, scores.tolist()) == (again, same.tolist())
    assert alpha == alphas[int(np.argmin(scores))]
    losses = [relative_loss(estimator(*released, *sds, each)) for each in alphas]
    assert relative_loss(estimator(*released, *sds, alpha)) <= 1.05 * min(losses)


def test_the_split_score_estimates_the_loss_of_a_fit_on_noisier_statistics():
    gram, moment, _ = statistics(4, 5, n=400)
    sds = relative_sds(gram, moment, 0.1)
    noisier = tuple(math.sqrt(2.0) * sd for sd in sds)
    scores, losses = [], []
    for seed in range(60):
        released = noisy(seed, gram, moment, *sds)
        equations = NoisyEquations(*released, *sds)
        found = choose_alpha("ridge_floor", equations, [1.0], repeats=200)[1]
        scores.append(found[0])
    for seed in range(1000, 3000):
        w = ridge_floor(*noisy(seed, gram, moment, *noisier), *noisier, 1.0)
        losses.append(float(np.sum(w * (gram @ w) - 2.0 * w * moment)))
    # Every release is split by the same 200 draws, each about as far off as a release.
    error = np.std(scores) * math.sqrt(1 / 60 + 1 / 200)
    assert abs(np.mean(scores) - np.mean(losses)) < 3.0 * error


def test_without_noise_the_smallest_alpha_is_chosen():
    gram, moment, _ = statistics(5, 4)
    equations = NoisyEquations(gram, moment, 0.0, 0.0)
    alpha, scores = choose_alpha("noise_aware", equations, [10.0, 0.1, 1e3])
    assert alpha == 0.1
    assert scores.shape == (3,)


def test_mostly_noise_compares_the_edge_of_the_noise_with_the_mean_eigenvalue():
    assert not mostly_noise(np.eye(8), 0.24)
    assert mostly_noise(np.eye(8), 0.26)
    assert mostly_noise(-np.eye(8), 0.0)


@pytest.mark.parametrize("alpha", [-1.0, math.nan, math.inf])
def test_an_alpha_that_is_no_penalty_is_refused(alpha):
    with pytest.raises(FedRidgeError, match="alpha must be"):
        noise_aware(np.eye(2), np.ones((2, 1)), 0.0, 0.0, alpha)
