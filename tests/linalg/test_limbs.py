"""Integers in words of 64 bits: the laws of arithmetic modulo 2^(64 L)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedridge_flwr.linalg import limbs

SIZES = st.integers(1, 5)


@st.composite
def numbers(draw, lists=2):
    n_words, length = draw(SIZES), draw(st.integers(0, 6))
    half = 1 << (64 * n_words - 1)
    # Carries run through words that are all ones or all zeros.
    edges = [
        s * (1 << 64 * k) + e
        for k in range(n_words)
        for s in (-1, 1)
        for e in (-1, 0, 1)
    ]
    edges = [edge for edge in edges if -half <= edge < half]
    one = st.one_of(st.integers(-half, half - 1), st.sampled_from(edges))
    found = [
        draw(st.lists(one, min_size=length, max_size=length)) for _ in range(lists)
    ]
    return n_words, *found


def wrapped(number, n_words):
    half = 1 << (64 * n_words - 1)
    return (number + half) % (2 * half) - half


@given(numbers())
def test_sums_and_differences_are_those_of_integers_modulo_the_width(drawn):
    n_words, a, b = drawn
    x, y = limbs.from_ints(a, n_words), limbs.from_ints(b, n_words)
    assert limbs.to_ints(x) == a
    both = list(zip(a, b, strict=True))
    assert limbs.to_ints(limbs.add(x, y)) == [wrapped(p + q, n_words) for p, q in both]
    assert limbs.to_ints(limbs.subtract(x, y)) == [
        wrapped(p - q, n_words) for p, q in both
    ]
    assert limbs.to_ints(limbs.negate(x)) == [wrapped(-p, n_words) for p in a]
    assert limbs.is_negative(x).tolist() == [p < 0 for p in a]


@given(numbers(lists=3))
def test_the_order_and_grouping_of_addends_changes_no_bit(drawn):
    n_words, *lists = drawn
    x, y, z = (limbs.from_ints(each, n_words) for each in lists)
    total = limbs.add(limbs.add(x, y), z)
    np.testing.assert_array_equal(total, limbs.add(z, limbs.add(y, x)))
    np.testing.assert_array_equal(limbs.subtract(total, z), limbs.add(x, y))


@given(numbers(lists=1))
def test_float64_is_within_one_unit_in_the_last_place(drawn):
    n_words, a = drawn
    found = limbs.to_float64(limbs.from_ints(a, n_words))
    exact = np.array([float(each) for each in a])
    assert (np.abs(found - exact) <= np.spacing(np.abs(exact))).all()


@given(
    st.lists(
        st.lists(st.integers(-(2**62), 2**62), min_size=3, max_size=3), max_size=9
    ),
    st.integers(1, 32),
    SIZES,
)
def test_digits_of_any_sign_add_up(rows, bits, n_words):
    digits = np.array(rows, dtype=np.int64).reshape(-1, 3)
    expected = [
        wrapped(sum(row[j] << bits * s for s, row in enumerate(rows)), n_words)
        for j in range(3)
    ]
    assert limbs.to_ints(limbs.from_digits(digits, bits, n_words)) == expected


@pytest.mark.parametrize("shape", [(0, 3), (4, 3), (2, 5, 3)])
def test_any_leading_shape(shape):
    a = np.random.default_rng(0).integers(0, 2**64, size=shape, dtype=np.uint64)
    np.testing.assert_array_equal(limbs.subtract(limbs.add(a, a), a), a)
