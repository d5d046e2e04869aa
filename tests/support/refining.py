"""Clients of a refinement in one process, with faults on demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedridge_flwr.data.rows import check_rows
from fedridge_flwr.federation.multiround_fit import RefineFit
from fedridge_flwr.federation.requests import AskOpening, AskProduct
from fedridge_flwr.federation.settings import FitSettings
from fedridge_flwr.federation.ways import new_fit
from fedridge_flwr.multiround import Opening, centred_product

Rows = tuple[Any, ...]
Fault = Callable[[int, np.ndarray], Any]


def answer(rows: Rows, question: Any) -> Any:
    """Return what an honest client answers."""
    checked = check_rows(*rows)
    if isinstance(question, AskProduct):
        return centred_product(checked, question.vectors)
    assert isinstance(question, AskOpening)
    return Opening.from_rows(checked, factor=question.mode == "refine")


def refine(
    clients: dict[str, Rows], faults: dict[str, Fault] | None = None, **settings: Any
) -> RefineFit:
    """Run a fit to its end; a fault gets the round and the honest product.

    It returns another product, or raises to stay away.
    """
    fit = new_fit(FitSettings(**{"mode": "refine", **settings}))
    assert isinstance(fit, RefineFit)
    model, asked = None, list(clients)
    for number in range(1, 400):
        question = fit.question()
        for name in asked:
            given = answer(clients[name], question)
            fault = (faults or {}).get(name)
            if fault is not None and isinstance(question, AskProduct):
                try:
                    given = fault(number, given)
                except ConnectionError:
                    continue
            fit.take(name, lambda given=given: given)
        fit.refuse_silent(asked, "no answer")
        model = fit.finish()
        if model is not None:
            return fit
        asked = fit.wanted
    raise AssertionError("the fit does not end")
