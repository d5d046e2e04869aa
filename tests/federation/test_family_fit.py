"""Logistic and Poisson regression in rounds: the pooled fit, whoever stays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from fits import run_fit
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression, PoissonRegressor
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import StandardScaler

from fedridge_flwr import (
    DifferentialPrivacy,
    FamilyModel,
    FedRidgeError,
    NotEnoughClientsError,
    PolynomialMap,
    PrivacyError,
    SingularSystemError,
)
from fedridge_flwr.errors import DataError
from fedridge_flwr.federation.settings import FitSettings

Clients = dict[str, tuple[Any, ...]]
MOST_ROUNDS = 14


def split(K: int, *columns: Any) -> Clients:
    return {
        f"c{k}": tuple(None if each is None else each[k::K] for each in columns)
        for k in range(K)
    }


def logistic(alpha: float, X: Any, y: Any, w: Any = None, **options: Any) -> Any:
    model = LogisticRegression(
        C=1 / alpha, solver="newton-cholesky", tol=1e-14, max_iter=1000, **options
    )
    return model.fit(X, y, sample_weight=w)


def poisson(alpha: float, X: Any, y: Any, w: Any = None, **options: Any) -> Any:
    total = len(y) if w is None else w.sum()
    model = PoissonRegressor(
        alpha=alpha / total,
        solver="newton-cholesky",
        tol=1e-14,
        max_iter=1000,
        **options,
    )
    return model.fit(X, y, sample_weight=w)


def far(model: Any, other: Any) -> float:
    """Return the largest difference of coefficients, by the largest coefficient."""
    theirs = np.append(np.ravel(other.coef_), other.intercept_)
    ours = np.append(np.ravel(model.coef_), model.intercept_)
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def rows_of(name: str, seed: int, n: int = 120, d: int = 3) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * rng.uniform(0.2, 3, size=d) + rng.normal(size=d)
    eta = (X - X.mean(axis=0)) @ rng.normal(size=d) / d
    if name == "binomial":
        return X, (rng.uniform(size=n) < 1 / (1 + np.exp(-eta))).astype(int)
    return X, rng.poisson(np.exp(eta)).astype(float)


PEERS: dict[str, Callable[..., Any]] = {"binomial": logistic, "poisson": poisson}

# ---- equivalence with the pooled rows -----------------------------------------------


@pytest.mark.parametrize("alpha", [0.01, 0.1, 1.0, 10.0, 100.0])
@pytest.mark.parametrize("scaled", [False, True])
def test_breast_cancer_over_twenty_clients(alpha: float, scaled: bool) -> None:
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X) if scaled else X
    run = run_fit(split(20, X, y), alpha=alpha, family="binomial")
    assert far(run.model, logistic(alpha, X, y)) < 1e-9
    assert run.report.refinement.converged
    assert run.report.refinement.rounds <= MOST_ROUNDS


@settings(deadline=None, max_examples=25)
@given(
    name=st.sampled_from(sorted(PEERS)),
    seed=st.integers(0, 10**6),
    alpha=st.sampled_from([1e-3, 0.3, 5.0, 1e3]),
    weighted=st.booleans(),
    intercept=st.booleans(),
    K=st.integers(1, 6),
)
def test_any_split_weights_and_penalty_are_the_pooled_fit(
    name: str, seed: int, alpha: float, weighted: bool, intercept: bool, K: int
) -> None:
    X, y = rows_of(name, seed)
    w = np.random.default_rng(seed).uniform(0.1, 3, len(y)) if weighted else None
    run = run_fit(split(K, X, y, w), alpha=alpha, family=name, fit_intercept=intercept)
    pooled = PEERS[name](alpha, X, y, w, fit_intercept=intercept)
    assert far(run.model, pooled) < 1e-9
    # Few random rows without an intercept, in one of thousands, take one round more.
    assert run.report.refinement.rounds <= MOST_ROUNDS + 2


@pytest.mark.parametrize("name", PEERS)
def test_standardize_is_a_pipeline_with_standard_scaler(name: str) -> None:
    X, y = rows_of(name, 5)
    scaler = StandardScaler().fit(X)
    run = run_fit(split(4, X, y), alpha=2.0, family=name, standardize=True)
    pooled = PEERS[name](2.0, scaler.transform(X), y)
    assert np.allclose(run.model.coef_ * scaler.scale_, np.ravel(pooled.coef_), 1e-9)


@pytest.mark.parametrize("name", PEERS)
def test_columns_far_from_zero_cost_no_digits(name: str) -> None:
    X, y = rows_of(name, 6)
    near = run_fit(split(3, X, y), alpha=0.5, family=name).model
    there = run_fit(split(3, X + 1e6, y), alpha=0.5, family=name).model
    assert np.allclose(there.coef_, near.coef_, rtol=1e-7)


@pytest.mark.parametrize("name", PEERS)
def test_a_feature_map_and_its_model_on_raw_columns(name: str) -> None:
    X, y = rows_of(name, 7, d=2)
    run = run_fit(split(3, X, y), alpha=1.0, family=name, feature_map=PolynomialMap(2))
    mapped = PolynomialMap(2).transform(X)
    pooled = PEERS[name](1.0, mapped, y)
    assert far(run.model, pooled) < 1e-9
    assert (
        np.allclose(run.model.predict_mean(X), run.model.to_sklearn().predict(X))
        or name == "binomial"
    )


def test_data_frames_whose_columns_are_in_another_order() -> None:
    X, y = rows_of("binomial", 8)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    answer = pd.Series(np.where(y, "ill", "well"), name="state")
    clients = split(2, frame, answer)
    clients["c1"] = clients["c1"][0][["c", "a", "b"]], clients["c1"][1]
    run = run_fit(clients, alpha=1.0, family="binomial")
    assert far(run.model, logistic(1.0, X, answer)) < 1e-9
    assert run.model.predict(frame[["b", "c", "a"]]).tolist() == (
        logistic(1.0, X, answer).predict(X).tolist()
    )
    assert run.report.rearranged == ["c1"]


# ---- offsets, and inference as statsmodels ------------------------------------------


@pytest.mark.parametrize("with_offset", [False, True])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("name", PEERS)
def test_without_penalty_everything_is_as_in_statsmodels(
    name: str, intercept: bool, with_offset: bool
) -> None:
    X, y = rows_of(name, 9, n=400)
    offset = np.random.default_rng(9).uniform(-1, 1, len(y)) if with_offset else None
    run = run_fit(
        split(5, X, y, None, offset), alpha=0.0, family=name, fit_intercept=intercept
    )
    family = getattr(sm.families, name.capitalize())()
    design = sm.add_constant(X) if intercept else X
    glm = sm.GLM(y, design, family=family, offset=offset).fit(tol=1e-14)
    found = run.model.inference()
    for ours, theirs in (
        (found.coefficients, glm.params),
        (found.se, glm.bse),
        (found.z, glm.tvalues),
        (found.p, glm.pvalues),
        (found.ci(), glm.conf_int()),
        (found.deviance, glm.deviance),
        (found.log_likelihood, glm.llf),
        (found.aic, glm.aic),
    ):
        assert np.allclose(ours, theirs, rtol=1e-7, atol=1e-12)
    assert np.allclose(found.ratios()[:, 1:], np.exp(glm.conf_int()), rtol=1e-7)
    if not with_offset and intercept:
        assert np.isclose(found.null_deviance, glm.null_deviance, rtol=1e-9)
    assert run.report.refinement.rounds <= MOST_ROUNDS


def test_randhie_over_ten_clients_with_exposure() -> None:
    data = sm.datasets.randhie.load_pandas()
    X, y = data.exog.to_numpy(float), data.endog.to_numpy(float)
    exposure = np.random.default_rng(0).uniform(0.5, 2, len(y))
    run = run_fit(split(10, X, y, None, np.log(exposure)), alpha=0.0, family="poisson")
    glm = sm.GLM(
        y, sm.add_constant(X), family=sm.families.Poisson(), exposure=exposure
    ).fit(tol=1e-14)
    assert np.abs(run.model.inference().coefficients - glm.params).max() < 1e-9
    assert np.allclose(run.model.inference().se, glm.bse, rtol=1e-7)
    plain = run_fit(split(10, X, y), alpha=10.0, family="poisson")
    assert far(plain.model, poisson(10.0, X, y)) < 1e-9
    predicted = run.model.predict(X, offset=np.log(exposure))
    assert np.allclose(predicted, glm.fittedvalues, rtol=1e-9)


def test_weights_are_those_of_var_weights() -> None:
    X, y = rows_of("binomial", 3)
    weight = np.random.default_rng(3).integers(1, 4, len(y)).astype(float)
    run = run_fit(split(4, X, y, weight), alpha=0.0, family="binomial")
    glm = sm.GLM(
        y, sm.add_constant(X), family=sm.families.Binomial(), var_weights=weight
    ).fit(tol=1e-14)
    found = run.model.inference()
    assert np.allclose(found.se, glm.bse, rtol=1e-7)
    assert found.df_residual == glm.df_resid
    assert np.isclose(found.bic, glm.bic_llf, rtol=1e-9)


def test_standard_errors_with_a_penalty_are_refused() -> None:
    run = run_fit(split(2, *rows_of("binomial", 1)), alpha=1.0, family="binomial")
    with pytest.raises(FedRidgeError, match="alpha=1"):
        run.model.inference()


# ---- classes ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels", [(False, True), (1, 2), ("no", "yes"), (-1, 3), ("ja", "nein")]
)
def test_any_two_labels(labels: tuple[Any, Any]) -> None:
    X, y = rows_of("binomial", 10)
    own = np.array(labels)[y]
    run = run_fit(split(4, X, own), alpha=1.0, family="binomial")
    pooled = logistic(1.0, X, own)
    assert far(run.model, pooled) < 1e-9
    assert (run.model.predict(X) == pooled.predict(X)).all()
    assert np.allclose(run.model.predict_proba(X), pooled.predict_proba(X), atol=1e-9)
    assert run.model.score(X, own) == pooled.score(X, own)


def test_a_client_may_have_one_class_only() -> None:
    X, y = rows_of("binomial", 11)
    own = np.where(y, "b", "a")
    clients = {"all a": (X[y == 0], own[y == 0]), "all b": (X[y == 1], own[y == 1])}
    run = run_fit(clients, alpha=1.0, family="binomial")
    assert far(run.model, logistic(1.0, X, own)) < 1e-9


def test_labels_of_another_kind_are_named() -> None:
    X, y = rows_of("binomial", 12)
    clients = split(3, X, np.where(y, "b", "a"))
    clients["c2"] = clients["c2"][0], y[2::3]
    run = run_fit(clients, alpha=1.0, family="binomial")
    assert "labels are numbers" in run.report.failures["c2"]
    assert run.model.n_clients_ == 2


def test_one_client_cannot_make_three_classes_of_two() -> None:
    X, y = rows_of("binomial", 12)
    clients = split(5, X, np.where(y, "yes", "no"))
    clients["c4"] = clients["c4"][0], np.where(y[4::5], "yes", "n0")
    run = run_fit(clients, family="binomial")
    assert run.model.labels == ("no", "yes")
    assert run.report.failures["c4"] == (
        "has 2 labels, not only the two that most clients have"
    )
    stay = {c: rows for c, rows in clients.items() if c != "c4"}
    assert far(run.model, run_fit(stay, family="binomial").model) < 1e-12


def test_numbers_are_no_classes() -> None:
    rng = np.random.default_rng(0)
    clients = split(4, rng.normal(size=(200, 2)), rng.normal(size=200))
    with pytest.raises(DataError, match="50 different numbers; binomial needs 0 and 1"):
        run_fit(clients, family="binomial")
    many = split(4, rng.normal(size=(200, 2)), np.arange(200))
    with pytest.raises(DataError, match="200 different values over all clients"):
        run_fit(many, family="binomial")


def test_digits_one_against_the_rest() -> None:
    X, y = load_digits(return_X_y=True)
    run = run_fit(split(8, X, y), alpha=1.0, family="binomial")
    peer = OneVsRestClassifier(
        LogisticRegression(C=1.0, solver="newton-cholesky", tol=1e-14, max_iter=1000)
    ).fit(X, y)
    assert (run.model.predict(X) == peer.predict(X)).all()
    assert np.allclose(run.model.predict_proba(X), peer.predict_proba(X), atol=1e-9)
    assert (run.model.to_sklearn().predict(X) == peer.predict(X)).all()
    assert run.model.score(X, y) == peer.score(X, y)


# ---- who leaves, and who lies -------------------------------------------------------


@pytest.mark.parametrize("name", PEERS)
def test_three_of_twenty_leave_in_different_rounds(name: str) -> None:
    X, y = rows_of(name, 13, n=600)
    clients = split(20, X, y)

    def leaves(when: int) -> Callable[[int, Any], Any]:
        def fault(number: int, given: Any) -> Any:
            if number >= when:
                raise ConnectionError
            return given

        return fault

    gone = {"c3": leaves(2), "c7": leaves(3), "c11": leaves(4)}
    run = run_fit(clients, gone, alpha=0.1, family=name, standardize=True)
    stay = {c: rows for c, rows in clients.items() if c not in gone}
    alone = run_fit(stay, alpha=0.1, family=name, standardize=True)
    assert far(run.model, alone.model) < 1e-9
    X, y = (np.concatenate([rows[k] for rows in stay.values()]) for k in (0, 1))
    scaler = StandardScaler().fit(X)
    pooled = PEERS[name](0.1, scaler.transform(X), y)
    assert np.allclose(run.model.coef_ * scaler.scale_, np.ravel(pooled.coef_), 1e-9)
    assert set(run.report.failures) == set(gone)
    assert run.report.failures["c7"].startswith("round 3: ")
    assert run.model.n_rows_ == len(y)
    assert run.model.n_clients_ == 17


@pytest.mark.parametrize("when", [2, 3])
@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("lie", ["deviance", "gradient", "hessian", "count", "huge"])
def test_who_lies_in_a_later_round_is_named_and_left_out(
    name: str, when: int, lie: str
) -> None:
    X, y = rows_of(name, 14, n=300)
    clients = split(6, X, y)

    def fault(number: int, given: Any) -> Any:
        if number != when:
            return given
        (part,) = given
        stats = part.stats
        if lie == "deviance":
            return [replace(part, deviance=10 * part.deviance + 1000.0)]
        if lie == "huge":  # as if its means were 1e90, with a gradient that fits
            mean = np.append(stats.means[:-1], -1.0)
            big = {"total_weight": 1e90, "means": mean, "triangle": stats.triangle}
            return [replace(part, stats=replace(stats, **big))]
        if lie == "gradient":
            means = stats.means.copy()
            means[-1] += 50.0
            return [replace(part, stats=replace(stats, means=means))]
        if lie == "hessian":
            more = {"total_weight": 9 * stats.total_weight}
            return [replace(part, stats=replace(stats, **more))]
        return [replace(part, stats=replace(stats, count=stats.count + 1))]

    run = run_fit(clients, {"c2": fault}, alpha=1.0, family=name)
    assert "c2" in run.report.failures
    stay = {c: rows for c, rows in clients.items() if c != "c2"}
    assert far(run.model, run_fit(stay, alpha=1.0, family=name).model) < 1e-9


def test_when_too_few_stay_there_is_no_model() -> None:
    def leaves(number: int, given: Any) -> Any:
        raise ConnectionError

    clients = split(3, *rows_of("binomial", 15))
    with pytest.raises(NotEnoughClientsError, match="2 clients left in round 2"):
        run_fit(clients, {"c1": leaves}, family="binomial", min_clients=3)


def test_a_client_that_stands_out_is_excluded_in_the_first_round() -> None:
    X, y = rows_of("binomial", 16, n=600)
    clients = split(8, X, y)
    clients["c5"] = clients["c5"][0] * 1e6, clients["c5"][1]
    run = run_fit(clients, family="binomial", screen="exclude")
    assert "unlike the others" in run.report.failures["c5"]
    stay = {c: rows for c, rows in clients.items() if c != "c5"}
    assert far(run.model, run_fit(stay, family="binomial").model) < 1e-9


# ---- answers that do not exist ------------------------------------------------------


def test_separation_names_the_columns_and_a_penalty_helps() -> None:
    rng = np.random.default_rng(17)
    X = pd.DataFrame(rng.normal(size=(200, 3)), columns=["age", "dose", "bmi"])
    y = (X["dose"] > 0.2).astype(int)
    clients = split(4, X, y)
    with pytest.raises(SingularSystemError, match=r"'dose'.*alpha > 0"):
        run_fit(clients, alpha=0.0, family="binomial")
    run = run_fit(clients, alpha=1.0, family="binomial")
    assert run.report.refinement.converged
    assert far(run.model, logistic(1.0, X, y)) < 1e-9


def test_separation_by_some_of_the_rows_is_found_as_well() -> None:
    rng = np.random.default_rng(18)
    X = rng.normal(size=(200, 2))
    y = (rng.uniform(size=200) < 0.5).astype(int)
    X = np.column_stack([X, np.where(y == 1, rng.integers(0, 2, 200), 0)])
    with pytest.raises(SingularSystemError, match="column 2"):
        run_fit(split(2, X, y), alpha=0.0, family="binomial")
    assert run_fit(split(2, X, y), alpha=1.0, family="binomial").model is not None


def test_dependent_columns_are_named_without_a_penalty() -> None:
    X, y = rows_of("poisson", 19)
    X = np.column_stack([X, X[:, 0] * 2])
    with pytest.raises(SingularSystemError, match="column 3 is a linear function"):
        run_fit(split(2, X, y), alpha=0.0, family="poisson")
    assert run_fit(split(2, X, y), alpha=1.0, family="poisson").model is not None


@pytest.mark.parametrize(
    ("name", "y", "reason"),
    [
        ("binomial", np.zeros(20, int), "no row has the label '1'"),
        ("binomial", np.ones(20, int), "all rows have the label '1'"),
        ("binomial", np.array(["a"] * 20), "all rows have the label 'a'"),
        ("poisson", np.zeros(20), "all counts of all clients are zero"),
    ],
)
def test_an_outcome_that_does_not_vary_is_an_error(
    name: str, y: np.ndarray, reason: str
) -> None:
    X = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(DataError, match=reason):
        run_fit(split(2, X, y), family=name)


def test_counts_that_are_none_are_declined_without_quoting_them() -> None:
    X, y = rows_of("poisson", 20)
    clients = split(3, X, y)
    with pytest.raises(DataError, match="1 of 40 rows is negative"):
        run_fit(
            {**clients, "c0": (X[::3], np.append(y[3::3], -77.0))}, family="poisson"
        )


@pytest.mark.parametrize("name", PEERS)
def test_rare_levels_that_only_the_penalty_holds(name: str) -> None:
    rng = np.random.default_rng(24)
    level = rng.choice(8, size=1500, p=[0.8, *[0.04] * 4, 0.02, 0.01, 0.01])
    X = np.column_stack([rng.normal(size=1500), level[:, None] == np.arange(1, 8)])
    y = (rng.uniform(size=1500) < 0.4).astype(int)
    y[level >= 6] = 0
    run = run_fit(split(3, X, y), alpha=1e-3, family=name)
    assert run.report.refinement.rounds <= MOST_ROUNDS
    assert far(run.model, PEERS[name](1e-3, X, y)) < 1e-9


def test_huge_counts_converge() -> None:
    rng = np.random.default_rng(21)
    X = rng.normal(size=(200, 2))
    y = rng.poisson(np.exp(12 + X @ [1.0, -2.0])).astype(float)
    run = run_fit(split(4, X, y), alpha=1.0, family="poisson")
    assert run.report.refinement.converged
    assert far(run.model, poisson(1.0, X, y)) < 1e-9


# ---- settings -----------------------------------------------------------------------

PRIVATE = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=1.0, y_bound=1.0)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"family": "gamma"}, FedRidgeError),
        ({"family": "poisson", "mode": "refine"}, FedRidgeError),
        ({"family": "poisson", "wire_dtype": "float32"}, FedRidgeError),
        ({"family": "binomial", "cv": "gcv"}, FedRidgeError),
        ({"family": "binomial", "privacy": PRIVATE}, PrivacyError),
    ],
)
def test_what_does_not_go_together_is_refused(options: Any, error: Any) -> None:
    with pytest.raises(error):
        FitSettings(**options)


def test_the_report_tells_the_family_and_the_rounds() -> None:
    run = run_fit(split(5, *rows_of("binomial", 22)), family="binomial")
    text = str(run.report)
    assert "Federated logistic regression in" in text
    assert "last change of the deviance" in text
    assert run.report.settings["family"] == "binomial"
    assert "binomial: round" in run.progress


def test_a_model_comes_back_from_its_file(tmp_path: Path) -> None:
    for name, alpha in (("binomial", 0.0), ("poisson", 1.0)):
        X, y = rows_of(name, 23)
        model = run_fit(split(3, X, y), alpha=alpha, family=name).model
        model.save(tmp_path / "model.json")
        same = FamilyModel.load(tmp_path / "model.json")
        assert repr(same) == repr(model)
        assert same.summary() == model.summary()
        assert (same.predict(X) == model.predict(X)).all()


@pytest.mark.parametrize("family", ["binomial", "poisson"])
@pytest.mark.parametrize("constant", [1.0, 0.1, 1e6])
@pytest.mark.parametrize("clients", [3, 20])
def test_a_constant_column_costs_no_client(
    family: str, constant: float, clients: int
) -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(60 * clients, 2)), np.full(60 * clients, 1)])
    X[:, 2] *= constant
    mean = np.exp(0.3 * X[:, 0] - 0.2 * X[:, 1])
    y = rng.poisson(mean) if family == "poisson" else (mean > rng.random(len(X)) * 2)
    own = {f"c{k}": (X[k::clients], y[k::clients]) for k in range(clients)}
    run = run_fit(own, alpha=1.0, family=family)
    without = {name: (rows[:, :2], out) for name, (rows, out) in own.items()}
    wanted = run_fit(without, alpha=1.0, family=family)
    assert run.report.failures == {}
    assert np.abs(run.model.coef_[:2] - wanted.model.coef_).max() < 1e-6
