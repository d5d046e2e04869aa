"""Logistic regression on real sites: heart disease in four hospitals, forest cover."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fits import run_fit
from real_tables import HOSPITALS, heart_frame
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

Folder = Callable[[str], Path]
COMPLETE = [*("age", "sex", "cp", "trestbps", "restecg", "thalach", "exang", "oldpeak")]
MOST_ROUNDS = 14


def logistic(alpha: float, X: Any, y: Any) -> Any:
    model = LogisticRegression(
        C=1 / alpha, solver="newton-cholesky", tol=1e-14, max_iter=1000
    )
    return model.fit(X, y)


def check(run: Any, alpha: float, X: Any, y: Any) -> None:
    peer = logistic(alpha, X, y)
    scale = max(np.abs(peer.coef_).max(), np.abs(peer.intercept_[0]))
    assert np.abs(run.model.coef_ - peer.coef_[0]).max() < 1e-9 * scale
    assert abs(run.model.intercept_ - peer.intercept_[0]) < 1e-9 * scale
    assert run.report.refinement.converged
    assert run.report.refinement.rounds <= MOST_ROUNDS


@pytest.mark.parametrize("alpha", [0.01, 0.1, 1.0, 10.0, 100.0])
def test_heart_disease_in_four_hospitals(alpha: float, shared_data: Folder) -> None:
    folder = shared_data("heart_disease")
    clients = {}
    for hospital in HOSPITALS:
        frame = heart_frame(folder, [hospital]).dropna(subset=COMPLETE)
        clients[hospital] = frame[COMPLETE].to_numpy(float), frame["num"].to_numpy() > 0
    X, y = (np.concatenate([rows[k] for rows in clients.values()]) for k in (0, 1))
    assert len(y) == 852
    check(run_fit(clients, alpha=alpha, family="binomial"), alpha, X, y)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.01, 0.1, 1.0, 10.0, 100.0])
def test_forest_cover_two_classes(alpha: float, shared_data: Folder) -> None:
    table = pd.read_csv(shared_data("covtype") / "covtype.csv.xz")
    y = table.iloc[:, -1].to_numpy() == 2
    X = StandardScaler().fit_transform(table.iloc[:, :-1].to_numpy(float))
    assert X.shape == (581_012, 54)
    clients = {f"c{k}": (X[k::10], y[k::10]) for k in range(10)}
    check(run_fit(clients, alpha=alpha, family="binomial"), alpha, X, y)
