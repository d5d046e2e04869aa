"""Random features against the kernels they approximate, and scikit-learn's samplers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn.kernel_approximation import RBFSampler
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.random_projection import GaussianRandomProjection

from fedridge_flwr import (
    FedRidgeError,
    GaussianProjection,
    NeuralTangentFeatures,
    PolynomialMap,
    RandomFourierFeatures,
    Standardize,
)

X = np.random.default_rng(7).normal(size=(15, 3))
Z = np.random.default_rng(8).normal(size=(12, 3))


def rms_error(feature_map):
    inner = feature_map.transform(X) @ feature_map.transform(Z).T
    return np.sqrt(np.mean((inner - feature_map.kernel(X, Z)) ** 2))


def slope(make, sizes, seeds):
    """Return the slope of log RMS error over log size, and the errors."""
    errors = [
        np.sqrt(np.mean([rms_error(make(size, seed)) ** 2 for seed in range(seeds)]))
        for size in sizes
    ]
    return np.polyfit(np.log(sizes), np.log(errors), 1)[0], errors


def test_fourier_features_converge_to_the_gaussian_kernel():
    found, errors = slope(
        lambda size, seed: RandomFourierFeatures(size, gamma=0.4, seed=seed),
        [64, 256, 1024, 4096],
        seeds=60,
    )
    assert found == pytest.approx(-0.5, abs=0.1)
    assert errors[-1] < 0.02


@pytest.mark.parametrize("bias", [True, False])
def test_tangent_features_converge_to_the_tangent_kernel(bias):
    found, errors = slope(
        lambda size, seed: NeuralTangentFeatures(size, bias=bias, seed=seed),
        [32, 128, 512, 2048],
        seeds=60,
    )
    assert found == pytest.approx(-0.5, abs=0.1)
    kernel = NeuralTangentFeatures(1, bias=bias).kernel(X, Z)
    assert errors[-1] < 0.05 * np.abs(kernel).max()


def test_projections_converge_to_inner_products():
    wide = np.random.default_rng(0).normal(size=(20, 2000)) / np.sqrt(2000)

    def error(m, seed):
        projected = GaussianProjection(m, seed=seed).transform(wide)
        off = projected @ projected.T - wide @ wide.T
        return np.mean(off**2)

    sizes = [16, 64, 256, 1024]
    errors = [np.sqrt(np.mean([error(m, seed) for seed in range(6)])) for m in sizes]
    found = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert found == pytest.approx(-0.5, abs=0.1)


def test_the_gaussian_kernel_is_scikit_learns():
    found = RandomFourierFeatures(1, gamma=0.4).kernel(X, Z)
    np.testing.assert_allclose(found, rbf_kernel(X, Z, gamma=0.4), rtol=1e-12)


def test_the_tangent_kernel_is_what_numerical_integration_gives():
    # In two dimensions the direction of w is an angle, and |w|² has mean 2.
    x, z = np.array([0.3, -1.1]), np.array([0.9, 0.4])
    angles = (np.arange(200_000) + 0.5) / 200_000 * 2 * np.pi
    w = np.stack([np.cos(angles), np.sin(angles)])
    hidden_x, hidden_z = x @ w, z @ w
    relu = np.mean(np.maximum(hidden_x, 0) * np.maximum(hidden_z, 0)) * 2
    both = np.mean((hidden_x > 0) & (hidden_z > 0))
    found = NeuralTangentFeatures(1, bias=False).kernel(x[None], z[None])
    assert found[0, 0] == pytest.approx(relu + x @ z * both, rel=1e-4)


def test_the_tangent_kernel_of_a_row_with_itself_is_its_squared_length():
    kernel = NeuralTangentFeatures(1).kernel(X, X)
    lengths = 1 + (X**2).sum(axis=1)
    np.testing.assert_allclose(np.diagonal(kernel), lengths, rtol=1e-7)
    assert np.linalg.eigvalsh(kernel).min() > 0
    origin = NeuralTangentFeatures(1, bias=False).kernel(np.zeros((1, 3)), X)
    assert np.array_equal(origin, np.zeros((1, 15)))


def test_tangent_features_are_the_gradient_of_the_network():
    feature_map = NeuralTangentFeatures(5, seed=3)
    w, a = feature_map.numbers(3)

    def network(parameters, row):
        out, hidden = parameters[:5], parameters[5:].reshape(5, 4)
        return out @ np.maximum(hidden @ [*row, 1.0], 0) / np.sqrt(5)

    start, step = np.concatenate([a, w.T.ravel()]), 1e-6
    for row, features in zip(X, feature_map.transform(X), strict=True):
        gradient = [
            (network(start + step * e, row) - network(start - step * e, row)) / 2 / step
            for e in np.eye(25)
        ]
        np.testing.assert_allclose(features, gradient, atol=1e-8)


def test_fourier_features_are_distributed_as_those_of_scikit_learn():
    ours = RandomFourierFeatures(2000, gamma=0.4)
    theirs = RBFSampler(gamma=0.4, n_components=2000, random_state=0).fit(X)
    W, b = ours.numbers(3)
    assert stats.ks_2samp(W.ravel(), theirs.random_weights_.ravel()).pvalue > 0.01
    assert stats.ks_2samp(b, theirs.random_offset_).pvalue > 0.01
    assert W.std() == pytest.approx(np.sqrt(0.8), rel=0.03)
    mapped = [ours.transform(X), theirs.transform(X)]
    kernel = rbf_kernel(X, gamma=0.4)
    own, other = (np.sqrt(np.mean((F @ F.T - kernel) ** 2)) for F in mapped)
    assert 0.5 < own / other < 2


def test_projections_are_distributed_as_those_of_scikit_learn():
    wide = np.random.default_rng(0).normal(size=(30, 400))
    ours = GaussianProjection(60)
    theirs = GaussianRandomProjection(60, random_state=0).fit(wide)
    (R,) = ours.numbers(400)
    assert stats.ks_2samp(R.ravel(), theirs.components_.ravel()).pvalue > 0.01
    assert R.std() == pytest.approx(60**-0.5, rel=0.03)
    inner = wide @ wide.T
    own, other = (
        np.sqrt(np.mean((F @ F.T - inner) ** 2))
        for F in (ours.transform(wide), theirs.transform(wide))
    )
    assert 0.5 < own / other < 2


def test_random_numbers_do_not_repeat_from_map_to_map():
    draws = [
        RandomFourierFeatures(50, gamma=0.5, seed=seed).numbers(d)[0].ravel()
        for seed in (0, 1)
        for d in (3, 4)
    ] + [GaussianProjection(50).numbers(60)[0].ravel() * np.sqrt(50)]
    seen = np.concatenate(draws)
    assert np.unique(seen).size == seen.size


def test_the_kernel_behind_standardised_columns():
    scaler = Standardize(means=[1.0, 0.0, 2.0], scales=[2.0, 1.0, 3.0])
    last = RandomFourierFeatures(10, gamma=0.4)
    found = (scaler | last).kernel(X, Z)
    expected = last.kernel(scaler.transform(X), scaler.transform(Z))
    assert np.array_equal(found, expected)
    with pytest.raises(FedRidgeError, match="projection is random"):
        (GaussianProjection(2) | last).kernel(X, Z)
    with pytest.raises(FedRidgeError, match="does not approximate a kernel"):
        PolynomialMap(2).kernel(X, Z)
