"""Experiment 2 and beyond: clients that differ."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..cells import Cell
from ..experiment import Experiment, as_in_the_paper, head_to_head
from ..figures import axes, series, style
from ..method import CENTRALIZED, ONE_SHOT, SCALED, UNSCALED, Method
from ..problem import Problem, centralized, pooled_rows
from ..results import Results, spread
from ..settings import TOY, Settings
from ..tables import Claim, percent, same, table
from ..tuning import AveragedDescent

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
    "toy": replace(TOY, gamma=(0.0, 1.0, 10.0), features_seen=(0, 3)),
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
        if name != "FedProx" or (penalty == UNSCALED and not _beyond(point))
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
            (abs(results.excess(m, **p).mean) for p in points if _beyond(p) == beyond),
            default=0.0,
        )
        for m, beyond in ((plain, False), (tuned, True))
    )
    return (
        f"One-Shot equals the oracle to {worst:.0e} everywhere. FedAvg is within "
        f"{100 * inside:.2f}% of it up to γ = 1, and with the best step up to "
        f"{percent(outside)} away beyond."
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
    point = {"gamma": gamma, "features_seen": 0}
    one, fedavg, _ = _CLAIMED[gamma]
    honest, other = (
        results.excess(
            settings.iterative("FedAvg", penalty, settings.one("rounds")), **point
        ).mean
        for penalty in (SCALED, UNSCALED)
    )
    claimed = fedavg / one - 1
    if same(claimed, honest, 0.5):
        reason = "FedAvg is above the oracle"
    elif other > 0.5 * claimed:
        reason = "such a gap is there only with σ unscaled, another objective"
    else:
        reason = "neither reading has such a gap"
    return Claim(
        f"gamma {gamma:g}: One-Shot; FedAvg above it",
        f"{one:.5f}; {percent(claimed)}",
        f"{results.mse(ONE_SHOT, **point).text()}; σ/n {percent(honest)}, "
        f"σ {percent(other)}",
        same(claimed, honest, 0.5),
        reason,
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
    excess = {
        gamma: results.excess(method, gamma=gamma, features_seen=0).mean
        for gamma in settings.gamma
        if gamma in _CLAIMED
    }
    last = excess.pop(1.0)
    others = f"{percent(min(excess.values()))} to {percent(max(excess.values()))}"
    mse = results.mse(method, gamma=1.0, features_seen=0)
    stands_out = last > 1.5 * max(excess.values())
    return Claim(
        "FedProx at gamma 1",
        "0.01037 (+2.47%)",
        f"{mse.text()} ({percent(last)}), σ unscaled",
        stands_out,
        f"{'unlike' if stands_out else 'as'} at the other gammas ({others})",
    )


def _stronger(results: Results, point: dict[str, Any]) -> Claim:
    settings = results.settings
    rounds = settings.one("rounds")
    fixed = settings.iterative("FedAvg", SCALED, rounds)
    tuned = settings.iterative("FedAvg", SCALED, rounds, tuned=True)
    untuned, best = (results.excess(m, **point).mean for m in (fixed, tuned))
    limit = _limit_excess(results, tuned, point)
    step = settings.one("learning_rate")
    reasons = []
    if not untuned < 1e9:
        reasons.append(f"diverges with step {step:g}")
    if limit > 0.01:
        reasons.append(f"client drift: even endless rounds end {percent(limit)} above")
    elif best > 0.01:
        reasons.append(
            f"no drift but slow: {percent(best)} after {rounds} rounds with the best "
            f"step, {percent(limit)} after endless ones"
        )
    elif untuned > 0.01 and untuned < 1e9:
        reasons.append("needs another step than the paper's, and then gets there")
    else:
        reasons.append("with the right step it gets there")
    return Claim(
        f"beyond the paper: {_name(point, settings)}",
        "-",
        f"FedAvg {percent(untuned)}, with the best step {percent(best)}",
        limit > 0.01,
        "; ".join(reasons),
        beyond=True,
    )


def _limit_excess(results: Results, tuned: Method, point: dict[str, Any]) -> float:
    """Return where endless rounds with the tuned steps would end, above the oracle."""
    steps = {
        trial: outcome.facts["learning_rate"]
        for trial, outcome in results.by_trial(tuned, **point).items()
    }
    found = [
        _limit(results.settings.problem(trial, **point), tuned, step)
        for trial, step in steps.items()
    ]
    return spread(found).mean


@lru_cache(maxsize=256)
def _limit(problem: Problem, method: Method, step: float) -> float:
    coef = AveragedDescent(problem, method).limit(step)
    rows = pooled_rows(problem)
    error = float("inf") if coef is None else rows.test_error(coef)
    return error / rows.test_error(centralized(problem)) - 1


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
    for method in (*_columns(settings), ONE_SHOT):
        values = [
            results.percent_above(method, gamma=g, features_seen=0) for g in inside
        ]
        series(left, inside, values, method)
    left.set_xlabel("heterogeneity γ, the paper's range")
    left.set_ylabel("test MSE above the oracle, %")
    left.legend(
        frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 0.08)
    )
    beyond = [p for p in _points(settings) if _beyond(p)]
    names = [_name(point, settings).replace(" each", "\neach") for point in beyond]
    floor, ceiling = 1e-3, 1e7
    shown = [m for m in _columns(settings) if m.name != "FedProx"] + [ONE_SHOT]
    for shift, method in enumerate(shown):
        places = [k + 0.15 * (shift - (len(shown) - 1) / 2) for k in range(len(beyond))]
        look = style(method) | {"ls": "", "ms": 7}
        if method == ONE_SHOT:
            look["ms"] = 11
        for place, point in zip(places, beyond, strict=True):
            above = results.percent_above(method, **point)
            value = min(max(above.mean, floor), ceiling)
            error = None
            if floor < value < ceiling and above.trials > 1:
                error = [[min(above.sd, value - floor)], [above.sd]]
            right.errorbar(
                [place], [value], yerr=error, capsize=3, elinewidth=1, **look
            )
            look["label"] = ""
            if value == ceiling:
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
    right.set_yscale("log")
    right.set_ylim(0.4 * floor, 4 * ceiling)
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
