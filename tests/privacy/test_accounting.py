"""Calibration equals dp-accounting's, and every function is the inverse of another."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fedridge_simulations.paper_privacy import classical_multiplier
from hypothesis import given
from hypothesis import strategies as st

from fedridge_flwr.errors import PrivacyError
from fedridge_flwr.privacy.accounting import (
    compose,
    delta_of,
    epsilon_of,
    noise_multiplier,
)

EPSILONS = np.geomspace(0.01, 100, 25)
DELTAS = np.geomspace(1e-12, 0.1, 23)
# What PRIVACY.md gives at delta 1e-5.
TABLE = {0.1: 30.75, 0.5: 7.032, 1: 3.731, 2: 1.994, 5: 0.8919, 10: 0.4999}


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_noise_equals_the_oracle(epsilon):
    oracle = pytest.importorskip("dp_accounting.gaussian_mechanism")
    for delta in DELTAS:
        ours = noise_multiplier(float(epsilon), float(delta))
        assert abs(ours - oracle.get_sigma_gaussian(epsilon, delta)) < 1e-9


@pytest.mark.parametrize(("epsilon", "expected"), TABLE.items())
def test_noise_of_the_table(epsilon, expected):
    assert noise_multiplier(epsilon, 1e-5) == pytest.approx(expected, rel=2e-4)


@given(st.floats(1e-6, 1e9), st.floats(1e-100, 0.5))
def test_epsilon_is_the_inverse_of_noise(epsilon, delta):
    mu = 1.0 / noise_multiplier(epsilon, delta)
    assert epsilon_of(mu, delta) == pytest.approx(epsilon, rel=1e-7, abs=1e-8)
    assert delta_of(epsilon, mu) == pytest.approx(delta, rel=1e-5)


@given(st.floats(1e-3, 1e3), st.floats(1e-12, 0.1), st.floats(1.01, 10))
def test_more_privacy_needs_more_noise(epsilon, delta, factor):
    here = noise_multiplier(epsilon, delta)
    assert noise_multiplier(epsilon * factor, delta) < here
    assert noise_multiplier(epsilon, delta / factor) > here


@pytest.mark.parametrize("rounds", [1, 2, 20, 100])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_equal_shares_compose_to_the_whole(rounds, epsilon):
    whole = 1.0 / noise_multiplier(epsilon, 1e-5)
    together = compose([whole / math.sqrt(rounds)] * rounds)
    assert epsilon_of(together, 1e-5) == pytest.approx(epsilon, rel=1e-9)


def test_composition_equals_the_oracle_of_privacy_loss():
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    sigmas = [3.0, 5.0, 8.0]
    total = pld.from_gaussian_mechanism(sigmas[0])
    for sigma in sigmas[1:]:
        total = total.compose(pld.from_gaussian_mechanism(sigma))
    expected = total.get_epsilon_for_delta(1e-6)
    ours = epsilon_of(compose(1.0 / s for s in sigmas), 1e-6)
    assert ours == pytest.approx(expected, rel=1e-3)
    assert ours <= expected


@pytest.mark.parametrize(
    ("epsilon", "true"),
    [(0.1, 0.089), (0.5, 0.514), (1, 1.10), (2, 2.37), (5, 6.82), (10, 16.1)],
)
def test_what_the_papers_noise_really_gives(epsilon, true):
    tau = classical_multiplier(epsilon, 1e-5)
    assert epsilon_of(math.sqrt(2.0) / tau, 1e-5) == pytest.approx(true, rel=6e-3)


def test_the_ends():
    assert epsilon_of(0.0, 1e-5) == 0.0
    assert epsilon_of(1e-9, 1e-5) == 0.0
    assert epsilon_of(math.inf, 1e-5) == math.inf
    assert delta_of(1.0, 0.0) == 0.0
    assert delta_of(1.0, math.inf) == 1.0
    assert delta_of(0.0, 100.0) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "question",
    [
        lambda: epsilon_of(-1.0, 1e-5),
        lambda: epsilon_of(math.nan, 1e-5),
        lambda: epsilon_of(1.0, 0.0),
        lambda: epsilon_of(1.0, 1.0),
        lambda: delta_of(1.0, -1.0),
        lambda: delta_of(-1.0, 1.0),
        lambda: delta_of(math.nan, 1.0),
        lambda: noise_multiplier(1.0, 0.0),
        lambda: noise_multiplier(1.0, 1.0),
        lambda: noise_multiplier(0.0, 1e-5),
        lambda: noise_multiplier(math.inf, 1e-5),
        lambda: compose([1.0, math.nan]),
    ],
)
def test_what_is_no_privacy_parameter_is_refused_and_not_called_private(question):
    with pytest.raises(PrivacyError, match=r"must be .*, got "):
        question()
