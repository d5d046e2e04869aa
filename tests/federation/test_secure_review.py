"""Attacks by which an independent reviewer broke an earlier version."""

from __future__ import annotations

import pytest
from secure import Federation

from fedridge_flwr.federation.secure_sum import client_steps as steps
from fedridge_flwr.federation.secure_sum import masks
from fedridge_flwr.federation.secure_sum.keys import (
    PublicKeys,
    agree,
    new_secret,
    private_key,
)
from fedridge_flwr.federation.secure_sum.server_steps import SecureSession
from fedridge_flwr.linalg.limbs import subtract

PRIME = 2**255 - 19


# ---- keys that are the same to X25519 -----------------------------------------------


def same_key(public: bytes) -> bytes:
    """Return other bytes with which all secrets agree alike.

    Plus the point of order two, u becomes 1/u; private keys are multiples of eight.
    """
    u = int.from_bytes(public, "little") % 2**255
    return pow(u, -1, PRIME).to_bytes(32, "little")


def test_x25519_does_not_tell_such_keys_apart() -> None:
    """The premise of the attack, so that the next test is about something."""
    ours, public = private_key(new_secret()), private_key(new_secret()).public_key()
    sent = public.public_bytes_raw()
    for other in (same_key(sent), sent[:31] + bytes([sent[31] | 128])):
        assert other != sent
        assert agree(ours, other, b"mask") == agree(ours, sent, b"mask")


def with_colluder() -> Federation:
    """Return four clients on a roster; to c0, the key of c3 is that of c1, opposite."""
    while True:
        federation = Federation.of(4).with_roster()
        federation.advertise()
        victim, near = (federation.keys[client].mask for client in ("c0", "c1"))
        if (same_key(near) > victim) != (near > victim):
            break
    evil = PublicKeys(same_key(near), federation.keys["c3"].box)
    session = federation.session.terms
    federation.keys["c3"] = evil.signed(federation.identities["c3"], session.session)
    federation.session = SecureSession(session, federation.keys)
    for client in ("c0", "c1", "c2"):
        federation.session.add_entries(client, federation.share(client))
    with pytest.MonkeyPatch.context() as patch:  # c3 has no secret of its mask key
        patch.setattr(steps, "_own_keys", lambda state: evil)
        federation.session.add_entries("c3", federation.share("c3"))
    return federation


def test_masks_with_two_keys_that_are_the_same_do_not_cancel() -> None:
    """All that is left of the victim's masks is its own, which is taken off."""
    federation = with_colluder()
    state, terms = federation.states["c0"], federation.session.terms
    present = bytes(client != "c2" for client in federation.session.ring)
    sent = federation.mask("c0", present=present)
    own = masks.own_mask(state.seed, terms.context, terms.shape)
    assert (subtract(sent, own) != federation.values["c0"]).all()
