"""Attacks by which an independent reviewer broke an earlier version."""

from __future__ import annotations

from pathlib import Path

import pytest
from lying_server import LyingServer
from secure import Federation
from test_secure_lies import name_of, own_folders, rolled_back, sizes_of

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


# ---- steps that are answered twice --------------------------------------------------


def test_the_same_keys_are_shared_once(tmp_path: Path) -> None:
    """The site dies when its shares have left, and is asked again under other terms.

    In the one sum its neighbours reveal its mask key, in the other one its seed.
    """
    server = LyingServer(7, folders=own_folders(tmp_path, 7))
    keys = server.keys(name_of(1), list(range(7)))
    one, two = (
        server.session(name_of(1), {str(k): keys[str(k)] for k in those}, sizes_of(4))
        for those in ((0, 1, 2, 3), (0, 4, 5, 6))
    )
    site = server.clients[0]
    saved = site.saved()
    assert server.share(one, 0)
    site.roll_back(saved)
    assert not server.share(two, 0)
    assert site.refusals == [
        'this site has answered "secure-shares" in this run or sum, and does not do so '
        "again."
    ]


def test_two_runs_with_one_memory_are_not_two_sums(tmp_path: Path) -> None:
    """Flower's memory is of a series of runs: each step would be answered in both."""
    server = LyingServer(5, folders=own_folders(tmp_path, 5))
    assert rolled_back(server, runs=(1, 2)) == 0
    assert server.witness.check(3) == 1
    assert 'answered "secure-confirm"' in server.clients[1].refusals[0]


def test_without_a_place_on_disk_two_runs_get_both_secrets() -> None:
    """What the documents say: why sites need `state`."""
    server = LyingServer(5)
    assert rolled_back(server, runs=(1, 2)) == 4
    assert server.witness.both_secrets() == [0]
