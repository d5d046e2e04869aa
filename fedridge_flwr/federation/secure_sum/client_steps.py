"""A client's five answers: from what it remembers and what it is sent, or a refusal.

Each step returns what to remember next beside the answer. A step is taken once: what
comes out of order, or a second time, is refused, and a step that was refused ends the
sum for this client. Its numbers enter one sum of a run or, in a private fit of several
rounds, one sum of each round, with new keys each. Of every neighbour at most one of two
secrets is revealed, by one list of those that delivered, which a threshold of
neighbours has confirmed to this client.
"""

import hashlib
import hmac
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
from .graph import in_order, window
from .keys import PAIR, SECRET, PublicKeys, agree, new_secret, private_key, public_key
from .masks import add_pair_masks, own_mask
from .shares import TAG, split, tag
from .terms import FINGERPRINT, SESSION, Terms

KEYS_DUE, SHARES_DUE, MASKED_DUE, CONFIRM_DUE, UNMASK_DUE, COMPLETED = range(1, 7)
_STEPS = {
    KEYS_DUE: "keys",
    SHARES_DUE: "shares",
    MASKED_DUE: "masked numbers",
    CONFIRM_DUE: "confirmations",
    UNMASK_DUE: "unmasking",
    COMPLETED: "nothing more",
}

MOST_SUMS = 3
"""So many sums a client begins in a run, or in each round of a private fit.

Each refusal tells the server something.
"""

SHARES = 2 * SECRET
BOX = SHARES + 16
ENTRY = BOX + 2 * TAG
"""Bytes of two shares, of a box with them, and of a box with the tags of the shares."""

CONFIRMATION = 16
"""Bytes by which one client confirms to another what it was told."""

_NONCE = bytes(12)


@dataclass(frozen=True)
class ClientState:
    """What a client remembers between two exchanges: numbers and bytes only.

    The secrets are forgotten as soon as they are not needed any more. Where noise is
    divided among clients, `least` of them must be in the sum, of which `colluding` may
    side with the server; everybody must then see everybody. The sum is of the round
    `number` of a private `fit`; exact numbers have no fit and one sum.
    """

    stage: int
    session: bytes
    begun: int = 0
    mask_secret: bytes = b""
    box_secret: bytes = b""
    seed: bytes = b""
    terms: bytes = b""
    rank: int = 0
    keys: bytes = b""
    shares: bytes = b""
    present: bytes = b""
    delivered: bytes = b""
    confirmations: bytes = b""
    least: int = 0
    colluding: int = 0
    fit: str = ""
    number: int = 1

    @property
    def agreed(self) -> Terms:
        """The terms of the session."""
        return Terms.unpack(self.terms)

    @property
    def near(self) -> list[int]:
        """The places of its neighbours among all clients, its own among them."""
        return window(self.rank, self.agreed.clients, self.agreed.neighbours)

    @property
    def place(self) -> int:
        """Its place among its neighbours."""
        return self.near.index(self.rank)

    def neighbour(self, place: int) -> PublicKeys:
        """Return the public keys of one neighbour."""
        return PublicKeys.unpack(self.keys[place * PAIR : (place + 1) * PAIR])

    def ended(self, stage: int) -> "ClientState":
        """Return what is left of a sum: which one it was, and no secret."""
        kept = self.session, self.begun
        return ClientState(stage, *kept, fit=self.fit, number=self.number)

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


def enter(
    before: ClientState | None,
    stage: int,
    session: bytes,
    fit: str = "",
    number: int = 1,
) -> ClientState:
    """Return what is remembered of a step from the moment it is asked for.

    If the step fails, that remains: it is not taken a second time. Once a client was
    asked for its numbers, it takes part in no other sum of the same run: the difference
    of two sums over other clients would be about few of them. Only the next round of
    the same private `fit` may follow, which asks something else, with new noise.
    """
    if stage != KEYS_DUE:
        if before is None:
            raise ProtocolError("this client has sent no keys for a secure sum yet.")
        before.expect(stage, session)
        return before.ended(KEYS_DUE if stage == SHARES_DUE else COMPLETED)
    before = before or ClientState(KEYS_DUE, b"")
    if len(session) != SESSION:
        raise ProtocolError(f"a secure sum has a name of {SESSION} bytes.")
    taken = before.stage > MASKED_DUE
    if taken and number <= before.number:
        raise ProtocolError(
            "this client has taken part in a secure sum of this run, or of this round, "
            "and does so only once: the difference of two sums could tell a single "
            "client. Start another run."
        )
    other = number > 1 and fit != before.fit
    if number != before.number + taken or other:
        raise ProtocolError(
            "the rounds of one private fit follow one another, and this is not the "
            "next one for this client."
        )
    if before.session == session:
        raise ProtocolError("this client has sent its keys for this secure sum.")
    begun = 0 if taken else before.begun
    if begun == MOST_SUMS:
        raise ProtocolError(
            f"this client was asked to begin {MOST_SUMS} secure sums in this run, and "
            "begins no more: start a new run."
        )
    return ClientState(KEYS_DUE, session, begun + 1, fit=fit, number=number)


def advertise(
    state: ClientState,
    identity: Ed25519PrivateKey | None = None,
    least: int = 0,
    colluding: int = 0,
) -> tuple[ClientState, bytes]:
    """Return new public keys for a sum that was begun, signed if it has an identity."""
    state = replace(
        state,
        stage=SHARES_DUE,
        mask_secret=new_secret(),
        box_secret=new_secret(),
        least=least,
        colluding=colluding,
    )
    keys = _own_keys(state)
    if identity is not None:
        keys = keys.signed(identity, state.session)
    return state, keys.pack()


def share(
    state: ClientState,
    terms: Terms,
    keys: Sequence[bytes],
    others: Sequence[bytes],
    min_clients: int,
    roster: Collection[bytes] = (),
) -> tuple[ClientState, NDArray[np.uint8]]:
    """Return a box for each neighbour: a share of the mask key and one of the seed.

    `keys` are those of the neighbours, `others` the fingerprints of all other clients.
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
    rank = _find(state, terms, neighbours, others)
    if roster:
        _check_roster(neighbours, terms.session, roster)
    state = replace(
        state,
        stage=MASKED_DUE,
        seed=new_secret(),
        terms=terms.pack(),
        rank=rank,
        keys=b"".join(each.mask + each.box for each in neighbours),
    )
    number, place, context = terms.neighbours, state.place, terms.context
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
            key = _pair_key(state, private, place, other, b"box")
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

    `present` says of all clients whether they have sent boxes; `boxes` has those of the
    neighbours in its rows. `numbers` is called when all is in order, and not before.
    """
    state.expect(MASKED_DUE, session)
    terms = state.agreed
    _check_flags(present, state, min_clients, "sent shares")
    if boxes.dtype != np.uint8 or boxes.shape != (terms.neighbours, BOX):
        raise ProtocolError("the boxes are not one for each neighbour.")
    shares, private, others = b"", private_key(state.box_secret), []
    for other, rank in enumerate(state.near):
        if rank == state.rank:
            shares += state.shares
        elif present[rank]:
            shares += _opened(state, private, other, boxes[other].tobytes())
            others.append(state.neighbour(other).mask)
        else:
            shares += bytes(SHARES)
    words = numbers()
    if words.dtype != np.uint64 or words.shape != terms.shape:
        raise ProtocolError(
            f"the terms are about numbers of shape {terms.shape}, this client has "
            f"{words.shape}."
        )
    own, context = public_key(state.mask_secret), terms.context
    words = add(words, own_mask(state.seed, context, terms.shape))
    words = add_pair_masks(words, state.mask_secret, own, others, context)
    state = replace(
        state,
        stage=CONFIRM_DUE,
        mask_secret=b"",
        seed=b"",
        shares=shares,
        present=present,
    )
    return state, words


def confirm(
    state: ClientState, session: bytes, delivered: bytes, min_clients: int
) -> tuple[ClientState, NDArray[np.uint8]]:
    """Return for each neighbour what confirms the two lists that this client was told.

    They are of all clients: who sent boxes, and who delivered. Only the two of them can
    derive a confirmation, from the same lists: those that come back are known here.
    """
    state.expect(CONFIRM_DUE, session)
    _check_flags(delivered, state, min_clients, "delivered")
    if any(d > p for d, p in zip(delivered, state.present, strict=True)):
        raise ProtocolError("a client that took no part is said to have delivered.")
    lists = b"confirm" + _lists_hash(state.present, delivered)
    private, place = private_key(state.box_secret), state.place

    def between(sender: int, receiver: int) -> bytes:
        return _pair_key(state, private, sender, receiver, lists)[:CONFIRMATION]

    others = range(len(state.near))
    sent = [between(place, other) for other in others]
    expected = [between(other, place) for other in others]
    after = replace(
        state,
        stage=UNMASK_DUE,
        box_secret=b"",
        keys=b"",
        delivered=delivered,
        confirmations=b"".join(expected),
    )
    return after, as_rows(sent, CONFIRMATION)


def unmask(
    state: ClientState, session: bytes, confirmations: NDArray[np.uint8]
) -> tuple[ClientState, NDArray[np.uint8]]:
    """Return one share of each neighbour: of the seed if it delivered, else of its key.

    At least a threshold of neighbours, itself among them, must have confirmed the lists
    that it was told. Nothing is remembered but that it was done.
    """
    state.expect(UNMASK_DUE, session)
    expected = np.frombuffer(state.confirmations, np.uint8).reshape(-1, CONFIRMATION)
    if confirmations.dtype != np.uint8 or confirmations.shape != expected.shape:
        raise ProtocolError("the confirmations are not one for each neighbour.")
    given = zip(confirmations, expected, strict=True)
    agreeing = sum(
        hmac.compare_digest(told.tobytes(), own.tobytes()) for told, own in given
    )
    if agreeing < state.agreed.threshold:
        raise ProtocolError(
            f"only {agreeing} of the neighbours confirm to this client who delivered, "
            f"and {state.agreed.threshold} are needed: no masks are taken off."
        )
    rows = []
    for other, rank in enumerate(state.near):
        both = state.shares[other * SHARES : (other + 1) * SHARES]
        rows.append(both[SECRET:] if state.delivered[rank] else both[:SECRET])
    return state.ended(COMPLETED), as_rows(rows, SECRET)


def as_rows(rows: Sequence[bytes], width: int) -> NDArray[np.uint8]:
    """Return byte strings of one length as the rows of an array."""
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), width)


def _own_keys(state: ClientState) -> PublicKeys:
    return PublicKeys(public_key(state.mask_secret), public_key(state.box_secret))


def _find(
    state: ClientState,
    terms: Terms,
    neighbours: Sequence[PublicKeys],
    others: Sequence[bytes],
) -> int:
    """Return the place of this client among all, whose keys the terms commit to."""
    sizes = terms.neighbours, terms.clients - terms.neighbours
    if (len(neighbours), len(others)) != sizes or any(
        len(each) != FINGERPRINT for each in others
    ):
        raise ProtocolError(
            f"the server sends keys of {counted(len(neighbours), 'neighbour')} and "
            f"{len(others)} others, the terms say {terms.neighbours} of "
            f"{terms.clients}."
        )
    near = [each.fingerprint for each in neighbours]
    everybody = [*near, *others]
    keys = {key for each in neighbours for key in (each.mask, each.box)}
    if len(keys) != 2 * len(near) or len(set(everybody)) != len(everybody):
        raise ProtocolError("the keys of the clients are not all different.")
    own = _own_keys(state).fingerprint
    if own not in near:
        raise ProtocolError("the keys of this client are not among those of the sum.")
    commitment, ring = in_order(everybody)
    rank = ring.index(own)
    places = window(rank, terms.clients, terms.neighbours)
    if commitment != terms.members or [ring[place] for place in places] != near:
        raise ProtocolError(
            "the neighbours are not those that follow from the keys of all clients."
        )
    return rank


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


def _check_flags(flags: bytes, state: ClientState, min_clients: int, what: str) -> None:
    """Refuse a list of all clients that is none, or has too few of them."""
    number, needed = state.agreed.clients, max(min_clients, state.least)
    if type(flags) is not bytes or len(flags) != number or max(flags) > 1:
        raise ProtocolError(
            f"the server must say of each of {counted(number, 'client')} whether it "
            f"{what} or not."
        )
    if not flags[state.rank]:
        raise ProtocolError(f"the server says that this client has not {what}.")
    if sum(flags) < needed:
        raise ProtocolError(
            f"only {sum(flags)} clients have {what}, and {needed} are needed."
        )
    near, threshold = sum(flags[rank] for rank in state.near), state.agreed.threshold
    if near < threshold:
        raise ProtocolError(
            f"only {near} neighbours have {what}, and {threshold} are needed."
        )


def _lists_hash(present: bytes, delivered: bytes) -> bytes:
    """Return the hash of two lists of equal length."""
    return hashlib.sha256(present + delivered).digest()


def _pair_key(
    state: ClientState,
    private: X25519PrivateKey,
    sender: int,
    receiver: int,
    purpose: bytes,
) -> bytes:
    """Return the key of two clients for one purpose and one direction."""
    other = receiver if sender == state.place else sender
    ends = state.neighbour(sender).box + state.neighbour(receiver).box
    return agree(
        private, state.neighbour(other).box, purpose + state.agreed.context + ends
    )


def _opened(
    state: ClientState, private: X25519PrivateKey, sender: int, box: bytes
) -> bytes:
    try:
        key = _pair_key(state, private, sender, state.place, b"box")
        return AESGCM(key).decrypt(_NONCE, box, None)
    except InvalidTag:
        raise ProtocolError(
            f"the box of neighbour {sender + 1} cannot be opened."
        ) from None
