"""Feature maps in statistics, fold and model: federated equals pooled."""

from __future__ import annotations

import json
import pickle
import tracemalloc

import numpy as np
import pytest
from fits import aggregate
from generators import assert_same_statistics, linear_rows, relative_error, split_rows
from scipy import sparse
from sklearn.base import clone
from sklearn.kernel_approximation import RBFSampler
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from fedridge_flwr import (
    DataError,
    FeatureMap,
    FedRidgeError,
    GaussianProjection,
    NeuralTangentFeatures,
    PlainStatistics,
    PolynomialMap,
    RandomFourierFeatures,
    RidgeModel,
    SingularSystemError,
    Standardize,
    StatisticsError,
    SufficientStatistics,
    solve,
    solve_path,
)
from fedridge_flwr.data.rows import check_rows
from fedridge_flwr.data.schema import Schema
from fedridge_flwr.features import ColumnMoments, map_rows
from fedridge_flwr.regression.alpha.leave_client_out import held_out_models
from fedridge_flwr.statistics.float32 import from_compact, to_compact

D = 5
NAMES = ["age", "salary of alice", "bmi", "height", "site"]
SCALER = Standardize([1.0, 0.0, -1.0, 2.0, 0.5], [2.0, 1.0, 0.5, 3.0, 1.0])
FOURIER = RandomFourierFeatures(60, gamma=0.1)
MAPS = {
    "projection": GaussianProjection(3, seed=1),
    "skipped": GaussianProjection(D),
    "fourier": FOURIER,
    "tangent": NeuralTangentFeatures(8),
    "polynomial": PolynomialMap(2),
    "standardize": SCALER,
    "both": SCALER | FOURIER,
}
each_map = pytest.mark.parametrize("feature_map", MAPS.values(), ids=MAPS.keys())


def rows(n=200, t=None, seed=0):
    X, y = linear_rows(n, D, np.random.default_rng(seed), t)
    return X, y + np.sin(X[:, 0] if t is None else X[:, :1])


def frame(X, names=NAMES):
    return pytest.importorskip("pandas").DataFrame(X, columns=names)


def statistics(feature_map, X, y, parts, weight=None):
    return [
        SufficientStatistics.from_data(
            X[own], y[own], None if weight is None else weight[own], feature_map
        )
        for own in parts
    ]


def fitted(feature_map, t=None, names=None, **options):
    X, y = rows(t=t)
    stats = SufficientStatistics.from_data(X, y, feature_map=feature_map)
    model = solve(stats, **options)
    return model.with_feature_map(feature_map, D, names)


# ---- federated equals pooled --------------------------------------------------------


@each_map
@pytest.mark.parametrize("t", [None, 2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("split", ["random-size", "sorted", "with-empty-clients"])
def test_any_split_is_ridge_on_the_pooled_mapped_rows(feature_map, t, weighted, split):
    rng = np.random.default_rng(3)
    X, y = rows(t=t)
    weight = rng.exponential(size=len(X)) if weighted else None
    parts = split_rows(len(X), 7, rng, split, key=X[:, 0])
    total = sum(statistics(feature_map, X, y, parts, weight))
    model = solve(total, alpha=0.7).with_feature_map(feature_map, D)
    pooled = feature_map.transform(X)
    # The last digits belong to scikit-learn's solver: SVD is its most accurate one.
    ridge = Ridge(alpha=0.7, solver="svd").fit(pooled, y, sample_weight=weight)
    assert relative_error(model.coef_, ridge.coef_) < 1e-11
    new_X, _ = rows(30, t, seed=9)
    expected = ridge.predict(feature_map.transform(new_X))
    assert relative_error(model.predict(new_X), expected) < 1e-11


def test_many_fourier_features_are_gaussian_kernel_regression():
    X, y = rows(150)
    y = y - y.mean()
    feature_map = RandomFourierFeatures(20_000, gamma=0.05)
    phi = feature_map.transform(X)
    # In the kernel's form, which is small: w = phi' (phi phi' + alpha I)^-1 y.
    dual = np.linalg.solve(phi @ phi.T + np.eye(150), y)
    kernel = KernelRidge(alpha=1.0, kernel="rbf", gamma=0.05).fit(X, y)
    new_X, _ = rows(50, seed=4)
    found = feature_map.transform(new_X) @ (phi.T @ dual)
    assert relative_error(found, kernel.predict(new_X)) < 0.05


def test_rules_agreed_on_by_moments_give_the_pooled_pipeline():
    X, y = rows(300)
    X = X * [1.0, 50.0, 0.01, 3.0, 1.0] + [0.0, 1e3, 0.0, -7.0, 1.0]
    rng = np.random.default_rng(0)
    parts = split_rows(len(X), 6, rng, "random-size")
    rule = FeatureMap.from_text("standardize | fourier 80 gamma=scale seed=4")
    moments = sum(ColumnMoments.from_rows(check_rows(X[own], y[own])) for own in parts)
    agreed = rule.resolve(ColumnMoments.from_array(moments.to_array()))
    model = solve(sum(statistics(agreed, X, y, parts)), 0.1).with_feature_map(agreed, D)
    scaled = StandardScaler().fit_transform(X)
    gamma = 1.0 / (D * scaled.var())
    assert agreed.maps[1].gamma == pytest.approx(gamma, rel=1e-12)
    sampler = RBFSampler(gamma=gamma, n_components=80).fit(scaled)
    sampler.random_weights_, sampler.random_offset_ = RandomFourierFeatures(
        80, gamma=gamma, seed=4
    ).numbers(D)
    ridge = Ridge(alpha=0.1, solver="svd").fit(sampler.transform(scaled), y)
    expected = ridge.predict(sampler.transform(scaled))
    assert relative_error(model.predict(X), expected) < 1e-10


# ---- rows and statistics ------------------------------------------------------------


@each_map
@pytest.mark.parametrize(
    "form", [sparse.csr_array, sparse.csc_array, np.asfortranarray, frame]
)
def test_statistics_do_not_depend_on_the_container(feature_map, form):
    X, y = rows()
    X = X * (np.abs(X) > 0.5)
    found = SufficientStatistics.from_data(form(X), y, feature_map=feature_map)
    mapped = SufficientStatistics.from_data(feature_map.transform(X), y)
    assert_same_statistics(found, mapped, rtol=1e-11)
    assert found.feature_map == feature_map.fingerprint(D)
    assert found.n_features_in == D
    assert (found.feature_names == tuple(NAMES)) is (form is frame)


@each_map
def test_float32_and_integers_are_mapped_as_float64(feature_map):
    X, y = rows()
    for form in (X.astype(np.float32), (10 * X).astype(np.int16)):
        found = SufficientStatistics.from_data(form, y, feature_map=feature_map)
        mapped = feature_map.transform(form.astype(np.float64))
        assert_same_statistics(found, SufficientStatistics.from_data(mapped, y), 1e-11)


@each_map
def test_batches_are_mapped_too(feature_map):
    X, y = rows()
    batches = [(X[:90], y[:90]), (X[90:], y[90:])]
    found = SufficientStatistics.from_batches(batches, feature_map=feature_map)
    whole = SufficientStatistics.from_data(X, y, feature_map=feature_map)
    assert_same_statistics(found, whole, rtol=1e-12)
    assert found.feature_map == whole.feature_map


def test_an_empty_client_changes_nothing():
    X, y = rows()
    some = SufficientStatistics.from_data(X, y, feature_map=FOURIER)
    none = SufficientStatistics.from_data(X[:0], y[:0], feature_map=FOURIER)
    assert (some + none).to_array().tobytes() == some.to_array().tobytes()
    assert (some - none).feature_map == some.feature_map


def test_mapped_rows_are_never_all_there():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40_000, 4)), rng.normal(size=40_000)
    wide = RandomFourierFeatures(400)
    wide.numbers(4)
    tracemalloc.start()
    try:
        stats = SufficientStatistics.from_data(X, y, feature_map=wide)
        model = solve(stats).with_feature_map(wide, 4)
        model.predict(X)
        model.evaluate(X, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # All mapped rows at once would be 128 MB.
    assert peak < 45e6
    assert stats.count == 40_000


def test_wide_raw_rows_come_in_small_blocks():
    raw = check_rows(np.zeros((1000, 4000), dtype=np.float32), np.zeros(1000))
    mapped = map_rows(raw, GaussianProjection(3))
    assert max(block.X.shape[0] for block in mapped.blocks()) <= 16 * 2**20 // 32_000
    assert sum(block.X.shape[0] for block in mapped.blocks()) == 1000
    assert all(block.X.shape[1] == 3 for block in mapped.blocks())


def test_blocks_are_small_however_wide_the_rows_are_on_their_way():
    wide = Standardize(np.zeros(4000), np.ones(4000)) | GaussianProjection(3)
    assert wide.widest(4000) == 4000
    raw = check_rows(sparse.csr_array((1000, 4000)), np.zeros(1000))
    mapped = map_rows(raw, wide)
    assert max(block.X.shape[0] for block in mapped.blocks()) <= 16 * 2**20 // 32_000


@each_map
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, frame])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_bad_values_are_counted_by_raw_column(feature_map, form, bad):
    X, y = rows()
    X[[3, 50], 2] = bad
    with pytest.raises(DataError, match="X has 2 NaN or infinite values in column 2"):
        SufficientStatistics.from_data(form(X), y, feature_map=feature_map)
    X, y = rows()
    y[1] = bad
    with pytest.raises(DataError, match="y has 1 NaN or infinite value in column 0"):
        SufficientStatistics.from_data(form(X), y, feature_map=feature_map)


@pytest.mark.parametrize("kind", ["polynomial", "tangent", "standardize", "both"])
def test_finite_values_whose_features_overflow_are_refused(kind):
    X, y = rows()
    X[0, 1] = 1.7e308
    with pytest.raises(DataError, match="their features, or the squares of them"):
        SufficientStatistics.from_data(X, y, feature_map=MAPS[kind])


def test_a_map_is_a_map_and_there_is_one():
    X, y = rows()
    with pytest.raises(FedRidgeError, match="must be a FeatureMap, got str"):
        SufficientStatistics.from_data(X, y, feature_map="fourier 10")
    mapped = map_rows(check_rows(X, y), FOURIER)
    with pytest.raises(FedRidgeError, match=r"join maps with \|"):
        map_rows(mapped, FOURIER)
    plain = check_rows(X, y)
    assert map_rows(plain, None) is plain


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (RandomFourierFeatures(60, gamma=0.1, seed=1), "another feature map"),
        (RandomFourierFeatures(60, gamma=0.2), "another feature map"),
        (GaussianProjection(60), "a feature map against|no feature map against"),
    ],
)
def test_statistics_of_other_maps_do_not_merge(other, words):
    X, y = np.random.default_rng(0).normal(size=(9, 60)), np.arange(9.0)
    mine = SufficientStatistics.from_data(X, y, feature_map=FOURIER)
    theirs = SufficientStatistics.from_data(
        X, y, feature_map=None if isinstance(other, GaussianProjection) else other
    )
    for merge in (
        lambda: mine + theirs,
        lambda: theirs + mine,
        lambda: mine - theirs,
        lambda: (
            PlainStatistics.from_statistics(mine)
            + PlainStatistics.from_statistics(theirs)
        ),
    ):
        with pytest.raises(StatisticsError, match=words):
            merge()


def test_the_fingerprint_survives_packing():
    X, y = rows()
    stats = SufficientStatistics.from_data(frame(X), y, feature_map=FOURIER)
    known = {"feature_map": stats.feature_map, "n_features_in": D}
    back = SufficientStatistics.from_array(
        stats.to_array(), 60, 1, count=200, feature_names=NAMES, **known
    )
    assert (back + stats).feature_names == tuple(NAMES)
    small = from_compact(
        *to_compact(stats), Schema.of(60, feature_names=NAMES, **known), 200
    )
    assert (small + stats).feature_map == stats.feature_map
    assert PlainStatistics.from_statistics(stats).feature_map == stats.feature_map


def test_names_are_those_of_the_raw_columns():
    X, y = rows()
    stats = SufficientStatistics.from_data(X, y, feature_map=FOURIER)
    assert stats.with_feature_names(NAMES).feature_names == tuple(NAMES)
    with pytest.raises(StatisticsError, match="60 feature names for 5 features"):
        stats.with_feature_names([f"f{j}" for j in range(60)])
    unknown = SufficientStatistics.from_array(
        stats.to_array(), 60, 1, feature_map=stats.feature_map
    )
    assert unknown.n_features_in is None
    assert unknown.with_feature_names(NAMES).feature_names == tuple(NAMES)


def test_a_singular_system_does_not_borrow_raw_names():
    X, y = rows()
    stats = SufficientStatistics.from_data(
        frame(X), y, feature_map=NeuralTangentFeatures(8)
    )
    with pytest.raises(SingularSystemError) as caught:
        solve(stats, alpha=0.0)
    assert "age" not in str(caught.value)


# ---- fold ---------------------------------------------------------------------------


def folded(*maps, names=None, **options):
    X, y = rows(60)
    fold = aggregate(**options)
    for k, feature_map in enumerate(maps):
        own = slice(10 * k, 10 * k + 10)
        table = X[own] if names is None else frame(X[own], names)
        part = SufficientStatistics.from_data(table, y[own], feature_map=feature_map)
        fold.add(f"client {k}", part)
    return fold, fold.result()


def test_a_client_with_another_map_is_named_even_if_it_answers_first():
    other = RandomFourierFeatures(60, gamma=0.1, seed=1)
    fold, total = folded(other, FOURIER, FOURIER, screen="exclude")
    assert total.count == 20
    assert total.feature_map == FOURIER.fingerprint(D)
    assert fold.failures == {
        "client 0": "its columns are not those of 2 other clients: another feature map "
        "(kind, size, seed, parameters, or the random numbers of another NumPy version)"
    }
    assert list(fold.parts) == fold.participants == ["client 1", "client 2"]


@pytest.mark.parametrize(
    ("maps", "reason"),
    [
        (
            (GaussianProjection(D), None, None),
            "its columns are not those of 2 other clients: a feature map against none",
        ),
        (
            (None, GaussianProjection(D), GaussianProjection(D)),
            "its columns are not those of 2 other clients: no feature map against one",
        ),
        (
            (RandomFourierFeatures(59), FOURIER, FOURIER),
            "its columns are not those of 2 other clients: 59 features against 60",
        ),
    ],
)
def test_a_client_whose_columns_differ_is_told_how(maps, reason):
    fold, total = folded(*maps)
    assert fold.failures == {"client 0": reason}
    assert total.count == 20


def test_the_servers_names_are_those_of_raw_columns():
    fold, total = folded(FOURIER, FOURIER, names=NAMES, feature_names=tuple(NAMES))
    assert not fold.failures
    assert total.feature_names == tuple(NAMES)
    fold, total = folded(FOURIER, feature_names=("a", "b"))
    assert fold.failures == {"client 0": "has 5 features where the server expects 2"}
    assert total is None


def test_plain_statistics_without_a_map_do_not_join_mapped_ones():
    X, y = rows(60)
    mapped = SufficientStatistics.from_data(X, y, feature_map=GaussianProjection(D))
    plain = PlainStatistics.from_arrays(X.T @ X, X.T @ y, count=60)
    fold = aggregate(fit_intercept=False)
    fold.add("a", mapped)
    fold.add("b", mapped)
    fold.add("c", plain)
    assert fold.result().count == 120
    assert list(fold.failures) == ["c"]
    same = aggregate(fit_intercept=False)
    same.add("a", mapped)
    same.add("b", PlainStatistics.from_statistics(mapped))
    assert same.result().count == 120
    assert not same.failures


# ---- model --------------------------------------------------------------------------


@each_map
@pytest.mark.parametrize("t", [None, 2])
def test_a_model_takes_raw_columns(feature_map, t):
    X, y = rows(t=t)
    model = fitted(feature_map, t, alpha=0.5)
    ridge = Ridge(alpha=0.5, solver="svd").fit(feature_map.transform(X), y)
    expected = ridge.predict(feature_map.transform(X))
    assert model.n_features_in_ == D
    assert model.coef_.shape[-1] == feature_map.n_features_out(D)
    assert relative_error(model.predict(X), expected) < 1e-12
    assert relative_error(model.predict(sparse.csr_array(X)), expected) < 1e-12
    assert model.predict(X[:0]).shape == expected[:0].shape
    score = ridge.score(feature_map.transform(X), y)
    assert model.score(X, y) == pytest.approx(score, abs=1e-12)
    assert model.score(X, y) == pytest.approx(model.r2_, abs=1e-12)
    weight = np.arange(200.0)
    mse = np.average((y - model.predict(X)) ** 2, axis=0, weights=weight).mean()
    assert model.evaluate(X, y, weight).mse == pytest.approx(mse, rel=1e-12)


def test_predictions_in_blocks_are_those_of_the_whole(monkeypatch):
    X, _ = rows()
    for t in (None, 2):
        model = fitted(FOURIER, t)
        whole = model.predict(X)
        monkeypatch.setattr("fedridge_flwr.regression.model._PREDICT_BYTES", 8 * 60 * 7)
        assert relative_error(model.predict(X), whole) < 1e-14
        monkeypatch.undo()


@pytest.mark.parametrize("t", [None, 2])
@pytest.mark.parametrize("kind", ["projection", "skipped"])
def test_a_projection_has_coefficients_of_the_raw_columns(t, kind):
    X, _ = rows()
    model = fitted(MAPS[kind], t)
    assert model.coef_original_.shape == ((D,) if t is None else (t, D))
    found = X @ model.coef_original_.T + model.intercept_
    assert relative_error(found, model.predict(X)) < 1e-13


def test_other_maps_have_no_coefficients_of_raw_columns():
    for kind in ("fourier", "tangent", "polynomial", "both"):
        model = fitted(MAPS[kind])
        assert not hasattr(model, "coef_original_")
        with pytest.raises(AttributeError, match="only defined without a feature map"):
            _ = model.coef_original_
    X, y = rows()
    plain = solve(SufficientStatistics.from_data(X, y))
    assert plain.coef_original_ is plain.coef_


def test_names_of_raw_columns_are_checked():
    X, y = rows()
    model = fitted(FOURIER, names=NAMES)
    assert list(model.feature_names_in_) == NAMES
    assert relative_error(model.predict(frame(X)), model.predict(X)) < 1e-14
    swapped = frame(X).iloc[:, ::-1]
    assert relative_error(model.predict(swapped), model.predict(X)) < 1e-14
    with pytest.raises(DataError, match="other columns than the fit"):
        model.predict(frame(X, [*NAMES[:-1], "another"]))
    with pytest.raises(DataError, match="X has 4 features, but the model was"):
        model.predict(X[:, :4])
    X[2, 1] = np.nan
    for use in (model.predict, lambda table: model.evaluate(table, y)):
        with pytest.raises(DataError, match=r"column 1 \('salary of alice'\)"):
            use(frame(X))


def test_a_solution_without_its_map_is_on_mapped_columns():
    X, y = rows()
    stats = SufficientStatistics.from_data(frame(X), y, feature_map=FOURIER)
    bare, path = solve(stats), solve_path(stats, [0.1, 1.0, 10.0, 100.0])
    assert bare.n_features_in_ == 60
    assert not hasattr(bare, "feature_names_in_")
    assert all(each.map_fingerprint == stats.feature_map for each in (bare, *path))
    model = bare.with_feature_map(FOURIER, D, stats.feature_names)
    mapped = FOURIER.transform(X)
    assert relative_error(bare.predict(mapped), model.predict(X)) < 1e-13
    with pytest.raises(DataError, match="with_feature_map"):
        bare.predict(X)
    with pytest.raises(FedRidgeError, match="already has a feature map"):
        model.with_feature_map(FOURIER, D)


@pytest.mark.parametrize(
    ("feature_map", "d", "words"),
    [
        (RandomFourierFeatures(60, gamma=0.1, seed=1), D, "is not the feature map"),
        (FOURIER, D + 1, "is not the feature map"),
        (RandomFourierFeatures(61), D, "makes 61 columns of 5, but .* of 60"),
        (RandomFourierFeatures(60, gamma="scale"), D, "let FedRidge agree"),
        ("fourier 60", D, "needs a FeatureMap"),
        (FOURIER, None, "n_features_in"),
        (FOURIER, 0, "whole number from 1"),
    ],
)
def test_a_map_that_does_not_belong_to_the_model_is_refused(feature_map, d, words):
    X, y = rows()
    bare = solve(SufficientStatistics.from_data(X, y, feature_map=FOURIER))
    with pytest.raises(FedRidgeError, match=words):
        bare.with_feature_map(feature_map, d)


def test_as_many_names_as_raw_columns():
    with pytest.raises(FedRidgeError, match="2 names for 5 raw columns"):
        fitted(FOURIER, names=["a", "b"])


def test_the_summary_tells_the_map():
    model = fitted(FOURIER, names=NAMES, standardize=True)
    lines = model.summary().splitlines()
    words = "60 random Fourier features of 5 columns, gamma 0.1, seed 0"
    assert lines[1] == f"  features    {words}"
    assert "  ... and 55 more features (see coef_)" in lines
    assert any(line.split()[:1] == ["f4"] for line in lines)
    assert not any(line.split()[:1] == ["f5"] for line in lines)
    assert "salary" not in model.summary()
    assert "60 features of 5 columns" in repr(model)


@each_map
def test_held_out_losses_are_counted_on_raw_rows(feature_map):
    X, y = rows()
    parts = [np.arange(0, 80), np.arange(80, 200)]
    first, second = statistics(feature_map, X, y, parts)
    alphas = np.array([0.1, 10.0])
    others = held_out_models({"a": first, "b": second}, alphas)["a"]
    found = others.losses_of_rows(map_rows(check_rows(X[:80], y[:80]), feature_map))
    expected = [
        np.mean((y[:80] - ridge.predict(feature_map.transform(X[:80]))) ** 2)
        for ridge in (
            Ridge(alpha=alpha, solver="svd").fit(feature_map.transform(X[80:]), y[80:])
            for alpha in alphas
        )
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


# ---- files and scikit-learn ---------------------------------------------------------


@each_map
@pytest.mark.parametrize("t", [None, 2])
def test_a_saved_model_predicts_the_same_bits(tmp_path, feature_map, t):
    X, _ = rows()
    model = fitted(feature_map, t, names=NAMES)
    model.save(tmp_path / "model.json")
    back = RidgeModel.load(tmp_path / "model.json")
    assert back.feature_map == feature_map
    assert back.predict(X).tobytes() == model.predict(X).tobytes()
    assert back.summary() == model.summary()
    assert list(back.feature_names_in_) == NAMES


def test_a_solution_without_its_map_is_saved_with_the_fingerprint(tmp_path):
    X, y = rows()
    bare = solve(SufficientStatistics.from_data(X, y, feature_map=FOURIER))
    bare.save(tmp_path / "model.json")
    back = RidgeModel.load(tmp_path / "model.json")
    assert back.map_fingerprint == bare.map_fingerprint
    assert back.with_feature_map(FOURIER, D).n_features_in_ == D


def test_plain_files_have_no_word_of_maps(tmp_path):
    X, y = rows()
    solve(SufficientStatistics.from_data(X, y)).save(tmp_path / "model.json")
    assert "map" not in (tmp_path / "model.json").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "changes",
    [
        {"feature_map": "fourier"},
        {"feature_map": {"kind": "other"}},
        {"feature_map": {"kind": "fourier", "n_components": 61, "gamma": 0.1}},
        {"feature_map": {"kind": "fourier", "n_components": 60, "gamma": 0.2}},
        {"feature_map": {"kind": "fourier", "n_components": 60, "gamma": "scale"}},
        {"feature_map": {"kind": "fourier", "n_components": 60, "gamma": float("nan")}},
        {"feature_map": []},
        {"n_features_in": None},
        {"n_features_in": 4},
        {"n_features_in": 5.0},
        {"n_features_in": True},
        {"n_features_in": 10**9},
        {"n_features_in": 10**6, "feature_names": None, "map_fingerprint": None},
        {"feature_names": ["a"]},
        {"map_fingerprint": "0" * 32},
        {"map_fingerprint": 3},
    ],
    ids=str,
)
def test_a_damaged_map_is_refused(tmp_path, changes):
    model = fitted(SCALER | FOURIER, names=NAMES)
    if "feature_map" in changes or "n_features_in" in changes:
        model = fitted(FOURIER, names=NAMES)
    if changes.get("n_features_in") == 10**6:
        model = fitted(NeuralTangentFeatures(2), names=NAMES)
    model.save(tmp_path / "file")
    content = json.loads((tmp_path / "file").read_text(encoding="utf-8"))
    (tmp_path / "file").write_text(json.dumps({**content, **changes}))
    with pytest.raises(FedRidgeError, match="is damaged"):
        RidgeModel.load(tmp_path / "file")


@each_map
@pytest.mark.parametrize("t", [None, 2])
@pytest.mark.filterwarnings("error")
def test_the_export_is_a_pipeline_on_raw_columns(feature_map, t):
    X, y = rows(t=t)
    model = fitted(feature_map, t, names=NAMES, alpha=0.5)
    pipeline = model.to_sklearn()
    assert isinstance(pipeline, Pipeline)
    assert type(pipeline[-1]) is Ridge
    table = frame(X)
    for each in (pipeline, pickle.loads(pickle.dumps(pipeline))):
        assert relative_error(each.predict(table), model.predict(X)) < 1e-14
    assert pipeline.score(table, y) == pytest.approx(model.score(X, y), rel=1e-12)
    with pytest.raises(ValueError, match="feature names"):
        pipeline.predict(frame(X, NAMES[::-1]))
    assert clone(pipeline).fit(table, y).predict(table).shape == y.shape


def test_our_own_transformer_fits_to_the_same_model():
    X, y = rows()
    tangent = NeuralTangentFeatures(8)
    model = fitted(tangent, alpha=0.5)
    again = clone(model.to_sklearn()).fit(X, y)
    assert relative_error(again.predict(X), model.predict(X)) < 1e-10
    other = make_pipeline(tangent.to_sklearn(D), Ridge(0.5)).fit(X, y)
    assert relative_error(other.predict(X), model.predict(X)) < 1e-10


def test_a_model_can_be_pickled():
    X, _ = rows()
    model = fitted(SCALER | FOURIER)
    back = pickle.loads(pickle.dumps(model))
    assert back.predict(X).tobytes() == model.predict(X).tobytes()
