"""Many features: 10,000 in one shot, 50,000 by conjugate gradients, and their memory.

Rows are sparse, so that clients take seconds. Every client, and the server, is a
process of its own, whose peak is its own too.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, cg

from fedridge_flwr.federation.answering.respond import Guards, respond
from fedridge_flwr.federation.fit_run import FitRun
from fedridge_flwr.federation.settings import FitSettings
from fedridge_flwr.flower.protocol.answer_records import (
    answer_fields,
    read_answer,
    reply_content,
)
from fedridge_flwr.linalg.packed import packed_length

from .machine import peak_memory, reset_peak_memory
from .measure import Ratio, seconds

__all__ = ["by_products", "one_shot", "wide", "write_answer"]

_CLIENTS = 5
_ALPHA = 1.0
_NONZERO = 50


def wide(features: int = 10_000, more: int = 50_000) -> list[Ratio]:
    """Return how exact wide fits are, and the memory that they take."""
    with tempfile.TemporaryDirectory() as folder:
        for client in range(_CLIENTS):
            _elsewhere("write_answer", folder, client, features)
        shot = _elsewhere("one_shot", folder, features)
    steps = _elsewhere("by_products", more)
    told = f"d={features:,} in one shot, K={_CLIENTS}"
    beyond = shot["peak"] - shot["held"]
    return [
        Ratio(
            f"{told}: distance to pooled rows", shot["apart"], 1e-10, unit="relative"
        ),
        Ratio(
            f"{told}: server's memory beyond Flower's, by one contribution",
            beyond / shot["packed"],
            3.5,
            detail=f"{beyond:.0f} MB, a contribution is {shot['packed']:.0f} MB; "
            f"{shot['peak']:.0f} MB in all; {shot['seconds']:.0f} s",
        ),
        Ratio(
            f"d={more:,} by mode=cg on CSR rows, K={_CLIENTS}: distance to pooled rows",
            steps["apart"],
            1e-8,
            detail=f"{steps['rounds']} rounds, {steps['seconds']:.0f} s, "
            f"{steps['peak']:.0f} MB with all clients",
            unit="relative",
        ),
    ]


def client_rows(client: int, features: int) -> tuple[Any, Any]:
    """Return sparse X and y of one client."""
    rng = np.random.default_rng([7, client])
    rows = features + features // 5
    places = rng.integers(features, size=rows * _NONZERO)
    starts = np.arange(0, rows * _NONZERO + 1, _NONZERO)
    values = rng.normal(size=rows * _NONZERO)
    X = sparse.csr_array((values, places, starts), shape=(rows, features))
    X.sum_duplicates()
    w = np.random.default_rng(7).normal(size=features)
    return X, X @ w + 3.0 + rng.normal(size=rows)


def write_answer(folder: str, client: int, features: int) -> None:
    """Write the arrays of a client's answer, and what goes beside them."""
    answer = _answer(FitRun(FitSettings(alpha=_ALPHA)).round, client, features)
    place = Path(folder)
    (array,) = answer.arrays.values()
    np.save(place / f"{client}.npy", array)
    fields = {
        key: value.hex() if isinstance(value, bytes) else value
        for key, value in answer_fields(answer, share_names=False).items()
    }
    told = {"fields": fields, "count": answer.count, "size": array.size}
    (place / f"{client}.json").write_text(json.dumps(told), encoding="utf-8")


def one_shot(folder: str, features: int) -> dict[str, float]:
    """Fit from the answers in a folder; return error, seconds and memory in MB."""
    packed = 8 * packed_length(features, 1) / 2**20
    reset_peak_memory()
    for client in range(_CLIENTS):
        _content(folder, client)
    held = peak_memory()
    reset_peak_memory()
    run: Any = FitRun(FitSettings(alpha=_ALPHA))

    def fit() -> None:
        into, ask = run.round.into, run.round.ask
        for client in range(_CLIENTS):
            into.take(str(client), partial(read_answer, _content(folder, client), ask))
        run.finish_round()

    found = {"seconds": seconds(fit), "peak": peak_memory(), "held": held}
    return {**found, "packed": packed, "apart": _apart(run.model.coef_, features)}


def by_products(features: int) -> dict[str, float]:
    """Fit with ``mode="cg"``, server and clients in one process."""
    reset_peak_memory()
    run: Any = FitRun(FitSettings(alpha=_ALPHA, mode="cg", max_rounds=60))
    rounds = 0

    def fit() -> None:
        nonlocal rounds
        while run.round is not None:
            rounds += 1
            into, ask = run.round.into, run.round.ask
            for client in range(_CLIENTS):
                reply = reply_content(_answer(run.round, client, features), False)
                into.take(str(client), partial(read_answer, reply, ask))
            run.finish_round()

    found = {"seconds": seconds(fit), "peak": peak_memory(), "rounds": rounds}
    return {**found, "apart": _apart(run.model.coef_, features)}


def _answer(asked: Any, client: int, features: int) -> Any:
    rows = (*client_rows(client, features), None)
    return respond(asked.ask, lambda: rows, Guards())


def _content(folder: str, client: int) -> RecordDict:
    """Return an answer as Flower hands it over."""
    told = json.loads((Path(folder) / f"{client}.json").read_text(encoding="utf-8"))
    fields = {**told["fields"], "means-low": bytes.fromhex(told["fields"]["means-low"])}
    data = (Path(folder) / f"{client}.npy").read_bytes()
    array = FlowerArray("float64", (told["size"],), "numpy.ndarray", data)
    return RecordDict(
        {
            "arrays": ArrayRecord({"statistics": array}),
            "config": ConfigRecord(fields),
            "metrics": MetricRecord({"num-examples": told["count"]}),
        }
    )


def _apart(coef: Any, features: int) -> float:
    """Return how far coefficients are from those of the pooled rows, relatively.

    Those come from SciPy's conjugate gradients on the rows, which never form X'X.
    """
    parts = [client_rows(client, features) for client in range(_CLIENTS)]
    X = sparse.vstack([part[0] for part in parts], format="csr")
    y = np.concatenate([part[1] for part in parts])
    means, n = X.mean(axis=0), X.shape[0]

    def product(v: Any) -> Any:
        return X.T @ (X @ v) - n * means * (means @ v) + _ALPHA * v

    system = LinearOperator((features, features), matvec=product, dtype=float)
    pooled, failed = cg(system, X.T @ (y - y.mean()), rtol=1e-15, maxiter=500)
    if failed < 0:
        raise RuntimeError("the pooled rows could not be solved.")
    return float(np.linalg.norm(coef - pooled) / np.linalg.norm(pooled))


def _elsewhere(name: str, *arguments: object) -> Any:
    """Return what a function of this module does in a process of its own."""
    script = (
        f"import json; from fedridge_benchmarks.wide import {name} as f; "
        f"print(json.dumps(f(*{list(arguments)!r})))"
    )
    ended = subprocess.run(  # noqa: S603 - this interpreter, the lines above, no shell
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(ended.stdout.splitlines()[-1])
