"""A server that may do anything, honest clients, and what it could compute in the end.

Clients answer through `respond`, with the memory that they have in Flower. A witness
looks into that memory and counts which shares of which secrets have come out.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fakes import node_context

from fedridge_flwr import FedRidgeError, SecurePolicy
from fedridge_flwr.data.schema import Schema
from fedridge_flwr.federation.answering.respond import Guards, respond
from fedridge_flwr.federation.answering.secure_respond import (
    EXTRA_ROWS,
    PRIVATE_WORDS,
    SecureGuard,
    subject_of,
)
from fedridge_flwr.federation.requests import (
    AskConfirm,
    AskKeys,
    AskMasked,
    AskShares,
    AskUnmask,
    Request,
)
from fedridge_flwr.federation.secure_sum import Terms
from fedridge_flwr.federation.secure_sum.client_steps import ClientState
from fedridge_flwr.federation.secure_sum.keys import PAIR, PublicKeys
from fedridge_flwr.federation.secure_sum.server_steps import SecureSession
from fedridge_flwr.flower.secure_memory import SecureMemory
from fedridge_flwr.linalg.packed import packed_length
from fedridge_flwr.privacy.curator import Curator, ReleaseRequest
from fedridge_flwr.privacy.release import Layout
from fedridge_flwr.statistics.integer_sums import DEFAULT_GRID

SHAPE = packed_length(1, 1) + EXTRA_ROWS, DEFAULT_GRID.n_words
ROWS = [[0.0], [1.0], [3.0]], [1.0, 2.0, 5.0], None


@dataclass
class Dealt:
    """The secrets of one client in one sum, as the witness knows them."""

    client: int
    terms: Terms
    rank: int
    near: list[bytes]
    number: int = 1
    masked_with: list[bytes] | None = None
    delivered: bytes = b""
    seed_from: set[bytes] = field(default_factory=set)
    key_from: set[bytes] = field(default_factory=set)

    @property
    def seed_is_out(self) -> bool:
        return len(self.seed_from) >= self.terms.threshold

    @property
    def key_is_out(self) -> bool:
        return len(self.key_from) >= self.terms.threshold


class Client:
    """A client with its memory; `corrupt` ones tell the server all they know."""

    def __init__(
        self, number: int, policy: SecurePolicy, folder: Path | None, corrupt: bool
    ) -> None:
        self.number, self.corrupt = number, corrupt
        self.context = node_context(number, 1)
        self.folders = () if folder is None else (folder,)
        self.guard = SecureGuard(SecureMemory(self.context, self.folders), (policy,))
        self.curator = Curator()
        self.refusals: list[str] = []

    @property
    def state(self) -> ClientState:
        found = self.guard.memory.read()
        assert found is not None
        return found

    def ask(self, request: Request) -> Any:
        """Return the array of an answer, or nothing."""
        guards = Guards(secure=self.guard, curator=self.curator)
        try:
            answer: Any = respond(request, lambda: ROWS, guards)
        except FedRidgeError as error:
            self.refusals.append(str(error))
            return None
        (array,) = answer.arrays.values()
        return array

    def enter_run(self, number: int) -> None:
        """Let its messages be of another run, with the same memory."""
        self.context.run_id = number
        memory = SecureMemory(self.context, self.folders)
        self.guard = replace(self.guard, memory=memory)

    def saved(self) -> Any:
        return deepcopy(self.guard.memory.read())

    def roll_back(self, saved: ClientState) -> None:
        self.guard.memory.write(saved)


@dataclass
class Witness:
    """All secrets that were dealt, by the public mask key of their owner."""

    dealt: dict[bytes, Dealt] = field(default_factory=dict)
    corrupt: set[int] = field(default_factory=set)

    def saw_shares(self, client: Client) -> None:
        state = client.state
        keys = [state.keys[k : k + 32] for k in range(0, len(state.keys), PAIR)]
        self.dealt[keys[state.place]] = Dealt(
            client.number, state.agreed, state.rank, keys, state.number
        )

    def saw_masked(self, client: Client, own: bytes) -> None:
        state, about = client.state, self.dealt[own]
        about.masked_with = [
            key
            for key, rank in zip(about.near, state.near, strict=True)
            if state.present[rank] and key != own
        ]
        if client.corrupt:
            for key in about.masked_with:
                self._reveal(key, own, seed=True)
                self._reveal(key, own, seed=False)

    def saw_unmask(self, own: bytes, before: ClientState) -> None:
        about = self.dealt[own]
        about.delivered = before.delivered
        holds = {own, *(about.masked_with or ())}  # shares came with their boxes
        for key, rank in zip(about.near, before.near, strict=True):
            if key in holds:
                self._reveal(key, own, seed=bool(before.delivered[rank]))

    def _reveal(self, owner: bytes, holder: bytes, *, seed: bool) -> None:
        if owner in self.dealt:
            secrets = self.dealt[owner]
            (secrets.seed_from if seed else secrets.key_from).add(holder)

    # ---- what follows from it --------------------------------------------------------

    def both_secrets(self) -> list[int]:
        return [
            each.client
            for each in self.dealt.values()
            if each.seed_is_out and each.key_is_out and each.client not in self.corrupt
        ]

    def _hidden(self, own: bytes) -> Iterator[bytes]:
        """Yield the neighbours whose masks with a client the server cannot compute."""
        for key in self.dealt[own].masked_with or ():
            other = self.dealt.get(key)
            if other is None or (
                other.client not in self.corrupt
                and not other.key_is_out
                and not self.dealt[own].key_is_out
            ):
                yield key

    def sums(self) -> list[set[bytes]]:
        """Return the smallest sets of honest clients whose sums can be computed."""
        honest = {
            key
            for key, each in self.dealt.items()
            if each.client not in self.corrupt and each.masked_with is not None
        }
        found, left = [], set(honest)
        while left:
            group, new = set(), {left.pop()}
            while new:
                group |= new
                new = {key for own in new & honest for key in self._hidden(own)}
                new -= group
            left -= group
            # Masks cancel if both have added them, and own masks go with the seed.
            cancel = all(
                own in (self.dealt[key].masked_with or ())
                for own in group & honest
                for key in self._hidden(own)
            )
            if group <= honest and cancel:
                found += [group] * all(self.dealt[key].seed_is_out for key in group)
        return found

    def check(self, min_clients: int) -> int:
        """Assert that the server has agreed sums only; return how many."""
        assert not self.both_secrets()
        seen: list[tuple[int, int]] = []
        sums = self.sums()
        for group in sums:
            members = [self.dealt[key] for key in group]
            told = {each.delivered for each in members if each.delivered}
            assert len(told) == 1, "two lists, and one sum"
            assert {each.terms for each in members} == {members[0].terms}
            (delivered,) = told
            corrupt = {
                each.rank
                for each in self.dealt.values()
                if each.client in self.corrupt and each.terms == members[0].terms
            }
            agreed = {rank for rank, flag in enumerate(delivered) if flag}
            assert {each.rank for each in members} == agreed - corrupt
            assert len(agreed) >= max(min_clients, 2 * len(delivered) / 3)
            seen += [(each.client, each.number) for each in members]
        assert len(seen) == len(set(seen)), "a client is in two sums of one round"
        return len(sums)


class LyingServer:
    """What a server does in a sum, in the words of the protocol; lies are arguments."""

    def __init__(
        self,
        clients: int,
        *,
        min_clients: int = 3,
        corrupt: int = 0,
        folders: list[Path] | None = None,
        roster: bool = False,
    ) -> None:
        policies = [SecurePolicy(min_clients)] * clients
        if roster:
            own = [Ed25519PrivateKey.generate() for _ in range(clients)]
            known = [key.public_key().public_bytes_raw() for key in own]
            policies = [
                SecurePolicy(min_clients, key.private_bytes_raw(), known) for key in own
            ]
        self.min_clients = min_clients
        self.release: ReleaseRequest | None = None
        self.clients = [
            Client(k, policies[k], folders[k] if folders else None, k < corrupt)
            for k in range(clients)
        ]
        self.witness = Witness(corrupt=set(range(corrupt)))

    def keys(self, name: bytes, clients: list[int]) -> dict[str, PublicKeys]:
        found = {}
        for k in clients:
            keys = self.clients[k].ask(AskKeys(name, self.release))
            if keys is not None:
                found[str(k)] = PublicKeys.unpack(keys.tobytes())
        return found

    def session(
        self, name: bytes, keys: dict[str, PublicKeys], sizes: tuple[int, int]
    ) -> SecureSession:
        subject = subject_of(Schema(1), AskKeys(name, self.release), DEFAULT_GRID)
        terms = Terms(name, len(keys), *sizes, *self._shape, subject, b"")
        return SecureSession(terms, keys)

    @property
    def _shape(self) -> tuple[int, int]:
        if self.release is None:
            return SHAPE
        asked = self.release
        bounds = asked.privacy.bounds(1, 1, asked.intercept)
        layout = Layout(asked.privacy, bounds, asked.question.server_round)
        return layout.length + EXTRA_ROWS, PRIVATE_WORDS

    def share(self, session: SecureSession, k: int, **lies: Any) -> bool:
        keys, others = session.keys_for(str(k))
        terms = replace(session.terms, **lies.get("terms", {}))
        request = AskShares(terms, lies.get("keys", keys), lies.get("others", others))
        entries = self.clients[k].ask(request)
        if entries is not None:
            self.witness.saw_shares(self.clients[k])
            session.add_entries(str(k), entries)
        return entries is not None

    def mask(self, session: SecureSession, k: int, **lies: Any) -> bool:
        present, boxes = session.boxes_for(str(k))
        request = AskMasked(
            lies.get("name", session.terms.session),
            lies.get("present", present),
            lies.get("boxes", boxes),
            lies.get("release", self.release),
        )
        words = self.clients[k].ask(request)
        if words is not None:
            self.witness.saw_masked(self.clients[k], session.keys[str(k)].mask)
            if str(k) not in session.delivered:
                session.add_masked(str(k), words)
        return words is not None

    def confirm(
        self, session: SecureSession, k: int, delivered: bytes | None = None
    ) -> Any:
        told = session.who_delivered() if delivered is None else delivered
        return self.clients[k].ask(AskConfirm(session.terms.session, told))

    def unmask(self, session: SecureSession, k: int, rows: np.ndarray) -> bool:
        client = self.clients[k]
        before = client.saved()
        shares = client.ask(AskUnmask(session.terms.session, rows))
        if shares is not None:
            self.witness.saw_unmask(session.keys[str(k)].mask, before)
        return shares is not None
