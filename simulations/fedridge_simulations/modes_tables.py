"""What FedRidge's modes gave beside a projection and FedAvg: table, verdict, figure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .cells import Outcome
from .figures import axes, shared_legend, style
from .formulas import paper_upload
from .method import ONE_SHOT, Method
from .modes import NEAR, TOLERANCE, axis, mode_methods, reached, rounds_of
from .results import Results, round_range
from .tables import Claim, megabytes, percent, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "APPROXIMATION",
    "mode_claims",
    "mode_figure",
    "mode_tables",
    "mode_verdict",
    "variances",
]

APPROXIMATION = "approximation"
"""What a projection to fewer dimensions is called, whatever came out."""


def variances(spectrum: float) -> str:
    """Return a spectrum in words.

    Examples
    --------
    >>> variances(0.0), variances(2.25)
    ('equal', 'i^-2.25')
    """
    return f"i^-{spectrum:g}" if spectrum else "equal"


# ---- words ---------------------------------------------------------------------------


def mode_verdict(results: Results) -> str:
    """Return what it takes to be exact, for the report."""
    settings, refine = results.settings, _method(results, "refine")
    rounds, sizes = [], []
    for s in settings.spectrum:
        for outcome in results.outcomes(refine, **axis(settings, s)):
            found = reached(outcome)
            rounds.append(found[0] if found else 0)
            sizes += [found[1]] if found else []
    if not all(rounds):
        return f"`refine` does not always come within {NEAR:g} of the exact solution."
    clients = settings.one("clients")
    shot = _bytes_each(results, ONE_SHOT, settings.spectrum[0])
    low, high = (megabytes(size / clients) for size in (min(sizes), max(sizes)))
    return (
        f"The exact solution, to {NEAR:g}, takes `refine` {round_range(rounds)} rounds "
        f"and {low} to {high} per client, where one shot takes {megabytes(shot)}."
    )


def mode_claims(results: Results) -> list[Claim]:
    """Return the paper's claim that is decided by a mode of several rounds."""
    settings, refine = results.settings, _method(results, "refine")
    clients, full = settings.one("clients"), paper_upload(settings.one("features"))
    found, fewer = [], True
    for s in settings.spectrum:
        worst = _worst(results.outcomes(refine, **axis(settings, s)))
        if worst is None:
            fewer = False
            found.append(f"{variances(s)}: not reached")
        else:
            fewer = fewer and worst[1] / clients < full
            size = megabytes(worst[1] / clients)
            found.append(f"{variances(s)}: {worst[0]} rounds, {size}")
    return [
        Claim(
            "exact recovery",
            f"requires full transmission of G_k, {megabytes(full)} per client",
            f"`refine`, to {NEAR:g}, both ways: " + "; ".join(found),
            not fewer,
            "a factor of 8 bits per number makes conjugate gradients on exact "
            "products end after a few rounds"
            if fewer
            else "no fewer bytes were enough for every spectrum",
        )
    ]


def mode_tables(results: Results) -> str:
    """Return the table of all modes at the same rows."""
    settings = results.settings
    rows = [
        _row(results, method, s)
        for s in settings.spectrum
        for method in mode_methods(settings, s)
    ]
    problem = settings.problem(0, **axis(settings, settings.spectrum[0]))
    heads = [
        "variances",
        "method",
        "rounds",
        "MB per client, both ways",
        "relative error of coefficients",
        "test MSE above the oracle",
        f"until {NEAR:g}: rounds",
        "MB",
    ]
    return (
        "## All modes at the same rows\n\n"
        + table(heads, rows, text_columns=2)
        + f"\n\nd = {problem.features}, {problem.clients} clients with "
        f"{problem.rows - problem.test_rows} training rows each, alpha "
        f"{problem.alpha:g}, features rotated by an orthogonal matrix: the hard case, "
        "since scaling columns does not undo the spectrum. `refine` and `cg` stop at "
        f"an estimated error of {TOLERANCE:g}; the set-up round counts, and `cg` has "
        "as many rounds as FedAvg at most. Relative "
        f"errors, and rounds until {NEAR:g}, are the worst of "
        f"{settings.beyond_trials} trials; `cg` and FedAvg ran in the first one only. "
        "One-Shot sends the trapezoid factor of its rows, as any client with fewer "
        "rows than features does. The oracle solves the triangle of X, since solving "
        "X'X, as One-Shot and scikit-learn do, loses the digits of its condition. A "
        f"projection is an {APPROXIMATION}, not a mode of solving."
    )


def _row(results: Results, method: Method, spectrum: float) -> list[str]:
    where = axis(results.settings, spectrum)
    found = results.outcomes(method, **where)
    worst = max(o.distance for o in found)
    taken = round_range([rounds_of(method, o) for o in found])
    if not all(o.facts.get("converged", True) for o in found):
        taken += ", not converged"
    until = _worst(found)
    clients = results.settings.one("clients")
    return [
        variances(spectrum),
        _name(method),
        taken,
        f"{_bytes_each(results, method, spectrum) / 1e6:.3g}",
        f"{worst:.1e}",
        percent(results.excess(method, **where).mean),
        "never" if until is None else str(until[0]),
        "-" if until is None else f"{until[1] / clients / 1e6:.3g}",
    ]


def _name(method: Method) -> str:
    if method.projection:
        return f"{method.label}, m = {method.projection} ({APPROXIMATION})"
    if method.penalty:
        return f"{method.label}-{method.rounds}"
    return method.label


def _worst(found: Iterable[Outcome]) -> tuple[int, int] | None:
    """Return most rounds and most bytes until it was exact; None if one never was."""
    ends = [reached(outcome) for outcome in found]
    known = [end for end in ends if end is not None]
    if len(known) < len(ends) or not known:
        return None
    return max(r for r, _ in known), max(size for _, size in known)


def _bytes_each(results: Results, method: Method, spectrum: float) -> float:
    clients: int = results.settings.one("clients")
    both = results.megabytes(method, **axis(results.settings, spectrum))
    return 1e6 * both.mean / clients


def _method(results: Results, name: str) -> Method:
    every = mode_methods(results.settings, results.settings.spectrum[0])
    return next(method for method in every if method.name == name)


# ---- figure --------------------------------------------------------------------------


def mode_figure(results: Results) -> Figure:
    """Return relative error against bytes of each client, a panel per spectrum."""
    settings = results.settings
    columns = 2 if len(settings.spectrum) > 1 else 1
    rows = -(-len(settings.spectrum) // columns)
    figure, panels = axes(columns, rows, title="What it costs to be exact")
    for panel, s in zip(panels, settings.spectrum, strict=False):
        for method in mode_methods(settings, s):
            _draw(panel, results, method, s)
        panel.axhline(NEAR, color="0.75", lw=0.8, zorder=0)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_ylim(1e-16, 30.0)
        panel.set_title(f"variances: {variances(s)}, rotated", fontsize=10)
        panel.set_xlabel("MB per client, both ways")
        panel.set_ylabel("relative error of coefficients")
    for panel in panels[len(settings.spectrum) :]:
        panel.set_visible(False)
    shown = panels[: len(settings.spectrum)]
    low, high = zip(*(panel.get_xlim() for panel in shown), strict=True)
    for panel in shown:
        panel.set_xlim(min(low), max(high))
    shared_legend(figure, panels, 5)
    return figure


def _draw(panel: Axes, results: Results, method: Method, spectrum: float) -> None:
    found = results.outcomes(method, **axis(results.settings, spectrum))
    if not found:
        return
    points = _path(found[0])
    clients = results.settings.one("clients")
    look = style(method) | {"ls": "-", "lw": 1.4, "ms": 3.5, "zorder": 3}
    if method.tol:
        look |= {"marker": "o" if method.name == "refine" else "."}
    if method.penalty:
        # The step is tuned in all panels but that of equal variances.
        look |= {"marker": "", "label": f"FedAvg-{method.rounds}"}
    if method.name == "One-Shot":
        look |= {"ls": "", "ms": 12}
    if method.projection:
        name = f"projection to {method.projection}, {APPROXIMATION}"
        look |= {"color": "#E69F00", "ls": "", "marker": "X", "ms": 8, "label": name}
    panel.plot(
        [size / clients / 1e6 for size, _ in points],
        [max(distance, 1e-16) for _, distance in points],
        **look,
    )


def _path(outcome: Outcome) -> list[tuple[float, float]]:
    """Return bytes of all clients, and error, after every round that has both."""
    by_round = outcome.facts.get("by_round")
    if by_round is not None:
        return [(up + down, distance) for up, down, _, distance in by_round]
    if outcome.marks:
        return [
            (up + down, outcome.distance_by_round[r - 1])
            for r, (_, up, down) in sorted(outcome.marks.items())
        ]
    return [(outcome.bytes_up + outcome.bytes_down, outcome.distance)]
