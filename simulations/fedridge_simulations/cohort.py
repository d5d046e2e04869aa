"""The clients of one cell among all that are connected."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedridge_flwr.errors import NotEnoughClientsError
from fedridge_flwr.flower.exchange import ask, wait_for_nodes
from fedridge_flwr.flower.sizes import CountingGrid

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
        """Return the clients of the cell, in the order of their partitions."""
        return list(self.nodes)


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
        try:
            found = wait_for_nodes(
                lambda: set(grid.get_node_ids()), clients, _CONNECT_SECONDS
            )
        except NotEnoughClientsError as error:
            raise NotEnoughClientsError(
                f"{error} Here: flwr run simulations --federation-config "
                f'"num-supernodes={clients} client-resources-num-cpus=1"'
            ) from None
        with quiet():
            replies = self._query(sorted(found), RecordDict())
        metrics: dict[int, Any] = {
            r.metadata.src_node_id: r.content["metrics"] for r in replies
        }
        self._node_of = {int(m["partition-id"]): n for n, m in metrics.items()}

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
