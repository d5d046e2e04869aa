"""Beyond the paper: clients that never answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..cells import Cell
from ..experiment import Experiment, as_in_the_paper, head_to_head
from ..figures import axes, series
from ..method import CENTRALIZED, ONE_SHOT, SCALED
from ..results import Results
from ..settings import TOY, Settings
from ..tables import Claim, percent, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT"]

_SIZES = {
    "paper": Settings(
        iterative_trials=3,
        missing=(0.0, 0.1, 0.3, 0.5, 0.7, 0.9),
        penalty=(SCALED,),
        methods=("FedAvg",),
    ),
    "quick": Settings(
        trials=2,
        iterative_trials=1,
        missing=(0.0, 0.5, 0.9),
        rounds=(30,),
        methods=("FedAvg",),
    ),
    "toy": replace(TOY, missing=(0.0, 0.5), methods=("FedAvg",)),
}


def _cells(settings: Settings) -> list[Cell]:
    methods = settings.iteratives(settings.one("rounds"))
    return [
        cell
        for missing in settings.missing
        for cell in head_to_head(settings, methods, missing=missing)
    ]


def _verdict(results: Results) -> str:
    settings = results.settings
    worst = max(results.worst_distance(missing=m) for m in settings.missing)
    return (
        f"With up to {max(settings.missing):.0%} of the clients missing, One-Shot is "
        f"ridge on the rows of those who answered, to {worst:.0e}."
    )


def _claims(results: Results) -> list[Claim]:
    settings = results.settings
    if not as_in_the_paper(settings, _SIZES["paper"], "missing"):
        return []
    worst = max(results.worst_distance(missing=m) for m in settings.missing)
    last = max(settings.missing)
    fedavg = settings.iterative("FedAvg", SCALED, settings.one("rounds"))
    excess = max(abs(results.excess(fedavg, missing=m).mean) for m in settings.missing)
    return [
        Claim(
            "One-Shot without the missing clients (Theorem 8)",
            "exact for those who answered",
            f"largest distance {worst:.0e}, up to {last:.0%} missing",
            worst < 1e-12,
            "ridge on exactly the rows of those who answered",
        ),
        Claim(
            "iterative methods without them",
            "inconsistent states",
            f"FedAvg at most {percent(excess)} away from the same oracle",
            excess > 0.05,
            "drifts away from the optimum of those who answer"
            if excess > 0.05
            else "if the same clients are missing in every round, FedAvg approaches "
            "the optimum of the others too",
        ),
    ]


def _tables(results: Results) -> str:
    settings = results.settings
    methods = settings.iteratives(settings.one("rounds"))
    rows = [
        [
            f"{missing:.0%}",
            str(len(settings.problem(0, missing=missing).participants)),
            results.mse(ONE_SHOT, missing=missing).text(),
            f"{results.worst_distance(missing=missing):.0e}",
            *(
                f"{results.mse(m, missing=missing).text()} "
                f"({percent(results.excess(m, missing=missing).mean)})"
                for m in methods
            ),
            results.mse(CENTRALIZED, missing=missing).text(),
        ]
        for missing in settings.missing
    ]
    heads = ["missing", "answered", "One-Shot", "distance"]
    heads += [f"{m.label}, {m.rounds} rounds" for m in methods]
    return (
        table([*heads, "oracle of those who answered"], rows)
        + "\n\nThe same clients are missing in every round: they answer with an error. "
        "Test rows are those of all clients, the missing ones included. In brackets: "
        "above the oracle of those who answered. "
        f"{settings.trials} trials of One-Shot, {settings.iterative_trials} of FedAvg."
    )


def _figures(results: Results) -> dict[str, Figure]:
    settings = results.settings
    figure, (left, right) = axes(2, title="Clients that never answer")
    share = [100 * missing for missing in settings.missing]
    one = [results.mse(ONE_SHOT, missing=m) for m in settings.missing]
    series(left, share, one, ONE_SHOT)
    for method in (*settings.iteratives(settings.one("rounds")), ONE_SHOT):
        above = [results.percent_above(method, missing=m) for m in settings.missing]
        series(right, share, above, method)
    for axis in (left, right):
        axis.set_xlabel("clients missing, %")
        axis.legend(frameon=False, fontsize=8)
    left.set_ylabel("test MSE, all clients' test rows")
    right.set_ylabel("test MSE above the oracle of the others, %")
    return {"dropout": figure}


EXPERIMENT = Experiment(
    name="dropout",
    title="Beyond the paper: clients that never answer",
    sizes=_SIZES,
    cells=_cells,
    verdict=_verdict,
    claims=_claims,
    tables=_tables,
    figures=_figures,
)
