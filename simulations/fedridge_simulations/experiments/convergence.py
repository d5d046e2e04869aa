"""Experiment 4: test error round by round."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..cells import Cell
from ..experiment import Experiment, as_in_the_paper, head_to_head
from ..figures import axes, curve, oracle_line, style
from ..method import CENTRALIZED, ONE_SHOT, SCALED, UNSCALED
from ..results import Results, round_range, spread
from ..settings import TOY, Settings
from ..tables import Claim, percent, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT"]

_SIZES = {
    "paper": Settings(iterative_trials=3, rounds=(300,)),
    "quick": Settings(trials=1, iterative_trials=1, rounds=(100,)),
    "toy": TOY,
}


def _cells(settings: Settings) -> list[Cell]:
    return head_to_head(settings, settings.iteratives(settings.one("rounds")))


_NEAR = 0.01


def _verdict(results: Results) -> str:
    settings = results.settings
    method = settings.iterative("FedAvg", SCALED, settings.one("rounds"))
    return (
        "Full-batch rounds FedAvg needs to come within 1% of what One-Shot has after "
        f"one: {round_range(results.rounds_to(method, _NEAR))}. After "
        f"{method.rounds} its test error differs by "
        f"{percent(results.excess(method).mean)}."
    )


def _claims(results: Results) -> list[Claim]:
    settings = results.settings
    if not as_in_the_paper(settings, _SIZES["paper"]):
        return []
    rounds = settings.one("rounds")
    claims = [
        Claim(
            "One-Shot's test MSE after round 1",
            "0.010",
            results.mse(ONE_SHOT).text(),
            results.worst_distance() < 1e-12,
            f"the oracle's, to {results.worst_distance():.0e}",
        )
    ]
    for name in settings.methods:
        method = settings.iterative(name, SCALED, rounds)
        needed = results.rounds_to(method, _NEAR)
        if not needed:
            continue
        holds = min(needed) >= 40 and max(needed) <= 110
        claims += [
            Claim(
                f"rounds {name} needs",
                "50-100",
                f"{round_range(needed)} to within 1% of the oracle (σ/n)",
                holds,
                "for full-batch steps; what minibatches need is in the baselines",
            ),
            _never(results, name),
        ]
    return claims


def _never(results: Results, name: str) -> Claim:
    settings = results.settings
    rounds = settings.one("rounds")
    honest, other = (
        results.excess(settings.iterative(name, penalty, rounds)).mean
        for penalty in (SCALED, UNSCALED)
    )
    stays = honest > 0.01
    return Claim(
        f"{name} never reaches the optimum",
        "stays at 0.0102",
        f"{percent(honest)} above the oracle after {rounds} rounds (σ/n)",
        stays,
        "it stays above"
        if stays
        else f"with One-Shot's objective it gets there; with σ unscaled, another "
        f"objective, it stays {percent(other)} above",
    )


def _tables(results: Results) -> str:
    settings = results.settings
    rounds = settings.one("rounds")
    rows = [
        [
            method.label,
            spread(o.mse_by_round[0] for o in results.outcomes(method)).text(),
            results.mse(method).text(),
            percent(results.excess(method).mean),
            round_range(results.rounds_to(method, _NEAR)),
            str(results.mse(method).trials),
        ]
        for method in settings.iteratives(rounds)
    ]
    one = results.mse(ONE_SHOT)
    rows.insert(
        0, [ONE_SHOT.label, one.text(), one.text(), "+0.00%", "1", str(one.trials)]
    )
    heads = [
        "method",
        "test MSE after round 1",
        f"after {rounds}",
        "above oracle",
        "rounds to within 1%",
        "trials",
    ]
    return (
        table(heads, rows)
        + "\n\nIn the figure, bands reach from the smallest to the largest trial."
    )


def _figures(results: Results) -> dict[str, Figure]:
    settings = results.settings
    figure, (left, right) = axes(2, title="Test error round by round")
    oracle_line(left, results.mse(CENTRALIZED).mean)
    floor = 1e-3
    for method in settings.iteratives(settings.one("rounds")):
        curve(left, [o.mse_by_round for o in results.outcomes(method)], method)
        above = [
            [max(100 * (mse / oracle.test_mse - 1), floor) for mse in o.mse_by_round]
            for o, oracle in results.with_oracle(method)
        ]
        curve(right, above, method)
    for axis, value in (
        (left, results.mse(ONE_SHOT).mean),
        (right, max(100 * results.excess(ONE_SHOT).mean, floor)),
    ):
        look = style(ONE_SHOT) | {"ls": "", "ms": 16, "zorder": 5, "clip_on": False}
        axis.plot([1], [value], **look)
        axis.set_yscale("log")
        axis.set_xlim(0, settings.one("rounds"))
        axis.set_xlabel("rounds")
    left.set_ylabel("test MSE")
    right.set_ylabel("test MSE above the oracle, % (0.001: or less)")
    right.set_ylim(bottom=floor)
    left.legend(frameon=False)
    return {"convergence": figure}


EXPERIMENT = Experiment(
    name="convergence",
    title="Experiment 4: convergence",
    sizes=_SIZES,
    cells=_cells,
    verdict=_verdict,
    claims=_claims,
    tables=_tables,
    figures=_figures,
)
