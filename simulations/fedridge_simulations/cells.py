"""Cells: one method on one problem; what is known of them survives in results.json."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fedridge_flwr.errors import FedRidgeError

from .method import Method
from .problem import Problem

__all__ = ["Cell", "Outcome", "Store", "alone", "load_outcomes"]


@dataclass(frozen=True)
class Cell:
    """One method on one problem: the unit of work that is never done twice."""

    problem: Problem
    method: Method

    @property
    def messages(self) -> int:
        """Requests to clients that the cell costs: its size, for estimates."""
        asked = self.method.sampled or self.problem.clients
        return (self.method.rounds + 2) * asked

    def key(self) -> str:
        """Return what makes two cells the same, but for rounds that can be read off.

        Noise and a tuned step are made for a number of rounds: there it counts, as it
        does where it is a limit.
        """
        method = self.method
        if not (method.epsilon or method.tuned or method.tol):
            method = replace(method, rounds=0)
        return json.dumps([self.problem.to_json(), method.to_json()], sort_keys=True)


@dataclass
class Outcome:
    """What one cell gave.

    Parameters
    ----------
    test_mse : float
        Mean squared error of the final model on all test rows; infinite if diverged.
    distance : float
        Relative distance of the coefficients to the centralized solution.
    seconds : float
        Wall clock, evaluation on the server and warm-up excluded.
    bytes_up, bytes_down : int
        Serialized messages of all clients together.
    mse_by_round, distance_by_round : list of float
        The same after every round.
    marks : dict
        Rounds at which (seconds, bytes up, bytes down) are known.
    facts : dict
        Anything else worth keeping.
    """

    test_mse: float
    distance: float
    seconds: float
    bytes_up: int = 0
    bytes_down: int = 0
    mse_by_round: list[float] = field(default_factory=list)
    distance_by_round: list[float] = field(default_factory=list)
    marks: dict[int, list[float]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def after(self, rounds: int) -> Outcome | None:
        """Return what it was after fewer rounds, if that was recorded.

        What has no rounds to look into is itself.
        """
        if rounds == len(self.mse_by_round) or not self.mse_by_round:
            return self
        if rounds not in self.marks or rounds > len(self.mse_by_round):
            return None
        seconds, up, down = self.marks[rounds]
        return replace(
            self,
            test_mse=self.mse_by_round[rounds - 1],
            distance=self.distance_by_round[rounds - 1],
            seconds=seconds,
            bytes_up=int(up),
            bytes_down=int(down),
            mse_by_round=self.mse_by_round[:rounds],
            distance_by_round=self.distance_by_round[:rounds],
            marks={r: mark for r, mark in self.marks.items() if r <= rounds},
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values; infinite ones as null."""
        return dict(_finite(asdict(self)))

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Outcome:
        """Read what `to_json` wrote."""

        def number(value: float | None) -> float:
            return math.inf if value is None else value

        return cls(
            test_mse=number(values["test_mse"]),
            distance=number(values["distance"]),
            seconds=values["seconds"],
            bytes_up=values["bytes_up"],
            bytes_down=values["bytes_down"],
            mse_by_round=[number(v) for v in values["mse_by_round"]],
            distance_by_round=[number(v) for v in values["distance_by_round"]],
            marks={int(r): mark for r, mark in values["marks"].items()},
            facts=values["facts"],
        )


class Store:
    """Outcomes by cell, in the results.json of one experiment and its siblings.

    A cell that any experiment in the same output folder finished is found by all.

    Parameters
    ----------
    folder : Path or None
        Folder of the experiment; None keeps nothing on disk.
    """

    def __init__(self, folder: Path | None) -> None:
        self._file = None if folder is None else folder / "results.json"
        self._known: dict[str, list[Outcome]] = {}
        self._own: list[Cell] = []
        if folder is None:
            return
        for file in sorted(folder.parent.glob("*/results.json")):
            for cell, outcome in load_outcomes(file):
                self.add(cell, outcome)
                if file == self._file:
                    self._own.append(cell)

    def find(self, cell: Cell) -> Outcome | None:
        """Return the outcome of a cell, read off a longer run where there is one."""
        for outcome in self._known.get(cell.key(), []):
            found = outcome.after(cell.method.rounds)
            if found is not None:
                return found
        return None

    def add(self, cell: Cell, outcome: Outcome) -> None:
        """Remember an outcome, as long as this object lives."""
        self._known.setdefault(cell.key(), []).append(outcome)

    def save(self, cells: Iterable[Cell], about: Mapping[str, Any]) -> None:
        """Write the outcomes of these cells, as far as they are known, to the file.

        Cells that other settings of the experiment left there stay.
        """
        if self._file is None:
            return
        entries = []
        for cell in dict.fromkeys([*cells, *self._own]):
            outcome = self.find(cell)
            if outcome is not None:
                entries.append(
                    {
                        "problem": cell.problem.to_json(),
                        "method": cell.method.to_json(),
                        "outcome": outcome.to_json(),
                    }
                )
        self._file.parent.mkdir(parents=True, exist_ok=True)
        lines = ",\n".join(json.dumps(entry, allow_nan=False) for entry in entries)
        head = json.dumps(dict(about), indent=1, allow_nan=False, default=str)
        text = f'{head[:-2]},\n "cells": [\n{lines}\n]}}\n'
        beside = self._file.with_suffix(".json.tmp")
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, self._file)


@contextlib.contextmanager
def alone(folder: Path | None) -> Iterator[None]:
    """Keep a second run out of an experiment's folder: each would lose the other's."""
    if folder is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise FedRidgeError(
                f"another run is working in {folder}: wait for it, or choose another "
                "output-dir."
            ) from None
        yield


def load_outcomes(file: Path) -> list[tuple[Cell, Outcome]]:
    """Return the cells of a results.json."""
    content = json.loads(file.read_text(encoding="utf-8"))
    return [
        (
            Cell(Problem(**entry["problem"]), Method(**entry["method"])),
            Outcome.from_json(entry["outcome"]),
        )
        for entry in content["cells"]
    ]


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(v) for key, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return float(f"{value:.7g}")
    return value
