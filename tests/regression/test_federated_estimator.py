"""The estimators obey scikit-learn's rules, and are Ridge whatever the groups are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import load_diabetes, load_iris
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from fedridge_flwr import (
    FederatedRidge,
    FederatedRidgeClassifier,
    FedRidgeError,
    infer,
    select_alpha,
    solve,
)


@parametrize_with_checks(
    [
        FederatedRidge(),
        FederatedRidge(alphas=[0.1, 1.0, 10.0], standardize=True),
        FederatedRidgeClassifier(),
        FederatedRidgeClassifier(standardize=True),
    ]
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def diabetes(n_groups: int = 7) -> tuple[Any, Any, Any]:
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    return X, y, np.arange(len(y)) % n_groups


@pytest.mark.parametrize("groups", [None, 1, 7])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_it_is_ridge_whatever_the_groups_are(groups, weighted, intercept):
    X, y, _ = diabetes()
    group = None if groups is None else np.arange(len(y)) % groups
    weight = np.random.default_rng(0).exponential(size=len(y)) if weighted else None
    found = FederatedRidge(0.1, fit_intercept=intercept)
    found.fit(X, y, weight, group)
    pooled = Ridge(0.1, fit_intercept=intercept).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(found.coef_, pooled.coef_, rtol=1e-9)
    np.testing.assert_allclose(found.intercept_, pooled.intercept_, rtol=1e-11)
    np.testing.assert_allclose(found.predict(X), pooled.predict(X), rtol=1e-9)
    assert found.score(X, y) == pytest.approx(pooled.score(X, y), rel=1e-10)


def test_sparse_rows_and_several_targets():
    X, y, group = diabetes()
    Y = np.column_stack([y, -2.0 * y])
    found = FederatedRidge(0.1).fit(sparse.csc_array(X.to_numpy()), Y, groups=group)
    pooled = Ridge(0.1).fit(X.to_numpy(), Y)
    np.testing.assert_allclose(found.coef_, pooled.coef_, rtol=1e-9)


def test_alpha_is_chosen_by_leaving_groups_out():
    X, y, group = diabetes()
    alphas = [0.001, 0.01, 0.1, 1.0]
    found = FederatedRidge(alphas=alphas).fit(X, y, groups=group)
    search = GridSearchCV(
        Ridge(), {"alpha": alphas}, cv=LeaveOneGroupOut(), scoring=_squared_error
    ).fit(X, y, groups=group)
    assert found.alpha_ == search.best_params_["alpha"]
    assert found.selection_ is not None
    assert found.selection_.alpha == select_alpha(found.group_statistics_, alphas).alpha
    assert FederatedRidge(alphas=alphas).fit(X, y).selection_.method == "gcv"
    assert FederatedRidge(alphas=alphas, cv="gcv").fit(X, y, groups=group).alpha_ > 0
    splits = list(LeaveOneGroupOut().split(X, y, group))
    by_splits = FederatedRidge(alphas=alphas, cv=splits).fit(X, y)
    np.testing.assert_allclose(by_splits.selection_.mean, found.selection_.mean)
    with pytest.raises(ValueError, match="leave every row out once"):
        FederatedRidge(alphas=alphas, cv=splits[1:]).fit(X, y)
    with pytest.raises(ValueError, match="cv must be"):
        FederatedRidge(alphas=alphas, cv="folds").fit(X, y)


def _squared_error(model: Any, X: Any, y: Any) -> float:
    return -float(np.sum((y - model.predict(X)) ** 2))


def test_the_statistics_answer_further_questions():
    X, y, group = diabetes()
    found = FederatedRidge(0.0).fit(X, y, groups=group)
    again = solve(found.statistics_, 0.1)
    np.testing.assert_allclose(again.coef_, Ridge(0.1).fit(X, y).coef_, rtol=1e-9)
    told = found.inference_
    assert list(told.tidy()["term"])[1:] == list(X.columns)
    expected = infer(found.statistics_, 0.0)
    np.testing.assert_allclose(told.se, expected.se)
    assert len(found.group_statistics_) == 7


def test_names_are_compared_as_scikit_learn_does():
    X, y, group = diabetes()
    found = FederatedRidge().fit(X, y, groups=group)
    assert list(found.feature_names_in_) == list(X.columns)
    with pytest.raises(ValueError, match="feature names"):
        found.predict(X[X.columns[::-1]])
    with pytest.warns(UserWarning, match="feature names"):
        found.predict(X.to_numpy())


@pytest.mark.parametrize("weight", [None, "balanced", {0: 3.0, 1: 1.0, 2: 0.5}])
@pytest.mark.parametrize("two", [False, True])
def test_the_classifier_is_ridge_classifier(weight, two):
    X, y = load_iris(return_X_y=True)
    if two:
        X, y = X[y > 0], y[y > 0]
        weight = {1: 2.0, 2: 1.0} if isinstance(weight, dict) else weight
    found = FederatedRidgeClassifier(class_weight=weight)
    found.fit(X, y, groups=np.arange(len(y)) // 40)
    pooled = RidgeClassifier(class_weight=weight).fit(X, y)
    np.testing.assert_allclose(found.coef_, np.atleast_2d(pooled.coef_), rtol=1e-9)
    assert (found.predict(X) == pooled.predict(X)).all()


def test_it_goes_into_pipelines():
    X, y, group = diabetes()
    pipe = make_pipeline(StandardScaler(), FederatedRidge(alphas=[0.1, 1.0, 10.0]))
    pipe.fit(X, y, federatedridge__groups=group)
    frame = pd.DataFrame(X)
    assert cross_val_score(pipe, frame, y, cv=3).mean() > 0.4


@pytest.mark.parametrize("nothing", [np.nan, None])
def test_rows_without_a_group_are_refused(nothing: Any) -> None:
    X, y = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30.0)
    groups = np.repeat(np.array([0.0, 1.0, 2.0], dtype=object), 10)
    groups[4:7] = nothing
    with pytest.raises(FedRidgeError, match="missing in 3 of 30 rows"):
        FederatedRidge().fit(X, y, groups=groups)
