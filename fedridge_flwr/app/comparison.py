"""One-shot ridge, FedAvg and FedProx on the same clients: run, table, figure."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, FedProx, Strategy

from .._text import counted, human_bytes, text_table
from ..features import FeatureMap
from ..federation.report import FitReport
from ..federation.settings import SECURE_ROUNDS
from ..flower import FedRidge
from ..flower.exchange import CountingGrid, ask, log
from ..flower.protocol.array_records import (
    array_record,
    decode_arrays,
    model_from_arrays,
)
from ..regression.model import RidgeModel
from .run_config import AppSettings
from .task import ClientRows, largest_curvature

LOCAL_EPOCHS = 5
PROXIMAL_MU = 0.01
_TIMEOUT = 600.0
_SHOWN = 12


@dataclass
class Run:
    """One method on the clients: the model it ends with, and what it cost."""

    method: str
    rounds: int
    model: RidgeModel
    bytes_up: int
    bytes_down: int
    seconds: float
    by_round: list[RidgeModel]


def warm_up(grid: Grid) -> None:
    """Let every client load its rows, so that no method pays for Ray's start."""
    nodes = sorted(set(grid.get_node_ids()))
    hello = RecordDict({"config": ConfigRecord({"warm-up": True})})
    messages = [Message(hello, dst_node_id=n, message_type="query") for n in nodes]
    for _ in ask(grid, messages, _TIMEOUT, "warm-up"):
        pass


def run_oneshot(strategy: FedRidge, grid: Grid) -> Run:
    """Run the one round, or the rounds of a refinement."""
    counting, began = CountingGrid(grid), time.perf_counter()
    strategy.start(counting, timeout=_TIMEOUT)
    seconds = time.perf_counter() - began
    up, down, model = counting.bytes_up, counting.bytes_down, strategy.model_
    return Run(*_what_it_was(strategy.report_), model, up, down, seconds, [model])


def _what_it_was(report: FitReport) -> tuple[str, int]:
    if report.privacy is not None:
        return "FedRidge, private", report.privacy.releases
    if report.refinement is not None:
        return f"FedRidge, {report.refinement.mode}", report.refinement.rounds
    if report.mode.startswith("secure sum"):
        return "FedRidge, secure sum", SECURE_ROUNDS
    return "One-Shot (FedRidge)", 1


def run_iterative(
    name: str, grid: Grid, settings: AppSettings, n_clients: int, rows: ClientRows
) -> Run:
    """Run Flower's own FedAvg or FedProx, unmodified, with a step size of 1/L."""
    penalty = settings.alpha / len(rows.X)
    mu = PROXIMAL_MU if name == "FedProx" else 0.0
    curvature = largest_curvature(settings, n_clients) + penalty + mu
    counting = CountingGrid(grid)
    models: list[RidgeModel] = []

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        models.append(model_from_arrays(decode_arrays(arrays)))
        return MetricRecord({"test-mse": test_error(models[-1], rows)})

    targets, rounds = rows.y.shape[1:], settings.compare_rounds
    coef, intercept = np.zeros((*targets, rows.X.shape[1])), np.zeros(targets or (1,))
    step = {"learning-rate": 1.0 / curvature, "local-epochs": LOCAL_EPOCHS}
    began = time.perf_counter()
    _strategy(name, n_clients).start(
        grid=counting,
        initial_arrays=array_record({"coef": coef, "intercept": intercept}),
        num_rounds=rounds,
        timeout=_TIMEOUT,
        train_config=ConfigRecord({**step, "penalty": penalty}),
        evaluate_fn=evaluate,
    )
    seconds = time.perf_counter() - began
    up, down = counting.bytes_up, counting.bytes_down
    return Run(name, rounds, models[-1], up, down, seconds, models[1:])


def _strategy(name: str, n_clients: int) -> Strategy:
    all_of_them: Any = {"min_train_nodes": n_clients, "min_available_nodes": n_clients}
    if name == "FedProx":
        return FedProx(fraction_evaluate=0.0, proximal_mu=PROXIMAL_MU, **all_of_them)
    return FedAvg(fraction_evaluate=0.0, **all_of_them)


def pooled_ridge(
    settings: AppSettings, rows: ClientRows, feature_map: FeatureMap | None = None
) -> Run:
    """Run scikit-learn's Ridge on the pooled rows, the reference of all methods."""
    from sklearn.linear_model import Ridge

    began = time.perf_counter()
    X = rows.X if feature_map is None else feature_map.transform(rows.X)
    ridge = Ridge(alpha=settings.alpha).fit(X, rows.y)
    seconds = time.perf_counter() - began
    model = RidgeModel(
        coef=np.asarray(ridge.coef_),
        intercept=ridge.intercept_,
        alpha=settings.alpha,
        n_rows=len(rows.X),
        feature_map=feature_map,
        n_features_in=rows.X.shape[1],
    )
    return Run("Pooled ridge (scikit-learn)", 0, model, 0, 0, seconds, [model])


def test_error(model: RidgeModel, rows: ClientRows) -> float:
    """Return the mean squared error on the test rows, NaN without any."""
    if not len(rows.X_test):
        return float("nan")
    return model.evaluate(rows.X_test, rows.y_test).mse


def comparison_table(runs: list[Run], rows: ClientRows) -> str:
    """Return the table of all methods against the last one, pooled ridge."""
    heads = [
        "method",
        "rounds",
        "test MSE",
        "test R²",
        "distance to pooled",
        "bytes up",
        "bytes down",
        "seconds",
    ]
    return text_table(heads, [_line(run, rows, runs[-1].model.coef_) for run in runs])


def _line(run: Run, rows: ClientRows, pooled: Any) -> list[str]:
    tested = ["no test rows"] * 2
    if len(rows.X_test):
        found = run.model.evaluate(rows.X_test, rows.y_test)
        tested = [f"{found.mse:.6g}", f"{found.r2:.5f}"]
    # Without rounds it is the pooled ridge itself.
    cost = ["-", "0"]
    if run.rounds:
        cost = [str(run.rounds), f"{_distance(run.model, pooled):.1e}"]
    sizes = [
        human_bytes(n) if run.rounds else "-" for n in (run.bytes_up, run.bytes_down)
    ]
    return [run.method, cost[0], *tested, cost[1], *sizes, f"{run.seconds:.2f}"]


def _distance(model: RidgeModel, pooled: Any) -> float:
    """Return how far coefficients are from the pooled ones, relative to these."""
    norm = np.linalg.norm(pooled) or 1.0
    return float(np.linalg.norm(model.coef_ - pooled) / norm)


def draw_comparison(runs: list[Run], rows: ClientRows, title: str, path: Path) -> None:
    """Draw the test error against rounds, and the coefficients at the end."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for axis in (left, right):
        axis.grid(visible=True, which="major", color="0.92")
        axis.spines[["top", "right"]].set_visible(False)
    _draw_errors(left, runs, rows)
    _draw_coefficients(right, runs)
    figure.legend(loc="outside lower center", ncols=len(runs), frameon=False)
    figure.suptitle(title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    log.info("wrote %s", path)


def _draw_errors(axis: Any, runs: list[Run], rows: ClientRows) -> None:
    *methods, pooled = runs
    axis.axhline(test_error(pooled.model, rows), color="0.4", lw=1, ls=":")
    for run in methods:
        errors = [test_error(model, rows) for model in run.by_round]
        rounds = range(1, len(errors) + 1) if len(errors) > 1 else [run.rounds]
        axis.plot(rounds, errors, **_look(run, "-" if len(errors) > 1 else ""))
    axis.set(xscale="log", yscale="log", xlabel="rounds", ylabel="test MSE")
    for each in (axis.xaxis, axis.yaxis):
        each.set_major_formatter(lambda value, _: f"{value:g}")
    axis.yaxis.set_minor_formatter(lambda value, _: f"{value:g}")


def _draw_coefficients(axis: Any, runs: list[Run]) -> None:
    *methods, pooled = runs
    best = np.atleast_2d(pooled.model.coef_)[0]
    shown = np.sort(np.argsort(-abs(best))[:_SHOWN])
    places = np.arange(len(shown))
    axis.bar(places, best[shown], color="0.85", label=pooled.method)
    for run in methods:
        coef = np.atleast_2d(run.model.coef_)[0]
        label = f"{run.method}, {counted(run.rounds, 'round')}"
        axis.plot(places, coef[shown], **_look(run, ""), label=label)
    names = getattr(methods[0].model, "feature_names_in_", 1 + np.arange(len(best)))
    axis.set_xticks(places, [str(names[k]) for k in shown])
    axis.set(xlabel="feature", ylabel="coefficient")


def _look(run: Run, line: str) -> dict[str, Any]:
    """Return how a method is drawn in both panels."""
    if run.method == "FedAvg":
        return {"color": "#1f77b4", "marker": "" if line else "o", "ls": line}
    if run.method == "FedProx":
        line = line and "--"
        return {"color": "#d95f02", "marker": "" if line else "x", "ls": line}
    return {"color": "#2ca02c", "marker": "*", "ls": "", "ms": 13, "zorder": 3}
