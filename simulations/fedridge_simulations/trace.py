"""A `Trace`: how good a method is after every round, and what it cost until then."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from .cells import Cell, Outcome
from .cohort import Cohort
from .problem import Array, centralized, pooled_rows

__all__ = ["Trace"]

_MARK_EVERY = 10


class Trace:
    """Test error and distance after every round, off the clock."""

    def __init__(self, cell: Cell, cohort: Cohort | None) -> None:
        self._rows, self._oracle = pooled_rows(cell.problem), centralized(cell.problem)
        self._cohort = cohort
        self.mse: list[float] = []
        self.distance: list[float] = []
        self.marks: dict[int, list[float]] = {}
        self._paused = 0.0
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Wall clock since the start, but for what was spent here."""
        return time.perf_counter() - self._began - self._paused

    def add(self, coef: Array) -> float:
        """Take the coefficients after one more round; return their test error."""
        paused = time.perf_counter()
        seconds = self.seconds
        with np.errstate(over="ignore", invalid="ignore"):
            gap = float(np.linalg.norm(coef - self._oracle))
        distance = gap / (float(np.linalg.norm(self._oracle)) or 1.0)
        self.distance.append(distance if np.isfinite(distance) else float("inf"))
        self.mse.append(self._rows.test_error(coef))
        rounds = len(self.mse)
        if rounds <= _MARK_EVERY or rounds % _MARK_EVERY == 0:
            up, down = self.bytes
            self.marks[rounds] = [round(seconds, 3), up, down]
        self._paused += time.perf_counter() - paused
        return self.mse[-1]

    def outcome(self, **facts: Any) -> Outcome:
        """Return everything as it is now."""
        seconds = self.seconds
        up, down = self.bytes
        return Outcome(
            test_mse=self.mse[-1],
            distance=self.distance[-1],
            seconds=seconds,
            bytes_up=up,
            bytes_down=down,
            mse_by_round=self.mse,
            distance_by_round=self.distance,
            marks=self.marks,
            facts=facts,
        )

    @property
    def bytes(self) -> tuple[int, int]:
        """Bytes up and down so far, of all clients."""
        if self._cohort is None:
            return 0, 0
        return self._cohort.bytes_up, self._cohort.bytes_down
