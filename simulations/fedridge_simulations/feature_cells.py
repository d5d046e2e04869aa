"""Run a cell on a data set: with a feature map, an intercept, and labels if it has."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, MetricRecord

from fedridge_flwr import FedRidge
from fedridge_flwr.app.descent import curvature

from .cells import Cell, Outcome
from .cohort import TIMEOUT, Federation, quiet
from .datasets import DATASETS, dataset_clients, pool
from .mapped_rows import feature_map_of, mapped_clients, resolved_map, weight_arrays
from .method import CENTRALIZED, ONE_SHOT
from .problem import Array, ClientRows
from .stock import stock_strategy
from .trace import Trace

__all__ = ["run_feature_cell"]


def run_feature_cell(cell: Cell, federation: Federation, folder: str) -> Outcome:
    """Run a cell to its end; `folder` is where the data sets are."""
    if cell.method.name == CENTRALIZED.name:
        oracle = _pooled_fit(_written_out(cell, folder), folder)
        judge = _Judge(oracle, DATASETS[cell.problem.dataset].labels)
        mse, distance = judge(oracle.predictions)
        return Outcome(mse, distance, oracle.seconds, facts=judge.facts())
    with quiet():
        if cell.method.name == ONE_SHOT.name:
            return _one_shot(cell, federation, folder)
        return _stock(cell, federation, folder)


@dataclass(frozen=True)
class _Oracle:
    """scikit-learn on the pooled mapped rows, and what it says of the test rows."""

    rows: ClientRows
    predictions: Array
    seconds: float


@lru_cache(maxsize=1)
def _pooled_fit(cell: Cell, folder: str) -> _Oracle:
    from sklearn.linear_model import Ridge, RidgeClassifier

    problem = cell.problem
    rows = pool(mapped_clients(problem, cell.method.features, folder))
    began = time.perf_counter()
    if DATASETS[problem.dataset].labels:
        model = RidgeClassifier(alpha=problem.alpha)
        model.fit(rows.X, rows.y.argmax(axis=1))
        predict = model.decision_function
    else:
        predict = Ridge(alpha=problem.alpha).fit(rows.X, rows.y).predict
    seconds = time.perf_counter() - began
    return _Oracle(rows, np.asarray(predict(rows.X_test)), seconds)


class _Judge:
    """Test error, distance of predictions to the oracle's, and labels."""

    def __init__(self, oracle: _Oracle, labels: bool) -> None:
        self._oracle, self._labels = oracle, labels
        self._accuracy: list[float] = []
        self._others = 0

    def __call__(self, predictions: Array) -> tuple[float, float]:
        expected, truth = self._oracle.predictions, self._oracle.rows.y_test
        with np.errstate(over="ignore", invalid="ignore"):
            mse = float(np.mean((predictions - truth) ** 2))
            gap = float(np.linalg.norm(predictions - expected))
        if self._labels:
            said = predictions.argmax(axis=1)
            self._accuracy.append(float(np.mean(said == truth.argmax(axis=1))))
            self._others = int(np.sum(said != expected.argmax(axis=1)))
        if not np.isfinite(mse) or not np.isfinite(gap):
            return float("inf"), float("inf")
        return mse, gap / float(np.linalg.norm(expected))

    def facts(self) -> dict[str, Any]:
        """Return what a table needs beside error and distance."""
        rows = self._oracle.rows
        facts = {
            "features": rows.X.shape[1],
            "test_variance": float(rows.y_test.var()),
            "training_rows": len(rows.X),
            "test_rows": len(rows.X_test),
        }
        if not self._labels:
            return facts
        curve = [] if len(self._accuracy) == 1 else self._accuracy
        return facts | {
            "accuracy": self._accuracy[-1],
            "accuracy_by_round": curve,
            "other_labels": self._others,
        }


def _written_out(cell: Cell, folder: str) -> Cell:
    """Return the oracle's cell with the same features, their map in numbers."""
    found = resolved_map(cell, folder)
    features = "" if found is None else found.to_json()
    return Cell(cell.problem, replace(CENTRALIZED, features=features))


def _judge(cell: Cell, folder: str) -> _Judge:
    labels = DATASETS[cell.problem.dataset].labels
    return _Judge(_pooled_fit(_written_out(cell, folder), folder), labels)


def _one_shot(cell: Cell, federation: Federation, folder: str) -> Outcome:
    problem, judge = cell.problem, _judge(cell, folder)
    X_test = pool(dataset_clients(problem, folder)).X_test
    cohort = federation.cohort(cell)
    trace = Trace(judge, cohort)
    strategy = FedRidge(
        alpha=problem.alpha,
        min_available_nodes=problem.clients,
        feature_map=feature_map_of(cell.method.features, problem.seed),
    )
    result = strategy.start(cohort, timeout=TIMEOUT)
    seconds = trace.seconds
    trace.add(strategy.model_.predict(X_test))
    outcome = trace.outcome(
        answered=len(strategy.report_.participants),
        rounds=max(result.train_metrics_clientapp),
        **judge.facts(),
    )
    # Nothing to read off, and nothing repeated in the file.
    outcome.mse_by_round, outcome.distance_by_round, outcome.marks = [], [], {}
    outcome.seconds = seconds
    return outcome


def _stock(cell: Cell, federation: Federation, folder: str) -> Outcome:
    """Run one of Flower's own strategies on features that everybody has already.

    The step is 1/L, with L the largest curvature of any client's loss.
    """
    judge = _judge(cell, folder)
    features = _written_out(cell, folder).method.features
    clients = mapped_clients(cell.problem, features, folder)
    rows = pool(clients)
    penalty = cell.method.local_penalty(cell.problem.alpha, len(rows.X))
    steepest = max(curvature(client.X) for client in clients)
    step = 1.0 / (steepest + penalty + cell.method.proximal_mu)
    method = replace(cell.method, features=features, learning_rate=step)
    cell = Cell(cell.problem, method)
    cohort = federation.cohort(cell)
    strategy = stock_strategy(cell)
    trace = Trace(judge, cohort)

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        if server_round == 0:
            return MetricRecord()
        coef, intercept = arrays.to_numpy_ndarrays()
        with np.errstate(over="ignore", invalid="ignore"):
            predictions = rows.X_test @ coef.T + intercept
        return MetricRecord({"test-mse": trace.add(predictions)})

    targets = rows.y.shape[1:]
    start = (np.zeros((*targets, rows.X.shape[1])), np.zeros(targets or (1,)))
    strategy.start(
        grid=cohort,
        initial_arrays=weight_arrays(start),
        num_rounds=method.rounds,
        timeout=TIMEOUT,
        evaluate_fn=evaluate,
    )
    return trace.outcome(learning_rate=step, **judge.facts())
