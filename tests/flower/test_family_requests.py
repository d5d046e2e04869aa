"""Logistic and Poisson regression over Flower: both APIs, tables, offsets, policies."""

from __future__ import annotations

from functools import partial
from typing import Any

import fakes
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from fakes import InProcessGrid, node_context
from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from shared_simulation import SharedSimulation
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from fedridge_flwr import (
    FamilyModel,
    FedRidge,
    FedRidgeError,
    LegacyFedRidge,
    NotEnoughClientsError,
    RidgeClient,
    SitePolicy,
    ridge_client_app,
)
from fedridge_flwr.errors import PolicyError, StatisticsError
from fedridge_flwr.federation.answering.respond import Guards, respond
from fedridge_flwr.federation.reporting.run_folder import write_run
from fedridge_flwr.federation.requests import AskCounts, AskWorking
from fedridge_flwr.regression.likelihood.binned import BinnedOutcomes
from fedridge_flwr.regression.likelihood.working import Points

K = 5
fit = partial(fakes.fit, num_rounds=30)


def rows_of(k: int) -> tuple[np.ndarray, np.ndarray]:
    X, y = load_breast_cancer(return_X_y=True)
    return X[k::K, :10], np.where(y[k::K], "benign", "malignant")


def load_data(context: Any) -> Any:
    return rows_of(int(context.node_config["partition-id"]))


def load_counts(context: Any) -> Any:
    rng = np.random.default_rng(int(context.node_config["partition-id"]))
    X, offset = rng.normal(size=(60, 3)), rng.uniform(-1, 1, 60)
    return X, rng.poisson(np.exp(X @ [0.3, -0.2, 0.1] + offset)), None, offset


def numpy_client(context: Any) -> Any:
    X, y = load_data(context)
    return RidgeClient(X, y).to_client()


def counting_client(context: Any) -> Any:
    X, y, weight, offset = load_counts(context)
    return RidgeClient(X, y, sample_weight=weight, offset=offset).to_client()


def pooled(alpha: float = 1.0, clients: Any = range(K)) -> Any:
    X, y = (np.concatenate(each) for each in zip(*map(rows_of, clients), strict=True))
    model = LogisticRegression(
        C=1 / alpha, solver="newton-cholesky", tol=1e-14, max_iter=1000
    )
    return model.fit(X, y)


def close(model: Any, peer: Any) -> None:
    assert isinstance(model, FamilyModel)
    scale = np.abs(peer.coef_).max()
    assert np.abs(model.coef_ - peer.coef_).max() < 1e-9 * scale
    assert abs(model.intercept_ - peer.intercept_[0]) < 1e-9 * abs(peer.intercept_[0])


@pytest.mark.parametrize(
    "app", [ridge_client_app(load_data), ClientApp(client_fn=numpy_client)]
)
@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
def test_both_apis_are_the_pooled_fit(kind: Any, app: ClientApp) -> None:
    grid = InProcessGrid.of_app(app, K)
    strategy = fit(kind(family="binomial", min_available_nodes=K), grid)
    close(strategy.model_, pooled())
    assert strategy.model_.classes_.tolist() == ["benign", "malignant"]
    assert strategy.report_.refinement.rounds <= 14
    assert strategy.report_.bytes_up > 0
    with pytest.raises(FedRidgeError, match="alpha=1"):
        _ = strategy.inference_


@pytest.mark.parametrize(
    "app", [ridge_client_app(load_counts), ClientApp(client_fn=counting_client)]
)
@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
def test_offsets_travel_with_the_rows(kind: Any, app: ClientApp) -> None:
    grid = InProcessGrid.of_app(app, K)
    strategy = fit(kind(0.0, family="poisson", min_available_nodes=K), grid)
    parts = [load_counts(node_context(k, K)) for k in range(K)]
    X, y, offset = (np.concatenate([part[j] for part in parts]) for j in (0, 1, 3))
    design = sm.add_constant(X)
    glm = sm.GLM(y, design, family=sm.families.Poisson(), offset=offset).fit(tol=1e-14)
    assert np.allclose(strategy.inference_.coefficients, glm.params, rtol=1e-9)
    assert np.allclose(strategy.inference_.se, glm.bse, rtol=1e-7)
    found = strategy.inference_.tidy()
    # Beside the ratio its interval: that of the coefficients is on another scale.
    ends = np.exp(found[["conf.low", "conf.high"]].to_numpy())
    told = found[["rate.ratio.low", "rate.ratio.high"]].to_numpy()
    assert found.shape == (4, 10)
    assert np.allclose(told, ends, rtol=1e-12)


def test_an_offset_is_refused_where_there_is_no_family() -> None:
    grid = InProcessGrid.of_app(ridge_client_app(load_counts), K)
    with pytest.raises(NotEnoughClientsError, match="rows with an offset are for"):
        fit(FedRidge(min_available_nodes=K), grid)


@pytest.mark.parametrize(
    ("offset", "reason"),
    [
        (np.zeros(3), "offset must be numbers of shape"),
        (np.full(60, -np.inf), "logarithm of a zero exposure"),
        (np.array(["a"] * 60), "offset must be numbers of shape"),
    ],
)
def test_an_offset_that_is_none_is_declined(offset: Any, reason: str) -> None:
    def load(context: Any) -> Any:
        return *load_counts(context)[:3], offset

    grid = InProcessGrid.of_app(ridge_client_app(load), 1)
    with pytest.raises(NotEnoughClientsError, match=reason):
        fit(FedRidge(family="poisson", min_available_nodes=1), grid)


def test_a_client_that_leaves_is_taken_out_and_the_others_go_on() -> None:
    grid = InProcessGrid.of_app(ridge_client_app(load_data), K)
    honest, asked = grid.handlers[1003], []

    def crashes(message: Any) -> Any:
        asked.append(message)
        if len(asked) > 2:
            raise OSError("unplugged")
        return honest(message)

    grid.handlers[1003] = crashes
    strategy = fit(FedRidge(family="binomial", min_available_nodes=K), grid)
    close(strategy.model_, pooled(clients=[0, 1, 2, 4]))
    assert strategy.report_.failures["1003"].startswith("round 3: ")
    assert "MODEL OF 4 OF 5 CLIENTS" in strategy.model_.summary()


def test_tables_with_a_formula_and_their_page(tmp_path: Any) -> None:
    def load(context: Any) -> pd.DataFrame:
        k = int(context.node_config["partition-id"])
        rng = np.random.default_rng(k)
        sex = rng.choice(["f", "m"], 80)
        age = rng.normal(60, 9, 80)
        ill = rng.uniform(size=80) < 1 / (1 + np.exp(-(age - 60) / 9 - (sex == "m")))
        return pd.DataFrame({"age": age, "sex": sex, "ill": ill.astype(int)})

    grid = InProcessGrid.of_app(ridge_client_app(load), 3)
    strategy = FedRidge(
        0.0, family="binomial", formula="ill ~ age + C(sex)", min_available_nodes=3
    )
    strategy = fit(strategy, grid)
    frame = pd.concat([load(node_context(k, 3)) for k in range(3)])
    design = sm.add_constant(
        np.column_stack([frame["age"], frame["sex"] == "m"]).astype(float)
    )
    glm = sm.GLM(frame["ill"], design, family=sm.families.Binomial()).fit(tol=1e-14)
    assert np.allclose(strategy.inference_.coefficients, glm.params, rtol=1e-7)
    assert strategy.model_.terms == ["intercept", "age", "C(sex)[T.m]"]
    assert (strategy.model_.predict(frame) == (glm.fittedvalues > 0.5)).all()
    page = write_run(tmp_path, strategy)
    assert "Federated logistic regression" in page.read_text("utf-8")
    assert "odds" in (page.parent / "coefficients.csv").read_text("utf-8")


def test_a_site_policy_must_allow_families() -> None:
    def app(**rules: Any) -> ClientApp:
        return ridge_client_app(load_data, site_policy=SitePolicy(**rules))

    usual = InProcessGrid.of_app(app(), K)
    with pytest.raises(NotEnoughClientsError, match="declined by site policy"):
        fit(FedRidge(family="binomial", min_available_nodes=K), usual)
    allowed = InProcessGrid.of_app(app(requests=["families"], min_rows=3), K)
    strategy = fit(FedRidge(family="binomial", min_available_nodes=K), allowed)
    close(strategy.model_, pooled())


def test_a_policy_declines_coefficients_that_single_out_a_row() -> None:
    X = np.arange(40.0)[:, None]
    y = (np.arange(40) % 2).astype(int)
    guards = Guards(policies=(SitePolicy(requests=["families"], min_rows=5),))

    def ask(slope: float) -> Any:
        coef, one = np.array([[slope]]), np.ones(1, dtype=np.int64)
        points = Points(coef, np.zeros(1), one, np.array([20.0]))
        request = AskWorking("binomial", ("0", "1"), points)
        return respond(request, lambda: (X, y, None), guards)

    assert ask(0.1).kind == "working"
    # Only the row at 20 has any weight.
    with pytest.raises(PolicyError, match="rows count as only 1"):
        ask(50.0)


def test_a_rare_class_is_declined_like_a_rare_level() -> None:
    def load(context: Any) -> Any:
        X, y = rows_of(0)
        y = y.copy()
        y[:2] = "unsure"
        return X, y

    policy = SitePolicy(requests=["families"], min_rows_per_level=5)
    grid = InProcessGrid.of_app(ridge_client_app(load, site_policy=policy), 2)
    with pytest.raises(NotEnoughClientsError, match="declined by site policy"):
        fit(FedRidge(family="binomial", min_available_nodes=2), grid)


@pytest.mark.parametrize(
    "app", [ridge_client_app(load_data), ClientApp(client_fn=numpy_client)]
)
@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
def test_an_evaluate_round_brings_auc_and_calibration(kind: Any, app: Any) -> None:
    grid = InProcessGrid.of_app(app, K)
    strategy = kind(family="binomial", fraction_evaluate=1.0, min_available_nodes=K)
    strategy = fit(strategy, grid)
    X, y = (np.concatenate(each) for each in zip(*map(rows_of, range(K)), strict=True))
    found, model = strategy.report_.evaluation, strategy.model_
    said = model.evaluate(X, y)
    assert np.isclose(found["deviance"], said.deviance, rtol=1e-9)
    assert np.isclose(found["d2"], said.d2, rtol=1e-9)
    assert found["accuracy"] == pytest.approx(said.accuracy, rel=1e-12)
    area = roc_auc_score(y == "malignant", model.decision_function(X))
    assert abs(found["auc"] - area) < 1e-3
    groups = strategy.report_.calibration
    assert sum(group["weight"] for group in groups) == len(y)
    ill = sum(group["weight"] * group["observed"] for group in groups)
    assert ill == pytest.approx((y == "malignant").sum())


def test_counts_are_evaluated_by_their_deviance() -> None:
    grid = InProcessGrid.of_app(ridge_client_app(load_counts), K)
    strategy = FedRidge(family="poisson", fraction_evaluate=1.0, min_available_nodes=K)
    found = fit(strategy, grid).report_.evaluation
    parts = [load_counts(node_context(k, K)) for k in range(K)]
    X, y, offset = (np.concatenate([part[j] for part in parts]) for j in (0, 1, 3))
    said = strategy.model_.evaluate(X, y, offset=offset)
    assert np.isclose(found["deviance"], said.deviance, rtol=1e-9)
    assert np.isclose(found["d2"], said.d2, rtol=1e-9)
    assert "auc" not in found


@pytest.mark.parametrize("least", [1, 5, 20, 30, 1000])
def test_a_policy_joins_bins_with_few_rows(least: int) -> None:
    X, y = rows_of(0)
    policies = () if least == 1000 else (SitePolicy(min_rows_per_level=least),)
    model = FamilyModel(
        family="binomial",
        labels=("benign", "malignant"),
        coef=np.append(1.0, np.zeros(9)),
        intercept=-14.0,
        alpha=1.0,
    )
    request = AskCounts("binomial", model.labels, model.points())
    answer: Any = respond(request, lambda: (X, y, None), Guards(policies=policies))
    told = BinnedOutcomes.from_arrays(
        list(answer.arrays.values()), "binomial", 1, answer.count
    )
    weights = told.table[0, 0]
    assert weights.sum() == len(y)
    assert (weights[weights > 0] >= (1 if least == 1000 else least)).all()
    said = model.evaluate(X, y)
    assert told.scores()["accuracy"] == pytest.approx(said.accuracy)
    honest = answer.arrays["counts"]
    more_wins = honest + (np.arange(honest.size) // 100 == 1)
    for wrong in (-honest, honest * np.nan, honest[1:], more_wins):
        with pytest.raises(StatisticsError):
            BinnedOutcomes.from_arrays([wrong], "binomial", 1, answer.count)


@pytest.mark.ray
def test_a_real_simulation_is_the_pooled_fit(simulation: SharedSimulation) -> None:
    strategy = FedRidge(family="binomial", min_available_nodes=K)

    def load(context: Context) -> Any:
        X, y = load_breast_cancer(return_X_y=True)
        k = int(context.node_config["partition-id"])
        return X[k::K, :10], np.where(y[k::K], "benign", "malignant")

    def server(grid: Grid) -> None:
        strategy.start(grid)

    simulation.run(server, ridge_client_app(load), K)
    close(strategy.model_, pooled())
    assert strategy.report_.refinement.rounds <= 14
