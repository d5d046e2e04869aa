"""Beyond the paper: nonlinear models in one round, on data sets with unlike clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import floor, isfinite
from typing import TYPE_CHECKING, Any

from ..cells import Cell, Outcome
from ..datasets import DATASETS, is_there
from ..experiment import Experiment, as_in_the_paper
from ..figures import axes
from ..method import CENTRALIZED, ONE_SHOT, SCALED, Method
from ..results import Results, spread
from ..settings import Settings, SettingsError
from ..tables import Claim, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT"]

_PAPER = Settings(
    trials=3,
    iterative_trials=1,
    methods=("FedAvg",),
    penalty=(SCALED,),
    datasets=tuple(DATASETS),
    clients=(20, 100),
    rows=(200,),
    rounds=(100,),
    random_features=(500, 1000),
    alpha=(0.0,),
)
_SIZES = {
    "paper": _PAPER,
    "quick": replace(_PAPER, trials=1, rounds=(10,)),
    "toy": replace(
        _PAPER,
        trials=1,
        datasets=("friedman1", "digits"),
        clients=(4, 5),
        rows=(60,),
        rounds=(3,),
        random_features=(40, 60),
    ),
}
_USES = (
    "trials",
    "iterative_trials",
    "seed",
    "datasets",
    "clients",
    "rows",
    "test_fraction",
    "rounds",
    "local_epochs",
    "random_features",
)

LINEAR, FOURIER = "linear", "Fourier"


@dataclass(frozen=True)
class _Features:
    """One model of a data set: its map, {} for the number of features, and alpha.

    Alpha was chosen among powers of ten by cross-validation on the pooled training
    rows of the first trial.
    """

    name: str
    text: str
    alpha: float


_FEATURES = {
    "friedman1": (
        _Features(LINEAR, "", 0.1),
        _Features("polynomial", "polynomial 2", 0.01),
        _Features("tangent", "tangent {width}", 0.1),
        _Features(FOURIER, "fourier {size} gamma=0.3", 0.001),
    ),
    "california_housing": (
        _Features(LINEAR, "standardize", 10.0),
        _Features("polynomial", "standardize | polynomial 2", 100.0),
        _Features("tangent", "standardize | tangent {width}", 1.0),
        _Features(FOURIER, "standardize | fourier {size} gamma=scale", 0.1),
    ),
    "digits": (
        _Features(LINEAR, "", 10.0),
        _Features(FOURIER, "fourier {size} gamma=0.1", 0.01),
    ),
    "mnist_5k": (
        _Features(LINEAR, "", 100.0),
        _Features(FOURIER, "fourier {size} gamma=0.01", 1.0),
    ),
}
_AGAINST_FEDAVG = (LINEAR, FOURIER)


@dataclass(frozen=True)
class _Row:
    """One data set with one kind of features: a line of a table."""

    settings: Settings
    dataset: str
    kind: _Features

    @property
    def features(self) -> str:
        """The map in text."""
        data = DATASETS[self.dataset]
        size = self.settings.random_features[-1 if data.labels else 0]
        # A hidden unit has a feature for each column, its bias and its output.
        width = max(1, size // (data.columns + 2))
        return self.kind.text.format(size=size, width=width)

    @property
    def axis(self) -> dict[str, Any]:
        """What makes its problem, for `Settings.problem`."""
        data = DATASETS[self.dataset]
        return {
            "dataset": self.dataset,
            "clients": self.settings.clients[-1 if data.labels else 0],
            "features": data.columns,
            "alpha": self.settings.one("alpha") or self.kind.alpha,
        }

    @property
    def one_shot(self) -> Method:
        return replace(ONE_SHOT, features=self.features)

    @property
    def centralized(self) -> Method:
        return replace(CENTRALIZED, features=self.features)

    def iteratives(self) -> list[Method]:
        """Return the methods of many rounds on these features; their step is 1/L."""
        settings = self.settings
        if self.kind.name not in _AGAINST_FEDAVG:
            return []
        return [
            replace(method, learning_rate=0.0, features=self.features)
            for method in settings.iteratives(settings.one("rounds"))
        ]


def _rows(settings: Settings, *, labels: bool) -> list[_Row]:
    return [
        _Row(settings, name, kind)
        for name in settings.datasets
        if DATASETS[name].labels == labels
        for kind in _FEATURES[name]
    ]


def _all_rows(settings: Settings) -> list[_Row]:
    return _rows(settings, labels=False) + _rows(settings, labels=True)


def _available(settings: Settings, folder: str) -> Settings:
    there = tuple(name for name in settings.datasets if is_there(name, folder))
    if not there:
        raise SettingsError(
            f"of {', '.join(settings.datasets)} nothing is in {folder}: say where with "
            "the run-config data-dir."
        )
    return replace(settings, datasets=there)


def _cells(settings: Settings) -> list[Cell]:
    if min(settings.clients) < 1 or settings.clients[-1] < 5:
        raise SettingsError(
            "run-config clients, the last of them for labels, must be at least 5 there "
            f"(two labels each), got {settings.clients[-1]}."
        )
    cells = []
    for row in _all_rows(settings):
        for trial in range(settings.trials):
            problem = settings.problem(trial, **row.axis)
            methods = [row.centralized, row.one_shot]
            if trial < settings.iterative_trials:
                methods += row.iteratives()
            cells += [Cell(problem, method) for method in methods]
    return cells


# ---- what was measured ---------------------------------------------------------------


def _scores(outcome: Outcome) -> list[float]:
    """Return R², or accuracy, after every round that was recorded."""
    facts, rounds = outcome.facts, len(outcome.mse_by_round)
    if "accuracy" in facts:
        return list(facts.get("accuracy_by_round", [])[:rounds]) or [facts["accuracy"]]
    variance = facts["test_variance"]
    return [1 - mse / variance for mse in outcome.mse_by_round or [outcome.test_mse]]


def _score(results: Results, row: _Row, method: Method) -> float:
    found = results.spread(method, lambda outcome: _scores(outcome)[-1], **row.axis)
    return found.mean


def _score_text(results: Results, row: _Row, method: Method) -> str:
    found = results.spread(method, lambda outcome: _scores(outcome)[-1], **row.axis)
    if not found.trials:
        return found.otherwise
    if found.mean < -1e3:
        return "diverges"
    return f"{found.mean:.4f}" + (f" ± {found.sd:.4f}" if found.trials > 1 else "")


def _largest(
    results: Results, rows: list[_Row], value: Callable[[Outcome], float]
) -> float:
    """Return the largest value among all trials of One-Shot."""
    return max(
        (value(o) for row in rows for o in results.outcomes(row.one_shot, **row.axis)),
        default=0.0,
    )


def _gain(results: Results, dataset: str) -> tuple[float, float]:
    """Return One-Shot's score with linear and with Fourier features."""
    by_kind = {
        row.kind.name: _score(results, row, row.one_shot)
        for row in _all_rows(results.settings)
        if row.dataset == dataset
    }
    return by_kind[LINEAR], by_kind[FOURIER]


def _gains(results: Results) -> str:
    return ", ".join(
        "{} {:.3f} to {:.3f}".format(name, *_gain(results, name))
        for name in results.settings.datasets
    )


def _verdict(results: Results) -> str:
    rows = _all_rows(results.settings)
    distance = _largest(results, rows, lambda o: o.distance)
    others = _largest(results, rows, lambda o: o.facts.get("other_labels", 0))
    return (
        f"Random Fourier features take One-Shot from linear to nonlinear in the same "
        f"round (R² or accuracy: {_gains(results)}); predictions are those of "
        f"scikit-learn on the pooled features to {distance:.0e}, and "
        f"{'all' if not others else f'all but {others:.0f}'} labels are the same."
    )


def _claims(results: Results) -> list[Claim]:
    settings = results.settings
    if not as_in_the_paper(settings, _PAPER, "datasets"):
        return []
    rows, labels = _all_rows(settings), _rows(settings, labels=True)
    distance = _largest(results, rows, lambda o: o.distance)
    better = all(
        curved > straight
        for straight, curved in (_gain(results, name) for name in settings.datasets)
    )
    claims = [
        Claim(
            "Fourier features against linear, One-Shot",
            "-",
            _gains(results),
            better,
            "the same round, a nonlinear model"
            if better
            else "not better on every data set",
            beyond=True,
        ),
        Claim(
            "the pooled model",
            "-",
            f"predictions differ by at most {distance:.0e}",
            distance < 1e-8,
            "scikit-learn's Ridge on the pooled mapped rows",
            beyond=True,
        ),
    ]
    if labels:
        others = _largest(results, labels, lambda o: o.facts["other_labels"])
        claims.append(
            Claim(
                "clients with two labels each",
                "-",
                f"{others:.0f} test rows with another label",
                others == 0,
                "the labels of scikit-learn's RidgeClassifier on the pooled rows",
                beyond=True,
            )
        )
    return claims


# ---- tables --------------------------------------------------------------------------


def _shape(outcome: Outcome) -> str:
    return f"{outcome.facts['features']:,}"


def _line(results: Results, row: _Row) -> list[str]:
    one, clients = row.one_shot, row.axis["clients"]
    found = results.outcomes(one, **row.axis)
    lines = [
        row.dataset,
        row.kind.name,
        _shape(found[0]) if found else "-",
        f"{row.axis['alpha']:g}",
        f"{found[0].facts.get('rounds', 1)}" if found else "-",
        _score_text(results, row, one),
        f"{_largest(results, [row], lambda o: o.distance):.0e}",
    ]
    if DATASETS[row.dataset].labels:
        others = _largest(results, [row], lambda o: o.facts.get("other_labels", 0))
        lines.append(f"{others:.0f}")
    lines += [_per_client(results, row, one, clients), _seconds(results, row, one)]
    for method in row.iteratives():
        lines += [
            _beside_one_shot(results, row, method),
            _per_client(results, row, method, clients),
            _seconds(results, row, method),
        ]
    if not row.iteratives():
        lines += ["-"] * 3 * len(results.settings.iteratives(1))
    return lines


def _beside_one_shot(results: Results, row: _Row, method: Method) -> str:
    """Return a score, and in brackets One-Shot's in the same trials."""
    mine = results.by_trial(method, **row.axis)
    one = results.by_trial(row.one_shot, **row.axis)
    same = spread(_scores(o)[-1] for trial, o in one.items() if trial in mine)
    there = f" ({same.mean:.4f})" if same.trials else ""
    return _score_text(results, row, method) + there


def _per_client(results: Results, row: _Row, method: Method, clients: int) -> str:
    up = results.spread(method, lambda o: o.bytes_up / clients, **row.axis).mean
    down = results.spread(method, lambda o: o.bytes_down / clients, **row.axis).mean
    return "not run" if up != up else f"{up / 1e6:.3g} / {down / 1e6:.2g}"


def _seconds(results: Results, row: _Row, method: Method) -> str:
    found = results.seconds(method, **row.axis)
    if found.trials:
        return f"{found.mean:.1f}"
    busy = results.spread(method, lambda outcome: outcome.seconds, **row.axis)
    return f"~{busy.mean:.1f}" if busy.trials else busy.otherwise


def _table(results: Results, *, labels: bool) -> str:
    settings = results.settings
    rows = _rows(settings, labels=labels)
    score = "accuracy" if labels else "R²"
    heads = ["data set", "features", "number", "alpha", "rounds"]
    heads += [f"One-Shot, test {score}", "difference to pooled scikit-learn"]
    heads += ["other labels"] * labels
    heads += ["MB per client up / down", "seconds"]
    for method in settings.iteratives(settings.one("rounds")):
        name = f"{method.label}, {method.rounds} rounds"
        heads += [f"{name}, test {score} (One-Shot's in the same trials)"]
        heads += ["its MB per client up / down", "its seconds"]
    return table(heads, [_line(results, row) for row in rows], text_columns=2)


def _tables(results: Results) -> str:
    settings = results.settings
    parts = []
    if _rows(settings, labels=False):
        parts += ["## A number", _table(results, labels=False)]
    if _rows(settings, labels=True):
        parts += ["## One of ten labels", _table(results, labels=True)]
    return "\n\n".join([*parts, _about_data(results), _HOW])


def _about_data(results: Results) -> str:
    settings, lines = results.settings, []
    for name, data in DATASETS.items():
        row = next((r for r in _all_rows(settings) if r.dataset == name), None)
        if row is None:
            why = f", no `{data.file}` in the data folder" if data.file else ""
            lines.append(f"- `{name}`: left out{why}.")
            continue
        found = results.outcomes(row.centralized, **row.axis)
        facts = found[0].facts if found else {}
        lines.append(
            f"- `{name}`: {facts.get('training_rows', 0):,} training and "
            f"{facts.get('test_rows', 0):,} test rows, {data.columns} columns, "
            f"{row.axis['clients']} clients: {data.split}."
        )
    return "\n".join(lines)


_HOW = (
    "Alpha is fixed and the same for all methods of a row: a power of ten, looked for "
    "by cross-validation on the training rows of the first trial (by generalized "
    "cross-validation for friedman1's tangent features), gamma by a small grid on the "
    "same trial; a few of them are at the end of what was tried. "
    "Each trial draws its own features and test rows. Where columns are standardised, "
    "or gamma follows their scale, One-Shot has a small first round for means and "
    "variances, which is counted; FedAvg is given the finished map and pays nothing "
    "for it. The difference is that of the predictions for the test rows, relative, "
    "at its largest over the trials, to scikit-learn's Ridge (labels: "
    "RidgeClassifier) on the pooled mapped rows. Labels are ten targets, +1 for the "
    "label of a row and -1 for the others; the largest prediction is the answer. "
    "FedAvg: Flower's own, all clients in every round, full-batch local steps of 1/L "
    "with L the largest curvature of any client. Seconds with ~ are those of a machine "
    "that had other work as well."
)


# ---- figures -------------------------------------------------------------------------

_COLOURS = {LINEAR: "#0072B2", FOURIER: "#D55E00"}


def _draw(axis: Axes, results: Results, dataset: str) -> None:
    settings = results.settings
    rows = [
        row
        for row in _all_rows(settings)
        if row.dataset == dataset and row.kind.name in _AGAINST_FEDAVG
    ]
    lowest = 1.0
    for row in rows:
        colour = _COLOURS[row.kind.name]
        for number, method in enumerate(row.iteratives()):
            for outcome in results.outcomes(method, **row.axis)[:1]:
                scores = _scores(outcome)
                lowest = min([lowest, *filter(isfinite, scores)])
                axis.plot(
                    range(1, len(scores) + 1),
                    scores,
                    color=colour,
                    ls=("-", "--", ":", "-.")[number % 4],
                    lw=2,
                    label=f"{method.name}, {row.kind.name}",
                )
    for row in rows:
        colour = _COLOURS[row.kind.name]
        for outcome in results.outcomes(row.one_shot, **row.axis)[:1]:
            axis.plot(
                [outcome.facts.get("rounds", 1)],
                _scores(outcome)[-1:],
                ls="",
                marker="*",
                ms=15,
                color=colour,
                zorder=5,
                clip_on=False,
                label=f"One-Shot, {row.kind.name}",
            )
            axis.axhline(_scores(outcome)[-1], color=colour, lw=1, ls=":")
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.xaxis.set_minor_formatter(lambda *_: "")
    axis.set_xlabel("rounds")
    # Below zero a model is worse than the mean: of no interest here.
    axis.set_ylim(max(0.0, floor(10 * lowest - 0.5) / 10), 1.01)
    axis.set_title(f"{dataset}, {rows[0].axis['clients']} clients", fontsize=10)


def _figures(results: Results) -> dict[str, Figure]:
    figures = {}
    for labels, name, title, score in (
        (False, "regression", "Nonlinear regression in one round", "test R²"),
        (True, "labels", "Ten labels, two at each client", "test accuracy"),
    ):
        names = [n for n in results.settings.datasets if DATASETS[n].labels == labels]
        if not names:
            continue
        figure, drawn = axes(len(names), title=title)
        for axis, dataset in zip(drawn, names, strict=True):
            _draw(axis, results, dataset)
        drawn[0].set_ylabel(score)
        shown = drawn[0].get_legend_handles_labels()
        figure.legend(*shown, frameon=False, ncols=4, loc="outside lower center")
        figures[name] = figure
    return figures


EXPERIMENT = Experiment(
    name="kernels",
    title="Beyond the paper: nonlinear models in one round",
    sizes=_SIZES,
    cells=_cells,
    verdict=_verdict,
    claims=_claims,
    tables=_tables,
    figures=_figures,
    available=_available,
    uses=_USES,
)
