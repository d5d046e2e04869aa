"""Run one cell: the method it names, on its clients, timed and counted."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as flower_strategies

from fedridge_flwr import FedRidge
from fedridge_flwr.flower.exchange import ask
from fedridge_flwr.privacy import DifferentialPrivacy
from fedridge_flwr.triangle import from_upper

from .cells import Cell, Outcome
from .cohort import TIMEOUT, Cohort, Federation, quiet
from .honest import gram_noise_sd, levels
from .method import CLIPPED_FEDAVG, Method, stock_strategies
from .private_tuning import tail_rounds, tuned_choice
from .problem import Array, centralized, pooled_rows
from .projection_matrix import projection_matrix
from .tuning import tuned_learning_rate

__all__ = ["run_cell"]

_MARK_EVERY = 10
_FEDAVGS = ("DP-FedAvg", CLIPPED_FEDAVG)


class _Trace:
    """Test error and distance after every round, off the clock."""

    def __init__(self, cell: Cell, cohort: Cohort | None) -> None:
        self._rows, self._oracle = pooled_rows(cell.problem), centralized(cell.problem)
        self._cohort = cohort
        self.mse: list[float] = []
        self.distance: list[float] = []
        self.marks: dict[int, list[float]] = {}
        self._paused = 0.0
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._began - self._paused

    def add(self, coef: Array) -> float:
        paused = time.perf_counter()
        seconds = self.seconds
        with np.errstate(over="ignore", invalid="ignore"):
            gap = float(np.linalg.norm(coef - self._oracle))
        distance = gap / (float(np.linalg.norm(self._oracle)) or 1.0)
        self.distance.append(distance if np.isfinite(distance) else float("inf"))
        self.mse.append(self._rows.test_error(coef))
        rounds = len(self.mse)
        if rounds <= _MARK_EVERY or rounds % _MARK_EVERY == 0:
            up, down = self._bytes()
            self.marks[rounds] = [round(seconds, 3), up, down]
        self._paused += time.perf_counter() - paused
        return self.mse[-1]

    def outcome(self, **facts: Any) -> Outcome:
        seconds = self.seconds
        up, down = self._bytes()
        return Outcome(
            test_mse=self.mse[-1],
            distance=self.distance[-1],
            seconds=seconds,
            bytes_up=up,
            bytes_down=down,
            mse_by_round=self.mse,
            distance_by_round=self.distance,
            marks=self.marks,
            facts=facts,
        )

    def _bytes(self) -> tuple[int, int]:
        if self._cohort is None:
            return 0, 0
        return self._cohort.bytes_up, self._cohort.bytes_down


def run_cell(cell: Cell, federation: Federation) -> Outcome:
    """Run a cell to its end."""
    name = cell.method.name
    if name == "Centralized":
        return _centralized(cell)
    with quiet():
        cell, chosen = _tuned(cell)
        # Rows and oracle are made before the clock starts.
        _Trace(cell, None)
        outcome = _OWN.get(name, _stock)(cell, federation.cohort(cell))
    outcome.facts |= chosen
    if cell.method.private:
        outcome.facts |= levels(cell.problem, centralized(cell.problem))
    return outcome


def _tuned(cell: Cell) -> tuple[Cell, dict[str, Any]]:
    """Return the cell with the settings that are tuned, and what was chosen."""
    method = cell.method
    if method.tuned:
        best = tuned_learning_rate(cell.problem, method)
        method = replace(method, learning_rate=best)
        return replace(cell, method=method), {"learning_rate": best}
    if method.name == CLIPPED_FEDAVG:
        choice = tuned_choice(cell.problem, method)
        return replace(cell, method=choice.of(method)), choice.facts()
    return cell, {}


def _centralized(cell: Cell) -> Outcome:
    centralized(cell.problem)  # rows are made and scikit-learn is imported
    began = time.perf_counter()
    centralized.cache_clear()
    coef = centralized(cell.problem)
    seconds = time.perf_counter() - began
    return Outcome(pooled_rows(cell.problem).test_error(coef), 0.0, seconds)


def _one_shot(cell: Cell, cohort: Cohort) -> Outcome:
    problem, method = cell.problem, cell.method
    trace = _Trace(cell, cohort)
    strategy = FedRidge(
        alpha=problem.alpha,
        fit_intercept=False,
        min_available_nodes=problem.clients,
        privacy=_privacy(method) if method.private else None,
    )
    strategy.start(cohort, timeout=TIMEOUT)
    seconds = trace.seconds
    coef = np.asarray(strategy.model_.coef_)
    if method.projection not in (0, problem.features):
        R = projection_matrix(problem.features, method.projection, problem.seed)
        coef = R @ coef
    trace.add(coef)
    outcome = trace.outcome(answered=len(strategy.report_.participants))
    # One round: nothing to read off, and nothing repeated in the file.
    outcome.mse_by_round, outcome.distance_by_round, outcome.marks = [], [], {}
    outcome.seconds = seconds
    if method.private and method.rounds == 1:
        gram = np.asarray(strategy.statistics_.gram)
        outcome.facts["gram_noise_sd"] = gram_noise_sd(problem, method, gram)
    return outcome


def _privacy(method: Method) -> DifferentialPrivacy:
    return DifferentialPrivacy(
        method.epsilon,
        method.delta,
        x_norm_bound=method.x_norm_bound,
        y_bound=method.y_bound,
        trust=method.trust,
        rounds=method.rounds,
        estimator=method.estimator or "noise_aware",
    )


def _stock(cell: Cell, cohort: Cohort) -> Outcome:
    """Run one of Flower's own strategies, unmodified."""
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
    strategy = getattr(flower_strategies, name)(**settings)
    # Flower samples clients with Python's own generator.
    random.seed(cell.problem.seed)
    trace, tail = _Trace(cell, cohort), list[Array]()

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        if server_round == 0:
            return MetricRecord()
        coef = np.asarray(arrays.to_numpy_ndarrays()[0], dtype=np.float64)
        if method.tail and server_round in tail_rounds(method.rounds):
            tail.append(coef)
            coef = np.mean(tail, axis=0)
        return MetricRecord({"test-mse": trace.add(coef)})

    strategy.start(
        grid=cohort,
        initial_arrays=_arrays(np.zeros(cell.problem.features)),
        num_rounds=method.rounds,
        timeout=TIMEOUT,
        evaluate_fn=evaluate,
    )
    return trace.outcome()


def _algorithm_2(cell: Cell, cohort: Cohort) -> Outcome:
    """Run the paper's Algorithm 2: sums of noisy G and h, then the plain solve."""
    d = cell.problem.features
    trace = _Trace(cell, cohort)
    packed = _sum(cohort, "query.algorithm_2", np.zeros(0))
    gram, moment = from_upper(packed[:-d], d), packed[-d:]
    system = gram + cell.problem.alpha * np.eye(d)
    trace.add(np.asarray(np.linalg.solve(system, moment), dtype=np.float64))
    smallest = float(np.linalg.eigvalsh(gram)[0])
    return trace.outcome(smallest_eigenvalue=smallest)


def _gradient_step(cell: Cell, cohort: Cohort) -> Outcome:
    """Take the best single step along the gradient at zero.

    The step length that minimises the objective needs G h, a second round.
    """
    d, alpha = cell.problem.features, cell.problem.alpha
    trace = _Trace(cell, cohort)
    moment = -_product(cohort, np.zeros(d), target=True)
    trace.add(np.zeros(d))
    image = _product(cohort, moment) + alpha * moment
    trace.add(moment * float(moment @ moment) / float(moment @ image))
    return trace.outcome()


def _conjugate_gradients(cell: Cell, cohort: Cohort) -> Outcome:
    """Solve (G + alpha I) w = h with products G v summed over the clients."""
    d, alpha = cell.problem.features, cell.problem.alpha
    trace = _Trace(cell, cohort)
    coef = np.zeros(d)
    residual = -_product(cohort, coef, target=True)
    trace.add(coef)
    direction, size = residual, float(residual @ residual)
    for _ in range(1, cell.method.rounds):
        image = _product(cohort, direction) + alpha * direction
        curvature = float(direction @ image)
        if not curvature > 0:  # solved to the last digit
            trace.add(coef)
            continue
        step = size / curvature
        coef = coef + step * direction
        residual = residual - step * image
        before, size = size, float(residual @ residual)
        direction = residual + (size / before) * direction
        trace.add(coef)
    return trace.outcome()


_OWN: dict[str, Callable[[Cell, Cohort], Outcome]] = {
    "One-Shot": _one_shot,
    "Projected One-Shot": _one_shot,
    "Private One-Shot": _one_shot,
    "Refinement": _one_shot,
    "Algorithm 2": _algorithm_2,
    "Best gradient step": _gradient_step,
    "Conjugate gradients": _conjugate_gradients,
}


def _product(cohort: Cohort, vector: Array, *, target: bool = False) -> Array:
    return _sum(cohort, "query.product", vector, {"target": target})


def _sum(
    cohort: Cohort, kind: str, vector: Array, config: dict[str, bool] | None = None
) -> Array:
    """Ask every client for one array and return the sum."""
    content = RecordDict(
        {"arrays": _arrays(vector), "config": ConfigRecord({**(config or {})})}
    )
    nodes = list(cohort.get_node_ids())
    messages = [Message(content, dst_node_id=n, message_type=kind) for n in nodes]
    replies = list(ask(cohort, messages, TIMEOUT, kind))
    if len(replies) < len(nodes) or any(reply.has_error() for reply in replies):
        raise RuntimeError(f"{kind}: {len(replies)} answers of {len(nodes)}, or errors")
    # In the order of the clients, so that the sum does not depend on who is first.
    by_node = {r.metadata.src_node_id: r for r in replies}
    parts = [
        by_node[n].content.array_records["arrays"].to_numpy_ndarrays()[0] for n in nodes
    ]
    total: Array = np.sum(parts, axis=0)
    return total


def _arrays(values: Array) -> ArrayRecord:
    return ArrayRecord({"coef": FlowerArray(values)})
