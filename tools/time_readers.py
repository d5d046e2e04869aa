"""Which library reads a site's table: seconds and memory of each.

    python tools/time_readers.py covtype.csv

writes a Parquet file of 4 million rows and 31 columns into a temporary folder, and
reads it and the CSV file, each reader in a process of its own, into blocks of float64.
The entries of the CSV file are read as text first, as they are written, because a
site's missing markers and levels are not what a library would infer. The result is
docs/results/readers.json, which `make readme` makes a table of. DuckDB is needed beside
the development environment.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results" / "readers.json"
ROWS, COLUMNS, BATCH = 4_000_000, 31, 65_536
Blocks = Iterator[Any]


_memory = np.empty((64, BATCH))


def block(columns: Iterable[Any]) -> Any:
    """Return columns as rows of one block, in memory that is used again."""
    for j, column in enumerate(columns):
        _memory[j, : len(column)] = column
    return _memory[: j + 1, : len(column)].T


def ours(path: Path) -> Blocks:
    from fedridge_flwr.data.sources import TableFile

    for batch in TableFile(path).batches():
        yield block(batch.numbers(name) for name in batch)


def by_pyarrow(path: Path) -> Blocks:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    if path.suffix == ".parquet":
        for batch in pa.parquet.ParquetFile(path, pre_buffer=False).iter_batches(BATCH):
            yield block(array.to_numpy() for array in batch.columns)
        return
    with path.open(encoding="utf-8") as file:
        names = file.readline().strip().split(",")
    convert = pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    for batch in pa.csv.open_csv(path, convert_options=convert):
        columns = [array.cast(pa.float64()) for array in batch.columns]
        yield block(array.to_numpy() for array in columns)


def by_polars(path: Path) -> Blocks:
    import polars as pl

    frame = (
        pl.scan_parquet(path)
        if path.suffix == ".parquet"
        else pl.scan_csv(path, infer_schema=False)
    )
    for batch in frame.collect_batches(chunk_size=BATCH):
        yield batch.cast(pl.Float64).to_numpy()


def by_duckdb(path: Path) -> Blocks:
    import duckdb
    import pyarrow as pa

    parquet = path.suffix == ".parquet"
    source = f"'{path}'" if parquet else f"read_csv('{path}', all_varchar=true)"
    connection = duckdb.connect()
    connection.execute("set threads=2; set preserve_insertion_order=true")
    for batch in connection.sql(f"from {source}").to_arrow_reader(BATCH):
        columns = [array.cast(pa.float64()) for array in batch.columns]
        yield block(array.to_numpy() for array in columns)


def at_once(path: Path) -> Blocks:
    import pandas as pd

    parquet = path.suffix == ".parquet"
    frame = pd.read_parquet(path) if parquet else pd.read_csv(path, dtype=str)
    yield frame.astype(float).to_numpy()


READERS: dict[str, Callable[[Path], Blocks]] = {
    "TableFile": ours,
    "pyarrow": by_pyarrow,
    "polars": by_polars,
    "duckdb": by_duckdb,
    "pandas, at once": at_once,
}


_ARROW = ("pyarrow.compute", "pyarrow.csv", "pyarrow.parquet")
MODULES = {
    "TableFile": ("fedridge_flwr.data.sources", *_ARROW),
    "pyarrow": _ARROW,
    "polars": ("polars",),
    "duckdb": ("duckdb", "pyarrow"),
    "pandas, at once": ("pandas", "pyarrow.parquet"),
}


def read(reader: str, path: Path) -> dict[str, Any]:
    """Add up all columns, and return what that took; run in a process of its own."""
    for module in MODULES[reader]:
        import_module(module)
    began, before = time.perf_counter(), time.process_time()
    total: Any = 0.0
    rows = 0
    for block in READERS[reader](path):
        total = total + block.sum(axis=0)
        rows += len(block)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "reader": reader,
        "seconds": round(time.perf_counter() - began, 2),
        "cpu_seconds": round(time.process_time() - before, 2),
        "peak_mb": round(used.ru_maxrss / 1024),
        "rows": rows,
        "sum": float(np.sum(total)),
    }


def write_parquet(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    rng = np.random.default_rng(0)
    names = [f"x{j}" for j in range(COLUMNS)]
    schema = pa.schema([(name, pa.float64()) for name in names])
    with pa.parquet.ParquetWriter(path, schema) as writer:
        for _ in range(0, ROWS, 250_000):
            block = rng.normal(size=(COLUMNS, 250_000))
            writer.write_table(pa.table(list(block), schema=schema))


def measure(path: Path, times: int) -> list[dict[str, Any]]:
    """Return the best of several runs of every reader."""
    found = []
    for reader in READERS:
        runs = []
        for _ in range(times):
            command = [sys.executable, __file__, str(path), "--reader", reader]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            runs.append(json.loads(done.stdout))
        found.append(min(runs, key=lambda run: run["cpu_seconds"]))
        print(found[-1], flush=True)
    assert len({run["rows"] for run in found}) == 1  # noqa: S101
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path, help="a CSV file of numbers, not compressed")
    parser.add_argument("--reader", choices=READERS, help="only this one, here")
    parser.add_argument("--times", type=int, default=3)
    given = parser.parse_args()
    if given.reader:
        print(json.dumps(read(given.reader, given.path)))
        return
    with tempfile.TemporaryDirectory() as folder:
        parquet = Path(folder) / "rows.parquet"
        write_parquet(parquet)
        found = {
            "versions": {
                name: version(name) for name in ("pyarrow", "polars", "duckdb")
            },
            "Parquet, 4,000,000 x 31": measure(parquet, given.times),
            f"CSV, {given.path.name}": measure(given.path, given.times),
        }
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
