"""Fixed-point statistics: the laws hold bit for bit, and nothing cancels."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from generators import assert_same_statistics, linear_rows
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from fedridge_flwr import (
    DataError,
    FedRidgeError,
    FixedPointStatistics,
    PolynomialMap,
    StatisticsError,
    SufficientStatistics,
    solve,
)
from fedridge_flwr.data.names import Columns, Names
from fedridge_flwr.linalg import limbs
from fedridge_flwr.statistics import integer_sums
from fedridge_flwr.statistics.fixed_checks import check_total
from fedridge_flwr.statistics.integer_sums import FixedGrid

from_data = FixedPointStatistics.from_data
VALUES = st.floats(-1e7, 1e7, allow_subnormal=False)


@st.composite
def rows(draw, smallest=1):
    n, d = draw(st.integers(smallest, 12)), draw(st.integers(1, 4))
    table = draw(arrays(np.float64, (n, d + 1), elements=VALUES))
    table[0] = 1.0  # no column vanishes on the grid
    return table[:, :d], table[:, d]


def sums_of_integers(X, y, fraction_bits=60):
    """Return the sums of products of [1 x y] on the grid, by Python's integers."""
    table = np.column_stack([np.ones(len(X)), X, y]).tolist()
    u = [[round(Fraction(v) * 2**fraction_bits) for v in row] for row in table]
    pairs = zip(*np.triu_indices(len(u[0])), strict=True)
    return [sum(row[i] * row[j] for row in u) for i, j in pairs]


def exact_ridge(X, y, alpha):
    """Solve (C + alpha) w = h in fractions, and round once."""
    X, y = ([[Fraction(v) for v in row] for row in X.tolist()]), y.tolist()
    y = [Fraction(v) for v in y]
    n, d = len(X), len(X[0])
    means = [sum(row[j] for row in X) / n for j in range(d)]
    mean = sum(y) / n
    A = [
        [sum((row[i] - means[i]) * (row[j] - means[j]) for row in X) for j in range(d)]
        for i in range(d)
    ]
    for i in range(d):
        A[i][i] += Fraction(alpha)
        A[i].append(
            sum((row[i] - means[i]) * (v - mean) for row, v in zip(X, y, strict=True))
        )
    for k in range(d):
        for i in range(d):
            if i != k:
                factor = A[i][k] / A[k][k]
                A[i] = [p - factor * q for p, q in zip(A[i], A[k], strict=True)]
    return np.array([float(A[k][d] / A[k][k]) for k in range(d)])


@given(rows())
def test_sums_are_those_of_integers(drawn):
    X, y = drawn
    assert limbs.to_ints(from_data(X, y).words) == sums_of_integers(X, y)


@given(rows(smallest=2), st.randoms(use_true_random=False))
def test_order_and_division_change_no_bit(drawn, random):
    X, y = drawn
    total = from_data(X, y)
    order = random.sample(range(len(X)), len(X))
    cut = random.randint(1, len(X) - 1)
    a = from_rows(X, y, order[:cut])
    b = from_rows(X, y, order[cut:])
    assert from_rows(X, y, order) == total
    assert a + b == b + a == sum([b, a]) == total
    assert total - a == b
    assert (total - b).to_sufficient().triangle.tobytes() == (
        a.to_sufficient().triangle.tobytes()
    )


def from_rows(X, y, order):
    """Statistics of some rows of which a column may be zero on the grid."""
    zeroed = np.where(np.abs(X[order]) < 2.0**-61, 0.0, X[order])
    return from_data(zeroed, np.where(np.abs(y[order]) < 2.0**-61, 0.0, y[order]))


@pytest.mark.parametrize("block", [1, 3, 512])
@pytest.mark.parametrize("pending", [1, 2, 64])
def test_the_length_of_blocks_changes_no_bit(monkeypatch, block, pending):
    X, y = linear_rows(50, 3, np.random.default_rng(0))
    total = from_data(1e5 * X, y)
    monkeypatch.setattr(integer_sums, "_ROWS", block)
    monkeypatch.setattr(integer_sums, "_BLOCKS", pending)
    assert from_data(1e5 * X, y) == total


def test_the_largest_digits_are_exact():
    """Every digit at its bound, in every row of a full block and of many."""
    value = sum(2**21 * 2 ** (22 * k) for k in range(3)) / 2**60
    for sign in (1.0, -1.0):
        X = np.full((1500, 2), value) * [1.0, sign]
        found = limbs.to_ints(from_data(X, np.ones(1500)).words)
        assert found == sums_of_integers(X, np.ones(1500))


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_coefficients_are_those_of_exact_arithmetic(scaled, offset):
    rng = np.random.default_rng(7)
    d = 7
    X = rng.normal(size=(120, d))
    y = X @ rng.normal(size=d) + 0.1 * rng.normal(size=120)
    X = X * (10.0 ** np.linspace(-6, 6, d) if scaled else 1.0) + offset
    alpha = 1e-3
    parts = [from_data(X[k::4], y[k::4]) for k in range(4)]
    model = solve(sum(parts).to_sufficient(), alpha=alpha)
    exact = exact_ridge(X, y, alpha)
    assert np.max(np.abs(model.coef_ - exact) / np.abs(exact)) < 1e-12


def test_ten_permutations_and_three_partitions_give_the_same_coefficients():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 6)) * 10.0 ** np.arange(-2, 4) + 1e4
    y = X @ rng.normal(size=6) + rng.normal(size=300)
    found = set()
    for _ in range(10):
        order = rng.permutation(300)
        for k in (1, 4, 7):
            parts = [from_data(X[p], y[p]) for p in np.array_split(order, k)]
            total = sum(parts).to_sufficient()
            found.add(solve(total, alpha=1.0).coef_.tobytes())
    assert len(found) == 1


@given(rows(smallest=2))
def test_the_centred_form_is_that_of_float64_to_rounding(drawn):
    X, y = drawn
    fixed = from_data(X, y).to_sufficient()
    plain = SufficientStatistics.from_data(X, y)
    assert_same_statistics(fixed, plain)
    assert (np.diagonal(fixed.comoment) >= 0).all()


def test_means_have_low_parts():
    X, y = np.array([[1e6], [1e6 + 0.1], [1e6 + 0.3]]), np.zeros(3)
    stats = from_data(X, y).to_sufficient()
    exact = sum(Fraction(v) for v in X[:, 0].tolist()) / 3
    mean = Fraction(float(stats.means[0])) + Fraction(float(stats.means_low[0]))
    assert abs(mean - exact) < Fraction(1, 2**85)


def test_weights_are_those_of_float64_to_rounding():
    rng = np.random.default_rng(1)
    X, y = linear_rows(60, 3, rng)
    w = rng.gamma(1.0, size=60)
    w[:5] = 0.0
    fixed = sum(from_data(X[k::3], y[k::3], w[k::3]) for k in range(3))
    assert fixed == from_data(X, y, w)
    plain = SufficientStatistics.from_data(X, y, w)
    assert fixed.count == plain.count == 60
    assert_same_statistics(fixed.to_sufficient(), plain)


def test_sparse_rows_frames_and_maps_give_the_same_bits():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(700, 4)) * (rng.random((700, 4)) < 0.3)
    y = rng.normal(size=(700, 2))
    total = from_data(X, y)
    assert from_data(sparse.csc_array(X), y) == total
    assert from_data(pd.DataFrame(X, columns=list("abcd")), y) == total
    squares = PolynomialMap(2).transform(X)
    mapped = from_data(X, y, feature_map=PolynomialMap(2))
    np.testing.assert_array_equal(mapped.words, from_data(squares, y).words)


def test_columns_in_another_order():
    rng = np.random.default_rng(4)
    frame = pd.DataFrame(rng.normal(size=(20, 3)), columns=list("abc"))
    y = rng.normal(size=20)
    powers = {"a": 1, "b": 2, "c": 3}
    moved = frame[["c", "a", "b"]]
    first = from_data(frame, y, exponents=[1, 2, 3, 0])
    second = from_data(moved, y, exponents=[powers[name] for name in "cab"] + [0])
    wanted = Columns(Names.of(tuple("abc")), None)
    assert second.arranged(wanted) == first
    with pytest.raises(StatisticsError, match="another order"):
        first + second


@pytest.mark.parametrize("bits", [128, 192, 320])
def test_exponents_move_the_grid_and_nothing_else(bits):
    rng = np.random.default_rng(5)
    scales = np.array([1e-9, 1.0, 1e9])
    X, y = rng.normal(size=(80, 3)), rng.normal(size=80)
    exponents = [*np.frexp(scales)[1].tolist(), 0]
    options = {"fraction_bits": bits // 4, "total_bits": bits, "exponents": exponents}
    fixed = from_data(X * scales, y, **options)
    assert (fixed.fraction_bits, fixed.total_bits) == (bits // 4, bits)
    assert fixed.column_exponents == tuple(exponents)
    plain = SufficientStatistics.from_data(X * scales, y)
    scale = np.append(scales, 1.0)
    tolerance = 2.0 ** -(bits // 4 - 8)
    np.testing.assert_allclose(
        fixed.to_sufficient().comoment / np.outer(scale, scale),
        plain.comoment / np.outer(scale, scale),
        atol=max(tolerance, 1e-11),
    )
    words = FixedPointStatistics.from_words(fixed.words, 80, fixed.schema, fixed.grid)
    assert words == fixed


# ---- what does not fit ------------------------------------------------------------


def test_too_large_values_name_the_column_and_the_remedy():
    frame = pd.DataFrame({"age": [1.0, 2.0], "income": [1.0, 1e10]})
    with pytest.raises(DataError, match=r"X is too large .*\('income'\).*exponents"):
        from_data(frame, [0.0, 1.0])
    with pytest.raises(DataError, match=r"y is too large .*column 0.*exponents"):
        from_data([[1.0]], [1e10])
    with pytest.raises(DataError, match="sample_weight is too large"):
        from_data([[0.0]], [0.0], [1e20])
    assert from_data(frame, [0.0, 1.0], exponents=[0, 30, 0]).count == 2


@given(st.integers(1, 40), st.integers(1, 5000))
def test_what_is_taken_cannot_overflow_with_so_many_clients(n, clients):
    grid = FixedGrid(40, 128, max_clients=clients)
    largest = grid.largest(n)
    X = np.full((n, 1), largest * (1 - 1e-9))
    part = FixedPointStatistics.from_data(
        X, np.ones(n), fraction_bits=40, total_bits=128, max_clients=clients
    )
    square = limbs.to_ints(part.words)[3]
    assert 0 < square * clients < 2**127
    with pytest.raises(DataError, match="too large"):
        from_data(
            X * (1 + 1e-6),
            np.ones(n),
            fraction_bits=40,
            total_bits=128,
            max_clients=clients,
        )


def test_values_that_vanish_are_named():
    with pytest.raises(DataError, match=r"X is too small .* column 1: all values"):
        from_data([[1.0, 1e-30], [2.0, 0.0]], [0.0, 1.0])


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_values_that_are_not_finite_are_named(value):
    with pytest.raises(DataError, match="column 1"):
        from_data([[1.0, value]], [0.0])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"total_bits": 100}, "multiple of 64"),
        ({"total_bits": 64, "fraction_bits": 60}, "fraction_bits"),
        ({"fraction_bits": 0}, "fraction_bits"),
        ({"max_clients": 0}, "max_clients"),
        ({"exponents": [1]}, "one for each of 2 columns"),
        ({"exponents": [0.5, 1]}, "exponent"),
    ],
)
def test_grids_that_cannot_be(options, text):
    with pytest.raises(FedRidgeError, match=text):
        from_data([[1.0]], [1.0], **options)


def test_overflow_of_a_sum_and_removal_of_strangers_are_errors():
    one = from_data([[1.0]], [1.0], total_bits=128, fraction_bits=61, max_clients=1)
    with pytest.raises(StatisticsError, match="exceeds 128 bits"):
        sum([one] * 64)
    a, b = from_data([[1.0], [2.0]], [1.0, 1.0]), from_data([[9.0]], [1.0])
    with pytest.raises(StatisticsError, match="not all part of it"):
        a - b
    with pytest.raises(StatisticsError, match="not all part of it"):
        b - a
    with pytest.raises(StatisticsError, match="grids differ"):
        a + from_data([[1.0]], [1.0], fraction_bits=50)


# ---- words of which nothing is trusted ----------------------------------------------


def unpacked(stats, words, count=None, **options):
    count = stats.count if count is None else count
    return FixedPointStatistics.from_words(words, count, stats.schema, **options)


@given(rows(), st.booleans())
def test_words_come_back(drawn, weighted):
    X, y = drawn
    w = np.linspace(0.5, 2.0, len(X)) if weighted else None
    stats = from_data(X, y, w)
    assert unpacked(stats, stats.to_words(), weighted=weighted) == stats


def test_no_rows_are_the_neutral_element():
    stats = from_data([[1.0, 2.0], [3.0, 5.0]], [1.0, 2.0])
    nobody = from_data(np.empty((0, 2)), np.empty(0))
    assert stats + nobody == nobody + stats == stats
    assert stats - stats == nobody
    assert unpacked(nobody, nobody.to_words()).scale()[0] == 0.0
    assert nobody.to_sufficient().total_weight == 0.0


@pytest.mark.parametrize(
    ("place", "number", "text"),
    [
        (0, (4 << 120) + 1, "not the number of rows"),
        (0, -(4 << 120), "not the number of rows"),
        (3, -1, "negative"),
        (3, 1 << 190, "overflow"),
        (3, 1, "negative variances"),
        (4, 1 << 170, "positive semi-definite"),
    ],
)
def test_sums_that_no_rows_have_are_refused(place, number, text):
    X, y = linear_rows(4, 1, np.random.default_rng(0))
    stats = from_data(X, y)
    words = stats.to_words().copy()
    words[place] = limbs.from_ints([number], 3)
    with pytest.raises(StatisticsError, match=text):
        unpacked(stats, words)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda words: words[:-1], "shape"),
        (lambda words: words[:, :2], "shape"),
        (lambda words: words.astype(np.int64), "uint64"),
        (lambda words: words.astype(">u8"), "uint64"),
        (lambda words: words.ravel(), "shape"),
    ],
)
def test_arrays_that_are_no_words_are_refused(change, text):
    stats = from_data([[1.0], [2.0]], [1.0, 0.0])
    with pytest.raises(StatisticsError, match=text):
        unpacked(stats, change(stats.to_words()))


def test_more_rows_than_there_are_and_sums_of_no_rows_are_refused():
    X, y = linear_rows(6, 4, np.random.default_rng(0))
    stats = from_data(X, y, np.full(6, 0.5))
    with pytest.raises(StatisticsError, match="more rows"):
        unpacked(stats, stats.to_words(), 2, weighted=True)
    with pytest.raises(StatisticsError, match="no rows"):
        unpacked(stats, stats.to_words(), 0, weighted=True)


def test_a_total_that_still_has_a_mask_is_noticed():
    stats = from_data([[1.0], [2.0]], [1.0, 0.0])
    assert check_total(stats.words) == 2
    mask = np.random.default_rng(0).integers(0, 2**64, stats.words.shape, np.uint64)
    with pytest.raises(StatisticsError, match="mask"):
        check_total(limbs.add(stats.words, mask))
