"""One style for all figures: colours safe for colour-blind eyes, units on axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .method import SCALED, UNSCALED, Method
from .results import Spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "axes",
    "curve",
    "oracle_line",
    "say_what_is_empty",
    "series",
    "shared_legend",
    "style",
]

# Okabe and Ito's palette: told apart with any kind of colour vision, and in grey.
_COLOURS = {
    "One-Shot": "#009E73",
    "Projected One-Shot": "#009E73",
    "Algorithm 2": "#009E73",
    "FedAvg": "#0072B2",
    "DP-FedAvg": "#0072B2",
    "Private One-Shot": "#009E73",
    "Clipped DP-FedAvg": "#0072B2",
    "FedProx": "#D55E00",
    "Conjugate gradients": "#CC79A7",
    "Best gradient step": "#E69F00",
    "refine": "#D55E00",
    "cg": "#CC79A7",
    "Centralized": "#555555",
}
_SPARE = ("#56B4E9", "#E69F00", "#CC79A7", "#000000")


def axes(
    columns: int = 1, rows: int = 1, *, title: str = "", width: float = 0.0
) -> tuple[Figure, list[Axes]]:
    """Return a figure with axes side by side, and below each other."""
    from matplotlib.figure import Figure

    size = (
        width or (6.4 if columns == 1 else 5.0 * columns),
        4.2 if rows == 1 else 3.6 * rows,
    )
    figure = Figure(figsize=size, layout="constrained")
    made = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in made:
        axis.grid(visible=True, which="major", color="0.92")
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    if title:
        figure.suptitle(title)
    return figure, list(made)


def style(method: Method) -> dict[str, Any]:
    """Return colour, line and marker of a method, the same in every figure."""
    spare = _SPARE[sum(map(ord, method.name)) % len(_SPARE)]
    look: dict[str, Any] = {
        "color": _COLOURS.get(method.name, spare),
        "label": method.label,
        # FedProx runs on top of FedAvg: a thin line leaves the other in sight.
        "lw": {"FedAvg": 2.8, "FedProx": 1.2}.get(method.name, 1.8),
    }
    if method.penalty == UNSCALED:
        look |= {"ls": (0, (4, 2)), "marker": "s", "mfc": "white"}
    elif method.penalty == SCALED:
        look |= {"ls": "-", "marker": "o"}
    else:
        look |= {"ls": "-", "marker": "*", "ms": 10}
    if method.epsilon and not method.private:
        look |= {"ls": (0, (4, 2)), "label": f"{method.label}, not private"}
    if method.name == "Refinement":
        few = method.rounds < 10
        look |= {"color": "#CC79A7" if few else "#D55E00", "marker": "D", "ms": 5}
    if method.name == "Clipped DP-FedAvg":
        look |= {"marker": "s", "ms": 6}
    if method.trust == "server":
        one_shot = method.name == "Private One-Shot"
        look |= {"color": "#56B4E9"} if one_shot else {"ls": ":", "mfc": "white"}
    if method.trust == "secagg":
        look |= {"color": "#999999", "marker": "P", "ms": 7}
    if method.estimator == "auto":
        look |= {"color": "#000000", "marker": "o", "ms": 5}
    if method.estimator == "ridge_floor":
        look |= {"color": "#E69F00", "marker": "v", "ms": 6}
    if method.tuned:
        look |= {"ls": ":", "marker": "^"}
    if method.sampled:
        look |= {"color": "#56B4E9"}
    if method.batch_size:
        look |= {"color": "#CC79A7", "ls": "-.", "lw": 1.8}
    return look


def series(
    axis: Axes, x: Sequence[float], values: Sequence[Spread], method: Method
) -> None:
    """Draw means and standard deviations; what diverged is left out."""
    kept = [
        (at, v) for at, v in zip(x, values, strict=True) if v.trials and v.mean < 1e12
    ]
    if kept:
        axis.errorbar(
            [at for at, _ in kept],
            [v.mean for _, v in kept],
            yerr=[v.sd for _, v in kept],
            capsize=3,
            elinewidth=1,
            **style(method),
        )


def curve(axis: Axes, traces: Sequence[Sequence[float]], method: Method) -> None:
    """Draw the mean of traces by round, with a band from smallest to largest."""
    if not traces:
        return
    values = np.array(traces)
    rounds = np.arange(1, values.shape[1] + 1)
    look = style(method) | {"marker": ""}
    axis.plot(rounds, values.mean(axis=0), **look)
    axis.fill_between(
        rounds,
        values.min(axis=0),
        values.max(axis=0),
        color=look["color"],
        alpha=0.15,
        lw=0,
    )


def oracle_line(axis: Axes, value: float, label: str = "Centralized") -> None:
    """Draw the oracle."""
    axis.axhline(value, color="#555555", lw=1.2, ls=":", label=label)


def shared_legend(figure: Figure, panels: Sequence[Axes], columns: int) -> None:
    """Explain below the figure what is in any of its panels."""
    known: dict[str, Any] = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            known.setdefault(label, handle)
    figure.legend(
        list(known.values()),
        list(known),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=9,
    )


def say_what_is_empty(figure: Figure) -> None:
    """Write into panels without a single finite point that they have none.

    Lines all across a panel are no points. Scales and ticks go: a logarithmic axis
    without data cannot be drawn.
    """
    for panel in figure.axes:
        drawn = [
            np.asarray(line.get_xydata(), float)
            for line in panel.lines
            if line.get_transform() == panel.transData
        ]
        some = any(np.isfinite(points).all(axis=1).any() for points in drawn)
        if some or not panel.get_visible():
            continue
        timed = "seconds" in (panel.get_xlabel(), panel.get_ylabel())
        for line in list(panel.lines):
            line.remove()
        panel.set(xscale="linear", yscale="linear", xlim=(0, 1), ylim=(0, 1))
        panel.set(xticks=[], yticks=[])
        words = "not timed" if timed else "no data"
        panel.text(0.5, 0.5, words, ha="center", va="center", color="0.4", fontsize=12)
