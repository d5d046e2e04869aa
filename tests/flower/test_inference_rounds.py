"""What is inferred after a round equals statsmodels on pooled rows, in both APIs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from fakes import InProcessGrid, fit
from flwr.clientapp import ClientApp
from sklearn.datasets import load_diabetes

from fedridge_flwr import (
    DifferentialPrivacy,
    FedRidge,
    FedRidgeError,
    LegacyFedRidge,
    RidgeClient,
    infer,
    ridge_client_app,
    solve,
)

K = 12
X, Y = load_diabetes(return_X_y=True)


def own_rows(context: Any) -> Any:
    k = int(context.node_config["partition-id"])
    return X[k::K], Y[k::K]


def message_app() -> ClientApp:
    return ridge_client_app(own_rows)


def legacy_app() -> ClientApp:
    return ClientApp(lambda context: RidgeClient(*own_rows(context)).to_client())


@pytest.mark.parametrize("app", [message_app, legacy_app])
@pytest.mark.parametrize("strategy", [FedRidge, LegacyFedRidge])
def test_inference_after_a_round_equals_statsmodels(app: Any, strategy: Any) -> None:
    fitted = fit(strategy(alpha=0.0), InProcessGrid.of_app(app(), K))
    A = sm.add_constant(X)
    wanted = sm.OLS(Y, A).fit()
    found = fitted.inference_
    np.testing.assert_allclose(found.coefficients, wanted.params, rtol=1e-8)
    np.testing.assert_allclose(found.se, wanted.bse, rtol=1e-8)
    np.testing.assert_allclose(found.p, wanted.pvalues, rtol=1e-8)
    assert found.aic == pytest.approx(wanted.aic, rel=1e-10)
    assert found.n_sites == K
    parts = fitted.client_statistics_
    assert len(parts) == K
    robust = infer(fitted.statistics_, parts=parts, covariance="CR1")
    groups = {"groups": np.arange(len(Y)) % K}
    wanted = sm.OLS(Y, A).fit(cov_type="cluster", cov_kwds=groups)
    np.testing.assert_allclose(robust.se, wanted.bse, rtol=1e-8)
    np.testing.assert_allclose(robust.ci, wanted.conf_int(), rtol=1e-7)


def test_the_choice_of_alpha_is_named() -> None:
    fitted = fit(
        FedRidge(alphas=[1e-3, 1e-2, 0.1, 1.0]), InProcessGrid.of_app(message_app(), K)
    )
    assert fitted.inference_.alpha == fitted.selection_.alpha
    assert fitted.selection_.describe() in fitted.inference_.summary()


def test_the_summary_of_a_model_shows_it() -> None:
    """That of a fit has its own; a model by itself shows what is given."""
    fitted = fit(FedRidge(alpha=0.5), InProcessGrid.of_app(message_app(), K))
    model = solve(fitted.statistics_, 0.5)
    plain, tested = model.summary(), model.summary(fitted.inference_)
    assert fitted.model_.summary() == fitted.model_.summary(fitted.inference_)
    assert fitted.model_.summary() == tested
    assert "std err" not in plain
    assert plain.splitlines()[:6] == tested.splitlines()[:6]
    assert "y (standard errors: classical)" in tested
    assert "P>|t|" in tested
    assert "this bias" in tested
    other = infer(fitted.statistics_, 0.7)
    with pytest.raises(FedRidgeError, match="inference is of another fit"):
        model.summary(other)
    with pytest.raises(FedRidgeError, match="inference is of another fit"):
        solve(fitted.statistics_, 0.5, fit_intercept=False).summary(fitted.inference_)


def test_where_there_is_none() -> None:
    private = DifferentialPrivacy(
        epsilon=50.0, delta=1e-5, x_norm_bound=0.5, y_bound=400.0, trust="local"
    )
    fitted = fit(FedRidge(privacy=private), InProcessGrid.of_app(message_app(), K))
    with pytest.raises(AttributeError, match="intervals are withheld"):
        _ = fitted.inference_
    with pytest.raises(AttributeError, match="did not keep full statistics"):
        _ = fitted.client_statistics_
    unkept = fit(
        FedRidge(alpha=0.0, screen="off"), InProcessGrid.of_app(message_app(), K)
    )
    assert unkept.inference_.n_sites == K
    with pytest.raises(AttributeError, match='cv="server"'):
        _ = unkept.client_statistics_
    with pytest.raises(AttributeError, match="not fitted"):
        _ = FedRidge().inference_
