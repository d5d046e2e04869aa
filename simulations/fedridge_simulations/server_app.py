"""The ServerApp: run the experiments that were asked for and write what they gave."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedridge_flwr.app.machine import memory_gib, versions
from fedridge_flwr.flower.exchange import log

from .cells import Cell, Outcome, Store, alone
from .cohort import Federation
from .datasets import data_folder
from .experiment import Experiment
from .experiments import EXPERIMENTS
from .feature_cells import run_feature_cell
from .output import write_experiment
from .results import Results
from .run import run_cell
from .settings import (
    SIZES,
    Settings,
    SettingsError,
    only_clients,
    output_folder,
    override,
)
from .trials import run_trials

__all__ = ["app", "choose", "facts"]

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run, print and write."""
    config = context.run_config
    folder, only = output_folder(config), only_clients(config)
    chosen = choose(config)
    needed = {c.problem.clients for _, _, cells in chosen for c in cells}
    federation = Federation(grid, only or max(needed))
    for experiment, settings, cells in chosen:
        place = Path(folder) / experiment.name if folder else None
        about = facts(experiment, settings, str(config.get("size", "paper")))
        with alone(place):
            store = Store(place)
            left = run_trials(
                experiment.name,
                cells,
                store,
                lambda cell: _run(cell, federation, data_folder(config)),
                about,
                only,
            )
            if left:
                log.info("%s: %d cells are left for other runs", experiment.name, left)
                continue
            text = write_experiment(experiment, Results(settings, store), about, place)
        print(f"\n{text}\n", flush=True)
        if place is not None:
            log.info("wrote results.json, table.md and figures to %s", place)


def _run(cell: Cell, federation: Federation, folder: str) -> Outcome:
    if cell.problem.dataset:
        return run_feature_cell(cell, federation, folder)
    return run_cell(cell, federation)


def choose(
    run_config: Mapping[str, Any],
) -> list[tuple[Experiment, Settings, list[Cell]]]:
    """Return the experiments asked for, with their settings and cells.

    Raises
    ------
    SettingsError
        If there is no such experiment or size, or a value does not fit.
    """
    size = run_config.get("size", "paper")
    if size not in SIZES:
        raise SettingsError(
            f"run-config size must be one of {', '.join(SIZES)}, got {size!r}."
        )
    wanted = run_config.get("experiment", "")
    names = [n.strip() for n in wanted.split(",")] if isinstance(wanted, str) else []
    if names == ["all"]:
        names = list(EXPERIMENTS)
    if not names or not set(names) <= set(EXPERIMENTS):
        raise SettingsError(
            f"run-config experiment must be one or more of {', '.join(EXPERIMENTS)}, "
            f"or all, got {wanted!r}."
        )
    chosen = []
    for name in names:
        experiment = EXPERIMENTS[name]
        settings = override(experiment.sizes[size], run_config)
        try:
            settings = experiment.available(settings, data_folder(run_config))
            cells = experiment.cells(settings)
        except SettingsError as error:
            raise SettingsError(f"{name}: {error}") from None
        chosen.append((experiment, settings, cells))
    return chosen


def facts(experiment: Experiment, settings: Settings, size: str) -> dict[str, Any]:
    """Return what a reader needs to repeat the experiment."""
    packages = ("flwr", "ray", "fedridge-flwr", "numpy", "scipy", "scikit-learn")
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "size": size,
        "settings": asdict(settings),
        "versions": versions(packages),
        "machine": {"cpus": os.cpu_count(), "memory_gib": memory_gib()},
    }
