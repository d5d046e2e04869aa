"""Ledgers for the tests: rows by client, and what happens in another process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from generators import linear_rows, relative_error

from fedridge_flwr import (
    FixedPointStatistics,
    Ledger,
    SufficientStatistics,
    solve,
)
from fedridge_flwr.federation.ledger import ledger_storage

FORMS = {"moments": SufficientStatistics, "fixed": FixedPointStatistics}
CLIENTS = ["clinic-a", "clinic-b", "clinic-c", "clinic-d"]
X, Y = linear_rows(400, 3, np.random.default_rng(11))
X += [0.0, 1e4, -5.0]
# Of unlike scale, but so that two rows with a penalty of 1 are still well conditioned:
# with 1e3 pooled float64 itself is 2e-12 off the exact coefficients.
X[:200] *= [1.0, 1.0, 30.0]


def part_of(rows: Iterable[int], form: str = "moments") -> Any:
    """Return the statistics of some of the rows."""
    chosen = list(rows)
    return FORMS[form].from_data(X[chosen], Y[chosen])


def assert_total(found: Any, rows: Iterable[int], form: str = "moments") -> None:
    """The total is that of these rows: bit for bit, or to rounding."""
    whole = part_of(rows, form)
    assert found.count == whole.count
    if form == "fixed":
        assert found == whole
    else:
        ours, pooled = (solve(each, alpha=1.0) for each in (found, whole))
        assert relative_error(ours.coef_, pooled.coef_) < 1e-11


def in_another_process(path: Path, change: Callable[[Ledger], object]) -> int:
    """Do something to a ledger in a process of its own; 0 if it went well."""
    return forked(lambda: _with_ledger(path, change))


def killed_at(path: Path, change: Callable[[Ledger], object], statement: int) -> int:
    """Do the same, and kill -9 the process before one of its SQL statements."""

    def work() -> None:
        watch_statements(statement)
        _with_ledger(path, change)

    return forked(work)


def watch_statements(statement: int) -> None:
    """Kill this process, a forked one, before one of the SQL statements to come."""
    connect, left = ledger_storage.opened, [statement]

    def count(_: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def watched(where: Path, **options: Any) -> Any:
        database = connect(where, **options)
        database.set_trace_callback(count)
        return database

    ledger_storage.opened = watched


def _with_ledger(path: Path, change: Callable[[Ledger], object]) -> None:
    with Ledger(path) as ledger:
        change(ledger)


def forked(work: Callable[[], object]) -> int:
    """Do something in a copy of this process, and return how that ended."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
