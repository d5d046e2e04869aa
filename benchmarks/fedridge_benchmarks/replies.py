"""What one answer costs the server: read, checked and added up."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from scipy.linalg.lapack import dpotrf

from fedridge_flwr import SufficientStatistics
from fedridge_flwr.federation.aggregate import Aggregate
from fedridge_flwr.federation.requests import Answer, AskStatistics
from fedridge_flwr.federation.settings import FitSettings
from fedridge_flwr.flower.protocol.answer_records import read_answer, reply_content
from fedridge_flwr.linalg.blas import one_blas_thread
from fedridge_flwr.statistics.encoding import encode

from .machine import peak_memory, reset_peak_memory
from .measure import Ratio, race

__all__ = ["many", "replies"]


def replies(clients: int = 200, features: int = 100) -> list[Ratio]:
    """Return the cost of an answer against a Cholesky factorisation of its size."""
    rng = np.random.default_rng(0)
    contents, matrices = [], []
    for _ in range(clients):
        X = rng.normal(size=(6 * features, features))
        stats = SufficientStatistics.from_data(X, X.sum(axis=1) + rng.normal())
        sent = encode(stats)
        answer = Answer(
            sent.kind, sent.arrays, sent.count, stats.schema, sent.means_low
        )
        contents.append(reply_content(answer, share_names=False))
        matrices.append(np.asfortranarray(stats.comoment + np.eye(features + 1)))

    def ours() -> None:
        total = Aggregate()
        for k, content in enumerate(contents):
            total.take(str(k), partial(read_answer, content, AskStatistics()))
        if len(total.participants) != clients:
            raise RuntimeError(f"not all answers are in: {total.failures}")

    def theirs() -> None:
        for matrix in matrices:
            dpotrf(matrix, lower=1, clean=0)

    with one_blas_thread():
        times = race(ours, theirs, 15)
    return [
        Ratio(
            f"one answer read, checked and added against Cholesky, d={features}",
            times[0] / times[1],
            6.0,
            detail=" against ".join(f"{1e6 * t / clients:.0f} us" for t in times),
        )
    ]


def many(number: int = 100_000, features: int = 20) -> list[Ratio]:
    """Return the cost of handing many small contributions to the aggregate."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, features))
    first = SufficientStatistics.from_data(X, X.sum(axis=1))
    parts = [
        replace(
            first, means=first.means + k, triangle=first.triangle * (1 + k / number)
        )
        for k in range(number)
    ]
    arrays, names = [part.to_array() for part in parts], [str(k) for k in range(number)]

    def ours() -> None:
        total = Aggregate(settings=FitSettings(screen="off"))
        for name, part in zip(names, parts, strict=True):
            total.add(name, part)
        if total.result().count != number * len(X):
            raise RuntimeError("not all contributions are in.")

    def theirs() -> None:
        total = np.zeros_like(arrays[0])
        for array in arrays:
            total += array

    reset_peak_memory()
    before = peak_memory()
    ours()
    grown = peak_memory() - before
    told = f"{number:,} contributions to the aggregate, d={features}"
    times = race(ours, theirs, 5)
    return [
        Ratio.of_times(f"{told}, against adding arrays", *times, 8.0),
        Ratio(f"{told}: growth of memory", grown, 100.0, unit="MB"),
    ]
