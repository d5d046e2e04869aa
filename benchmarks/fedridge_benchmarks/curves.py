"""Cost curves: time against rows, features, targets and clients, with exponents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from fedridge_flwr import SufficientStatistics, solve
from fedridge_flwr.federation.aggregate import Aggregate
from fedridge_flwr.federation.requests import Answer, AskStatistics
from fedridge_flwr.flower.protocol.answer_records import read_answer, reply_content
from fedridge_flwr.linalg.blas import one_blas_thread
from fedridge_flwr.statistics.encoding import encode

from .measure import seconds
from .simulated import Simulator

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Curve", "client_curve", "draw", "exponent", "row_curves"]

Curve = dict[str, Any]
_NAMES = {"fold": "check and add"}
_COLOURS = {
    "from_data": "#009E73",
    "fold": "#0072B2",
    "solve": "#D55E00",
    "FedRidge": "#009E73",
    "no-op": "#555555",
}


def row_curves() -> dict[str, Curve]:
    """Return seconds against rows, features and targets, for client and server."""
    return {
        "rows": _curve([10**k for k in (3, 4, 5, 6)], lambda n: (n, 50, 1)),
        "features": _curve([16, 64, 128, 256, 512, 1024], lambda d: (20_000, d, 1)),
        "targets": _curve([1, 4, 16, 64, 256], lambda t: (50_000, 50, t)),
        "answers": _answers([32, 64, 128, 256, 512, 1024, 2048]),
        "solve": _solutions([250, 500, 1000, 2000, 4000]),
    }


def client_curve(simulation: Simulator, numbers: Sequence[int]) -> Curve:
    """Return the seconds of a warm round, and of a no-op round, against clients."""
    ours, theirs = [], []
    for clients in numbers:
        found = simulation.run("rounds", clients, features=100, rows=20, repeats=3)
        ours.append(median(found["ridge"]))
        theirs.append(median(found["no-op"]))
    return {"x": list(numbers), "FedRidge": ours, "no-op": theirs}


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """Return b of y = a x^b, fitted to the larger half of x, where fixed costs fade.

    Examples
    --------
    >>> round(exponent([1, 2, 4, 8], [9.0, 4.0, 16.0, 64.0]), 6)
    2.0
    """
    half = len(x) // 2
    slope: float = np.polyfit(np.log(x[half:]), np.log(y[half:]), 1)[0]
    return float(slope)


_PER_LINE = 3
_PANELS = {
    "rows": ("rows (50 features)", "seconds"),
    "features": ("features (20,000 rows)", "seconds"),
    "targets": ("targets (50,000 rows, 50 features)", "seconds"),
    "answers": ("features", "server's seconds per answer"),
    "solve": ("features", "seconds"),
    "clients": ("clients (100 features, 20 rows each)", "seconds of a warm round"),
}


def draw(curves: dict[str, Curve], file: Path) -> None:
    """Draw the curves on logarithmic axes, with the fitted exponents."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    shown = {name: curves[name] for name in _PANELS if name in curves}
    lines = -(-len(shown) // _PER_LINE)
    figure = Figure(figsize=(4.2 * _PER_LINE, 3.6 * lines), layout="constrained")
    places = figure.subplots(lines, _PER_LINE, squeeze=False).ravel()
    for spare in places[len(shown) :]:
        spare.set_axis_off()
    for axis, (name, curve) in zip(places, shown.items(), strict=False):
        for label, values in curve.items():
            if label == "x":
                continue
            power = exponent(curve["x"], values)
            axis.loglog(
                curve["x"],
                values,
                marker="o",
                color=_COLOURS[label],
                ls="--" if label == "no-op" else "-",
                label=f"{_NAMES.get(label, label)}, exponent {power:.2f}",
            )
        axis.set_xlabel(_PANELS[name][0])
        axis.set_ylabel(_PANELS[name][1])
        axis.grid(visible=True, which="major", color="0.92")
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.legend(frameon=False, loc="upper left")
    figure.savefig(file, dpi=150, metadata={"Software": None})


def _curve(x: list[int], shape: Callable[[int], tuple[int, int, int]]) -> Curve:
    rng = np.random.default_rng(0)
    times = []
    for value in x:
        n, d, t = shape(value)
        X, Y = rng.normal(size=(n, d)), rng.normal(size=(n, t))
        times.append(_best(lambda: SufficientStatistics.from_data(X, Y)))  # noqa: B023
    return {"x": x, "from_data": times}


def _solutions(widths: list[int]) -> Curve:
    times = []
    for d in widths:
        stats = _statistics(d)
        times.append(_best(lambda: solve(stats, 1.0)))  # noqa: B023
    return {"x": widths, "solve": times}


def _statistics(d: int) -> SufficientStatistics:
    X = np.random.default_rng(0).normal(size=(d + 500, d))
    return SufficientStatistics.from_data(X, X.sum(axis=1))


def _answers(widths: list[int]) -> Curve:
    """Return the server's seconds to check and fold one answer, by features."""
    times = []
    for d in widths:
        stats = _statistics(d)
        sent = encode(stats)
        answer = Answer(sent.kind, sent.arrays, sent.count, stats.schema)
        reply = reply_content(answer, share_names=False)
        running = Aggregate()

        def add() -> None:
            with one_blas_thread():
                client = str(len(running.participants))  # noqa: B023
                running.add(client, read_answer(reply, AskStatistics()))  # noqa: B023

        times.append(_best(add))
    return {"x": widths, "fold": times}


def _best(run: Callable[[], object]) -> float:
    run()
    return min(seconds(run) for _ in range(5))
