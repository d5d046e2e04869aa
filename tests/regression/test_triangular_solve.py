"""Triangular statistics solved, chosen, inferred: as moments, and where those fail."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import statsmodels.api as sm
from generators import linear_rows, relative_error
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from sklearn.model_selection import LeaveOneGroupOut, cross_val_score

from fedridge_flwr import (
    ClampedLossWarning,
    FedRidgeError,
    IllConditionedWarning,
    RidgeModel,
    SingularSystemError,
    StatisticsError,
    SufficientStatistics,
    TriangularStatistics,
    infer,
    select_alpha,
    solve,
    solve_path,
)
from fedridge_flwr.linalg.orthogonal import OrthogonalSystem
from fedridge_flwr.regression import (
    correlations,
    elastic_net,
    nested_test,
    select_columns,
    site_influence,
    variance_inflation,
)

FORMS = (SufficientStatistics, TriangularStatistics)
ALPHAS = [0.01, 0.1, 1.0, 10.0, 100.0]
options = st.fixed_dictionaries(
    {"fit_intercept": st.booleans(), "standardize": st.booleans()}
)


def parts_of(kind, X, y, n_clients=5, weight=None):
    return {
        f"client-{k}": kind.from_data(
            X[k::n_clients],
            y[k::n_clients],
            None if weight is None else weight[k::n_clients],
        )
        for k in range(n_clients)
    }


def both(X, y, weight=None, n_clients=5):
    """Return the total in both forms."""
    each = (parts_of(kind, X, y, n_clients, weight).values() for kind in FORMS)
    return [sum(parts) for parts in each]


def nearly_dependent(rng, n=200, distance=1e-6):
    X = rng.normal(size=(n, 4))
    X[:, 3] = X[:, 0] + X[:, 1] + distance * rng.normal(size=n)
    return X


# ---- as moments do ------------------------------------------------------------------


@given(
    seed=st.integers(0, 2**32 - 1),
    alpha=st.sampled_from([0.0, 1e-3, 1.0, 1e4]),
    targets=st.sampled_from([None, 3]),
    weighted=st.booleans(),
    given_options=options,
)
def test_well_conditioned_rows_have_one_answer(
    seed, alpha, targets, weighted, given_options
):
    rng = np.random.default_rng(seed)
    X, y = linear_rows(60, 4, rng, targets)
    weight = rng.exponential(size=60) if weighted else None
    models = [solve(s, alpha, **given_options) for s in both(X, y, weight)]
    moments, triangular = models
    assert relative_error(triangular.coef_, moments.coef_) < 1e-12
    np.testing.assert_allclose(
        triangular.intercept_, moments.intercept_, rtol=1e-10, atol=1e-12
    )
    assert triangular.r2_ == pytest.approx(moments.r2_, abs=1e-12)
    assert (moments.form, triangular.form) == ("moments", "triangular")


@pytest.mark.parametrize("alpha", [0.0, 2.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_inference_is_that_of_moments(alpha, fit_intercept):
    X, y = linear_rows(80, 3, np.random.default_rng(0))
    moments, triangular = (
        infer(s, alpha, fit_intercept=fit_intercept) for s in both(X, y)
    )
    for name in ("coefficients", "se", "t", "ci", "r2", "sigma", "aic", "df"):
        np.testing.assert_allclose(
            getattr(triangular, name), getattr(moments, name), rtol=1e-10, err_msg=name
        )
    if alpha == 0:
        assert triangular.f == pytest.approx(moments.f, rel=1e-10)


def test_paths_and_cluster_robust_errors_take_them():
    X, y = linear_rows(80, 3, np.random.default_rng(0))
    moments, triangular = both(X, y)
    for ours, theirs in zip(
        solve_path(triangular, [0.0, *ALPHAS]),
        solve_path(moments, [0.0, *ALPHAS]),
        strict=True,
    ):
        assert relative_error(ours.coef_, theirs.coef_) < 1e-12
    robust = [
        infer(s, parts=parts_of(k, X, y, 12), covariance="CR1")
        for k, s in zip(FORMS, both(X, y, n_clients=12), strict=True)
    ]
    np.testing.assert_allclose(robust[0].se, robust[1].se, rtol=1e-9)


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("method", ["loco", "gcv"])
def test_alpha_is_chosen_by_the_same_losses(method, fit_intercept, standardize):
    X, y = linear_rows(100, 4, np.random.default_rng(1))
    found = [
        select_alpha(
            parts_of(kind, X, y),
            ALPHAS,
            method=method,
            fit_intercept=fit_intercept,
            standardize=standardize,
        )
        for kind in FORMS
    ]
    np.testing.assert_allclose(found[0].mean, found[1].mean, rtol=1e-10)
    assert found[0].alpha == found[1].alpha


def test_held_out_losses_are_those_of_scikit_learn():
    X, y = linear_rows(100, 4, np.random.default_rng(2))
    found = select_alpha(parts_of(TriangularStatistics, X, y), ALPHAS)
    groups = np.arange(100) % 5
    for alpha, mean in zip(ALPHAS, found.mean, strict=True):
        scores = cross_val_score(
            Ridge(alpha),
            X,
            y,
            groups=groups,
            cv=LeaveOneGroupOut(),
            scoring="neg_mean_squared_error",
        )
        assert mean == pytest.approx(-scores.mean(), rel=1e-10)


def test_questions_take_them():
    X, y = linear_rows(80, 3, np.random.default_rng(3))
    moments, triangular = both(X, y)
    np.testing.assert_allclose(
        correlations(triangular).values, correlations(moments).values, rtol=1e-10
    )
    assert variance_inflation(triangular) == pytest.approx(variance_inflation(moments))
    chosen = select_columns(triangular, ["x0", "x2"])
    assert chosen.form == "triangular"
    expected = Ridge(1.0).fit(X[:, [0, 2]], y).coef_
    np.testing.assert_allclose(solve(chosen).coef_, expected, rtol=1e-12)
    ours, theirs = (nested_test(s, ["x0"]) for s in (triangular, moments))
    assert ours.statistic == pytest.approx(theirs.statistic, rel=1e-9)
    ours, theirs = (elastic_net(s, 0.1).coef_ for s in (triangular, moments))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9)
    moved = [site_influence(parts_of(kind, X, y)) for kind in FORMS]
    assert str(moved[0]) == str(moved[1])


# ---- where moments fail -------------------------------------------------------------


def test_nearly_dependent_columns_keep_half_of_the_digits():
    X = nearly_dependent(np.random.default_rng(4))
    y = X @ [1.0, 2.0, 3.0, 4.0]
    _, triangular = both(X, y)
    model = solve(triangular, 0.0)
    np.testing.assert_allclose(model.coef_, [1.0, 2.0, 3.0, 4.0], rtol=1e-7)
    assert 1e11 < model.condition_ < 1e15  # that of the same system of sums


def test_standard_errors_of_nearly_dependent_columns_are_those_of_the_rows():
    rng = np.random.default_rng(5)
    X = nearly_dependent(rng, distance=1e-5)
    y = X @ [1.0, 2.0, 3.0, 4.0] + rng.normal(size=200)
    found = infer(both(X, y)[1])
    pooled = sm.OLS(y, sm.add_constant(X)).fit(method="qr")
    np.testing.assert_allclose(found.coefficients, pooled.params, rtol=1e-8)
    # statsmodels inverts R'R, which squares the condition: by R itself.
    R = np.linalg.qr(sm.add_constant(X), mode="r")
    expected = np.linalg.norm(np.linalg.inv(R), axis=1) * np.sqrt(pooled.mse_resid)
    np.testing.assert_allclose(found.se, expected, rtol=1e-8)


def test_losses_without_noise_do_not_cancel():
    X = np.random.default_rng(6).normal(size=(60, 4))
    y = X[:, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ClampedLossWarning)
        found = select_alpha(
            parts_of(TriangularStatistics, X, y, 6), [1e-9, 1e-6, 1e-3, 1.0]
        )
    # Shrinkage alone: a thousandth of alpha is a millionth of the loss.
    ratios = found.mean[1:3] / found.mean[:2]
    np.testing.assert_allclose(ratios, 1e6, rtol=0.01)
    assert found.alpha == 1e-9


def test_a_small_residual_keeps_its_digits():
    rng = np.random.default_rng(7)
    X, noise = rng.normal(size=(50, 2)), rng.normal(size=50)
    y = X @ [3.0, -2.0] + 1e-7 * noise
    moments, triangular = both(X, y)
    with pytest.warns(IllConditionedWarning, match="triangular"):
        infer(moments)
    found = infer(triangular)
    design = np.column_stack([np.ones(50), X])
    rest = noise - design @ np.linalg.lstsq(design, noise, rcond=None)[0]
    expected = 1e-7 * np.sqrt(rest @ rest / 47)
    assert found.sigma == pytest.approx(expected, rel=1e-6)
    assert found.digits_lost < 8
    assert not any("triangular" in note for note in found.notes)


# ---- what is said -------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 1e-30])
def test_dependent_columns_are_named_as_with_moments(alpha):
    X, y = linear_rows(60, 3, np.random.default_rng(8))
    stats = both(np.column_stack([X, X[:, 0]]), y)[1]
    with pytest.raises(SingularSystemError, match="column 3 is a copy of column 0"):
        solve(stats, alpha)
    X[:, 1] = 5.0
    with pytest.raises(SingularSystemError, match="column 1 is constant"):
        solve(both(X, y)[1], 0.0)
    with pytest.raises(SingularSystemError, match="2 rows cannot determine 4"):
        solve(TriangularStatistics.from_data(X[:2], y[:2]), 0.0)


def test_with_a_penalty_dependent_columns_are_no_problem():
    X, y = linear_rows(60, 3, np.random.default_rng(9))
    X = np.column_stack([X, X[:, 0], np.full(60, 7.0)])
    found = solve(both(X, y)[1], 1e-3)
    np.testing.assert_allclose(found.coef_, Ridge(1e-3).fit(X, y).coef_, rtol=1e-9)


def test_moments_recommend_the_other_form():
    X = nearly_dependent(np.random.default_rng(10), distance=1e-5)
    moments, triangular = both(X, X[:, 0])
    with pytest.warns(IllConditionedWarning, match='use statistics="triangular"'):
        model = solve(moments, 0.0)
    assert 'statistics="triangular" keeps more digits' in model.summary()
    summary = solve(triangular, 0.0).summary()
    assert "statistics  triangular" in summary
    assert "keeps more digits" not in summary


def test_a_saved_model_remembers_its_form(tmp_path):
    X, y = linear_rows(30, 2, np.random.default_rng(11))
    for stats in both(X, y):
        model = solve(stats)
        model.save(tmp_path / "model.json")
        assert RidgeModel.load(tmp_path / "model.json").form == model.form
    text = (tmp_path / "model.json").read_text().replace("triangular", "round")
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(FedRidgeError, match="statistics must be"):
        RidgeModel.load(tmp_path / "model.json")


def test_what_does_not_go_together_is_refused():
    X, y = linear_rows(30, 2, np.random.default_rng(12))
    moments, triangular = both(X, y)
    with pytest.raises(FedRidgeError, match="to_sufficient"):
        solve(triangular, solver="cg")
    with pytest.raises(StatisticsError, match="of others not"):
        select_alpha([moments, triangular], ALPHAS)


# ---- the system ---------------------------------------------------------------------


@given(seed=st.integers(0, 2**32 - 1), penalty=st.sampled_from([None, 0.3]))
def test_a_system_is_solved_as_by_lstsq(seed, penalty):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(12, 4)) * [1e-200, 1.0, 1e6, 1e100]
    B = rng.normal(size=(12, 2))
    units = np.array([1e-200, 1.0, 1e6, 1e100])
    p = None if penalty is None else penalty * units**2
    scaled = A / units
    rows = scaled if p is None else np.vstack([scaled, np.eye(4) * np.sqrt(penalty)])
    targets = np.vstack([B, np.zeros((len(rows) - 12, 2))])
    expected = np.linalg.lstsq(rows, targets, rcond=None)[0]
    if penalty is not None:  # squares of 1e-200 are zero
        A, p, units = scaled, np.full(4, penalty), np.ones(4)
    system = OrthogonalSystem(A, p)
    found = system.solve(B) * units[:, None]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    condition = np.linalg.cond(rows / np.linalg.norm(rows, axis=0))
    assert 0.05 < system.inverse_condition * condition < 20
