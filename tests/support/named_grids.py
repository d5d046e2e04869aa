"""A grid whose nodes were registered under names, as SuperNodes are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from fakes import InProcessGrid
from flwr.app import ConfigRecord, Message

NAME_KEY = "client-name"


class NamedGrid(InProcessGrid):
    """Nodes with names, as far as there are names."""

    names: Sequence[str] = ()

    def get_nodes(self) -> Any:
        return [
            SimpleNamespace(node_id=node, name=name)
            for node, name in zip(self.handlers, self.names, strict=False)
        ]

    def asked(self) -> list[str]:
        """Return the names of the nodes that were sent anything."""
        known = dict(zip(self.handlers, self.names, strict=False))
        return [known[message.metadata.dst_node_id] for message in self.sent]

    def only(self, nodes: Iterable[int]) -> NamedGrid:
        """Keep some of the nodes, by their numbers."""
        kept = list(nodes)
        chosen = {1000 + k: self.handlers[1000 + k] for k in kept}
        self.names = [self.names[k] for k in kept] if self.names else ()
        self.handlers = chosen
        return self


def renamed(handler: Any, name: str | None) -> Any:
    """Return a client that calls itself by another name, or by none."""

    def answer(message: Message) -> Message:
        reply = handler(message)
        for record in reply.content.values():
            if isinstance(record, ConfigRecord):
                record.pop(NAME_KEY, None)
                if name is not None:
                    record[NAME_KEY] = name
        return reply

    return answer
