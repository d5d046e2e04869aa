"""Experiment 2 and beyond: clients that differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..cells import Cell
from ..experiment import Experiment, as_in_the_paper, head_to_head
from ..figures import axes, series, style
from ..method import CENTRALIZED, ONE_SHOT, SCALED, UNSCALED, Method
from ..results import Results
from ..settings import Settings
from ..tables import Claim, percent, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT"]

# Table 2 of the paper: gamma, One-Shot (= oracle), FedAvg, FedProx.
_CLAIMED = {
    0.0: (0.01003, 0.01013, 0.01014),
    0.2: (0.01003, 0.01014, 0.01015),
    0.4: (0.01004, 0.01014, 0.01013),
    0.6: (0.01006, 0.01013, 0.01014),
    0.8: (0.01008, 0.01014, 0.01014),
    1.0: (0.01012, 0.01016, 0.01037),
}
_PAPER = Settings(
    iterative_trials=3,
    gamma=(0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 3.0, 10.0, 30.0),
    features_seen=(0, 10),
)
_SIZES = {
    "paper": _PAPER,
    "quick": Settings(
        trials=2,
        iterative_trials=1,
        gamma=(0.0, 1.0, 10.0),
        features_seen=(0, 10),
        rounds=(40,),
        methods=("FedAvg",),
    ),
    "toy": Settings(
        trials=2,
        iterative_trials=1,
        clients=(4,),
        rows=(60,),
        features=(6,),
        gamma=(0.0, 1.0, 10.0),
        features_seen=(0, 3),
        rounds=(3,),
    ),
}


def _points(settings: Settings) -> list[dict[str, Any]]:
    """Return the points of the sweep: gammas, then clients that see few features."""
    middle = 0.5 if len(settings.gamma) > 1 else settings.gamma[0]
    full = [{"gamma": g, "features_seen": 0} for g in settings.gamma]
    few = [s for s in settings.features_seen if s]
    return full + [{"gamma": middle, "features_seen": seen} for seen in few]


def _beyond(point: dict[str, Any]) -> bool:
    return bool(point["gamma"] > 1 or point["features_seen"])


def _methods(settings: Settings, point: dict[str, Any]) -> list[Method]:
    rounds = settings.one("rounds")
    methods = [
        settings.iterative(name, penalty, rounds)
        for name in settings.methods
        for penalty in settings.penalty
        if name != "FedProx" or not _beyond(point)
    ]
    if _beyond(point) and "FedAvg" in settings.methods:
        methods.append(settings.iterative("FedAvg", SCALED, rounds, tuned=True))
    return methods


def _cells(settings: Settings) -> list[Cell]:
    return [
        cell
        for point in _points(settings)
        for cell in head_to_head(settings, _methods(settings, point), **point)
    ]


def _verdict(results: Results) -> str:
    settings = results.settings
    points = _points(settings)
    worst = max(results.worst_distance(**point) for point in points)
    tuned = settings.iterative("FedAvg", SCALED, settings.one("rounds"), tuned=True)
    plain = settings.iterative("FedAvg", SCALED, settings.one("rounds"))
    inside, outside = (
        max(
            (results.excess(m, **p).mean for p in points if _beyond(p) == beyond),
            default=0.0,
        )
        for m, beyond in ((plain, False), (tuned, True))
    )
    return (
        f"One-Shot is the oracle to {worst:.0e} everywhere. FedAvg is at most "
        f"{percent(inside)} above it up to γ = 1, and up to {percent(outside)} beyond, "
        "with the best step."
    )


def _claims(results: Results) -> list[Claim]:
    settings = results.settings
    if not as_in_the_paper(settings, _PAPER, "gamma"):
        return []
    inside = [g for g in settings.gamma if g in _CLAIMED]
    claims = [_exactness(results)]
    claims += [_at(results, gamma) for gamma in inside]
    if {0.0, 1.0} <= set(inside):
        claims += [_trend(results), _outlier(results)]
    return claims + [_stronger(results, p) for p in _points(settings) if _beyond(p)]


def _exactness(results: Results) -> Claim:
    worst = max(results.worst_distance(**point) for point in _points(results.settings))
    return Claim(
        "One-Shot is invariant to heterogeneity",
        "equal to the oracle at every gamma",
        f"largest distance {worst:.0e}",
        worst < 1e-12,
        "equal to the oracle at every gamma, and where clients see few features",
    )


def _at(results: Results, gamma: float) -> Claim:
    settings = results.settings
    rounds = settings.one("rounds")
    point = {"gamma": gamma, "features_seen": 0}
    _, fedavg, _ = _CLAIMED[gamma]
    one = results.mse(ONE_SHOT, **point)
    readings = {
        p: results.excess(settings.iterative("FedAvg", p, rounds), **point).mean
        for p in settings.penalty
    }
    claimed = fedavg / _CLAIMED[gamma][0] - 1
    honest = readings.get(SCALED, float("nan"))
    shown = ", ".join(f"{p} {percent(e)}" for p, e in readings.items())
    return Claim(
        f"gamma {gamma:g}: One-Shot; FedAvg above it",
        f"{_CLAIMED[gamma][0]:.5f}; {percent(claimed)}",
        f"{one.text()}; {shown}",
        honest > 0.5 * claimed,
        "the gap is there only with σ unscaled"
        if honest < 0.5 * claimed
        else "FedAvg is above the oracle",
    )


def _trend(results: Results) -> Claim:
    first = results.mse(ONE_SHOT, gamma=0.0, features_seen=0)
    last = results.mse(ONE_SHOT, gamma=1.0, features_seen=0)
    rise = last.mean / first.mean - 1
    rises = last.mean - first.mean > (first.sd**2 + last.sd**2) ** 0.5
    return Claim(
        "MSE rises with gamma from 0 to 1",
        "0.01003 to 0.01012 (+0.90%)",
        f"{first.text()} to {last.text()} ({percent(rise)})",
        rises,
        "larger than the spread of trials"
        if rises
        else "within the spread of trials: gamma of at most 1 is small beside rows "
        "of norm about 10",
    )


def _outlier(results: Results) -> Claim:
    settings = results.settings
    method = settings.iterative("FedProx", UNSCALED, settings.one("rounds"))
    point = {"gamma": 1.0, "features_seen": 0}
    mse, excess = results.mse(method, **point), results.excess(method, **point)
    return Claim(
        "FedProx at gamma 1",
        "0.01037 (+2.47%)",
        f"{mse.text()} ({percent(excess.mean)}), σ unscaled",
        excess.mean > 0.02,
        "FedProx is as near as at the other gammas"
        if excess.mean <= 0.02
        else "FedProx is further away here",
    )


def _stronger(results: Results, point: dict[str, Any]) -> Claim:
    settings = results.settings
    rounds = settings.one("rounds")
    fixed = settings.iterative("FedAvg", SCALED, rounds)
    tuned = settings.iterative("FedAvg", SCALED, rounds, tuned=True)
    untuned, best = results.excess(fixed, **point), results.excess(tuned, **point)
    drifts = best.mean > 0.01 or not untuned.mean < 0.01
    return Claim(
        f"beyond the paper: {_name(point, settings)}",
        "client drift",
        f"FedAvg {percent(untuned.mean)}, with the best step {percent(best.mean)}",
        drifts,
        f"above the oracle after {rounds} rounds; One-Shot is exact and has no step"
        if drifts
        else "FedAvg gets there as well",
    )


def _name(point: dict[str, Any], settings: Settings) -> str:
    if point["features_seen"]:
        return f"{point['features_seen']} of {settings.one('features')} features each"
    return f"gamma {point['gamma']:g}"


def _columns(settings: Settings) -> list[Method]:
    points = _points(settings)
    methods = [m for point in points for m in _methods(settings, point)]
    return list(dict.fromkeys(methods))


def _tables(results: Results) -> str:
    settings = results.settings
    columns = _columns(settings)
    rows = []
    for point in _points(settings):
        steps = sorted(
            {
                outcome.facts["learning_rate"]
                for method in columns
                if method.tuned
                for outcome in results.outcomes(method, **point)
            }
        )
        rows.append(
            [
                _name(point, settings),
                results.mse(ONE_SHOT, **point).text(),
                f"{results.worst_distance(**point):.0e}",
                *(_cell(results, method, point) for method in columns),
                "/".join(f"{step:g}" for step in steps) or "-",
                results.mse(CENTRALIZED, **point).text(),
            ]
        )
    heads = ["clients", "One-Shot", "distance", *(m.label for m in columns)]
    counts = (
        f"{settings.trials} trials of One-Shot and the oracle, "
        f"{settings.iterative_trials} of the iterative methods, "
        f"{settings.one('rounds')} rounds each; step size "
        f"{settings.one('learning_rate'):g}, or where tuned the best of a grid by the "
        "test error itself, which favours FedAvg. In brackets: above the oracle."
    )
    return table([*heads, "tuned steps", "oracle"], rows) + "\n\n" + counts


def _cell(results: Results, method: Method, point: dict[str, Any]) -> str:
    mse = results.mse(method, **point)
    if not mse.trials:
        return "-"
    excess = results.excess(method, **point)
    return f"{mse.text()} ({percent(excess.mean)})" if mse.mean < 1e9 else "diverges"


def _figures(results: Results) -> dict[str, Figure]:
    settings = results.settings
    figure, (left, right) = axes(2, title="Clients that differ")
    inside = [g for g in settings.gamma if g <= 1]
    for method in (CENTRALIZED, ONE_SHOT, *_columns(settings)):
        values = [results.mse(method, gamma=g, features_seen=0) for g in inside]
        series(left, inside, values, method)
    left.set_xlabel("heterogeneity γ, the paper's range")
    left.set_ylabel("test MSE")
    left.legend(frameon=False, fontsize=8)
    beyond = [p for p in _points(settings) if _beyond(p)]
    names = [_name(point, settings).replace(" each", "\neach") for point in beyond]
    ceiling = 1e7
    for shift, method in enumerate(
        m for m in _columns(settings) if m.name != "FedProx"
    ):
        excess = [100 * results.excess(method, **point).mean for point in beyond]
        places = [k + 0.2 * (shift - 1) for k in range(len(beyond))]
        look = style(method) | {"ls": "", "ms": 7}
        right.plot(places, [min(max(e, 1e-3), ceiling) for e in excess], **look)
        for place, value in zip(places, excess, strict=True):
            if not value < ceiling:
                right.annotate(
                    "diverges",
                    (place, ceiling),
                    xytext=(0, -6),
                    textcoords="offset points",
                    rotation=90,
                    ha="center",
                    va="top",
                    fontsize=7,
                )
    look = style(ONE_SHOT) | {"ls": "", "ms": 11}
    right.plot(range(len(beyond)), [1e-3] * len(beyond), **look)
    right.set_yscale("log")
    right.set_ylim(4e-4, 4 * ceiling)
    right.set_xticks(range(len(beyond)), names)
    right.set_xlabel("beyond the paper's range")
    right.set_ylabel("test MSE above the oracle, % (0.001: or less)")
    right.legend(frameon=False, fontsize=8)
    return {"heterogeneity": figure}


EXPERIMENT = Experiment(
    name="heterogeneity",
    title="Experiment 2: heterogeneity",
    sizes=_SIZES,
    cells=_cells,
    verdict=_verdict,
    claims=_claims,
    tables=_tables,
    figures=_figures,
)
