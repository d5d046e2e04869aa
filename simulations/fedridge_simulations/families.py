"""Logistic regression: FedRidge against tuned FedAvg, FedProx and FedAdam.

    python -m fedridge_simulations.families --output-dir simulations/results/families

All methods run on the same clients in one simulation, one after another; columns have
unit variance. Counted is what it takes to come within 1e-6 of the pooled objective,
deviance + alpha ||w||². Steps are tuned by emulating all rounds beforehand, which needs
the rows of everybody: about the best that constant steps can do.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp import strategy as flower_strategies
from flwr.simulation import run_simulation

from fedridge_flwr import FedRidge, ridge_client_app
from fedridge_flwr._text import human_bytes, text_table
from fedridge_flwr.flower.exchange import CountingGrid, wait_for_nodes
from fedridge_flwr.flower.protocol.request_records import PROTOCOL_KEY

from .families_rows import (
    ALPHA,
    DATA,
    Local,
    as_facts,
    clients_of,
    is_there,
    objective,
    pooled,
    trained,
    tuned_average,
    tuned_server_step,
)
from .problem import Array

__all__ = ["app", "draw", "main", "page_text", "rows_of_table", "table_text"]

NEAR = 1e-6
_STATE = "families"
_COLOURS = {
    "FedRidge": "#009E73",
    "FedAvg": "#0072B2",
    "FedProx": "#D55E00",
    "FedAdam": "#E69F00",
}
_PROXIMAL_MU = 0.01


# ---- clients ------------------------------------------------------------------------


def load_data(context: Context) -> Any:
    """Return the rows of a client, without the column of ones."""
    client = _client(context)
    return client.X[:, 1:], client.y


def _client(context: Context) -> Any:
    name = str(context.state.config_records[_STATE]["data"])
    return clients_of(name)[int(context.node_config["partition-id"])]


_ridge = ridge_client_app(load_data)
app = ClientApp()


@app.query()
def announce(message: Message, context: Context) -> Message:
    """Keep the name of the data set, and load it before the clock starts."""
    context.state[_STATE] = message.content.config_records[_STATE]
    rows = len(_client(context).y)
    content = RecordDict({"metrics": MetricRecord({"num-examples": rows})})
    return Message(content, reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Answer FedRidge, or train for any other strategy."""
    config: Any = message.content.config_records["config"]
    if PROTOCOL_KEY in config:
        return _ridge(message, context)
    client = _client(context)
    (coef,) = message.content.array_records["arrays"].to_numpy_ndarrays()
    local = Local(
        int(config["epochs"]),
        float(config["step"]),
        float(config.get("proximal-mu", 0)),
    )
    with np.errstate(over="ignore", invalid="ignore"):
        found = trained(client, np.asarray(coef, float), local, int(config["rows"]))
    arrays = ArrayRecord({"coef": FlowerArray(found)})
    metrics = MetricRecord({"num-examples": len(client.y)})
    content = RecordDict({"arrays": arrays, "metrics": metrics})
    return Message(content, reply_to=message)


# ---- the server ---------------------------------------------------------------------


class _Watched(FedRidge):
    """FedRidge that shows its coefficients after every round."""

    def __init__(self, watch: Callable[[Array], None], **settings: Any) -> None:
        super().__init__(**settings)
        self._watch = watch

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        found = super().aggregate_train(server_round, replies)
        current: Any = self._run.round
        if current is None:
            self._watch(np.append(self.model_.intercept_, self.model_.coef_))
        else:
            points = current.ask.points
            coef = points.coef[0]
            self._watch(np.append(points.intercept[0] - points.centre @ coef, coef))
        return found


class _NearError(Exception):
    """A strategy of many rounds is near enough, and need not go on."""


class _Trace:
    """Excess over the pooled objective, bytes and seconds after every round."""

    def __init__(self, name: str, best: float, grid: CountingGrid) -> None:
        self._clients, self._best, self._grid = clients_of(name), best, grid
        self.rounds: list[list[float]] = []
        self._began, self._spent = time.perf_counter(), 0.0

    def add(self, coef: Array) -> None:
        """Note where a method is; the time of looking does not count."""
        now = time.perf_counter()
        seconds = now - self._began - self._spent
        sent = self._grid.bytes_up + self._grid.bytes_down
        excess = objective(self._clients, coef) / self._best - 1.0
        found = excess if np.isfinite(excess) else 1e9
        self.rounds.append([max(found, 1e-16), float(sent), round(seconds, 3)])
        self._spent += time.perf_counter() - now

    def facts(self) -> dict[str, Any]:
        """Return when it was near enough, and the curve."""
        near = [k for k, (excess, *_) in enumerate(self.rounds) if excess <= NEAR]
        found: dict[str, Any] = {"rounds": None, "bytes": None, "seconds": None}
        if near:
            _, sent, seconds = self.rounds[near[0]]
            found = {"rounds": near[0] + 1, "bytes": int(sent), "seconds": seconds}
        return found | {"last": self.rounds[-1][0], "by_round": self.rounds}


def _measure(name: str, rounds: int, grid: Grid) -> dict[str, Any]:
    """Run all methods on one data set."""
    clients = clients_of(name)
    best = objective(clients, pooled(clients))
    rows, width = sum(len(c.y) for c in clients), clients[0].X.shape[1]
    _announce(name, grid)
    average = tuned_average(clients, rounds, NEAR)
    adam = tuned_server_step(clients, rounds, NEAR, average.local)
    methods: dict[str, Any] = {}

    def ours(trace: _Trace, counting: CountingGrid) -> None:
        _Watched(
            trace.add, alpha=ALPHA, family="binomial", min_available_nodes=len(clients)
        ).start(counting, timeout=3600)

    def stock(kind: str, **options: Any) -> Callable[[_Trace, CountingGrid], None]:
        def run(trace: _Trace, counting: CountingGrid) -> None:
            strategy = getattr(flower_strategies, kind)(
                fraction_evaluate=0.0,
                min_train_nodes=len(clients),
                min_available_nodes=len(clients),
                **options,
            )

            def look(server_round: int, arrays: ArrayRecord) -> None:
                if server_round:
                    trace.add(arrays.to_numpy_ndarrays()[0])
                    if trace.rounds[-1][0] <= NEAR:
                        raise _NearError

            strategy.start(
                grid=counting,
                initial_arrays=ArrayRecord({"coef": FlowerArray(np.zeros(width))}),
                num_rounds=rounds,
                timeout=3600,
                train_config=ConfigRecord(
                    {
                        "epochs": average.local.epochs,
                        "step": average.local.step,
                        "rows": rows,
                    }
                ),
                evaluate_fn=look,
            )

        return run

    runs: dict[str, Any] = {
        "FedRidge": (ours, {}),
        "FedAvg": (stock("FedAvg"), as_facts(average)),
        "FedProx": (
            stock("FedProx", proximal_mu=_PROXIMAL_MU),
            as_facts(average) | {"proximal_mu": _PROXIMAL_MU},
        ),
        "FedAdam": (stock("FedAdam", eta=adam.server_step), as_facts(adam)),
    }
    for method, (run, settings) in runs.items():
        counting = CountingGrid(grid)
        trace = _Trace(name, best, counting)
        with suppress(_NearError):
            run(trace, counting)
        methods[method] = trace.facts() | {"settings": settings}
        print(f"{name}, {method}: {methods[method]['rounds']} rounds", flush=True)
    return {
        "rows": rows,
        "features": width - 1,
        "clients": len(clients),
        "split": DATA[name][0],
        "objective": best,
        "most_rounds": rounds,
        "methods": methods,
    }


def _announce(name: str, grid: Grid) -> None:
    """Tell every client which rows are meant, and wait until they are loaded."""
    messages = [
        Message(
            RecordDict({_STATE: ConfigRecord({"data": name})}),
            dst_node_id=node,
            message_type="query",
        )
        for node in wait_for_nodes(grid.get_node_ids, len(clients_of(name)), 600.0)
    ]
    replies = list(grid.send_and_receive(messages, timeout=1800))
    if len(replies) != len(messages) or any(reply.has_error() for reply in replies):
        raise RuntimeError(f"some clients could not load {name}")


# ---- what people look at ------------------------------------------------------------


def rows_of_table(results: dict[str, Any]) -> list[list[str]]:
    """Return one line for each data set and method."""
    lines = []
    for name, data in results.items():
        for method, found in data["methods"].items():
            size = f"{name} ({data['rows']:,} rows, {data['split']})"
            first = size if method == "FedRidge" else ""
            if found["rounds"] is None:
                above = f"not in {data['most_rounds']} ({found['last']:.0e} above)"
                lines.append([first, method, above, "-", "-"])
                continue
            cells = [str(found["rounds"]), human_bytes(found["bytes"])]
            lines.append([first, method, *cells, f"{found['seconds']:.1f}"])
    return lines


def table_text(results: dict[str, Any]) -> str:
    """Return the table in Markdown."""
    heads = ["data", "method", "rounds", "bytes, all clients", "seconds"]
    return text_table(heads, rows_of_table(results), text_columns=2)


def page_text(results: dict[str, Any]) -> str:
    """Return table.md: the table, and the steps that were tuned."""
    lines = []
    for name, data in results.items():
        for method, found in data["methods"].items():
            told = ", ".join(f"{k} {v:g}" for k, v in found["settings"].items())
            lines += [f"- {name}, {method}: {told}"] if told else []
    parts = [
        "# Logistic regression against FedAvg",
        f"Until deviance + alpha ||w||² is within {NEAR:g} of the pooled one; alpha "
        f"{ALPHA:g}, columns of unit variance.",
        table_text(results),
        "Steps that come near first when all rounds are emulated:",
        "\n".join(lines),
    ]
    return "\n\n".join(parts) + "\n"


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw the excess of the objective against rounds, and against bytes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(results), 6.4), layout="constrained")
    axes = figure.subplots(2, len(results), squeeze=False)
    for column, (name, data) in enumerate(results.items()):
        for row, label in enumerate(("rounds", "bytes, all clients")):
            axis = axes[row][column]
            for method, found in data["methods"].items():
                curve = np.array(found["by_round"])
                x = np.arange(1, len(curve) + 1) if row == 0 else curve[:, 1]
                marker = "o" if method == "FedRidge" else ""
                axis.loglog(
                    x, curve[:, 0], color=_COLOURS[method], marker=marker, label=method
                )
            axis.axhline(NEAR, color="0.6", lw=0.8, ls=":")
            axis.set(xlabel=label, ylim=(1e-14, 10))
            axis.grid(visible=True, color="0.92")
            axis.spines[["top", "right"]].set_visible(False)
        axes[0][column].set_title(f"{name}, {data['split']}", fontsize=10)
    for row in axes:
        row[0].set_ylabel("relative excess of the objective")
    axes[0][0].legend(fontsize=8)
    figure.savefig(path, dpi=110)


def main(arguments: list[str] | None = None) -> int:
    """Run, and write families.json, table.md and the figure."""
    parser = argparse.ArgumentParser(prog="python -m fedridge_simulations.families")
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=300, help="of the other methods")
    parser.add_argument("--data", nargs="*", default=list(DATA), choices=list(DATA))
    parser.add_argument("--render", action="store_true", help="run nothing")
    options = parser.parse_args(arguments)
    folder = options.output_dir
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "families.json"
    results = json.loads(file.read_text("utf-8")) if file.exists() else {}
    for name in () if options.render else options.data:
        if not is_there(name):
            print(f"{name} is not at hand, and left out")
            continue
        _simulate(name, options.rounds, results)
        file.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (folder / "table.md").write_text(page_text(results), encoding="utf-8")
    draw(results, folder / "families.png")
    return 0


def _simulate(name: str, rounds: int, results: dict[str, Any]) -> None:
    server_app = ServerApp()

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        results[name] = _measure(name, rounds, grid)

    quiet: Any = {"log_to_driver": False, "logging_level": "error"}
    run_simulation(
        server_app,
        app,
        num_supernodes=len(clients_of(name)),
        backend_config={"client_resources": {"num_cpus": 1}, "init_args": quiet},
    )


if __name__ == "__main__":
    raise SystemExit(main())
