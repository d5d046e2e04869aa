"""The factor of few rows: what comes back, what it costs, what is refused."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest
from fakes import InProcessGrid, node_context
from flwr.app import Message
from flwr.clientapp import ClientApp
from flwr.server import ServerAppComponents, ServerConfig
from flwr.serverapp import ServerApp
from generators import assert_same_statistics, linear_rows, relative_error
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import Ridge

from fedridge_flwr import (
    DataError,
    FedRidge,
    LegacyFedRidge,
    ProtocolError,
    RidgeClient,
    StatisticsError,
    SufficientStatistics,
    ridge_client_app,
    select_alpha,
    solve,
)
from fedridge_flwr.data.rows import Rows, check_rows
from fedridge_flwr.data.schema import Schema
from fedridge_flwr.flower.exchange import array_lengths, message_bytes
from fedridge_flwr.linalg.packed import packed_length
from fedridge_flwr.statistics.encoding import KINDS, decode, encode, encode_rows
from fedridge_flwr.statistics.trapezoid import (
    FACTOR_ROUNDING,
    WIDEST,
    factor_bytes,
    fewer_numbers,
    from_trapezoid,
    to_trapezoid,
)

DTYPES = ["float64", "float32"]


def there_and_back(rows: Rows, dtype: str = "float64") -> SufficientStatistics:
    return from_trapezoid(
        *to_trapezoid(rows, dtype),
        rows.schema,
        rows.n_rows,
        dtype=dtype,
    )


def drawn_rows(seed, n, d, t, scale, shift, weighted) -> Rows:
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, d + t)) * 10.0 ** rng.uniform(-scale, scale, size=d + t)
    weight = rng.exponential(size=n) * (rng.random(n) < 0.8) if weighted else None
    return check_rows(Z[:, :d] + shift, Z[:, d:] + shift, weight)


some_rows = st.builds(
    drawn_rows,
    st.integers(0, 10_000),
    st.integers(0, 14),
    st.integers(1, 9),
    st.integers(1, 3),
    st.sampled_from([0, 3, 30]),
    st.sampled_from([0.0, 1e6]),
    st.booleans(),
)


# ---- laws ---------------------------------------------------------------------------


@given(some_rows)
def test_what_comes_back_are_the_statistics_of_the_rows(rows):
    assert_same_statistics(there_and_back(rows), SufficientStatistics.from_rows(rows))


@given(some_rows)
def test_correlations_are_within_the_bound_of_float32(rows):
    exact, rounded = there_and_back(rows), there_and_back(rows, "float32")
    deviations = np.sqrt(np.diagonal(exact.comoment))
    allowed = (FACTOR_ROUNDING + 1e-14) * np.outer(deviations, deviations)
    assert (np.abs(rounded.comoment - exact.comoment) <= allowed).all()
    assert rounded.rounding == FACTOR_ROUNDING
    assert exact.rounding == 0.0


@given(some_rows)
def test_weight_means_and_variances_come_back_bit_for_bit(rows):
    head = to_trapezoid(rows, "float32").head
    back = there_and_back(rows, "float32")
    found = [back.total_weight, *back.means, *np.diagonal(back.comoment)]
    assert np.array(found).tobytes() == head.tobytes()


@given(
    seed=st.integers(0, 10_000),
    d=st.integers(2, 12),
    t=st.sampled_from([None, 3]),
    weighted=st.booleans(),
    shift=st.sampled_from([0.0, 1e6]),
    dtype=st.sampled_from(DTYPES),
)
def test_any_split_into_small_clients_is_pooled_ridge(
    seed, d, t, weighted, shift, dtype
):
    rng = np.random.default_rng(seed)
    X, y = linear_rows(12 * d, d, rng, t)
    X = X + shift
    weight = rng.exponential(size=len(X)) + 0.1 if weighted else None
    cuts = np.cumsum(rng.integers(1, d + 1, size=12 * d))
    parts = []
    for rows in np.split(np.arange(len(X)), cuts[cuts < len(X)]):
        own = None if weight is None else weight[rows]
        parts.append(there_and_back(check_rows(X[rows], y[rows], own), dtype))
    model = solve(sum(parts), 1.0)
    expected = Ridge(1.0).fit(X, y, weight)
    near = 1e-12 if shift == 0 else 1e-9
    near = near if dtype == "float64" else 1e-5
    assert relative_error(model.coef_, expected.coef_) < near


@pytest.mark.parametrize("shift", [1e3, 1e6, 1e8])
def test_shifted_features_keep_the_digits_of_the_centred_form(shift):
    rng = np.random.default_rng(0)
    X, y = linear_rows(2000, 30, rng)
    truth = solve(SufficientStatistics.from_data(X, y), 1.0).coef_
    groups = np.split(np.arange(2000), 100)
    checked = [check_rows(X[rows] + shift, y[rows]) for rows in groups]
    centred = solve(sum(map(SufficientStatistics.from_rows, checked)), 1.0).coef_
    factors = solve(sum(map(there_and_back, checked)), 1.0).coef_
    lost = relative_error(centred, truth)
    assert relative_error(factors, truth) < 2 * lost + 1e-14


@given(
    seed=st.integers(0, 10_000),
    n=st.integers(2, 14),
    d=st.integers(1, 9),
    scale=st.sampled_from([0, 30]),
)
def test_the_factor_is_a_function_of_the_co_moments(seed, n, d, scale):
    # Otherwise it would tell more of the rows than they do. Which of them is first, and
    # which side of the mean they are on, are what co-moments do not know.
    rows = drawn_rows(seed, n, d, 1, scale, 0.0, weighted=False)
    other = check_rows(-rows.X[::-1], -rows.Y[::-1])
    a, b = to_trapezoid(rows, "float32"), to_trapezoid(other, "float32")
    assert a.factor.shape == b.factor.shape
    # All columns are of length 1: rounding says which of them is first.
    if (a.order == b.order).all():
        np.testing.assert_allclose(a.factor, b.factor, atol=1e-4)


def test_a_constant_first_column_leaves_no_rows_in_the_factor():
    # Without pivots, the first row of the factor would be a difference of two rows.
    # All columns have length 1: these rows do, whichever of them rounding puts first.
    X, y = linear_rows(6, 9, np.random.default_rng(5))
    X[:, 0] = 1.0
    _, order, factor = to_trapezoid(check_rows(X, y))
    R = np.zeros((5, 10))
    R[np.triu_indices(5, m=10)] = factor
    Z = np.column_stack([X, y])[:, order]
    pairs = [Z[i] - Z[j] for i in range(6) for j in range(i)]
    rows = [*pairs, *(Z - Z.mean(axis=0))]
    cosines = [
        abs(r @ row) / np.linalg.norm(r) / np.linalg.norm(row)
        for r in R
        for row in rows
    ]
    assert max(cosines) < 0.99


# ---- edge cases ---------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [0, 1, 2, 4, 5, 6, 7, 30])
@pytest.mark.parametrize("weighted", [False, True])
def test_every_number_of_rows(n, weighted, dtype):
    rng = np.random.default_rng(n)
    X, y = rng.normal(size=(n, 4)), rng.normal(size=(n, 2))
    weight = rng.exponential(size=n) if weighted else None
    rows = check_rows(X, y, weight)
    exact = SufficientStatistics.from_rows(rows)
    found = there_and_back(rows, dtype)
    if dtype == "float64":
        assert_same_statistics(found, exact)
    length = to_trapezoid(rows, dtype).factor.size
    rank = max(0, min(n - 1, 6))
    assert length == rank * 6 - rank * (rank - 1) // 2
    assert (found.count, found.total_weight) == (n, exact.total_weight)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "X",
    [
        np.ones((5, 8)),
        np.full((5, 8), 1e6) + np.eye(5, 8) * 1e-9,
        np.tile(np.arange(5.0)[:, None], 8),
        np.tile(10.0 ** np.arange(-20.0, 20.0, 5) / 3, (5, 1)),
        np.random.default_rng(0).normal(size=(5, 8)) * 1e-160,
        np.column_stack([np.ones(5), np.random.default_rng(0).normal(size=(5, 7))]),
        np.eye(5, 8, dtype=np.int8),
    ],
    ids=["constant", "rounding", "copies", "inexact", "tiny", "one constant", "int"],
)
def test_columns_without_spread_get_through(X, dtype):
    rows = check_rows(X, np.arange(5.0))
    exact = SufficientStatistics.from_rows(rows)
    found = there_and_back(rows, dtype)
    variances = np.diagonal(exact.comoment)
    np.testing.assert_allclose(
        np.diagonal(found.comoment), variances, rtol=1e-9, atol=1e-18
    )
    size = np.sqrt(np.outer(variances, variances))
    off = np.abs(found.comoment - exact.comoment)
    assert (off <= FACTOR_ROUNDING * size + 1e-17).all()
    assert solve(found, 1.0).n_features_in_ == 8


def test_dependent_rows_cost_nothing():
    X, y = linear_rows(4, 20, np.random.default_rng(0))
    rows = check_rows(np.repeat(X, 4, axis=0), np.repeat(y, 4))
    assert to_trapezoid(rows).factor.size == 3 * 21 - 3
    assert_same_statistics(there_and_back(rows), SufficientStatistics.from_rows(rows))


def test_rows_without_weight_count_only_as_rows():
    X, y = linear_rows(40, 20, np.random.default_rng(0))
    weight = np.r_[np.ones(5), np.zeros(35)]
    encoded = encode_rows(check_rows(X, y, weight))
    assert (encoded.kind, encoded.count) == ("factor", 40)
    found = decode("factor", [*encoded.arrays.values()], Schema(20), 40)
    assert_same_statistics(found, SufficientStatistics.from_data(X, y, weight))
    nothing = there_and_back(check_rows(X, y, np.zeros(40)))
    assert (nothing.count, nothing.total_weight) == (40, 0.0)
    other = SufficientStatistics.from_data(X, y)
    np.testing.assert_array_equal((nothing + other).comoment, other.comoment)


def test_sparse_rows_and_frames():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(7, 30)) * (rng.random((7, 30)) < 0.2)
    y = rng.normal(size=7)
    exact = SufficientStatistics.from_data(X, y)
    names = [f"x{j}" for j in range(30)]
    for form in (
        sparse.csr_matrix(X),
        sparse.csc_array(X),
        pandas.DataFrame(X, columns=names),
        np.asfortranarray(X),
    ):
        rows = check_rows(form, y)
        assert encode_rows(rows).kind == "factor"
        assert_same_statistics(there_and_back(rows), exact)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_bad_values_are_named_as_ever(bad):
    X, y = linear_rows(5, 20, np.random.default_rng(0))
    X[2, 7] = bad
    with pytest.raises(DataError, match="1 NaN or infinite value in column 7"):
        to_trapezoid(check_rows(X, y))
    X[2, 7] = 1e200
    with pytest.raises(DataError, match="overflow"):
        to_trapezoid(check_rows(X, y))


# ---- which is smaller ---------------------------------------------------------------


@given(
    n=st.integers(0, 40),
    d=st.integers(1, 30),
    t=st.integers(1, 3),
    dtype=st.sampled_from(DTYPES),
)
def test_the_smaller_form_is_sent(n, d, t, dtype):
    rng = np.random.default_rng(n)
    rows = check_rows(rng.normal(size=(n, d)), rng.normal(size=(n, t)))
    factor = sum(array.nbytes for array in to_trapezoid(rows, dtype))
    assert factor == factor_bytes(n, d, t, dtype)
    whole = encode(SufficientStatistics.from_rows(rows), dtype)
    size = sum(array.nbytes for array in whole.arrays.values())
    if dtype == "float64":
        assert size == 8 * packed_length(d, t)
    assert fewer_numbers(n, d, t, dtype) == (factor < size)
    sent = encode_rows(rows, dtype)
    assert sum(array.nbytes for array in sent.arrays.values()) == min(factor, size)
    assert tuple(sent.arrays) == KINDS[sent.kind].arrays


def test_no_factor_is_wider_than_it_may_be():
    assert fewer_numbers(10, WIDEST - 1)
    assert not fewer_numbers(10, WIDEST)


# ---- hostile input ------------------------------------------------------------------

ROWS = check_rows(*linear_rows(3, 4, np.random.default_rng(3)))
HEAD, ORDER, FACTOR = to_trapezoid(ROWS)
HEAD32, _, FACTOR32 = to_trapezoid(ROWS, "float32")


def changed(array: np.ndarray, index: int, value: float) -> np.ndarray:
    array = array.copy()
    array[index] = value
    return array


@pytest.mark.parametrize(
    ("head", "order", "factor", "reason"),
    [
        (HEAD[:-1], ORDER, FACTOR, "weight and means have 6 numbers, got an array"),
        (HEAD.reshape(1, -1), ORDER, FACTOR, "have 6 numbers"),
        (HEAD.astype(np.float32), ORDER, FACTOR, "are float64, got float32"),
        (HEAD, ORDER[:-1], FACTOR, "columns of the factor have 5 numbers"),
        (HEAD, ORDER.astype(np.int64), FACTOR, "are int32, got int64"),
        (HEAD, ORDER.astype(np.float64), FACTOR, "are int32, got float64"),
        (HEAD, changed(ORDER, 0, ORDER[1]), FACTOR, "does not name each column once"),
        (HEAD, changed(ORDER, 0, -1), FACTOR, "does not name each column once"),
        (HEAD, changed(ORDER, 0, 2**31 - 1), FACTOR, "does not name each column"),
        (HEAD, ORDER, FACTOR[:-1], "8 numbers are no trapezoid of 5 columns"),
        (HEAD, ORDER, np.zeros(16), "16 numbers are no trapezoid"),
        (HEAD, ORDER, np.zeros(10**6), "1000000 numbers are no trapezoid"),
        (HEAD, ORDER, FACTOR.reshape(3, 3), "have 9 numbers, got an array of shape"),
        (HEAD, ORDER, FACTOR.astype(np.float32), "are float64, got float32"),
        (HEAD, ORDER, FACTOR.astype(np.complex128), "float64, got complex128"),
        (HEAD, ORDER, np.ones(14), "a factor of 4 rows where there are 3"),
        (HEAD, ORDER, changed(FACTOR, 3, np.nan), "1 of 9 numbers of the fac.* NaN"),
        (HEAD, ORDER, changed(FACTOR, 0, np.inf), "NaN or infinite"),
        (HEAD, ORDER, changed(FACTOR, 0, 1e300), "overflow"),
        (HEAD, ORDER, changed(FACTOR, 3, -1e80), "overflow"),
        (changed(HEAD, 1, np.nan), ORDER, FACTOR, "1 of 6 weight.* NaN or infinite"),
        (changed(HEAD, 1, 1e200), ORDER, FACTOR, "overflow"),
        (changed(HEAD, 0, -3.0), ORDER, FACTOR, "total weight is negative"),
        (changed(HEAD, 0, 0.0), ORDER, FACTOR, "weight is zero, but"),
        (changed(HEAD, 0, 1e200), ORDER, FACTOR, "overflow"),
    ],
)
def test_what_no_rows_have_is_refused(head, order, factor, reason):
    with (
        warnings.catch_warnings(action="error"),
        pytest.raises(StatisticsError, match=reason),
    ):
        from_trapezoid(head, order, factor, Schema(4), 3)


@pytest.mark.parametrize(
    ("head", "factor", "reason"),
    [
        (HEAD, FACTOR32, "weight, means and variances have 11 numbers"),
        (HEAD32, FACTOR, "are float32, got float64"),
        (changed(HEAD32, 6, -1e-9), FACTOR32, "negative variances: 1 of 5"),
        (changed(HEAD32, 6, 0.0), FACTOR32, "1 of 5 columns of the factor have anoth"),
        (changed(HEAD32, 6, 1e300), FACTOR32, "overflow"),
        (HEAD32, 2 * FACTOR32, "5 of 5 columns of the factor have another length"),
        (HEAD32, changed(FACTOR32, 0, 3e38), "have another length"),
        (HEAD32, changed(FACTOR32, 1, np.nan), "NaN or infinite"),
        (HEAD32, np.zeros(0, np.float32), "5 of 5 columns of the factor"),
    ],
)
def test_what_no_rows_have_is_refused_in_float32(head, factor, reason):
    with (
        warnings.catch_warnings(action="error"),
        pytest.raises(StatisticsError, match=reason),
    ):
        from_trapezoid(head, ORDER, factor, Schema(4), 3, dtype="float32")


@pytest.mark.parametrize(("d", "t"), [(0, 1), (1, 0), (-1, 3), (3, 1), (4, 2)])
def test_sizes_that_are_not_those_of_the_arrays_are_refused(d, t):
    with pytest.raises(StatisticsError):
        from_trapezoid(HEAD, ORDER, FACTOR, Schema(d, t), 3)


def test_a_few_numbers_do_not_become_gigabytes():
    head, order = np.zeros(2 + WIDEST), np.arange(WIDEST + 1, dtype=np.int32)
    with pytest.raises(StatisticsError, match="Send full statistics"):
        from_trapezoid(head, order, np.zeros(0), Schema(WIDEST), 0)


def test_without_a_count_the_weight_is_one():
    assert from_trapezoid(HEAD, ORDER, FACTOR, Schema(4)).count == 3
    with pytest.raises(StatisticsError, match=r"2\.5 is not a whole number"):
        from_trapezoid(changed(HEAD, 0, 2.5), ORDER, FACTOR, Schema(4))
    named = from_trapezoid(HEAD, ORDER, FACTOR, Schema.of(4, feature_names="abcd"))
    assert named.feature_names == ("a", "b", "c", "d")


@pytest.mark.parametrize("kind", KINDS)
def test_another_number_of_arrays_is_refused(kind):
    with pytest.raises(ProtocolError, match=r"expected .* of .*, got 4"):
        decode(kind, [HEAD] * 4, Schema(4), 3)


# ---- in a round ---------------------------------------------------------------------

K, D = 6, 200


def sizes(k: int) -> int:
    """Rows of a client: two in three have fewer rows than features."""
    return 320 if k % 3 == 2 else 50


def rows_of(k: int, n: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(k)
    X = rng.normal(loc=k, size=(n or sizes(k), D))
    return X, X[:, 0] - X[:, 1] + rng.normal(size=len(X))


def partition(context: Any) -> int:
    return int(context.node_config["partition-id"])


def mixed(context: Any) -> Any:
    return rows_of(partition(context))


def client_app(load: Any, api: str) -> ClientApp:
    if api == "message":
        return ridge_client_app(load)
    return ClientApp(lambda context: RidgeClient(*load(context)).to_client())


class Answer(NamedTuple):
    kind: object
    size: int
    arrays: int


def watched(grid: InProcessGrid) -> list[Answer]:
    """Note every answer when it is given: reading it may empty its arrays."""
    seen: list[Answer] = []

    def watch(handler: Any) -> Any:
        def answer(message: Message) -> Message:
            reply = handler(message)
            records = reply.content.config_records
            fields = records.get("config", records.get("fitres.metrics", {}))
            lengths = sum(array_lengths(reply))
            seen.append(Answer(fields.get("kind"), message_bytes(reply), lengths))
            return reply

        return answer

    grid.handlers = {node: watch(h) for node, h in grid.handlers.items()}
    return seen


def run(strategy: Any, grid: InProcessGrid) -> Any:
    if isinstance(strategy, FedRidge):
        strategy.start(grid)
    else:
        components = ServerAppComponents(
            strategy=strategy, config=ServerConfig(num_rounds=1)
        )
        ServerApp(server_fn=lambda context: components)(grid, node_context(0, K))
    return strategy


combinations = pytest.mark.parametrize(
    ("api", "strategy"),
    [(a, s) for a in ("message", "numpy") for s in (FedRidge, LegacyFedRidge)],
)


@combinations
@pytest.mark.parametrize("dtype", DTYPES)
def test_small_and_large_clients_in_one_round(api, strategy, dtype):
    grid = InProcessGrid.of_app(client_app(mixed, api), K)
    seen = watched(grid)
    fit = run(strategy(min_available_nodes=K, wire_dtype=dtype), grid)
    suffix = "" if dtype == "float64" else "-float32"
    assert sorted(answer.kind for answer in seen) == sorted(
        ("centred" if k % 3 == 2 else "factor") + suffix for k in range(K)
    )
    X, y = (np.concatenate(part) for part in zip(*map(rows_of, range(K)), strict=True))
    expected = Ridge(1.0).fit(X, y)
    error = relative_error(fit.model_.coef_, expected.coef_)
    assert error < (1e-12 if dtype == "float64" else 1e-4)
    report = fit.report_
    assert report.failures == {}
    assert report.n_rows == len(X)
    if dtype == "float64":
        assert report.wire_error is None
    else:
        assert report.wire_error == FACTOR_ROUNDING * fit.model_.condition_


@combinations
def test_bytes_on_the_wire_shrink(api, strategy):
    answers = {}
    for n in (50, 320):
        app = client_app(lambda context: rows_of(partition(context), n), api)  # noqa: B023
        grid = InProcessGrid.of_app(app, K)
        answers[n] = watched(grid)
        run(strategy(min_available_nodes=K), grid)
    for small, large in zip(answers[50], answers[320], strict=True):
        # 8,673 numbers of a factor against 20,301 of a triangle.
        assert small.size < 0.45 * large.size
        assert small.arrays <= factor_bytes(50, D) + 3 * 128


@combinations
@pytest.mark.parametrize("cv", ["server", "clients", "gcv"])
def test_alpha_is_chosen_as_from_full_statistics(api, strategy, cv):
    alphas = [0.1, 1.0, 10.0, 100.0, 1000.0]
    grid = InProcessGrid.of_app(client_app(mixed, api), K)
    fit = run(strategy(min_available_nodes=K, alphas=alphas, cv=cv), grid)
    parts = {
        str(1000 + k): SufficientStatistics.from_data(*rows_of(k)) for k in range(K)
    }
    method = "gcv" if cv == "gcv" else "loco"
    expected = select_alpha(parts, alphas, method=method)
    assert fit.model_.alpha_ == expected.alpha
    np.testing.assert_allclose(fit.selection_.mean, expected.mean, rtol=1e-9)


def test_the_public_statistics_of_a_client_are_statistics():
    client = RidgeClient(*rows_of(0))
    assert isinstance(client.statistics(), SufficientStatistics)
    arrays, count, fields = client.fit([], {})
    assert (len(arrays), count, fields["kind"]) == (3, 50, "factor")
    back = decode("factor", arrays, Schema(D), count)
    assert_same_statistics(back, client.statistics())
