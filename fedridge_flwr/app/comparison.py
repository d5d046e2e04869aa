"""One-shot ridge, FedAvg and FedProx on the same clients: run, table, figure."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, FedProx, Strategy

from .._text import human_bytes, text_table
from ..features import FeatureMap
from ..federation.report import FitReport
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


@dataclass
class Run:
    """One method on the clients: the model it ends with, and what it cost."""

    method: str
    rounds: int
    model: RidgeModel
    bytes_up: int
    bytes_down: int
    seconds: float
    mse_by_round: list[float]
    bytes_by_round: list[int]


def warm_up(grid: Grid) -> None:
    """Let every client load its rows, so that no method pays for Ray's start."""
    nodes = sorted(set(grid.get_node_ids()))
    hello = RecordDict({"config": ConfigRecord({"warm-up": True})})
    messages = [Message(hello, dst_node_id=n, message_type="query") for n in nodes]
    for _ in ask(grid, messages, _TIMEOUT, "warm-up"):
        pass


def run_oneshot(strategy: FedRidge, grid: Grid, rows: ClientRows) -> Run:
    """Run the one round, or the rounds of a refinement."""
    counting, began = CountingGrid(grid), time.perf_counter()
    strategy.start(counting, timeout=_TIMEOUT)
    seconds = time.perf_counter() - began
    mse = [test_error(strategy.model_, rows)]
    up, down = counting.bytes_up, counting.bytes_down
    what = _what_it_was(strategy.report_)
    return Run(*what, strategy.model_, up, down, seconds, mse, [up + down])


def _what_it_was(report: FitReport) -> tuple[str, int]:
    if report.privacy is not None:
        return "FedRidge, private", report.privacy.releases
    if report.refinement is not None:
        return f"FedRidge, {report.refinement.mode}", report.refinement.rounds
    if report.mode.startswith("secure sum"):
        return "FedRidge, secure sum", 4
    return "One-Shot (FedRidge)", 1


def run_iterative(
    name: str, grid: Grid, settings: AppSettings, n_clients: int, rows: ClientRows
) -> Run:
    """Run Flower's own FedAvg or FedProx, unmodified, with a step size of 1/L."""
    penalty = settings.alpha / len(rows.X)
    mu = PROXIMAL_MU if name == "FedProx" else 0.0
    curvature = largest_curvature(settings, n_clients) + penalty + mu
    counting = CountingGrid(grid)
    trace: list[float] = []
    spent: list[int] = []

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        mse = test_error(model_from_arrays(decode_arrays(arrays)), rows)
        if server_round > 0:
            trace.append(mse)
            spent.append(counting.bytes_up + counting.bytes_down)
        return MetricRecord({"test-mse": mse})

    targets, rounds = rows.y.shape[1:], settings.compare_rounds
    coef, intercept = np.zeros((*targets, rows.X.shape[1])), np.zeros(targets or (1,))
    step = {"learning-rate": 1.0 / curvature, "local-epochs": LOCAL_EPOCHS}
    began = time.perf_counter()
    result = _strategy(name, n_clients).start(
        grid=counting,
        initial_arrays=array_record({"coef": coef, "intercept": intercept}),
        num_rounds=rounds,
        timeout=_TIMEOUT,
        train_config=ConfigRecord({**step, "penalty": penalty}),
        evaluate_fn=evaluate,
    )
    seconds = time.perf_counter() - began
    model = model_from_arrays(decode_arrays(result.arrays))
    up, down = counting.bytes_up, counting.bytes_down
    return Run(name, rounds, model, up, down, seconds, trace, spent)


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
    mse = test_error(model, rows)
    return Run("Pooled ridge (scikit-learn)", 0, model, 0, 0, seconds, [mse], [0])


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
    apart = np.linalg.norm(run.model.coef_ - pooled) / (np.linalg.norm(pooled) or 1.0)
    # Without rounds it is the pooled ridge itself.
    cost = [str(run.rounds), f"{apart:.1e}"] if run.rounds else ["-", "0"]
    sizes = [
        human_bytes(n) if run.rounds else "-" for n in (run.bytes_up, run.bytes_down)
    ]
    return [run.method, cost[0], *tested, cost[1], *sizes, f"{run.seconds:.2f}"]


def draw_comparison(runs: list[Run], title: str, path: Path) -> None:
    """Draw test error against rounds and against bytes, both axes logarithmic."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    figure = Figure(figsize=(9.5, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    looks: dict[str, Any] = {
        "FedAvg": {"color": "#1f77b4"},
        "FedProx": {"color": "#d95f02", "ls": (0, (4, 2))},
    }
    *methods, pooled = runs
    plain = FuncFormatter(lambda value, _: f"{value:g}")
    for axis in (left, right):
        level = pooled.mse_by_round[-1]
        axis.axhline(level, color="0.4", lw=1, ls=":", label=pooled.method)
        axis.set(xscale="log", yscale="log")
        axis.grid(visible=True, which="major", color="0.92")
        axis.yaxis.set_major_formatter(plain)
        axis.yaxis.set_minor_formatter(plain)
        axis.spines[["top", "right"]].set_visible(False)
    for run in methods:
        rounds = np.arange(1, len(run.mse_by_round) + 1)
        for axis, cost in ((left, rounds), (right, run.bytes_by_round)):
            if run.method in looks:
                look = {**looks[run.method], "label": run.method}
                axis.plot(cost, run.mse_by_round, lw=2, **look)
                continue
            cost = [run.rounds] if axis is left else cost
            axis.plot(cost, run.mse_by_round, "*", ms=15, color="#2ca02c", zorder=3)
            label = "One-Shot" if run.rounds == 1 else run.method
            place: Any = {"xytext": (8, 8), "textcoords": "offset points"}
            star = (cost[0], run.mse_by_round[0])
            axis.annotate(label, star, **place, color="#2ca02c")
    left.set(xlabel="rounds", ylabel="test MSE")
    left.xaxis.set_major_formatter(plain)
    right.set_xlabel("bytes, both ways, all clients")
    right.xaxis.set_major_formatter(FuncFormatter(lambda size, _: human_bytes(size)))
    left.legend(frameon=False)
    figure.suptitle(title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    log.info("wrote %s", path)
