"""Rows of a data set behind a feature map, and local training on them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord

from fedridge_flwr.app.descent import gradient_steps
from fedridge_flwr.data.rows import check_rows
from fedridge_flwr.features import ColumnMoments, FeatureMap

from .cells import Cell
from .datasets import dataset_clients, pool
from .problem import Array, ClientRows, Problem

__all__ = ["feature_map_of", "local_training", "mapped_clients", "resolved_map"]
__all__ += ["weight_arrays"]

_SEEDED = ("fourier", "tangent", "projection")


def feature_map_of(features: str, seed: int) -> FeatureMap | None:
    """Return the map of a method, drawn with the seed of the problem.

    A map that is already written out in JSON is taken as it is.

    Examples
    --------
    >>> feature_map_of("fourier 20 gamma=0.1", 3)
    RandomFourierFeatures(n_components=20, gamma=0.1, seed=3)
    """
    if not features:
        return None
    if features.startswith("{"):
        return FeatureMap.from_json(features)
    parts = [part.strip() for part in features.split("|")]
    return FeatureMap.from_text(
        " | ".join(
            f"{part} seed={seed}" if part.split()[0] in _SEEDED else part
            for part in parts
        )
    )


def resolved_map(cell: Cell, folder: str) -> FeatureMap | None:
    """Return the map with the numbers that the pooled training rows give it."""
    feature_map = feature_map_of(cell.method.features, cell.problem.seed)
    if feature_map is None or not feature_map.needs_data:
        return feature_map
    rows = pool(dataset_clients(cell.problem, folder))
    return feature_map.resolve(ColumnMoments.from_rows(check_rows(rows.X, rows.y)))


@lru_cache(maxsize=1)
def mapped_clients(
    problem: Problem, features: str, folder: str
) -> tuple[ClientRows, ...]:
    """Return the mapped rows of every client, made once per process and map."""
    clients = dataset_clients(problem, folder)
    feature_map = feature_map_of(features, problem.seed)
    if feature_map is None:
        return clients
    apply = feature_map.transform
    return tuple(
        ClientRows(apply(rows.X), rows.y, apply(rows.X_test), rows.y_test)
        for rows in clients
    )


def local_training(
    cell: Cell,
    partition: int,
    weights: tuple[Array, ...],
    folder: str,
    *,
    server_round: int,
    proximal_mu: float,
) -> tuple[tuple[Array, ...], int]:
    """Return (coef, intercept) after a client's gradient steps, and its rows."""
    problem, method = cell.problem, cell.method
    clients = mapped_clients(problem, method.features, folder)
    rows, total = clients[partition], sum(len(client.X) for client in clients)
    with np.errstate(over="ignore", invalid="ignore"):
        trained = gradient_steps(
            weights,
            rows.X,
            rows.y,
            epochs=method.local_epochs,
            learning_rate=method.learning_rate,
            penalty=method.local_penalty(problem.alpha, total),
            proximal_mu=proximal_mu,
            batch_size=method.batch_size,
            rng=np.random.default_rng([problem.seed, 3, partition, server_round]),
        )
    return trained, len(rows.X)


def weight_arrays(weights: tuple[Array, ...]) -> ArrayRecord:
    """Return (coef, intercept) as they travel."""
    names = ("coef", "intercept")
    return ArrayRecord(
        {
            name: FlowerArray(np.ascontiguousarray(values))
            for name, values in zip(names, weights, strict=True)
        }
    )
