"""What was recorded: rows, clients and settings of each fit, and what came of it.

`record.py` ran these with version 0.1.0, `test_golden.py` runs them again. Only public
names of the package are used here, so that modules may move.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from fakes import InProcessGrid, node_context
from flwr.app import Context
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.server import ServerAppComponents, ServerConfig
from flwr.serverapp import ServerApp

from fedridge_flwr import (
    DifferentialPrivacy,
    FedRidge,
    LegacyFedRidge,
    RidgeClient,
    ridge_client_app,
)

FOLDER = Path(__file__).parent
MESSAGES, FILES, ROWS = FOLDER / "messages", FOLDER / "files", FOLDER / "rows.json"
K = 3
NAMES = ["age", "bmi", "pressure", "s1", "s2"]
BOUNDS = {"x_norm_bound": 5.0, "y_bound": 8.0}
BUDGET = {"max_epsilon": 2.0, "max_delta": 1e-5}
"""Of the ledger that was recorded."""


def privacy(epsilon: float, rounds: int = 1) -> DifferentialPrivacy:
    return DifferentialPrivacy(epsilon, 1e-5, rounds=rounds, rules=1, **BOUNDS)


@dataclass(frozen=True)
class Scenario:
    """One fit.

    `client` is "message" (`ridge_client_app`), "legacy" (`RidgeClient`) or "foreign"
    (somebody else's); `rows` is a function of the rows of a client.
    """

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    client: str = "message"
    options: dict[str, Any] = field(default_factory=dict)
    rows: Callable[[Any, Any], tuple[Any, ...]] = lambda X, y: (X, y)
    kind: type[FedRidge] | type[LegacyFedRidge] = FedRidge

    @property
    def private(self) -> bool:
        return "privacy" in self.settings

    @property
    def in_steps(self) -> bool:
        return self.settings.get("mode") in ("refine", "cg")

    def strategy(self, **changed: Any) -> Any:
        settings = {"alpha": 0.7, "min_available_nodes": K, **self.settings}
        return self.kind(**{**settings, **changed})

    def load(self, context: Context) -> tuple[Any, ...]:
        return self.rows(*rows_of(int(context.node_config["partition-id"])))

    def app(self) -> ClientApp:
        if self.client == "message":
            return ridge_client_app(self.load, **self.options)

        def client(context: Context) -> Any:
            rows = self.load(context)
            if self.client == "foreign":
                return Foreign(*rows).to_client()
            return RidgeClient(*rows, **self.options).to_client()

        return ClientApp(client_fn=client)


class Foreign(NumPyClient):
    """Knows nothing of the package: sends the paper's G and h."""

    def __init__(self, X: np.ndarray, y: np.ndarray) -> None:
        self.X, self.y = X, y

    def fit(self, parameters: Any, config: Any) -> Any:
        return [self.X.T @ self.X, self.X.T @ self.y], len(self.y), {}


@cache
def all_rows() -> list[tuple[np.ndarray, np.ndarray]]:
    content = json.loads(ROWS.read_text(encoding="utf-8"))
    return [(np.array(each["X"]), np.array(each["y"])) for each in content]


def rows_of(k: int) -> tuple[np.ndarray, np.ndarray]:
    return all_rows()[k]


def named(X: np.ndarray, y: np.ndarray) -> tuple[Any, ...]:
    return pandas.DataFrame(X, columns=NAMES), y


def few(X: np.ndarray, y: np.ndarray) -> tuple[Any, ...]:
    """Fewer rows than columns, and few enough that a factor is smaller."""
    return X[:4], y[:4]


def two(X: np.ndarray, y: np.ndarray) -> tuple[Any, ...]:
    """So few that it is smaller in float32 as well."""
    return X[:2], y[:2]


def weighted(X: np.ndarray, y: np.ndarray) -> tuple[Any, ...]:
    """Two targets, and weights."""
    return X, np.column_stack([y, X[:, 0] - y]), 1.0 + np.arange(len(y)) % 3


LOSSES = {"alphas": [0.001, 0.3, 10.0], "cv": "clients"}
# Where steps of several rounds stop is far from what is reached before and after, so
# that the last bits of a number do not decide on a round.
REFINE = {"mode": "refine", "tol": 1e-7}
CG = {"mode": "cg", "tol": 1e-8}

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("oneshot"),
        Scenario("names-hashed", rows=named),
        Scenario("names-shared", rows=named, options={"share_feature_names": True}),
        Scenario("targets-and-weights", rows=weighted),
        Scenario("standardize", {"standardize": True}),
        Scenario("float32", {"wire_dtype": "float32"}),
        Scenario("trapezoid", rows=few),
        Scenario("trapezoid-float32", {"wire_dtype": "float32"}, rows=two),
        Scenario("auto", {"mode": "auto"}),
        Scenario("refine", REFINE, rows=named),
        Scenario("cg", CG),
        Scenario("private", {"privacy": privacy(1e6)}),
        Scenario("private-noisy", {"privacy": privacy(20.0)}),
        Scenario("private-rounds", {"privacy": privacy(1e6, rounds=3)}),
        Scenario("losses", LOSSES, rows=named),
        Scenario("map", {"feature_map": "standardize | polynomial 2"}, rows=named),
        Scenario("map-random", {"feature_map": "fourier 6 gamma=0.1 seed=3"}),
        Scenario("evaluate", {"fraction_evaluate": 1.0}, rows=named),
        Scenario("refusal", options={"min_rows": 25}),
        Scenario("foreign", {"fit_intercept": False}, client="foreign"),
        Scenario("legacy", client="legacy", rows=named),
        Scenario("legacy-losses", LOSSES, client="legacy"),
        Scenario("legacy-evaluate", {"fraction_evaluate": 1.0}, client="legacy"),
        Scenario("legacy-refine", REFINE, client="legacy"),
        Scenario("legacy-refusal", client="legacy", options={"min_rows": 25}),
        Scenario("legacy-server", {"fraction_evaluate": 1.0}, kind=LegacyFedRidge),
    )
}


def run(strategy: Any, grid: InProcessGrid) -> Any:
    """Fit, by the driver that the strategy is made for."""
    if not isinstance(strategy, LegacyFedRidge):
        strategy.start(grid, timeout=120)
        return strategy
    parts = ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=1))
    ServerApp(server_fn=lambda _: parts)(grid, node_context(0, K))
    return strategy


def outcome(strategy: Any) -> dict[str, Any]:
    """Return what a fit came to, as values of JSON."""
    model, report = strategy.model_, strategy.report_.to_dict()
    refinement, selection = report["refinement"], report["selection"] or {}
    return {
        "coef": model.coef_.tolist(),
        "intercept": np.asarray(model.intercept_).tolist(),
        "alpha": model.alpha_,
        "r2": model.r2_,
        "n_rows": model.n_rows_,
        "n_clients": model.n_clients_,
        "feature_names": list(getattr(model, "feature_names_in_", [])),
        "map_fingerprint": model.map_fingerprint,
        "alpha_chosen_by": model.alpha_chosen_by,
        "rounds": refinement and refinement["rounds"],
        "losses": selection.get("losses"),
        "evaluation": report["evaluation"],
        "wire_error": report["wire_error"],
        # The older driver asks in an order of its own.
        "participants": sorted(report["participants"]),
        "failures": report["failures"],
        "n_features": report["n_features"],
    }
