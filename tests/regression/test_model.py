"""RidgeModel: predictions, scores, summary, export, files."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from generators import client_statistics, linear_rows, relative_error
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.metrics import mean_squared_error
from sklearn.utils.validation import check_is_fitted

from fedridge_flwr import (
    DataError,
    FedRidgeError,
    RidgeModel,
    SufficientStatistics,
    solve,
)

NAMES = ["age", "salary of alice", "bmi"]


def rows(t=None, n=30):
    return linear_rows(n, 3, np.random.default_rng(0), t)


def fitted(t=None, names=None, **options):
    X, y = rows(t)
    if names is not None:
        X = pytest.importorskip("pandas").DataFrame(X, columns=names)
    return solve(SufficientStatistics.from_data(X, y), **options)


def frame(X, names=NAMES):
    return pytest.importorskip("pandas").DataFrame(X, columns=names)


# ---- use ----------------------------------------------------------------------------


@pytest.mark.parametrize("t", [None, 2])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_predictions_are_those_of_scikit_learn(t, fit_intercept):
    X, y = rows(t)
    model = fitted(t, fit_intercept=fit_intercept)
    expected = Ridge(fit_intercept=fit_intercept).fit(X, y).predict(X)
    assert relative_error(model.predict(X), expected) < 1e-13


@pytest.mark.parametrize(
    "form",
    [
        sparse.csr_array,
        sparse.csc_array,
        sparse.coo_array,
        np.asfortranarray,
        frame,
        np.ndarray.tolist,
        lambda X: X.astype(object),
    ],
)
def test_predictions_do_not_depend_on_the_container(form):
    X, _ = rows()
    model = fitted(names=NAMES)
    assert relative_error(model.predict(form(X)), model.predict(X)) < 1e-14


def test_no_rows_give_no_predictions():
    X, _ = rows()
    assert fitted().predict(X[:0]).shape == (0,)
    assert fitted(t=2).predict(X[:0]).shape == (0, 2)


@pytest.mark.parametrize("t", [None, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_score_and_error_are_those_of_scikit_learn(t, weighted):
    X, y = rows(t)
    rng = np.random.default_rng(1)
    weight = rng.exponential(size=30) if weighted else None
    new_X, new_y = X + 0.1, y + rng.normal(size=y.shape)
    model, ridge = fitted(t), Ridge().fit(X, y)
    found = model.evaluate(new_X, new_y, weight)
    score = ridge.score(new_X, new_y, weight)
    mse = mean_squared_error(new_y, ridge.predict(new_X), sample_weight=weight)
    assert found.r2 == pytest.approx(score, rel=1e-12)
    assert found.mse == pytest.approx(mse, rel=1e-12)
    assert found.n_rows == 30
    assert model.score(new_X, new_y, weight) == found.r2


def test_r2_on_the_training_rows_is_the_one_the_statistics_told():
    X, y = rows()
    model = fitted(alpha=2.0)
    assert model.score(X, y) == pytest.approx(model.r2_, abs=1e-13)


def test_r2_is_nan_where_it_is_not_defined():
    X, y = rows()
    model = fitted()
    assert math.isnan(model.evaluate(X[:1], y[:1]).r2)
    assert math.isnan(model.evaluate(X, np.full(30, 2.0)).r2)
    assert model.evaluate(X[:1], y[:1]).mse >= 0.0


def test_integer_weights_evaluate_as_repeated_rows():
    X, y = rows()
    repeats = np.arange(30) % 4
    weighted = fitted().evaluate(X, y, repeats)
    repeated = fitted().evaluate(np.repeat(X, repeats, axis=0), np.repeat(y, repeats))
    assert weighted.mse == pytest.approx(repeated.mse, rel=1e-13)
    assert weighted.r2 == pytest.approx(repeated.r2, rel=1e-13)


def test_evaluation_reads_series_with_any_index():
    pd = pytest.importorskip("pandas")
    X, y = rows()
    model = fitted(names=NAMES)
    table = frame(X).set_axis(np.arange(30) + 7)
    found = model.evaluate(table, pd.Series(y, index=-np.arange(30)))
    assert found.mse == pytest.approx(model.evaluate(X, y).mse, rel=1e-14)


def refusal(function, *arguments):
    with pytest.raises(DataError) as caught:
        function(*arguments)
    return caught.value


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda X: X[0], "X must be 2-D"),
        (lambda X: X[:, :2], "X has 2 features, but the model was fitted with 3"),
        (lambda X: np.where(X > 0, np.nan, X), "NaN or infinite values in columns 0"),
        (lambda X: X.astype(str), "X must be numeric"),
        (lambda X: frame(X, ["age", "bmi", "height"]), "'salary of alice' is missing"),
        (lambda X: frame(X, ["age", "salary of alice", "height"]), "other columns"),
    ],
)
def test_rows_unlike_those_of_the_fit_are_refused(spoil, words):
    X, y = rows()
    model = fitted(names=NAMES)
    for error in (
        refusal(model.predict, spoil(X)),
        refusal(model.evaluate, spoil(X), y if np.ndim(spoil(X)) == 2 else y[:3]),
    ):
        assert words in str(error)
        # Its own names are the client's; those of the model the server knows.
        assert "height" not in error.anonymous()


@pytest.mark.parametrize("known", [True, False])
@given(order=st.permutations(range(3)))
def test_columns_of_a_frame_may_come_in_any_order(known, order):
    X, y = rows()
    model, table = fitted(names=NAMES), frame(X, NAMES)
    if not known:
        model.features = model.features.hidden
    shuffled = table.iloc[:, list(order)]
    np.testing.assert_allclose(model.predict(shuffled), model.predict(X), rtol=1e-13)
    np.testing.assert_allclose(model.evaluate(shuffled, y), model.evaluate(X, y))
    refusal(model.predict, shuffled.rename(columns={"age": "Age"}))


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize(
    ("y", "weight", "words"),
    [
        (lambda y: y[:5], None, "X has 30 rows but y has 5"),
        (
            lambda y: np.column_stack([y, y]),
            None,
            "y has 2 targets",
        ),
        (lambda y: np.where(y > y[0], np.nan, y), None, "y has .* NaN"),
        (lambda y: y.astype(str), None, "y must be numeric"),
        (lambda y: y * 1e200, None, "overflow"),
        (lambda y: y, -1.0, "negative"),
        (lambda y: y, 0.0, "weight"),
    ],
)
def test_bad_evaluation_rows_are_refused(y, weight, words):
    X, target = rows()
    with pytest.raises(DataError, match=words):
        fitted().evaluate(X, y(target), weight)


def test_a_missing_target_is_refused_in_evaluation():
    pd = pytest.importorskip("pandas")
    X, _ = rows()
    y = pd.Series([1] * 29 + [None], dtype="Int64")
    with pytest.raises(DataError, match="y has 1 NaN"):
        fitted().evaluate(X, y)


def test_no_rows_cannot_be_evaluated():
    X, y = rows()
    with pytest.raises(DataError, match="no rows to evaluate"):
        fitted().evaluate(X[:0], y[:0])


# ---- look ---------------------------------------------------------------------------


def test_the_summary_tells_everything_the_fit_knows():
    model = fitted(names=NAMES, alpha=0.25)
    summary = model.summary()
    for label, value in [
        ("rows", "30"),
        ("clients", "1"),
        ("alpha", "0.25"),
        ("R² (train)", f"{model.r2_:.6g}"),
        ("condition", f"{model.condition_:.1f}"),
    ]:
        assert any(
            line.strip().startswith(label) and line.endswith(value)
            for line in summary.splitlines()
        )
    found = [*model.coef_, model.intercept_]
    for name, coef in zip([*NAMES, "intercept"], found, strict=True):
        line = next(row for row in summary.splitlines() if row.strip().startswith(name))
        assert float(line.split()[-1]) == pytest.approx(coef, rel=1e-5)


def test_the_summary_has_a_column_for_every_target():
    model = fitted(t=2)
    (line,) = [row for row in model.summary().splitlines() if "target 0" in row]
    assert line.split() == ["target", "0", "target", "1"]
    (x1,) = [row for row in model.summary().splitlines() if row.strip()[:2] == "x1"]
    found = [float(cell) for cell in x1.split()[1:]]
    assert found == pytest.approx(model.coef_[:, 1], rel=1e-5)


def test_the_summary_of_many_features_is_cut_and_says_so():
    X, y = linear_rows(100, 50, np.random.default_rng(0))
    model = solve(SufficientStatistics.from_data(X, y))
    assert "... and 10 more features (see coef_)" in model.summary()
    assert len(model.summary().splitlines()) < 55
    assert model.summary().splitlines()[-1].split()[0] == "intercept"


def test_the_summary_says_what_is_not_known_or_was_not_fitted():
    bare = RidgeModel(coef=np.ones(2), intercept=0.0, alpha=1.0, fit_intercept=False)
    assert bare.summary().count("not known") == 2
    assert "intercept" not in bare.summary()
    assert "standardised features" in fitted(standardize=True).summary()
    assert "standardised features" not in fitted().summary()


def test_the_repr_tells_what_the_model_stands_on():
    X, y = rows()
    total = sum(client_statistics(X, y, np.array_split(np.arange(30), 3)))
    model = solve(total, 0.5)
    shown = repr(model)
    assert shown.startswith("RidgeModel(alpha=0.5, 3 features, 30 rows, 3 clients, R²=")
    bare = RidgeModel(coef=np.ones(1), intercept=0.0, alpha=1.0)
    assert repr(bare) == "RidgeModel(alpha=1.0, 1 feature, 0 rows, 0 clients)"


# ---- export -------------------------------------------------------------------------


@pytest.mark.parametrize("t", [None, 2])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_export_is_a_fitted_scikit_learn_ridge(t, fit_intercept):
    X, y = rows(t)
    model = fitted(t, alpha=0.5, fit_intercept=fit_intercept)
    ridge = model.to_sklearn()
    assert type(ridge) is Ridge
    check_is_fitted(ridge)
    assert ridge.get_params()["alpha"] == 0.5
    assert ridge.get_params()["fit_intercept"] is fit_intercept
    assert relative_error(ridge.predict(X), model.predict(X)) < 1e-15
    assert ridge.score(X, y) == pytest.approx(model.score(X, y), rel=1e-13)
    assert ridge.n_features_in_ == 3
    again = clone(ridge).fit(X, y)
    assert relative_error(again.coef_, ridge.coef_) < 1e-13
    assert set(vars(again)) <= set(vars(ridge))


@pytest.mark.filterwarnings("error")
def test_the_export_knows_the_names_of_the_features():
    X, _ = rows()
    model = fitted(names=NAMES)
    ridge = model.to_sklearn()
    assert list(ridge.feature_names_in_) == NAMES
    assert relative_error(ridge.predict(frame(X)), model.predict(X)) < 1e-15
    with pytest.raises(ValueError, match="feature names"):
        ridge.predict(frame(X, ["a", "b", "c"]))


def test_the_export_does_not_share_memory():
    model = fitted(t=2)
    ridge = model.to_sklearn()
    before = model.coef_.copy(), model.intercept_.copy()
    ridge.coef_[:], ridge.intercept_[:] = 0.0, 0.0
    assert np.array_equal(model.coef_, before[0])
    assert np.array_equal(model.intercept_, before[1])


# ---- files --------------------------------------------------------------------------

finite = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def models(draw):
    """Draw a model with any float64 in it: denormals, negative zero, the largest."""
    d, t = draw(st.integers(1, 4)), draw(st.sampled_from([None, 1, 2]))
    coef = draw(hnp.arrays(np.float64, (d,) if t is None else (t, d), elements=finite))
    intercept = (
        draw(finite)
        if t is None
        else draw(hnp.arrays(np.float64, (t,), elements=finite))
    )
    text = st.text(st.characters(exclude_categories=["Cs"]))
    return RidgeModel(
        coef=coef,
        intercept=intercept,
        alpha=draw(st.floats(0, allow_infinity=False)),
        fit_intercept=draw(st.booleans()),
        standardize=draw(st.booleans()),
        feature_names=draw(st.none() | st.lists(text, min_size=d, max_size=d)),
        n_rows=draw(st.integers(0, 2**60)),
        n_clients=draw(st.integers(0, 2**40)),
        condition=draw(st.none() | st.floats(1, allow_infinity=False)),
        r2=draw(st.none() | finite),
    )


def bits(value):
    return None if value is None else np.asarray(value, dtype=np.float64).tobytes()


@given(model=models())
def test_a_saved_model_comes_back_bit_for_bit(tmp_path_factory, model):
    path = tmp_path_factory.mktemp("model") / "model.json"
    model.save(path)
    back = RidgeModel.load(path)
    for name in ("coef_", "intercept_", "alpha_", "condition_", "r2_"):
        assert bits(getattr(back, name)) == bits(getattr(model, name))
    assert back.coef_.shape == model.coef_.shape
    assert np.shape(back.intercept_) == np.shape(model.intercept_)
    for name in ("fit_intercept", "standardize", "n_rows_", "n_clients_"):
        assert getattr(back, name) == getattr(model, name)
    assert hasattr(back, "feature_names_in_") == hasattr(model, "feature_names_in_")
    if hasattr(model, "feature_names_in_"):
        assert list(back.feature_names_in_) == list(model.feature_names_in_)


@pytest.mark.parametrize("t", [None, 2])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_loaded_model_predicts_the_same_bits(tmp_path, t, fit_intercept):
    X, _ = rows()
    model = fitted(t, fit_intercept=fit_intercept)
    model.save(tmp_path / "new" / "folder" / "model.json")
    back = RidgeModel.load(str(tmp_path / "new" / "folder" / "model.json"))
    assert back.predict(X).tobytes() == model.predict(X).tobytes()
    assert repr(back) == repr(model)
    assert back.summary() == model.summary()


def test_the_file_is_plain_json(tmp_path):
    fitted(names=NAMES).save(tmp_path / "model.json")
    content = json.loads((tmp_path / "model.json").read_text(encoding="utf-8"))
    assert content["format"] == "fedridge-model"
    assert content["feature_names"] == NAMES
    assert len(content["coef"]) == 3


@pytest.mark.parametrize("text", ["", "{", "\x00", "not json"])
def test_a_file_that_is_not_json_is_refused(tmp_path, text):
    (tmp_path / "file").write_text(text)
    with pytest.raises(FedRidgeError, match="is not a model file"):
        RidgeModel.load(tmp_path / "file")


def test_a_binary_file_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"\x80\x04\x95\xff")
    with pytest.raises(FedRidgeError, match="is not a model file"):
        RidgeModel.load(tmp_path / "file")


@pytest.mark.parametrize("content", [{}, [], 3, None, {"format": "other"}])
def test_other_json_is_refused(tmp_path, content):
    (tmp_path / "file").write_text(json.dumps(content))
    with pytest.raises(FedRidgeError, match="is not a model written by"):
        RidgeModel.load(tmp_path / "file")


@pytest.mark.parametrize(
    "changes",
    [
        {"coef": None},
        {"coef": "text"},
        {"coef": [[1.0], [2.0, 3.0]]},
        {"coef": [[[1.0]]]},
        {"coef": [1.0, float("nan"), 2.0]},
        {"coef": [], "feature_names": None},
        {"intercept": [1.0]},
        {"intercept": float("inf")},
        {"intercept": None},
        {"feature_names": ["a"]},
        {"feature_names": 3},
        {"alpha": None},
        {"alpha": float("nan")},
        {"n_rows": "many"},
        {"n_clients": None},
        {"condition": "text"},
        {"r2": "text"},
    ],
    ids=str,
)
def test_a_damaged_model_is_refused(tmp_path, changes):
    fitted(names=NAMES).save(tmp_path / "file")
    content = json.loads((tmp_path / "file").read_text(encoding="utf-8"))
    (tmp_path / "file").write_text(json.dumps({**content, **changes}))
    with pytest.raises(FedRidgeError, match="is damaged"):
        RidgeModel.load(tmp_path / "file")


@pytest.mark.parametrize("key", ["coef", "intercept", "alpha", "n_rows", "r2"])
def test_a_model_with_something_missing_is_refused(tmp_path, key):
    fitted().save(tmp_path / "file")
    content = json.loads((tmp_path / "file").read_text(encoding="utf-8"))
    del content[key]
    (tmp_path / "file").write_text(json.dumps(content))
    with pytest.raises(FedRidgeError, match=f"is damaged.*{key}"):
        RidgeModel.load(tmp_path / "file")


def test_a_model_of_another_version_says_what_to_install(tmp_path):
    fitted().save(tmp_path / "file")
    content = json.loads((tmp_path / "file").read_text(encoding="utf-8"))
    (tmp_path / "file").write_text(json.dumps({**content, "version": 99}))
    with pytest.raises(FedRidgeError, match=r"version 99.*install"):
        RidgeModel.load(tmp_path / "file")


@pytest.mark.parametrize("y", [[2.0, 2.0, 2.0], [2.0, 2.0, 5.0]])
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_score_is_scikit_learns_also_where_y_does_not_vary(y, offset):
    X = np.array([[0.0], [1.0], [2.0]])
    model = RidgeModel(coef=np.zeros(1), intercept=2.0 + offset, alpha=1.0)
    assert model.score(X, y) == pytest.approx(model.to_sklearn().score(X, y))
