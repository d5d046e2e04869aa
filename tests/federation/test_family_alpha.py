"""Alpha of logistic and Poisson regression, by the deviance of sites left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from fits import run_fit
from real_tables import HOSPITALS, heart_frame
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression, PoissonRegressor
from sklearn.preprocessing import StandardScaler

from fedridge_flwr import FedRidgeError, GridEdgeWarning, NotEnoughClientsError
from fedridge_flwr.regression.likelihood.families import FAMILIES

Clients = dict[str, tuple[Any, ...]]
Folder = Callable[[str], Path]
ALPHAS = [0.01, 0.1, 1.0, 10.0, 100.0, 1000.0]


def peer(name: str, alpha: float, X: Any, y: Any) -> Any:
    options = {"solver": "newton-cholesky", "tol": 1e-14, "max_iter": 1000}
    if name == "binomial":
        return LogisticRegression(C=1 / alpha, **options).fit(X, y)
    return PoissonRegressor(alpha=alpha / len(y), **options).fit(X, y)


def by_hand(name: str, clients: Clients, alphas: list[float]) -> np.ndarray:
    """Return the mean deviance of every client under the model of all others."""
    found = []
    for client, (X, y) in clients.items():
        others = [rows for c, rows in clients.items() if c != client]
        A, b = (np.concatenate([rows[k] for rows in others]) for k in (0, 1))
        losses = []
        for alpha in alphas:
            model = peer(name, alpha, A, b)
            eta = X @ np.ravel(model.coef_) + np.ravel(model.intercept_)
            losses.append(FAMILIES[name].working(y.astype(float), eta).deviance.mean())
        found.append(losses)
    return np.array(found)


def breast_cancer(_: Folder) -> tuple[str, Clients]:
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    return "binomial", {f"c{k}": (X[k::8], y[k::8]) for k in range(8)}


def heart(shared_data: Folder) -> tuple[str, Clients]:
    columns = ["age", "sex", "cp", "trestbps", "restecg", "thalach", "exang", "oldpeak"]
    folder, clients = shared_data("heart_disease"), {}
    for hospital in HOSPITALS:
        frame = heart_frame(folder, [hospital]).dropna(subset=columns)
        ill = (frame["num"] > 0).to_numpy().astype(int)
        clients[hospital] = frame[columns].to_numpy(float), ill
    return "binomial", clients


def randhie(_: Folder) -> tuple[str, Clients]:
    data = sm.datasets.randhie.load_pandas()
    X, y = data.exog.to_numpy(float), data.endog.to_numpy(float)
    return "poisson", {f"c{k}": (X[k::10], y[k::10]) for k in range(10)}


@pytest.mark.filterwarnings(f"ignore::{GridEdgeWarning.__module__}.GridEdgeWarning")
@pytest.mark.parametrize("data", [breast_cancer, heart, randhie])
def test_leaving_sites_out_is_a_plain_loop_and_one_step_is_near(
    data: Any, shared_data: Folder, capsys: Any
) -> None:
    name, clients = data(shared_data)
    exact = run_fit(clients, family=name, alphas=ALPHAS, cv="clients").result.selection
    expected = by_hand(name, clients, ALPHAS)
    assert np.abs(exact.losses / expected - 1).max() < 1e-8
    X, y = (np.concatenate([rows[k] for rows in clients.values()]) for k in (0, 1))
    pooled = peer(name, exact.alpha, X, y)
    scale = np.abs(pooled.coef_).max()
    assert np.abs(exact.model.coef_ - np.ravel(pooled.coef_)).max() < 1e-9 * scale
    near = run_fit(clients, family=name, alphas=ALPHAS, cv="server").result.selection
    places = [ALPHAS.index(chosen.alpha) for chosen in (exact, near)]
    with capsys.disabled():
        print(f"\n{data.__name__}: mean held-out deviance by alpha {ALPHAS}")
        print(f"  exact    {exact.mean.round(5).tolist()}, alpha {exact.alpha:g}")
        print(f"  one step {near.mean.round(5).tolist()}, alpha {near.alpha:g}")
    assert abs(places[0] - places[1]) <= 1
    assert near.method == "one-step"
    assert "left out in turn, by one Newton step" in near.model.alpha_chosen_by


def small(name: str = "binomial", K: int = 4) -> Clients:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 3))
    eta = X @ [1.0, -0.5, 0.0]
    y = rng.poisson(np.exp(eta / 2)) if name == "poisson" else rng.uniform(size=200)
    if name == "binomial":
        y = (y < 1 / (1 + np.exp(-eta))).astype(int)
    return {f"c{k}": (X[k::K], y[k::K]) for k in range(K)}


def test_a_site_that_leaves_is_in_no_fold() -> None:
    clients = small(K=5)

    def leaves(number: int, given: Any) -> Any:
        if number > 2:
            raise ConnectionError
        return given

    run = run_fit(
        clients, {"c2": leaves}, family="binomial", alphas=ALPHAS, cv="clients"
    )
    stay = {c: rows for c, rows in clients.items() if c != "c2"}
    found = run.result.selection
    assert found.clients == list(stay)
    expected = by_hand("binomial", stay, ALPHAS)
    assert np.abs(found.losses / expected - 1).max() < 1e-8


def test_an_automatic_grid_and_the_rule_of_one_standard_error() -> None:
    run = run_fit(small("poisson"), family="poisson", cv="server")
    wide = run_fit(
        small("poisson"), family="poisson", cv="server", one_standard_error=True
    )
    assert run.result.selection.alphas.size == 10
    assert wide.model.alpha_ >= run.model.alpha_
    assert run.report.selection["method"] == "one-step"
    assert "candidates" in str(run.report)


def test_several_classes_are_chosen_for_together() -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(300, 4))
    y = np.argmax(X[:, :3] + rng.gumbel(size=(300, 3)), axis=1)
    clients = {f"c{k}": (X[k::3], y[k::3]) for k in range(3)}
    exact = run_fit(clients, family="binomial", alphas=ALPHAS, cv="clients")
    near = run_fit(clients, family="binomial", alphas=ALPHAS, cv="server")
    assert exact.model.coef_.shape == (3, 4)
    assert np.allclose(exact.result.selection.mean, near.result.selection.mean, 0.02)


def test_more_bytes_than_allowed_are_refused_before_they_are_sent() -> None:
    with pytest.raises(FedRidgeError, match=r"30 fits advance.*max_bytes=1 kB"):
        run_fit(small(), family="binomial", alphas=ALPHAS, cv="clients", max_bytes=1000)


def test_with_one_client_there_is_nobody_to_leave_out() -> None:
    with pytest.raises(NotEnoughClientsError, match="only one"):
        run_fit({"c0": small()["c0"]}, family="binomial", alphas=ALPHAS)
