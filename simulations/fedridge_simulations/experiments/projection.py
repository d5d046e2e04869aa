"""Experiment 7: random projection of many features."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..cells import Cell
from ..experiment import Experiment, as_in_the_paper, head_to_head, only_fedavg
from ..figures import axes, oracle_line, series, style
from ..formulas import fedavg_upload, least_squares_error, paper_upload
from ..method import CENTRALIZED, ONE_SHOT, SCALED, Method
from ..results import Results
from ..settings import TOY, Settings, SettingsError
from ..tables import Claim, megabytes, percent, same, table

if TYPE_CHECKING:
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
        features=(1000,),
        projection=(50, 100, 200, 400, 600, 800, 1000),
        spectrum=(0.0, 2.25),
        methods=("FedAvg",),
    ),
    "quick": Settings(
        trials=2,
        iterative_trials=1,
        features=(300,),
        projection=(30, 120, 300),
        spectrum=(0.0, 2.25),
        rounds=(20,),
        methods=("FedAvg",),
    ),
    "toy": replace(
        TOY, features=(8,), projection=(3, 8), spectrum=(0.0, 2.25), methods=("FedAvg",)
    ),
}


def _projected(settings: Settings, dimension: int) -> Method:
    if dimension >= settings.one("features"):
        return ONE_SHOT
    return Method("Projected One-Shot", projection=dimension)


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
    projected = [_projected(settings, m) for m in settings.projection]
    return [
        cell
        for s in settings.spectrum
        for cell in head_to_head(
            settings, _iterative(settings, s), projected, spectrum=s
        )
    ]


def _verdict(results: Results) -> str:
    settings = results.settings
    m = settings.projection[len(settings.projection) // 2]
    flat = results.mse(_projected(settings, m), spectrum=settings.spectrum[0])
    steep = results.mse(_projected(settings, m), spectrum=settings.spectrum[-1])
    oracle = results.mse(CENTRALIZED, spectrum=settings.spectrum[0])
    return (
        f"Projecting {settings.one('features')} features of equal variance to m = {m} "
        f"leaves a test MSE of {flat.mean:.2g} (oracle {oracle.mean:.2g}), and "
        f"{steep.mean:.2g} where variances fall like i^-{settings.spectrum[-1]:g}."
    )


def _claims(results: Results) -> list[Claim]:
    settings = results.settings
    if not as_in_the_paper(settings, _SIZES["paper"], "projection"):
        return []
    claims = [
        _error(results, m, _CLAIMED[m]) for m in settings.projection if m in _CLAIMED
    ]
    claims += _iterative_claims(results)
    return [*claims, _exact(results)] if 50 in settings.projection else claims


def _error(results: Results, m: int, claimed: float) -> Claim:
    settings = results.settings
    d = settings.one("features")
    method = _projected(settings, m)
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


def _exact(results: Results) -> Claim:
    settings = results.settings
    d, clients = settings.one("features"), settings.one("clients")
    up = results.spread(ONE_SHOT, lambda o: o.bytes_up, spectrum=0.0).mean
    smallest = Method("Projected One-Shot", projection=50)
    ratio = up / results.spread(smallest, lambda o: o.bytes_up, spectrum=0.0).mean
    return Claim(
        "exact against m = 50: bytes per client",
        "8.00 MB; 4000 times",
        f"{megabytes(up / clients)}; {ratio:.0f} times",
        same(4000, ratio, 0.2),
        f"by the formula {megabytes(paper_upload(d))} and "
        f"{paper_upload(d) / paper_upload(50):.0f} times; 8.00 MB is the matrix "
        "unpacked, and the ratios of this column are ten times too large",
    )


def _tables(results: Results) -> str:
    settings = results.settings
    d, clients = settings.one("features"), settings.one("clients")
    rounds = settings.one("rounds")
    fedavg, first = 2 * fedavg_upload(d, rounds), settings.spectrum[0]
    rows = []
    for m in settings.projection:
        method = _projected(settings, m)
        up = results.spread(method, lambda o: o.bytes_up, spectrum=first).mean
        both = paper_upload(m) + 8 * m
        rows.append(
            [
                str(m),
                *(_error_cell(results, method, s) for s in settings.spectrum),
                megabytes(up),
                megabytes(clients * paper_upload(m)),
                f"{fedavg / both:.2g} times",
                f"{paper_upload(d) / paper_upload(m):.3g} times",
            ]
        )
    for name in dict.fromkeys(
        m for s in settings.spectrum for m in _iterative(settings, s)
    ):
        up = max(
            results.spread(name, lambda o: o.bytes_up, spectrum=s).mean
            for s in settings.spectrum
            if results.outcomes(name, spectrum=s)
        )
        rows.append(
            [
                f"{name.label}-{rounds}",
                *(_error_cell(results, name, s) for s in settings.spectrum),
                megabytes(up),
                megabytes(clients * fedavg_upload(d, rounds)),
                "-",
                "-",
            ]
        )
    oracle = [results.mse(CENTRALIZED, spectrum=s).text() for s in settings.spectrum]
    rows.append(["oracle", *oracle, "-", "-", "-", "-"])
    heads = [
        "m",
        *(f"test MSE, variances i^-{s:g}" for s in settings.spectrum),
        "up, all clients",
        "formula",
        "formula, below FedAvg both ways",
        "formula, below exact",
    ]
    return (
        table(heads, rows)
        + f"\n\nA plain Gaussian matrix of variance 1/m, d = {d}. In brackets: above "
        "the oracle. Spectrum 0 is the paper's: all features alike."
    )


def _error_cell(results: Results, method: Method, spectrum: float) -> str:
    mse = results.mse(method, spectrum=spectrum)
    if not mse.trials:
        return "-"
    return f"{mse.text()} ({percent(results.excess(method, spectrum=spectrum).mean)})"


def _figures(results: Results) -> dict[str, Figure]:
    settings = results.settings
    figure, panels = axes(
        len(settings.spectrum), title="Random projection from d features to m"
    )
    m = list(settings.projection)
    for axis, s in zip(panels, settings.spectrum, strict=True):
        values = [results.mse(_projected(settings, k), spectrum=s) for k in m]
        series(axis, m, values, Method("Projected One-Shot"))
        oracle_line(axis, results.mse(CENTRALIZED, spectrum=s).mean)
        for method in _iterative(settings, s):
            mse = results.mse(method, spectrum=s).mean
            look = style(method)
            axis.axhline(
                mse, color=look["color"], ls=look["ls"], lw=1.2, label=look["label"]
            )
        claimed = [k for k in m if k in _CLAIMED]
        axis.plot(
            claimed, [_CLAIMED[k] for k in claimed], "x", color="0.3", label="claimed"
        )
        axis.set_yscale("log")
        axis.set_xlabel(f"m, of d = {settings.one('features')}")
        kind = "equal variances (the paper's)" if not s else f"variances i^-{s:g}"
        axis.set_title(kind, fontsize=10)
        axis.legend(frameon=False, fontsize=8)
    panels[0].set_ylabel("test MSE")
    return {"projection": figure}


EXPERIMENT = Experiment(
    name="projection",
    title="Experiment 7: random projection",
    sizes=_SIZES,
    cells=_cells,
    verdict=_verdict,
    claims=_claims,
    tables=_tables,
    figures=_figures,
)
