"""The clients of one cell among all that are connected."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable, Iterator
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedridge_flwr.errors import NotEnoughClientsError
from fedridge_flwr.flower.exchange import CountingGrid, ask, wait_for_nodes

from .cells import Cell
from .client_app import cell_record

__all__ = ["Cohort", "Federation", "quiet"]

TIMEOUT = 900.0
_CONNECT_SECONDS = 120.0


class Cohort(CountingGrid):
    """The grid of a cell: it shows the cell's clients only, and counts bytes.

    Any stock strategy runs on it unmodified.
    """

    def __init__(self, grid: Grid, nodes: list[int]) -> None:
        super().__init__(grid)
        self.nodes = nodes

    def get_node_ids(self) -> Iterable[int]:
        """Return the clients of the cell that are connected, by partition."""
        connected = set(super().get_node_ids())
        return [node for node in self.nodes if node in connected]


class Federation:
    """All connected clients, known by their partition.

    Parameters
    ----------
    grid : Grid
        The grid of the run.
    clients : int
        Clients that the largest cell needs.
    """

    def __init__(self, grid: Grid, clients: int) -> None:
        self._grid = grid
        self._node_of: dict[int, int] = {}
        deadline = time.monotonic() + _CONNECT_SECONDS
        # With more clients than are needed, the first ones are not the right ones.
        while not set(range(clients)) <= set(self._node_of):
            left = max(deadline - time.monotonic(), 0.0)
            self._meet(self._wait(max(clients, len(self._node_of) + 1), left, clients))

    def _wait(self, number: int, seconds: float, clients: int) -> set[int]:
        try:
            look = self._grid.get_node_ids
            return set(wait_for_nodes(lambda: set(look()), number, seconds))
        except NotEnoughClientsError as error:
            raise NotEnoughClientsError(
                f"{error} Here: flwr run simulations --federation-config "
                f'"num-supernodes={clients} client-resources-num-cpus=1"'
            ) from None

    def _meet(self, nodes: set[int]) -> None:
        new = sorted(nodes - set(self._node_of.values()))
        with quiet():
            for reply in self._query(new, RecordDict()):
                metrics: Any = reply.content["metrics"]
                self._node_of[int(metrics["partition-id"])] = reply.metadata.src_node_id

    def cohort(self, cell: Cell) -> Cohort:
        """Announce a cell to its clients, which make their rows: the warm-up."""
        nodes = [self._node_of[k] for k in range(cell.problem.clients)]
        replies = self._query(nodes, RecordDict({"cell": cell_record(cell)}))
        if len(replies) < len(nodes):
            raise NotEnoughClientsError(
                f"{len(replies)} of {len(nodes)} clients answered the announcement."
            )
        return Cohort(self._grid, nodes)

    def _query(self, nodes: list[int], content: RecordDict) -> list[Message]:
        messages = [
            Message(content, dst_node_id=n, message_type="query") for n in nodes
        ]
        replies = list(ask(self._grid, messages, TIMEOUT, "announcement"))
        for reply in replies:
            if reply.has_error():
                raise RuntimeError(f"a client failed: {reply.error.reason}")
        return replies


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence Flower's lines about every round; warnings still show."""
    log = logging.getLogger("flwr")
    before = log.level
    log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.setLevel(before)
