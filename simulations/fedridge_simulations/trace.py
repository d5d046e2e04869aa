"""How well a method does after every round, off its clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fedridge_flwr.flower.exchange import CountingGrid

from .cells import Cell, Outcome
from .cohort import Cohort
from .problem import Array, centralized, pooled_rows

__all__ = ["CoefficientTrace", "Trace"]

_MARK_EVERY = 10


class Trace:
    """Test error and distance after every round; judging stops the clock.

    Parameters
    ----------
    judge : callable
        From a model to its test error and its distance to the oracle.
    cohort : CountingGrid or None
        Where bytes are counted.
    """

    def __init__(
        self, judge: Callable[[Any], tuple[float, float]], cohort: CountingGrid | None
    ) -> None:
        self._judge, self._cohort = judge, cohort
        self.mse: list[float] = []
        self.distance: list[float] = []
        self.marks: dict[int, list[float]] = {}
        self._paused = 0.0
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds since the beginning, without those of judging."""
        return time.perf_counter() - self._began - self._paused

    def add(self, model: Any) -> float:
        """Judge the model of a round and return its test error."""
        paused = time.perf_counter()
        seconds = self.seconds
        mse, distance = self._judge(model)
        self.mse.append(mse)
        self.distance.append(distance)
        rounds = len(self.mse)
        if rounds <= _MARK_EVERY or rounds % _MARK_EVERY == 0:
            up, down = self.bytes
            self.marks[rounds] = [round(seconds, 3), up, down]
        self._paused += time.perf_counter() - paused
        return mse

    def outcome(self, **facts: Any) -> Outcome:
        """Return the outcome of a cell that has ended."""
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


class CoefficientTrace(Trace):
    """The same for coefficients on synthetic rows, whose oracle is known."""

    def __init__(self, cell: Cell, cohort: Cohort | None) -> None:
        rows, oracle = pooled_rows(cell.problem), centralized(cell.problem)
        length = float(np.linalg.norm(oracle)) or 1.0

        def judge(coef: Array) -> tuple[float, float]:
            with np.errstate(over="ignore", invalid="ignore"):
                distance = float(np.linalg.norm(coef - oracle)) / length
            if not np.isfinite(distance):
                distance = float("inf")
            return rows.test_error(coef), distance

        super().__init__(judge, cohort)
