"""Experiment 6: more and more clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedridge_flwr.app.synthetic import NOISE_SD

from ..cells import Cell
from ..experiment import Experiment, as_in_the_paper, head_to_head
from ..figures import axes, series
from ..method import CENTRALIZED, ONE_SHOT, SCALED, Method
from ..results import Results
from ..settings import Settings
from ..tables import Claim, same, table

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
    "toy": Settings(
        trials=1,
        iterative_trials=1,
        clients=(2, 4),
        rows=(60,),
        features=(6,),
        rounds=(2,),
        sampled=(2,),
        methods=("FedAvg",),
    ),
}
# Full participation in the second reading is left out above this many clients: it
# would double hours for a number that the sampled runs show as well.
_BOTH_READINGS_UP_TO = 20


def _iterative(settings: Settings, clients: int) -> list[Method]:
    rounds, sampled = settings.one("rounds"), settings.one("sampled")
    everybody = [
        settings.iterative("FedAvg", penalty, rounds)
        for penalty in settings.penalty
        if penalty == SCALED or clients <= _BOTH_READINGS_UP_TO
    ]
    some = [
        settings.iterative("FedAvg", penalty, rounds, sampled=sampled)
        for penalty in settings.penalty
        if sampled and clients > sampled
    ]
    return everybody + some


def _cells(settings: Settings) -> list[Cell]:
    return [
        cell
        for clients in settings.clients
        for cell in head_to_head(
            settings, _iterative(settings, clients), clients=clients
        )
    ]


def _verdict(results: Results) -> str:
    settings = results.settings
    clients = max(settings.clients)
    everybody = settings.iterative("FedAvg", SCALED, settings.one("rounds"))
    one, many = (
        results.spread(m, lambda o: o.seconds, clients=clients).mean
        for m in (ONE_SHOT, everybody)
    )
    mse, oracle = (results.mse(m, clients=clients) for m in (everybody, CENTRALIZED))
    worse = mse.mean > 1.05 * oracle.mean
    return (
        f"With {clients} clients One-Shot takes {one:.1f} s, FedAvg-{everybody.rounds} "
        f"{many:.0f} s. FedAvg {'degrades' if worse else 'does not degrade'} there "
        f"({mse.text()}, oracle {oracle.text()})."
    )


def _claims(results: Results) -> list[Claim]:
    settings = results.settings
    paper = _SIZES["paper"]
    if not as_in_the_paper(settings, paper, "clients") or settings.rounds != (100,):
        return []
    points = [k for k in settings.clients if k in _CLAIMED]
    claims = [_one_shot(results, k) for k in points]
    claims += [_fedavg(results, k) for k in points]
    return [*claims, *_seconds(results, points)]


def _expected(settings: Settings, clients: int) -> float:
    """Return the mean squared error that least squares must have here."""
    d = int(settings.one("features"))
    n = settings.problem(0, clients=clients).training_rows
    return NOISE_SD**2 * (1 + d / (n - d - 1))


def _one_shot(results: Results, clients: int) -> Claim:
    claimed = _CLAIMED[clients][0]
    mse = results.mse(ONE_SHOT, clients=clients)
    expected = _expected(results.settings, clients)
    worst = results.worst_distance(clients=clients)
    below = claimed < NOISE_SD**2
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
    shown = {
        m.label.removeprefix("FedAvg "): results.mse(m, clients=clients)
        for m in _iterative(settings, clients)
    }
    near = any(same(claimed, m.mean, 0.05) for m in shown.values() if m.trials)
    return Claim(
        f"K = {clients}: FedAvg-{settings.one('rounds')}",
        f"{claimed:.4f}",
        "; ".join(f"{name} {mse.text()}" for name, mse in shown.items()),
        near,
        "about this with one of the readings"
        if near
        else "neither everybody nor ten clients a round gives such a value: "
        + (
            "it is below the noise"
            if claimed < NOISE_SD**2
            else "sampling is not the cause"
        ),
    )


def _seconds(results: Results, points: list[int]) -> list[Claim]:
    settings = results.settings
    claims = []
    for clients in points:
        one = results.spread(ONE_SHOT, lambda o: o.seconds, clients=clients)
        everybody = settings.iterative("FedAvg", SCALED, settings.one("rounds"))
        many = results.spread(everybody, lambda o: o.seconds, clients=clients)
        if clients in (20, 500) and many.trials:
            ratio = many.mean / one.mean
            claims.append(
                Claim(
                    f"K = {clients}: seconds, FedAvg-{everybody.rounds} over One-Shot",
                    "70 times" if clients == 20 else "1.1 times",
                    f"{many.text(1)} over {one.text(2)}: {ratio:.0f} times",
                    ratio >= 50,
                    "everybody in each round, in real Flower rounds",
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
                    results.spread(method, lambda o: o.seconds, clients=clients).text(
                        2
                    ),
                    str(mse.trials),
                ]
            )
    heads = ["K", "method", "test MSE", "theory", "distance", "seconds", "trials"]
    return (
        table(heads, rows)
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
        times = [results.spread(method, lambda o: o.seconds, clients=k) for k in found]
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
