"""TriangularStatistics: the law of merging, disclosure, packing, hostile arrays."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from generators import assert_same_statistics, linear_rows
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.stats import ortho_group

from fedridge_flwr import (
    DataError,
    StatisticsError,
    SufficientStatistics,
    TriangularStatistics,
)
from fedridge_flwr.data.names import Columns, Names
from fedridge_flwr.data.rows import BLOCK_BYTES, check_rows
from fedridge_flwr.data.schema import Schema
from fedridge_flwr.linalg.packed import packed_length
from fedridge_flwr.statistics.encoding import decode, encode_triangular

from_data = TriangularStatistics.from_data
seeds = st.integers(0, 2**32 - 1)


@st.composite
def data_sets(draw, min_rows=0):
    """Draw (X, y, sample_weight) of any size, offset, unit and kind of weights."""
    rng = np.random.default_rng(draw(seeds))
    n, d = draw(st.integers(min_rows, 40)), draw(st.integers(1, 5))
    X, y = linear_rows(n, d, rng, draw(st.sampled_from([None, 1, 3])))
    X = (X + draw(st.sampled_from([0.0, 3.0, -1e6]))) * rng.choice([1e-6, 1.0, 1e6], d)
    if draw(st.booleans()):
        X[:, -1] = X[:, 0]
    weight = draw(st.sampled_from([None, "whole", "any"]))
    if weight is None:
        return X, y, None
    whole = weight == "whole"
    return X, y, rng.integers(0, 3, n) * 1.0 if whole else rng.exponential(size=n)


def rows_of(data, part):
    X, y, weight = data
    return X[part], y[part], None if weight is None else weight[part]


def packed(stats):
    return stats.to_array()


# ---- the law ------------------------------------------------------------------------


@given(data=data_sets())
def test_it_is_the_factor_of_the_sums(data):
    found = from_data(*data).to_sufficient()
    assert_same_statistics(found, SufficientStatistics.from_data(*data))


@given(data=data_sets(), cut=st.sampled_from([0.0, 0.1, 0.5, 1.0]))
def test_the_sum_of_two_parts_is_the_statistics_of_the_whole(data, cut):
    cut = int(cut * len(data[1]))
    parts = [from_data(*rows_of(data, p)) for p in (np.s_[:cut], np.s_[cut:])]
    found = sum(parts)
    assert found.n_clients == 2
    assert_same_statistics(found.to_sufficient(), from_data(*data).to_sufficient())


@given(data=data_sets(min_rows=4), seed=seeds)
def test_any_split_in_any_order_is_the_whole(data, seed):
    rng = np.random.default_rng(seed)
    rows = np.array_split(rng.permutation(len(data[1])), 4)
    found = sum(from_data(*rows_of(data, part)) for part in rows)
    assert_same_statistics(found.to_sufficient(), from_data(*data).to_sufficient())


def test_many_merges_stay_small_and_exact():
    X, y = linear_rows(3000, 3, np.random.default_rng(0))
    found = sum(from_data(X[k : k + 1], y[k : k + 1]) for k in range(3000))
    assert len(found.factor) <= 256
    assert_same_statistics(found.to_sufficient(), from_data(X, y).to_sufficient())


@given(data=data_sets(min_rows=1), seed=seeds)
def test_a_weight_is_a_row_that_is_repeated(data, seed):
    X, y, _ = data
    times = np.random.default_rng(seed).integers(0, 4, size=len(y))
    weighted = from_data(X, y, times).to_sufficient()
    repeated = from_data(np.repeat(X, times, axis=0), np.repeat(y, times, axis=0))
    expected = repeated.to_sufficient()
    np.testing.assert_allclose(weighted.total_weight, expected.total_weight)
    scale = np.sqrt(np.diagonal(expected.comoment) + 1e-12 * expected.means**2)
    gap = np.abs(weighted.comoment - expected.comoment)
    assert (gap <= 1e-10 * np.outer(scale, scale) + 1e-300).all()


def test_blocks_and_sparse_rows_are_the_same_rows():
    rng = np.random.default_rng(0)
    X = sparse.random_array((30_000, 12), density=0.2, rng=rng).tocsr()
    y = rng.normal(size=30_000)
    assert X.shape[0] * 13 * 8 > 2 * BLOCK_BYTES
    dense = from_data(X.toarray(), y)
    assert_same_statistics(
        dense.to_sufficient(), SufficientStatistics.from_data(X.toarray(), y)
    )
    np.testing.assert_array_equal(packed(from_data(X, y)), packed(dense))


def test_memory_is_that_of_a_block():
    X = sparse.csr_array((200_000, 300))
    tracemalloc.start()
    from_data(X, np.zeros(200_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64e6  # the rows in full would be 480 MB


def test_nothing_can_be_removed():
    stats = from_data([[1.0], [2.0]], [1.0, 2.0])
    with pytest.raises(StatisticsError, match="use SufficientStatistics"):
        stats + stats - stats


def test_other_statistics_are_not_added():
    rows = [[1.0], [2.0]], [1.0, 2.0]
    with pytest.raises(TypeError):
        from_data(*rows) + SufficientStatistics.from_data(*rows)
    with pytest.raises(StatisticsError, match="1 feature against 2"):
        from_data(*rows) + from_data([[1.0, 2.0]], [1.0])


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
def test_bad_values_are_named(bad):
    with pytest.raises(DataError, match=r"column 0|overflow"):
        from_data([[1.0], [bad]], [1.0, 2.0])


# ---- disclosure ---------------------------------------------------------------------


@pytest.mark.parametrize("n", [4, 12])
@pytest.mark.parametrize("dependent", [False, True])
def test_the_factor_tells_no_more_than_the_sums(n, dependent):
    """Other rows with the same sums have the same factor."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(n, 6))
    Z -= Z.mean(axis=0)
    if dependent:  # a constant first column, and a copy
        Z[:, 0], Z[:, 3] = 0.0, Z[:, 1]
    # Rotations that leave the mean of the rows where it is.
    basis = np.linalg.qr(np.column_stack([np.ones(n), rng.normal(size=(n, n - 1))]))[0]
    inner = np.eye(n)
    inner[1:, 1:] = ortho_group.rvs(n - 1, random_state=rng)
    other = basis @ inner @ basis.T @ Z
    assert np.abs(other - Z).max() > 0.1
    ours, theirs = (from_data(rows[:, :5], rows[:, 5]) for rows in (Z, other))
    np.testing.assert_allclose(ours.upper, theirs.upper, atol=1e-12)


# ---- packing ------------------------------------------------------------------------


@given(data=data_sets())
def test_what_is_packed_comes_back(data):
    stats = from_data(*data)
    sent = encode_triangular(check_rows(*data))
    arrays = list(sent.arrays.values())
    back = decode(sent.kind, arrays, stats.schema, stats.count, sent.means_low)
    np.testing.assert_array_equal(back.to_sufficient().means, stats.means)
    assert_same_statistics(back.to_sufficient(), stats.to_sufficient())


def test_it_has_as_many_numbers_as_the_sums_or_fewer():
    X, y = linear_rows(300, 100, np.random.default_rng(0))
    assert from_data(X, y).to_array().size == packed_length(100, 1)
    # Ten rows less their mean: nine rows of the trapezoid.
    assert from_data(X[:10], y[:10]).to_array().size == 102 + 9 * 101 - 36


def test_columns_are_rearranged_and_named():
    names = Columns(Names.of(("a", "b")), None)
    stats = from_data([[1.0, 5.0], [2.0, 7.0], [4.0, 4.0]], [1.0, 2.0, 3.0])
    named = stats.with_feature_names(["b", "a"]).arranged(names)
    assert named.feature_names == ("a", "b")
    other = from_data([[5.0, 1.0], [7.0, 2.0], [4.0, 4.0]], [1.0, 2.0, 3.0])
    np.testing.assert_allclose(named.upper, other.upper)


GOOD = from_data(*linear_rows(9, 2, np.random.default_rng(0))).to_array()


def changed(place, value):
    array = GOOD.copy()
    array[place] = value
    return array


@pytest.mark.parametrize(
    ("array", "count", "reason"),
    [
        (GOOD.astype(np.float32), 9, "float64"),
        (GOOD.reshape(2, -1), 9, "shape"),
        (GOOD[:2], 9, "4 numbers, got 2"),
        (GOOD[:-2], 9, "no trapezoid"),
        (np.append(GOOD, 1.0), 9, "no trapezoid"),
        (changed(5, np.nan), 9, "NaN"),
        (changed(0, -1.0), 9, "negative"),
        (changed(0, 0.0), 9, "total weight is zero"),
        (changed(0, 1e200), 9, "overflow"),
        (changed(5, 1e100), 9, "overflow"),
        (changed(1, 1e100), 9, "overflow"),
        (GOOD, 3, "leave 2 at most"),
        (GOOD, 2, "3 rows"),
        (GOOD, 0, "rows"),
        (changed(0, 8.5), None, "whole number"),
    ],
)
def test_what_no_rows_have_is_refused(array, count, reason):
    assert TriangularStatistics.unpack(GOOD, Schema(2, 1), 9).count == 9
    with pytest.raises(StatisticsError, match=reason):
        TriangularStatistics.unpack(array, Schema(2, 1), count)


def test_a_few_numbers_do_not_become_gigabytes():
    array = np.zeros(200_002)
    with pytest.raises(StatisticsError, match="gigabytes"):
        TriangularStatistics.unpack(array, Schema(200_000, 1), 1)
