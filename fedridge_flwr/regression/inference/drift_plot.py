"""The figure of coefficients over time: all rows so far, and each update alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from .inference_numbers import quantile

if TYPE_CHECKING:
    from .drift import DriftHistory

_LINE, _UPDATE, _DRIFTED = "#1f77b4", "0.45", "#d62728"
_MOST_LABELS = 12


def draw_history(history: DriftHistory, terms: tuple[str, ...]) -> Figure:
    """Return one panel per coefficient, below each other; legible when it is small."""
    size = 5.0, 1.1 + 1.5 * len(terms)
    figure = Figure(figsize=size, layout="constrained")
    axes = np.atleast_1d(figure.subplots(len(terms), sharex=True))
    for axis, term in zip(axes, terms, strict=True):
        _draw(axis, history, history.totals[0].terms.index(term))
        # A name with dollar signs is not mathematics.
        axis.set_ylabel(term.replace("$", r"\$"))
        axis.spines[["top", "right"]].set_visible(False)
    step = -(-len(history.labels) // _MOST_LABELS)
    places = range(0, len(history.labels), step)
    labels = [history.labels[k].replace("$", r"\$") for k in places]
    longest = max(map(len, labels)) * len(labels)
    axes[-1].set_xticks(list(places), labels, rotation=45 if longest > 45 else 0)
    handles, names = axes[0].get_legend_handles_labels()
    found = dict(zip(names, handles, strict=True))
    figure.legend(
        found.values(), found.keys(), loc="outside upper center", ncols=2, frameon=False
    )
    return figure


def _draw(axis: Any, history: DriftHistory, k: int) -> None:
    percent = f"{100 * history.level:g}%"
    places = np.arange(len(history.labels))
    middle = np.array([total.coefficients[k] for total in history.totals])
    low, high = np.array([total.ci[k] for total in history.totals]).T
    band = axis.fill_between(places, low, high, lw=0, alpha=0.25)
    band.set(color=_LINE, label=f"{percent} interval")
    axis.plot(places, middle, color=_LINE, lw=2, label="all rows so far")
    drifted = set(history.drifted)
    for place, label, update in zip(
        places, history.labels, history.updates, strict=True
    ):
        if update is None:
            continue
        odd = label in drifted
        half = quantile(history.level, update.n_after - len(update.terms))
        axis.errorbar(
            place,
            update.after[k],
            half * update.after_se[k],
            fmt="D" if odd else "o",
            ms=4,
            lw=1,
            color=_DRIFTED if odd else _UPDATE,
            label="new rows that differ" if odd else "new rows alone",
        )
