"""The exact answer in several rounds: laws of its parts, and the whole in one process.

`tests/flower/test_multiround_requests.py` has the same over Flower.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from fits import run_fit
from generators import relative_error as relative
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fedridge_flwr import SufficientStatistics
from fedridge_flwr.data.rows import check_rows
from fedridge_flwr.data.schema import Schema
from fedridge_flwr.errors import (
    DataError,
    FedRidgeError,
    NotConvergedWarning,
    NotEnoughClientsError,
    PrivacyError,
    SingularSystemError,
    StatisticsError,
)
from fedridge_flwr.federation.costs import (
    MOST_FEATURES,
    refine_bytes,
    refine_rounds,
)
from fedridge_flwr.federation.requests import Limits, choose_mode
from fedridge_flwr.federation.settings import FitSettings
from fedridge_flwr.linalg.packed import packed_length
from fedridge_flwr.linalg.pivoted import trapezoid_length
from fedridge_flwr.multiround import Opening, centred_product
from fedridge_flwr.multiround.int8 import dequantise, n_blocks, quantise
from fedridge_flwr.multiround.opening import head_length
from fedridge_flwr.multiround.products import first_moments
from fedridge_flwr.privacy import DifferentialPrivacy


def refine(clients, faults=None, mode="refine", **settings):
    return run_fit(clients, faults, mode=mode, **settings)


def some_rows(n: int, d: int, t: int = 1, seed: int = 0, **look: object):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) @ (np.eye(d) + 0.3 * rng.normal(size=(d, d)))
    X = X * look.get("scale", 1.0) + look.get("shift", 0.0)
    Y = X @ rng.normal(size=(d, t)) + rng.normal(size=(n, t))
    weight = rng.uniform(0.1, 3.0, size=n) if look.get("weights") else None
    return X, (Y[:, 0] if t == 1 else Y), weight


def split(rows, sizes):
    X, y, weight = rows
    clients, start = {}, 0
    for k, size in enumerate(sizes):
        part = slice(start, start + size)
        own = None if weight is None else weight[part]
        clients[f"client {k}"] = (X[part], y[part], own)
        start += size
    return clients


# ---- parts ---------------------------------------------------------------------------


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300),
    st.sampled_from([1e-300, 1e-12, 1.0, 1e12]),
)
def test_codes_are_off_by_half_a_scale_at_most(numbers, unit):
    values = unit * np.array(numbers)
    codes, scales = quantise(values)
    assert codes.size == values.size
    assert scales.size == n_blocks(values.size)
    wide = np.repeat(scales.astype(float), 64)[: values.size]
    # A scale is float32: what is below its range is nothing.
    slack = 0.5001 * wide + 1e-36
    assert (np.abs(dequantise(codes, scales) - values) <= slack).all()


@pytest.mark.parametrize("kind", ["dense", "sparse", "float32", "weights"])
@pytest.mark.parametrize("t", [1, 3])
def test_products_and_moments_are_those_of_the_statistics(kind, t):
    X, y, weight = some_rows(70, 9, t, weights=kind == "weights", shift=2.0)
    if kind == "float32":
        X = X.astype(np.float32)
    given_X = sparse.csr_array(X) if kind == "sparse" else X
    rows = check_rows(given_X, y, weight)
    stats = SufficientStatistics.from_data(X, y, weight)
    found = first_moments(rows)
    V = np.random.default_rng(1).normal(size=(9, 2))
    assert found.weight == pytest.approx(stats.total_weight, rel=1e-14)
    np.testing.assert_allclose(found.means, stats.means, rtol=1e-12)
    np.testing.assert_allclose(found.variances, np.diagonal(stats.comoment), rtol=1e-11)
    np.testing.assert_allclose(found.moment, stats.centred_moment, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        centred_product(rows, V), stats.centred_gram @ V, rtol=1e-10, atol=1e-10
    )


def test_a_shift_by_a_million_costs_a_product_nothing():
    X, y, _ = some_rows(200, 6)
    V = np.ones((6, 1))
    near = centred_product(check_rows(X, y), V)
    far = centred_product(check_rows(X + 2.0**20, y), V)
    assert relative(far, near) < 1e-9


@pytest.mark.parametrize(("n", "d"), [(2, 5), (5, 12), (12, 12), (13, 12), (80, 7)])
@pytest.mark.parametrize("weights", [False, True])
def test_an_opening_comes_back_and_its_factor_is_like_the_correlations(n, d, weights):
    X, y, weight = some_rows(n, d, weights=weights)
    opening = Opening.from_rows(check_rows(X, y, weight))
    back = Opening.from_arrays(
        list(opening.to_arrays().values()), Schema(d), n, factor=True
    )
    stats = SufficientStatistics.from_data(X, y, weight)
    size = np.sqrt(np.diagonal(stats.centred_gram))
    factor = back.factor.matrix()
    exact = stats.centred_gram / np.outer(size, size)
    bound = 2 * np.sqrt(d) * back.factor.error + back.factor.error**2 + 1e-9
    assert np.linalg.norm(factor.T @ factor - exact) <= bound
    assert trapezoid_length(n, d) >= back.factor.codes.size
    np.testing.assert_array_equal(back.moments.moment, opening.moments.moment)


@pytest.mark.parametrize("d", [4, 30])
def test_columns_that_do_not_vary_have_no_factor(d):
    X, y, _ = some_rows(12, d)
    X[:, 1] = 3.0
    X[:, 0] = -1e6
    opening = Opening.from_rows(check_rows(X, y))
    assert not opening.rough_rows()[:, :2].any()
    arrays = list(opening.to_arrays().values())
    Opening.from_arrays(arrays, Schema(d), 12, factor=True)


@pytest.mark.parametrize("n", [0, 2, 3, 5])
def test_an_opening_without_weight_is_one_of_nothing(n):
    rows = check_rows(np.ones((n, 3)), np.ones(n), np.zeros(n))
    opening = Opening.from_rows(rows)
    assert opening.moments.weight == 0
    assert opening.factor.codes.size == 0
    arrays = list(opening.to_arrays().values())
    Opening.from_arrays(arrays, Schema(3), n, factor=True)


def test_a_client_names_its_bad_columns():
    X, y, _ = some_rows(20, 4)
    X[3, 2] = np.nan
    rows = check_rows(X, y)
    for work in (
        lambda: Opening.from_rows(rows),
        lambda: centred_product(rows, np.ones((4, 1))),
    ):
        with pytest.raises(DataError, match="column 2"):
            work()


def _spoilt(arrays, name, change):
    changed = {key: array.copy() for key, array in arrays.items()}
    changed[name] = change(changed[name])
    return list(changed.values())


def _put(place, value):
    def change(array):
        array[place] = value
        return array

    return change


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("head", lambda a: a[:-1]),
        ("head", lambda a: a.astype(np.float32)),
        ("head", _put(0, -1.0)),
        ("head", _put(0, np.inf)),
        ("head", _put(1, np.nan)),
        ("head", _put(1, 1e200)),
        ("head", _put(12, -1.0)),
        ("head", _put(-1, 1e9)),
        ("codes", lambda a: a[:-1]),
        ("codes", lambda a: a.astype(np.int16)),
        ("codes", lambda a: np.zeros_like(a)),
        ("codes", lambda a: np.full_like(a, 127)),
        ("codes", _put(0, -128)),
        ("codes", lambda a: np.zeros(0, np.int8)),
        ("order", lambda a: a[:-1]),
        ("order", _put(0, 1)),
        ("order", lambda a: a.astype(np.int64)),
        ("scales", lambda a: a[:-1]),
        ("scales", lambda a: -a),
        ("scales", lambda a: a * 0),
        ("scales", lambda a: a * 3),
        ("scales", _put(0, np.nan)),
        ("scales", lambda a: a.astype(float)),
    ],
)
def test_openings_that_no_rows_have_are_refused(name, change):
    X, y, _ = some_rows(6, 10)
    arrays = Opening.from_rows(check_rows(X, y)).to_arrays()
    with pytest.raises(StatisticsError):
        Opening.from_arrays(
            _spoilt(arrays, name, change), Schema(10, 1), 6, factor=True
        )


@given(st.binary(max_size=200), st.integers(1, 6), st.integers(0, 9))
@settings(max_examples=200)
def test_whatever_arrives_as_an_opening_it_is_an_opening_or_an_error(data, d, count):
    head = np.resize(np.frombuffer(data + bytes(8), np.int8), 8 * head_length(d, 1))
    codes = np.frombuffer(data, np.int8)
    scales = np.ones(n_blocks(codes.size), np.float32)
    arrays = [head.view(np.float64), codes, scales, np.arange(d, dtype=np.int32)]
    try:
        with np.errstate(all="ignore"):
            Opening.from_arrays(arrays, Schema(d, 1), count, factor=True)
    except FedRidgeError:
        pass


# ---- the whole -----------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["refine", "cg"])
@pytest.mark.parametrize("t", [1, 3])
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_the_answer_is_pooled_ridge(mode, t, weights, fit_intercept):
    rows = some_rows(180, 40, t, weights=weights, shift=3.0)
    clients = split(rows, [100, 10, 30, 1, 39])
    fit = refine(clients, mode=mode, alpha=2.0, fit_intercept=fit_intercept)
    X, y, weight = rows
    pooled = Ridge(alpha=2.0, fit_intercept=fit_intercept, solver="svd")
    pooled.fit(X, y, sample_weight=weight)
    assert fit.model.coef_.shape == pooled.coef_.shape
    assert relative(fit.model.coef_, pooled.coef_) < 1e-9
    assert np.allclose(fit.model.intercept_, pooled.intercept_, rtol=1e-8, atol=1e-8)
    score = pooled.score(X, y, sample_weight=weight)
    assert fit.model.r2_ == pytest.approx(score, abs=1e-9)
    assert fit.model.n_rows_ == 180
    assert fit.report.refinement.converged


def test_standardised_features_are_penalised_by_the_variance_of_all_rows():
    rows = some_rows(150, 12, scale=10.0 ** np.arange(-3, 3, 0.5))
    fit = refine(split(rows, [50, 70, 30]), alpha=5.0, standardize=True)
    X, y, _ = rows
    pooled = make_pipeline(StandardScaler(), Ridge(alpha=5.0)).fit(X, y)
    coef = pooled[-1].coef_ / pooled[0].scale_
    assert relative(fit.model.coef_ * pooled[0].scale_, coef * pooled[0].scale_) < 1e-9


@pytest.mark.parametrize("n_k", [60, 300])
def test_badly_scaled_columns_take_few_rounds(n_k):
    """Done when 2: columns from 1e-3 to 1e3, at most 15 rounds."""
    rng = np.random.default_rng(5)
    scale = 10.0 ** rng.uniform(-3, 3, 120)
    X = rng.normal(size=(5 * n_k, 120)) * scale
    y = X @ (rng.normal(size=120) / scale) + rng.normal(size=len(X))
    fit = refine(split((X, y, None), [n_k] * 5), alpha=1e-6)
    pooled = Ridge(alpha=1e-6, solver="svd").fit(X, y)
    assert fit.report.refinement.rounds <= 15
    assert relative(fit.model.coef_ * scale, pooled.coef_ * scale) < 1e-8


def test_clients_that_see_other_columns_each():
    X, y, _ = some_rows(200, 40)
    clients = {}
    for k in range(5):
        own = X[40 * k : 40 * k + 40].copy()
        own[:, np.arange(40) // 8 != k] = 0.0
        clients[f"client {k}"] = (own, y[40 * k : 40 * k + 40])
    fit = refine(clients, alpha=0.5)
    pooled = Ridge(alpha=0.5).fit(
        np.vstack([c[0] for c in clients.values()]),
        np.concatenate([c[1] for c in clients.values()]),
    )
    assert relative(fit.model.coef_, pooled.coef_) < 1e-9


def test_a_target_that_does_not_vary_needs_no_second_round():
    X, _, _ = some_rows(50, 4)
    fit = refine({"a": (X[:20], np.ones(20)), "b": (X[20:], np.ones(30))})
    assert fit.report.refinement.rounds == 1
    assert not fit.model.coef_.any()
    assert fit.model.intercept_ == pytest.approx(1.0)


def _away_from(when: int):
    def fault(number, product):
        if number >= when:
            raise ConnectionError
        return product

    return fault


@pytest.mark.parametrize("when", [2, 3, 5])
@pytest.mark.parametrize("mode", ["refine", "cg"])
def test_without_those_who_drop_out_it_is_ridge_on_the_rows_of_the_others(when, mode):
    rows = some_rows(240, 50, 2)
    clients = split(rows, [60, 60, 60, 60])
    fit = refine(clients, {"client 1": _away_from(when)}, mode=mode, alpha=0.5)
    X, y, _ = rows
    stay = np.r_[0:60, 120:240]
    pooled = Ridge(alpha=0.5, solver="svd").fit(X[stay], y[stay])
    assert relative(fit.model.coef_, pooled.coef_) < 1e-9
    assert fit.report.participants == ["client 0", "client 2", "client 3"]
    assert fit.report.failures == {"client 1": f"round {when}: no answer"}
    assert fit.model.n_rows_ == 180


def test_two_drop_out_one_after_the_other():
    rows = some_rows(240, 30)
    faults = {"client 0": _away_from(3), "client 3": _away_from(4)}
    fit = refine(split(rows, [60] * 4), faults, alpha=0.5)
    X, y, _ = rows
    pooled = Ridge(alpha=0.5).fit(X[60:180], y[60:180])
    assert relative(fit.model.coef_, pooled.coef_) < 1e-9
    assert set(fit.report.failures) == {"client 0", "client 3"}


def test_it_ends_where_too_few_are_left():
    clients = split(some_rows(120, 30), [60, 60])
    with pytest.raises(NotEnoughClientsError, match=r"round 3.*client 1.*no answer"):
        refine(clients, {"client 1": _away_from(3)}, min_clients=2)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda product: -product,
        lambda product: 100.0 * product,
        lambda product: product[::-1].copy(),
        lambda product: np.random.default_rng(0).normal(size=product.shape),
        lambda product: product + 0.01 * np.abs(product).max(),
        lambda product: np.full_like(product, np.nan),
        lambda product: product[:-1],
        lambda product: product.astype(np.float32),
        lambda product: "product",
        lambda product: np.zeros_like(product),
    ],
)
@pytest.mark.parametrize("mode", ["refine", "cg"])
def test_a_client_whose_products_cannot_be_is_taken_out_and_named(spoil, mode):
    rows = some_rows(240, 50)

    def fault(number, product):
        return spoil(product) if number >= 3 else product

    fit = refine(split(rows, [60] * 4), {"client 2": fault}, mode=mode, alpha=0.5)
    X, y, _ = rows
    stay = np.r_[0:120, 180:240]
    pooled = Ridge(alpha=0.5).fit(X[stay], y[stay])
    assert set(fit.report.failures) == {"client 2"}
    assert "round 3" in fit.report.failures["client 2"]
    assert relative(fit.model.coef_, pooled.coef_) < 1e-9


def test_honest_clients_are_never_taken_for_liars():
    for seed in range(15):
        scale = 10.0 ** np.random.default_rng(seed).uniform(-6, 6, 25)
        rows = some_rows(90, 25, seed=seed, scale=scale, shift=10.0 ** (seed % 8))
        fit = refine(split(rows, [10, 20, 60]), alpha=1e-3)
        assert fit.report.failures == {}


def test_too_few_rounds_are_told_and_reported():
    clients = split(some_rows(200, 60), [100, 100])
    with pytest.warns(NotConvergedWarning, match="max_rounds=3 was reached"):
        fit = refine(clients, max_rounds=3)
    assert not fit.report.refinement.converged
    assert "NOT what was asked for" in str(fit.report)


def test_nobody_has_rows():
    empty = (np.zeros((0, 3)), np.zeros(0))
    with pytest.raises(NotEnoughClientsError, match="client a: has no rows"):
        refine({"a": empty, "b": empty})


@pytest.mark.parametrize(
    ("X", "reason"),
    [
        (np.random.default_rng(0).normal(size=(8, 20)), "8 rows cannot determine 21"),
        (np.c_[np.arange(30.0), np.ones(30)], "1 feature of 2 do not vary"),
    ],
)
def test_without_a_penalty_the_rows_must_suffice(X, reason):
    with pytest.raises(SingularSystemError, match=reason):
        refine({"a": (X, X[:, 0])}, alpha=0.0)


def test_ordinary_least_squares():
    rows = some_rows(200, 20)
    fit = refine(split(rows, [100, 100]), alpha=0.0)
    X, y, _ = rows
    expected = np.linalg.lstsq(np.c_[X, np.ones(200)], y, rcond=None)[0]
    assert relative(fit.model.coef_, expected[:-1]) < 1e-9


@pytest.mark.parametrize("n_k", [20, 100])
def test_without_a_penalty_dependent_columns_are_found_out(n_k):
    X, y, _ = some_rows(4 * n_k, 12)
    for how in (lambda X: X[:, 2] - 2.0 * X[:, 7], lambda X: X[:, 0]):
        X[:, 5] = how(X)
        with pytest.raises(SingularSystemError, match="columns depend on each other"):
            refine(split((X, y, None), [n_k] * 4), alpha=0.0)


def test_nothing_is_left_of_a_solution_that_only_others_had():
    X, y, _ = some_rows(90, 8)
    y[30:] = 0.1
    fit = refine(split((X, y, None), [30] * 3), {"client 0": _away_from(3)})
    assert np.abs(fit.model.coef_).max() < 1e-10
    assert fit.model.intercept_ == pytest.approx(0.1)


@pytest.mark.parametrize("scale", [1e6, 1e12, 1e30])
@pytest.mark.parametrize("mode", ["refine", "cg"])
def test_a_giant_that_leaves_takes_no_digits_with_it(scale, mode):
    X, y, _ = some_rows(120, 10)
    giant = y.copy()
    giant[80:] *= scale
    clients = split((X, giant, None), [40] * 3)
    fit = refine(clients, {"client 2": _away_from(3)}, mode=mode)
    pooled = Ridge(alpha=1.0).fit(X[:80], y[:80])
    assert relative(fit.model.coef_, pooled.coef_) < 1e-9


def test_a_lie_that_is_symmetric_is_found_by_the_factor():
    rows = some_rows(400, 50)
    memory = {}

    def fault(number, product):
        # As if of C + (e v' + v e')/|v|², for the first direction v.
        memory.setdefault("size", np.abs(product).max())
        return product + 0.3 * memory["size"] * (np.arange(50.0)[:, None] % 2 - 0.5)

    fit = refine(split(rows, [100] * 4), {"client 3": fault}, alpha=0.5)
    X, y, _ = rows
    pooled = Ridge(alpha=0.5).fit(X[:300], y[:300])
    assert list(fit.report.failures) == ["client 3"]
    assert relative(fit.model.coef_, pooled.coef_) < 1e-9


def test_entries_of_a_sparse_matrix_that_come_in_parts():
    data, places = [1.0, 2.0, 0.5, 4.0, 1.0], [0, 0, 1, 1, 0]
    X = sparse.csr_matrix((data, places, [0, 2, 3, 5]), shape=(3, 2))
    y = np.array([1.0, 2.0, 3.0])
    whole = first_moments(check_rows(X.toarray(), y))
    parts = first_moments(check_rows(X, y))
    np.testing.assert_allclose(parts.variances, whole.variances)
    assert X.nnz == 5, "the user's matrix is left as it was"


def test_products_are_bounded_by_the_variances_of_a_client():
    rows = some_rows(240, 50)
    clients = split(rows, [80] * 3)
    tiny = np.random.default_rng(3).normal(size=(3, 50)) * 1e-3
    clients["tiny"] = (tiny, np.ones(3))

    def fault(number, product):
        return product + 1e-2 * (np.arange(50.0)[:, None] % 3 - 1)

    fit = refine(clients, {"tiny": fault}, alpha=0.5)
    X, y, _ = rows
    pooled = Ridge(alpha=0.5).fit(X, y)
    assert "its own variances" in fit.report.failures["tiny"]
    assert relative(fit.model.coef_, pooled.coef_) < 1e-9


def test_numbers_that_overflow_do_not_pass():
    def fault(number, product):
        product = product.copy()
        product[:4, 0] = [1.7e308, -1.7e308, 1.7e308, -1.7e308]
        return product

    for mode in ("refine", "cg"):
        fit = refine(split(some_rows(120, 8), [40] * 3), {"client 1": fault}, mode=mode)
        assert list(fit.report.failures) == ["client 1"]
        assert fit.report.refinement.converged


@pytest.mark.parametrize("constant", [1.0, 1e4, 1e6])
@pytest.mark.parametrize("n_k", [1, 2, 30])
def test_honest_sparse_clients_stay(constant, n_k):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = sparse.random(3 * n_k, 8, 0.3, random_state=seed, format="lil")
        X[:, 2] = constant
        y, weight = rng.normal(size=3 * n_k), 10.0 ** rng.uniform(-3, 3, 3 * n_k)
        clients = {str(k): (X.tocsr()[k::3], y[k::3], weight[k::3]) for k in range(3)}
        for mode in ("refine", "cg"):
            assert refine(clients, mode=mode).report.failures == {}


def test_columns_that_vary_less_than_rounding_make_honest_openings():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(60, 5))
        X[:, 1] = 1.7e9 + 1e-7 * rng.normal(size=60)
        opening = Opening.from_rows(check_rows(X, X[:, 0]))
        arrays = list(opening.to_arrays().values())
        Opening.from_arrays(arrays, Schema(5, 1), 60, factor=True)


def test_clients_with_other_columns_are_left_out_and_named():
    rows = some_rows(100, 8)
    clients = split(rows, [50, 50])
    clients["odd"] = (np.ones((9, 3)) * np.arange(9.0)[:, None], np.arange(9.0))
    fit = refine(clients, alpha=1.0)
    assert fit.report.failures == {
        "odd": "its columns are not those of 2 other clients: 3 features against 8"
    }


def test_the_report_tells_how_it_went():
    fit = refine(split(some_rows(100, 30), [50, 50]))
    text = str(fit.report)
    rounds = fit.report.refinement.rounds
    assert text.startswith(f"Federated ridge in {rounds} rounds")
    assert "; predictions right to about " in text
    content = fit.report.to_dict()["refinement"]
    assert (
        content["rounds"] == fit.report.refinement.rounds == len(content["estimates"])
    )
    assert content["estimates"][-1] <= 1e-12


# ---- settings ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"mode": "magic"}, 'mode must be "oneshot", "refine", "cg" or "auto"'),
        ({"mode": "refine", "alphas": [1.0, 2.0]}, "alpha cannot be chosen with"),
        ({"mode": "cg", "cv": "gcv"}, "alpha cannot be chosen with"),
        ({"mode": "refine", "wire_dtype": "float32"}, "is for mode=.oneshot"),
        ({"mode": "refine", "max_rounds": 1}, "needs max_rounds of 2 or more"),
        ({"max_rounds": 0}, "max_rounds must be a whole number"),
        ({"max_bytes": 1.5}, "max_bytes must be a whole number"),
        ({"tol": 0.0}, "tol must be a number from 1e-15 to below 1"),
        ({"tol": "small"}, "tol must be a number from 1e-15"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_the_round(settings, reason):
    with pytest.raises(FedRidgeError, match=reason):
        FitSettings(**settings)


def test_exact_products_are_not_private():
    privacy = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=1.0, y_bound=1.0)
    with pytest.raises(PrivacyError, match="asks for exact products"):
        FitSettings(mode="refine", privacy=privacy)
    assert FitSettings(mode="auto", privacy=privacy).one_shot


@given(st.integers(1, 40_000), st.integers(1, 20), st.integers(1, 10**9))
def test_auto_changes_its_mind_at_its_limits(d, t, max_bytes):
    mode, why = choose_mode(d, t, Limits(max_bytes))
    size = 8 * packed_length(d, t)
    fits = size <= max_bytes
    assert ("within" in why) == fits
    assert (mode == "cg") == (d > MOST_FEATURES)
    if mode != "cg":
        saves = refine_bytes(d, t, rounds=refine_rounds(None)) < size
        assert (mode == "oneshot") == (fits or not saves)


def test_warnings_are_no_part_of_a_good_fit():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refine(split(some_rows(100, 30), [50, 50]))
