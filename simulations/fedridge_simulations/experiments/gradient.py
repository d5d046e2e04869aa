"""Beyond the paper: one gradient step, conjugate gradients, one round of statistics."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..cells import Cell
from ..experiment import Experiment, as_in_the_paper, head_to_head
from ..figures import axes, curve, style
from ..method import ONE_SHOT, Method
from ..results import Results
from ..settings import TOY, Settings
from ..tables import Claim, megabytes, percent, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT"]

_SIZES = {
    "paper": Settings(rounds=(20, 500), methods=("FedAvg",)),
    "quick": Settings(
        trials=2, iterative_trials=1, rounds=(20, 100), methods=("FedAvg",)
    ),
    "toy": replace(TOY, rounds=(8, 3), methods=("FedAvg",)),
}


def _conjugate(settings: Settings) -> Method:
    return Method("Conjugate gradients", rounds=settings.rounds[0])


_STEP = Method("Best gradient step", rounds=2)


def _cells(settings: Settings) -> list[Cell]:
    single = [_STEP, _conjugate(settings)]
    return head_to_head(settings, settings.iteratives(settings.rounds[-1]), single)


_REACHED = 1e-10


def _rounds_to(results: Results, method: Method) -> int:
    """Return the rounds until all trials are within 1e-10 of the oracle, or 0."""
    firsts = [
        next((r for r, d in enumerate(o.distance_by_round, start=1) if d < _REACHED), 0)
        for o in results.outcomes(method)
    ]
    return max(firsts) if firsts and all(firsts) else 0


def _verdict(results: Results) -> str:
    settings = results.settings
    conjugate = _conjugate(settings)
    rounds = _rounds_to(results, conjugate)
    one, many = (
        results.spread(m, lambda o: o.bytes_up + o.bytes_down).mean / m.rounds
        for m in (ONE_SHOT, conjugate)
    )
    reached = (
        f"reach 1e-10 in {rounds} rounds with {rounds * many / one:.2f} times "
        "One-Shot's bytes"
        if rounds
        else f"do not reach 1e-10 in {conjugate.rounds} rounds"
    )
    return (
        f"The best single gradient step is {percent(results.excess(_STEP).mean)} above "
        f"the oracle; conjugate gradients {reached}."
    )


def _claims(results: Results) -> list[Claim]:
    settings = results.settings
    if not as_in_the_paper(settings, _SIZES["paper"]):
        return []
    step, conjugate = results.excess(_STEP), _conjugate(settings)
    rounds, d = _rounds_to(results, conjugate), settings.one("features")
    return [
        Claim(
            "no single gradient step reaches the optimum (Proposition 4)",
            "not without G",
            f"best step: test MSE {percent(step.mean)} above the oracle",
            step.mean > 0.1,
            "even with the step length that minimises the objective",
        ),
        Claim(
            "beyond the paper: conjugate gradients",
            "-",
            f"{rounds} rounds to 1e-10" if rounds else "1e-10 not reached",
            bool(rounds),
            f"{2 * d * rounds:,} numbers per client, both ways, against One-Shot's "
            f"{d * (d + 1) // 2 + 2 * d:,}: the advantage of One-Shot is one round, no "
            "tuning, dropout and every alpha for free, not the fewest bytes"
            if rounds
            else f"not within {conjugate.rounds} rounds",
            beyond=True,
        ),
    ]


def _tables(results: Results) -> str:
    settings = results.settings
    clients = settings.one("clients")
    methods = [ONE_SHOT, _STEP, _conjugate(settings)]
    methods += settings.iteratives(settings.rounds[-1])
    rows = []
    for method in methods:
        both = results.spread(method, lambda o: o.bytes_up + o.bytes_down).mean
        reached = 1 if method == ONE_SHOT else _rounds_to(results, method)
        rows.append(
            [
                method.label,
                str(method.rounds),
                results.mse(method).text(),
                percent(results.excess(method).mean),
                f"{results.spread(method, lambda o: o.distance).mean:.1e}",
                str(reached) if reached else "not reached",
                megabytes(both / clients),
            ]
        )
    heads = [
        "method",
        "rounds",
        "test MSE",
        "above oracle",
        "distance to the oracle",
        "rounds to 1e-10",
        "bytes per client, both ways",
    ]
    return (
        table(heads, rows)
        + "\n\nThe best gradient step needs a second round for its length; conjugate "
        "gradients need one for the moments and one for each step."
    )


def _figures(results: Results) -> dict[str, Figure]:
    settings = results.settings
    figure, (axis,) = axes(title="Distance to the centralized solution", width=7.4)
    methods = [_conjugate(settings), *settings.iteratives(settings.rounds[-1])]
    for method in methods:
        traces = [
            [max(distance, 1e-17) for distance in o.distance_by_round]
            for o in results.outcomes(method)
        ]
        curve(axis, traces, method)
    for method in (_STEP, ONE_SHOT):
        distance = results.spread(method, lambda o: o.distance).mean
        look = style(method) | {"ls": "", "ms": 14, "zorder": 5}
        axis.plot([method.rounds], [distance], **look)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("rounds")
    axis.set_ylabel("‖w − w centralized‖ / ‖w centralized‖")
    axis.legend(frameon=False, fontsize=8)
    return {"gradient": figure}


EXPERIMENT = Experiment(
    name="gradient",
    title="Beyond the paper: gradients against statistics",
    sizes=_SIZES,
    cells=_cells,
    verdict=_verdict,
    claims=_claims,
    tables=_tables,
    figures=_figures,
)
