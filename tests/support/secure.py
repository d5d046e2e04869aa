"""Secure sums without Flower: honest clients, lost ones, and a server that may lie."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedridge_flwr.federation.secure_sum import SecureSum, Terms
from fedridge_flwr.federation.secure_sum import client_steps as steps
from fedridge_flwr.federation.secure_sum.keys import PublicKeys
from fedridge_flwr.federation.secure_sum.server_steps import SecureSession
from fedridge_flwr.linalg.limbs import Words, add

Lost = tuple[Collection[int], ...]
NOBODY: Lost = ((), (), (), (), ())


def random_words(rows: int, words: int = 3) -> Words:
    data = np.frombuffer(os.urandom(8 * rows * words), dtype="<u8")
    return data.reshape(rows, words).astype(np.uint64)


def plain_sum(parts: Collection[Words]) -> Words:
    first, *others = parts
    for other in others:
        first = add(first, other)
    return first


@dataclass
class Federation:
    """Clients in the middle of a secure sum, to be taken from step to step."""

    values: dict[str, Words]
    settings: SecureSum = field(default_factory=SecureSum)
    identities: dict[str, Ed25519PrivateKey] = field(default_factory=dict)
    roster: Collection[bytes] = ()
    min_clients: int = 3
    subject: bytes = bytes(32)
    states: dict[str, steps.ClientState] = field(default_factory=dict)
    keys: dict[str, PublicKeys] = field(default_factory=dict)
    session: Any = None

    @classmethod
    def of(cls, clients: int, rows: int = 10, **options: Any) -> Federation:
        values = {f"c{k}": random_words(rows) for k in range(clients)}
        return cls(values, **options)

    def with_roster(self) -> Federation:
        self.identities = {c: Ed25519PrivateKey.generate() for c in self.values}
        self.roster = {
            key.public_key().public_bytes_raw() for key in self.identities.values()
        }
        return self

    def advertise(self, lost: Collection[str] = (), name: bytes | None = None) -> None:
        name = name or os.urandom(16)
        for client in self.values:
            if client not in lost:
                begun = steps.enter(self.states.get(client), steps.KEYS_DUE, name)
                state, keys = steps.advertise(begun, self.identities.get(client))
                self.states[client] = state
                self.keys[client] = PublicKeys.unpack(keys)
        clients = [c for c in self.values if c in self.keys]
        near, threshold = self.settings.sizes(len(clients))
        shape = next(iter(self.values.values())).shape
        terms = Terms(name, len(clients), near, threshold, *shape, self.subject, b"")
        self.session = SecureSession(terms, {c: self.keys[c] for c in clients})

    def keys_for(self, client: str) -> list[bytes]:
        return [row.tobytes() for row in self.session.keys_for(client)[0]]

    def share(self, client: str, **given: Any) -> np.ndarray:
        state, entries = steps.share(
            self.states[client],
            given.get("terms", self.session.terms),
            given.get("keys", self.keys_for(client)),
            given.get("others", self.session.keys_for(client)[1]),
            self.min_clients,
            self.roster,
        )
        self.states[client] = state
        return entries

    def mask(self, client: str, **given: Any) -> Words:
        present, boxes = self.session.boxes_for(client)
        state, words = steps.mask(
            self.states[client],
            given.get("session", self.session.terms.session),
            given.get("present", present),
            given.get("boxes", boxes),
            lambda: given.get("words", self.values[client]),
            self.min_clients,
        )
        self.states[client] = state
        return words

    def confirm(self, client: str, **given: Any) -> np.ndarray:
        state, rows = steps.confirm(
            self.states[client],
            given.get("session", self.session.terms.session),
            given.get("delivered", self.session.who_delivered()),
            self.min_clients,
        )
        self.states[client] = state
        return rows

    def unmask(self, client: str, **given: Any) -> np.ndarray:
        state, shares = steps.unmask(
            self.states[client],
            given.get("session", self.session.terms.session),
            given.get("confirmations", self.session.confirmations_for(client)),
        )
        self.states[client] = state
        return shares

    def until_shares(self, lost: Collection[str] = ()) -> None:
        for client in self.session.keys:
            if client not in lost:
                self.session.add_entries(client, self.share(client))

    def until_masked(self, lost: Collection[str] = ()) -> None:
        for client in self.session.members:
            if client not in lost:
                self.session.add_masked(client, self.mask(client))

    def until_confirmed(self, lost: Collection[str] = ()) -> None:
        for client in list(self.session.delivered):
            if client not in lost:
                self.session.add_confirmations(client, self.confirm(client))

    def until_unmasked(self, lost: Collection[str] = ()) -> None:
        for client in self.session.confirmed:
            if client not in lost:
                self.session.add_shares(client, self.unmask(client))

    def run(self, lost: Lost = NOBODY) -> Words:
        gone = [{f"c{k}" for k in each} for each in lost]
        self.advertise(gone[0])
        self.until_shares(gone[1])
        self.until_masked(gone[2])
        self.until_confirmed(gone[3])
        self.until_unmasked(gone[4])
        found: Words = self.session.total()
        return found

    @property
    def expected(self) -> Words:
        return plain_sum([self.values[c] for c in self.session.delivered])


def at_masked(clients: int = 5, **options: Any) -> Federation:
    """Return a federation in which everybody has delivered."""
    found = Federation.of(clients, **options)
    found.advertise()
    found.until_shares()
    found.until_masked()
    return found
