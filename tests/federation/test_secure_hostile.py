"""What a lying server, or a broken client, gets out of a client: nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from secure import Federation, at_masked, random_words

from fedridge_flwr import PolicyError, ProtocolError, SecurePolicy, SecureSum
from fedridge_flwr.federation.secure_sum import client_steps as steps
from fedridge_flwr.federation.secure_sum.graph import smallest_sum
from fedridge_flwr.federation.secure_sum.identity import read_identity, read_roster
from fedridge_flwr.federation.secure_sum.keys import (
    PublicKeys,
    agree,
    new_secret,
    private_key,
    public_key,
)

EVERYBODY = b"\1\1\1\1\1"
LOW_ORDER = bytes(32)


def refused(what: Callable[[], object], words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        what()


# ---- keys and terms -----------------------------------------------------------------


def at_shares(clients: int = 5, **options: Any) -> Federation:
    found = Federation.of(clients, **options)
    found.advertise()
    return found


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"threshold": 2}, "not more than half"),
        ({"threshold": 6}, "contradict"),
        ({"clients": 2}, "takes part from 3"),
        ({"clients": 4}, "contradict"),
        ({"neighbours": 2, "threshold": 2}, "takes part from 3"),
        ({"neighbours": 3, "threshold": 3}, "keys of 5 neighbours"),
        ({"threshold": 3}, "not more than two thirds"),
        ({"session": b"another session!"}, "another secure sum"),
    ],
)
def test_terms_under_which_somebody_could_be_told_apart(
    change: dict[str, Any], words: str
) -> None:
    federation = at_shares()
    terms = replace(federation.session.terms, **change)
    refused(lambda: federation.share("c0", terms=terms), words)


def test_a_client_has_a_least_number_of_its_own() -> None:
    federation = at_shares(min_clients=6)
    refused(lambda: federation.share("c0"), "takes part from 6")


def test_its_own_keys_must_be_there_and_all_different() -> None:
    federation = at_shares()
    keys = federation.keys_for("c0")
    others = [*keys[1:], keys[1]]
    refused(lambda: federation.share("c0", keys=others), "not all different")
    fake = PublicKeys(public_key(new_secret()), public_key(new_secret())).pack()
    refused(lambda: federation.share("c0", keys=[fake, *keys[1:]]), "not among those")
    swapped = keys[1][:32] + keys[0][32:]
    refused(
        lambda: federation.share("c0", keys=[keys[0], swapped, *keys[2:]]),
        "not all different",
    )
    refused(lambda: federation.share("c0", keys=[k[:63] for k in keys]), "64 or 160")


def test_a_key_with_which_all_secrets_agree_alike_is_refused() -> None:
    federation = at_shares()
    keys = federation.keys_for("c0")
    keys[1] = keys[1][:32] + LOW_ORDER
    refused(lambda: federation.share("c0", keys=keys), "public key is not valid")
    with pytest.raises(ProtocolError):
        PublicKeys(LOW_ORDER, public_key(new_secret())).check()


def test_terms_told_to_some_clients_only_give_noise() -> None:
    """Masks depend on all terms: those that were told others do not cancel."""
    federation = at_shares()
    honest = federation.session.terms
    for client in federation.values:
        lie = replace(honest, subject=b"\1" * 32) if client == "c0" else honest
        federation.session.add_entries(client, federation.share(client, terms=lie))
    for client in ("c1", "c2"):  # the box of c0 is of other terms
        refused(lambda c=client: federation.mask(c), "cannot be opened")


# ---- the roster ---------------------------------------------------------------------


def test_a_sum_of_those_on_the_roster() -> None:
    federation = Federation.of(5).with_roster()
    assert (federation.run() == federation.expected).all()


def swapped_keys(federation: Federation, **change: Any) -> list[bytes]:
    keys = federation.keys_for("c0")
    known = PublicKeys.unpack(keys[3])
    return [*keys[:3], replace(known, **change).pack(), *keys[4:]]


def test_keys_that_the_server_swapped_are_refused_with_a_roster() -> None:
    federation = at_shares().with_roster()
    refused(lambda: federation.share("c0"), "neighbour 1 are not signed")
    federation = Federation.of(5).with_roster()
    federation.advertise()
    for name in ("mask", "box"):
        evil = swapped_keys(federation, **{name: public_key(new_secret())})
        refused(lambda e=evil: federation.share("c0", keys=e), "neighbour 4 are not")
    stranger = Ed25519PrivateKey.generate()
    mine = PublicKeys(public_key(new_secret()), public_key(new_secret()))
    mine = mine.signed(stranger, federation.session.terms.session)
    keys = [*federation.keys_for("c0")[:3], mine.pack(), federation.keys_for("c0")[4]]
    refused(lambda: federation.share("c0", keys=keys), "neighbour 4 are not")


def test_a_signature_is_of_one_session() -> None:
    federation = Federation.of(5).with_roster()
    federation.advertise()
    old = federation.keys["c3"]
    federation.states.clear()
    federation.advertise()
    federation.session.keys = {**federation.session.keys, "c3": old}
    refused(lambda: federation.share("c0"), "neighbour 4 are not signed")


def test_one_member_of_the_roster_is_one_neighbour() -> None:
    federation = Federation.of(5).with_roster()
    federation.identities["c4"] = federation.identities["c3"]
    federation.advertise()
    refused(lambda: federation.share("c0"), "same identity")


def test_without_a_roster_swapped_keys_are_not_noticed() -> None:
    """What the documents say: without a roster, honest-but-curious only."""
    federation = at_shares()
    evil = PublicKeys(public_key(new_secret()), public_key(new_secret())).pack()
    keys = federation.keys_for("c0")
    federation.share("c0", keys=[*keys[:3], evil, keys[4]])


def test_identities_and_rosters_are_read_from_files(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    other = Ed25519PrivateKey.generate()
    public = [
        each.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        for each in (key, other)
    ]
    (tmp_path / "site.pem").write_bytes(private)
    (tmp_path / "roster.pem").write_bytes(b"".join(public))
    policy = SecurePolicy(
        identity=tmp_path / "site.pem", roster=str(tmp_path / "roster.pem")
    )
    found, roster = policy.read_keys()
    assert found is not None
    assert found.private_bytes_raw() == key.private_bytes_raw()
    assert roster == {e.public_key().public_bytes_raw() for e in (key, other)}
    for file, read in (("site.pem", read_roster), ("roster.pem", read_identity)):
        with pytest.raises(PolicyError):
            read(tmp_path / file)
    with pytest.raises(PolicyError, match="cannot be read: No such file"):
        read_identity(tmp_path / "none.pem")


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_clients": 1},
        {"roster": [bytes(32)]},
        {"identity": b"short"},
        {"identity": bytes(32), "roster": [b"short"]},
        {"identity": bytes(32), "roster": []},
        {"identity": bytes(32), "roster": ["a" * 32]},
    ],
)
def test_policies_that_cannot_be_kept(wrong: dict[str, Any]) -> None:
    with pytest.raises(PolicyError):
        SecurePolicy(**wrong)


# ---- boxes and masked numbers -------------------------------------------------------


def test_no_box_is_for_anybody_else() -> None:
    federation = at_shares()
    federation.until_shares()
    present, boxes = federation.session.boxes_for("c0")
    wrong = boxes.copy()
    wrong[1] = boxes[2]
    refused(lambda: federation.mask("c0", boxes=wrong), "box of neighbour 2 cannot")
    _, for_other = federation.session.boxes_for("c1")
    refused(lambda: federation.mask("c0", boxes=for_other), "cannot be opened")
    assert federation.states["c0"].stage == steps.MASKED_DUE  # nothing was given away
    assert present == EVERYBODY


def test_a_key_encrypts_one_box() -> None:
    """The nonce is constant, so that no two boxes may have the same key."""
    used: list[bytes] = []

    def recorded(key: bytes) -> AESGCM:
        used.append(key)
        return AESGCM(key)

    federation = at_shares(4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "AESGCM", recorded)
        federation.until_shares()
        assert len(used) == len(set(used)) == 12
        federation.until_masked()
    assert len(set(used)) == 12


@pytest.mark.parametrize(
    ("present", "words"),
    [
        (b"\1\1\1\1", "each of 5 neighbours"),
        (b"\1\1\1\1\2", "each of 5 neighbours"),
        (b"\0\1\1\1\1", "this client has not"),
        (b"\1\1\1\0\0", "4 are needed"),
    ],
)
def test_too_few_shares_or_nonsense(present: bytes, words: str) -> None:
    federation = at_shares()
    federation.until_shares()
    refused(lambda: federation.mask("c0", present=present), words)


def test_numbers_of_another_shape_are_not_masked() -> None:
    federation = at_shares()
    federation.until_shares()
    for wrong in (random_words(9), np.zeros((10, 3)), random_words(10, 2)):
        refused(lambda w=wrong: federation.mask("c0", words=w), "of shape")


# ---- unmasking ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delivered", "words"),
    [
        (b"\1\1\1\1\2", "each of 5 neighbours"),
        (b"\1\1\1\1\1\1", "each of 5 neighbours"),
        (b"", "each of 5 neighbours"),
        (b"\0\1\1\1\1", "this client has not"),
        (b"\1\1\1\0\0", "4 are needed"),
    ],
)
def test_lists_that_overlap_are_incomplete_or_too_short(
    delivered: bytes, words: str
) -> None:
    federation = at_masked()
    refused(lambda: federation.unmask("c0", delivered=delivered), words)


def test_a_client_that_never_took_part_cannot_have_delivered() -> None:
    federation = Federation.of(5)
    federation.advertise()
    federation.until_shares({"c4"})
    federation.until_masked()
    refused(
        lambda: federation.unmask("c0", delivered=EVERYBODY), "that did not take part"
    )


def test_the_least_number_counts_at_unmask() -> None:
    federation = at_masked()
    federation.min_clients = 5
    refused(lambda: federation.unmask("c0", delivered=b"\1\1\1\1\0"), "5 are needed")


def test_a_sum_must_not_be_divisible_below_the_least_number() -> None:
    """Lists that differ from client to client can leave fewer in a sum than said."""
    federation = at_shares(20, min_clients=12)
    refused(lambda: federation.share("c0"), "could learn the sum of 11")


def test_with_a_roster_everybody_sees_everybody() -> None:
    federation = Federation.of(9, settings=SecureSum(neighbours=5)).with_roster()
    federation.advertise()
    refused(lambda: federation.share("c0"), "must see all others")


@pytest.mark.parametrize("clients", range(3, 41))
def test_no_lists_single_a_client_out_at_the_usual_threshold(clients: int) -> None:
    _, threshold = SecureSum().sizes(clients)
    assert smallest_sum(clients, threshold, 3) >= 3


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 1), min_size=7, max_size=7), st.data())
def test_never_both_secrets_of_anybody(flags: list[int], data: st.DataObject) -> None:
    """Whatever each client is told, fewer than a threshold of both kinds come out."""
    federation = at_masked(7)
    threshold = federation.session.terms.threshold
    seeds = dict.fromkeys(federation.values, 0)
    keys = dict.fromkeys(federation.values, 0)
    for client in federation.values:
        told = bytes(data.draw(st.permutations(flags)))
        try:
            federation.unmask(client, delivered=told)
        except ProtocolError:
            continue
        for owner, sent in zip(federation.session.near[client], told, strict=True):
            (seeds if sent else keys)[owner] += 1
    assert all(min(seeds[c], keys[c]) < threshold for c in federation.values)


def test_every_step_is_answered_once() -> None:
    federation = at_shares()
    federation.until_shares()
    refused(lambda: federation.share("c0"), "answered once")
    federation.until_masked()
    refused(lambda: federation.mask("c0"), "answered once")
    federation.until_unmasked()
    refused(lambda: federation.unmask("c0"), "answered once")


@pytest.mark.parametrize("step", ["mask", "unmask"])
def test_no_step_is_left_out(step: str) -> None:
    federation = at_shares()
    federation.session.entries = dict.fromkeys(
        federation.values, np.zeros((5, steps.ENTRY), np.uint8)
    )
    refused(lambda: getattr(federation, step)("c0"), "where shares is due")


def test_after_a_sum_there_is_no_second_one() -> None:
    federation = Federation.of(5)
    federation.run()
    refused(federation.advertise, "only once")


def test_after_a_sum_that_failed_there_may_be_another_and_the_first_is_dead() -> None:
    federation = at_masked()
    first = federation.session.terms.session
    federation.advertise()
    refused(lambda: federation.unmask("c0", session=first), "another secure sum")
    federation.until_shares()
    federation.until_masked()
    federation.until_unmasked()
    assert (federation.session.total() == federation.expected).all()


def test_a_session_is_not_begun_twice() -> None:
    federation = at_shares()
    name = federation.session.terms.session
    refused(lambda: federation.advertise(name=name), "has sent its keys")


def test_secrets_are_forgotten_as_early_as_possible() -> None:
    federation = at_masked()
    state = federation.states["c0"]
    secrets = state.mask_secret, state.box_secret, state.seed, state.keys
    assert not any(secrets)
    federation.unmask("c0")
    done = federation.states["c0"]
    assert done == steps.ClientState(steps.COMPLETED, state.session)


# ---- what the server alone could compute --------------------------------------------


def test_masks_need_a_secret() -> None:
    """From public keys and terms alone no mask follows."""
    federation = at_shares()
    context = federation.session.terms.context
    ours = private_key(federation.states["c0"].mask_secret)
    theirs = federation.keys["c1"].mask
    shared = agree(ours, theirs, b"pair mask" + context)
    guess = agree(private_key(new_secret()), theirs, b"pair mask" + context)
    assert shared != guess
    assert shared != agree(ours, theirs, b"pair mask" + os.urandom(32))
