"""Rows as users hold them: every kind gives the same numbers, bad ones an error."""

from __future__ import annotations

import io
import re
import traceback

import numpy as np
import pytest
from generators import assert_same_statistics, linear_rows
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from fedridge_flwr import DataError, SufficientStatistics
from fedridge_flwr.data import rows
from fedridge_flwr.data.record_numbers import as_numbers
from fedridge_flwr.data.rows import check_rows, finite_block
from fedridge_flwr.errors import column_labels

from_data = SufficientStatistics.from_data


# ---- every kind of input ------------------------------------------------------------


def whole_numbers(seed=0, n=40, d=4):
    """Return rows that every real dtype holds exactly; half of them are zero."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-100, 101, size=(n, d)) * rng.integers(0, 2, size=(n, d))
    X[:, 0] += 100 * (X[:, 0] <= 0)  # a column far from zero, which sparse treats apart
    return X.astype(np.float64), rng.integers(-100, 101, size=n).astype(np.float64)


def frame(X):
    return pytest.importorskip("pandas").DataFrame(X, index=np.arange(len(X)) + 100)


def read_only(X):
    X = X.copy()
    X.setflags(write=False)
    return X


def strided(X):
    wide = np.zeros((2 * X.shape[0], 3 * X.shape[1]))
    wide[::2, ::3] = X
    return wide[::2, ::3]


def with_explicit_zeros(X):
    dense = sparse.csr_array(np.ones_like(X))
    dense.data = X.ravel().copy()
    return dense


def with_duplicate_entries(X):
    """Return CSR that stores every entry as two halves, columns not in order."""
    n, d = X.shape
    columns = np.tile(np.concatenate([np.arange(d), np.arange(d)[::-1]]), n)
    data = np.concatenate([X, X[:, ::-1]], axis=1).ravel() / 2.0
    return sparse.csr_array((data, columns, 2 * d * np.arange(n + 1)), shape=(n, d))


KINDS = {
    "C order": np.ascontiguousarray,
    "F order": np.asfortranarray,
    "strided": strided,
    "backwards in memory": lambda X: X[::-1].copy()[::-1],
    "read-only": read_only,
    "list": lambda X: X.tolist(),
    "object": lambda X: X.astype(object),
    "big-endian": lambda X: X.astype(">f8"),
    "data frame": frame,
    "CSR": sparse.csr_array,
    "CSC": sparse.csc_array,
    "COO": sparse.coo_array,
    "LIL": sparse.lil_array,
    "CSR matrix": sparse.csr_matrix,
    "explicit zeros": with_explicit_zeros,
    "duplicate entries": with_duplicate_entries,
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_container_gives_the_same_statistics(kind, weighted):
    X, y = whole_numbers()
    weight = np.random.default_rng(1).exponential(size=40) if weighted else None
    assert_same_statistics(
        from_data(KINDS[kind](X), y, weight), from_data(X, y, weight)
    )


DTYPES = ["int8", "int16", "int32", "int64", "float16", "float32", "longdouble"]


@pytest.mark.parametrize(
    ("dtype", "container"),
    [
        (dtype, container)
        for dtype in DTYPES
        for container in (np.asarray, frame, sparse.csr_array)
        if (dtype, container) != ("float16", sparse.csr_array)  # SciPy has none
    ],
)
def test_every_dtype_gives_the_same_statistics(dtype, container):
    X, y = whole_numbers()
    found = from_data(container(X.astype(dtype)), y.astype(dtype))
    assert_same_statistics(found, from_data(X, y))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint64", "bool"])
@pytest.mark.parametrize("container", [np.asarray, frame, sparse.csc_array])
def test_unsigned_and_boolean_columns_are_numbers(dtype, container):
    X, y = whole_numbers()
    X, y = np.abs(X).astype(dtype), np.abs(y).astype(dtype)
    found = from_data(container(X), y)
    assert_same_statistics(found, from_data(X.astype(float), y.astype(float)))


def test_small_integers_do_not_overflow_in_the_sums():
    X = np.full((100_000, 1), 127, dtype=np.int8)
    X[::2] = -128
    for features in (X, sparse.csr_array(X), frame(X)):
        stats = from_data(features, np.zeros(100_000, dtype=np.int8))
        assert stats.gram[0, 0] == 50_000 * (127**2 + 128**2)
        assert stats.means[0] == -0.5


def test_float32_is_accumulated_in_float64():
    X, y = linear_rows(300_000, 2, np.random.default_rng(0))
    X = (X + 1000.0).astype(np.float32)
    assert_same_statistics(from_data(X, y), from_data(X.astype(np.float64), y))


@given(seed=st.integers(0, 1000), shift=st.sampled_from([0.0, 10.0, 1e6]))
def test_sparse_equals_dense_wherever_the_means_are(seed, shift):
    rng = np.random.default_rng(seed)
    X, y = linear_rows(30, 4, rng, t=2)
    X *= rng.random(X.shape) < 0.3
    X[:, :2] += shift
    weight = rng.exponential(size=30)
    expected = from_data(X, y, weight)
    for form in (sparse.csr_array, sparse.csc_array, sparse.coo_array):
        assert_same_statistics(from_data(form(X), y, weight), expected)


def test_sparse_columns_without_any_entry_are_zero():
    X = np.zeros((10, 3))
    X[:, 1] = np.arange(10)
    y = np.arange(10.0)
    assert_same_statistics(from_data(sparse.csr_array(X), y), from_data(X, y))
    nothing = from_data(sparse.csr_array((10, 3)), y)
    assert not nothing.centred_gram.any()


TARGETS = {
    "list": lambda y: y.tolist(),
    "series": lambda y: pytest.importorskip("pandas").Series(
        y, index=-np.arange(len(y))
    ),
    "nullable": lambda y: pytest.importorskip("pandas").Series(y, dtype="Float64"),
    "float32": lambda y: y.astype(np.float32),
    "int8": lambda y: y.astype(np.int8),
    "object": lambda y: y.astype(object),
    "strided": lambda y: np.repeat(y, 2)[::2],
}


@pytest.mark.parametrize("kind", TARGETS)
def test_every_kind_of_target_gives_the_same_statistics(kind):
    X, y = whole_numbers()
    assert_same_statistics(from_data(X, TARGETS[kind](y)), from_data(X, y))
    assert_same_statistics(
        from_data(sparse.csr_array(X), TARGETS[kind](y)), from_data(X, y)
    )


def test_a_column_of_targets_is_a_matrix_of_one_target():
    pd = pytest.importorskip("pandas")
    X, y = whole_numbers()
    for column in (y[:, None], pd.DataFrame({"target": y})):
        stats = from_data(X, column)
        assert stats.n_targets == 1
        assert (stats.to_array() == from_data(X, y).to_array()).all()


WEIGHTS = {
    "list": lambda w: w.tolist(),
    "series": lambda w: pytest.importorskip("pandas").Series(w, index=w),
    "int": lambda w: w.astype(np.int16),
    "object": lambda w: w.astype(object),
}


@pytest.mark.parametrize("kind", WEIGHTS)
def test_every_kind_of_weights_gives_the_same_statistics(kind):
    X, y = whole_numbers()
    weight = np.arange(40.0)
    found = from_data(X, y, WEIGHTS[kind](weight))
    assert_same_statistics(found, from_data(X, y, weight))


def test_one_number_is_the_weight_of_every_row():
    X, y = whole_numbers()
    assert_same_statistics(from_data(X, y, 2.5), from_data(X, y, np.full(40, 2.5)))


def test_names_come_from_all_labels_but_positions():
    pd = pytest.importorskip("pandas")
    X, y = whole_numbers()
    assert from_data(pd.DataFrame(X, columns=list("abcd")), y).feature_names == (
        *"abcd",
    )
    assert from_data(pd.DataFrame(X), y).feature_names is None
    mixed = pd.DataFrame(X, columns=["a", ("b", 1), 2, 3.5])
    assert from_data(mixed, y).feature_names == ("a", "b / 1", "2", "3.5")
    assert from_data(X, y).feature_names is None


def test_frames_of_mixed_and_nullable_columns_are_read():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(
        {
            "int": pd.array([1, 2, 3], dtype="Int64"),
            "flag": [True, False, True],
            "maybe": pd.array([True, False, False], dtype="boolean"),
            "float": np.array([0.5, 1.5, 2.0], dtype=np.float32),
            "sparse": pd.arrays.SparseArray([0.0, 0.0, 1.0]),
        },
        index=["x", "y", "z"],
    )
    X = np.array([[1, 1, 1, 0.5, 0], [2, 0, 0, 1.5, 0], [3, 1, 0, 2.0, 1]])
    y = pd.Series([1.0, 2.0, 4.0], index=[9, 8, 7])
    assert_same_statistics(from_data(table, y), from_data(X, [1.0, 2.0, 4.0]))


def test_reading_rows_never_changes_them():
    pd = pytest.importorskip("pandas")
    X, y = whole_numbers()
    weight = np.arange(40.0)
    table = pd.DataFrame(X)
    copies = X.copy(), y.copy(), weight.copy(), table.copy()
    from_data(X, y, weight)
    from_data(table, y, weight)
    from_data(sparse.csr_array(X), y, weight)
    assert (copies[0] == X).all()
    assert (y == copies[1]).all()
    assert (weight == copies[2]).all()
    assert table.equals(copies[3])


# ---- blocks -------------------------------------------------------------------------


@given(
    n=st.integers(0, 50),
    d=st.integers(1, 5),
    size=st.integers(1, 500),
    form=st.sampled_from([np.asarray, sparse.csr_array, sparse.csc_array]),
)
def test_blocks_hold_every_row_once_in_order(n, d, size, form):
    X, y = linear_rows(n, d, np.random.default_rng(n))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "BLOCK_BYTES", size)
        blocks = list(check_rows(form(X), y, np.arange(float(n))).blocks())
    dense = [b.X.toarray() if sparse.issparse(b.X) else b.X for b in blocks]
    assert np.array_equal(np.concatenate([np.empty((0, d)), *dense]), X)
    targets = np.concatenate([np.empty((0, 1)), *(b.Y for b in blocks)])
    assert np.array_equal(targets[:, 0], y)
    weights = np.concatenate([np.empty(0), *(b.weight for b in blocks)])
    assert np.array_equal(weights, np.arange(float(n)))


@given(n=st.integers(1, 50), d=st.integers(1, 5), size=st.integers(100, 2000))
def test_blocks_are_no_larger_than_asked_for(n, d, size):
    X, y = linear_rows(n, d, np.random.default_rng(n))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "BLOCK_BYTES", size)
        for block in check_rows(X, y).blocks():
            assert 8 * (block.X.size + block.Y.size) <= size


# ---- bad input ----------------------------------------------------------------------

SECRET = "salary of alice"
NUMBER = 918273.5
TEXT = "x918273y"


def secret_frame(**columns):
    return pytest.importorskip("pandas").DataFrame({"age": [1.0, 2.0, 3.0], **columns})


def object_rows(*values):
    return np.array([[1.0, value] for value in values], dtype=object)


def good(n=3, d=2):
    return np.full((n, d), NUMBER) + np.arange(n)[:, None]


def spoiled(X, value, where):
    X = X.copy()
    X[where] = value
    return X


ONES = np.ones(3)

BAD = {
    "NaN in X": (
        lambda: (spoiled(good(), np.nan, (slice(2), 1)), ONES),
        r"X has 2 NaN or infinite values in column 1 .*2 of 3 rows",
    ),
    "inf in X": (
        lambda: (spoiled(good(), -np.inf, (1, 0)), ONES),
        r"X has 1 NaN or infinite values? in column 0 ",
    ),
    "NaN in several columns": (
        lambda: (good() * np.nan, ONES),
        r"X has 6 NaN or infinite values in columns 0, 1 \(3, 3 of 3 rows\)",
    ),
    "NaN in float16": (
        lambda: (np.array([[1.0], [np.nan]], dtype=np.float16), ONES[:2]),
        r"NaN or infinite values? in column 0",
    ),
    "NaN in sparse X": (
        lambda: (sparse.csr_array(spoiled(good(), np.nan, (1, 1))), ONES),
        r"X has 1 NaN or infinite values? in column 1",
    ),
    "inf in CSC": (
        lambda: (sparse.csc_array(spoiled(good(), np.inf, (1, 1))), ONES),
        r"X has 1 NaN or infinite values? in column 1",
    ),
    "NaN in a named column": (
        lambda: (secret_frame(**{SECRET: [NUMBER, np.nan, np.nan]}), ONES),
        rf"2 NaN or infinite values in column 1 \('{SECRET}'\)",
    ),
    "missing value in a nullable column": (
        lambda: (
            secret_frame(
                **{
                    SECRET: pytest.importorskip("pandas").array(
                        [918273, None, 3], dtype="Int64"
                    )
                }
            ),
            ONES,
        ),
        rf"1 NaN or infinite values? in column 1 \('{SECRET}'\)",
    ),
    "NaN in y": (
        lambda: (good(), [NUMBER, np.nan, np.nan]),
        r"y has 2 NaN or infinite values in column 0 \(3 rows\)",
    ),
    "inf in the second target": (
        lambda: (good(), spoiled(good(), np.inf, (0, 1))),
        r"y has 1 NaN or infinite values? in column 1",
    ),
    "missing value in nullable y": (
        lambda: (
            good(),
            pytest.importorskip("pandas").Series([918273, None, 3], dtype="Int64"),
        ),
        r"y has 1 NaN or infinite values? in column 0",
    ),
    "numbers too large to square": (
        lambda: (good() * 1e200, ONES),
        "squares overflow float64",
    ),
    "integers beyond float64": (
        lambda: ([[10**400], [918273], [1]], ONES),
        "X .*column 0",
    ),
    "text": (lambda: ([[TEXT], ["b"], ["c"]], ONES), "X must be numeric"),
    "complex": (lambda: (good() + 1j, ONES), "X must be numeric and real.*complex128"),
    "dates": (
        lambda: (np.array([["2020-01-01"]] * 3, dtype="datetime64[D]"), ONES),
        "X must be numeric.*datetime64",
    ),
    "text among objects": (
        lambda: (object_rows(NUMBER, TEXT, 3.0), ONES),
        r"X must be numeric, but column 1",
    ),
    "text in a frame": (
        lambda: (secret_frame(**{SECRET: [TEXT, "b", "c"]}), ONES),
        rf"X must be numeric, but column 1 \('{SECRET}'\)",
    ),
    "categories in a frame": (
        lambda: (
            secret_frame(
                **{SECRET: pytest.importorskip("pandas").Categorical([1, 2, 1])}
            ),
            ONES,
        ),
        rf"X must be numeric, but column 1 \('{SECRET}'\)",
    ),
    "text in y": (lambda: (good(), [TEXT, "b", "c"]), "y must be numeric"),
    "text in a series y": (
        lambda: (good(), pytest.importorskip("pandas").Series([TEXT, "b", "c"])),
        "y must be numeric",
    ),
    "text in a frame y": (
        lambda: (
            good(),
            pytest.importorskip("pandas").DataFrame({SECRET: [TEXT, "b", "c"]}),
        ),
        "y must be numeric, but column 0",
    ),
    "ragged rows": (lambda: ([[1.0, 2.0], [NUMBER]], ONES[:2]), "X is not a rectangul"),
    "named fields": (
        lambda: (np.zeros(3, dtype=[(SECRET, "f8"), ("age", "f8")]), ONES),
        "X must be",
    ),
    "length mismatch": (
        lambda: (good(), ONES[:2]),
        "X has 3 rows but y has 2",
    ),
    "1-D X": (
        lambda: (good()[:, 0], ONES),
        r"X must be 2-D .* got 1-D of shape \(3,\).*reshape\(-1, 1\)",
    ),
    "series as X": (
        lambda: (pytest.importorskip("pandas").Series(good()[:, 0], name=SECRET), ONES),
        r"X must be 2-D .* got 1-D of shape \(3,\)",
    ),
    "3-D X": (lambda: (np.zeros((3, 2, 2)), ONES), r"X must be 2-D .* got 3-D"),
    "a number as X": (lambda: (NUMBER, ONES), r"X must be 2-D .* got 0-D"),
    "an empty list as X": (lambda: ([], []), r"X must be 2-D .* got 1-D"),
    "X without columns": (lambda: (np.zeros((3, 0)), ONES), "X has no columns"),
    "3-D y": (lambda: (good(), np.zeros((3, 1, 1))), r"y must have shape \(rows,\)"),
    "a number as y": (lambda: (good(), NUMBER), r"y must have shape \(rows,\)"),
    "y without columns": (lambda: (good(), np.zeros((3, 0))), r"got \(3, 0\)"),
    "sparse y": (
        lambda: (good(), sparse.csr_array(ONES[:, None])),
        r"y must be dense.*toarray",
    ),
    "negative weights": (
        lambda: (good(), ONES, [-NUMBER, 1.0, -1.0]),
        "sample_weight has 2 negative values",
    ),
    "NaN weights": (
        lambda: (good(), ONES, [np.nan, NUMBER, 1.0]),
        r"sample_weight has 1 NaN or infinite values?",
    ),
    "infinite weights": (
        lambda: (good(), ONES, [np.inf, NUMBER, 1.0]),
        r"sample_weight has 1 NaN or infinite values?",
    ),
    "weights of another length": (
        lambda: (good(), ONES, [NUMBER, 1.0]),
        r"sample_weight must have shape \(3,\).*got \(2,\)",
    ),
    "weights as a column": (
        lambda: (good(), ONES, ONES[:, None]),
        r"sample_weight must have shape \(3,\).*got \(3, 1\)",
    ),
    "text weights": (
        lambda: (good(), ONES, [TEXT, "b", "c"]),
        "sample_weight must be numeric",
    ),
    "text among object weights": (
        lambda: (good(), ONES, np.array([TEXT, 1.0, 2.0], dtype=object)),
        "sample_weight must be numeric",
    ),
}


def refusal(arguments):
    with pytest.raises(DataError) as caught:
        from_data(*arguments)
    return caught.value


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_words_that_tell(case):
    make, words = BAD[case]
    error = refusal(make())
    assert re.search(words, str(error)), str(error)
    assert isinstance(error, ValueError)
    assert str(error).endswith(".")
    assert ".." not in str(error)


@pytest.mark.parametrize("case", BAD)
def test_the_anonymous_message_holds_no_column_name(case):
    error = refusal(BAD[case][0]())
    assert SECRET not in error.anonymous()
    assert "age" not in error.anonymous().split()
    assert "{columns}" not in str(error) + error.anonymous()


@pytest.mark.parametrize("case", BAD)
def test_no_message_and_no_traceback_holds_a_value_of_the_data(case):
    error = refusal(BAD[case][0]())
    told = str(error) + error.anonymous() + "".join(traceback.format_exception(error))
    assert "918273" not in told
    assert TEXT not in told


@pytest.mark.parametrize("case", BAD)
def test_one_of_a_kind_is_told_in_the_singular(case):
    message = str(refusal(BAD[case][0]()))
    one = r"\b1 (NaN or infinite|negative) values\b"
    column = r"\bcolumn \d+( \('[^']*'\))? (are|hold)\b"
    assert not re.search(f"{one}|{column}", message), message


def test_weights_whose_sum_overflows_are_not_blamed_on_x():
    with pytest.raises(DataError, match="sample_weight"):
        from_data(good(), ONES, np.full(3, 1e308))


def test_bad_values_in_any_block_are_counted_over_all(monkeypatch):
    monkeypatch.setattr(rows, "BLOCK_BYTES", 32)
    X = good(n=50)
    X[[3, 20, 49], 1] = np.nan
    with pytest.raises(DataError, match=r"3 NaN or infinite values in column 1 "):
        from_data(X, np.ones(50))


def test_values_whose_sum_overflows_but_whose_squares_do_not_are_fine():
    X = np.full((4, 1), 3e38, dtype=np.float32)
    X[0] = -3e38
    stats = from_data(X, np.arange(4.0))
    assert_same_statistics(stats, from_data(X.astype(np.float64), np.arange(4.0)))


@given(
    columns=st.lists(st.integers(0, 30), min_size=1, max_size=20, unique=True),
    known=st.booleans(),
)
def test_column_labels_name_at_most_six_columns_and_count_the_rest(columns, known):
    names = [f"name {j}" for j in range(31)] if known else None
    label = column_labels(columns, names)
    assert label.startswith("column " if len(columns) == 1 else "columns ")
    assert ("name" in label) == known
    for column in columns[:6]:
        assert str(column) in label
    assert label.endswith(f"and {len(columns) - 6} more") == (len(columns) > 6)


def test_a_finite_block_is_float64_dense_or_csr():
    X, _ = whole_numbers()
    for kind in KINDS.values():
        block = finite_block(kind(X))
        assert block.dtype == np.float64
        assert not sparse.issparse(block) or block.format == "csr"
        dense = block.toarray() if sparse.issparse(block) else block
        assert np.array_equal(np.asarray(dense), X)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, frame])
def test_a_finite_block_refuses_what_is_not_finite(form):
    with pytest.raises(DataError, match=r"NaN or infinite values in column 1"):
        finite_block(form(spoiled(good(), np.nan, (0, 1))))


def test_masked_values_are_refused_and_counted():
    X = np.ma.masked_equal(np.arange(6.0).reshape(3, 2), 4.0)
    with pytest.raises(DataError, match="X has 1 masked value"):
        from_data(X, np.ones(3))
    unmasked = np.ma.masked_equal(np.arange(6.0).reshape(3, 2), 99.0)
    assert from_data(unmasked, np.ones(3)).count == 3


def test_an_empty_frame_is_an_empty_client_whatever_its_types():
    pd = pytest.importorskip("pandas")
    stats = from_data(pd.DataFrame(columns=["age", "bmi"]), pd.Series([], dtype=float))
    assert stats.count == 0
    assert stats.feature_names == ("age", "bmi")
    # As pd.read_csv reads a file with a head and no rows: everything is an object.
    frame = pd.read_csv(io.StringIO("age,bmi,y\n"))
    assert from_data(frame[["age", "bmi"]], frame["y"]).count == 0
    with pytest.raises(DataError, match="y must be numeric"):
        from_data(pd.DataFrame({"age": [1.0]}), pd.Series(["old"]))


def test_what_is_not_a_number_becomes_nan():
    mixed = np.array([[1, "x"], [2.5, None], [1j, 10**400]], dtype=object)
    expected = [[1.0, np.nan], [2.5, np.nan], [np.nan, np.nan]]
    np.testing.assert_array_equal(as_numbers(mixed), expected)
    np.testing.assert_array_equal(as_numbers(np.array([1j, 2.0])), [np.nan, 2.0])
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", 3.0]})
    np.testing.assert_array_equal(
        as_numbers(frame).to_numpy(), [[1.0, np.nan], [2.0, 3.0]]
    )
    np.testing.assert_array_equal(as_numbers(frame["b"]), [np.nan, 3.0])
    untouched = np.ones(3)
    assert as_numbers(untouched) is untouched
