"""Run experiments in simulations of their own: ``python -m fedridge_simulations``."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from flwr.common.config import parse_config_args

from fedridge_flwr.app.launch import local_superlink
from fedridge_flwr.errors import FedRidgeError

from .datasets import DATA_VARIABLE, beside_the_project
from .report import render, write_report
from .server_app import choose

__all__ = ["main"]

_APP = Path(__file__).resolve().parents[1]
_A_DAY = 86_400.0


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for, one simulation per number of clients."""
    parser = argparse.ArgumentParser(prog="python -m fedridge_simulations")
    parser.add_argument("--size", default="paper", help="paper, quick or toy")
    parser.add_argument("--experiment", default="all", help="with commas, or all")
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=os.environ.get(DATA_VARIABLE) or beside_the_project(),
        help="folder of data sets; those that are not there are left out",
    )
    parser.add_argument("-c", "--run-config", action="append", default=[])
    parser.add_argument(
        "--render",
        action="store_true",
        help="run nothing; write tables, figures and REPORT.md from the results again",
    )
    options = parser.parse_args(arguments)
    folder = options.output_dir.absolute()
    if options.render:
        render(folder)
        return 0
    try:
        config = {
            **parse_config_args(options.run_config),
            "experiment": options.experiment,
            "size": options.size,
            "output-dir": str(folder),
            "data-dir": str(options.data_dir.absolute()),
        }
        with local_superlink() as superlink:
            for clients, part in _parts(config):
                superlink.run(
                    _APP, num_supernodes=clients, run_config=part, timeout=_A_DAY
                )
    except (FedRidgeError, ValueError) as error:
        print(f"fedridge_simulations: {error}", file=sys.stderr)
        return 1
    write_report(folder)
    print(f"Results in {folder}, summary in {folder / 'REPORT.md'}")
    return 0


def _parts(config: dict[str, object]) -> list[tuple[int, dict[str, object]]]:
    """Return (number of clients, run-config) of each simulation.

    A simulator with five hundred idle clients is slow for ten: where the number of
    clients is swept, each has a simulation of its own.
    """
    together: dict[int, list[str]] = {}
    alone: list[tuple[int, dict[str, object]]] = []
    for experiment, _, cells in choose(config):
        numbers = sorted({cell.problem.clients for cell in cells})
        if len(numbers) == 1:
            together.setdefault(numbers[0], []).append(experiment.name)
        else:
            part = {**config, "experiment": experiment.name}
            alone += [(number, {**part, "only-clients": number}) for number in numbers]
    return [
        (clients, {**config, "experiment": ", ".join(names)})
        for clients, names in together.items()
    ] + alone


if __name__ == "__main__":
    sys.exit(main())
