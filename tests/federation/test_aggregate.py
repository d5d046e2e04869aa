"""Aggregate: the total over clients that fit together; the others named, and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from fits import aggregate
from generators import assert_same_statistics, linear_rows, relative_error
from hypothesis import given
from hypothesis import strategies as st

from fedridge_flwr import PlainStatistics, SufficientStatistics, solve
from fedridge_flwr.data.names import Columns, Names, hash_names


def part(seed=0, n=5, d=2, t=None, names=None, share=True):
    """Return the statistics of some rows, with names, their hash, or neither."""
    X, y = linear_rows(n, d, np.random.default_rng(seed), t)
    stats = SufficientStatistics.from_data(X, y)
    if names is None:
        return stats
    return SufficientStatistics.from_array(
        stats.to_array(),
        d,
        count=n,
        feature_names=names if share else None,
        feature_hash=hash_names(names),
    )


def hidden(stats):
    """Return the same statistics with the hashes of names instead of names."""
    schema = stats.schema
    columns = (names and names.hidden for names in schema.columns)
    features, targets = columns
    return replace(stats, schema=replace(schema, features=features, targets=targets))


def plain(stats):
    return PlainStatistics.from_statistics(stats)


def folded(parts, **options):
    fold = aggregate(**options)
    for k, one in enumerate(parts):
        fold.add(f"c{k}", one)
    return fold, fold.result()


def test_nobody_gives_no_total():
    fold, total = folded([])
    assert total is None
    assert fold.participants == []
    assert fold.participants == []


@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(-1e6, 1e6)), min_size=1),
    st.sampled_from([1, 3, 256]),
)
def test_small_contributions_that_are_merged_together_are_those_of_all_rows(
    sizes, at_once
):
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(n, 3)) + shift for n, shift in sizes]
    parts = [SufficientStatistics.from_data(Z[:, :2], Z[:, 2]) for Z in rows]
    before = [each.to_array() for each in parts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedridge_flwr.statistics.moments._WAITING", at_once)
        patch.setattr("fedridge_flwr.statistics.moments._FEW", 0)
        running = parts[0].start_total()
        for each in parts[1:]:
            running.add(each)
        total = running.total()
        packed = total.to_array()
        running.add(parts[0])
        running.total()
    pooled = np.concatenate(rows)
    expected = SufficientStatistics.from_data(pooled[:, :2], pooled[:, 2])
    assert total.count == len(pooled)
    scale = 1.0 + np.abs(expected.comoment).max()
    np.testing.assert_allclose(total.comoment, expected.comoment, atol=1e-12 * scale)
    np.testing.assert_allclose(total.means, expected.means, rtol=1e-13, atol=1e-13)
    # What is added later changes neither the total nor the parts.
    assert (packed == total.to_array()).all()
    after = [each.to_array() for each in parts]
    assert all((a == b).all() for a, b in zip(before, after, strict=True))


def test_columns_in_common_are_no_reason_to_accept_everything():
    """What is looked up for clients with the columns of the last one is no more."""
    from fedridge_flwr.federation.agreement.class_agreement import ClassAggregate
    from fedridge_flwr.federation.settings import FitSettings

    X, labels = np.random.default_rng(0).normal(size=(6, 2)), ["a", "b", "c"]
    Y = pd.DataFrame(np.eye(3)[[0, 1, 2, 0, 1, 2]] * 2 - 1, columns=labels)
    honest = SufficientStatistics.from_data(X, Y)
    liar = SufficientStatistics.from_data(X, Y * 1.5)
    total = ClassAggregate(settings=FitSettings(classes="auto"))
    for name, each in {"a": honest, "b": liar}.items():
        total.add(name, replace(each, schema=honest.schema))
    assert set(total.failures) == {"b"}, total.failures
    first = part()
    total = aggregate()
    total.add("a", first)
    total.add("b", replace(first, rounding=1e-7))
    total.add("c", replace(first, total_weight=0.0))
    assert set(total.failures) == {"b", "c"}


@given(sizes=st.lists(st.integers(1, 8), min_size=1, max_size=10))
def test_clients_with_the_same_columns_are_summed_in_order(sizes):
    parts = [part(seed, n) for seed, n in enumerate(sizes)]
    fold, total = folded(parts)
    assert_same_statistics(total, sum(parts))
    assert total.n_clients == len(fold.participants) == len(sizes)
    assert fold.participants == [f"c{k}" for k in range(len(sizes))]
    assert not fold.failures


@given(order=st.permutations(range(5)))
def test_the_schema_of_most_clients_wins_whoever_answers_first(order):
    parts = [part(0), part(1), part(2), part(3, d=3), part(4, t=2)]
    fold = aggregate()
    for k in order:
        fold.add(f"c{k}", parts[k])
    total = fold.result()
    assert_same_statistics(total, parts[0] + parts[1] + parts[2])
    assert set(fold.participants) == {"c0", "c1", "c2"}
    assert set(fold.failures) == {"c3", "c4"}
    assert fold.failures["c3"] == (
        "its columns are not those of 3 other clients: 3 features against 2"
    )
    assert fold.failures["c4"] == (
        "its columns are not those of 3 other clients: 2 targets against 1"
    )


def test_of_two_schemas_with_as_many_clients_the_one_with_more_rows_wins():
    for parts in ([part(n=5), part(d=3, n=50)], [part(d=3, n=50), part(n=5)]):
        fold, total = folded(parts)
        assert total.n_features == 3
        assert len(fold.participants) == 1
        (reason,) = fold.failures.values()
        assert reason == (
            "its columns are not those of 1 other client: 2 features against 3"
        )


@pytest.mark.parametrize("share", [True, False])
def test_of_two_sets_of_names_that_of_most_clients_wins(share):
    names, other = ["a", "b"], ["b", "c"]
    parts = [part(k, names=each) for k, each in enumerate([other, names, names])]
    if not share:
        parts = [hidden(each) for each in parts]
    fold, total = folded(parts)
    assert total.feature_names == (("a", "b") if share else None)
    assert_same_statistics(total, parts[1] + parts[2])
    assert set(fold.failures) == {"c0"}
    if share:
        assert fold.failures["c0"] == "has 'c' where 2 other clients have 'a'"
    else:
        assert "other feature names than 2 other clients" in fold.failures["c0"]


@given(
    orders=st.lists(st.permutations("abcd"), min_size=1, max_size=6),
    share=st.booleans(),
    targets=st.lists(st.permutations("uv"), min_size=6, max_size=6),
    keep=st.booleans(),
)
def test_columns_in_any_order_are_added_up_by_their_names(orders, share, targets, keep):
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 4)), columns=[*"abcd"])
    Y = pd.DataFrame({"u": X.a + X.b**2, "v": X.c * X.d})
    ends = [60 * k // len(orders) for k in range(len(orders) + 1)]
    parts = []
    for k, order in enumerate(orders):
        rows = slice(ends[k], ends[k + 1])
        own = SufficientStatistics.from_data(
            X[list(order)][rows], Y[list(targets[k])][rows]
        )
        parts.append(own if share else hidden(own))
    fold, total = folded(parts, cv="server" if keep else None)
    assert not fold.failures
    votes = Counter(map(tuple, orders))
    winners = [order for order in votes if votes[order] == max(votes.values())]
    order = list(winners[0]) if len(winners) == 1 else sorted("abcd")
    assert total.schema.features == Names.of(order)
    wanted = Y[list(total.target_names)] if share else None
    if wanted is not None:
        assert total.feature_names == tuple(order)
        pooled = SufficientStatistics.from_data(X[order], wanted)
        np.testing.assert_allclose(total.comoment, pooled.comoment, atol=1e-12)
        np.testing.assert_allclose(total.means, pooled.means, atol=1e-14)
    # What is kept of single clients is in the same order.
    for each in fold.parts.values():
        assert each.schema.mismatch(total.schema) is None
    if fold.parts:
        assert_same_statistics(sum(fold.parts.values()), total)


def test_bare_arrays_do_not_join_named_columns_unless_that_is_accepted():
    named, others = part(1, names=["a", "b"]), part(3, names=["x", "y"], n=2)
    parts = [part(0), named, part(2, names=["a", "b"]), others]
    fold, total = folded(parts)
    assert_same_statistics(total, parts[1] + parts[2])
    assert set(fold.failures) == {"c0", "c3"}
    assert 'unnamed="accept"' in fold.failures["c0"]
    assert fold.unverified == []
    fold, total = folded(parts, unnamed="accept")
    assert_same_statistics(total, parts[0] + parts[1] + parts[2])
    assert total.feature_names == ("a", "b")
    assert set(fold.failures) == {"c3"}
    assert fold.unverified == ["c0"]


def test_named_columns_do_not_join_more_bare_arrays():
    parts = [part(0), part(1), part(2, names=["a", "b"])]
    fold, total = folded(parts)
    assert_same_statistics(total, parts[0] + parts[1])
    assert "has feature names, and 2 other clients have none" in fold.failures["c2"]
    assert fold.rows_left_out == {"c2": 5}


def test_names_and_their_hash_are_the_same_schema():
    names = ["a", "b"]
    for parts in (
        [part(0, names=names), part(1, names=names, share=False)],
        [part(1, names=names, share=False), part(0, names=names)],
    ):
        fold, total = folded(parts)
        assert total.feature_names == ("a", "b")
        assert total.count == 10
        assert not fold.failures


def test_a_client_that_answers_twice_counts_once():
    fold = aggregate()
    first = part(0)
    fold.add("a", first)
    fold.add("a", part(1))
    fold.refuse("a", "late")
    total = fold.result()
    assert total.to_array().tobytes() == first.to_array().tobytes()
    assert fold.repeated == ["a"]
    assert not fold.failures


def test_a_refused_client_cannot_come_back():
    fold = aggregate()
    fold.refuse("a", "sent nonsense")
    fold.add("a", part())
    assert fold.result() is None
    assert fold.failures == {"a": "sent nonsense"}
    assert fold.repeated == ["a"]
    assert fold.answered == {"a"}


def test_plain_statistics_are_refused_with_the_reason_where_not_enough():
    fold, total = folded([part(0), plain(part(1))])
    assert total.count == 5
    assert set(fold.failures) == {"c1"}
    for word in ("intercept", "RidgeClient", "fit_intercept=False"):
        assert word in fold.failures["c1"]


@given(kinds=st.lists(st.booleans(), min_size=1, max_size=8))
def test_plain_and_full_clients_solve_as_one_where_that_is_enough(kinds):
    full = [part(seed) for seed in range(len(kinds))]
    sent = [plain(one) if bare else one for one, bare in zip(full, kinds, strict=True)]
    fold, total = folded(sent, fit_intercept=False)
    assert isinstance(total, PlainStatistics) == any(kinds)
    found = solve(total, 0.1, fit_intercept=False)
    expected = solve(sum(full), 0.1, fit_intercept=False)
    assert relative_error(found.coef_, expected.coef_) < 1e-12
    assert (total.count, total.n_clients) == (5 * len(kinds), len(kinds))
    assert not fold.failures


def test_plain_clients_with_other_sizes_are_refused():
    parts = [plain(part(0)), plain(part(1)), plain(part(2, d=4))]
    fold, total = folded(parts, fit_intercept=False)
    assert total.n_features == 2
    assert set(fold.failures) == {"c2"}


def test_a_server_that_knows_the_names_refuses_others_at_once():
    names = ("a", "b")
    fold = aggregate(feature_names=names)
    fold.add("right", part(0, names=["a", "b"]))
    fold.add("unnamed", part(1))
    fold.add("swapped", part(2, names=["b", "a"]))
    fold.add("wide", part(3, d=3))
    fold.add("other", part(4, names=["a", "c"]))
    assert set(fold.failures) == {"unnamed", "wide", "other"}
    assert "no feature names (a bare array)" in fold.failures["unnamed"]
    assert fold.failures["wide"] == "has 3 features where the server expects 2"
    assert fold.failures["other"] == "has other feature names than the server"
    total = fold.result()
    assert fold.participants == ["right", "swapped"]
    assert total.feature_names == ("a", "b")
    swapped = part(2).arranged(Columns())  # the same rows without names
    expected = part(0).comoment + swapped.comoment[np.ix_([1, 0, 2], [1, 0, 2])]
    within = total.comoment - _between(part(0), swapped, [1, 0, 2])
    np.testing.assert_allclose(within, expected, rtol=1e-12)


def _between(first, second, places):
    delta = second.means[places] - first.means
    weight = first.total_weight * second.total_weight
    return np.outer(delta, delta) * weight / (first.total_weight + second.total_weight)


def test_what_the_server_expects_wins_against_the_majority():
    fold = aggregate(feature_names=("a", "b"))
    for k in range(3):
        fold.add(f"other {k}", part(k, names=["x", "y"]))
    fold.add("right", part(9, names=["a", "b"]))
    assert fold.result().feature_names == ("a", "b")
    assert fold.participants == ["right"]


def test_a_client_without_rows_takes_no_part():
    fold, total = folded([part(0), part(1, n=0)])
    assert fold.participants == ["c0"]
    assert fold.failures == {"c1": "has no rows"}
    assert (total.count, total.n_clients) == (5, 1)


@pytest.mark.parametrize("t", [1, 2])
def test_the_shape_of_the_targets_is_kept(t):
    _, total = folded([part(0, t=t), part(1, t=t)])
    assert total.n_targets == t
