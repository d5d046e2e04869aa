"""`Roll`: who answered in a round, what, and who did not and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Roll"]


@dataclass
class Roll:
    """The answers of one round, each client's first.

    Examples
    --------
    >>> roll = Roll()
    >>> roll.add("a", 1.0)
    >>> roll.add("a", 2.0)
    >>> roll.refuse("b", "crashed")
    >>> roll.parts, roll.failures, roll.repeated
    ({'a': 1.0}, {'b': 'crashed'}, ['a'])
    """

    parts: dict[str, Any] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    repeated: list[str] = field(default_factory=list)
    crashed: set[str] = field(default_factory=set)
    _seen: dict[str, None] = field(default_factory=dict)

    def add(self, client: str, part: Any) -> None:
        """Take one answer in."""
        if self._first_answer(client):
            self.parts[client] = part

    def refuse(self, client: str, reason: str) -> None:
        """Name a client that failed or whose answer cannot be used."""
        if self._first_answer(client):
            self.failures[client] = reason

    def crash(self, client: str, reason: str) -> None:
        """Name a client whose app raised: ours sends its errors as answers."""
        self.crashed.add(client)
        self.refuse(client, reason)

    def reject(self, client: str, reason: str) -> None:
        """Take back an answer that turned out to be of no use."""
        self.failures[client] = reason
        self.parts.pop(client, None)

    @property
    def participants(self) -> list[str]:
        """Clients whose answer counts, in order of arrival."""
        return [client for client in self._seen if client not in self.failures]

    @property
    def answered(self) -> set[str]:
        """Clients heard of, for good or ill."""
        return set(self._seen)

    def _first_answer(self, client: str) -> bool:
        if client in self._seen:
            if client not in self.repeated:
                self.repeated.append(client)
            return False
        self._seen[client] = None
        return True
