"""The trial loop: what is known is not run again, what is left is estimated."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from .cells import Cell, Outcome, Store

__all__ = ["run_trials"]

log = logging.getLogger("flwr")


def run_trials(
    name: str,
    cells: Iterable[Cell],
    store: Store,
    run: Callable[[Cell], Outcome],
    about: dict[str, Any],
    only_clients: int = 0,
) -> int:
    """Run the cells that are not in the store yet; the file is written after each.

    With `only_clients` those with another number of clients are left for later.
    Returns how many cells are still to be run.
    """
    cells = list(dict.fromkeys(cells))
    missing = [cell for cell in cells if store.find(cell) is None]
    todo = [c for c in missing if only_clients in (0, c.problem.clients)]
    # Trial by trial: whoever stops early has all methods of the first trials.
    todo.sort(key=lambda cell: cell.problem.seed)
    total = sum(cell.messages for cell in todo)
    log.info("%s: %d cells, %d to run", name, len(cells), len(todo))
    began, done = time.monotonic(), 0
    for number, cell in enumerate(todo, start=1):
        if store.find(cell) is None:
            outcome = run(cell)
            outcome.facts["versions"] = about.get("versions", {})
            store.add(cell, outcome)
            store.save(cells, about)
        done += cell.messages
        spent = time.monotonic() - began
        log.info(
            "%s %d/%d: %s, trial seed %d; %s, about %s left",
            name,
            number,
            len(todo),
            cell.method.label,
            cell.problem.seed,
            _words(spent),
            _words(spent * (total - done) / max(done, 1)),
        )
    store.save(cells, about)
    return len(missing) - len(todo)


def _words(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min"
