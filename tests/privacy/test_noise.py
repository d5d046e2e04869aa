"""The discrete Gaussian: its distribution, its coins, its source."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from privacy_mechanisms import seeded_source
from scipy import stats

from fedridge_flwr.errors import FedRidgeError
from fedridge_flwr.privacy import gaussian_sampler as sampler
from fedridge_flwr.privacy.gaussian_sampler import LARGEST_SD, discrete_gaussian


def _expected(sd: int, reach: int) -> tuple[np.ndarray, np.ndarray]:
    values = np.arange(-reach, reach + 1)
    weights = np.exp(-(values**2) / (2.0 * sd**2))
    return values, weights / weights.sum()


def _chi_square(draws: np.ndarray, sd: int) -> float:
    values, probability = _expected(sd, 5 * sd + 3)
    observed = np.array([np.count_nonzero(draws == v) for v in values], dtype=float)
    expected = probability * draws.size
    common = expected >= 8
    observed = np.append(observed[common], draws.size - observed[common].sum())
    expected = np.append(expected[common], draws.size - expected[common].sum())
    return float(stats.chisquare(observed + 1e-9, expected + 1e-9).pvalue)


@pytest.mark.parametrize("sd", [1, 2, 3, 7])
def test_the_distribution_on_integers(sd):
    draws = discrete_gaussian(sd, 200_000, seeded_source(sd))
    assert _chi_square(draws, sd) > 1e-3


@pytest.mark.parametrize("sd", [10**4, 2**41, LARGEST_SD])
def test_a_large_deviation_looks_normal(sd):
    draws = discrete_gaussian(sd, 100_000, seeded_source(5))
    assert stats.kstest(draws / sd, "norm").pvalue > 1e-3


def test_coins_settled_digit_by_digit_have_the_same_distribution(monkeypatch):
    settled = []
    original = sampler._settle
    monkeypatch.setattr(sampler, "_DOUBT", 0.3)
    monkeypatch.setattr(
        sampler, "_settle", lambda *a: settled.append(1) or original(*a)
    )
    draws = discrete_gaussian(3, 20_000, seeded_source(1))
    assert len(settled) > 1000
    assert _chi_square(draws, 3) > 1e-3


def test_a_coin_on_the_edge_needs_more_bits():
    # The first 64 bits of exp(-1/2), then all zeros: below it; all ones: above it.
    from decimal import Context, Decimal

    first = int(Context(prec=60).exp(Decimal("-0.5")) * 2**64)
    assert sampler._settle(first, Fraction(1, 2), lambda n: bytes(n)) is True
    assert sampler._settle(first, Fraction(1, 2), lambda n: b"\xff" * n) is False


def test_the_default_source_is_the_operating_systems():
    a, b = discrete_gaussian(2**40, 1000), discrete_gaussian(2**40, 1000)
    assert not np.array_equal(a, b)
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.15


def test_the_same_bytes_give_the_same_noise():
    again = [discrete_gaussian(2**40, 500, seeded_source(3)) for _ in range(2)]
    np.testing.assert_array_equal(*again)


@pytest.mark.parametrize("sd", [0, -1, LARGEST_SD + 1])
def test_a_deviation_that_cannot_be_drawn(sd):
    with pytest.raises(FedRidgeError, match="cannot be drawn"):
        discrete_gaussian(sd, 1)


@pytest.mark.parametrize("sd", [2.7, 3.0, [1.5, 2.5]])
def test_a_fraction_of_a_deviation_is_refused_and_not_cut_off(sd):
    with pytest.raises(FedRidgeError, match="whole numbers"):
        discrete_gaussian(sd, 2)
