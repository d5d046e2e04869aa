"""A client's four answers: from what it remembers and what it is sent, or a refusal.

Each step returns what to remember next beside the answer. A step is taken once: what
comes out of order, or a second time, is refused. Of every neighbour at most one of two
secrets is revealed, and only once, because the server says of each neighbour in one
byte whether it delivered.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from ..._text import counted
from ...errors import ProtocolError
from ...linalg.limbs import Words, add
from .keys import (
    PAIR,
    SECRET,
    PublicKeys,
    agree,
    new_secret,
    private_key,
    public_key,
)
from .masks import add_pair_masks, own_mask
from .shares import TAG, split, tag
from .terms import SESSION, Terms

SHARES_DUE, MASKED_DUE, UNMASK_DUE, COMPLETED = range(2, 6)
_STEPS = {2: "shares", 3: "masked numbers", 4: "unmasking", 5: "nothing more"}

SHARES = 2 * SECRET
BOX = SHARES + 16
ENTRY = BOX + 2 * TAG
"""Bytes of two shares, of a box with them, and of a box with the tags of the shares."""

_NONCE = bytes(12)


@dataclass(frozen=True)
class ClientState:
    """What a client remembers between two exchanges: numbers and bytes only.

    The secrets are forgotten as soon as they are not needed any more. Where noise is
    divided among clients, `least` of them must be in the sum, of which `colluding` may
    side with the server; everybody must then see everybody.
    """

    stage: int
    session: bytes
    mask_secret: bytes = b""
    box_secret: bytes = b""
    seed: bytes = b""
    terms: bytes = b""
    place: int = 0
    keys: bytes = b""
    shares: bytes = b""
    present: bytes = b""
    least: int = 0
    colluding: int = 0

    @property
    def agreed(self) -> Terms:
        """The terms of the session."""
        return Terms.unpack(self.terms)

    def neighbour(self, place: int) -> PublicKeys:
        """Return the public keys of one neighbour."""
        return PublicKeys.unpack(self.keys[place * PAIR : (place + 1) * PAIR])

    def expect(self, stage: int, session: bytes) -> None:
        """Refuse a step that is not due."""
        if session != self.session:
            raise ProtocolError(
                "this is about another secure sum than the one that this client takes "
                "part in."
            )
        if stage != self.stage:
            raise ProtocolError(
                f"the server asks for {_STEPS[stage]} where {_STEPS[self.stage]} is "
                "due: every step of a secure sum is answered once."
            )


def advertise(
    before: ClientState | None,
    session: bytes,
    identity: Ed25519PrivateKey | None = None,
    least: int = 0,
    colluding: int = 0,
) -> tuple[ClientState, bytes]:
    """Return new public keys for a session, signed if there is an identity.

    A client that has unmasked a sum takes part in no other one of the same run: the
    difference of two sums over other clients would be about few of them.
    """
    if len(session) != SESSION:
        raise ProtocolError(f"a secure sum has a name of {SESSION} bytes.")
    if before is not None and before.stage == COMPLETED:
        raise ProtocolError(
            "this client has taken part in a secure sum of this run, and does so only "
            "once: the difference of two sums could tell a single client."
        )
    if before is not None and before.session == session:
        raise ProtocolError("this client has sent its keys for this secure sum.")
    state = ClientState(
        SHARES_DUE,
        session,
        new_secret(),
        new_secret(),
        least=least,
        colluding=colluding,
    )
    keys = _own_keys(state)
    if identity is not None:
        keys = keys.signed(identity, session)
    return state, keys.pack()


def share(
    state: ClientState,
    terms: Terms,
    keys: Sequence[bytes],
    min_clients: int,
    roster: Collection[bytes] = (),
) -> tuple[ClientState, NDArray[np.uint8]]:
    """Return a box for each neighbour: a share of the mask key and one of the seed.

    Every row has the box and the tags of both shares; the box of its own is empty.
    """
    state.expect(SHARES_DUE, terms.session)
    terms.check(max(min_clients, state.least), state.colluding)
    if state.least and terms.neighbours != terms.clients:
        raise ProtocolError(
            "with a part of the noise every client must see all others, and the server "
            f"shows {terms.neighbours} of {terms.clients}."
        )
    neighbours = [PublicKeys.unpack(each) for each in keys]
    place = _find(state, terms, neighbours)
    if roster:
        if terms.neighbours != terms.clients:
            raise ProtocolError(
                "with a roster every client must see all others, and the server shows "
                f"{terms.neighbours} of {terms.clients}: use "
                "SecureSum(neighbours=None) with at most 40 clients."
            )
        _check_roster(neighbours, terms.session, roster)
    state = replace(
        state,
        stage=MASKED_DUE,
        seed=new_secret(),
        terms=terms.pack(),
        place=place,
        keys=b"".join(each.mask + each.box for each in neighbours),
    )
    number, context = terms.neighbours, terms.context
    shares = [
        mask_share + seed_share
        for mask_share, seed_share in zip(
            split(state.mask_secret, terms.threshold, number),
            split(state.seed, terms.threshold, number),
            strict=True,
        )
    ]
    rows, private = [], private_key(state.box_secret)
    for other, both in enumerate(shares):
        box = bytes(BOX)
        if other != place:
            key = _box_key(state, private, place, other)
            box = AESGCM(key).encrypt(_NONCE, both, None)
        tags = tag(both[:SECRET], context) + tag(both[SECRET:], context)
        rows.append(box + tags)
    return replace(state, shares=shares[place]), as_rows(rows, ENTRY)


def mask(
    state: ClientState,
    session: bytes,
    present: bytes,
    boxes: NDArray[np.uint8],
    numbers: Callable[[], Words],
    min_clients: int,
) -> tuple[ClientState, Words]:
    """Return ``numbers + own mask + sum of +-pair masks`` modulo 2^(64 L).

    `present` says which neighbours have sent boxes; `boxes` has theirs in its rows.
    `numbers` is called when all is in order, and not before.
    """
    state.expect(MASKED_DUE, session)
    terms = state.agreed
    _check_flags(present, terms.neighbours, "sent boxes")
    _check_number(present, state, min_clients, "sent shares")
    if boxes.dtype != np.uint8 or boxes.shape != (terms.neighbours, BOX):
        raise ProtocolError("the boxes are not one for each neighbour.")
    shares, private = b"", private_key(state.box_secret)
    for other, sent in enumerate(present):
        if other == state.place:
            shares += state.shares
        else:
            box = boxes[other].tobytes()
            shares += _opened(state, private, other, box) if sent else bytes(SHARES)
    others = [
        state.neighbour(other).mask
        for other, sent in enumerate(present)
        if sent and other != state.place
    ]
    words = numbers()
    if words.dtype != np.uint64 or words.shape != terms.shape:
        raise ProtocolError(
            f"the terms are about numbers of shape {terms.shape}, this client has "
            f"{words.shape}."
        )
    own, context = public_key(state.mask_secret), terms.context
    words = add(words, own_mask(state.seed, context, terms.shape))
    words = add_pair_masks(words, state.mask_secret, own, others, context)
    state = ClientState(
        UNMASK_DUE,
        session,
        terms=state.terms,
        place=state.place,
        shares=shares,
        present=present,
        least=state.least,
    )
    return state, words


def unmask(
    state: ClientState, session: bytes, delivered: bytes, min_clients: int
) -> tuple[ClientState, NDArray[np.uint8]]:
    """Return one share of each neighbour: of the seed if it delivered, else of its key.

    Nothing is remembered but that it was done.
    """
    state.expect(UNMASK_DUE, session)
    terms = state.agreed
    _check_flags(delivered, terms.neighbours, "delivered")
    if any(d > p for d, p in zip(delivered, state.present, strict=True)):
        raise ProtocolError(
            "a neighbour is said to have delivered that did not take part."
        )
    _check_number(delivered, state, min_clients, "delivered")
    rows = []
    for other, sent in enumerate(delivered):
        both = state.shares[other * SHARES : (other + 1) * SHARES]
        rows.append(both[SECRET:] if sent else both[:SECRET])
    return ClientState(COMPLETED, session), as_rows(rows, SECRET)


def as_rows(rows: Sequence[bytes], width: int) -> NDArray[np.uint8]:
    """Return byte strings of one length as the rows of an array."""
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), width)


def _own_keys(state: ClientState) -> PublicKeys:
    return PublicKeys(public_key(state.mask_secret), public_key(state.box_secret))


def _find(state: ClientState, terms: Terms, neighbours: Sequence[PublicKeys]) -> int:
    """Return where this client is among its neighbours, all of whom are distinct."""
    if len(neighbours) != terms.neighbours:
        raise ProtocolError(
            f"the server sends keys of {counted(len(neighbours), 'neighbour')}, the "
            f"terms say {terms.neighbours}."
        )
    if len({key for each in neighbours for key in (each.mask, each.box)}) != (
        2 * len(neighbours)
    ):
        raise ProtocolError("the keys of the neighbours are not all different.")
    own = _own_keys(state)
    for place, each in enumerate(neighbours):
        if (each.mask, each.box) == (own.mask, own.box):
            return place
    raise ProtocolError("the keys of this client are not among those of the sum.")


def _check_roster(
    neighbours: Sequence[PublicKeys], session: bytes, roster: Collection[bytes]
) -> None:
    seen = set()
    for place, each in enumerate(neighbours):
        if each.identity not in roster or not each.is_signed_for(session):
            _not_on_roster(place)
        seen.add(each.identity)
    if len(seen) < len(neighbours):
        raise ProtocolError("two neighbours have the same identity on the roster.")


def _not_on_roster(place: int) -> NoReturn:
    raise ProtocolError(
        f"the keys of neighbour {place + 1} are not signed by anybody on the roster of "
        "this client."
    )


def _check_flags(flags: bytes, number: int, what: str) -> None:
    if type(flags) is not bytes or len(flags) != number or max(flags, default=0) > 1:
        raise ProtocolError(
            f"the server must say of each of {counted(number, 'neighbour')} whether it "
            f"{what} or not."
        )


def _check_number(
    flags: bytes, state: ClientState, min_clients: int, what: str
) -> None:
    if not flags[state.place]:
        raise ProtocolError(f"the server says that this client has not {what}.")
    needed = max(state.agreed.threshold, min_clients, state.least)
    if sum(flags) < needed:
        raise ProtocolError(
            f"only {sum(flags)} neighbours have {what}, and {needed} are needed."
        )


def _box_key(
    state: ClientState, private: X25519PrivateKey, sender: int, receiver: int
) -> bytes:
    """Return the key of the one box from a sender to a receiver."""
    other = receiver if sender == state.place else sender
    ends = state.neighbour(sender).box + state.neighbour(receiver).box
    purpose = b"box" + state.agreed.context + ends
    return agree(private, state.neighbour(other).box, purpose)


def _opened(
    state: ClientState, private: X25519PrivateKey, sender: int, box: bytes
) -> bytes:
    try:
        key = _box_key(state, private, sender, state.place)
        return AESGCM(key).decrypt(_NONCE, box, None)
    except InvalidTag:
        raise ProtocolError(
            f"the box of neighbour {sender + 1} cannot be opened."
        ) from None
