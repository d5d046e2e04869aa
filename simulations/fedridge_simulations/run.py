"""Run one cell: the method it names, on its clients, timed and counted."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from fedridge_flwr import FedRidge, GaussianProjection, SecureSum
from fedridge_flwr.errors import NotConvergedWarning
from fedridge_flwr.flower.exchange import ask
from fedridge_flwr.linalg.packed import from_upper
from fedridge_flwr.privacy import DifferentialPrivacy

from .cells import Cell, Outcome
from .cohort import TIMEOUT, Cohort, Federation, quiet
from .honest import gram_noise_sd, levels
from .method import CLIPPED_FEDAVG
from .paper_privacy import plain_solution
from .private_tuning import drawn_errors, tail_rounds, tuned_choice
from .problem import Array, Problem, centralized, pooled_rows
from .several_rounds import WatchedFedRidge
from .stock import stock_strategy
from .trace import CoefficientTrace
from .tuning import tuned_learning_rate

__all__ = ["run_cell"]


def run_cell(cell: Cell, federation: Federation) -> Outcome:
    """Run a cell to its end."""
    name = cell.method.name
    if name == "Centralized":
        return _centralized(cell)
    with quiet():
        cell, chosen = _tuned(cell)
        # Rows and oracle are made before the clock starts.
        CoefficientTrace(cell, None)
        outcome = _drawn(cell, federation)
    outcome.facts |= chosen
    if cell.method.private:
        outcome.facts |= levels(cell.problem, centralized(cell.problem))
    return outcome


def _drawn(cell: Cell, federation: Federation) -> Outcome:
    """Run a cell as often as its method says; the error is the mean."""
    method, run = cell.method, _OWN.get(cell.method.name, _stock)
    if method.draws == 1:
        return run(cell, federation.cohort(cell))
    if method.name == CLIPPED_FEDAVG:
        errors, outcome = drawn_errors(cell.problem, method), Outcome(0.0, 0.0, 0.0)
    else:
        runs = [run(cell, federation.cohort(cell)) for _ in range(method.draws)]
        errors, outcome = [each.test_mse for each in runs], runs[0]
    outcome.test_mse, outcome.facts["draws"] = float(np.mean(errors)), errors
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
    trace = CoefficientTrace(cell, cohort)
    projection = _projection(cell)
    strategy = FedRidge(
        alpha=problem.alpha,
        fit_intercept=False,
        min_available_nodes=problem.clients,
        privacy=_privacy(cell) if method.private else None,
        secure=SecureSum() if method.trust == "secagg" else None,
        feature_map=projection,
    )
    strategy.start(cohort, timeout=TIMEOUT)
    seconds = trace.seconds
    coef = np.asarray(strategy.model_.coef_original_)
    if method.estimator == "plain":
        stats = strategy.statistics_
        coef = plain_solution(stats.gram, stats.moment[:, 0], problem.alpha)
    trace.add(coef)
    outcome = trace.outcome(answered=len(strategy.report_.participants))
    # One round: nothing to read off, and nothing repeated in the file.
    outcome.mse_by_round, outcome.distance_by_round, outcome.marks = [], [], {}
    outcome.seconds = seconds
    if method.private and method.rounds == 1:
        gram = np.asarray(strategy.statistics_.gram)
        outcome.facts["gram_noise_sd"] = gram_noise_sd(problem, method, gram)
    if projection is not None:
        outcome.facts |= _loss(problem, outcome.test_mse, projection)
    return outcome


def _projection(cell: Cell) -> GaussianProjection | None:
    """Return the projection of a method; its seed is that of the trial."""
    m = cell.method.projection
    return GaussianProjection(m, seed=cell.problem.seed) if m else None


def _loss(
    problem: Problem, test_mse: float, projection: GaussianProjection
) -> dict[str, Any]:
    """Return what a projection loses: explained variance, and distances of rows.

    Both on test rows, the former as a share of what the exact solution explains.
    """
    rows = pooled_rows(problem)
    variance = float(rows.y_test.var())
    exact = variance - rows.test_error(centralized(problem))
    return {
        "explained_lost": 1 - (variance - test_mse) / exact,
        "distortion": list(projection.distortion(rows.X_test)),
    }


def _several_rounds(cell: Cell, cohort: Cohort) -> Outcome:
    """Run FedRidge in a mode of several rounds, and look at it after each."""
    trace, by_round = CoefficientTrace(cell, cohort), list[list[float]]()

    def watch(coef: Array) -> None:
        mse = trace.add(coef)
        by_round.append([*trace.bytes, mse, trace.distance[-1]])

    strategy = WatchedFedRidge(
        watch,
        alpha=cell.problem.alpha,
        fit_intercept=False,
        min_available_nodes=cell.problem.clients,
        mode=cell.method.name,
        tol=cell.method.tol,
        max_rounds=cell.method.rounds,
    )
    with warnings.catch_warnings():
        # The outcome says so.
        warnings.simplefilter("ignore", NotConvergedWarning)
        strategy.start(cohort, timeout=TIMEOUT)
    refinement = strategy.report_.refinement
    if refinement is None:
        raise ValueError(f"{cell.method.name!r} is not a mode of several rounds")
    outcome = trace.outcome(
        answered=len(strategy.report_.participants),
        rounds=refinement.rounds,
        converged=refinement.converged,
        estimate=refinement.estimates[-1],
        by_round=by_round,
    )
    # The number of rounds is found, not set: there is nothing to read off.
    outcome.mse_by_round, outcome.distance_by_round, outcome.marks = [], [], {}
    return outcome


def _privacy(cell: Cell) -> DifferentialPrivacy:
    method = cell.method
    # The plain solution is not part of the package: it is computed from the statistics.
    default = method.estimator in ("", "plain")
    problem = cell.problem
    sizes = {
        "n_features": problem.features,
        "n_rows": problem.training_rows,
        "n_clients": len(problem.participants),
    }
    return DifferentialPrivacy(
        method.epsilon,
        method.delta,
        x_norm_bound=method.x_norm_bound,
        y_bound=method.y_bound,
        trust=method.trust,
        min_clients=cell.problem.clients if method.trust == "secagg" else 1,
        rounds=method.rounds,
        waves=method.waves,
        estimator="noise_aware" if default else method.estimator,
        expected=sizes if method.estimator == "auto" else None,
    )


def _stock(cell: Cell, cohort: Cohort) -> Outcome:
    """Run one of Flower's own strategies, unmodified."""
    method, strategy = cell.method, stock_strategy(cell)
    trace, tail = CoefficientTrace(cell, cohort), list[Array]()

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
    trace = CoefficientTrace(cell, cohort)
    packed = _sum(cohort, "query.algorithm_2", np.zeros(0))
    gram, moment = from_upper(packed[:-d], d), packed[-d:]
    trace.add(plain_solution(gram, moment, cell.problem.alpha))
    smallest = float(np.linalg.eigvalsh(gram)[0])
    return trace.outcome(smallest_eigenvalue=smallest)


def _gradient_step(cell: Cell, cohort: Cohort) -> Outcome:
    """Take the best single step along the gradient at zero.

    The step length that minimises the objective needs G h, a second round.
    """
    d, alpha = cell.problem.features, cell.problem.alpha
    trace = CoefficientTrace(cell, cohort)
    moment = -_product(cohort, np.zeros(d), target=True)
    trace.add(np.zeros(d))
    image = _product(cohort, moment) + alpha * moment
    trace.add(moment * float(moment @ moment) / float(moment @ image))
    return trace.outcome()


def _conjugate_gradients(cell: Cell, cohort: Cohort) -> Outcome:
    """Solve (G + alpha I) w = h with products G v summed over the clients."""
    d, alpha = cell.problem.features, cell.problem.alpha
    trace = CoefficientTrace(cell, cohort)
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
    "refine": _several_rounds,
    "cg": _several_rounds,
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
