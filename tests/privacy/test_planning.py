"""What is said about the cost of noise, before and after a fit, holds."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from private_costs import RESULTS, lost_to_noise, on_correlated

from fedridge_flwr import DifferentialPrivacy, PrivacyError
from fedridge_flwr.app.synthetic import paper_rows
from fedridge_flwr.privacy.estimators import NoisyEquations
from fedridge_flwr.privacy.planning import (
    USABLE_BELOW,
    WEAK_BELOW,
    likely_loss,
    noise_over_signal,
    simulated_release,
    typical_length,
)
from fedridge_flwr.privacy.privacy_report import accuracy_advice
from fedridge_flwr.privacy.private_solve import centre, solve_centred, solve_release

FEW = {"n_features": 60, "n_rows": 4000, "n_clients": 20}
SIZES = {"n_features": 100, "n_rows": 8000, "n_clients": 20}


def simulated(rng, d, n, design="equal", unexplained=0.3):
    """Return rows whose model explains a variance of 1, the model, and variances."""
    variances = np.arange(1, d + 1.0) ** (0.0 if design == "equal" else -1.0)
    variances *= d / variances.sum()
    X = rng.normal(size=(n, d)) * np.sqrt(variances)
    w = rng.normal(size=d)
    w /= math.sqrt(w @ (variances * w))
    return X, X @ w + unexplained * rng.normal(size=n), w, variances


def lost_share(found, w, variances) -> float:
    return float((found - w) @ (variances * (found - w)))


@pytest.mark.parametrize("d", [5, 10, 20, 50])
def test_with_the_rows_needed_little_is_lost(d):
    rng = np.random.default_rng(d)
    lost = []
    for clients, epsilon in itertools.product((1, 5, 20), (0.5, 1.0, 3.0) * 5):
        privacy = DifferentialPrivacy(
            epsilon, 1e-5, x_norm_bound=1.1 * math.sqrt(d), y_bound=3.0
        )
        n = math.ceil(privacy.rows_needed(d, clients, math.sqrt(d)))
        X, y, w, variances = simulated(rng, d, n)
        stats = simulated_release(privacy, X, y, 1.0, clients, rng)
        model = solve_release(stats, 1e-3, fit_intercept=False)
        lost.append(lost_share(model.coef_, w, variances))
    assert np.quantile(lost, 0.9) <= 0.2


def test_models_called_usable_have_lost_less_than_a_quarter():
    """400 models of all kinds; the verdict sees their noisy statistics only."""
    rng = np.random.default_rng(0)
    levels, lost = [], []
    for _ in range(400):
        d, n = int(rng.choice([5, 10, 20, 50])), int(np.exp(rng.uniform(6.2, 10.3)))
        design = str(rng.choice(["equal", "1/i"]))
        X, y, w, variances = simulated(rng, d, n, design, rng.choice([0.1, 0.5, 1.0]))
        privacy = DifferentialPrivacy(
            rng.choice([0.3, 1.0, 3.0, 10.0]),
            1e-5,
            x_norm_bound=rng.choice([0.8, 1.1, 1.5]) * math.sqrt(d),
            y_bound=rng.choice([2.0, 3.0, 6.0]),
        )
        stats = simulated_release(privacy, X, y, 1.0, int(rng.choice([1, 5, 20])), rng)
        equations = centre(stats, fit_intercept=False)
        model = solve_centred(stats, equations, 1e-3, fit_intercept=False)
        levels.append(noise_over_signal(equations, model.coef_[:, None]))
        lost.append(lost_share(model.coef_, w, variances))
    levels, bad = np.array(levels), np.array(lost) > 0.25
    usable, hopeless = levels < USABLE_BELOW, levels >= WEAK_BELOW
    assert np.mean(bad[usable]) <= 0.02
    assert np.mean(bad[hopeless]) >= 0.5
    # A verdict that calls nothing usable would pass, too.
    assert usable.sum() > 150


def test_the_loss_is_in_the_range_that_the_report_prints():
    """400 models with intercepts, short rows and correlated features, too."""
    rng = np.random.default_rng(3)
    inside, lost = [], []
    while len(inside) < 400:
        d, n = int(rng.choice([5, 6, 10, 20])), int(np.exp(rng.uniform(6.0, 10.0)))
        design = str(rng.choice(["equal", "1/i"]))
        X, y, w, variances = simulated(rng, d, n, design, rng.choice([0.1, 0.5, 1.0]))
        long = math.sqrt(d) * rng.choice([1.1, 1.8, 3.3])
        privacy = DifferentialPrivacy(
            rng.choice([0.5, 1.0, 3.0, 10.0]), 1e-5, x_norm_bound=long, y_bound=3.0
        )
        clients, intercept = int(rng.choice([1, 5, 20])), bool(rng.integers(2))
        stats = simulated_release(privacy, X, y, 1.0, clients, rng, intercept=intercept)
        equations = centre(stats, fit_intercept=intercept)
        model = solve_centred(stats, equations, 1e-3, fit_intercept=intercept)
        half = noise_over_signal(equations, model.coef_[:, None]) / 2.0
        if 0.01 < half < 1.0:
            least, most = likely_loss(half)
            lost.append(lost_share(model.coef_, w, variances))
            inside.append(least <= lost[-1] <= most)
    assert np.mean(inside) > 0.85
    # A range from nothing to everything would pass, too.
    assert 0.1 < np.median(lost) < 0.3
    assert likely_loss(0.1) == (0.1 * 0.4, 0.1 * 4.0)


def test_the_length_of_rows_is_known_from_noisy_numbers_if_noise_does_not_hide_it():
    rng = np.random.default_rng(4)
    X = 0.1 * rng.normal(size=(4000, 6))
    for epsilon, known in ((10.0, True), (0.1, False)):
        privacy = DifferentialPrivacy(epsilon, 1e-5, x_norm_bound=1.5, y_bound=1.0)
        stats = simulated_release(privacy, X, X[:, 0], 1.0, 5, rng, intercept=True)
        length = typical_length(stats)
        assert known == (length is not None)
        if length is not None:
            assert length == pytest.approx(0.1 * math.sqrt(6), rel=0.2)
            asked = accuracy_advice(privacy, stats)
            assert f"{privacy.rows_needed(6, 5, length):,.0f} in all" in asked


def test_without_noise_nothing_is_lost():
    exact = NoisyEquations(np.eye(2), np.ones((2, 1)), 0.0, 0.0)
    assert noise_over_signal(exact, np.ones((2, 1))) == 0.0
    noisy = NoisyEquations(np.eye(2), np.ones((2, 1)), 1.0, 1.0)
    assert noise_over_signal(noisy, np.zeros((2, 1))) == math.inf


# ---- one round, chosen beforehand ----------------------------------------------------


def auto(epsilon: float, **options) -> DifferentialPrivacy:
    bounds = {"x_norm_bound": 11.0, "y_bound": 3.0}
    return DifferentialPrivacy(epsilon, 1e-5, estimator="auto", **bounds, **options)


@pytest.mark.parametrize(
    ("epsilon", "estimator", "limit"),
    [
        (0.5, "moments", 0.30),
        (1.0, "moments", 0.16),
        (2.0, "moments", 0.11),
        (10.0, "noise_aware", 0.04),
    ],
)
def test_the_choice_is_good_on_the_papers_data(epsilon, estimator, limit):
    privacy = auto(epsilon, expected=SIZES)
    assert privacy.estimator == estimator
    errors = []
    for seed in range(200, 210):
        parts = [
            paper_rows(k, rows=500, features=100, gamma=0.5, seed=seed)
            for k in range(20)
        ]
        X, y = (np.concatenate([part[j][100:] for part in parts]) for j in (0, 1))
        T, t = (np.concatenate([part[j][:100] for part in parts]) for j in (0, 1))
        rng = np.random.default_rng([seed, int(10 * epsilon)])
        stats = simulated_release(privacy, X, y, 1.0, 20, rng)
        model = solve_release(stats, 0.01, fit_intercept=False)
        errors.append(np.mean((model.predict(T) - t) ** 2))
    assert np.mean(errors) <= limit
    assert max(errors) < 3 * np.median(errors)


def test_the_choice_is_made_once_and_sent():
    privacy = auto(1.0, expected=FEW)
    asked = DifferentialPrivacy.from_config(privacy.to_config())
    assert asked.shares(1) == privacy.shares(1)
    assert asked.uses_residuals
    assert math.fsum(privacy.shares(1).values()) == pytest.approx(1.0)
    assert privacy == auto(1.0, expected=FEW)
    assert privacy.sensitivity() == 1.0
    assert replace(privacy, neighboring="replace-one").sensitivity() == 2.0


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"expected": {"n_features": 3}},
        {"expected": {**SIZES, "n_rows": 0}},
        {"expected": {**SIZES, "n_rows": "many"}},
        {"expected": {**SIZES, "decay": -1.0}},
        {"expected": {**SIZES, "spectrum": 1.0}},
        {"expected": SIZES, "rounds": 3},
        {"expected": SIZES, "budget_split": {"gram": 0.5, "moment": 0.5}},
    ],
)
def test_a_choice_needs_public_numbers(options):
    with pytest.raises(PrivacyError):
        auto(1.0, **options)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 10.0])
def test_known_correlation_makes_a_choice_that_is_no_worse_than_the_default(epsilon):
    """Not said, it costs: at 0.5 the choice loses nearly all of the signal."""
    lost = {name: lost_to_noise(p) for name, p in on_correlated(epsilon).items()}
    assert lost["decay"] <= 1.02 * lost["default"]
    if epsilon == 0.5:
        assert lost["auto"] > 0.9


def test_the_committed_choices_are_no_worse_than_the_default():
    for kept in json.loads(RESULTS.read_text("utf-8"))["choices"]:
        assert kept["decay"] <= 1.02 * kept["default"]


def test_the_expected_loss_grows_with_correlation():
    privacy = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=1.0, y_bound=1.0)
    alike, steep = (privacy.expected_loss(20, 8000, 5, decay=p) for p in (0.0, 1.0))
    assert steep > 1.5 * alike


def test_the_expected_loss_falls_with_rows_and_is_about_one_round():
    privacy = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=1.0, y_bound=1.0)
    found = [privacy.expected_loss(10, n, 5) for n in (200, 2000, 20_000, 200_000)]
    assert found == sorted(found, reverse=True)
    assert found[-1] < 0.01
    with pytest.raises(PrivacyError, match="one round"):
        DifferentialPrivacy(
            1.0, 1e-5, x_norm_bound=1.0, y_bound=1.0, rounds=3
        ).expected_loss(10, 100, 5)
