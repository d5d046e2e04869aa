"""Settings of an experiment: its own defaults, overridden by run-config."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NoReturn

from fedridge_flwr.errors import FedRidgeError

from .datasets import DATASETS
from .method import BOTH_READINGS, SCALED, UNSCALED, Method, stock_strategies
from .problem import Problem

__all__ = [
    "SIZES",
    "TOY",
    "Settings",
    "SettingsError",
    "only_clients",
    "output_folder",
    "override",
]

_HELD_OUT = 200
"""Seed of the first trial of private methods: refinement was tuned on seeds below."""

SIZES = ("paper", "quick", "toy")
_PENALTIES = {"scaled": SCALED, "unscaled": UNSCALED}
_TRIALS = ("trials", "iterative_trials", "private_trials", "beyond_trials")
_PROBLEM_FIELDS = (
    "clients",
    "rows",
    "features",
    "gamma",
    "alpha",
    "test_fraction",
    "missing",
    "features_seen",
    "spectrum",
)


class SettingsError(FedRidgeError):
    """A run-config value that cannot be used."""


@dataclass(frozen=True)
class Settings:
    """Everything a run-config can change; a tuple of several values is swept.

    The defaults are the paper's (section V-A), with `alpha` for its sigma. Methods that
    are really private, and what goes beyond the paper's table of projections, run only
    where they have trials.
    """

    trials: int = 5
    iterative_trials: int = 5
    private_trials: int = 0
    beyond_trials: int = 0
    seed: int = 0
    methods: tuple[str, ...] = ("FedAvg", "FedProx")
    penalty: tuple[str, ...] = BOTH_READINGS
    clients: tuple[int, ...] = (20,)
    rows: tuple[int, ...] = (500,)
    features: tuple[int, ...] = (100,)
    gamma: tuple[float, ...] = (0.5,)
    alpha: tuple[float, ...] = (0.01,)
    test_fraction: tuple[float, ...] = (0.2,)
    missing: tuple[float, ...] = (0.0,)
    features_seen: tuple[int, ...] = (0,)
    spectrum: tuple[float, ...] = (0.0,)
    rounds: tuple[int, ...] = (200,)
    learning_rate: tuple[float, ...] = (0.01,)
    local_epochs: tuple[int, ...] = (5,)
    batch_size: tuple[int, ...] = (32,)
    proximal_mu: tuple[float, ...] = (0.01,)
    sampled: tuple[int, ...] = (10,)
    epsilon: tuple[float, ...] = (1.0,)
    delta: tuple[float, ...] = (1e-5,)
    projection: tuple[int, ...] = (0,)
    datasets: tuple[str, ...] = ()
    random_features: tuple[int, ...] = (500, 1000)

    def one(self, name: str) -> Any:
        """Return the value of a setting that is not swept here."""
        values = getattr(self, name)
        if len(values) != 1:
            raise SettingsError(
                f"run-config {_key(name)} takes one value in this experiment, got "
                f"{', '.join(map(str, values))}."
            )
        return values[0]

    def problem(self, trial: int, **axis: Any) -> Problem:
        """Return the problem of one trial, at one point of what is swept."""
        values = {
            name: axis[name] if name in axis else self.one(name)
            for name in _PROBLEM_FIELDS
        }
        for name in ("rotated", "dataset"):
            if name in axis:
                values[name] = axis[name]
        problem = Problem(seed=self.seed + trial, **values)
        _check_problem(problem)
        return problem

    def private_problem(self, trial: int, **axis: Any) -> Problem:
        """Return the problem of one trial of private methods."""
        return self.problem(_HELD_OUT + trial, **axis)

    def iterative(self, name: str, penalty: str, rounds: int, **other: Any) -> Method:
        """Return one of Flower's strategies with these settings of local training."""
        return Method(
            name,
            rounds=rounds,
            learning_rate=0.0 if other.get("tuned") else self.one("learning_rate"),
            local_epochs=self.one("local_epochs"),
            proximal_mu=self.one("proximal_mu") if name == "FedProx" else 0.0,
            penalty=penalty,
            **other,
        )

    def iteratives(self, rounds: int) -> list[Method]:
        """Return every iterative method in every reading of the penalty."""
        return [
            self.iterative(name, penalty, rounds)
            for name in self.methods
            for penalty in self.penalty
        ]


TOY = Settings(
    trials=2,
    iterative_trials=1,
    clients=(4,),
    rows=(60,),
    features=(6,),
    rounds=(3,),
)
"""Settings that run in seconds, for tests."""


def _check_problem(problem: Problem) -> None:
    if not 1 <= problem.test_rows <= problem.rows - 2:
        raise SettingsError(
            f"{problem.rows} rows with a test-fraction of {problem.test_fraction:g} "
            f"leave {problem.test_rows} test and {problem.rows - problem.test_rows} "
            "training rows of each client: at least 1 and 2 are needed."
        )
    if problem.features_seen > problem.features:
        raise SettingsError(
            f"run-config features-seen must be at most features ({problem.features}), "
            f"got {problem.features_seen}."
        )


def override(defaults: Settings, run_config: Mapping[str, Any]) -> Settings:
    """Return the defaults with what the run-config sets; "" and 0 trials mean default.

    Raises
    ------
    SettingsError
        If a value has the wrong type or is out of range; the message says what fits.
    """
    changes: dict[str, Any] = {}
    for field in fields(Settings):
        key = _key(field.name)
        value = run_config.get(key, "")
        if value == "" and not isinstance(value, bool):
            continue
        if field.name in (*_TRIALS, "seed"):
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole or value < 0:
                _refuse(key, "a whole number of at least 0 (0: the default)", value)
            if value or field.name == "seed":
                changes[field.name] = value
        elif field.name in ("methods", "penalty", "datasets"):
            changes[field.name] = _names(key, value)
        else:
            changes[field.name] = _numbers(key, value, getattr(defaults, field.name))
    for name in _TRIALS[1:]:
        if "trials" in changes and name not in changes:
            changes[name] = min(changes["trials"], getattr(defaults, name))
    return replace(defaults, **changes)


def output_folder(run_config: Mapping[str, Any]) -> str:
    """Return the absolute output-dir, or "" for none."""
    folder = run_config.get("output-dir", "")
    if not isinstance(folder, str) or (folder and not os.path.isabs(folder)):
        _refuse(
            "output-dir",
            "an absolute path (a ServerApp's working directory is that of the "
            "SuperLink)",
            folder,
        )
    return str(folder)


def only_clients(run_config: Mapping[str, Any]) -> int:
    """Return the number of clients whose cells alone are to be run, 0 for all."""
    value = run_config.get("only-clients", 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        _refuse("only-clients", "a whole number of at least 0 (0: all)", value)
    return int(value)


def _key(name: str) -> str:
    return name.replace("_", "-")


def _names(key: str, value: Any) -> tuple[str, ...]:
    valid = {
        "methods": stock_strategies(),
        "penalty": list(_PENALTIES),
        "datasets": list(DATASETS),
    }[key]
    names = (
        [part.strip() for part in value.split(",")] if isinstance(value, str) else []
    )
    if not names or not set(names) <= set(valid):
        _refuse(key, f"one or more of {', '.join(valid)}, separated by commas", value)
    return tuple(_PENALTIES.get(name, name) for name in names)


# Smallest value, and what the values must stay below.
_RANGES: dict[str, tuple[float, float]] = {
    "clients": (1, 1e6),
    "rows": (2, 1e9),
    "features": (1, 1e6),
    "rounds": (1, 1e6),
    "local-epochs": (1, 1e6),
    "random-features": (1, 1e5),
    "test-fraction": (0.01, 1.0),
    "missing": (0.0, 1.0),
    "epsilon": (1e-6, 1e6),
    "delta": (1e-300, 1.0),
    "learning-rate": (1e-12, 1e6),
}


def _numbers(key: str, value: Any, example: tuple[Any, ...]) -> tuple[Any, ...]:
    kind = type(example[0])
    low, high = _RANGES.get(key, (0, 1e300))
    noun = "whole numbers" if kind is int else "numbers"
    top = "" if high >= 1e300 else f" and below {high:g}"
    wanted = f'{noun} of at least {low:g}{top}, as in "1, 2, 5" or 1'
    parts = value.split(",") if isinstance(value, str) else [value]
    numbers = []
    for part in parts:
        if isinstance(part, bool):
            _refuse(key, wanted, value)
        try:
            number = kind(part)
        except (TypeError, ValueError):
            _refuse(key, wanted, value)
        if isinstance(part, float) and number != part:
            _refuse(key, wanted, value)
        if not low <= number < high:
            _refuse(key, wanted, value)
        numbers.append(number)
    return tuple(dict.fromkeys(numbers))


def _refuse(key: str, expected: str, value: Any) -> NoReturn:
    raise SettingsError(
        f"run-config {key} must be {expected}, got {value!r} ({type(value).__name__})."
    )
