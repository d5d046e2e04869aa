"""What an adversarial review of the engine found, each as a test."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
import types
from typing import Any

import numpy as np
import pytest
from fakes import InProcessGrid, drive, node_context
from flwr.app import ArrayRecord, ConfigRecord
from sklearn.linear_model import Ridge

from fedridge_flwr import (
    DataError,
    DifferentialPrivacy,
    FedRidge,
    LegacyFedRidge,
    NotEnoughClientsError,
    ridge_client_app,
)
from fedridge_flwr.federation.aggregate import Answers
from fedridge_flwr.flower import row_cache

K = 3


def rows_of(k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(k)
    X = rng.normal(size=(30, 3)) + k
    return X, X.sum(axis=1) + rng.normal(size=30)


def load_data(context: Any) -> Any:
    return rows_of(context.node_config["partition-id"])


APP = ridge_client_app(load_data)


@pytest.mark.parametrize(
    "settings", [{"feature_map": "standardize"}, {"cv": "clients"}, {"mode": "refine"}]
)
def test_a_buffer_that_load_data_fills_again_spoils_nothing(settings: Any) -> None:
    buffer = np.empty((30, 3))

    def load(context: Any) -> Any:
        X, y = rows_of(context.node_config["partition-id"])
        buffer[:] = X
        return buffer, y

    found, expected = (FedRidge(min_available_nodes=K, **settings) for _ in range(2))
    found.start(grid=InProcessGrid.of_app(ridge_client_app(load), K))
    expected.start(grid=InProcessGrid.of_app(APP, K))
    np.testing.assert_allclose(found.model_.coef_, expected.model_.coef_, rtol=1e-9)
    assert found.report_.failures == {}


def test_rows_are_kept_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_cache, "LARGEST_CACHE", 20_000)
    errors: list[Exception] = []

    def work(thread: int) -> None:
        rows = (np.zeros((50, 2)), np.zeros(50), None)
        try:
            for i in range(1000):
                row_cache.cached_rows((thread, i % 40), i // 40, lambda: rows)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(t,)) for t in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_a_client_lost_late_is_said_to_be_in_the_map() -> None:
    asked = [0]
    context = node_context(2, K)

    def leaves(message: Any) -> Any:
        asked[0] += 1
        if asked[0] >= 3:
            raise ConnectionError("gone")
        return APP(message, context)

    grid = InProcessGrid.of_app(APP, K)
    grid.handlers[1002] = leaves
    strategy = FedRidge(
        feature_map="standardize | fourier 30 gamma=0.3 seed=1",
        mode="refine",
        min_available_nodes=K,
    )
    strategy.start(grid=grid)
    assert "still counted in the feature map" in strategy.report_.failures["1002"]


def test_a_private_fit_that_has_not_ended_has_no_model() -> None:
    privacy = DifferentialPrivacy(50.0, 1e-5, x_norm_bound=10.0, y_bound=50.0, rounds=4)
    strategy = LegacyFedRidge(privacy=privacy, min_available_clients=K)
    drive(strategy, InProcessGrid.of_app(APP, K), 2)
    with pytest.raises(AttributeError, match="not fitted"):
        _ = strategy.model_


def test_a_driver_that_catches_an_error_gets_a_new_fit() -> None:
    broken = [True]

    def load(context: Any) -> Any:
        if broken[0]:
            raise DataError("not yet")
        return load_data(context)

    grid = InProcessGrid.of_app(ridge_client_app(load), K)
    strategy = FedRidge(min_available_nodes=K)

    def one_round(number: int) -> Any:
        asked = strategy.configure_train(number, ArrayRecord(), ConfigRecord(), grid)
        return strategy.aggregate_train(number, grid.send_and_receive(asked))[0]

    with pytest.raises(NotEnoughClientsError, match="not yet"):
        one_round(1)
    broken[0] = False
    assert one_round(2) is not None
    assert one_round(3) is None


@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
def test_without_losses_model_report_and_statistics_remain(kind: Any) -> None:
    grid = InProcessGrid.of_app(APP, K)
    grid.visible = lambda _: K if len(grid.sent) < K else 0
    strategy = kind(cv="clients", min_available_nodes=K)
    if kind is LegacyFedRidge:
        drive(strategy, grid)
    else:
        for handler in list(grid.handlers):
            grid.handlers[handler] = _deaf_to_evaluation(grid.handlers[handler])
        with pytest.raises(NotEnoughClientsError, match="no client computed"):
            strategy.start(grid=grid)
    assert strategy.statistics_.count == strategy.report_.n_rows == 30 * K
    assert strategy.model_.coef_.shape == (3,)


def _deaf_to_evaluation(handler: Any) -> Any:
    def answer(message: Any) -> Any:
        if message.metadata.message_type == "evaluate":
            raise ConnectionError("gone")
        return handler(message)

    return answer


@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
def test_strategies_can_be_copied_before_and_after_a_fit(kind: Any) -> None:
    strategy = copy.deepcopy(kind(alpha=1.0, min_available_nodes=K))
    grid = InProcessGrid.of_app(APP, K)
    if kind is FedRidge:
        strategy.start(grid=grid)
    else:
        drive(strategy, grid)
    again = pickle.loads(pickle.dumps(strategy))
    parts = [rows_of(k) for k in range(K)]
    pooled = Ridge(1.0).fit(
        np.vstack([X for X, _ in parts]), np.concatenate([y for _, y in parts])
    )
    np.testing.assert_allclose(again.model_.coef_, pooled.coef_, rtol=1e-12)
    assert again.report_.participants == strategy.report_.participants


def test_an_answer_that_fails_while_it_is_added_names_its_client() -> None:
    class Breaking(Answers):
        def add(self, client: str, part: Any) -> None:
            super().add(client, part)
            raise MemoryError

    answers = Breaking()
    answers.take("a", lambda: 1.0)
    assert answers.failures == {"a": "unreadable answer (MemoryError)"}
    assert answers.participants == answers.repeated == []


def test_load_data_of_another_app_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A local SuperLink imports from the folder of the app that it was started for."""
    name, apps = "an_app_of_this_name", []
    for y in ("1.0", "1000.0"):
        module: Any = types.ModuleType(name)
        exec(
            f"def load_data(_): return [[1.0], [2.0], [4.0]], [0.0, {y}, 2.0]",
            vars(module),
        )
        module.app = ridge_client_app(module.load_data)
        monkeypatch.setitem(sys.modules, name, module)
        apps.append(module)
    travelling = pickle.dumps(apps[1].app)
    grid = InProcessGrid.of_app(pickle.loads(travelling), 2)
    FedRidge(min_available_nodes=2).start(grid)
    monkeypatch.setitem(sys.modules, name, apps[0])  # the worker has the other app
    grid = InProcessGrid.of_app(pickle.loads(travelling), 2)
    with pytest.raises(NotEnoughClientsError, match="Stop the local SuperLink"):
        FedRidge(min_available_nodes=2).start(grid)


def test_a_fraction_of_the_clients_is_told(caplog: pytest.LogCaptureFixture) -> None:
    app = ridge_client_app(lambda _: (np.eye(3), np.arange(3.0)))
    strategy = FedRidge(fraction_train=0.5, min_available_nodes=4)
    strategy.start(InProcessGrid.of_app(app, 4))
    assert len(strategy.report_.participants) == 2
    assert "Asking 2 of 4 connected clients, chosen at random (fraction 0.5)" in (
        caplog.text
    )
