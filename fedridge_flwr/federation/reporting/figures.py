"""The figures of a fit, drawn with matplotlib: coefficients, rows of sites, alpha.

In a page colours are CSS variables, so that one figure is right on light and on dark;
in a file they are fixed. Labels come from clients and are never taken as mathematics.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ...regression.alpha.alpha_plot import AlphaColours, draw_curve
from ...regression.model import RidgeModel
from ...regression.summary import coefficient_names, target_label
from .markup import escaped
from .site_comparison import LARGEST, Effects

if TYPE_CHECKING:
    from ..report import FitReport

FIGURES = ("coefficients", "rows", "influence", "alpha")
"""How the keys of figures begin."""

_WIDTH, _ROW, _FRAME = 4.7, 0.2, 0.95
_LONGEST_LABEL = 22
_TARGETS = 3


class Palette(NamedTuple):
    """Colours of a figure."""

    ink: str
    muted: str
    line: str
    accent: str
    second: str


_IN_FILES = Palette("#1b1f24", "#57606a", "#d5dae0", "#0b5fb0", "#b35900")
# Colours that nobody uses, each in place of the CSS variable of its name.
_IN_PAGES = Palette(*(f"#01fe{k:02x}" for k in range(5)))


# Of what matplotlib writes: its font, its style, comments, and ids nobody refers to.
_CLEANED = (
    (r"font: ([\d.]+px) [^;\"]*", r"font-size: \1"),
    (r"<defs>\s*<style[^>]*>.*?</style>\s*</defs>", ""),
    (r"<!--.*?-->", ""),
    (r"<g id=\"[^\"]*\"", "<g"),
)


@dataclass(frozen=True)
class Drawing:
    """One figure: how it is drawn, and what it shows in words.

    Parameters
    ----------
    key : str
        Name of its file.
    title : str
        What it is.
    caption : str
        How it is read, and what it leaves out.
    description : str
        Its content for those who do not see it.
    draw : callable
        Returns the figure in given colours.
    """

    key: str
    title: str
    caption: str
    description: str
    draw: Callable[[Palette], Figure]

    def svg(self) -> str:
        """Return an SVG element for a page, in the colours of the page."""
        out = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        with _style(self.key, _IN_PAGES):
            figure = self.draw(_IN_PAGES)
            figure.savefig(out, format="svg", transparent=True, metadata=nothing)
        text = out.getvalue()
        for name, colour in _IN_PAGES._asdict().items():
            text = text.replace(colour, f"var(--{name})")
        for unwanted, instead in _CLEANED:
            text = re.sub(unwanted, instead, text, flags=re.DOTALL)
        box = re.search(r'viewBox="[\d. ]*"', text)
        start = text.index(">", text.index("<svg")) + 1
        label = escaped(f"{self.title}. {self.description}")
        view = "" if box is None else box[0]
        return f'<svg role="img" aria-label="{label}" {view}>{text[start:]}'

    def save(self, path: Path) -> None:
        """Write the figure as a PNG."""
        with _style(self.key, _IN_FILES):
            figure = self.draw(_IN_FILES)
            figure.axes[0].set_title(_label(self.title, 60), loc="left", fontsize=9)
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, dpi=160)


def coefficients_key(target: int) -> str:
    """Return the key of the figure of a target's coefficients."""
    return "coefficients" if target == 0 else f"coefficients-{target}"


def drawings(model: RidgeModel | None, report: FitReport) -> list[Drawing]:
    """Return the figures that there are data for."""
    found = []
    if model is not None:
        for k in range(min(_TARGETS, np.atleast_2d(model.coef_).shape[0])):
            found.append(_coefficients(model, report.comparison.effects, k))
    if any(site.rows for site in report.sites) and len(report.sites) > 1:
        found.append(_rows(report))
        if any(site.influence for site in report.sites):
            found.append(_influence(report))
    chosen = report.selection
    if chosen is not None and len(chosen["alphas"]) > 1:
        found.append(_alpha(chosen))
    return found


# ---- coefficients -------------------------------------------------------------------


def _coefficients(model: RidgeModel, effects: Effects | None, target: int) -> Drawing:
    coef = np.atleast_2d(model.coef_)
    values, names = coef[target], coefficient_names(model)
    left = np.empty((0, 0))
    if effects is None:
        order = np.argsort(-np.abs(values), kind="stable")[:LARGEST].tolist()
        label = "coefficient"
    else:
        values, order = effects.standardised(coef)[target], effects.largest[target]
        scale = np.array(effects.x_sd)[order] / (effects.y_sd[target] or np.inf)
        rows = [coefs[target] for coefs in effects.without.values()]
        left = np.array(rows).reshape(len(rows), len(order)) * scale
        label = "standardised effect: coef × sd(x) / sd(y)"
    of = f" of {target_label(model, target)}" if len(coef) > 1 else ""
    title = f"{'Coefficients' if effects is None else 'Standardised effects'}{of}"
    if len(order) < coef.shape[1]:
        title += f": the {len(order)} largest of {coef.shape[1]}"
    caption = (
        "Standard deviations of y for one standard deviation of x, the largest first."
        if effects is not None
        else "Coefficients in the units of their columns: sizes are not comparable."
    )
    if len(left):
        caption += " Small dots: the same if one site were missing."
    shown = [f"{names[j]} {values[j]:.3g}" for j in order[:8]]
    return Drawing(
        coefficients_key(target),
        title,
        caption,
        f"Largest: {', '.join(shown)}",
        partial(
            _draw_coefficients, [names[j] for j in order], values[order], left, label
        ),
    )


def _draw_coefficients(
    names: Sequence[str], values: Any, left: Any, label: str, colours: Palette
) -> Figure:
    figure, axis = _panel(len(names))
    places = np.arange(len(names))
    axis.axvline(0.0, color=colours.muted, lw=0.8)
    axis.hlines(places, 0.0, values, color=colours.accent, lw=2.2)
    axis.plot(values, places, "o", color=colours.accent, ms=5.5, label="all sites")
    if len(left):
        across = np.broadcast_to(places + 0.27, left.shape)
        first, many = "one site missing", max(0.25, min(0.8, 20 / len(left)))
        axis.plot(
            left.ravel(), across.ravel(), ".", color=colours.second, ms=3.2, alpha=many
        )
        axis.plot([], [], ".", color=colours.second, ms=5, label=first)
        _legend(figure)
    _name_rows(axis, names)
    axis.set_xlabel(label)
    return figure


# ---- rows ---------------------------------------------------------------------------


def _rows(report: FitReport) -> Drawing:
    sites = [site for site in report.sites if site.rows is not None]
    shown = sites[:LARGEST]
    title = "Rows of the sites"
    if len(shown) < len(sites):
        title += f": the {len(shown)} largest of {len(sites)}"
    names = [report.name_of(site.client) for site in shown]
    kept = [site.rows or 0 for site in shown]
    dropped = [max(site.dropped or 0, 0) for site in shown]
    told = [f"{name} {n}" for name, n in zip(names[:8], kept, strict=False)]
    caption = "Rows in the model"
    caption += ", and rows dropped for missing values." if any(dropped) else "."
    return Drawing(
        "rows",
        title,
        caption,
        f"Rows in the model: {', '.join(told)}",
        partial(_draw_rows, names, kept, dropped),
    )


def _draw_rows(
    names: Sequence[str], kept: Sequence[int], dropped: Sequence[int], colours: Palette
) -> Figure:
    figure, axis = _panel(len(names))
    places = np.arange(len(names))
    axis.barh(places, kept, height=0.66, color=colours.accent, label="in the model")
    if any(dropped):
        hatched: Any = {
            "facecolor": "none",
            "edgecolor": colours.second,
            "hatch": "/////",
        }
        axis.barh(places, dropped, left=kept, height=0.6, label="dropped", **hatched)
        _legend(figure)
    _name_rows(axis, names)
    longest = max(a + b for a, b in zip(kept, dropped, strict=True))
    axis.set(xlabel="rows", xlim=(0, 1.04 * longest))
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}"))
    return figure


def _influence(report: FitReport) -> Drawing:
    sites = [site for site in report.sites if site.influence is not None]
    sites.sort(key=lambda site: -(site.influence or 0.0))
    shown = sites[:LARGEST]
    title = "Influence of the sites"
    if len(shown) < len(sites):
        title += f": the {len(shown)} largest of {len(sites)}"
    names = [report.name_of(site.client) for site in shown]
    sizes = [site.influence or 0.0 for site in shown]
    told = [f"{name} {n:.2g}" for name, n in zip(names[:8], sizes, strict=False)]
    return Drawing(
        "influence",
        title,
        "How far predictions would move if the site were missing: root mean squared "
        "change over all rows, in standard deviations of y.",
        f"Largest: {', '.join(told)}",
        partial(_draw_influence, names, sizes),
    )


def _draw_influence(
    names: Sequence[str], sizes: Sequence[float], colours: Palette
) -> Figure:
    figure, axis = _panel(len(names))
    places = np.arange(len(names))
    axis.hlines(places, 0.0, sizes, color=colours.second, lw=2.2)
    axis.plot(sizes, places, "o", color=colours.second, ms=5.5)
    _name_rows(axis, names)
    axis.set(xlabel="change of predictions / sd(y)", xlim=(0, 1.06 * max(sizes)))
    axis.xaxis.set_major_locator(MaxNLocator(5))
    return figure


# ---- alpha --------------------------------------------------------------------------


def _alpha(chosen: dict[str, Any]) -> Drawing:
    losses, error = chosen["losses"], chosen["standard_error"]
    selection = SimpleNamespace(
        alpha=chosen["alpha"],
        alphas=np.array(chosen["alphas"], dtype=float),
        mean=np.array(chosen["mean"], dtype=float),
        standard_error=None if error is None else np.array(error, dtype=float),
        losses=None if losses is None else np.array(list(losses.values()), dtype=float),
        method=chosen["method"],
    )
    caption = "" if losses is None else "Thin lines: single sites, held out in turn."
    return Drawing(
        "alpha",
        "Held-out error against alpha" if losses else "Score against alpha",
        caption,
        f"Chosen: {selection.alpha:.3g}",
        partial(_draw_alpha, selection),
    )


def _draw_alpha(selection: SimpleNamespace, colours: Palette) -> Figure:
    figure = Figure(figsize=(_WIDTH, 3.0), layout="constrained")
    axis = figure.subplots()
    draw_curve(
        axis, selection, AlphaColours(colours.accent, colours.second, colours.muted)
    )
    axis.legend_ = None  # it is above the axes here
    _legend(figure, columns=3)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.grid(visible=True, axis="y")
    return figure


# ---- parts --------------------------------------------------------------------------


@contextmanager
def _style(key: str, colours: Palette) -> Iterator[None]:
    """Use our looks; ids in the SVG are the same every time, and other in each."""
    looks: Any = {
        "font.size": 8.5,
        "svg.fonttype": "none",
        "svg.hashsalt": key,
        "text.parse_math": False,
        "axes.formatter.use_mathtext": False,
        "text.color": colours.ink,
        "axes.labelcolor": colours.ink,
        "axes.edgecolor": colours.muted,
        "grid.color": colours.line,
        "grid.linewidth": 0.6,
        "xtick.color": colours.muted,
        "ytick.color": colours.muted,
        "xtick.labelcolor": colours.ink,
        "ytick.labelcolor": colours.ink,
        "legend.frameon": False,
    }
    with mpl.rc_context(looks), warnings.catch_warnings():
        # Names in scripts that matplotlib's font lacks; a browser has them.
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        yield


def _panel(n_rows: int) -> tuple[Figure, Any]:
    figure = Figure(figsize=(_WIDTH, _FRAME + _ROW * n_rows), layout="constrained")
    axis = figure.subplots()
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(axis="y", length=0)
    axis.grid(visible=True, axis="x")
    axis.set_axisbelow(True)
    return figure, axis


def _name_rows(axis: Any, names: Sequence[str]) -> None:
    axis.set_yticks(np.arange(len(names)), _labels(names))
    axis.set_ylim(len(names) - 0.4, -0.6)


def _label(name: str, longest: int = _LONGEST_LABEL) -> str:
    """Return a name in one short printable line; long ones often differ at the end."""
    line = "".join(c if c.isprintable() else " " for c in name)
    half = longest // 2
    return line if len(line) <= longest else f"{line[: half - 1]}…{line[-half:]}"


def _labels(names: Sequence[str]) -> list[str]:
    """Return short names; of those that would look alike, the part that differs.

    Examples
    --------
    >>> _labels([f"measurement_number_{k}_of_the_panel" for k in (1, 2)])
    ['…ent_number_1_of_the_…', '…ent_number_2_of_the_…']
    """
    short = [_label(name) for name in names]
    alike = [[n for n, s in zip(names, short, strict=True) if s == k] for k in short]
    return [
        label if len(set(group)) == 1 else _label(_differing(name, group))
        for name, label, group in zip(names, short, alike, strict=True)
    ]


def _differing(name: str, group: Sequence[str]) -> str:
    """Return the part of a name by which it differs from others, and some before it."""
    alike = (len(set(letters)) == 1 for letters in zip(*group, strict=False))
    common = sum(1 for _ in takewhile(bool, alike))
    start = max(0, common - _LONGEST_LABEL // 2)
    cut = name[start : start + _LONGEST_LABEL - 2]
    after = "…" if start + len(cut) < len(name) else ""
    return f"…{cut}{after}"


def _legend(figure: Figure, columns: int = 2) -> None:
    figure.legend(loc="outside upper right", ncols=columns, handlelength=1.2)
