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
from .machine import facts
from .measure import Ratio
from .report import Results, table
from .selection import selection
from .simulated import Simulator

__all__ = ["main"]

Benchmark = Callable[[], list[Ratio]]
_COVTYPE = (
    Path(__file__).resolve().parents[3] / "shared" / "data" / "covtype/covtype.csv.xz"
)
_CURVES = "curves"
_CLIENTS = (20, 50, 100, 200, 500, 1000, 2000)


def main(arguments: list[str] | None = None) -> int:
    """Print and write the table; return 1 if a limit is exceeded, else 0."""
    parser = argparse.ArgumentParser(prog="python -m fedridge_benchmarks")
    parser.add_argument("--full", action="store_true", help="also what takes minutes")
    parser.add_argument("--only", default="", help="names with commas; 'list' to see")
    parser.add_argument("--verbose", action="store_true", help="show Flower's log")
    parser.add_argument("--output-dir", type=Path, required=True)
    options = parser.parse_args(arguments)
    folder = options.output_dir.absolute()
    try:
        with simulated.simulator(echo=options.verbose) as simulation:
            known = _benchmarks(simulation, full=options.full)
            chosen = _choose(known, options.only)
            # Some of them are measured anew; what is known of the others stays.
            results = Results.read(folder) if options.only else Results()
            results.benchmarks |= _measure(chosen)
            if _CURVES in chosen:
                results.curves = row_curves()
                if options.full:
                    results.curves["clients"] = client_curve(simulation, _CLIENTS)
    except FedRidgeError as error:
        print(f"fedridge_benchmarks: {error}", file=sys.stderr)
        return 1
    results.machine = facts()
    measured = results.benchmarks
    results.benchmarks = {name: measured[name] for name in known if name in measured}
    results.write(folder)
    if results.curves:
        draw(results.curves, folder / "curves.png")
    print(f"\n{table(results.ratios, results.machine)}\nresults in {folder}")
    if not all(ratio.holds for ratio in results.ratios):
        print("a number is on the wrong side of its limit.", file=sys.stderr)
        return 1
    return 0


def _benchmarks(simulation: Simulator, *, full: bool) -> dict[str, Benchmark]:
    quick: dict[str, Benchmark] = {
        "from-rows": kernels.from_rows,
        "merging": kernels.merging,
        "solving": kernels.solving,
        "alphas": kernels.alphas,
        "selection": selection,
        "rounds": partial(simulated.rounds, simulation),
        "fedavg": partial(simulated.fedavg, simulation, 20),
        _CURVES: list,
    }
    if _COVTYPE.exists():
        quick["files"] = partial(simulated.files, simulation, _COVTYPE)
    else:
        print("covtype is not beside this checkout: its benchmark is left out.")
    if not full:
        return quick
    return quick | {
        "memory": partial(simulated.memory, simulation),
        "fedavg-500": partial(simulated.fedavg, simulation, 500),
        "crowd": partial(simulated.crowd, simulation),
    }


def _choose(known: Mapping[str, Benchmark], only: str) -> dict[str, Benchmark]:
    names = [name.strip() for name in only.split(",") if name.strip()] or list(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise FedRidgeError(
            f"no benchmark {', '.join(unknown)}; there are {', '.join(known)}."
        )
    return {name: known[name] for name in names}


def _measure(chosen: Mapping[str, Benchmark]) -> dict[str, list[Ratio]]:
    found = {}
    for name, run in chosen.items():
        print(f"measuring {name} ...", end=" ", flush=True)
        began = perf_counter()
        found[name] = run()
        print(f"{perf_counter() - began:.0f} s", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
