"""Benchmarks of the core: rows to statistics, merging, solving, many alphas."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg.lapack import dpotrf, dpotrs
from threadpoolctl import threadpool_limits

from fedridge_flwr import (
    FixedPointStatistics,
    SufficientStatistics,
    solve,
    solve_path,
)
from fedridge_flwr.statistics.moments import RunningTotal

from .machine import peak_memory, reset_peak_memory
from .measure import Ratio, against, race

__all__ = [
    "alphas",
    "extra_memory",
    "fixed_point",
    "from_rows",
    "merging",
    "solving",
]

Array = NDArray[np.float64]
_ROWS, _FEATURES = 400_000, 200
_SIZE = f"{_ROWS:,} x {_FEATURES}"
_from_data = SufficientStatistics.from_data


def from_rows() -> list[Ratio]:
    """Return the cost of statistics against the bare product, and of other inputs."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(_ROWS, _FEATURES)), rng.normal(size=_ROWS)
    with threadpool_limits(1, user_api="blas"):
        one_thread = _against_product(X, y, "one thread")
    memory = Ratio(
        f"extra memory of from_data, {_SIZE}",
        _extra_memory_elsewhere(),
        64.0,
        unit="MB",
        detail=f"beside {X.nbytes / 2**20:.0f} MB of rows",
    )
    return [
        _against_product(X, y, "all threads"),
        one_thread,
        memory,
        _single_precision(X, y),
        _sparse(X * (rng.random(X.shape) < 0.01), y),
    ]


def _against_product(X: Array, y: Array, threads: str) -> Ratio:
    ours, theirs = race(lambda: _from_data(X, y), lambda: X.T @ X, 9)
    return Ratio.of_times(
        f"from_data against X.T @ X, {_SIZE}, {threads}",
        ours,
        theirs,
        1.4,
    )


def _single_precision(X: Array, y: Array) -> Ratio:
    single = X.astype(np.float32)
    ours, theirs = race(lambda: _from_data(single, y), lambda: _from_data(X, y), 9)
    return Ratio.of_times(
        f"from_data of float32 against float64, {_SIZE}",
        ours,
        theirs,
        1.0,
    )


def _sparse(X: Array, y: Array) -> Ratio:
    few = sparse.csr_array(X)
    ours, theirs = race(lambda: _from_data(few, y), lambda: _from_data(X, y))
    return Ratio(
        f"from_data of dense rows against CSR, 1% filled, {_SIZE}",
        theirs / ours,
        5.0,
        at_least=True,
        detail=against(theirs, ours),
    )


def extra_memory() -> float:
    """Return by how many MB `from_data` raises the peak of this process."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(_ROWS, _FEATURES)), rng.normal(size=_ROWS)
    _from_data(X[:100], y[:100])
    reset_peak_memory()
    before = peak_memory()
    _from_data(X, y)
    return peak_memory() - before


def _extra_memory_elsewhere() -> float:
    """Return the same of a fresh process: memory once freed is used again unseen."""
    script = "from fedridge_benchmarks.kernels import extra_memory as e; print(e())"
    ended = subprocess.run(  # noqa: S603 - this interpreter, the line above, no shell
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return float(ended.stdout)


def merging(clients: int = 500, features: int = 500) -> list[Ratio]:
    """Return the cost of merging statistics against adding arrays of their size."""
    rng = np.random.default_rng(0)
    parts = []
    for _ in range(clients):
        X = rng.normal(size=(4, features)) + rng.normal()
        parts.append(_from_data(X, X.sum(axis=1)))
    packed = [part.to_array() for part in parts]

    def merge() -> None:
        total = RunningTotal(parts[0])
        for part in parts[1:]:
            total.add(part)
        total.total()

    def add() -> None:
        total = packed[0].copy()
        for array in packed[1:]:
            total += array

    ours, theirs = race(merge, add, 9)
    return [
        Ratio.of_times(
            f"merging {clients} statistics against adding their arrays, d={features}",
            ours,
            theirs,
            3.0,
        )
    ]


def fixed_point(rows: int = 500, features: int = 400) -> list[Ratio]:
    """Return the cost of whole numbers against the bare product in float64."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(rows, features)), rng.normal(size=rows)
    encode = FixedPointStatistics.from_data
    words, stats = encode(X, y).to_words(), encode(X, y)
    read = FixedPointStatistics.from_words
    steps = {
        "fixed-point encoding": (lambda: encode(X, y), 40.0),
        "checking fixed-point words": (lambda: read(words, rows, stats.schema), 40.0),
        "exact centring of fixed-point sums": (stats.to_sufficient, 100.0),
    }
    found = []
    with threadpool_limits(1, user_api="blas"):
        for what, (step, limit) in steps.items():
            ours, theirs = race(step, lambda: X.T @ X, 9)
            name = f"{what} against X.T @ X, {rows} x {features}, one thread"
            found.append(Ratio.of_times(name, ours, theirs, limit))
    return found


def solving(features: int = 4000) -> list[Ratio]:
    """Return the cost of `solve` against LAPACK's Cholesky factor and solution."""
    stats = _statistics(features)
    gram = stats.centred_gram

    def lapack() -> None:
        matrix = gram.copy()
        np.einsum("ii->i", matrix)[:] += 1.0
        factor, _ = dpotrf(matrix.T, lower=1, overwrite_a=1, clean=0)
        dpotrs(factor, stats.centred_moment, lower=1)

    ours, theirs = race(lambda: solve(stats, 1.0), lapack, 3)
    return [
        Ratio.of_times(
            f"solve against LAPACK's Cholesky, d={features}",
            ours,
            theirs,
            1.5,
        )
    ]


def alphas(features: int = 1000, number: int = 50) -> list[Ratio]:
    """Return the cost of a whole path of alphas against one eigendecomposition."""
    stats = _statistics(features)
    path = np.geomspace(1e-2, 1e4, number).tolist()
    ours, theirs = race(
        lambda: solve_path(stats, path), lambda: np.linalg.eigh(stats.centred_gram), 3
    )
    return [
        Ratio.of_times(
            f"path of {number} alphas against one eigendecomposition, d={features}",
            ours,
            theirs,
            3.0,
        )
    ]


def _statistics(features: int) -> SufficientStatistics:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2 * features, features))
    return _from_data(X, X.sum(axis=1) + rng.normal(size=len(X)))
