"""What a round would cost beyond one machine, by arithmetic from what was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedridge_flwr.statistics import packed_length
from fedridge_flwr.words import human_bytes, text_table

from .curves import exponent

__all__ = ["Costs", "costs_of", "table"]

_CASES = ((10_000, 100), (1_000_000, 100), (1_000_000, 1000), (1_000_000, 10_000))
_GIGABIT = 125e6
# An 80-bit fixed-point number travels as four numbers of 32 bits.
_SECURE_BYTES = 16


@dataclass(frozen=True)
class Costs:
    """Measured costs, in seconds.

    Attributes
    ----------
    message : float
        Of Flower's simulator for one client, without our work.
    answer : float
        Of checking and folding one answer of `answer_features` features.
    answer_power : float
        The exponent with which that grows in features.
    solve : float
        Of solving for `solve_features` features; it grows with their cube.
    """

    message: float
    answer: float
    answer_features: int
    answer_power: float
    solve: float
    solve_features: int

    def fold_seconds(self, clients: int, features: int) -> float:
        """Return the time one server folds this many answers in, one after another."""
        growth: float = (features / self.answer_features) ** self.answer_power
        return clients * self.answer * growth

    def solve_seconds(self, features: int) -> float:
        """Return the time of the solution at the end."""
        return self.solve * (features / self.solve_features) ** 3


def costs_of(curves: Mapping[str, Any]) -> Costs:
    """Return the costs behind measured curves."""
    answers, clients, solve = curves["answers"], curves["clients"], curves["solve"]
    return Costs(
        message=clients["no-op"][-1] / clients["x"][-1],
        answer=answers["fold"][-1],
        answer_features=answers["x"][-1],
        answer_power=exponent(answers["x"], answers["fold"]),
        solve=solve["solve"][-1],
        solve_features=solve["x"][-1],
    )


def table(costs: Costs) -> str:
    """Return the arithmetic as a Markdown table.

    Examples
    --------
    >>> rows = table(Costs(5e-3, 1e-2, 1000, 2.0, 1.0, 4000)).splitlines()
    >>> [cell.strip() for cell in rows[2].split("|")[1:7]]
    ['10,000', '100', '42.02 kB', '420.2 MB', '3.4 s', '1.0 s']
    """
    heads = ["clients", "features", "upload", "all uploads", "over 1 Gbit/s"]
    heads += ["one server folds", "tree: servers", "tree folds", "solve", "secure sum"]
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
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{1000 * seconds:.1f} ms"
