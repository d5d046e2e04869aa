"""Any two settings together: the pooled answer, or an error before any round."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from fakes import InProcessGrid, fit
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.preprocessing import StandardScaler

from fedridge_flwr import (
    DifferentialPrivacy,
    FedRidge,
    FedRidgeError,
    LegacyFedRidge,
    SecureSum,
    ridge_client_app,
)

K = 5
SETTINGS: dict[str, dict[str, Any]] = {
    "fixed": {"statistics": "fixed"},
    "triangular": {"statistics": "triangular"},
    "by site": {"standard_errors": "CR1"},
    "robust": {"standard_errors": "HC3"},
    "server": {"alphas": [2.0], "cv": "server"},
    "clients": {"alphas": [2.0], "cv": "clients"},
    "gcv": {"alphas": [2.0], "cv": "gcv"},
    "float32": {"wire_dtype": "float32"},
    "classes": {"classes": "auto"},
    "binomial": {"family": "binomial"},
    "refine": {"mode": "refine"},
    "auto": {"mode": "auto"},
    "standardize": {"standardize": True},
    "no intercept": {"fit_intercept": False},
    "map": {"feature_map": "standardize"},
    "exclude": {"screen": "exclude"},
    "secure": {"secure": SecureSum()},
    "private": {
        "privacy": DifferentialPrivacy(1.0, 1e-5, x_norm_bound=5.0, y_bound=1.0)
    },
    "strict": {"strict": True},
}
PAIRS = list(itertools.combinations(SETTINGS, 2))


def rows(k: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(k)
    X = rng.normal(loc=k, size=(40, 4)) * [1.0, 2.0, 3.0, 0.5]
    return X, (X @ [1.0, -1.0, 0.5, 2.0] + rng.normal(size=40) > 0.2 * k).astype(int)


APP = ridge_client_app(lambda context: rows(int(context.node_config["partition-id"])))


def expected(settings: dict[str, Any]) -> Any:
    """Return the coefficients of scikit-learn on all rows."""
    X, y = (np.concatenate(part) for part in zip(*map(rows, range(K)), strict=True))
    options = {"fit_intercept": settings.get("fit_intercept", True)}
    X = StandardScaler().fit_transform(X) if "feature_map" in settings else X
    scale = X.std(axis=0) if "standardize" in settings else np.ones(X.shape[1])
    X = X / scale
    if "family" in settings:
        model: Any = LogisticRegression(
            C=0.5, solver="newton-cholesky", tol=1e-12, max_iter=1000, **options
        )
    else:
        kind = RidgeClassifier if "classes" in settings else Ridge
        model = kind(alpha=2.0, solver="cholesky", **options)
    return model.fit(X, y).coef_.ravel() / scale


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_two_settings_are_the_pooled_fit_or_refused(
    pair: tuple[str, str], kind: Any
) -> None:
    first, second = (SETTINGS[name] for name in pair)
    if first.keys() & second.keys():
        pytest.skip("two values of one setting")
    settings = {**first, **second}
    try:
        strategy = kind(alpha=2.0, min_available_nodes=K, **settings)
    except FedRidgeError:
        return
    if "privacy" in settings:
        pytest.skip("noise has tests of its own")
    fit(strategy, InProcessGrid.of_app(APP, K), num_rounds=60)
    assert strategy.report_.failures == {}
    wanted = expected(settings)
    found = np.ravel(strategy.model_.coef_)
    tolerance = 1e-5 if settings.get("wire_dtype") == "float32" else 1e-9
    assert np.abs(found - wanted).max() < tolerance * np.abs(wanted).max()
    if settings.get("standard_errors") and "family" not in settings:
        assert np.isfinite(strategy.inference_.se).all()
