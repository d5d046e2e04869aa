"""Flower's own strategies, unmodified."""

from __future__ import annotations

import random
from typing import Any

from flwr.serverapp import strategy as flower_strategies
from flwr.serverapp.strategy import Strategy

from .cells import Cell
from .method import CLIPPED_FEDAVG, stock_strategies

__all__ = ["stock_strategy"]

_FEDAVGS = ("DP-FedAvg", CLIPPED_FEDAVG)


def stock_strategy(cell: Cell) -> Strategy:
    """Return the strategy that a cell names, with the seed of its sampling set."""
    method, clients = cell.method, cell.problem.clients
    name = "FedAvg" if method.name in _FEDAVGS else method.name
    if name not in stock_strategies():
        raise ValueError(f"no method {name!r}")
    asked = method.sampled or clients
    settings: dict[str, Any] = {
        "fraction_train": asked / clients,
        "fraction_evaluate": 0.0,
        "min_train_nodes": min(asked, clients),
        "min_available_nodes": clients,
    }
    if name == "FedProx":
        settings["proximal_mu"] = method.proximal_mu
    elif name == "QFedAvg":
        settings["client_learning_rate"] = method.learning_rate
    # Flower samples clients with Python's own generator.
    random.seed(cell.problem.seed)
    strategy: Strategy = getattr(flower_strategies, name)(**settings)
    return strategy
