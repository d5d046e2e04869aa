"""The discrete Gaussian: its distribution, its coins, its source."""

from __future__ import annotations

from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
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


@pytest.mark.parametrize("sd", [1, 2, 3, 7, 15, 16, 17, 33, 100])
def test_the_distribution_on_integers(sd):
    draws = discrete_gaussian(sd, 200_000, seeded_source(sd))
    assert _chi_square(draws, sd) > 1e-3


@pytest.mark.parametrize("sd", [10**4, 2**41, LARGEST_SD])
def test_a_large_deviation_looks_normal(sd):
    draws = discrete_gaussian(sd, 100_000, seeded_source(5))
    assert stats.kstest(draws / sd, "norm").pvalue > 1e-3


@pytest.mark.parametrize("sd", [4096, 10**6 + 1, 2**41 + 1, LARGEST_SD])
def test_a_large_deviation_in_bins(sd):
    draws = discrete_gaussian(sd, 200_000, seeded_source(7))
    # The sum over a bin is that of the normal density, to exp(-2 pi² sd²), between the
    # halves beside its integers.
    edges = np.floor(stats.norm.ppf(np.linspace(0, 1, 101)[1:-1]) * sd)
    observed = np.bincount(np.searchsorted(edges, draws, side="left"), minlength=100)
    below = stats.norm.cdf((edges + 0.5) / sd)
    expected = np.diff(below, prepend=0.0, append=1.0) * draws.size
    assert stats.chisquare(observed, expected).pvalue > 1e-3


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
    first = int(Context(prec=60).exp(Decimal("-0.5")) * 2**64)
    assert sampler._settle(first, Fraction(1, 2), lambda n: bytes(n)) is True
    assert sampler._settle(first, Fraction(1, 2), lambda n: b"\xff" * n) is False


# ---- k: the table, and what it does not settle ------------------------------------


def _exact_limits(steps: int, bits: int) -> list[int]:
    """Return floor(2^bits P(k <= i)) by whole numbers alone, without an exponential."""
    one = 2**1200
    # The series of exp(-x) alternates: two sums one after another have it between them.
    sums, term = [Fraction(0)], Fraction(1)
    for n in range(1, 200):
        sums.append(sums[-1] + term)
        term *= Fraction(-1, 2 * steps**2 * n)
    bounds = []
    for up, base in enumerate(sorted(sums[-2:])):
        # exp(-k² x) is that of k - 1 times 2k - 1 factors; all is rounded outwards.
        factor = base * one // 1 + up
        weights, odd = [one], factor
        for _ in range(1, 32 * steps):
            weights.append(weights[-1] * odd // one + up)
            odd = (odd * factor // one + up) * factor // one + up
        bounds.append(weights)
    lower, upper = bounds
    limits = []
    for i in range(1, 32 * steps):
        low, high = sum(lower[:i]), sum(upper[:i])
        limit = (low << bits) // (low + sum(upper[i:]))
        assert limit == (high << bits) // (high + sum(lower[i:]))
        limits.append(limit)
    return limits


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("bits", [64, 128, 192])
def test_limits_are_those_of_fractions(monkeypatch, steps, bits):
    monkeypatch.setattr(sampler, "_STEPS", steps)
    monkeypatch.setattr(sampler, "_ALL_STEPS", 32 * steps)
    assert sampler._limits.__wrapped__(bits) == _exact_limits(steps, bits)


def test_limits_in_use_are_those_of_fractions():
    assert sampler._limits(64) == _exact_limits(sampler._STEPS, 64)


def test_limits_with_more_bits_begin_alike():
    more = sampler._limits(320)
    for bits in (64, 128, 192, 256):
        assert sampler._limits(bits) == [limit >> 320 - bits for limit in more]


def test_the_table_settles_what_all_further_bits_leave_alone():
    limits, table = np.array(sampler._limits(64), dtype=np.uint64), sampler._lookup()
    first = np.arange(2**16, dtype=np.uint64) << np.uint64(48)
    low = np.searchsorted(limits, first, side="right")
    high = np.searchsorted(limits, first | np.uint64(2**48 - 1), side="right")
    settled = table >= 0
    np.testing.assert_array_equal(table[settled], low[settled])
    np.testing.assert_array_equal(table[settled], high[settled])
    # Nothing is in doubt but what limits begin with.
    begin = np.unique(limits >> np.uint64(48))
    np.testing.assert_array_equal(np.flatnonzero(~settled), begin)


@pytest.mark.parametrize("i", [0, 1, 15, 40, 62, 100, 511 - 1])
@pytest.mark.parametrize("words", [1, 2, 5])
def test_bits_of_a_limit_need_more_bits(i, words):
    """All bits of a limit, then zeros: below it. Ones: above it, if they are many."""
    bits = 64 * words
    limit, asked = sampler._limits(bits)[i], []

    def source(then: bytes):
        pieces = [limit >> bits - 64 & 2**48 - 1]
        pieces += [limit >> bits - 64 * (n + 1) & 2**64 - 1 for n in range(1, words)]

        def read(size: int) -> bytes:
            asked.append(size)
            return pieces.pop(0).to_bytes(size, "little") if pieces else then * size

        return read

    # Limits that are closer to 1 than these bits tell begin alike.
    same = [k for k, other in enumerate(sampler._limits(bits)) if other == limit]
    first = limit >> bits - 16
    assert sampler._settle_step(first, source(b"\0")) == same[0]
    assert asked == [6] + [8] * words
    above = sampler._settle_step(first, source(b"\xff"))
    assert above == same[-1] + 1


def test_steps_settled_by_more_bits_have_the_same_distribution(monkeypatch):
    nothing = np.full(2**16, -1, dtype=np.int16)
    monkeypatch.setattr(sampler, "_lookup", lambda: nothing)
    draws = discrete_gaussian(9, 30_000, seeded_source(2))
    assert _chi_square(draws, 9) > 1e-3


# ---- proposals, and which of them are accepted --------------------------------------

_PLACES = st.tuples(
    st.integers(1, LARGEST_SD) | st.integers(1, 100),
    st.integers(0, 511),
    st.fractions(0, 1),
)


def _place(sd, k, part):
    m = -(-sd // sampler._STEPS)
    j = min(int(part * m), m - 1)
    arrays = [np.array([v], dtype=np.int64) for v in (k, j, m, sd)]
    t = Fraction((k * m + j) ** 2, 2 * sd**2) - Fraction(k**2, 2 * sampler._STEPS**2)
    return arrays, t


@given(_PLACES)
def test_the_exponent_of_a_coin_is_exact(place):
    arrays, t = _place(*place)
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampler, "_DOUBT", 3.0)
        patch.setattr(sampler, "_settle", lambda w, e, s: seen.append((w, e)) or True)
        coins = np.array([0x0123], dtype=np.uint16)
        sampler._accepted(*arrays, coins, lambda n: bytes(range(n)))
    assert t >= 0
    assert seen == [(0x0123_03020100_0100, t)]


@given(_PLACES, st.booleans())
def test_coins_that_floating_point_decides_are_decided_right(place, below):
    """Coins a little outside of the doubt about exp(-t), on either side."""
    arrays, t = _place(*place)
    context = Context(prec=60)
    exact = Fraction(context.exp(-Decimal(t.numerator) / Decimal(t.denominator)))
    word = int((exact + (-1 if below else 1) * Fraction(2, 2**40)) * 2**48)
    if not 0 <= word < 2**48:
        return
    more = (word & 2**32 - 1).to_bytes(4, "little")
    coins = np.array([word >> 32], dtype=np.uint16)
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(sampler, "_settle")
        (found,) = sampler._accepted(*arrays, coins, lambda n: more[:n])
    assert found == below


@pytest.mark.parametrize("sd", [16 * 3, 16 * 4, LARGEST_SD, LARGEST_SD - 16])
def test_the_last_part_of_a_multiple_is_rejected(sd):
    m, last = sd // 16, 2**63 - 1

    def kept(bits: int) -> bool:
        # A positive sign, the k of 0x1000, and a coin of 0, which accepts it.
        data = (bits << 1).to_bytes(8, "little") + b"\x00\x10" + b"\0\0"
        drawn, accepted = sampler._proposals(np.array([sd]), lambda n: data[:n])
        assert drawn[0] % m == bits % m
        return bool(accepted[0])

    whole = 2**63 // m * m
    assert kept(0)
    assert kept(whole - 1)
    assert kept(last) == (whole == 2**63)


def test_digits_do_not_depend_on_the_context_of_the_caller():
    # A numerator of 38 digits: the default context has 28.
    exponent = Fraction(3**79, 2 * 3**79 + 1)
    context = Context(prec=120)
    quotient = context.divide(Decimal(-(3**79)), Decimal(2 * 3**79 + 1))
    limit = int(Fraction(context.exp(quotient)) * 2**192)
    pieces = [(limit >> shift & 2**64 - 1).to_bytes(8, "little") for shift in (64, 0)]
    for last, below in ((b"\0", True), (b"\xff", False)):
        rest = [*pieces, last * 8]
        with localcontext(prec=3):
            found = sampler._settle(limit >> 128, exponent, lambda n: rest.pop(0))  # noqa: B023
        assert found is below
        assert not rest
    with localcontext(prec=3):
        assert sampler._limits.__wrapped__(64) == sampler._limits(64)


def test_the_default_source_is_the_operating_systems():
    a, b = discrete_gaussian(2**40, 1000), discrete_gaussian(2**40, 1000)
    assert not np.array_equal(a, b)
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.15


def test_the_same_bytes_give_the_same_noise():
    again = [discrete_gaussian(2**40, 500, seeded_source(3)) for _ in range(2)]
    np.testing.assert_array_equal(*again)


@pytest.mark.parametrize("sd", [0, -1, LARGEST_SD + 1])
def test_a_deviation_that_cannot_be_drawn(sd):
    with pytest.raises(FedRidgeError, match="sd must be from 1"):
        discrete_gaussian(sd, 1)


@pytest.mark.parametrize("sd", [2.7, 3.0, [1.5, 2.5]])
def test_a_fraction_of_a_deviation_is_refused_and_not_cut_off(sd):
    with pytest.raises(FedRidgeError, match="whole numbers"):
        discrete_gaussian(sd, 2)
