"""Features far from zero keep their digits on the wire, in both APIs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import wire
from fakes import InProcessGrid, fit
from fits import ask, run_fit
from flwr.clientapp import ClientApp

from fedridge_flwr import (
    FedRidge,
    LegacyFedRidge,
    RidgeClient,
    StatisticsError,
    SufficientStatistics,
    ridge_client_app,
    solve,
)
from fedridge_flwr.federation.requests import AskStatistics

K, SHIFT, ALPHA = 10, 1e6, 0.01


def rows_of(k: int, shift: float, n_rows: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Return three dummies, which sum to one, and a normal column, all shifted."""
    rng = np.random.default_rng(k)
    dummies = np.eye(3)[rng.integers(0, 3, size=n_rows)]
    X = np.column_stack([dummies, rng.normal(size=n_rows)])
    y = X @ [1.0, 2.0, -1.0, 0.5] + 0.1 * rng.normal(size=n_rows)
    return X + shift, y + shift


def core(shift: float, **kinds: Any) -> np.ndarray:
    parts = [SufficientStatistics.from_data(*rows_of(k, shift)) for k in range(K)]
    return solve(sum(parts), ALPHA).coef_


def shifted_rows(context: Any) -> Any:
    return rows_of(int(context.node_config["partition-id"]), SHIFT)


def message_app() -> ClientApp:
    return ridge_client_app(shifted_rows)


def legacy_app() -> ClientApp:
    return ClientApp(lambda context: RidgeClient(*shifted_rows(context)).to_client())


@pytest.mark.parametrize("app", [message_app, legacy_app])
@pytest.mark.parametrize("strategy", [FedRidge, LegacyFedRidge])
def test_a_shift_of_a_million_moves_no_coefficient_by_1e_10(app, strategy):
    fitted = fit(strategy(alpha=ALPHA), InProcessGrid.of_app(app(), K))
    assert np.abs(core(SHIFT) - core(0.0)).max() < 1e-10
    assert np.abs(fitted.model_.coef_ - core(0.0)).max() < 1e-10


def test_the_same_where_clients_send_a_factor() -> None:
    few = {str(k): rows_of(k, SHIFT, n_rows=3) for k in range(60)}
    assert {ask(AskStatistics(), rows).count for rows in few.values()} == {3}
    shifted = run_fit(few, alpha=ALPHA).model
    plain = run_fit(
        {str(k): rows_of(k, 0.0, n_rows=3) for k in range(60)}, alpha=ALPHA
    ).model
    assert np.abs(shifted.coef_ - plain.coef_).max() < 1e-10


def test_a_client_that_sends_means_as_one_number_is_read() -> None:
    stats = SufficientStatistics.from_data(*rows_of(0, SHIFT))
    fields = wire.schema_fields("centred", stats, share_names=False)
    back = wire.read_fields(fields, [stats.to_array()], stats.count, AskStatistics())
    assert back.means_low is None


@pytest.mark.parametrize("low", [b"\x00", bytes(12), "text", 1.0, bytes(10**5)])
def test_low_parts_of_another_size_are_refused(low: Any) -> None:
    stats = SufficientStatistics.from_data(*rows_of(0, SHIFT))
    fields = wire.schema_fields("centred", stats, share_names=False)
    with pytest.raises(StatisticsError, match="low parts of 5 means are 10 bytes"):
        wire.read_fields(
            {**fields, "means-low": low},
            [stats.to_array()],
            stats.count,
            AskStatistics(),
        )


def test_no_low_part_moves_a_mean_by_more_than_its_last_digit() -> None:
    stats = SufficientStatistics.from_data(*rows_of(0, SHIFT))
    fields = wire.schema_fields("centred", stats, share_names=False)
    for code in (-(2**15), -1, 2**15 - 1):
        low = np.full(5, code, dtype="<i2").tobytes()
        back = wire.read_fields(
            {**fields, "means-low": low},
            [stats.to_array()],
            stats.count,
            AskStatistics(),
        )
        assert (np.abs(back.means_low) <= np.spacing(np.abs(stats.means))).all()
