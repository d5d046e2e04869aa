"""Logistic regression against FedAvg: local training, tuning, committed results."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from fedridge_simulations import families
from fedridge_simulations.families_rows import (
    ALPHA,
    Client,
    Local,
    clients_of,
    objective,
    pooled,
    trained,
    tuned_average,
)

COMMITTED = Path(__file__).resolve().parents[2] / "simulations" / "results" / "families"


def toy() -> list[Client]:
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(120), rng.normal(size=(120, 3))])
    y = (rng.uniform(size=120) < 1 / (1 + np.exp(-X @ [0.2, 1, -1, 0]))).astype(float)
    return [Client(X[k::3], y[k::3]) for k in range(3)]


def test_local_steps_descend_on_the_objective_of_all() -> None:
    clients, zero = toy(), np.zeros(4)
    best = pooled(clients)
    least = objective(clients, best)
    ends = [trained(client, zero, Local(1, 1e-6), 120) for client in clients]
    step = np.mean(ends, axis=0) / 1e-6
    h = 1e-5
    slope = [objective(clients, h * e) - objective(clients, -h * e) for e in np.eye(4)]
    assert np.allclose(step, -np.array(slope) / (2 * h) / (2 * 120), rtol=1e-5)
    assert all(objective(clients, best + 0.01 * e) > least for e in np.eye(4))
    assert ALPHA == 1.0


def test_tuned_steps_come_near_the_pooled_fit() -> None:
    found = tuned_average(toy(), 60, 1e-6)
    assert found.rounds <= 60
    assert found.excess <= 1e-6


def test_breast_cancer_is_split_over_twenty_clients() -> None:
    clients = clients_of("breast cancer")
    X = np.concatenate([client.X for client in clients])
    assert len(clients) == 20
    assert np.allclose(X[:, 1:].mean(axis=0), 0.0, atol=1e-12)
    assert np.allclose(X[:, 1:].std(axis=0), 1.0)


def test_the_committed_table_and_figure_are_those_of_the_results(
    tmp_path: Path,
) -> None:
    results = json.loads((COMMITTED / "families.json").read_text("utf-8"))
    table = (COMMITTED / "table.md").read_text("utf-8")
    assert table == families.page_text(results)
    families.draw(results, tmp_path / "families.png")
    assert (tmp_path / "families.png").stat().st_size > 10_000


@pytest.mark.parametrize("name", ["heart disease", "breast cancer", "covtype"])
def test_fedridge_is_near_first_and_goes_on_to_rounding(name: str) -> None:
    results = json.loads((COMMITTED / "families.json").read_text("utf-8"))
    methods = results[name]["methods"]
    ours = methods["FedRidge"]
    assert ours["rounds"] <= 14
    assert ours["last"] < 1e-12
    for method, found in methods.items():
        if method != "FedRidge":
            assert found["rounds"] is None or found["rounds"] > ours["rounds"]
