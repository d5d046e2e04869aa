"""Experiment 7: random projection of many features."""

from __future__ import annotations

from dataclasses import replace
from math import log, sqrt
from typing import TYPE_CHECKING

from ..cells import Cell
from ..experiment import Experiment, as_in_the_paper, head_to_head, only_fedavg
from ..figures import axes, oracle_line, series, shared_legend, style
from ..formulas import fedavg_upload, least_squares_error, paper_upload
from ..method import CENTRALIZED, ONE_SHOT, SCALED, Method
from ..modes import mode_cells
from ..modes_tables import (
    APPROXIMATION,
    mode_claims,
    mode_figure,
    mode_tables,
    mode_verdict,
    variances,
)
from ..projection_tables import (
    bytes_table,
    distortion,
    errors_table,
    explained_lost,
    kind,
    projected,
)
from ..results import Results
from ..settings import TOY, Settings, SettingsError
from ..tables import Claim, megabytes, same

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT"]

# Table 7 of the paper.
_CLAIMED = {
    50: 0.0185,
    100: 0.0142,
    200: 0.0118,
    400: 0.0105,
    600: 0.0101,
    800: 0.0100,
    1000: 0.0100,
}
_SIZES = {
    "paper": Settings(
        iterative_trials=3,
        beyond_trials=3,
        features=(1000,),
        projection=(50, 100, 200, 400, 600, 800, 1000),
        spectrum=(0.0, 1.0, 2.0, 2.25),
        methods=("FedAvg",),
    ),
    "quick": Settings(
        trials=2,
        iterative_trials=1,
        beyond_trials=1,
        features=(300,),
        projection=(30, 120, 300),
        spectrum=(0.0, 2.0),
        rounds=(20,),
        methods=("FedAvg",),
    ),
    "toy": replace(
        TOY,
        beyond_trials=1,
        features=(8,),
        projection=(3, 8),
        spectrum=(0.0, 1.0, 2.25),
        methods=("FedAvg",),
    ),
}


def _iterative(settings: Settings, spectrum: float) -> list[Method]:
    """Return FedAvg in both readings; unlike scales need a step of their own."""
    rounds = settings.one("rounds")
    if spectrum:
        return [settings.iterative("FedAvg", SCALED, rounds, tuned=True)]
    return [settings.iterative("FedAvg", p, rounds) for p in settings.penalty]


def _cells(settings: Settings) -> list[Cell]:
    only_fedavg(settings)
    if min(settings.projection) < 1:
        raise SettingsError("run-config projection must be 1 or more.")
    single = [projected(settings, m) for m in settings.projection]
    cells = [
        cell
        for s in settings.spectrum
        for cell in head_to_head(
            _repeated(settings, s), _iterative(settings, s), single, spectrum=s
        )
    ]
    return cells + mode_cells(settings)


def _repeated(settings: Settings, spectrum: float) -> Settings:
    """Return settings with the trials of a spectrum: fewer between first and last."""
    if spectrum in (settings.spectrum[0], settings.spectrum[-1]):
        return settings
    return replace(settings, trials=_few(settings), iterative_trials=1)


def _few(settings: Settings) -> int:
    return min(settings.beyond_trials or 1, settings.trials)


def _verdict(results: Results) -> str:
    settings = results.settings
    m = settings.projection[len(settings.projection) // 2]
    first, last = settings.spectrum[0], settings.spectrum[-1]
    flat, steep = (
        -100 * explained_lost(results, projected(settings, m), s).mean
        for s in (first, last)
    )
    loss = (
        f"Projecting {settings.one('features')} features to m = {m} "
        f"({kind(settings, m)}) changes the explained variance by {flat:+.3g}% where "
        f"variances are equal, by {steep:+.2g}% where they fall like i^-{last:g}."
    )
    return f"{loss} {mode_verdict(results)}" if settings.beyond_trials else loss


def _claims(results: Results) -> list[Claim]:
    settings = results.settings
    if not as_in_the_paper(settings, _SIZES["paper"], "projection"):
        return []
    claims = [
        _error(results, m, _CLAIMED[m]) for m in settings.projection if m in _CLAIMED
    ]
    claims += _iterative_claims(results)
    if 50 in settings.projection:
        claims.append(_bytes(results))
    small = [m for m in settings.projection if m < settings.one("features")]
    if small:
        claims += [_bound(results, small), _distances(results, small)]
    return claims + (mode_claims(results) if settings.beyond_trials else [])


def _error(results: Results, m: int, claimed: float) -> Claim:
    settings = results.settings
    d = settings.one("features")
    method = projected(settings, m)
    mse = results.mse(method, spectrum=0.0)
    if m >= d:
        worst = results.worst_distance(spectrum=0.0)
        n = settings.problem(0, spectrum=0.0).training_rows
        theory = least_squares_error(d, n)
        reason = f"exact, the oracle's to {worst:.0e}; theory says {theory:.4f}"
    else:
        decaying = results.mse(method, spectrum=settings.spectrum[-1])
        reason = (
            f"a projection keeps about m/d = {m / d:.2f} of the signal of features of "
            f"equal variance; with variances i^-{settings.spectrum[-1]:g} it is "
            f"{decaying.mean:.4f}"
        )
    return Claim(
        f"m = {m}: test MSE",
        f"{claimed:.4f}",
        mse.text(),
        same(claimed, mse.mean, 0.05),
        reason,
    )


def _iterative_claims(results: Results) -> list[Claim]:
    settings = results.settings
    d, rounds = settings.one("features"), settings.one("rounds")
    clients = settings.one("clients")
    methods = _iterative(settings, 0.0)
    readings = {m.penalty: results.mse(m, spectrum=0.0) for m in methods}
    up = results.spread(methods[0], lambda o: o.bytes_up, spectrum=0.0).mean
    down = results.spread(methods[0], lambda o: o.bytes_down, spectrum=0.0).mean
    return [
        Claim(
            f"FedAvg-{rounds}: test MSE",
            "0.0103 (+3%)",
            ", ".join(f"{p} {mse.text()}" for p, mse in readings.items()),
            any(same(0.0103, mse.mean, 0.05) for mse in readings.values()),
            f"the oracle itself has {results.mse(CENTRALIZED, spectrum=0.0).text()}",
        ),
        Claim(
            f"FedAvg-{rounds}: bytes per client",
            "4.00 MB",
            f"{megabytes(up / clients)} up, {megabytes(down / clients)} down",
            same(4e6, (up + down) / clients, 0.1),
            f"by the formula {megabytes(fedavg_upload(d, rounds))} up and as much down",
        ),
    ]


def _bytes(results: Results) -> Claim:
    settings = results.settings
    d, clients = settings.one("features"), settings.one("clients")
    up = results.spread(ONE_SHOT, lambda o: o.bytes_up, spectrum=0.0).mean
    smallest = projected(settings, 50)
    ratio = up / results.spread(smallest, lambda o: o.bytes_up, spectrum=0.0).mean
    return Claim(
        "m = d against m = 50: bytes per client",
        "8.00 MB; 4000 times",
        f"{megabytes(up / clients)}; {ratio:.0f} times",
        same(4000, ratio, 0.2),
        f"packed by the formula {megabytes(paper_upload(d))} and "
        f"{paper_upload(d) / paper_upload(50):.0f} times, and less where clients have "
        "fewer rows than features; 8.00 MB is the matrix unpacked, and the ratios of "
        "this column are ten times too large",
    )


def _bound(results: Results, small: list[int]) -> Claim:
    """Hold the distance of the coefficients against the proposition's √(d/m)."""
    settings = results.settings
    d = settings.one("features")
    found = {
        (m, s): results.spread(
            projected(settings, m), lambda o: o.distance, spectrum=s
        ).mean
        for m in small
        for s in settings.spectrum
    }
    low, high = min(found.values()), max(found.values())
    return Claim(
        "distance of the coefficients",
        "at most of order √(d/m) times ‖w‖",
        f"{low:.2g} to {high:.2g} times ‖w‖ for m < d, √(d/m) from "
        f"{sqrt(d / max(small)):.2f} to {sqrt(d / min(small)):.2f}",
        all(value <= sqrt(d / m) for (m, _), value in found.items()),
        "√(d/m) is at least 1 for every m up to d, where w = 0 has a distance of "
        f"1: it is no better than that, and no m < d is more than an {APPROXIMATION}",
    )


def _distances(results: Results, small: list[int]) -> Claim:
    """Hold distances of rows against ε = √(8 log n / m), the usual constant."""
    settings = results.settings
    problem = settings.problem(0, spectrum=settings.spectrum[0])
    n = problem.test_rows * problem.clients
    off: dict[int, float] = {}
    for m in small:
        both = [
            distortion(results, projected(settings, m), s) for s in settings.spectrum
        ]
        off[m] = max(max(1 - low, high - 1) for low, high in both)
    holds = all(value <= sqrt(8 * log(n) / m) for m, value in off.items())
    return Claim(
        "squared distances of rows",
        "within 1 ± ε for m of order log(n)/ε²",
        ", ".join(f"m = {m}: ε {value:.2f}" for m, value in off.items()),
        holds,
        f"{'' if holds else 'not '}below √(8 log n / m) for n = {n} test rows; rows at "
        "about the right distances do not make the right coefficients: see the "
        "variance lost",
    )


def _tables(results: Results) -> str:
    settings = results.settings
    iterative = {s: _iterative(settings, s) for s in settings.spectrum}
    d, trials = settings.one("features"), settings.trials
    parts = [
        errors_table(results, iterative),
        f"A plain Gaussian matrix R of variance 1/m from the seed of the trial, d = {d}"
        "; w̃ is fitted to projected features, w is the oracle. Equal variances are the "
        f"paper's. With m < d it is an {APPROXIMATION}, whatever m. √(d/m), the bound "
        "of the paper's proposition, is at least 1 for every m up to d: no better than "
        "w = 0. Explained variance: what is lost of that which the oracle explains in "
        "the test rows, less than nothing where a projection predicts them better. "
        "Squared distances: smallest and largest ratio, projected to "
        f"original, among 1,000 pairs of test rows in each trial. {trials} trials at "
        f"the first and the last spectrum, {_few(settings)} between, with FedAvg in "
        "the first of them.",
        "## Bytes",
        bytes_table(results, iterative),
        "Clients with fewer rows than m send a trapezoid, fewer numbers than in the "
        "formula.",
    ]
    if settings.beyond_trials:
        parts.append(mode_tables(results))
    return "\n\n".join(parts)


def _figures(results: Results) -> dict[str, Figure]:
    settings = results.settings
    columns = 2 if len(settings.spectrum) > 1 else 1
    rows = -(-len(settings.spectrum) // columns)
    figure, panels = axes(columns, rows, title="Random projection from d features to m")
    for axis, s in zip(panels, settings.spectrum, strict=False):
        _panel(results, axis, s)
    for axis in panels[len(settings.spectrum) :]:
        axis.set_visible(False)
    shared_legend(figure, panels, 3)
    if not settings.beyond_trials:
        return {"projection": figure}
    return {"projection": figure, "modes": mode_figure(results)}


def _panel(results: Results, axis: Axes, spectrum: float) -> None:
    settings = results.settings
    m = list(settings.projection)
    values = [results.mse(projected(settings, k), spectrum=spectrum) for k in m]
    series(axis, m, values, Method("Projected One-Shot"))
    oracle_line(axis, results.mse(CENTRALIZED, spectrum=spectrum).mean)
    for method in _iterative(settings, spectrum):
        look = style(method)
        axis.axhline(
            results.mse(method, spectrum=spectrum).mean,
            color=look["color"],
            ls=look["ls"],
            lw=1.2,
            label=f"{look['label']}-{method.rounds}",
        )
    claimed = [k for k in m if k in _CLAIMED]
    axis.plot(
        claimed, [_CLAIMED[k] for k in claimed], "x", color="0.3", label="claimed"
    )
    axis.set_yscale("log")
    axis.set_xlabel(f"m, of d = {settings.one('features')}")
    axis.set_ylabel("test MSE")
    paper = " (the paper's)" if not spectrum else ""
    axis.set_title(f"variances: {variances(spectrum)}{paper}", fontsize=10)


EXPERIMENT = Experiment(
    name="projection",
    title="Experiment 7: many features, projected and exactly",
    sizes=_SIZES,
    cells=_cells,
    verdict=_verdict,
    claims=_claims,
    tables=_tables,
    figures=_figures,
)
