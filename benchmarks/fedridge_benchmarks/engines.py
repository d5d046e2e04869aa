"""Statistics from engines against reading all: ``make bench-engines``.

Every measurement is a process of its own, so that its peak of memory is its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from fedridge_flwr import SufficientStatistics
from fedridge_flwr.app.machine import versions

from .machine import facts, peak_memory
from .measure import Ratio, against
from .report import Results, table

__all__ = ["engines", "main", "write_files"]

ROWS, FEATURES, FILES = 4_000_000, 31, 4
_ALL, _CLIENT = "pandas", "client app"
_STREAMS = ("duckdb", "polars", "pyarrow")
_TARGET = "y"


def main(arguments: list[str] | None = None) -> int:
    """Print and write the table; return 1 if a limit is exceeded, else 0."""
    parser = argparse.ArgumentParser(prog="python -m fedridge_benchmarks.engines")
    parser.add_argument("--output-dir", type=Path)
    parser.add_argument("--measure", nargs=2, metavar=("WAY", "FOLDER"))
    options = parser.parse_args(arguments)
    if options.measure:
        way, folder = options.measure
        print(json.dumps(_measured(way, Path(folder))))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder), ROWS, FEATURES)
        found = {"engines": engines(Path(folder))}
    machine = facts()
    machine["versions"] |= versions(("duckdb", "polars", "pyarrow"))
    results = Results(found, {}, machine)
    results.write(options.output_dir.absolute())
    print(f"\n{table(results.ratios, results.machine)}")
    return 0 if all(ratio.holds for ratio in results.ratios) else 1


def write_files(folder: Path, rows: int, features: int) -> None:
    """Write rows of a linear model into Parquet files, some at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [*(f"x{j}" for j in range(features)), _TARGET]
    schema = pa.schema([(name, pa.float64()) for name in names])
    rng = np.random.default_rng(0)
    height = min(125_000, rows // FILES)
    for k in range(FILES):
        with pq.ParquetWriter(folder / f"{k}.parquet", schema) as writer:
            for _ in range(rows // FILES // height):
                X = rng.normal(size=(height, features))
                y = X.sum(axis=1) + rng.normal(size=height)
                writer.write_table(pa.table([*X.T, y], schema=schema))


def engines(folder: Path, repeats: int = 3) -> list[Ratio]:
    """Return times against reading all, peaks of memory, and distances."""
    best: dict[str, Any] = {}
    for _ in range(repeats):  # in turn, so that all see the same machine
        for way in (_ALL, *_STREAMS, _CLIENT):
            found = _in_own_process(way, folder)
            known = best.setdefault(way, found)
            known["seconds"] = min(known["seconds"], found["seconds"])
            known["peak"] = max(known["peak"], found["peak"])
    size = f"{ROWS / 1e6:.0f} million x {FEATURES + 1}"
    ratios = []
    for way in _STREAMS:
        ratios += [
            Ratio(
                f"pandas and from_data against from_arrow from {way}, {size}",
                best[_ALL]["seconds"] / best[way]["seconds"],
                2.0,
                at_least=True,
                detail=against(best[_ALL]["seconds"], best[way]["seconds"]),
            ),
            _peak(f"peak memory of from_arrow from {way}", best, way, 800.0),
            Ratio(
                f"distance of its statistics from those of from_data, {way}",
                _distance(best[way], best[_ALL]),
                1e-13,
                unit="relative",
            ),
        ]
    told = "peak memory of a ClientApp with a query of duckdb"
    return [
        *ratios,
        _peak(told, best, _CLIENT, 1000.0),
        Ratio(
            "distance of what it sends from the statistics of from_data",
            _distance(best[_CLIENT], best[_ALL]),
            1e-12,
            unit="relative",
        ),
    ]


def _peak(what: str, best: Mapping[str, Any], way: str, limit: float) -> Ratio:
    behind = f"{best[_ALL]['peak']:.0f} MB when all is read, rows are "
    behind += f"{ROWS * (FEATURES + 1) * 8e-6:.0f} MB"
    return Ratio(what, best[way]["peak"], limit, detail=behind, unit="MB")


def _distance(found: Mapping[str, Any], expected: Mapping[str, Any]) -> float:
    """Return the largest distance, of means in deviations, of moments in variances."""
    ours, theirs = (
        SufficientStatistics.from_array(np.array(each["statistics"]), FEATURES)
        for each in (found, expected)
    )
    scale = np.sqrt(np.diagonal(theirs.comoment) / theirs.total_weight)
    means = np.abs(ours.means - theirs.means) / scale
    moments = np.abs(ours.comoment - theirs.comoment) / np.outer(scale, scale)
    return float(max(means.max(), moments.max() / theirs.total_weight))


def _in_own_process(way: str, folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", __spec__.name, "--measure", way, str(folder)]
    ended = subprocess.run(  # noqa: S603 - this interpreter and module, no shell
        command, capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def _measured(way: str, folder: Path) -> dict[str, Any]:
    run = _WAYS[way]
    began = perf_counter()
    stats = run(folder)
    took = perf_counter() - began
    return {
        "seconds": took,
        "peak": peak_memory(),
        "statistics": stats.to_array().tolist(),
    }


def _from_pandas(folder: Path) -> SufficientStatistics:
    import pandas as pd

    frame = pd.read_parquet(folder)
    return SufficientStatistics.from_data(frame.drop(columns=_TARGET), frame[_TARGET])


def _query(folder: Path) -> Any:
    import duckdb

    connection = duckdb.connect(config={"memory_limit": "500MB"})
    return connection.read_parquet(str(folder / "*.parquet"))


def _from_duckdb(folder: Path) -> SufficientStatistics:
    return SufficientStatistics.from_arrow(_query(folder), _TARGET)


def _from_polars(folder: Path) -> SufficientStatistics:
    import polars as pl

    return SufficientStatistics.from_arrow(pl.scan_parquet(folder), _TARGET)


def _from_pyarrow(folder: Path) -> SufficientStatistics:
    import pyarrow.dataset

    return SufficientStatistics.from_arrow(pyarrow.dataset.dataset(folder), _TARGET)


def _from_client_app(folder: Path) -> SufficientStatistics:
    """Return what a ClientApp sends that has a query, through a message."""
    from flwr.app import Context, Message, RecordDict
    from flwr.supercore.task_identity import TaskIdentity

    from fedridge_flwr import ridge_client_app
    from fedridge_flwr.federation.requests import AskStatistics
    from fedridge_flwr.flower.protocol.answer_records import read_answer
    from fedridge_flwr.flower.protocol.request_records import (
        request_content,
        request_parts,
    )

    TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1
    app = ridge_client_app(lambda context: (_query(folder), _TARGET))
    asked = AskStatistics()
    message = Message(
        request_content(*request_parts(asked)), dst_node_id=1, message_type="train"
    )
    context = Context(1, 1, {}, RecordDict(), {}, 1)
    found: SufficientStatistics = read_answer(app(message, context).content, asked)
    return found


_WAYS: dict[str, Callable[[Path], SufficientStatistics]] = {
    _ALL: _from_pandas,
    "duckdb": _from_duckdb,
    "polars": _from_polars,
    "pyarrow": _from_pyarrow,
    _CLIENT: _from_client_app,
}


if __name__ == "__main__":
    sys.exit(main())
