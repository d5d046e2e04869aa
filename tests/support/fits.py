"""Fits without Flower: contributions handed over one by one, or by honest clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedridge_flwr import RidgeModel
from fedridge_flwr.federation.aggregate import Aggregate
from fedridge_flwr.federation.answering.respond import Guards, loaded_rows, respond
from fedridge_flwr.federation.fit_run import FitRun
from fedridge_flwr.federation.settings import FitSettings
from fedridge_flwr.flower.protocol.answer_records import answer_fields, read_fields

_FAULTY = ("product", "working")

Fault = Callable[[int, Any], Any]


def aggregate(**settings: Any) -> Aggregate:
    """Return an aggregate of nobody."""
    return Aggregate(settings=FitSettings(**settings))


def begin(**settings: Any) -> FitRun:
    """Return a fit before its first round."""
    return FitRun(FitSettings(**settings))


def finish(run: FitRun) -> RidgeModel | None:
    """Finish the round, and return the model if there is one."""
    run.finish_round()
    return run.model


def ask(request: Any, rows: tuple[Any, ...]) -> Any:
    """Return an honest client's contribution, through the fields of the wire."""
    answer: Any = respond(
        request, lambda: loaded_rows(rows, request, "rows"), Guards(min_rows=0)
    )
    fields = answer_fields(answer, share_names=True)
    return read_fields(fields, list(answer.arrays.values()), answer.count, request)


def run_fit(
    clients: dict[str, tuple[Any, ...]],
    faults: dict[str, Fault] | None = None,
    **settings: Any,
) -> FitRun:
    """Run a fit to its end.

    A fault gets the number of the round and the honest answer; it returns another one,
    or raises a ConnectionError to stay away.
    """
    run, number = begin(**settings), 0
    while run.round is not None:
        number += 1
        current = run.round
        for name in clients if current.to is None else current.to:
            given = ask(current.ask, clients[name])
            fault = (faults or {}).get(name)
            if fault is not None and current.ask.task in _FAULTY:
                try:
                    given = fault(number, given)
                except ConnectionError:
                    continue
            current.into.take(name, lambda given=given: given)
        current.into.refuse_silent(current.to or clients, "no answer")
        run.finish_round()
    return run
