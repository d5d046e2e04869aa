"""Forest plots: estimates and intervals below each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from ..._text import quoted
from ..._types import Array
from ...errors import FedRidgeError
from ..inference.inference_frames import se_type

if TYPE_CHECKING:
    from ..inference.inference_result import Inference

_SMALL_SPAN, _LARGE_SPAN, _TICKS = 4.0, 2e3, 12
_BLUE, _GREEN = "#1f77b4", "#2ca02c"


def forest_plot(
    labels: Sequence[str],
    estimates: Array,
    intervals: Array,
    *,
    title: str = "",
    xlabel: str = "",
    summary: tuple[str, float, Array] | None = None,
    ratios: bool = False,
) -> Figure:
    """Return a figure of estimates (k,) with intervals (k, 2), the first on top.

    Parameters
    ----------
    labels : sequence of str
        Names of the estimates.
    estimates, intervals : ndarray of shape (k,) and (k, 2)
        What is drawn.
    title, xlabel : str
        Texts above and below.
    summary : tuple of str, float and ndarray of shape (2,), optional
        Name, estimate and interval that all others are compared with.
    ratios : bool
        Whether they are ratios: no effect is 1, and the axis is logarithmic.
    """
    rows = len(labels) + (summary is not None)
    size = 7.0, 1.2 + 0.28 * max(rows, 3)
    figure = Figure(figsize=size, layout="constrained")
    axis = figure.subplots()
    places = np.arange(rows, 0, -1.0)
    axis.axvline(1.0 if ratios else 0.0, color="0.7", lw=1, zorder=0)
    axis.set_xscale("log" if ratios else "linear")
    _draw(axis, places[: len(labels)], estimates, intervals, _BLUE, "s")
    if summary is not None:
        name, middle, interval = summary
        _draw(axis, places[-1:], np.array([middle]), interval[None], _GREEN, "D")
        axis.axvline(middle, color=_GREEN, lw=1, ls=":", zorder=0)
        labels = [*labels, name]
    if ratios:
        _name_ratios(axis)
    # A name with dollar signs is not mathematics.
    axis.set_yticks(places, [label.replace("$", r"\$") for label in labels])
    axis.set(ylim=(0.3, rows + 0.7), xlabel=xlabel.replace("$", r"\$"))
    axis.set_title(title.replace("$", r"\$"), fontsize="medium")
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(axis="y", length=0)
    return figure


def chosen_terms(
    names: tuple[str, ...], terms: Sequence[str] | None, first: bool
) -> tuple[str, ...]:
    """Return the terms to draw, by default all but the intercept, if it is first."""
    shown = names[first:] if terms is None else tuple(terms)
    unknown = [term for term in shown if term not in names]
    if unknown:
        raise FedRidgeError(f"no such terms: {quoted(unknown)}.")
    return shown


def plot_inference(inference: Inference, terms: Sequence[str] | None) -> Figure:
    """Return the forest plot of one target's coefficients."""
    if len(inference.targets) > 1:
        raise FedRidgeError("a plot is of one target: use of_target(k).plot().")
    names = inference.terms
    shown = chosen_terms(names, terms, inference.fit_intercept)
    places = [names.index(term) for term in shown]
    percent = f"{100 * inference.level:g}%"
    return forest_plot(
        shown,
        inference.coefficients[places],
        inference.ci[places],
        title=f"{inference.targets[0]}: coefficients with {percent} intervals",
        xlabel=f"coefficient (standard errors {se_type(inference)})",
    )


def _name_ratios(axis: Any) -> None:
    """Write ratios as 0.5, 1 and 2 below a logarithmic axis, and not as powers of 10.

    Where they span little, as 1.02 to 1.09, as the axis of differences would be.
    """
    low, high = axis.get_xlim()
    if high / low > _SMALL_SPAN:
        # Over many powers of ten, 2 and 5 would stand too close.
        parts = (1.0, 2.0, 5.0) if high / low < _LARGE_SPAN else (1.0,)
        axis.xaxis.set_major_locator(LogLocator(subs=parts, numticks=_TICKS))
    else:
        axis.xaxis.set_major_locator(MaxNLocator(6))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_xlim(low, high)


def _draw(
    axis: Any, places: Array, middle: Array, ends: Array, color: str, marker: str
) -> None:
    axis.hlines(places, ends[:, 0], ends[:, 1], color=color, lw=1.6)
    axis.plot(middle, places, marker, color=color, ms=5)
