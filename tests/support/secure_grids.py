"""Grids of clients in secure sums, some of which are lost or lie on the way."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from fakes import Handler, InProcessGrid, node_context
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, Message
from flwr.clientapp import ClientApp

from fedridge_flwr import (
    FixedPointStatistics,
    SitePolicy,
    SufficientStatistics,
    ridge_client_app,
)
from fedridge_flwr.federation.requests import SECURE_TASKS

TASKS = SECURE_TASKS

Fault = Callable[[Message, Callable[[], Message]], Message]


def task_of(message: Message) -> str:
    return str(message.content["config"].get("fedridge-task", ""))


def lost(message: Message, answer: Callable[[], Message]) -> Message:
    raise ConnectionError("gone")


def after_answering(message: Message, answer: Callable[[], Message]) -> Message:
    """The client has done its part, but the answer never arrives."""
    answer()
    raise ConnectionError("gone")


def with_array(change: Callable[[np.ndarray], np.ndarray]) -> Fault:
    """Return a fault by which the array in an answer is another one."""

    def fault(message: Message, answer: Callable[[], Message]) -> Message:
        reply = answer()
        arrays = {
            name: FlowerArray(np.ascontiguousarray(change(array.numpy())))
            for name, array in reply.content["arrays"].items()
        }
        reply.content["arrays"] = ArrayRecord(arrays)
        return reply

    return fault


def write_identities(folder: Path, number: int) -> list[Ed25519PrivateKey]:
    """Write site-0.pem, site-1.pem, ..., and the roster of all of them."""
    keys = [Ed25519PrivateKey.generate() for _ in range(number)]
    public = [
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        for key in keys
    ]
    for k, key in enumerate(keys):
        (folder / f"site-{k}.pem").write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )
    (folder / "roster.pem").write_bytes(b"".join(public))
    return keys


def apps_on_a_roster(load_data: Any, folder: Path, number: int, **rules: Any) -> Any:
    """Return clients that know each other, with these rules; `state` is their own."""
    write_identities(folder, number)
    apps = []
    for k in range(number):
        own = {"identity": folder / f"site-{k}.pem", "roster": folder / "roster.pem"}
        if rules.get("state"):
            own["state"] = folder / str(k)
            own["state"].mkdir()
        apps.append(ridge_client_app(load_data, site_policy=SitePolicy(**rules | own)))

    def app(message: Message, context: Any) -> Message:
        return apps[int(context.node_config["partition-id"])](message, context)

    return app


def secure_grid(
    app: ClientApp,
    n_nodes: int,
    faults: dict[tuple[int, str], Fault] | None = None,
    **run_config: Any,
) -> InProcessGrid:
    """Return a grid in which some clients misbehave in some exchange."""

    def node(k: int) -> Handler:
        context = node_context(k, n_nodes, **run_config)

        def handle(message: Message) -> Message:
            fault = (faults or {}).get((k, task_of(message)))
            if fault is None:
                return app(message, context)
            return fault(message, lambda: app(message, context))

        handle.context = context  # type: ignore[attr-defined]
        return handle

    return InProcessGrid([node(k) for k in range(n_nodes)])


def lose(clients: Collection[int], task: str, fault: Fault = lost) -> Any:
    return {(k, task): fault for k in clients}


def integer_total(rows: Collection[tuple[Any, ...]]) -> FixedPointStatistics:
    found: FixedPointStatistics = sum(  # type: ignore[assignment]
        FixedPointStatistics.from_data(*each) for each in rows
    )
    return found


def same_bits(found: SufficientStatistics, expected: FixedPointStatistics) -> bool:
    """Whether a total is that of exact sums, to the last bit."""
    wanted = expected.to_sufficient()
    return (
        found.count == wanted.count
        and found.total_weight == wanted.total_weight
        and found.means.tobytes() == wanted.means.tobytes()
        and found.triangle.tobytes() == wanted.triangle.tobytes()
    )
