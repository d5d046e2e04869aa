"""A fit that ends without a model keeps what the clients sent, in both APIs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fakes import InProcessGrid, fit

from fedridge_flwr import (
    FedRidge,
    FitReport,
    LegacyFedRidge,
    SingularSystemError,
    StatisticsError,
    SufficientStatistics,
    ridge_client_app,
    solve,
)

K = 3


def rows_of(k: int) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(k).normal(size=(20, 3))
    X[:, 2] = X[:, 0]
    return X, X[:, 0] + X[:, 1]


def failed(kind: Any, error: type[Exception], n: int = K, **settings: Any) -> Any:
    """Fit clients with a copied column, and return the strategy after the error."""
    app = ridge_client_app(lambda context: rows_of(context.node_config["partition-id"]))
    strategy = kind(**settings)
    with pytest.raises(error):
        fit(strategy, InProcessGrid.of_app(app, n), num_rounds=1)
    return strategy


@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
def test_a_singular_system_keeps_statistics_and_report(kind, tmp_path):
    strategy = failed(kind, SingularSystemError, alpha=0.0)
    pooled = sum(SufficientStatistics.from_data(*rows_of(k)) for k in range(K))
    assert strategy.statistics_.count == 20 * K
    again = solve(strategy.statistics_, alpha=1.0)
    np.testing.assert_allclose(again.coef_, solve(pooled, 1.0).coef_, rtol=1e-12)
    report = strategy.report_
    assert len(report.participants) == K
    assert report.bytes_up > 0
    assert "column" in report.error
    assert "no model" in str(report)
    assert "0" in report.text()
    report.save(tmp_path / "report.json")
    assert str(FitReport.load(tmp_path / "report.json")) == str(report)


@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
def test_the_model_says_why_it_is_not_there_and_what_is(kind):
    strategy = failed(kind, SingularSystemError, alpha=0.0)
    with pytest.raises(
        AttributeError, match=r"Singular.*solve\(strategy.statistics_, alpha="
    ):
        strategy.model_  # noqa: B018


@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
@pytest.mark.parametrize(
    ("settings", "n", "error"),
    [
        ({"alphas": [1.0, 2.0], "cv": "server"}, 1, StatisticsError),
        ({"alphas": [1.0, 2.0], "cv": "clients"}, 1, StatisticsError),
        ({"alphas": [1e-18], "cv": "clients"}, K, SingularSystemError),
    ],
)
def test_a_choice_of_alpha_that_fails_keeps_them_too(
    kind, settings, n, error, tmp_path
):
    strategy = failed(kind, error, n, **settings)
    assert strategy.statistics_.count == 20 * n
    assert strategy.report_.n_rows == 20 * n
    assert "not chosen" in str(strategy.report_)
    strategy.report_.save(tmp_path / "report.json")
    assert "not chosen" in str(FitReport.load(tmp_path / "report.json"))


def test_nothing_is_saved_or_handed_over(tmp_path):
    told: list[Any] = []
    file = tmp_path / "model.json"
    failed(
        FedRidge, SingularSystemError, alpha=0.0, save_model=file, on_model=told.append
    )
    assert not file.exists()
    assert not told
