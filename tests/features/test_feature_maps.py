"""Feature maps: the same everywhere, written down, read back, resolved by data."""

from __future__ import annotations

import contextlib
import hashlib
import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse
from sklearn.base import clone
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from fedridge_flwr import (
    DataError,
    FeatureMap,
    FedRidgeError,
    GaussianProjection,
    NeuralTangentFeatures,
    PolynomialMap,
    ProtocolError,
    RandomFourierFeatures,
    Standardize,
    StatisticsError,
)
from fedridge_flwr.data.rows import check_rows
from fedridge_flwr.features import ColumnMoments, Composition, check_allowed, map_rows
from fedridge_flwr.features.parsing import KINDS

D = 4
SCALER = Standardize(means=[1.0, -2.0, 0.0, 3.5], scales=[1.0, 0.5, 2.0, 10.0])
MAPS = [
    GaussianProjection(3, seed=5),
    GaussianProjection(4),
    RandomFourierFeatures(30, gamma=0.3, seed=2),
    NeuralTangentFeatures(6, seed=1),
    NeuralTangentFeatures(6, bias=False),
    PolynomialMap(3),
    PolynomialMap(2, interaction_only=True),
    SCALER,
    SCALER | RandomFourierFeatures(20, gamma=0.1),
    GaussianProjection(3) | PolynomialMap(2) | NeuralTangentFeatures(2),
]
each_map = pytest.mark.parametrize("feature_map", MAPS, ids=lambda m: m.to_json()[:50])


def some_rows(n=12, d=D, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)) * 2.0 + 0.5


def columns_of(X, weight=None):
    return ColumnMoments.from_rows(check_rows(X, np.zeros(X.shape[0]), weight))


# ---- the same everywhere ------------------------------------------------------------

ELSEWHERE = """
import hashlib, json, sys
import numpy as np
from fedridge_flwr import FeatureMap
X = np.arange(-20.0, 20.0).reshape(10, 4) / 7.0
for text in json.load(sys.stdin):
    feature_map = FeatureMap.from_json(text)
    mapped = np.ascontiguousarray(feature_map.transform(X))
    print(hashlib.sha256(mapped.tobytes()).hexdigest(), feature_map.fingerprint(4))
"""


def test_another_process_makes_the_same_bytes():
    X = np.arange(-20.0, 20.0).reshape(10, 4) / 7.0
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        input=json.dumps([each.to_json() for each in MAPS]),
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    for feature_map, line in zip(MAPS, done.stdout.splitlines(), strict=True):
        mapped = np.ascontiguousarray(feature_map.transform(X))
        digest = hashlib.sha256(mapped.tobytes()).hexdigest()
        assert line.split() == [digest, feature_map.fingerprint(D)]


def test_equal_numbers_have_equal_fingerprints_whatever_their_sign_of_zero():
    one, other = Standardize([0.0], [1.0]), Standardize([-0.0], [1.0])
    assert one == other
    assert one.to_json() == other.to_json()


def test_fingerprints_tell_everything_apart():
    maps = [
        RandomFourierFeatures(20, gamma=0.1),
        RandomFourierFeatures(21, gamma=0.1),
        RandomFourierFeatures(20, gamma=np.nextafter(0.1, 1)),
        RandomFourierFeatures(20, gamma=0.1, seed=1),
        GaussianProjection(2),
        GaussianProjection(2, seed=1),
        GaussianProjection(4),
        NeuralTangentFeatures(20),
        NeuralTangentFeatures(20, bias=False),
        PolynomialMap(1),
        PolynomialMap(2),
        PolynomialMap(2, interaction_only=True),
        SCALER,
        SCALER | PolynomialMap(2),
        PolynomialMap(2) | GaussianProjection(2),
    ]
    found = {each.fingerprint(D) for each in maps}
    assert len(found) == len(maps)
    assert all(len(each) == 32 and int(each, 16) >= 0 for each in found)
    assert maps[0].fingerprint(4) != maps[0].fingerprint(5)


def test_a_generator_that_draws_other_numbers_is_found_out(monkeypatch):
    feature_map = RandomFourierFeatures(7, gamma=0.7, seed=99)
    expected = feature_map.fingerprint(3)
    W, b = feature_map.numbers(3)
    from fedridge_flwr.features import base

    base._fingerprint.cache_clear()
    base._numbers.cache_clear()
    other = W.copy()
    other[2, 6] = np.nextafter(other[2, 6], 9)
    monkeypatch.setattr(RandomFourierFeatures, "_draw", lambda self, d: (other, b))
    try:
        assert feature_map.fingerprint(3) != expected
    finally:
        base._fingerprint.cache_clear()
        base._numbers.cache_clear()


@each_map
def test_rows_are_mapped_one_by_one(feature_map):
    X = some_rows()
    whole = feature_map.transform(X)
    assert whole.shape == (12, feature_map.n_features_out(D))
    assert whole.dtype == np.float64
    parts = np.concatenate([feature_map.transform(X[:5]), feature_map.transform(X[5:])])
    np.testing.assert_allclose(parts, whole, rtol=1e-12, atol=1e-14)
    one = feature_map.transform(X[:1])
    np.testing.assert_allclose(one, whole[:1], rtol=1e-12, atol=1e-14)
    assert feature_map.transform(X[:0]).shape == (0, feature_map.n_features_out(D))


@each_map
@pytest.mark.parametrize(
    "form",
    [
        sparse.csr_array,
        sparse.csr_matrix,
        sparse.csc_array,
        sparse.coo_array,
        np.asfortranarray,
        np.ndarray.tolist,
        lambda X: pytest.importorskip("pandas").DataFrame(X, columns=list("abcd")),
    ],
)
def test_the_container_does_not_matter(feature_map, form):
    X = some_rows() * (some_rows(seed=1) > 0)
    mapped = feature_map.transform(form(X))
    if sparse.issparse(mapped):
        assert feature_map.is_identity(D)
        mapped = mapped.toarray()
    np.testing.assert_allclose(mapped, feature_map.transform(X), rtol=1e-12, atol=1e-13)


def test_maps_cannot_be_changed():
    feature_map = RandomFourierFeatures(5)
    with pytest.raises(AttributeError):
        feature_map.seed = 3
    with pytest.raises(ValueError, match="read-only"):
        feature_map.numbers(3)[0][0] = 0.0


# ---- the kinds ----------------------------------------------------------------------


@given(
    degree=st.integers(1, 4),
    interaction_only=st.booleans(),
    X=hnp.arrays(
        np.float64,
        st.tuples(st.integers(0, 3), st.integers(1, 5)),
        elements=st.floats(-1e3, 1e3),
    ),
)
def test_polynomials_are_those_of_scikit_learn(degree, interaction_only, X):
    ours = PolynomialMap(degree, interaction_only)
    theirs = PolynomialFeatures(
        degree, interaction_only=interaction_only, include_bias=False
    )
    reference = theirs.fit(np.zeros((1, X.shape[1])))
    assert ours.n_features_out(X.shape[1]) == reference.n_output_features_
    if len(X):
        assert ours.transform(X).tobytes() == reference.transform(X).tobytes()


def test_a_projection_to_all_columns_is_skipped():
    X = some_rows()
    projection = GaussianProjection(D)
    assert projection.is_identity(D)
    assert projection.numbers(D) == ()
    assert np.array_equal(projection.transform(X), X)
    assert sparse.issparse(projection.transform(sparse.csr_array(X)))
    assert "no projection" in projection.describe(D)


def test_a_projection_cannot_make_more_columns():
    projection = GaussianProjection(50)
    for call in (
        lambda: projection.n_features_out(D),
        lambda: projection.transform(some_rows()),
        lambda: projection.fingerprint(D),
    ):
        with pytest.raises(DataError, match="needs at least as many, but X has 4"):
            call()


def test_the_original_coefficients_of_a_projection_predict_the_same():
    X, projection = some_rows(d=20), GaussianProjection(6, seed=3)
    for coef in (np.arange(6.0), np.arange(12.0).reshape(2, 6)):
        expected = projection.transform(X) @ coef.T
        found = X @ projection.original_coef(coef, 20).T
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_distortion_shrinks_with_more_components():
    X = np.random.default_rng(0).normal(size=(200, 1000))
    spans = []
    for m in (25, 100, 400):
        smallest, largest = GaussianProjection(m).distortion(X)
        assert smallest < 1 < largest
        spans.append(largest - smallest)
    assert spans[0] > 1.7 * spans[1] > 1.7**2 * spans[2]
    assert GaussianProjection(1000).distortion(X) == (1.0, 1.0)
    few = sparse.csr_array(X[:10])
    np.testing.assert_allclose(
        GaussianProjection(25).distortion(few),
        GaussianProjection(25).distortion(X[:10]),
    )


@pytest.mark.parametrize(
    ("X", "words"), [(np.ones((1, 9)), "two rows"), (np.ones((5, 9)), "are equal")]
)
def test_distances_need_different_rows(X, words):
    with pytest.raises(DataError, match=words):
        GaussianProjection(3).distortion(X)


@given(
    X=hnp.arrays(
        np.float64,
        st.tuples(st.integers(2, 8), st.integers(1, 4)),
        elements=st.integers(-1000, 1000).map(float),
    )
)
def test_standardised_columns_are_those_of_scikit_learn(X):
    resolved = Standardize().resolve(columns_of(X))
    reference = StandardScaler().fit(X)
    np.testing.assert_allclose(
        resolved.transform(X), reference.transform(X), rtol=1e-11, atol=1e-11
    )
    np.testing.assert_allclose(resolved.scales, reference.scale_, rtol=1e-12)


def test_constant_columns_far_from_zero_keep_their_scale():
    X = np.column_stack([np.full(50, 0.1 + 1e6), np.zeros(50), np.arange(50.0)])
    scales = Standardize().resolve(columns_of(X)).scales
    assert scales[:2] == (1.0, 1.0)
    assert scales[2] == pytest.approx(X[:, 2].std(), rel=1e-12)


def test_maps_in_a_row_are_applied_in_order():
    X = some_rows()
    inner, outer = SCALER, PolynomialMap(2)
    both = inner | outer
    expected = outer.transform(inner.transform(X))
    assert np.array_equal(both.transform(X), expected)
    assert both | inner == Composition((inner, outer, inner))
    assert inner | both == Composition((inner, inner, outer))
    with pytest.raises(TypeError):
        inner | 3
    with pytest.raises(FedRidgeError, match="9 maps in a row: at most 8"):
        both | both | both | both | inner
    with pytest.raises(FedRidgeError, match="two maps"):
        Composition((inner,))
    with pytest.raises(FedRidgeError, match="got int"):
        Composition((inner, 3))


# ---- bad rows -----------------------------------------------------------------------


@each_map
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_bad_values_are_named_by_their_raw_column(feature_map, bad, form):
    X = some_rows()
    X[3, 2] = bad
    with pytest.raises(DataError, match="NaN or infinite values in column 2"):
        feature_map.transform(form(X))


@each_map
def test_a_frame_is_named_by_its_own_names(feature_map):
    X = pytest.importorskip("pandas").DataFrame(some_rows(), columns=list("abcd"))
    X.loc[3, "c"] = np.nan
    with pytest.raises(DataError, match=r"column 2 \('c'\)") as caught:
        feature_map.transform(X)
    assert "'c'" not in caught.value.anonymous()


def test_features_that_overflow_are_refused():
    for feature_map in (PolynomialMap(3), NeuralTangentFeatures(3), SCALER):
        with pytest.raises(DataError, match="overflow float64"):
            feature_map.transform(np.full((1, D), 1.7e308))


@pytest.mark.parametrize(
    ("feature_map", "columns"),
    [
        (PolynomialMap(20), 1000),
        (NeuralTangentFeatures(10**6), 5),
        (RandomFourierFeatures(10**6), 10**6),
        (GaussianProjection(10**6 - 1), 10**6),
    ],
)
def test_maps_beyond_memory_are_refused(feature_map, columns):
    with pytest.raises(DataError, match="choose a smaller size"):
        feature_map.n_features_out(columns)


def test_another_number_of_columns_does_not_fit_standardised_ones():
    with pytest.raises(DataError, match="of 4 columns, but X has 3"):
        SCALER.transform(np.ones((2, 3)))


# ---- written down -------------------------------------------------------------------

sizes, seeds = st.integers(1, 10**6), st.integers(0, 2**63 - 1)
finite = st.floats(-1e200, 1e200)
positive = st.floats(1e-300, 1e300)
simple_maps = st.one_of(
    st.builds(GaussianProjection, sizes, seeds),
    st.builds(RandomFourierFeatures, sizes, positive | st.just("scale"), seeds),
    st.builds(NeuralTangentFeatures, sizes, st.booleans(), seeds),
    st.builds(PolynomialMap, st.integers(1, 20), st.booleans()),
    st.just(Standardize()),
    st.lists(st.tuples(finite, positive), min_size=1, max_size=5).map(
        lambda pairs: Standardize(*map(list, zip(*pairs, strict=True)))
    ),
)
any_maps = simple_maps | st.lists(simple_maps, min_size=2, max_size=4).map(
    lambda maps: Composition(tuple(maps))
)


@given(feature_map=any_maps)
def test_json_comes_back_as_the_same_map(feature_map):
    text = feature_map.to_json()
    back = FeatureMap.from_json(text)
    assert back == feature_map
    assert hash(back) == hash(feature_map)
    assert back.to_json() == text
    assert " " not in text
    assert pickle.loads(pickle.dumps(feature_map)) == feature_map


def test_standardising_a_hundred_thousand_columns_fits_into_the_text():
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=100_000) * 1e-200
    feature_map = Standardize(numbers, np.abs(numbers))
    assert FeatureMap.from_json(feature_map.to_json()) == feature_map


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fourier 200 gamma=0.1 seed=3", RandomFourierFeatures(200, 0.1, 3)),
        ("fourier 200", RandomFourierFeatures(200)),
        ("fourier n_components=200 gamma=1e-3", RandomFourierFeatures(200, 1e-3)),
        ("projection 50", GaussianProjection(50)),
        ("tangent 400 bias=false", NeuralTangentFeatures(400, bias=False)),
        ("polynomial 2", PolynomialMap(2)),
        ("polynomial 2 interaction_only=True", PolynomialMap(2, True)),
        (
            "standardize | fourier 500 gamma=scale",
            Standardize() | RandomFourierFeatures(500, "scale"),
        ),
    ],
)
def test_the_short_spelling(text, expected):
    assert FeatureMap.from_text(text) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Known are: .*fourier N_COMPONENTS gamma=... seed=..."),
        ("  ", "no feature map"),
        ("furier 200", "no feature map 'furier'.*Known are"),
        ("composition", "no feature map 'composition'"),
        ("fourier", "fourier needs n_components"),
        ("fourier 200 0.1", "'0.1' is not name=value"),
        ("fourier 200 gama=0.1", "no parameter 'gama'.*gamma="),
        ("fourier 200 seed=1 seed=2", "seed twice"),
        ("fourier 0", "n_components must be a whole number from 1"),
        ("fourier 2.5", "n_components must be a whole number"),
        ("fourier true", "n_components must be a whole number"),
        ("fourier 200 gamma=auto", 'above zero or "scale", got .auto'),
        ("fourier 200 gamma=nan", "above zero"),
        ("fourier 200 gamma=-1", "above zero"),
        ("fourier 200 seed=-1", "seed must be a whole number from 0"),
        ("tangent 5 bias=1", "bias must be true or false"),
        ("polynomial 21", "degree must be a whole number from 1 to 20"),
        ("standardize 5", "'5' is not name=value"),
        ("standardize means=3", "no parameter 'means'"),
        ("standardize |", "an empty map"),
        (" | ".join(["standardize"] * 9), "at most 8"),
        (None, "no feature map"),
    ],
)
def test_what_is_not_spelled_well_is_refused_and_told(text, words):
    with pytest.raises(FedRidgeError, match=words):
        FeatureMap.from_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        "null",
        '"fourier"',
        "[" * 100_000,
        '{"kind":' * 50_000,
        "9" * 10_000,
        '{"kind":"fourier"}',
        '{"kind":"other","n_components":3}',
        '{"kind":["fourier"],"n_components":3}',
        '{"kind":{},"n_components":3}',
        '{"n_components":3}',
        '{"kind":"fourier","n_components":3,"extra":1}',
        '{"kind":"fourier","n_components":3,"n_components":4}',
        '{"kind":"fourier","n_components":true}',
        '{"kind":"fourier","n_components":3.0}',
        '{"kind":"fourier","n_components":"3"}',
        '{"kind":"fourier","n_components":[3]}',
        '{"kind":"fourier","n_components":0}',
        '{"kind":"fourier","n_components":1000001}',
        '{"kind":"fourier","n_components":1' + "0" * 3000 + "}",
        '{"kind":"fourier","n_components":3,"gamma":NaN}',
        '{"kind":"fourier","n_components":3,"gamma":Infinity}',
        '{"kind":"fourier","n_components":3,"gamma":1e999}',
        '{"kind":"fourier","n_components":3,"gamma":1' + "0" * 3000 + "}",
        '{"kind":"fourier","n_components":3,"gamma":0}',
        '{"kind":"fourier","n_components":3,"gamma":true}',
        '{"kind":"fourier","n_components":3,"gamma":"auto"}',
        '{"kind":"fourier","n_components":3,"gamma":null}',
        '{"kind":"fourier","n_components":3,"seed":-1}',
        '{"kind":"fourier","n_components":3,"seed":1.5}',
        '{"kind":"fourier","n_components":3,"seed":9223372036854775808}',
        '{"kind":"tangent","width":3,"bias":1}',
        '{"kind":"polynomial","degree":2,"interaction_only":"yes"}',
        '{"kind":"standardize","means":[1.0],"scales":null}',
        '{"kind":"standardize","means":[1.0],"scales":[0.0]}',
        '{"kind":"standardize","means":[1.0],"scales":[-1.0]}',
        '{"kind":"standardize","means":[1.0],"scales":[1.0,2.0]}',
        '{"kind":"standardize","means":[],"scales":[]}',
        '{"kind":"standardize","means":["a"],"scales":[1.0]}',
        '{"kind":"standardize","means":"a","scales":"b"}',
        '{"kind":"standardize","means":[true],"scales":[1.0]}',
        '{"kind":"standardize","means":[[1.0]],"scales":[1.0]}',
        '{"kind":"standardize","means":[1' + "0" * 3000 + '],"scales":[1.0]}',
        '{"kind":"composition"}',
        '{"kind":"composition","maps":[]}',
        '{"kind":"composition","maps":{}}',
        '{"kind":"composition","maps":[3,4]}',
        '{"kind":"composition","maps":[{"kind":"standardize"}]}',
        json.dumps({"kind": "composition", "maps": [{"kind": "standardize"}] * 9}),
        json.dumps({"kind": "composition", "maps": [{"kind": "composition"}] * 2}),
        " " * 8_000_001,
        b"{}",
        None,
    ],
    ids=lambda text: repr(text)[:50],
)
def test_hostile_json_is_refused(text):
    with pytest.raises(ProtocolError) as caught:
        FeatureMap.from_json(text)
    assert len(str(caught.value)) < 700


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["fourier", "scale", "composition", "kind", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["kind", "maps", "n_components", "gamma", "seed", "means"]),
            inner,
        )
    ),
    max_leaves=8,
)


@given(content=json_values)
def test_any_json_is_a_map_or_refused(content):
    try:
        feature_map = FeatureMap.from_json(json.dumps(content))
    except ProtocolError:
        return
    assert FeatureMap.from_json(feature_map.to_json()) == feature_map


@given(
    feature_map=simple_maps,
    key=st.sampled_from(["kind", "n_components", "gamma", "seed", "bias", "degree"]),
    value=json_values,
)
def test_a_map_with_something_changed_is_a_map_or_refused(feature_map, key, value):
    content = json.loads(feature_map.to_json())
    with contextlib.suppress(ProtocolError):
        FeatureMap.from_json(json.dumps({**content, key: value}))


@each_map
def test_a_map_is_told_in_words(feature_map):
    words = feature_map.describe(D)
    assert str(D) in words
    assert "\n" not in words


# ---- scikit-learn -------------------------------------------------------------------


@each_map
@pytest.mark.filterwarnings("error")
def test_the_transformer_maps_the_same(feature_map):
    X = some_rows()
    transformer = feature_map.to_sklearn(D)
    expected = feature_map.transform(X)
    again = pickle.loads(pickle.dumps(transformer))
    for each in (transformer, again):
        np.testing.assert_allclose(each.transform(X), expected, rtol=1e-13, atol=1e-14)
    clone(transformer).fit(X)
    with pytest.raises(ValueError, match="features"):
        transformer.transform(X[:, :3])


# ---- rules that need data -----------------------------------------------------------

UNRESOLVED = [
    RandomFourierFeatures(10, gamma="scale"),
    Standardize(),
    Standardize() | RandomFourierFeatures(10, gamma="scale"),
]


@pytest.mark.parametrize("feature_map", UNRESOLVED, ids=lambda m: m.kind)
def test_a_map_without_numbers_says_what_to_do(feature_map):
    X = some_rows()
    assert feature_map.needs_data
    assert feature_map.n_features_out(D) in (D, 10)
    for call in (
        lambda: feature_map.transform(X),
        lambda: feature_map.fingerprint(D),
        lambda: feature_map.numbers(D),
        lambda: feature_map.to_sklearn(D),
        lambda: map_rows(check_rows(X, X[:, 0]), feature_map),
    ):
        with pytest.raises(FedRidgeError, match="let FedRidge agree on"):
            call()
    with pytest.raises(FedRidgeError, match="rows, there are none"):
        feature_map.resolve(columns_of(X[:0]))
    assert not feature_map.resolve(columns_of(X)).needs_data


@given(
    cuts=st.lists(st.integers(0, 40), min_size=3, max_size=3),
    shift=st.sampled_from([0.0, 1e3]),
    form=st.sampled_from([np.asarray, sparse.csr_array, sparse.csc_array]),
)
def test_gamma_is_scikit_learns_whatever_the_split(cuts, shift, form):
    X = some_rows(40) * [1.0, 5.0, 0.1, 2.0] + shift
    parts = np.split(X, sorted(cuts))
    total = sum(columns_of(form(part)) for part in parts)
    resolved = RandomFourierFeatures(10, gamma="scale").resolve(total)
    assert resolved.gamma == pytest.approx(1.0 / (D * X.var()), rel=1e-11)
    assert resolved == RandomFourierFeatures(10, gamma=resolved.gamma)


def test_gamma_of_constant_columns_is_one_as_in_scikit_learn():
    total = columns_of(np.full((5, 3), 7.0))
    assert RandomFourierFeatures(10, gamma="scale").resolve(total).gamma == 1.0


def test_moments_reach_the_map_behind_standardised_columns():
    X = some_rows(50) * [1.0, 100.0, 0.0, 3.0] + 7.0
    both = UNRESOLVED[2].resolve(columns_of(X))
    scaled = StandardScaler().fit_transform(X)
    assert both.maps[1].gamma == pytest.approx(1.0 / (D * scaled.var()), rel=1e-12)
    nested = Standardize() | GaussianProjection(4) | RandomFourierFeatures(5, "scale")
    assert nested.resolve(columns_of(X)).maps[2].gamma == both.maps[1].gamma


def test_numbers_in_place_are_left_alone():
    columns = columns_of(some_rows())
    for feature_map in MAPS:
        assert feature_map.resolve(columns) == feature_map


def test_moments_behind_a_projection_are_not_known():
    late = GaussianProjection(2) | RandomFourierFeatures(5, "scale")
    with pytest.raises(FedRidgeError, match="after projection are not known"):
        late.resolve(columns_of(some_rows()))


# ---- kinds, and what a client allows -------------------------------------------------


@pytest.mark.parametrize("name", ["kind", "number"])
def test_a_kind_and_a_number_belong_to_one_class(name):
    known = dict(KINDS)
    taken = getattr(PolynomialMap, name)
    own = {"kind": "mine", "number": 99, name: taken}
    with pytest.raises(FedRidgeError, match=f"Mine has the {name} .* PolynomialMap"):
        type("Mine", (FeatureMap,), own)
    with pytest.raises(FedRidgeError, match="Heir has the kind 'polynomial'"):
        type("Heir", (PolynomialMap,), {})
    assert known == KINDS


def test_a_module_with_a_kind_can_be_loaded_again():
    known = dict(KINDS)
    own = {"kind": "mine", "number": 99}
    try:
        first, second = (type("Mine", (FeatureMap,), own) for _ in range(2))
        assert KINDS["mine"] is second is not first
    finally:
        KINDS.clear()
        KINDS.update(known)


def test_a_refusal_says_in_what_maps_of_the_same_spelling_differ():
    other = Standardize(means=SCALER.means, scales=[1.0, 0.5, 2.0, 11.0])
    with pytest.raises(
        ProtocolError, match=r"allows: standardize with other scales\.$"
    ):
        check_allowed(other, (SCALER,))
    poly = PolynomialMap(2)
    with pytest.raises(ProtocolError, match="interaction_only=False with other scales"):
        check_allowed(other | poly, (poly, SCALER | poly))


# ---- moments of columns -------------------------------------------------------------

blocks = hnp.arrays(
    np.float64, st.tuples(st.integers(0, 6), st.just(3)), elements=st.floats(-1e6, 1e6)
)


@given(A=blocks, B=blocks, form=st.sampled_from([np.asarray, sparse.csr_array]))
def test_moments_of_columns_obey_the_law(A, B, form):
    both = np.concatenate([A, B])
    merged = columns_of(form(A)) + columns_of(form(B))
    assert merged.weight == len(both)
    if len(both):
        size = 1.0 + np.abs(both).max(axis=0)
        assert (np.abs(merged.means - both.mean(axis=0)) <= 1e-14 * size).all()
        assert (np.abs(merged.variances - both.var(axis=0)) <= 1e-13 * size**2).all()
    back = ColumnMoments.from_array(merged.to_array())
    assert back.to_array().tobytes() == merged.to_array().tobytes()


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_weights_are_repeated_rows(form):
    X, weight = some_rows(), np.arange(12) % 4
    weighted = columns_of(form(X), weight).to_array()
    repeated = columns_of(np.repeat(X, weight, axis=0)).to_array()
    np.testing.assert_allclose(weighted, repeated, rtol=1e-12)


def test_moments_of_bad_columns_name_them():
    X = some_rows()
    X[1, 3] = np.nan
    with pytest.raises(DataError, match="1 NaN or infinite value in column 3"):
        columns_of(X)
    with pytest.raises(DataError, match="overflow"):
        columns_of(np.array([[1e200], [-1e200]]))


@pytest.mark.parametrize(
    "array",
    [
        [2.0, 1.0, np.nan],
        [2.0, np.inf, 1.0],
        [2.0, 1.0, -1.0],
        [-2.0, 1.0, 1.0],
        [0.0, 1.0, 1.0],
        [2.0, 1e200, 1.0],
        [2.0, 1.0],
        [2.0],
        [],
        [[2.0, 1.0, 1.0]],
        np.array([2, 1, 1]),
        np.array(["a", "b", "c"]),
    ],
    ids=str,
)
def test_moments_that_no_rows_have_are_refused(array):
    with pytest.raises(StatisticsError):
        ColumnMoments.from_array(np.asarray(array))


def test_moments_of_other_columns_do_not_merge():
    with pytest.raises(StatisticsError, match="4 columns on one side, 3 on the other"):
        columns_of(some_rows()) + columns_of(some_rows(d=3))
