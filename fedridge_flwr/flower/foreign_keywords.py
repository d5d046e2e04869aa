"""Keywords of Flower's strategies that ours do not take, and what to do instead."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from difflib import get_close_matches

from .._checks import check_whole
from ..errors import FedRidgeError

_SAME = {
    "fraction_train": "fraction_fit",
    "min_train_nodes": "min_fit_clients",
    "min_evaluate_nodes": "min_evaluate_clients",
    "min_available_nodes": "min_available_clients",
}
_SAME |= {other: name for name, other in _SAME.items()}
_SAME |= dict.fromkeys(("lambda_", "lam", "reg", "l2", "penalty"), "alpha")
_IN_THE_MODEL = ("min_train_nodes", "min_fit_clients")
_MINIMUM = ": the fewest clients in the model, not the fewest to sample"
_REMOVE = (
    dict.fromkeys(
        (
            "train_metrics_aggr_fn",
            "evaluate_metrics_aggr_fn",
            "fit_metrics_aggregation_fn",
            "evaluate_metrics_aggregation_fn",
        ),
        "remove it: report_ has what clients measured",
    )
    | dict.fromkeys(
        (
            "weighted_by_key",
            "arrayrecord_key",
            "configrecord_key",
            "accept_failures",
            "inplace",
            "initial_parameters",
            "initial_arrays",
        ),
        "remove it",
    )
    | dict.fromkeys(
        ("learning_rate", "lr", "eta", "local_epochs", "batch_size", "proximal_mu"),
        "remove it: nothing is trained",
    )
)
_ELSEWHERE = {
    "num_rounds": "remove it: the fit decides on its rounds",
    "evaluate_fn": "give it to start(grid, evaluate_fn=...)",
    "on_fit_config_fn": "give start(grid, train_config=...)",
    "on_evaluate_config_fn": "give start(grid, evaluate_config=...)",
    "timeout": "give it to start(grid, timeout=...); older API: "
    "ServerConfig(round_timeout=...)",
}


def refuse_foreign_keywords(strategy: type, given: Iterable[str]) -> None:
    """Raise what to do about keywords that a strategy does not take.

    Examples
    --------
    >>> from fedridge_flwr import FedRidge
    >>> FedRidge(fraction_fit=1.0, inplace=True)
    Traceback (most recent call last):
    TypeError: FedRidge does not take fraction_fit (use fraction_train), inplace \
(remove it).
    """
    parameters = inspect.signature(strategy.__init__).parameters  # type: ignore[misc]
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return
    known = list(parameters)[1:]
    told = [f"{name} ({_advice(name, known)})" for name in given if name not in known]
    if told:
        raise TypeError(f"{strategy.__name__} does not take {', '.join(told)}.")


def _advice(name: str, known: list[str]) -> str:
    other = _SAME.get(name)
    if other in known:
        return f"use {other}{_MINIMUM if other in _IN_THE_MODEL else ''}"
    found = _REMOVE.get(name) or _ELSEWHERE.get(name)
    close = get_close_matches(name, known, 1)
    meant = f"is {close[0]} meant?" if close else "there is no such setting"
    return found or meant


def either_name(**spellings: int | None) -> int | None:
    """Return the number of clients that was given under one of two names."""
    given = {
        name: check_whole(name, value)
        for name, value in spellings.items()
        if value is not None
    }
    if len(set(given.values())) > 1:
        both = " and ".join(f"{name}={value}" for name, value in given.items())
        raise FedRidgeError(f"{both} are two names of one setting: give one of them.")
    return next(iter(given.values()), None)
