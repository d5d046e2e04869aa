"""An `Experiment`: its settings by size, its cells, its tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .cells import Cell
from .figures import say_what_is_empty
from .method import CENTRALIZED, ONE_SHOT, Method
from .results import Results
from .settings import Settings, SettingsError
from .tables import Claim

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Experiment", "as_in_the_paper", "head_to_head", "only_fedavg"]


@dataclass(frozen=True)
class Experiment:
    """One experiment; everything but running the cells is a pure function.

    Parameters
    ----------
    name, title : str
        Its name in run-config, and what it shows.
    sizes : mapping
        Settings for "paper", "quick" and "toy".
    cells : callable
        From settings to the cells they need.
    verdict : callable
        From results to one or two sentences for the report.
    claims : callable
        From results to the paper's claims with verdicts.
    tables : callable
        From results to Markdown with everything measured.
    figures : callable
        From results to figures by file name.
    available : callable
        From settings and the folder of data sets to settings with those that are there.
    uses : tuple of str
        Settings that it reads, where those of the paper's rows mean nothing to it; all
        by default.
    """

    name: str
    title: str
    sizes: Mapping[str, Settings]
    cells: Callable[[Settings], list[Cell]]
    verdict: Callable[[Results], str]
    claims: Callable[[Results], list[Claim]]
    tables: Callable[[Results], str]
    figures: Callable[[Results], dict[str, Figure]]
    available: Callable[[Settings, str], Settings] = lambda settings, _: settings
    uses: tuple[str, ...] = ()

    def draw(self, results: Results) -> dict[str, Figure]:
        """Return the figures; a panel without anything to show says so."""
        figures = self.figures(results)
        for figure in figures.values():
            say_what_is_empty(figure)
        return figures


def head_to_head(
    settings: Settings,
    iterative: Sequence[Method],
    single: Sequence[Method] = (),
    **axis: Any,
) -> list[Cell]:
    """Return the cells of all trials at one point of a sweep.

    One-Shot, the oracle and the other methods of one round run in every trial, the
    iterative ones in `iterative_trials` of them.
    """
    cells = []
    for trial in range(max(settings.trials, settings.iterative_trials)):
        methods: list[Method] = []
        if trial < settings.trials:
            methods += [ONE_SHOT, CENTRALIZED, *single]
        if trial < settings.iterative_trials:
            methods += iterative
        problem = settings.problem(trial, **axis)
        cells += [Cell(problem, method) for method in methods]
    return cells


def as_in_the_paper(settings: Settings, paper: Settings, swept: str = "") -> bool:
    """Return whether the paper's claims are about these settings.

    What the experiment sweeps, and how often it repeats, does not matter: claims are
    then made for those points that the paper has.
    """
    trials = {"trials", "iterative_trials", "private_trials", "beyond_trials"}
    free = {*trials, "seed", swept}
    return all(
        getattr(settings, name) == getattr(paper, name)
        for name in vars(paper)
        if name not in free
    )


def only_fedavg(settings: Settings) -> None:
    """Refuse other methods where an experiment is about FedAvg."""
    if settings.methods != ("FedAvg",):
        raise SettingsError(
            "run-config methods is always FedAvg in this experiment, got "
            f"{', '.join(settings.methods)}."
        )
