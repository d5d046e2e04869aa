"""`Answers`: which clients answered in a round, what, and why others did not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ..errors import FedRidgeError
from ..linalg.blas import one_blas_thread

__all__ = ["Answers"]


@dataclass
class Answers:
    """The answers of one round; only the first answer of each client counts.

    Examples
    --------
    >>> answers = Answers()
    >>> answers.add("a", 1.0)
    >>> answers.add("a", 2.0)
    >>> answers.refuse("b", "crashed")
    >>> answers.parts, answers.failures, answers.repeated
    ({'a': 1.0}, {'b': 'crashed'}, ['a'])
    """

    parts: dict[str, Any] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    repeated: list[str] = field(default_factory=list)
    crashed: set[str] = field(default_factory=set)
    _seen: dict[str, None] = field(default_factory=dict)

    def take(self, client: str, read: Callable[[], Any]) -> None:
        """Add what `read` returns; if it raises, the client failed with that reason."""
        try:
            with one_blas_thread():
                self.add(client, read())
        except FedRidgeError as error:
            self.refuse(client, str(error))
        except Exception as error:  # hostile input must not end the round
            self.refuse(client, f"unreadable answer ({type(error).__name__})")

    def add(self, client: str, part: Any) -> None:
        """Add one answer."""
        if self._is_first(client):
            self.parts[client] = part

    def refuse(self, client: str, reason: str) -> None:
        """Name a client that failed or whose answer cannot be used."""
        if self._is_first(client):
            self.failures[client] = reason

    def crash(self, client: str, reason: str) -> None:
        """Name a client whose app raised: ours sends its errors as answers."""
        self.crashed.add(client)
        self.refuse(client, reason)

    def reject(self, client: str, reason: str) -> None:
        """Take back an answer that turned out to be of no use."""
        self.failures[client] = reason
        self.parts.pop(client, None)

    def refuse_silent(self, asked: Iterable[str], reason: str) -> None:
        """Name every client that was asked and has not answered."""
        for client in asked:
            if client not in self._seen:
                self.refuse(client, reason)

    @property
    def participants(self) -> list[str]:
        """Clients whose answer counts, in order of arrival."""
        return [client for client in self._seen if client not in self.failures]

    @property
    def answered(self) -> set[str]:
        """Clients that answered or failed."""
        return set(self._seen)

    def _is_first(self, client: str) -> bool:
        if client in self._seen:
            if client not in self.repeated:
                self.repeated.append(client)
            return False
        self._seen[client] = None
        return True
