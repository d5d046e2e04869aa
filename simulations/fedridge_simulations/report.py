"""REPORT.md: one page with the verdicts, the figures and the machine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .cells import Store
from .experiment import Experiment
from .experiments import EXPERIMENTS
from .output import write_experiment
from .properties import properties_table
from .results import Results
from .settings import Settings
from .tables import table

__all__ = ["Loaded", "load", "render", "write_report"]


@dataclass(frozen=True)
class Loaded:
    """An experiment with its results, read from its folder."""

    experiment: Experiment
    results: Results
    about: dict[str, Any]
    done: int
    cells: int

    @property
    def finished(self) -> bool:
        """Whether all cells of its settings are there."""
        return self.done == self.cells


def load(folder: Path) -> list[Loaded]:
    """Return the experiments whose results.json is in the folder, in their order."""
    found = []
    for name, experiment in EXPERIMENTS.items():
        file = folder / name / "results.json"
        if file.exists():
            about = json.loads(file.read_text(encoding="utf-8"))
            del about["cells"]
            values: dict[str, Any] = {
                key: tuple(value) if isinstance(value, list) else value
                for key, value in about["settings"].items()
            }
            settings, store = Settings(**values), Store(folder / name)
            cells = set(experiment.cells(settings))
            done = sum(store.find(cell) is not None for cell in cells)
            results = Results(settings, store)
            found.append(Loaded(experiment, results, about, done, len(cells)))
    return found


def render(folder: Path) -> None:
    """Write all tables and figures and the report again, from results alone."""
    for each in load(folder):
        if each.finished:
            write_experiment(
                each.experiment, each.results, each.about, folder / each.experiment.name
            )
    write_report(folder)


def write_report(folder: Path) -> str:
    """Write REPORT.md from everything that is finished, and return it."""
    loaded = load(folder)
    finished = [each for each in loaded if each.finished]
    rows = []
    for each in loaded:
        if not each.finished:
            progress = f"{each.done} of {each.cells} cells are finished"
            rows.append([each.experiment.name, progress, "-"])
            continue
        claims = each.experiment.claims(each.results)
        of_the_paper = [
            claim.holds
            for claim in claims
            if not claim.beyond and claim.holds is not None
        ]
        held = sum(of_the_paper)
        rows.append(
            [
                f"[{each.experiment.name}]({each.experiment.name}/table.md)",
                each.experiment.verdict(each.results)
                if claims
                else "not at the paper's settings",
                f"{held} of {len(of_the_paper)}" if of_the_paper else "-",
            ]
        )
    parts = [
        "# One-shot federated ridge: claimed and measured",
        "Every number was measured in Flower simulations on Ray by the code in "
        "`simulations/`, which also wrote this page (`make experiments-full`). Tables "
        "with every claim of the paper, what was measured and a verdict are behind "
        "the links.",
        table(
            ["experiment", "verdict", "claims of the paper that hold"],
            rows,
            text_columns=3,
        ),
        "## Properties",
        properties_table("../.."),
        "Flower ships no SCAFFOLD, so there is none here; any strategy that it does "
        'ship can be compared with the run-config `methods="FedAvgM, FedAdam"`.',
        "## Figures",
        *(
            f"![{each.experiment.title}]({each.experiment.name}/{name}.png)"
            for each in finished
            for name in each.experiment.figures(each.results)
        ),
        "## How it was measured",
        _machine(finished),
    ]
    text = "\n\n".join(parts) + "\n"
    (folder / "REPORT.md").write_text(text, encoding="utf-8")
    return text


def _machine(finished: list[Loaded]) -> str:
    if not finished:
        return "Nothing was run yet."
    about = finished[0].about
    versions = ", ".join(f"{name} {v}" for name, v in about["versions"].items())
    trials = ", ".join(
        f"{each.experiment.name} {each.results.settings.trials}"
        f"/{each.results.settings.iterative_trials}"
        for each in finished
    )
    return (
        f"{about['machine']['cpus']} CPUs, {about['machine']['memory_gib']} GiB; "
        f"{versions}. Trials of One-Shot and of iterative methods: {trials}."
    )
