"""The strategy of the fit/evaluate API, driven by Flower's own older driver."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from fakes import InProcessGrid, drive, node_context
from flwr.app import Message
from flwr.clientapp import ClientApp
from generators import pooled as pooled_rows
from sklearn.linear_model import Ridge

from fedridge_flwr import (
    FedRidgeError,
    LegacyFedRidge,
    NotEnoughClientsError,
    RidgeClient,
    RidgeModel,
    ridge_client_app,
)
from fedridge_flwr.flower import legacy_strategy
from fedridge_flwr.flower.error_text import silence_of

K = 6


def rows_of(k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(k)
    X = rng.normal(loc=k, size=(10 + k, 4))
    return X, X @ [1.0, -1.0, 0.5, 2.0] + rng.normal(size=len(X))


def pooled(clients: list[int], **settings: Any) -> Ridge:
    rows = [rows_of(k) for k in clients]
    X, y = pooled_rows(rows)
    return Ridge(**settings).fit(X, y)


def load_data(context: Any) -> Any:
    return rows_of(int(context.node_config["partition-id"]))


NATIVE = ridge_client_app(load_data)
NUMPY = ClientApp(
    client_fn=lambda context: RidgeClient(*load_data(context)).to_client()
)


@pytest.mark.parametrize("app", [NATIVE, NUMPY], ids=["message", "numpy"])
def test_one_round_gives_the_pooled_solution(app: ClientApp) -> None:
    models: list[RidgeModel] = []
    strategy = LegacyFedRidge(0.7, min_available_clients=K, on_model=models.append)
    drive(strategy, InProcessGrid.of_app(app, K))
    ridge = pooled(list(range(K)), alpha=0.7)
    np.testing.assert_allclose(models[0].coef_, ridge.coef_, rtol=1e-12)
    np.testing.assert_allclose(models[0].intercept_, ridge.intercept_, rtol=1e-12)
    assert strategy.report_.bytes_up > 0
    assert strategy.report_.fedavg_rounds is not None


@pytest.mark.parametrize("app", [NATIVE, NUMPY], ids=["message", "numpy"])
def test_fifty_rounds_left_in_cost_nothing_after_the_first(app: ClientApp) -> None:
    seen: list[int] = []

    def evaluate_fn(server_round: int, arrays: Any, config: Any) -> Any:
        seen.append(server_round)
        assert [array.shape for array in arrays] == [(4,), (1,)]
        return 0.5, {}

    grid = InProcessGrid.of_app(app, K)
    strategy = LegacyFedRidge(
        min_available_nodes=K, fraction_evaluate=1.0, evaluate_fn=evaluate_fn
    )
    drive(strategy, grid, num_rounds=50)
    kinds = [message.metadata.message_type for message in grid.sent]
    assert kinds == ["train"] * K + ["evaluate"] * K
    assert seen == [1]
    assert strategy.report_.evaluation is not None
    assert strategy.report_.evaluation["num-examples"] == strategy.report_.n_rows


def test_rounds_that_are_left_are_explained_once(caplog: Any) -> None:
    with caplog.at_level("INFO", logger="flwr"):
        drive(LegacyFedRidge(min_available_clients=2), InProcessGrid.of_app(NATIVE, 2))
        assert "num_rounds=1 is enough" not in caplog.text
        strategy = LegacyFedRidge(min_available_clients=2)
        drive(strategy, InProcessGrid.of_app(NATIVE, 2), num_rounds=20)
    assert caplog.text.count("the model is complete after round 1") == 1
    assert caplog.text.count("num_rounds=1 is enough") == 1


def test_failures_are_named_with_their_reasons(tmp_path: Any) -> None:
    grid = InProcessGrid.of_app(NUMPY, K)
    tiny = ClientApp(client_fn=lambda context: RidgeClient([[1.0]], [1.0]).to_client())

    def crash(message: Message) -> Message:
        raise MemoryError("out of memory")

    grid.handlers[1000] = lambda message: tiny(message, node_context(0, K))
    grid.handlers[1001] = crash
    strategy = LegacyFedRidge(
        min_available_clients=K, save_model=tmp_path / "model.json"
    )
    drive(strategy, grid)
    assert "declined: it has fewer rows" in strategy.report_.failures["1000"]
    assert "out of memory" in strategy.report_.failures["1001"]
    model = RidgeModel.load(tmp_path / "model.json")
    ridge = pooled([2, 3, 4, 5], alpha=1.0)
    np.testing.assert_allclose(model.coef_, ridge.coef_, rtol=1e-12)


def test_start_belongs_to_the_other_class() -> None:
    with pytest.raises(TypeError, match=r"fedridge_flwr\.FedRidge"):
        LegacyFedRidge().start(grid=None)


def test_wrong_settings_fail_before_the_round() -> None:
    with pytest.raises(FedRidgeError, match="alpha must be"):
        LegacyFedRidge(alpha=float("nan"))
    with pytest.raises(FedRidgeError, match="between 0 and 1"):
        LegacyFedRidge(fraction_evaluate=2.0)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"min_available_clients": -3}, "min_available_clients must be a whole number"),
        ({"min_available_nodes": "3"}, "min_available_nodes must be a whole number"),
        ({"min_train_nodes": 0}, "min_train_nodes must be a whole number"),
        (
            {"min_available_nodes": 2, "min_available_clients": 5},
            "min_available_clients=5 and min_available_nodes=2 are two names",
        ),
        ({"fraction_evaluate": "3"}, "fraction_evaluate must be between 0 and 1"),
    ],
)
def test_numbers_of_clients_are_checked_under_both_names(setting, told):
    with pytest.raises(FedRidgeError, match=told):
        LegacyFedRidge(**setting)


def test_what_fedavg_took_is_taken() -> None:
    """Settings of a stock FedAvg may stay where they are."""
    from flwr.common import ndarrays_to_parameters

    strategy = LegacyFedRidge(
        fraction_fit=1.0,
        min_fit_clients=2,
        min_evaluate_clients=2,
        min_available_clients=K,
        initial_parameters=ndarrays_to_parameters([np.zeros(3)]),
        on_fit_config_fn=lambda server_round: {"lr": 0.1},
        evaluate_fn=lambda server_round, arrays, config: None,
    )
    drive(strategy, InProcessGrid.of_app(NATIVE, K))
    assert len(strategy.report_.participants) == K


def test_a_fraction_of_the_clients_is_asked() -> None:
    strategy = LegacyFedRidge(fraction_fit=0.5, min_available_clients=K)
    drive(strategy, InProcessGrid.of_app(NATIVE, K))
    assert len(strategy.report_.participants) == round(0.5 * K)
    with pytest.raises(FedRidgeError, match="fraction_fit must be above 0"):
        LegacyFedRidge(fraction_fit=0.0)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"mode": "refine"}, "fewer than the fit takes, there is no model"),
        ({"standard_errors": "HC3"}, "ServerConfig(num_rounds=2)"),
    ],
)
def test_a_fit_that_was_not_given_its_rounds_says_at_the_end_that_there_is_no_model(
    settings: dict[str, Any], told: str, caplog: Any
) -> None:
    models: list[RidgeModel] = []
    strategy = LegacyFedRidge(
        min_available_clients=2, on_model=models.append, **settings
    )
    drive(strategy, InProcessGrid.of_app(NATIVE, 2))
    assert told in caplog.text
    assert "NO MODEL" not in caplog.text
    del strategy
    gc.collect()
    assert "NO MODEL: the fit was to go on after round 1" in caplog.text
    assert not models


def test_a_fit_that_has_ended_says_nothing_at_the_end(caplog: Any) -> None:
    strategy = LegacyFedRidge(min_available_clients=2, standard_errors="HC3")
    drive(strategy, InProcessGrid.of_app(NATIVE, 2), num_rounds=2)
    del strategy
    gc.collect()
    assert "NO MODEL" not in caplog.text


def test_a_client_that_is_late_is_told_as_late() -> None:
    """The older driver knows of it only that its message has expired."""

    def expired() -> ValueError:
        return ValueError(
            "Message contains an Error (reason: Error: Message Unavailable - The "
            "requested message could not be found in the database. It may have "
            "expired due to its TTL or been deleted.). It originated during "
            "client-side execution of a message."
        )

    failures: list[BaseException] = [expired(), expired()]
    assert silence_of(failures) == "no answer within the round_timeout"
    failures.append(OSError("OSError: gone"))
    assert silence_of(failures) == (
        "failed (OSError: gone), or no answer within the round_timeout"
    )
    assert silence_of([]) == "no answer"


def test_the_legacy_strategy_says_its_own_name(caplog: Any) -> None:
    from flwr.common import ndarrays_to_parameters

    with caplog.at_level("INFO", logger="flwr"):
        LegacyFedRidge(initial_parameters=ndarrays_to_parameters([np.zeros(3)]))
    assert "LegacyFedRidge needs no initial parameters" in caplog.text


def test_too_few_clients_are_asked_for_under_the_names_of_this_strategy(
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr(legacy_strategy, "_WAIT_SECONDS", 0.01)
    strategy = LegacyFedRidge(min_available_clients=3)
    with pytest.raises(NotEnoughClientsError) as told:
        drive(strategy, InProcessGrid.of_app(NATIVE, 2))
    assert "ask for fewer (min_available_clients; also min_fit_clients" in (
        str(told.value)
    )
    assert "timeout" not in str(told.value)
