"""What a round would cost beyond one machine, by arithmetic from what was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedridge_flwr._text import human_bytes, text_table
from fedridge_flwr.linalg.packed import packed_length

__all__ = ["Costs", "costs_of", "table"]

_CASES = ((10_000, 100), (1_000_000, 100), (1_000_000, 1000), (1_000_000, 10_000))
_GIGABIT = 125e6
_SECURE_BYTES = 24
_UNITS = {"years": 31_557_600.0, "d": 86_400.0, "h": 3600.0, "min": 60.0, "s": 1.0}


@dataclass(frozen=True)
class Costs:
    """Measured costs.

    Attributes
    ----------
    answers : sequence of (features, seconds)
        Of checking and folding one answer.
    solve : sequence of (features, seconds)
        Of the solution at the end.
    """

    answers: Sequence[tuple[int, float]]
    solve: Sequence[tuple[int, float]]

    def fold_seconds(self, clients: int, features: int) -> float:
        """Return the time one core folds this many answers in, one after another."""
        return clients * _seconds_at(features, self.answers)

    def solve_seconds(self, features: int) -> float:
        """Return the time of the solution at the end, on all cores."""
        return _seconds_at(features, self.solve)


def costs_of(curves: Mapping[str, Any]) -> Costs:
    """Return the costs behind measured curves."""
    answers, solve = curves["answers"], curves["solve"]
    return Costs(
        answers=list(zip(answers["x"], answers["fold"], strict=True)),
        solve=list(zip(solve["x"], solve["solve"], strict=True)),
    )


def _seconds_at(features: int, measured: Sequence[tuple[int, float]]) -> float:
    """Return what was measured, by a power law in between, and by the cube beyond.

    The cube is the order of a Cholesky factorisation. Below the smallest width the
    time is that of the smallest.
    """
    widths, seconds = zip(*measured, strict=True)
    if features > widths[-1]:
        return float(seconds[-1] * (features / widths[-1]) ** 3)
    return math.exp(np.interp(np.log(features), np.log(widths), np.log(seconds)))


def table(costs: Costs) -> str:
    """Return the arithmetic as a Markdown table.

    Examples
    --------
    >>> costs = Costs([(10, 1e-5), (1000, 1e-1)], [(4000, 1.0)])
    >>> rows = table(costs).splitlines()
    >>> [cell.strip() for cell in rows[2].split("|")[1:7]]
    ['10,000', '100', '42.02 kB', '420.2 MB', '3.4 s', '10.0 s']
    """
    heads = ["clients", "features", "upload", "all uploads", "over 1 Gbit/s"]
    heads += ["one server adds", "tree: servers", "tree adds", "solve", "secure sum"]
    rows = []
    for clients, features in _CASES:
        numbers = packed_length(features, 1)
        fan_in = math.isqrt(clients)
        rows.append(
            [
                f"{clients:,}",
                f"{features:,}",
                human_bytes(8 * numbers),
                human_bytes(8 * numbers * clients),
                _time(8 * numbers * clients / _GIGABIT),
                _time(costs.fold_seconds(clients, features)),
                f"{fan_in:,}",
                _time(2 * costs.fold_seconds(fan_in, features)),
                _time(costs.solve_seconds(features)),
                human_bytes(_SECURE_BYTES * numbers),
            ]
        )
    return text_table(heads, rows, text_columns=0)


def _time(seconds: float) -> str:
    for unit, size in (
        ("years", 31557600.0),
        ("d", 86400.0),
        ("h", 3600.0),
        ("min", 60.0),
        ("s", 1.0),
    ):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{1000 * seconds:.1f} ms"
