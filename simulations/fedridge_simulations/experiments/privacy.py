"""Experiment 5: the paper's private methods, which are not, and some that are."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cells import Cell
from ..experiment import Experiment, as_in_the_paper, head_to_head, only_fedavg
from ..figures import axes, oracle_line, series
from ..honest import CORRELATED, correlated_methods, honest_cells, methods
from ..honest_tables import honest_claims, honest_tables, honest_verdict, level
from ..method import CENTRALIZED, ONE_SHOT, SCALED, Method
from ..paper_privacy import one_shot_cost
from ..problem import pooled_rows
from ..results import Results
from ..settings import TOY, Settings
from ..tables import Claim, same, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT"]

# Table 5 of the paper: One-Shot (private), DP-FedAvg-100.
_CLAIMED = {
    0.1: (0.070, 0.031),
    0.5: (0.015, 0.012),
    1.0: (0.012, 0.011),
    2.0: (0.0102, 0.0105),
    5.0: (0.0101, 0.0104),
    10.0: (0.0100, 0.0103),
}
_SIZES = {
    "paper": Settings(
        iterative_trials=3,
        private_trials=10,
        epsilon=(0.1, 0.5, 1.0, 2.0, 5.0, 10.0),
        rounds=(100,),
        methods=("FedAvg",),
    ),
    "quick": Settings(
        trials=3,
        iterative_trials=1,
        private_trials=1,
        epsilon=(0.1, 1.0, 10.0),
        penalty=(SCALED,),
        rounds=(100,),
        methods=("FedAvg",),
    ),
    "toy": replace(TOY, private_trials=1, epsilon=(1.0, 10.0), methods=("FedAvg",)),
}


def _release(settings: Settings, epsilon: float) -> Method:
    return Method("Algorithm 2", epsilon=epsilon, delta=settings.one("delta"))


def _training(settings: Settings, penalty: str, epsilon: float) -> Method:
    """Return DP-FedAvg, or FedAvg itself where epsilon is 0, for none."""
    plain = settings.iterative("FedAvg", penalty, settings.one("rounds"))
    if not epsilon:
        return plain
    delta = settings.one("delta")
    return replace(plain, name="DP-FedAvg", epsilon=epsilon, delta=delta)


def _cells(settings: Settings) -> list[Cell]:
    only_fedavg(settings)
    training = [
        _training(settings, penalty, epsilon)
        for epsilon in (*settings.epsilon, 0.0)
        for penalty in settings.penalty
    ]
    releases = [_release(settings, epsilon) for epsilon in settings.epsilon]
    return head_to_head(settings, training, releases) + honest_cells(settings)


def _unit_epsilon(settings: Settings, epsilon: float) -> float:
    """Return Algorithm 2's true epsilon for rows and targets of norm 1."""
    return one_shot_cost(epsilon, settings.one("delta"), math.sqrt(2.0))


def _raw_epsilon(settings: Settings, epsilon: float) -> float:
    """Return the true epsilon for the rows the experiment really uses."""
    rows = pooled_rows(settings.problem(0))
    squares = np.square(rows.X).sum(axis=1)
    change = np.sqrt(squares**2 + squares * rows.y**2)
    return one_shot_cost(epsilon, settings.one("delta"), float(change.max()))


def _verdict(results: Results) -> str:
    settings = results.settings
    low, high = min(settings.epsilon), max(settings.epsilon)
    nominal = (
        "As the paper runs it, Algorithm 2 is not private: a nominal ε of "
        f"{low:g} to {high:g} is really {_raw_epsilon(settings, low):,.0f} to "
        f"{_raw_epsilon(settings, high):,.0f} with rows as they are. Nor does "
        "DP-FedAvg clip anything."
    )
    if not settings.private_trials:
        return nominal
    return f"{nominal} {honest_verdict(results)}"


def _claims(results: Results) -> list[Claim]:
    settings = results.settings
    if not as_in_the_paper(settings, _SIZES["paper"], "epsilon"):
        return []
    claims = []
    for epsilon in settings.epsilon:
        if epsilon not in _CLAIMED:
            continue
        shot, train = _CLAIMED[epsilon]
        release = results.mse(_release(settings, epsilon))
        true = _raw_epsilon(settings, epsilon)
        claims.append(
            Claim(
                f"ε {epsilon:g}: private One-Shot",
                f"{shot:g} at ε {epsilon:g}",
                f"{release.text()} at ε {true:,.0f}",
                true <= epsilon,
                f"{_nearness(shot, release.mean)}, but rows of norm about 10 under "
                f"noise made for norm 1 give ε {true:,.0f}; unit rows would give "
                f"{_unit_epsilon(settings, epsilon):.2g}",
            )
        )
        readings = {
            p: results.mse(_training(settings, p, epsilon)) for p in settings.penalty
        }
        nearest = min(readings.values(), key=lambda r: abs(r.mean - train))
        claims.append(
            Claim(
                f"ε {epsilon:g}: DP-FedAvg-100",
                f"{train:g}",
                ", ".join(f"{p} {r.text()}" for p, r in readings.items()),
                same(train, nearest.mean, 0.1),
                f"{_nearness(train, nearest.mean)} with noise τ(ε/√R)/n on every local "
                "gradient, our reading: the paper does not say, and nothing is clipped",
            )
        )
    return claims + (honest_claims(results) if settings.private_trials else [])


def _nearness(claimed: float, measured: float) -> str:
    ratio = measured / claimed
    if 0.9 < ratio < 1.1:
        return "about the number of the paper"
    return f"{ratio:.2g} times the number of the paper"


def _tables(results: Results) -> str:
    settings = results.settings
    rows = [
        [
            f"{epsilon:g}" if epsilon else "none",
            results.mse(_release(settings, epsilon)).text()
            if epsilon
            else results.mse(ONE_SHOT).text(),
            *(
                results.mse(_training(settings, p, epsilon)).text()
                for p in settings.penalty
            ),
            f"{_unit_epsilon(settings, epsilon):.3g}" if epsilon else "-",
            f"{_raw_epsilon(settings, epsilon):,.0f}" if epsilon else "-",
        ]
        for epsilon in (*settings.epsilon, 0.0)
    ]
    heads = [
        "nominal ε",
        "Algorithm 2",
        *(_training(settings, p, 1.0).label for p in settings.penalty),
        "true ε of Algorithm 2, unit rows",
        "true ε, rows as they are",
    ]
    nominal = (
        "**As in the paper, not private.**\n\n"
        + table(heads, rows)
        + f"\n\nTrue ε at δ = {settings.one('delta'):g} by the exact trade-off of the "
        "Gaussian mechanism, adding or removing one row; the last column with the "
        f"largest row of trial 0. {settings.trials} trials of Algorithm 2, "
        f"{settings.iterative_trials} of DP-FedAvg. The noise comes from a seed."
    )
    if not settings.private_trials:
        return nominal
    return f"{nominal}\n\n{honest_tables(results)}"


def _figures(results: Results) -> dict[str, Figure]:
    both = results.settings.private_trials > 0
    figure, panels = axes(2, 2) if both else axes(width=7.4)
    _nominal_panel(results, panels[0])
    if both:
        panels, beside = panels[:3], panels[3]
        _honest_panel(results, panels[1], correlated_methods, **CORRELATED)
        panels[1].set_title("Private, correlated features", fontsize=11)
        _honest_panel(results, panels[2], methods)
        low, high = (
            f(p.get_ylim()[k] for p in panels) for k, f in ((0, min), (1, max))
        )
        for panel in panels:
            panel.set_ylim(low, high)
        # The last panel has no room for the names of so many curves.
        beside.set_visible(False)
        named = panels[2].legend(
            frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.05, 0.5)
        )
        named.set_in_layout(False)
    return {"privacy": figure}


def _nominal_panel(results: Results, axis: Axes) -> None:
    settings = results.settings
    epsilons = list(settings.epsilon)
    nominal = [_release(settings, e) for e in epsilons]
    series(axis, epsilons, [results.mse(m) for m in nominal], nominal[0])
    for p in settings.penalty:
        training = [_training(settings, p, e) for e in epsilons]
        series(axis, epsilons, [results.mse(m) for m in training], training[0])
    claimed = [(e, *_CLAIMED[e]) for e in epsilons if e in _CLAIMED]
    for column, mark, colour, name in (
        (1, "x", "#009E73", "One-Shot"),
        (2, "+", "#0072B2", "DP-FedAvg"),
    ):
        axis.plot(
            [c[0] for c in claimed],
            [c[column] for c in claimed],
            mark,
            color=colour,
            label=f"claimed, {name}",
        )
    oracle_line(axis, results.mse(CENTRALIZED).mean, "no noise")
    _dress(axis, epsilons, "As in the paper: not private", "nominal ε")


def _honest_panel(
    results: Results,
    axis: Axes,
    among: Callable[[Settings, float], list[Method]],
    **problem: Any,
) -> None:
    settings = results.settings
    epsilons = list(settings.epsilon)
    shown = [
        [method for method in among(settings, e) if method.estimator != "plain"]
        for e in epsilons
    ]
    for each in zip(*shown, strict=True):
        series(axis, epsilons, [results.mse(m, **problem) for m in each], each[0])
    null, exact = (
        level(results, name, shown[-1][0], **problem).mean
        for name in ("null_mse", "noiseless_mse")
    )
    axis.axhline(null, color="#555555", lw=1.2, ls="-.", label="predicting the mean")
    oracle_line(axis, exact, "no noise")
    _dress(axis, epsilons, "Private, exactly accounted", "ε")


def _dress(axis: Axes, epsilons: list[float], title: str, x: str) -> None:
    axis.set_title(title, fontsize=11)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xticks(epsilons, [f"{e:g}" for e in epsilons])
    axis.minorticks_off()
    axis.set_xlabel(x)
    axis.set_ylabel("test MSE")
    axis.legend(frameon=False, fontsize=8)


EXPERIMENT = Experiment(
    name="privacy",
    title="Experiment 5: privacy, as in the paper (not private) and private",
    sizes=_SIZES,
    cells=_cells,
    verdict=_verdict,
    claims=_claims,
    tables=_tables,
    figures=_figures,
)
