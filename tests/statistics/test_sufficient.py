"""SufficientStatistics: the law of merging, packing, views, memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from generators import (
    SPLITS,
    assert_same_statistics,
    client_statistics,
    linear_rows,
    relative_error,
    split_rows,
)
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from fedridge_flwr import StatisticsError, SufficientStatistics, solve
from fedridge_flwr.data import rows
from fedridge_flwr.data.names import hash_names
from fedridge_flwr.linalg.packed import packed_length

from_data = SufficientStatistics.from_data


@st.composite
def data_sets(draw, min_rows=0):
    """Draw (X, y, sample_weight) of any size, offset, unit and kind of weights."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d = draw(st.integers(min_rows, 40)), draw(st.integers(1, 5))
    t = draw(st.sampled_from([None, 1, 3]))
    X, y = linear_rows(n, d, rng, t)
    unit = draw(st.sampled_from([1e-6, 1.0, 1e6]))
    X = (X + draw(st.sampled_from([0.0, 3.0, -1e6]))) * unit
    weight = draw(st.sampled_from(["none", "whole", "any"]))
    if weight == "none":
        return X, y, None
    if weight == "whole":
        return X, y, rng.integers(0, 3, size=n).astype(float)
    return X, y, rng.exponential(size=n)


cuts = st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0])


def rows_of(data, part):
    X, y, weight = data
    return X[part], y[part], None if weight is None else weight[part]


# ---- the law ------------------------------------------------------------------------


@given(data=data_sets(), cut=cuts)
def test_the_sum_of_two_parts_is_the_statistics_of_the_whole(data, cut):
    cut = int(cut * len(data[1]))
    a = from_data(*rows_of(data, slice(None, cut)))
    b = from_data(*rows_of(data, slice(cut, None)))
    assert_same_statistics(a + b, from_data(*data))
    assert_same_statistics(b + a, from_data(*data))


@given(data=data_sets(), cut=cuts)
def test_removing_what_was_added_gives_back_what_was_there(data, cut):
    cut = int(cut * len(data[1]))
    a = from_data(*rows_of(data, slice(None, cut)))
    b = from_data(*rows_of(data, slice(cut, None)))
    total = a + b
    assert_same_statistics(total - b, a, rtol=1e-10, scale=total)
    assert (total - b).n_clients == a.n_clients


@given(data=data_sets(min_rows=3), K=st.integers(1, 12), kind=st.sampled_from(SPLITS))
def test_sum_over_any_split_is_the_statistics_of_the_whole(data, K, kind):
    X, y, weight = data
    key = X[:, 0]
    parts = split_rows(len(y), K, np.random.default_rng(0), kind, key)
    clients = client_statistics(X, y, parts, weight)
    total = sum(clients)
    assert_same_statistics(total, from_data(*data))
    assert total.n_clients == K


@given(data=data_sets(), height=st.integers(1, 50))
def test_batches_are_the_statistics_of_the_whole(data, height):
    starts = range(0, max(len(data[1]), 1), height)
    batches = (rows_of(data, slice(start, start + height)) for start in starts)
    found = SufficientStatistics.from_batches(batches)
    assert_same_statistics(found, from_data(*data))
    assert found.n_clients == 1


@given(data=data_sets(), size=st.sampled_from([1, 64, 1000, 1 << 30]))
def test_the_size_of_the_blocks_does_not_matter(data, size):
    X, y, weight = data
    expected = from_data(X, y, weight)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "BLOCK_BYTES", size)
        assert_same_statistics(from_data(X, y, weight), expected)
        for form in (sparse.csr_array, sparse.csc_array):
            assert_same_statistics(from_data(form(X), y, weight), expected)


def test_sum_of_one_is_itself_and_sums_start_from_zero():
    a = from_data([[1.0], [2.0]], [1.0, 2.0])
    assert sum([a]) is a
    with pytest.raises(TypeError):
        a + 1
    with pytest.raises(TypeError):
        1 + a
    with pytest.raises(TypeError):
        a - 1


def test_merging_and_removing_leave_their_operands_alone():
    X, y = linear_rows(20, 3, np.random.default_rng(0))
    a, b = from_data(X[:9], y[:9]), from_data(X[9:], y[9:])
    before = a.to_array().tobytes(), b.to_array().tobytes()
    _ = (a + b) - b
    assert (a.to_array().tobytes(), b.to_array().tobytes()) == before
    with pytest.raises(ValueError, match="read-only"):
        a.means[0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        a.comoment[0, 0] = 1.0


def test_the_rows_may_change_afterwards():
    X, y = linear_rows(20, 3, np.random.default_rng(0))
    stats = from_data(X, y)
    before = stats.to_array()
    X[:], y[:] = 0.0, 0.0
    assert (stats.to_array() == before).all()


@given(data=data_sets())
def test_comoments_are_symmetric_to_the_last_bit_with_no_negative_variance(data):
    X, y, weight = data
    for features in (X, np.asfortranarray(X), sparse.csr_array(X)):
        stats = from_data(features, y, weight)
        assert (stats.comoment == stats.comoment.T).all()
        assert (np.diagonal(stats.comoment) >= 0).all()
        assert (stats.gram == stats.gram.T).all()


# ---- removing -----------------------------------------------------------------------


def test_removing_everything_leaves_the_empty_statistics():
    X, y = linear_rows(20, 3, np.random.default_rng(0))
    stats = from_data(X, y)
    nothing = stats - stats
    assert nothing.count == 0
    assert nothing.n_clients == 0
    assert not nothing.to_array().any()
    assert_same_statistics(nothing + stats, stats)


def test_removing_a_client_without_rows_changes_nothing():
    X, y = linear_rows(20, 3, np.random.default_rng(0))
    stats = from_data(X, y)
    empty = from_data(X[:0], y[:0])
    total = stats + empty
    assert ((total - empty).to_array() == stats.to_array()).all()
    weightless = from_data(X[:2], y[:2], [0.0, 0.0])
    assert_same_statistics((stats + weightless) - weightless, stats)


def test_removing_more_rows_than_there_are_is_refused():
    X, y = linear_rows(20, 3, np.random.default_rng(0))
    with pytest.raises(StatisticsError, match=r"cannot remove 20 rows .* from 5 rows"):
        from_data(X[:5], y[:5]) - from_data(X, y)


def test_removing_the_same_number_of_rows_with_less_weight_is_refused():
    X, y = linear_rows(20, 3, np.random.default_rng(0))
    with pytest.raises(StatisticsError, match=r"weight 10 from 20 rows of weight 20"):
        from_data(X, y) - from_data(X, y, np.full(20, 0.5))


def test_removing_rows_that_were_never_there_is_refused():
    X, y = linear_rows(50, 3, np.random.default_rng(0))
    with pytest.raises(StatisticsError, match="not part of the total"):
        from_data(X, y) - from_data(100 * X[:20], y[:20])


@given(data=data_sets(min_rows=4))
def test_what_is_left_can_still_be_packed_and_read(data):
    a = from_data(*rows_of(data, slice(None, 2)))
    b = from_data(*rows_of(data, slice(2, None)))
    left = (a + b) - b
    back = SufficientStatistics.from_array(
        left.to_array(), left.n_features, left.n_targets, count=left.count
    )
    assert back.to_array().tobytes() == left.to_array().tobytes()


# ---- packing ------------------------------------------------------------------------


def magnitudes(smallest=1e-60, largest=1e60):
    sizes = st.floats(smallest, largest)
    return st.one_of(st.just(0.0), st.just(-0.0), sizes, sizes.map(lambda v: -v))


wild_rows = st.tuples(st.integers(0, 6), st.integers(1, 4)).flatmap(
    lambda shape: hnp.arrays(
        np.float64, (shape[0], 1 + shape[1]), elements=magnitudes()
    )
)


@given(Z=wild_rows)
def test_packing_and_unpacking_is_bit_for_bit(Z):
    X, y = Z[:, :-1], Z[:, -1]
    stats = from_data(X, y)
    packed = stats.to_array()
    back = SufficientStatistics.from_array(packed, X.shape[1], 1)
    assert back.to_array().tobytes() == packed.tobytes()
    assert back.comoment.tobytes() == stats.comoment.tobytes()
    assert back.means.tobytes() == stats.means.tobytes()
    assert (back.count, back.total_weight) == (stats.count, stats.total_weight)


@given(data=data_sets())
def test_unpacked_statistics_solve_to_the_same_bits(data):
    stats = from_data(*data)
    assume(stats.total_weight > 0)
    back = SufficientStatistics.from_array(
        stats.to_array(), stats.n_features, stats.n_targets, count=stats.count
    )
    expected, found = (solve(one, standardize=True) for one in (stats, back))
    assert found.coef_.tobytes() == expected.coef_.tobytes()
    assert np.array_equal(found.intercept_, expected.intercept_)


@given(d=st.integers(1, 30), t=st.integers(1, 5))
def test_the_packed_length_is_the_upper_triangle_with_weight_and_means(d, t):
    stats = from_data(np.ones((2, d)), np.ones((2, t)))
    assert stats.to_array().shape == ((1 + d + t) * (2 + d + t) // 2,)
    assert stats.to_array().dtype == np.float64
    assert packed_length(d, t) == stats.to_array().size


def test_the_packed_order_is_weight_means_and_rows_of_the_triangle():
    X, y = linear_rows(9, 2, np.random.default_rng(0))
    stats = from_data(X, y, np.full(9, 2.0))
    packed = stats.to_array()
    assert packed[0] == 18.0
    assert (packed[1:4] == stats.means).all()
    assert (packed[4:] == stats.comoment[np.triu_indices(3)]).all()


def test_columns_too_small_to_square_are_still_what_rows_can_have():
    X, y = linear_rows(30, 2, np.random.default_rng(0))
    for unit in (1e-160, 1e-170, 1e-300):
        stats = from_data(np.column_stack([X, unit * X[:, 0]]), y)
        back = SufficientStatistics.from_array(stats.to_array(), 3, 1)
        assert back.to_array().tobytes() == stats.to_array().tobytes()


def packed_and_changed(position, value):
    X, y = linear_rows(20, 2, np.random.default_rng(0))
    packed = from_data(X, y).to_array()
    packed[position] = value
    return packed


@pytest.mark.parametrize(
    ("position", "value", "count", "words"),
    [
        (0, -1.0, 20, "total weight is negative"),
        (0, 1.5, None, r"not a whole number.*count="),
        (0, 20.0, -1, "row count is negative"),
        (0, 20.0, 0, "no rows, but weight"),
        (0, 0.0, 20, "weight is zero, but means or co-moments"),
        (1, np.nan, 20, r"1 of 10 numbers"),
        (2, np.inf, 20, r"1 of 10 numbers"),
        (1, 1e80, 20, "overflow"),
        (4, -1.0, 20, "negative"),
        (5, 1e9, 20, r"correlation.*above 1"),
        (5, -1e9, 20, r"correlation.*above 1"),
    ],
)
def test_statistics_that_no_rows_can_have_are_refused(position, value, count, words):
    packed = packed_and_changed(position, value)
    with pytest.raises(StatisticsError, match=words):
        SufficientStatistics.from_array(packed, 2, 1, count=count)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a[:-1], r"have 10 numbers, got an array of shape \(9,\)"),
        (lambda a: a[None], r"got an array of shape \(1, 10\)"),
        (lambda a: a.astype(np.float32), "float64, got float32"),
        (lambda a: a.astype(complex), "float64, got complex128"),
        (lambda a: a.astype(str), "float64, got <U"),
        (lambda a: a.astype(object), "float64, got object"),
    ],
)
def test_arrays_that_are_not_packed_statistics_are_refused(change, words):
    packed = change(packed_and_changed(0, 20.0))
    with pytest.raises(StatisticsError, match=words):
        SufficientStatistics.from_array(packed, 2, 1)


@pytest.mark.parametrize(("d", "t"), [(0, 1), (1, 0), (-1, 1)])
def test_sizes_below_one_are_refused(d, t):
    with pytest.raises(StatisticsError, match="both must be 1 or more"):
        SufficientStatistics.from_array(np.zeros(1), d, t)


def test_names_travel_beside_the_array_and_must_match_their_hash():
    packed = packed_and_changed(0, 20.0)
    unpack = SufficientStatistics.from_array
    named = unpack(packed, 2, feature_names=["a", "b"])
    hashed = unpack(packed, 2, feature_hash=hash_names(["a", "b"]))
    assert named.feature_names == ("a", "b")
    assert named.feature_hash == hashed.feature_hash
    assert hashed.feature_names is None
    assert (hashed + named).feature_names == ("a", "b")
    assert (named + hashed).feature_names == ("a", "b")
    with pytest.raises(StatisticsError, match="do not match their hash"):
        unpack(packed, 2, feature_names=["a", "b"], feature_hash=hash_names(["a"]))
    with pytest.raises(StatisticsError, match="feature names for 2 features"):
        unpack(packed, 2, feature_names=["a", "b", "c"])


def test_names_can_be_given_later_where_they_match():
    packed = packed_and_changed(0, 20.0)
    hashed = SufficientStatistics.from_array(
        packed, 2, feature_hash=hash_names(["a", "b"])
    )
    bare = SufficientStatistics.from_array(packed, 2)
    for stats in (hashed, bare):
        named = stats.with_feature_names(["a", "b"])
        assert named.feature_names == ("a", "b")
        assert named.feature_hash == hash_names(["a", "b"])
        assert named.to_array().tobytes() == packed.tobytes()
    assert bare.feature_names is None
    with pytest.raises(StatisticsError, match="do not match their hash"):
        hashed.with_feature_names(["b", "a"])
    with pytest.raises(StatisticsError, match="feature names for 2 features"):
        bare.with_feature_names(["a"])


@pytest.mark.parametrize("count", [20.5, None])
def test_a_row_count_that_is_not_a_whole_number_is_refused(count):
    packed = packed_and_changed(0, 20.5)
    with pytest.raises(StatisticsError):
        SufficientStatistics.from_array(packed, 2, 1, count=count)


def test_a_numpy_row_count_makes_a_model_that_can_be_saved(tmp_path):
    packed = packed_and_changed(0, 20.0)
    stats = SufficientStatistics.from_array(packed, 2, 1, count=np.int64(20))
    solve(stats).save(tmp_path / "model.json")
    assert (tmp_path / "model.json").exists()


def test_the_names_hash_depends_on_names_and_on_their_order_only():
    assert hash_names(["a", "b"]) == hash_names(("a", "b"))
    different = [["a", "b"], ["b", "a"], ["ab"], ["a", "b", ""], ['a", "b'], ["ä", "b"]]
    assert len({hash_names(names) for names in different}) == len(different)
    assert len(hash_names(["a"])) == 32


# ---- views --------------------------------------------------------------------------


@given(data=data_sets(min_rows=1))
def test_views_are_the_sums_of_the_paper(data):
    X, y, weight = data
    stats = from_data(X, y, weight)
    Y = y.reshape(len(y), -1)
    w = np.ones(len(y)) if weight is None else weight
    assert relative_error(stats.gram, (X.T * w) @ X) < 1e-12
    assert stats.moment.shape == (X.shape[1], Y.shape[1])
    size = np.sqrt((w @ X**2)[:, None] * (w @ Y**2))
    assert (np.abs(stats.moment - (X.T * w) @ Y) <= 1e-12 * size).all()
    assert relative_error(stats.target_gram, (Y.T * w) @ Y) < 1e-12
    assert stats.count == len(y)
    assert stats.total_weight == pytest.approx(w.sum(), rel=1e-13)
    assert (stats.n_features, stats.n_targets) == (X.shape[1], Y.shape[1])
    assert np.array_equal(
        stats.means, np.concatenate([stats.feature_means, stats.target_means])
    )


def test_means_and_variances_are_those_of_numpy():
    rng = np.random.default_rng(0)
    X, y = linear_rows(50, 3, rng)
    weight = rng.exponential(size=50)
    stats = from_data(X + 1e5, y, weight)
    mean = np.average(X + 1e5, axis=0, weights=weight)
    variance = np.average((X + 1e5 - mean) ** 2, axis=0, weights=weight)
    assert relative_error(stats.feature_means, mean) < 1e-15
    assert relative_error(stats.variances, variance) < 1e-12
    assert (from_data(X[:0], y[:0]).variances == 0.0).all()


def test_the_repr_counts_and_never_shows_numbers_of_the_data():
    stats = from_data([[918273.0]], [645546.0])
    assert repr(stats) == "SufficientStatistics(1 row, 1 feature, 1 target)"
    assert repr(from_data(np.ones((2, 3)), np.ones((2, 2)))) == (
        "SufficientStatistics(2 rows, 3 features, 2 targets)"
    )


# ---- the table of edge cases --------------------------------------------------------


@given(data=data_sets())
def test_an_empty_client_is_the_neutral_element(data):
    X, y, weight = data
    stats = from_data(X, y, weight)
    for features in (X[:0], sparse.csr_array(X[:0]), sparse.csc_array(X[:0])):
        empty = from_data(features, y[:0])
        assert empty.count == 0
        assert empty.total_weight == 0.0
        for total in (stats + empty, empty + stats):
            assert total.to_array().tobytes() == stats.to_array().tobytes()
            assert total.count == stats.count


@given(Z=hnp.arrays(np.float64, (1, 4), elements=magnitudes()))
def test_the_statistics_of_one_row_are_the_row(Z):
    stats = from_data(Z[:, :3], Z[:, 3])
    assert (stats.means == Z[0]).all()
    assert not stats.comoment.any()
    assert stats.count == 1


@pytest.mark.parametrize("value", [0.0, 0.1, -3e7 / 7, 1e-9])
def test_a_constant_column_has_no_variance(value):
    X, y = linear_rows(1000, 2, np.random.default_rng(0))
    X = np.column_stack([X, np.full(1000, value)])
    for features in (X, sparse.csr_array(X)):
        stats = from_data(features, y)
        assert stats.variances[2] <= (1e-15 * value) ** 2
        assert solve(stats, alpha=1.0).coef_[2] == pytest.approx(0.0, abs=1e-15)


def test_fewer_rows_than_features_is_fine_where_the_sum_suffices():
    X, y = linear_rows(60, 10, np.random.default_rng(0))
    total = sum(client_statistics(X, y, np.array_split(np.arange(60), 30)))
    expected = solve(from_data(X, y), alpha=0.0)
    assert relative_error(solve(total, alpha=0.0).coef_, expected.coef_) < 1e-13


def test_one_feature_has_the_same_law_as_many():
    X, y = linear_rows(30, 1, np.random.default_rng(0))
    total = from_data(X[:4], y[:4]) + from_data(X[4:], y[4:])
    assert_same_statistics(total, from_data(X, y))
    assert total.gram.shape == (1, 1)


def test_several_targets_share_one_gram_matrix():
    X, Y = linear_rows(30, 3, np.random.default_rng(0), t=4)
    stats = from_data(X, Y)
    assert relative_error(stats.gram, from_data(X, Y[:, 0]).gram) < 1e-14
    assert stats.moment.shape == (3, 4)
    assert stats.target_gram.shape == (4, 4)


@pytest.mark.parametrize("outlier", [1.0, 1e6, 1e12])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_rows_of_zero_weight_count_and_do_nothing_else(outlier, form):
    X, y = linear_rows(20, 3, np.random.default_rng(0))
    with_ghost = form(np.vstack([X, np.full((1, 3), outlier)]))
    y_ghost = np.append(y, -outlier)
    stats = from_data(with_ghost, y_ghost, np.append(np.ones(20), 0.0))
    assert stats.count == 21
    expected = from_data(X, y)
    assert stats.total_weight == 20.0
    assert relative_error(stats.means, expected.means) < 1e-13
    assert relative_error(stats.comoment, expected.comoment) < 1e-13


def test_rows_of_tiny_weight_do_not_drown_the_others():
    X, y = linear_rows(20, 3, np.random.default_rng(0))
    far = np.vstack([X, np.full((1, 3), 1e8)])
    stats = from_data(far, np.append(y, 0.0), np.append(np.ones(20), 1e-30))
    assert relative_error(stats.comoment, from_data(X, y).comoment) < 1e-10


def test_weights_that_are_all_zero_are_the_neutral_element():
    X, y = linear_rows(5, 2, np.random.default_rng(0))
    stats = from_data(X, y)
    ghost = from_data(X, y, np.zeros(5))
    assert (ghost.count, ghost.total_weight) == (5, 0.0)
    assert (stats + ghost).to_array().tobytes() == stats.to_array().tobytes()
    assert (stats + ghost).count == 10


@given(factor=st.floats(1e-8, 1e8), seed=st.integers(0, 100))
def test_weights_are_linear(factor, seed):
    rng = np.random.default_rng(seed)
    X, y = linear_rows(12, 2, rng)
    weight = rng.exponential(size=12)
    plain, scaled = from_data(X, y, weight), from_data(X, y, factor * weight)
    assert relative_error(scaled.means, plain.means) < 1e-13
    assert relative_error(scaled.comoment, factor * plain.comoment) < 1e-13


# ---- what does not fit together -----------------------------------------------------


def named(names, n=4):
    pd = pytest.importorskip("pandas")
    X = np.random.default_rng(0).normal(size=(n, len(names)))
    return from_data(pd.DataFrame(X, columns=names), np.arange(float(n)))


@pytest.mark.parametrize("operation", ["__add__", "__sub__"])
@pytest.mark.parametrize(
    ("left", "right", "words"),
    [
        (np.ones((3, 2)), np.ones((3, 4)), "2 features against 4"),
        (np.ones((3, 1)), np.ones((3, 4)), "1 feature against 4"),
    ],
)
def test_another_number_of_features_is_refused(operation, left, right, words):
    a, b = from_data(left, np.ones(3)), from_data(right, np.ones(3))
    with pytest.raises(StatisticsError, match=words):
        getattr(a, operation)(b)


def test_another_number_of_targets_is_refused():
    a, b = from_data([[1.0]], [[1.0, 2.0]]), from_data([[1.0]], [[1.0, 2.0, 3.0]])
    with pytest.raises(StatisticsError, match="2 targets against 3"):
        a + b


def test_other_names_are_refused_and_told():
    with pytest.raises(StatisticsError, match="only here 'bmi', only there 'height'"):
        named(["age", "bmi"]) + named(["age", "height"])
    with pytest.raises(StatisticsError, match="same feature names in another order"):
        named(["age", "bmi"]) + named(["bmi", "age"])


def test_names_known_by_hash_only_are_compared_too():
    a = named(["age", "bmi"])
    b = SufficientStatistics.from_array(
        a.to_array(), 2, count=4, feature_hash=hash_names(["x", "y"])
    )
    with pytest.raises(StatisticsError, match="other feature names, or another order"):
        a + b


def test_statistics_without_names_merge_with_any_names():
    a = named(["age", "bmi"])
    b = from_data(np.ones((3, 2)), np.ones(3))
    for total in (a + b, b + a):
        assert total.feature_names == ("age", "bmi")
        assert total.feature_hash == a.feature_hash


def test_an_empty_named_client_keeps_the_names():
    a, empty = named(["age", "bmi"]), named(["age", "bmi"], n=0)
    assert empty.count == 0
    for total in (a + empty, empty + a):
        assert total.feature_names == ("age", "bmi")
        assert total.to_array().tobytes() == a.to_array().tobytes()
    with pytest.raises(StatisticsError, match="other feature names"):
        a + named(["age", "height"], n=0)


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        ([], "no batches"),
        ([[[[1.0]], [1.0]]], r"tuple \(X, y\).*got list"),
        ([([[1.0]],)], r"tuple \(X, y\) or \(X, y, sample_weight\)"),
        ([([[1.0]], [1.0]), ([[1.0, 2.0]], [1.0])], "1 feature against 2"),
    ],
)
def test_batches_that_cannot_be_merged_are_refused(batches, words):
    with pytest.raises(StatisticsError, match=words):
        SufficientStatistics.from_batches(iter(batches))


def test_batches_may_carry_weights():
    rng = np.random.default_rng(0)
    X, y = linear_rows(30, 2, rng)
    weight = rng.exponential(size=30)
    found = SufficientStatistics.from_batches(
        (X[i : i + 7], y[i : i + 7], weight[i : i + 7]) for i in range(0, 30, 7)
    )
    assert_same_statistics(found, from_data(X, y, weight))


# ---- memory -------------------------------------------------------------------------

MEGABYTE = 1 << 20


def extra_memory(function, *arguments):
    """Return the peak of what the call allocates, in bytes."""
    tracemalloc.start()
    try:
        function(*arguments)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def tall(form):
    X = np.random.default_rng(0).normal(size=(200_000, 20))
    if form == "csc" or form == "csr":
        X[X < 0.5] = 0.0
        return sparse.csc_array(X) if form == "csc" else sparse.csr_array(X)
    if form == "frame":
        return pytest.importorskip("pandas").DataFrame(X)
    return X.astype(form) if form != "fortran" else np.asfortranarray(X)


@pytest.mark.parametrize(
    "form", ["float64", "float32", "int16", "fortran", "csr", "csc", "frame"]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_many_rows_need_little_extra_memory(form, weighted):
    X, y = tall(form), np.zeros(200_000)
    weight = np.ones(200_000) if weighted else None
    assert extra_memory(from_data, X, y, weight) < 64 * MEGABYTE


def test_five_hundred_dense_columns_need_little_extra_memory():
    X = np.random.default_rng(0).normal(size=(20_000, 500))
    assert extra_memory(from_data, X, X[:, 0]) < 64 * MEGABYTE


def test_sparse_rows_of_uneven_length_need_little_extra_memory():
    full = sparse.csr_array(np.random.default_rng(0).normal(size=(8000, 300)))
    X = sparse.vstack([full, sparse.csr_array((792_000, 300))]).tocsr()
    assert extra_memory(from_data, X, np.zeros(800_000)) < 64 * MEGABYTE


def test_wide_sparse_rows_are_never_made_dense():
    X = sparse.random_array(
        (200_000, 500), density=0.002, rng=np.random.default_rng(0), format="csr"
    )
    assert X.shape[0] * X.shape[1] * 8 > 700 * MEGABYTE
    assert extra_memory(from_data, X, np.zeros(200_000)) < 64 * MEGABYTE


def test_batches_need_no_more_memory_than_one_of_them():
    def batches():
        rng = np.random.default_rng(0)
        for _ in range(20):
            yield rng.normal(size=(10_000, 20)), np.zeros(10_000)

    used = extra_memory(SufficientStatistics.from_batches, batches())
    assert used < 12 * MEGABYTE


# ---- what a check, a shift or a view must not miss ---------------------------------


@pytest.mark.parametrize("size", [1e149, 1e160, 1e300])
def test_co_moments_that_overflow_in_the_check_are_refused(size):
    # Cholesky's third pivot is NaN here, which LAPACK does not call a failure.
    packed = np.array([10.0, 0, 0, 0, 0, 0, size, 1, 0, 1])
    with pytest.raises(StatisticsError):
        SufficientStatistics.from_array(packed, 2, 1)


def test_a_first_block_of_little_weight_does_not_take_the_digits_of_the_others():
    rng = np.random.default_rng(0)
    n = 70_000
    X = np.concatenate([np.zeros((n, 1)), 1e8 + rng.normal(size=(n, 1))])
    weight = np.repeat([1e-30, 1.0], n)
    found = from_data(X, np.zeros(2 * n), weight).variances[0]
    assert found == pytest.approx(X[n:].var(), rel=1e-9)


def test_weights_that_decay_over_a_jump_keep_their_digits():
    rng = np.random.default_rng(0)
    n = 140_000
    X = rng.normal(size=(n, 1)) + 1e5 * (np.arange(n)[:, None] >= n // 2)
    weight = np.exp(-(n - np.arange(n)) / 2000.0)
    mean = np.average(X[:, 0], weights=weight)
    expected = np.average((X[:, 0] - mean) ** 2, weights=weight)
    assert from_data(X, X[:, 0], weight).variances[0] == pytest.approx(
        expected, rel=1e-10
    )


def test_a_constant_column_whose_square_overflows_has_no_variance():
    X = np.full((5, 1), 1e160)
    assert from_data(X, np.arange(5.0)).variances[0] == 0.0


def test_numbers_at_odd_places_in_memory_are_copied():
    stats = from_data([[1.0], [3.0], [4.0]], [2.0, 4.0, 9.0])
    packed = np.frombuffer(b"x" + stats.to_array().tobytes(), np.float64, offset=1)
    assert not packed.flags.aligned
    back = SufficientStatistics.from_array(packed, 1, 1)
    assert back.triangle.flags.aligned
    assert np.array_equal(back.to_array(), stats.to_array())
