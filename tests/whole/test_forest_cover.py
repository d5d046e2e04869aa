"""Seven kinds of forest in four areas, none of which has all: one round, all labels."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fakes import InProcessGrid, fit
from flwr.app import Context
from sklearn.linear_model import RidgeClassifier

from fedridge_flwr import FedRidge, LegacyFedRidge, ridge_client_app

TREES = np.array(
    ["", "spruce", "lodgepole", "ponderosa", "willow", "aspen", "douglas", "krummholz"]
)
AREAS = 4


def forest(folder: Path, rows: int | None = None) -> tuple[Any, Any, Any]:
    """Return features, kinds of forest and areas, of all rows or some of each kind."""
    table = pd.read_csv(folder / "covtype.csv.xz")
    if rows is not None:
        kinds = table.groupby("Cover_Type", group_keys=False)
        table = pd.concat(kind.sample(rows, random_state=0) for _, kind in kinds)
    kind = table.pop("Cover_Type").to_numpy()
    areas = [f"Wilderness_Area{k}" for k in range(1, 1 + AREAS)]
    area = table[areas].to_numpy().argmax(axis=1)
    return table.to_numpy(float), kind, area


def one_round(strategy: Any, X: Any, y: Any, area: Any, **options: Any) -> Any:
    def load(context: Context) -> tuple[Any, Any]:
        own = area == context.node_config["partition-id"]
        return X[own], y[own]

    grid = InProcessGrid.of_app(ridge_client_app(load), AREAS)
    found = fit(
        strategy(
            classes="auto", min_available_nodes=AREAS, fraction_evaluate=1.0, **options
        ),
        grid,
    )
    assert len(grid.sent) == 2 * AREAS  # one round, and the evaluation
    return found


def check(found: Any, X: Any, y: Any, area: Any) -> float:
    """All labels, and the accuracy, are those of the pooled rows."""
    own = {k: set(np.unique(y[area == k]).tolist()) for k in range(AREAS)}
    assert all(labels < set(found.model_.classes_.tolist()) for labels in own.values())
    pooled = RidgeClassifier(alpha=found.model_.alpha_).fit(X, y)
    assert found.model_.classes_.tolist() == pooled.classes_.tolist()
    assert (found.model_.predict(X) == pooled.predict(X)).all()
    accuracy = float(pooled.score(X, y))
    assert found.model_.score(X, y) == pytest.approx(accuracy, abs=1e-12)
    assert found.report_.evaluation["accuracy"] == pytest.approx(accuracy, abs=1e-12)
    return accuracy


@pytest.mark.parametrize("strategy", [FedRidge, LegacyFedRidge])
@pytest.mark.parametrize("text", [False, True])
def test_some_rows_of_every_kind(
    shared_data: Callable[[str], Path], strategy: Any, text: bool
) -> None:
    X, kind, area = forest(shared_data("covtype"), rows=500)
    y = TREES[kind] if text else kind
    found = one_round(strategy, X, y, area)
    assert check(found, X, y, area) > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("text", [False, True])
def test_all_581_012_rows(shared_data: Callable[[str], Path], text: bool) -> None:
    X, kind, area = forest(shared_data("covtype"))
    assert len(kind) == 581_012
    y = TREES[kind] if text else kind
    began = time.perf_counter()
    found = one_round(FedRidge, X, y, area)
    seconds = time.perf_counter() - began
    began = time.perf_counter()
    accuracy = check(found, X, y, area)
    print(
        f"{seconds:.1f} s for round and evaluation, {time.perf_counter() - began:.1f} "
        f"s to check against scikit-learn; accuracy {accuracy:.6f}"
    )
    assert accuracy > 0.69
