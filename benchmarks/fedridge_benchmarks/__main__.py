"""Measure everything, or some of it: ``python -m fedridge_benchmarks``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from time import perf_counter

from fedridge_flwr.errors import FedRidgeError

from . import kernels, simulated
from .curves import client_curve, draw, row_curves
from .ledgers import ledger_files, ledger_rounds
from .machine import facts
from .measure import Ratio
from .replies import many, replies
from .report import Results, table
from .selection import selection
from .simulated import Simulator
from .solvers import solvers
from .wide import wide

__all__ = ["main"]

Benchmark = Callable[[], list[Ratio]]
_COVTYPE = (
    Path(__file__).resolve().parents[3] / "shared" / "data" / "covtype/covtype.csv.xz"
)
_CURVES = "curves"
_LONG = ("solvers", "wide", "files", "memory", "fedavg-500", "crowd")
_CLIENTS = (20, 50, 100, 200, 500, 1000, 2000)


def main(arguments: list[str] | None = None) -> int:
    """Print and write the table; return 1 if a limit is exceeded, else 0."""
    parser = argparse.ArgumentParser(prog="python -m fedridge_benchmarks")
    parser.add_argument("--full", action="store_true", help="also what takes minutes")
    parser.add_argument("--only", default="", help="as in merging,rounds")
    parser.add_argument("--verbose", action="store_true", help="show Flower's log")
    parser.add_argument("--output-dir", type=Path, required=True)
    options = parser.parse_args(arguments)
    folder = options.output_dir.absolute()
    try:
        with simulated.simulator(echo=options.verbose) as simulation:
            known = _benchmarks(simulation)
            chosen = _choose(known, options.only, full=options.full)
            results = _known_results(folder) if options.only else Results()
            results.machine = facts()
            for name in (each for each in chosen if each != _CURVES):
                _measure(name, known[name], results, list(known))
                results.write(folder)
            if _CURVES in chosen:
                print("measuring curves ...", flush=True)
                results.curves |= row_curves()
                if options.full:
                    results.curves["clients"] = client_curve(simulation, _CLIENTS)
                results.write(folder)
    except FedRidgeError as error:
        print(f"fedridge_benchmarks: {error}", file=sys.stderr)
        return 1
    if results.curves:
        draw(results.curves, folder / "curves.png")
    print(f"\n{table(results.ratios, results.machine)}\nresults in {folder}")
    if not all(ratio.holds for ratio in results.ratios):
        print("a number is on the wrong side of its limit.", file=sys.stderr)
        return 1
    return 0


def _known_results(folder: Path) -> Results:
    """Return what stays when only some benchmarks are measured anew."""
    known = Results.read(folder)
    if known.machine and known.machine != facts():
        raise FedRidgeError(
            f"the results in {folder} are of another machine or other versions: "
            "measure all of them anew, without --only."
        )
    return known


def _benchmarks(simulation: Simulator) -> dict[str, Benchmark]:
    known: dict[str, Benchmark] = {
        "from-rows": kernels.from_rows,
        "merging": kernels.merging,
        "fixed-point": kernels.fixed_point,
        "replies": replies,
        "many": many,
        "solving": kernels.solving,
        "solvers": solvers,
        "alphas": kernels.alphas,
        "selection": selection,
        "rounds": partial(simulated.rounds, simulation),
        "secure": partial(simulated.secure, simulation),
        "ledger": ledger_files,
        "ledger-rounds": partial(ledger_rounds, simulation),
        "fedavg": partial(simulated.fedavg, simulation, 20),
        _CURVES: list,
        "wide": wide,
        "files": partial(simulated.files, simulation, _COVTYPE),
        "memory": partial(simulated.memory, simulation),
        "fedavg-500": partial(simulated.fedavg, simulation, 500),
        "crowd": partial(simulated.crowd, simulation),
    }
    if not _COVTYPE.exists():
        print("covtype is not beside this checkout: its benchmark is left out.")
        del known["files"]
    return known


def _choose(known: Mapping[str, Benchmark], only: str, *, full: bool) -> list[str]:
    names = [name.strip() for name in only.split(",") if name.strip()]
    if not names:
        names = [name for name in known if full or name not in _LONG]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise FedRidgeError(
            f"no benchmark {', '.join(unknown)}; there are {', '.join(known)}."
        )
    return names


def _measure(name: str, run: Benchmark, results: Results, order: list[str]) -> None:
    print(f"measuring {name} ...", end=" ", flush=True)
    began = perf_counter()
    measured = results.benchmarks | {name: run()}
    results.benchmarks = {each: measured[each] for each in order if each in measured}
    print(f"{perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
