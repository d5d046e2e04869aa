"""The server's side of a secure sum: who is asked what, and the masks taken off."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ..._text import counted
from ...errors import NotEnoughClientsError, ProtocolError
from ...linalg.limbs import Words, add, subtract
from .client_steps import BOX, CONFIRMATION, ENTRY, as_rows
from .graph import in_order, window
from .keys import PAIR, SECRET, SIGNED, PublicKeys, public_key
from .masks import add_pair_masks, own_mask
from .shares import TAG, combine, tag
from .terms import Terms

_NEIGHBOUR = re.compile(r"neighbour (\d{1,6})\b")


@dataclass
class SecureSession:
    """One secure sum as the server sees it.

    Parameters
    ----------
    terms : Terms
        What all clients are told; the commitment to their keys is entered here.
    keys : mapping of str to PublicKeys
        The public keys of the clients that take part.
    """

    terms: Terms
    keys: Mapping[str, PublicKeys]
    entries: dict[str, NDArray[np.uint8]] = field(default_factory=dict)
    delivered: list[str] = field(default_factory=list)
    confirmed: dict[str, NDArray[np.uint8]] = field(default_factory=dict)
    _total: Words | None = None
    _shares: dict[str, dict[int, bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Put the clients in order, and commit to their keys."""
        by_print = {each.fingerprint: client for client, each in self.keys.items()}
        members, ring = in_order(by_print)
        self.ring = [by_print[each] for each in ring]
        self.terms = replace(self.terms, members=members)
        sizes = self.terms.clients, self.terms.neighbours
        self.near = {
            client: [self.ring[place] for place in window(rank, *sizes)]
            for rank, client in enumerate(self.ring)
        }

    def keys_for(self, client: str) -> tuple[NDArray[np.uint8], list[bytes]]:
        """Return the keys of a client's neighbours, and fingerprints of all others."""
        near = self.near[client]
        keys = [self.keys[each] for each in near]
        # Signatures are of use only if everybody has one.
        width = SIGNED if all(each.signature for each in keys) else PAIR
        others = [self.keys[each].fingerprint for each in set(self.ring) - set(near)]
        return as_rows([each.pack()[:width] for each in keys], width), others

    def add_entries(self, client: str, entries: NDArray[np.uint8]) -> None:
        """Take the boxes that a client has for its neighbours."""
        self.entries[client] = check_rows_of_bytes(
            entries, len(self.near[client]), ENTRY
        )

    @property
    def members(self) -> list[str]:
        """Clients that have sent boxes."""
        return list(self.entries)

    def boxes_for(self, client: str) -> tuple[bytes, NDArray[np.uint8]]:
        """Return who of all clients has sent boxes, and those for this client."""
        rows = [
            self.entries[each][self._place(each, client), :BOX].tobytes()
            if each in self.entries and each != client
            else bytes(BOX)
            for each in self.near[client]
        ]
        return self._flags(self.entries), as_rows(rows, BOX)

    def add_masked(self, client: str, words: Words) -> None:
        """Add a client's masked numbers to the total."""
        if words.dtype != np.uint64 or words.shape != self.terms.shape:
            raise ProtocolError(
                f"sent masked numbers of shape {words.shape} and {words.dtype}, "
                f"expected {self.terms.shape} and uint64."
            )
        self._total = words if self._total is None else add(self._total, words)
        self.delivered.append(client)

    def who_delivered(self) -> bytes:
        """Return who of all clients has delivered."""
        return self._flags(self.delivered)

    def add_confirmations(self, client: str, rows: NDArray[np.uint8]) -> None:
        """Take what a client confirms to its neighbours."""
        number = len(self.near[client])
        self.confirmed[client] = check_rows_of_bytes(rows, number, CONFIRMATION)

    def confirmations_for(self, client: str) -> NDArray[np.uint8]:
        """Return what the neighbours of a client confirm to it."""
        rows = [
            self.confirmed[each][self._place(each, client)].tobytes()
            if each in self.confirmed
            else bytes(CONFIRMATION)
            for each in self.near[client]
        ]
        return as_rows(rows, CONFIRMATION)

    def add_shares(self, client: str, shares: NDArray[np.uint8]) -> None:
        """Take a client's shares; those that are not what was dealt are left out."""
        near = self.near[client]
        shares = check_rows_of_bytes(shares, len(near), SECRET)
        delivered, context = set(self.delivered), self.terms.context
        for owner, row in zip(near, shares, strict=True):
            if owner in self.entries:
                place, given = self._place(owner, client), row.tobytes()
                start = BOX + (TAG if owner in delivered else 0)
                dealt = self.entries[owner][place, start : start + TAG].tobytes()
                if tag(given, context) == dealt:
                    self._shares.setdefault(owner, {})[place + 1] = given

    def name_neighbour(self, client: str, reason: str) -> str:
        """Return a client's reason with the name of the neighbour it is about.

        Clients know their neighbours by number only.
        """
        found = _NEIGHBOUR.search(reason)
        near = self.near.get(client, [])
        if found is None or not 0 < int(found[1]) <= len(near):
            return reason
        name = f"{found[0]} (client {near[int(found[1]) - 1]})"
        return reason.replace(found[0], name, 1)

    def total(self) -> Words:
        """Return the sum of what was delivered, with all masks taken off.

        Raises
        ------
        NotEnoughClientsError
            If too few shares of some client are there; nothing is released.
        """
        if self._total is None:
            raise NotEnoughClientsError("no client has delivered.")
        secrets = {owner: self._secret(owner) for owner in self.entries}
        total, context, shape = self._total, self.terms.context, self.terms.shape
        delivered = set(self.delivered)
        for owner, secret in secrets.items():
            if owner in delivered:
                total = subtract(total, own_mask(secret, context, shape))
                continue
            own = self.keys[owner].mask
            if public_key(secret) != own:
                raise ProtocolError(f"client {owner}: its shares are not of its key.")
            # What the neighbours added and it did not take off again.
            others = [self.keys[n].mask for n in self.near[owner] if n in delivered]
            total = add_pair_masks(total, secret, own, others, context)
        return total

    def _secret(self, owner: str) -> bytes:
        shares, needed = self._shares.get(owner, {}), self.terms.threshold
        if len(shares) < needed:
            raise NotEnoughClientsError(
                f"{counted(len(shares), 'valid share')} of client {owner}, {needed} "
                "needed: the masks cannot be taken off, and nothing is released."
            )
        return combine(shares, needed)

    def _flags(self, those: Collection[str]) -> bytes:
        inside = set(those)
        return bytes(each in inside for each in self.ring)

    def _place(self, owner: str, client: str) -> int:
        return self.near[owner].index(client)


def check_rows_of_bytes(
    rows: NDArray[np.uint8], number: int, width: int
) -> NDArray[np.uint8]:
    """Return an array of so many rows of bytes, or raise what is wrong with it."""
    if rows.dtype != np.uint8 or rows.shape != (number, width):
        raise ProtocolError(
            f"sent an array of shape {rows.shape} and {rows.dtype}, expected "
            f"{(number, width)} and uint8."
        )
    return rows
