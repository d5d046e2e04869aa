"""Logistic regression in a deployment with TLS: the pooled fit, in a few rounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from deployed import read_report
from fedridge_deployment.federation import federation
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

from fedridge_flwr import FamilyModel

pytestmark = [pytest.mark.deployment, pytest.mark.slow]

PROJECT = Path(__file__).resolve().parents[2]
FEATURES = ["radius", "texture", "smoothness", "symmetry"]


def test_a_deployment_with_tls_is_the_pooled_logistic_regression(
    tmp_path: Path,
) -> None:
    X, y = load_breast_cancer(return_X_y=True)
    frame = pd.DataFrame(X[:, [0, 1, 4, 8]], columns=FEATURES).assign(benign=y)
    with federation(tmp_path) as running:
        for k in range(3):
            path = tmp_path / f"site-{k}.csv"
            frame.iloc[k::3].to_csv(path, index=False)
            running.add_site(f"site-{k}", path)
        running.wait_for()
        config = {
            "formula": f"benign ~ {' + '.join(FEATURES)}",
            "family": "binomial",
            "output-dir": str(tmp_path / "out"),
        }
        running.run(PROJECT, config)
    model = FamilyModel.load(tmp_path / "out" / "model.json")
    pooled = LogisticRegression(solver="newton-cholesky", tol=1e-14, max_iter=1000)
    pooled.fit(frame[FEATURES], y)
    scale = np.abs(pooled.coef_).max()
    assert np.abs(model.coef_ - pooled.coef_[0]).max() < 1e-9 * scale
    assert abs(model.intercept_ - pooled.intercept_[0]) < 1e-8
    assert read_report(tmp_path / "out")["refinement"]["rounds"] <= 14
