"""What a random projection to m of d features loses, in a table.

A projection to fewer than d dimensions is an approximation whatever was measured: it is
never called exact here.
"""

from __future__ import annotations

from math import sqrt

from .formulas import fedavg_upload, paper_upload
from .method import CENTRALIZED, ONE_SHOT, Method
from .modes_tables import APPROXIMATION, variances
from .results import Results, Spread, spread
from .settings import Settings
from .tables import megabytes, percent, table

__all__ = ["bytes_table", "distortion", "errors_table", "kind"]
__all__ += ["explained_lost", "projected"]


def projected(settings: Settings, dimension: int) -> Method:
    """Return the projection to so many dimensions: One-Shot where that is all."""
    if dimension >= settings.one("features"):
        return ONE_SHOT
    return Method("Projected One-Shot", projection=dimension)


def kind(settings: Settings, dimension: int) -> str:
    """Return what a projection may be called, by its dimension alone."""
    return "exact" if dimension >= settings.one("features") else APPROXIMATION


def explained_lost(results: Results, method: Method, spectrum: float) -> Spread:
    """Return the share of explained variance that is lost, on test rows."""
    return results.spread(
        method, lambda o: float(o.facts.get("explained_lost", 0.0)), spectrum=spectrum
    )


def distortion(
    results: Results, method: Method, spectrum: float
) -> tuple[float, float]:
    """Return the smallest and largest ratio of squared distances in any trial."""
    found = results.outcomes(method, spectrum=spectrum)
    ratios = [o.facts.get("distortion", [1.0, 1.0]) for o in found]
    return min(low for low, _ in ratios), max(high for _, high in ratios)


def errors_table(results: Results, iterative: dict[float, list[Method]]) -> str:
    """Return what is lost, by spectrum and m, beside what FedAvg loses."""
    settings = results.settings
    rows = []
    for s in settings.spectrum:
        rows += [_projected_row(results, m, s) for m in settings.projection]
        for method in iterative[s]:
            mse = _error(results, method, s)
            distance = results.spread(method, lambda o: o.distance, spectrum=s)
            name = f"{method.label}-{method.rounds}"
            rows.append([variances(s), name, "-", mse, "-", _short(distance), "-", "-"])
        oracle = results.mse(CENTRALIZED, spectrum=s).text()
        rows.append([variances(s), "oracle", "exact", oracle, "-", "-", "-", "-"])
    heads = [
        "variances",
        "m",
        "kind",
        "test MSE (above the oracle)",
        "explained variance lost",
        "‖Rw̃ - w‖/‖w‖",
        "√(d/m)",
        "squared distances kept",
    ]
    return table(heads, rows, text_columns=3)


def _projected_row(results: Results, m: int, spectrum: float) -> list[str]:
    settings = results.settings
    method, d = projected(settings, m), settings.one("features")
    distance = results.spread(method, lambda o: o.distance, spectrum=spectrum)
    lost, ratios = "-", "-"
    if method.projection:
        share = explained_lost(results, method, spectrum).mean
        lost = f"{100 * share:.3g}%"
        low, high = distortion(results, method, spectrum)
        ratios = f"{low:.2f} to {high:.2f}"
    return [
        variances(spectrum),
        str(m),
        kind(settings, m),
        _error(results, method, spectrum),
        lost,
        _short(distance),
        f"{sqrt(d / m):.2f}",
        ratios,
    ]


def _short(distance: Spread) -> str:
    return f"{distance.mean:.2g}"


def _error(results: Results, method: Method, spectrum: float) -> str:
    mse = results.mse(method, spectrum=spectrum)
    excess = percent(results.excess(method, spectrum=spectrum).mean)
    return f"{mse.text()} ({excess})"


def bytes_table(results: Results, iterative: dict[float, list[Method]]) -> str:
    """Return bytes by m, measured and by formula."""
    settings = results.settings
    d, clients = settings.one("features"), settings.one("clients")
    rounds, first = settings.one("rounds"), settings.spectrum[0]
    fedavg = 2 * fedavg_upload(d, rounds)
    rows = []
    for m in settings.projection:
        method = projected(settings, m)
        up = results.spread(method, lambda o: o.bytes_up, spectrum=first).mean
        rows.append(
            [
                str(m),
                megabytes(up),
                megabytes(clients * paper_upload(m)),
                f"{fedavg / (paper_upload(m) + 8 * m):.3g} times",
                f"{paper_upload(d) / paper_upload(m):.3g} times",
            ]
        )
    measured = [
        o.bytes_up
        for s in settings.spectrum
        for method in iterative[s]
        for o in results.outcomes(method, spectrum=s)
    ]
    formula = megabytes(clients * fedavg_upload(d, rounds))
    up = spread(measured).mean
    rows.append([f"FedAvg-{rounds}", megabytes(up), formula, "-", "-"])
    heads = [
        "m",
        "up, all clients",
        "formula",
        "formula, below FedAvg both ways",
        "formula, below m = d",
    ]
    return table(heads, rows)
