"""Triangular statistics on the wire: asked for, answered, read, told, in both APIs."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import wire
from fakes import InProcessGrid, fit
from flwr.app import Message
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.common import FitIns, Parameters
from flwr.compat.common.recorddict_compat import fitres_to_recorddict
from generators import relative_error
from sklearn.linear_model import Ridge

from fedridge_flwr import (
    DifferentialPrivacy,
    FedRidge,
    FedRidgeError,
    LegacyFedRidge,
    ProtocolError,
    RidgeClient,
    TriangularStatistics,
    infer,
    ridge_client_app,
    select_alpha,
    solve,
)
from fedridge_flwr.federation.requests import AskStatistics
from fedridge_flwr.flower.protocol.request_records import read_request, request_parts

K, D = 8, 6
ALPHAS = [0.01, 0.1, 1.0, 10.0, 100.0]


def rows_of(k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(k)
    X = rng.normal(loc=k, size=(20 + k, D))
    return X, X[:, 0] - X[:, 1] + rng.normal(size=len(X))


def load_data(context: Any) -> Any:
    return rows_of(int(context.node_config["partition-id"]))


def parts() -> dict[str, TriangularStatistics]:
    return {
        str(1000 + k): TriangularStatistics.from_data(*rows_of(k)) for k in range(K)
    }


def pooled() -> tuple[np.ndarray, np.ndarray]:
    X, y = zip(*map(rows_of, range(K)), strict=True)
    return np.vstack(X), np.concatenate(y)


NATIVE = ridge_client_app(load_data)
NUMPY = ClientApp(lambda context: RidgeClient(*load_data(context)).to_client())
apps = pytest.mark.parametrize("app", [NATIVE, NUMPY], ids=["message", "numpy"])
strategies = pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])


def run(kind: Any, grid: InProcessGrid, **settings: Any) -> Any:
    given = {"statistics": "triangular", "min_available_nodes": K, **settings}
    return fit(kind(**given), grid)


# ---- the whole round ----------------------------------------------------------------


@strategies
@apps
def test_all_four_combinations_are_the_pooled_fit(app: ClientApp, kind: Any) -> None:
    strategy = run(kind, InProcessGrid.of_app(app, K))
    expected = Ridge(1.0).fit(*pooled())
    assert relative_error(strategy.model_.coef_, expected.coef_) < 1e-12
    assert strategy.model_.form == "triangular"
    assert isinstance(strategy.statistics_, TriangularStatistics)
    report = strategy.report_
    assert report.failures == {}
    assert report.settings["statistics"] == "triangular"
    assert "statistics  triangular" in str(report)
    assert len(report.sites) == K
    assert all(site.influence is not None for site in report.sites)
    again = infer(sum(parts().values()), 1.0)
    np.testing.assert_allclose(strategy.inference_.se, again.se, rtol=1e-12)
    kept = strategy.client_statistics_.values()
    assert {part.form for part in kept} == {"triangular"}


@strategies
@apps
@pytest.mark.parametrize("cv", ["server", "clients", "gcv"])
def test_alpha_is_chosen(app: ClientApp, kind: Any, cv: str) -> None:
    strategy = run(kind, InProcessGrid.of_app(app, K), alphas=ALPHAS, cv=cv)
    method = "gcv" if cv == "gcv" else "loco"
    expected = select_alpha(parts(), ALPHAS, method=method)
    assert strategy.model_.alpha_ == expected.alpha
    np.testing.assert_allclose(strategy.selection_.mean, expected.mean, rtol=1e-9)


@strategies
def test_auto_alphas_and_one_standard_error(kind: Any) -> None:
    grid = InProcessGrid.of_app(NATIVE, K)
    strategy = run(kind, grid, alphas="auto", one_standard_error=True)
    expected = select_alpha(parts(), "auto", one_standard_error=True)
    assert strategy.model_.alpha_ == pytest.approx(expected.alpha, rel=1e-9)


@strategies
def test_clients_that_stand_out_are_left_out_exactly(kind: Any) -> None:
    def lying(context: Any) -> Any:
        X, y = load_data(context)
        liar = context.node_config["partition-id"] == 3
        return (X, -50.0 * y) if liar else (X, y)

    grid = InProcessGrid.of_app(ridge_client_app(lying), K)
    strategy = run(kind, grid, screen="exclude")
    assert list(strategy.report_.failures) == ["1003"]
    honest = sum(part for client, part in parts().items() if client != "1003")
    assert relative_error(strategy.model_.coef_, solve(honest).coef_) < 1e-12


@strategies
def test_names_work(kind: Any) -> None:
    names = [f"c{j}" for j in range(D)]
    strategy = run(
        kind, InProcessGrid.of_app(NATIVE, K), feature_names=names, unnamed="accept"
    )
    assert list(strategy.model_.feature_names_in_) == names


def test_so_does_a_map_that_needs_data() -> None:
    grid = InProcessGrid.of_app(NATIVE, K)
    mapped = run(FedRidge, grid, feature_map="standardize")
    X, y = pooled()
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    expected = Ridge(1.0).fit(scaled, y)
    np.testing.assert_allclose(mapped.model_.coef_, expected.coef_, rtol=1e-10)


@strategies
def test_the_report_recommends_the_form_where_sums_lose_digits(kind: Any) -> None:
    def near(context: Any) -> Any:
        X, y = load_data(context)
        X[:, 5] = X[:, 4] + 1e-5 * X[:, 5]
        return X, y

    app = ridge_client_app(near)
    with pytest.warns(UserWarning, match="triangular"):
        sums = run(kind, InProcessGrid.of_app(app, K), alpha=0.0, statistics="moments")
    assert 'statistics="triangular": the system has condition' in sums.report_.advice
    better = run(kind, InProcessGrid.of_app(app, K), alpha=0.0)
    assert "triangular" not in better.report_.advice


def test_an_upload_is_as_large_as_that_of_moments() -> None:
    def uploaded(form: str) -> int:
        report = run(FedRidge, InProcessGrid.of_app(NATIVE, K), statistics=form).report_
        return int(report.bytes_up)

    names = len("triangular") - len("centred")
    assert uploaded("triangular") == uploaded("moments") + names * K


# ---- other clients ------------------------------------------------------------------


def older(k: int) -> Any:
    """Return a client that does not look at the form it is asked for."""

    def answer(message: Message) -> Message:
        asked = FitIns(Parameters([], ""), {wire.PROTOCOL_KEY: wire.PROTOCOL})
        result = RidgeClient(*rows_of(k)).to_client().fit(asked)
        return Message(fitres_to_recorddict(result, False), reply_to=message)

    return answer


@strategies
def test_clients_that_do_not_know_the_form_are_named(kind: Any) -> None:
    grid = InProcessGrid.of_app(NATIVE, K)
    grid.handlers[1000] = older(0)
    strategy = run(kind, grid)
    (reason,) = strategy.report_.failures.values()
    assert reason.startswith("sent floating-point sums although the server asked for ")
    assert 'use statistics="moments"' in reason
    others = sum(part for client, part in parts().items() if client != "1000")
    assert relative_error(strategy.model_.coef_, solve(others).coef_) < 1e-12


@strategies
def test_a_form_that_was_not_asked_for_is_named(kind: Any) -> None:
    def unasked(message: Message) -> Message:
        changed = copy.deepcopy(message)
        for record in changed.content.config_records.values():
            record["statistics"] = "triangular"
        return native(changed)

    grid = InProcessGrid.of_app(NATIVE, K)
    native, grid.handlers[1000] = grid.handlers[1000], unasked
    strategy = run(kind, grid, statistics="moments")
    (reason,) = strategy.report_.failures.values()
    assert reason == 'sent statistics="triangular", which was not asked for'


@strategies
def test_plain_clients_cannot_take_part(kind: Any) -> None:
    class Foreign(NumPyClient):
        def fit(self, parameters: Any, config: Any) -> Any:
            X, y = rows_of(0)
            return [X.T @ X, X.T @ y], len(y), {}

    foreign = InProcessGrid.of_app(ClientApp(lambda _: Foreign().to_client()), K)
    grid = InProcessGrid.of_app(NATIVE, K)
    grid.handlers[1000] = foreign.handlers[1000]
    strategy = run(kind, grid, fit_intercept=False)
    (reason,) = strategy.report_.failures.values()
    assert reason.startswith("sent floating-point sums")


# ---- requests and settings ----------------------------------------------------------


def test_the_request_has_one_key_more_and_none_for_moments() -> None:
    assert request_parts(AskStatistics()) == ({}, {})
    asked = AskStatistics(statistics="triangular")
    fields, arrays = request_parts(asked)
    assert (fields, arrays) == ({"statistics": "triangular"}, {})
    assert read_request(fields, [], evaluating=False) == asked


@pytest.mark.parametrize("form", ["round", "", 3, b"triangular", ["triangular"], None])
def test_a_form_that_a_client_does_not_know_is_declined(form: Any) -> None:
    with pytest.raises(ProtocolError, match="can send moments"):
        read_request({"statistics": form}, [], evaluating=False)


PRIVATE = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=1.0, y_bound=1.0)


@strategies
@pytest.mark.parametrize(
    ("settings", "error", "reason"),
    [
        ({"statistics": "cubic"}, FedRidgeError, 'must be "moments"'),
        ({"privacy": PRIVATE}, FedRidgeError, "privacy adds its noise"),
        ({"wire_dtype": "float32"}, FedRidgeError, "float32 has fewer digits"),
        ({"mode": "refine"}, FedRidgeError, 'mode="refine" sends no sums'),
        ({"mode": "cg"}, FedRidgeError, 'mode="cg" sends no sums'),
        ({"mode": "auto"}, FedRidgeError, 'mode="auto" sends no sums'),
    ],
)
def test_what_does_not_go_together_is_refused_with_the_reason(
    kind: Any, settings: dict[str, Any], error: Any, reason: str
) -> None:
    with pytest.raises(error, match=reason):
        kind(**{"statistics": "triangular", **settings})
