"""Experiment 6: more and more clients."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedridge_flwr.app.synthetic import NOISE_SD

from ..cells import Cell
from ..experiment import Experiment, as_in_the_paper, head_to_head, only_fedavg
from ..figures import axes, series
from ..formulas import least_squares_error
from ..method import CENTRALIZED, ONE_SHOT, SCALED, Method
from ..results import Results, Spread
from ..settings import TOY, Settings
from ..tables import Claim, same, table, times

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT"]

# Table 6 of the paper: One-Shot, FedAvg.
_CLAIMED = {
    10: (0.0090, 0.0090),
    20: (0.0094, 0.0094),
    50: (0.0097, 0.0098),
    100: (0.0102, 0.0132),
    200: (0.0100, 0.0130),
    500: (0.0099, 0.0123),
}
# Its times in seconds: One-Shot, FedAvg.
_CLAIMED_SECONDS = {
    10: (0.001, 0.065),
    20: (0.001, 0.070),
    50: (0.002, 0.080),
    100: (0.010, 0.085),
    200: (0.020, 0.075),
    500: (0.040, 0.045),
}
_SIZES = {
    "paper": Settings(
        iterative_trials=3,
        clients=(10, 20, 50, 100, 200, 500),
        rows=(200,),
        rounds=(100,),
        methods=("FedAvg",),
    ),
    "quick": Settings(
        trials=2,
        iterative_trials=1,
        clients=(10, 20, 50),
        rows=(200,),
        rounds=(20,),
        methods=("FedAvg",),
    ),
    "toy": replace(TOY, clients=(2, 4), rounds=(2,), sampled=(2,), methods=("FedAvg",)),
}
# Every client in every round is what costs hours: above this many clients in one
# trial and one reading only. The sampled runs have all of them.
_EVERYBODY_REPEATED_UP_TO = 100


def _iterative(settings: Settings, clients: int) -> list[Method]:
    return _everybody(settings, clients) + _some(settings, clients)


def _everybody(settings: Settings, clients: int) -> list[Method]:
    few = clients <= 20
    return [
        settings.iterative("FedAvg", penalty, settings.one("rounds"))
        for penalty in settings.penalty
        if few or penalty == SCALED
    ]


def _some(settings: Settings, clients: int) -> list[Method]:
    sampled = settings.one("sampled")
    return [
        settings.iterative("FedAvg", penalty, settings.one("rounds"), sampled=sampled)
        for penalty in settings.penalty
        if sampled and clients > sampled
    ]


def _cells(settings: Settings) -> list[Cell]:
    only_fedavg(settings)
    cells = []
    for clients in settings.clients:
        methods = _some(settings, clients)
        if clients <= _EVERYBODY_REPEATED_UP_TO:
            methods += _everybody(settings, clients)
        else:
            problem = settings.problem(0, clients=clients)
            cells += [Cell(problem, m) for m in _everybody(settings, clients)]
        cells += head_to_head(settings, methods, clients=clients)
    return cells


def _verdict(results: Results) -> str:
    settings = results.settings
    clients = max(settings.clients)
    everybody = settings.iterative("FedAvg", SCALED, settings.one("rounds"))
    one, many = (results.seconds(m, clients=clients) for m in (ONE_SHOT, everybody))
    mse, oracle = (results.mse(m, clients=clients) for m in (everybody, CENTRALIZED))
    worse = mse.mean > 1.05 * oracle.mean
    return (
        f"With {clients} clients One-Shot takes {_duration(one, 1)}, "
        f"FedAvg-{everybody.rounds} {_duration(many, 0)}. FedAvg "
        f"{'degrades' if worse else 'does not degrade'} there "
        f"({mse.text()}, oracle {oracle.text()})."
    )


def _duration(spent: Spread, digits: int) -> str:
    return f"{spent.mean:.{digits}f} s" if spent.trials else "a time not measured"


def _claims(results: Results) -> list[Claim]:
    settings = results.settings
    if not as_in_the_paper(settings, _SIZES["paper"], "clients"):
        return []
    points = [k for k in settings.clients if k in _CLAIMED]
    claims = [_one_shot(results, k) for k in points]
    claims += [_fedavg(results, k) for k in points]
    return [*claims, *_seconds(results, points)]


def _expected(settings: Settings, clients: int) -> float:
    """Return the mean squared error that least squares must have here."""
    n = settings.problem(0, clients=clients).training_rows
    return least_squares_error(settings.one("features"), n)


def _one_shot(results: Results, clients: int) -> Claim:
    claimed = _CLAIMED[clients][0]
    mse = results.mse(ONE_SHOT, clients=clients)
    expected = _expected(results.settings, clients)
    worst = results.worst_distance(clients=clients)
    below = round(claimed, 4) < round(NOISE_SD**2, 4)
    return Claim(
        f"K = {clients}: One-Shot",
        f"{claimed:.4f}",
        mse.text(),
        same(claimed, mse.mean, 0.03),
        f"theory says {expected:.4f}"
        + (f", and {claimed:.4f} is below the noise {NOISE_SD**2:g}" if below else "")
        + f"; the oracle's to {worst:.0e}",
    )


def _fedavg(results: Results, clients: int) -> Claim:
    settings, claimed = results.settings, _CLAIMED[clients][1]
    methods = _iterative(settings, clients)
    shown = {m: results.mse(m, clients=clients) for m in methods}
    near = any(same(claimed, mse.mean, 0.03) for mse in shown.values())
    rounds = settings.one("rounds")
    if near:
        reason = "about this with one of the readings"
    elif round(claimed, 4) < round(NOISE_SD**2, 4):
        reason = f"{claimed:.4f} is below the noise of the data, {NOISE_SD**2:g}"
    else:
        passed = [_round_at(results, m, clients, claimed) for m in methods]
        reason = (
            "neither reading, nor sampling clients, gives such a value after "
            f"{rounds} rounds; the runs pass it at round {min(passed)} to {max(passed)}"
        )
    return Claim(
        f"K = {clients}: FedAvg-{rounds}",
        f"{claimed:.4f}",
        "; ".join(f"{_detail(m)} {mse.text()}" for m, mse in shown.items()),
        near,
        reason,
    )


def _detail(method: Method) -> str:
    return method.label.removeprefix("FedAvg (").removesuffix(")")


def _round_at(results: Results, method: Method, clients: int, error: float) -> int:
    """Return the first round at which the mean test error is below a value."""
    traces = [o.mse_by_round for o in results.outcomes(method, clients=clients)]
    below = np.flatnonzero(np.mean(traces, axis=0) < error)
    return int(below[0]) + 1 if below.size else len(traces[0])


def _seconds(results: Results, points: list[int]) -> list[Claim]:
    settings = results.settings
    everybody = settings.iterative("FedAvg", SCALED, settings.one("rounds"))
    claims = []
    for clients in points:
        one = results.seconds(ONE_SHOT, clients=clients)
        many = results.seconds(everybody, clients=clients)
        ratio = many.mean / one.mean
        claimed = _CLAIMED_SECONDS[clients][1] / _CLAIMED_SECONDS[clients][0]
        claims.append(
            Claim(
                f"K = {clients}: seconds, FedAvg-{everybody.rounds} over One-Shot",
                f"{claimed:.2g} times",
                f"{many.text(1)} over {one.text(2)}: {times(ratio)}",
                None if ratio != ratio else same(claimed, ratio, 0.3),
                "with everybody in each round, in rounds of Flower",
            )
        )
    return claims


def _tables(results: Results) -> str:
    settings = results.settings
    rows = []
    for clients in settings.clients:
        for method in (ONE_SHOT, *_iterative(settings, clients)):
            mse = results.mse(method, clients=clients)
            rows.append(
                [
                    str(clients),
                    method.label,
                    mse.text(),
                    f"{_expected(settings, clients):.5f}",
                    f"{results.worst_distance(clients=clients):.0e}"
                    if method == ONE_SHOT
                    else "-",
                    results.seconds(method, clients=clients).text(2),
                    str(mse.trials),
                ]
            )
    heads = ["K", "method", "test MSE", "theory", "distance", "seconds", "trials"]
    return (
        table(heads, rows, text_columns=2)
        + "\n\nTheory: σ²(1 + d/(n − d − 1)), the error of least squares on n pooled "
        f"rows. FedAvg runs {settings.one('rounds')} rounds."
    )


def _figures(results: Results) -> dict[str, Figure]:
    settings = results.settings
    figure, (left, right) = axes(2, title="Cost and error by the number of clients")
    clients = list(settings.clients)
    methods = [m for k in clients for m in _iterative(settings, k)]
    for method in (ONE_SHOT, *dict.fromkeys(methods)):
        found = [k for k in clients if results.outcomes(method, clients=k)]
        errors = [results.mse(method, clients=k) for k in found]
        series(left, found, errors, method)
        times = [results.seconds(method, clients=k) for k in found]
        series(right, found, times, method)
    expected = [_expected(settings, k) for k in clients]
    left.plot(clients, expected, color="0.3", ls=":", lw=1.2, label="theory")
    for axis in (left, right):
        axis.set_xscale("log")
        axis.set_xticks(clients, [str(k) for k in clients])
        axis.minorticks_off()
        axis.set_xlabel("clients K")
    right.set_yscale("log")
    left.set_ylabel("test MSE")
    right.set_ylabel("seconds")
    left.legend(frameon=False, fontsize=8)
    return {"scalability": figure}


EXPERIMENT = Experiment(
    name="scalability",
    title="Experiment 6: number of clients",
    sizes=_SIZES,
    cells=_cells,
    verdict=_verdict,
    claims=_claims,
    tables=_tables,
    figures=_figures,
)
