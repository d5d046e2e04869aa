"""The figure of a choice of alpha: loss against alpha."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from ..._types import Array

if TYPE_CHECKING:
    from .alpha_selection import AlphaSelection


_LABELS = {
    "loco": "held-out mean squared error",
    "deviance": "held-out mean deviance",
    "one-step": "held-out mean deviance, by one Newton step",
    "groups": "held-out mean squared error",
    "gcv": "GCV score",
    "noise": "score on the other half of the noise",
}


@dataclass(frozen=True)
class AlphaColours:
    """Colours of the figure."""

    curve: str = "#1f77b4"
    chosen: str = "#2ca02c"
    clients: str = "0.6"


def draw_selection(selection: AlphaSelection, path: Path) -> None:
    """Draw mean, one-standard-error band, clients and choice into an image."""
    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    axis = figure.subplots()
    draw_curve(axis, selection)
    axis.set_title(selection.describe(), fontsize="medium")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def draw_curve(axis: Any, selection: Any, colours: AlphaColours | None = None) -> None:
    """Draw a choice (`AlphaSelection`, or what has its fields) into given axes."""
    colours = colours or AlphaColours()
    alphas, mean, error = selection.alphas, selection.mean, selection.standard_error
    if selection.losses is not None and error is not None:
        axis.plot(alphas, selection.losses.T, color=colours.clients, lw=0.6, alpha=0.35)
        band = axis.fill_between(alphas, mean - error, mean + error, lw=0, alpha=0.2)
        band.set(color=colours.curve, label="± one standard error")
        axis.set_ylim(*_limits(mean, error))
    axis.plot(alphas, mean, color=colours.curve, lw=2, label="mean")
    chosen = np.flatnonzero(alphas == selection.alpha)[:1]
    (star,) = axis.plot(alphas[chosen], mean[chosen], "*", ms=15, zorder=3)
    star.set(color=colours.chosen, label=f"chosen: alpha = {selection.alpha:.3g}")
    axis.set(xscale="log", xlabel="alpha", ylabel=_LABELS[selection.method])
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(framealpha=0.9, edgecolor="none")


def _limits(mean: Array, error: Array) -> tuple[float, float]:
    """Return limits that show the mean curve, not the worst client."""
    low, high = float((mean - error).min()), float((mean + error).max())
    margin = 0.25 * (high - low)
    return low - margin, high + margin
