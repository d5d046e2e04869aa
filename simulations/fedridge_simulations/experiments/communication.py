"""Experiment 3: bytes and seconds by the number of features."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from ..cells import Cell
from ..experiment import Experiment, as_in_the_paper, head_to_head
from ..figures import axes, series
from ..formulas import break_even_rounds, fedavg_upload, one_shot_upload, paper_upload
from ..method import ONE_SHOT, SCALED, Method
from ..results import Results, Spread
from ..settings import TOY, Settings
from ..tables import Claim, megabytes, same, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT"]

# Table 3 of the paper: MB "per client" of One-Shot and FedAvg-200, and their ratio.
_CLAIMED = {
    50: (0.02, 1.60, 80),
    100: (0.08, 3.20, 40),
    200: (0.32, 6.40, 20),
    400: (1.28, 12.80, 10),
}
_SIZES = {
    "paper": Settings(
        iterative_trials=3, features=(50, 100, 200, 400), methods=("FedAvg",)
    ),
    "quick": Settings(
        trials=2,
        iterative_trials=1,
        features=(50, 100, 200),
        rounds=(20,),
        methods=("FedAvg",),
    ),
    "toy": replace(
        TOY, rows=(130,), features=(5, 100), rounds=(2,), methods=("FedAvg",)
    ),
}


def _iterative(settings: Settings) -> list[Method]:
    """Return the runs; the reading of the penalty changes neither bytes nor seconds."""
    rounds = settings.one("rounds")
    return [settings.iterative(name, SCALED, rounds) for name in settings.methods]


def _cells(settings: Settings) -> list[Cell]:
    return [
        cell
        for d in settings.features
        for cell in head_to_head(settings, _iterative(settings), features=d)
    ]


def _verdict(results: Results) -> str:
    method = _iterative(results.settings)[0]
    ratios = [
        sum(_bytes(results, method, d, way) for way in ("up", "down"))
        / sum(_bytes(results, ONE_SHOT, d, way) for way in ("up", "down"))
        for d in results.settings.features
    ]
    shown = " / ".join(f"{ratio:.1f}" for ratio in ratios)
    dimensions = "/".join(map(str, results.settings.features))
    return (
        f"One-Shot sends {shown} times fewer bytes than {method.name}-"
        f"{method.rounds} at d = {dimensions}, both ways, like for like; the paper's "
        "ratios divide twenty clients by one."
    )


def _claims(results: Results) -> list[Claim]:
    settings = results.settings
    if not as_in_the_paper(settings, _SIZES["paper"], "features"):
        return []
    claims = [
        _per_client(results, d, claimed)
        for d, claimed in _CLAIMED.items()
        if d in settings.features
    ]
    return [*claims, _crossover(results), _seconds(results)]


def _per_client(results: Results, d: int, claimed: tuple[float, float, int]) -> Claim:
    settings = results.settings
    rounds = settings.one("rounds")
    one, many, ratio = claimed
    up = _bytes(results, ONE_SHOT, d, "up")
    fedavg = _bytes(results, _iterative(settings)[0], d, "up")
    both = fedavg + _bytes(results, _iterative(settings)[0], d, "down")
    measured = both / (up + _bytes(results, ONE_SHOT, d, "down"))
    by_formula = fedavg_upload(d, rounds) / paper_upload(d)
    both_by_formula = 2 * fedavg_upload(d, rounds) / (paper_upload(d) + 8 * d)
    return Claim(
        f"d = {d}: per client, One-Shot against FedAvg-{rounds}",
        f"{one:.2f} against {many:.2f} MB, {ratio} times",
        f"{megabytes(up)} against {megabytes(fedavg)} up, {fedavg / up:.1f} times; "
        f"{measured:.1f} both ways",
        same(ratio, fedavg / up, 0.2) or same(ratio, measured, 0.2),
        f"like for like, by the formulas, {by_formula:.3g} up and "
        f"{both_by_formula:.3g} both ways; the paper divides all 20 clients' FedAvg "
        "by one client's One-Shot",
    )


def _crossover(results: Results) -> Claim:
    """Count the rounds from which FedAvg has sent more, in real messages."""
    settings = results.settings
    rounds = settings.one("rounds")
    method = _iterative(settings)[0]
    found, formula = [], []
    for d in settings.features:
        total = sum(_bytes(results, ONE_SHOT, d, way) for way in ("up", "down"))
        each = sum(_bytes(results, method, d, way) for way in ("up", "down")) / rounds
        found.append(math.floor(total / each) + 1)
        formula.append(break_even_rounds(d))
    return Claim(
        "rounds from which One-Shot is cheaper",
        "more than (d + 5)/4: " + ", ".join(map(str, formula)),
        ", ".join(map(str, found)),
        all(f <= g for f, g in zip(found, formula, strict=True)),
        "real messages of FedAvg are longer than their numbers, so One-Shot pays "
        "off a little earlier than by the formula",
    )


def _seconds(results: Results) -> Claim:
    ratios = [
        _time(results, _iterative(results.settings)[0], d).mean
        / _time(results, ONE_SHOT, d).mean
        for d in results.settings.features
    ]
    return Claim(
        "FedAvg-200's seconds over One-Shot's",
        "more than 10 at every d",
        " / ".join("not timed" if r != r else f"{r:.0f}" for r in ratios),
        None if any(r != r for r in ratios) else min(ratios) > 10,
        "one round of Flower against two hundred",
    )


def _bytes(results: Results, method: Method, d: int, way: str) -> float:
    """Return bytes per client."""
    clients = results.settings.one("clients")
    name = f"bytes_{way}"
    return results.spread(method, lambda o: getattr(o, name) / clients, features=d).mean


def _time(results: Results, method: Method, d: int) -> Spread:
    return results.seconds(method, features=d)


def _tables(results: Results) -> str:
    settings = results.settings
    rounds = settings.one("rounds")
    rows = []
    for d in settings.features:
        for method in (ONE_SHOT, *_iterative(settings)):
            shot = method == ONE_SHOT
            formula = one_shot_upload(d) if shot else fedavg_upload(d, rounds)
            up, down = (_bytes(results, method, d, way) for way in ("up", "down"))
            name = method.name if shot else f"{method.name}-{rounds}"
            rows.append(
                [
                    str(d),
                    name,
                    f"{up:,.0f}",
                    f"{formula:,}",
                    f"{100 * (up / formula - 1):+.1f}%",
                    f"{paper_upload(d):,}" if shot else f"{formula:,}",
                    f"{down:,.0f}",
                    megabytes((up + down) * settings.one("clients")),
                    _time(results, method, d).text(3),
                ]
            )
    heads = [
        "d",
        "method",
        "bytes up per client",
        "formula",
        "over it",
        "paper's formula",
        "bytes down per client",
        "all clients, both ways",
        "seconds",
    ]
    return (
        table(heads, rows, text_columns=2)
        + "\n\nThe reading of the penalty changes neither bytes nor seconds; FedAvg is "
        "run with σ/n. Sending the finished model back to the clients (8 d bytes each) "
        "is in neither column."
    )


def _figures(results: Results) -> dict[str, Figure]:
    settings = results.settings
    rounds, clients = settings.one("rounds"), settings.one("clients")
    d = list(settings.features)
    figure, (left, right) = axes(2, title="Cost by the number of features")
    for method in (ONE_SHOT, *_iterative(settings)):
        sizes = [results.megabytes(method, features=each) for each in d]
        series(left, d, sizes, method)
        series(right, d, [_time(results, method, each) for each in d], method)
    paper = [clients * (paper_upload(each) + 8 * each) / 1e6 for each in d]
    fedavg = [2 * clients * fedavg_upload(each, rounds) / 1e6 for each in d]
    left.plot(d, paper, color="0.3", ls=":", lw=1, label="formulas of the paper")
    left.plot(d, fedavg, color="0.3", ls=":", lw=1)
    for axis in (left, right):
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xticks(d, [str(each) for each in d])
        axis.minorticks_off()
        axis.set_xlabel("features d")
    left.set_ylabel(f"MB, both ways, {clients} clients")
    right.set_ylabel("seconds")
    left.legend(frameon=False, fontsize=8)
    right.legend(frameon=False, fontsize=8)
    return {"communication": figure}


EXPERIMENT = Experiment(
    name="communication",
    title="Experiment 3: communication and time",
    sizes=_SIZES,
    cells=_cells,
    verdict=_verdict,
    claims=_claims,
    tables=_tables,
    figures=_figures,
)
