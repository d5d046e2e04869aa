"""Statistics in half the bytes: what comes back, what it costs, what is refused."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from fits import begin, finish
from generators import client_statistics, linear_rows, relative_error, split_rows
from hypothesis import given
from hypothesis import strategies as st

from fedridge_flwr import (
    FedRidgeError,
    IllConditionedWarning,
    PlainStatistics,
    RidgeModel,
    SingularSystemError,
    StatisticsError,
    SufficientStatistics,
    select_alpha,
    solve,
    solve_path,
)
from fedridge_flwr.data.schema import Schema
from fedridge_flwr.federation.settings import FitSettings
from fedridge_flwr.statistics.float32 import ROUNDING, from_compact, to_compact
from fedridge_flwr.statistics.moments import RunningTotal


def there_and_back(stats: SufficientStatistics) -> SufficientStatistics:
    return from_compact(
        *to_compact(stats),
        stats.schema,
        stats.count,
    )


def assert_rounded(found: SufficientStatistics, exact: SufficientStatistics) -> None:
    """Co-moments are off by 6e-8 of the deviations of their columns, no more."""
    deviations = np.sqrt(np.diagonal(exact.comoment))
    allowed = 1.001 * ROUNDING * np.outer(deviations, deviations)
    assert (np.abs(found.comoment - exact.comoment) <= allowed).all()


columns = st.builds(
    lambda seed, n, d, t, scale, shift: (
        np.random.default_rng(seed).normal(size=(n, d + t))
        * 10.0 ** np.random.default_rng(seed).uniform(-scale, scale, size=d + t)
        + shift,
        d,
    ),
    st.integers(0, 10_000),
    st.integers(1, 30),
    st.integers(1, 8),
    st.integers(1, 3),
    st.sampled_from([0, 3, 30]),
    st.sampled_from([0.0, 1e6]),
)


# ---- laws ---------------------------------------------------------------------------


@given(columns)
def test_weight_means_and_variances_come_back_bit_for_bit(rows):
    Z, d = rows
    stats = SufficientStatistics.from_data(Z[:, :d], Z[:, d:])
    back = there_and_back(stats)
    assert back.count == stats.count
    assert back.total_weight == stats.total_weight
    assert back.means.tobytes() == stats.means.tobytes()
    exact = np.diagonal(stats.comoment).tobytes()
    assert np.diagonal(back.comoment).tobytes() == exact
    assert back.rounding == ROUNDING


@given(
    st.integers(0, 10_000),
    st.integers(2, 30),
    st.integers(1, 8),
    st.sampled_from([0, 3, 30]),
)
def test_the_way_back_and_there_again_changes_nothing(seed, n, d, scale):
    rng = np.random.default_rng(seed)
    X, y = linear_rows(n, d, rng)
    X = X * 10.0 ** rng.uniform(-scale, scale, size=d)
    stats = SufficientStatistics.from_data(X, y)
    back = there_and_back(stats)
    assert_rounded(back, stats)
    for once, twice in zip(to_compact(stats), to_compact(back), strict=True):
        assert once.tobytes() == twice.tobytes()


@given(
    seed=st.integers(0, 10_000),
    d=st.integers(1, 8),
    K=st.integers(1, 8),
    kind=st.sampled_from(["even", "random-size", "sorted"]),
)
def test_merging_adds_nothing_to_the_rounding(seed, d, K, kind):
    rng = np.random.default_rng(seed)
    X, y = linear_rows(8 * d + 20, d, rng)
    exact = client_statistics(X, y, split_rows(len(X), K, rng, kind, X[:, 0]))
    total = sum(there_and_back(part) for part in exact)
    assert_rounded(total, sum(exact))
    model, expected = solve(total, 0.1), solve(sum(exact), 0.1)
    assert relative_error(model.coef_, expected.coef_) < 1e-6
    assert relative_error(model.intercept_, expected.intercept_) < 1e-6


def test_every_form_of_a_sum_remembers_the_rounding():
    exact = SufficientStatistics.from_data(*linear_rows(9, 2, np.random.default_rng(0)))
    rounded = there_and_back(exact)
    running = RunningTotal(exact)
    running.add(rounded)
    plain = PlainStatistics.from_statistics
    for total in (
        exact + rounded,
        rounded + exact,
        (exact + rounded) - rounded,
        running.total(),
        plain(rounded) + plain(exact),
        plain(exact) + plain(rounded),
    ):
        assert total.rounding == ROUNDING
    assert (exact + exact).rounding == 0.0


@pytest.mark.parametrize(
    "X",
    [
        np.ones((5, 3)),
        np.full((5, 3), 1e6) + np.eye(5, 3) * 1e-9,
        np.tile(np.arange(5.0)[:, None], 3),
        np.tile([0.1, 1e9 / 3, -1e-20], (5, 1)),
        np.random.default_rng(0).normal(size=(5, 3)) * 1e-160,
    ],
    ids=["constant", "rounding only", "copies", "constant, not exact", "tiny"],
)
def test_columns_without_spread_get_through(X):
    stats = SufficientStatistics.from_data(X, np.arange(5.0))
    back = there_and_back(stats)
    assert (np.diagonal(back.comoment) == np.diagonal(stats.comoment)).all()
    assert np.abs(to_compact(stats)[1]).max() <= 1.0


def test_no_rows_are_still_the_neutral_element():
    empty = SufficientStatistics.from_data(np.empty((0, 2)), np.empty(0))
    some = SufficientStatistics.from_data(*linear_rows(9, 2, np.random.default_rng(0)))
    total = there_and_back(empty) + some
    np.testing.assert_array_equal(total.comoment, some.comoment)


@pytest.mark.parametrize("n", [3, 50])
@pytest.mark.parametrize("d", [2, 300])
@pytest.mark.parametrize("common", [0.0, 1.0, 30.0])
def test_rounding_makes_no_honest_client_implausible(n, d, common):
    # Fewer rows than columns: the smallest eigenvalues are zero, or below by rounding.
    rng = np.random.default_rng(d)
    X = rng.normal(size=(n, d)) + common * rng.normal(size=(n, 1))
    stats = SufficientStatistics.from_data(X, X.sum(axis=1))
    assert_rounded(there_and_back(stats), stats)


# ---- what it costs ------------------------------------------------------------------


def size_of(coef, stats):
    """Norm of the effects of one standard deviation of every feature."""
    return float(np.linalg.norm(coef * np.sqrt(stats.variances)))


@given(
    seed=st.integers(0, 10_000),
    d=st.integers(1, 20),
    K=st.integers(1, 6),
    condition=st.floats(0.0, 6.0),
    common=st.sampled_from([0.0, 10.0]),
    shift=st.sampled_from([0.0, 1e6]),
    noise=st.sampled_from([1e-3, 1.0, 100.0]),
    alpha=st.sampled_from([0.0, 1e-3, 1.0, 100.0]),
)
def test_the_coefficients_move_by_no_more_than_the_report_says(
    seed, d, K, condition, common, shift, noise, alpha
):
    # Over 3,500 draws the true error was at most 0.37 of the estimate, in the median
    # 0.02 of it.
    rng = np.random.default_rng(seed)
    X, y = linear_rows(4 * d + 10, d, rng)
    U, _, V = np.linalg.svd(X, full_matrices=False)
    X = U * np.geomspace(1.0, 10 ** (-condition / 2), d) @ V
    X = X + common * rng.normal(size=(len(X), 1)) + shift
    y = (X - shift) @ rng.normal(size=d) + noise * rng.normal(size=len(X)) * X.std()
    exact = client_statistics(X, y, split_rows(len(X), K, rng))
    total = sum(exact)
    fit = begin(alpha=alpha, wire_dtype="float32")
    for k, part in enumerate(exact):
        fit.round.into.add(str(k), there_and_back(part))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IllConditionedWarning)
        try:
            expected, model = solve(total, alpha), finish(fit)
        except SingularSystemError:
            return
    spread = float(np.sqrt(total.centred_target_gram[0, 0] / total.total_weight))
    moved = size_of(model.coef_ - expected.coef_, total)
    whole = max(size_of(expected.coef_, total), spread)
    assert moved <= fit.report.wire_error * whole


def ill_conditioned(sine: float) -> SufficientStatistics:
    """Rows whose second column is the first, but for a part of size `sine`."""
    rng = np.random.default_rng(0)
    a, b, noise = rng.normal(size=(3, 400))
    X = np.column_stack([a, a + sine * b])
    return SufficientStatistics.from_data(X, a + b + 0.1 * noise)


def test_few_digits_left_are_warned_about():
    exact = ill_conditioned(3e-3)
    solve(exact, 0.0)
    for solver in (solve, lambda stats, alpha: solve_path(stats, [alpha, 1.0, 2.0])):
        with pytest.warns(IllConditionedWarning, match="sent as float64"):
            solver(there_and_back(exact), 1e-9)


@pytest.mark.parametrize("alpha", [0.0, 1e-9])
def test_what_float32_cannot_tell_from_singular_is_refused(alpha):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 2))
    X = np.column_stack([X, X.sum(axis=1)])
    rounded = there_and_back(SufficientStatistics.from_data(X, X[:, 0]))
    with pytest.raises(SingularSystemError, match=r"dependent.*sent as float64"):
        solve(rounded, alpha)
    assert solve(rounded, 1.0).condition_ < 1e3


def test_the_report_tells_only_where_float32_was_merged():
    parts = client_statistics(
        *linear_rows(60, 3, np.random.default_rng(0)), np.split(np.arange(60), 3)
    )
    for sent, told in ((parts, False), ([there_and_back(parts[0]), *parts[1:]], True)):
        fit = begin(wire_dtype="float32")
        for k, part in enumerate(sent):
            fit.round.into.add(str(k), part)
        model = finish(fit)
        assert ("float32" in str(fit.report)) is told
        found = fit.report.to_dict()["wire_error"]
        assert found == (ROUNDING * model.condition_ if told else None)


def test_a_rounded_contribution_that_is_left_out_does_not_count():
    rng = np.random.default_rng(0)
    fit = begin(wire_dtype="float32")
    for k in range(2):
        part = SufficientStatistics.from_data(*linear_rows(9, 2, rng))
        fit.round.into.add(str(k), part)
    wide = SufficientStatistics.from_data(*linear_rows(9, 5, rng))
    fit.round.into.add("wide", there_and_back(wide))
    fit.finish_round()
    assert fit.report.wire_error is None


@pytest.mark.parametrize("dtype", ["float16", "FLOAT32", None, np.dtype("float32")])
def test_another_type_on_the_wire_is_refused_at_once(dtype):
    with pytest.raises(FedRidgeError, match='"float64" or "float32", got'):
        FitSettings(wire_dtype=dtype)


# ---- choice of alpha ----------------------------------------------------------------


def same_choice(found: RidgeModel, expected: RidgeModel) -> bool:
    return found.alpha_ == pytest.approx(expected.alpha_, rel=1e-5) and (
        relative_error(found.coef_, expected.coef_) < 1e-5
    )


@pytest.mark.parametrize("method", ["loco", "gcv"])
@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("n", [300, 3000])
def test_the_choice_of_alpha_is_the_same(method, standardize, n):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 20))
    X = np.hstack([X, X[:, :5] + X[:, 5:10]])  # singular without a penalty
    y = X[:, 0] + rng.normal(size=n)
    exact = client_statistics(X, y, np.array_split(np.arange(n), n // 10))
    options = {"method": method, "standardize": standardize}
    expected = select_alpha(exact, **options)
    found = select_alpha([there_and_back(part) for part in exact], **options)
    assert same_choice(found.model, expected.model)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-5)


def test_fewer_rows_than_features_can_be_chosen_for():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 100))
    exact = client_statistics(
        X, X[:, 0] + rng.normal(size=60), np.split(np.arange(60), 10)
    )
    found = select_alpha([there_and_back(part) for part in exact])
    assert same_choice(found.model, select_alpha(exact).model)


# ---- hostile input ------------------------------------------------------------------

HEAD, CORRELATIONS = to_compact(
    SufficientStatistics.from_data(*linear_rows(20, 3, np.random.default_rng(3)))
)


def changed(array: np.ndarray, index: int, value: float) -> np.ndarray:
    array = array.copy()
    array[index] = value
    return array


@pytest.mark.parametrize(
    ("head", "correlations", "reason"),
    [
        (HEAD[:-1], CORRELATIONS, "variances have 9 numbers, got an array of shape"),
        (HEAD, CORRELATIONS[:-1], "correlations have 6 numbers, got an array"),
        (HEAD.reshape(1, -1), CORRELATIONS, "have 9 numbers"),
        (HEAD, CORRELATIONS.reshape(2, 3), "have 6 numbers"),
        (HEAD.astype(np.float32), CORRELATIONS, "float64, got float32"),
        (HEAD, CORRELATIONS.astype(np.float64), "are float32, got float64"),
        (HEAD.astype(">f8"), CORRELATIONS, "float64, got >f8"),
        (HEAD, CORRELATIONS.astype(np.complex64), "float32, got complex64"),
        (changed(HEAD, 2, np.nan), CORRELATIONS, "1 of 9 weight.* NaN or infinite"),
        (changed(HEAD, 8, np.inf), CORRELATIONS, "NaN or infinite"),
        (HEAD, changed(CORRELATIONS, 0, np.nan), "1 of 6 corr.* NaN or infinite"),
        (HEAD, changed(CORRELATIONS, 0, -np.inf), "NaN or infinite"),
        (HEAD, changed(CORRELATIONS, 0, 1.01), "correlations above 1: 1 of 6"),
        (HEAD, changed(CORRELATIONS, 0, -3e38), "correlations above 1: 1 of 6"),
        (HEAD, np.float32([1, 1, 0, -1, 0, 0]), "not positive semi-definite"),
        (changed(HEAD, 5, -1e-9), CORRELATIONS, "negative variances: 1 of 4"),
        (changed(HEAD, 5, 1e300), CORRELATIONS, "overflow"),
        (changed(HEAD, 1, 1e200), CORRELATIONS, "overflow"),
        (changed(HEAD, 0, -3.0), CORRELATIONS, "total weight is negative"),
        (changed(HEAD, 0, 0.0), CORRELATIONS, "weight is zero, but"),
        (changed(HEAD, 0, 1e200), CORRELATIONS, "overflow"),
    ],
)
def test_what_no_rows_have_is_refused(head, correlations, reason):
    with (
        warnings.catch_warnings(action="error"),
        pytest.raises(StatisticsError, match=reason),
    ):
        from_compact(head, correlations, Schema(3), 20)


def test_the_wider_tolerance_is_not_wide():
    # Three columns whose correlations need an eigenvalue of -1e-5.
    correlations = np.float32([0.5, 0.5, -0.5 - 1e-5])
    with pytest.raises(StatisticsError, match="semi-definite"):
        from_compact(np.array([9.0, 0, 0, 0, 1, 1, 1]), correlations, Schema(2))


@pytest.mark.parametrize(("d", "t"), [(0, 1), (1, 0), (-1, 3), (3, 2)])
def test_sizes_that_are_not_those_of_the_arrays_are_refused(d, t):
    with pytest.raises(StatisticsError):
        from_compact(HEAD, CORRELATIONS, Schema(d, t), 20)
