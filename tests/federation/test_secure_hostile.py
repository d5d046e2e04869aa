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
from secure import Federation, at_masked, random_words

from fedridge_flwr import PolicyError, ProtocolError, SecurePolicy, SecureSum
from fedridge_flwr.federation.secure_sum import client_steps as steps
from fedridge_flwr.federation.secure_sum.identity import read_identity, read_roster
from fedridge_flwr.federation.secure_sum.keys import (
    PublicKeys,
    agree,
    new_secret,
    private_key,
    public_key,
)
from fedridge_flwr.federation.secure_sum.server_steps import SecureSession

EVERYBODY = b"\1\1\1\1\1"
RING = SecureSum(neighbours=7)
LOW_ORDER = bytes(32)


def refused(what: Callable[[], object], words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        what()


def flags(federation: Federation, *without: str) -> bytes:
    """Return the list of all clients but some."""
    return bytes(client not in without for client in federation.session.ring)


def place_of(federation: Federation, client: str, other: str) -> int:
    return int(federation.session.near[client].index(other))


# ---- keys and terms -----------------------------------------------------------------


def at_shares(clients: int = 5, **options: Any) -> Federation:
    found = Federation.of(clients, **options)
    found.advertise()
    return found


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"threshold": 2}, "at least 4"),
        ({"threshold": 6}, "contradict"),
        ({"clients": 2}, "takes part from 3"),
        ({"clients": 4}, "contradict"),
        ({"neighbours": 2, "threshold": 2}, "takes part from 3"),
        ({"neighbours": 3, "threshold": 3}, "keys of 5 neighbours"),
        ({"neighbours": 4, "threshold": 3}, "contradict"),
        ({"threshold": 3}, "at least 4"),
        ({"members": bytes(32)}, "follow from the keys of all"),
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
    keys, own = federation.keys_for("c0"), place_of(federation, "c0", "c0")
    other = (own + 1) % 5
    twice = [keys[other] if k == own else each for k, each in enumerate(keys)]
    refused(lambda: federation.share("c0", keys=twice), "not all different")
    fake = PublicKeys(public_key(new_secret()), public_key(new_secret())).pack()
    without = [fake if k == own else each for k, each in enumerate(keys)]
    refused(lambda: federation.share("c0", keys=without), "not among those")
    swapped = keys[other][:32] + keys[own][32:]
    mixed = [swapped if k == other else each for k, each in enumerate(keys)]
    refused(lambda: federation.share("c0", keys=mixed), "not all different")
    refused(lambda: federation.share("c0", keys=[k[:63] for k in keys]), "64 or 160")


def test_keys_that_others_were_not_told() -> None:
    """The terms commit to the keys of everybody, in an order that follows from them."""
    federation = at_shares()
    keys = federation.keys_for("c0")
    refused(lambda: federation.share("c0", keys=keys[::-1]), "follow from the keys")
    fake = PublicKeys(public_key(new_secret()), public_key(new_secret())).pack()
    other = place_of(federation, "c0", "c3")
    evil = [fake if k == other else each for k, each in enumerate(keys)]
    refused(lambda: federation.share("c0", keys=evil), "follow from the keys")


def test_neighbours_on_a_ring_are_those_that_follow_from_all_keys() -> None:
    federation = at_shares(15, settings=RING)
    keys, others = (list(each) for each in federation.session.keys_for("c0"))
    keys = [row.tobytes() for row in keys]
    refused(lambda: federation.share("c0", others=others[1:]), "and 7 others")
    short = [others[0][:31], *others[1:]]
    refused(lambda: federation.share("c0", others=short), "of 15")
    refused(lambda: federation.share("c0", others=[others[1], *others[1:]]), "not all")
    unknown = [os.urandom(32), *others[1:]]
    refused(lambda: federation.share("c0", others=unknown), "follow from the keys")
    far = next(c for c in federation.values if c not in federation.session.near["c0"])
    known = federation.keys[far]
    elsewhere = [*keys[:6], known.pack()[:64]]
    rest = [each for each in others if each != known.fingerprint]
    rest.append(PublicKeys.unpack(keys[6]).fingerprint)
    refused(
        lambda: federation.share("c0", keys=elsewhere, others=rest),
        "follow from the keys",
    )
    federation.share("c0")


def test_a_key_with_which_all_secrets_agree_alike_is_refused() -> None:
    federation = at_shares()
    sent = federation.keys["c1"] = replace(federation.keys["c1"], box=LOW_ORDER)
    federation.session = SecureSession(federation.session.terms, federation.keys)
    assert sent.pack()[:64] in federation.keys_for("c0")
    refused(lambda: federation.share("c0"), "public key is not valid")
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


def with_keys(federation: Federation, client: str, keys: PublicKeys) -> None:
    """Let the server tell everybody these keys of a client."""
    federation.keys[client] = keys
    federation.session = SecureSession(federation.session.terms, federation.keys)


def test_keys_that_the_server_swapped_are_refused_with_a_roster() -> None:
    federation = at_shares().with_roster()
    refused(lambda: federation.share("c0"), "neighbour 1 are not signed")
    federation = Federation.of(5).with_roster()
    federation.advertise()
    honest = federation.keys["c3"]
    mine = PublicKeys(public_key(new_secret()), public_key(new_secret()))
    session = federation.session.terms.session
    for evil in (
        replace(honest, mask=mine.mask),
        replace(honest, box=mine.box),
        mine.signed(Ed25519PrivateKey.generate(), session),
    ):
        with_keys(federation, "c3", evil)
        number = place_of(federation, "c0", "c3") + 1
        refused(lambda: federation.share("c0"), f"neighbour {number} are not signed")


def test_a_signature_is_of_one_session() -> None:
    federation = Federation.of(5).with_roster()
    federation.advertise()
    old = federation.keys["c3"]
    federation.states.clear()
    federation.advertise()
    with_keys(federation, "c3", old)
    number = place_of(federation, "c0", "c3") + 1
    refused(lambda: federation.share("c0"), f"neighbour {number} are not signed")


def test_one_member_of_the_roster_is_one_neighbour() -> None:
    federation = Federation.of(5).with_roster()
    federation.identities["c4"] = federation.identities["c3"]
    federation.advertise()
    refused(lambda: federation.share("c0"), "same identity")


def test_without_a_roster_swapped_keys_are_not_noticed() -> None:
    """What the documents say: without a roster, the server must not swap keys."""
    federation = at_shares()
    mine = PublicKeys(public_key(new_secret()), public_key(new_secret()))
    with_keys(federation, "c3", mine)
    federation.share("c0")


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
    one, two = (place_of(federation, "c0", other) for other in ("c1", "c2"))
    wrong = boxes.copy()
    wrong[one] = boxes[two]
    refused(
        lambda: federation.mask("c0", boxes=wrong), f"box of neighbour {one + 1} cannot"
    )
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


WRONG_LISTS = [
    (lambda f: EVERYBODY[1:], "each of 5 clients"),
    (lambda f: EVERYBODY + b"\1", "each of 5 clients"),
    (lambda f: b"", "each of 5 clients"),
    (lambda f: flags(f)[:4] + b"\2", "each of 5 clients"),
    (lambda f: flags(f, "c0"), "this client has not"),
    (lambda f: flags(f, "c1", "c2"), "4 are needed"),
]


@pytest.mark.parametrize(("present", "words"), WRONG_LISTS)
def test_too_few_shares_or_nonsense(present: Any, words: str) -> None:
    federation = at_shares()
    federation.until_shares()
    refused(lambda: federation.mask("c0", present=present(federation)), words)


def test_numbers_of_another_shape_are_not_masked() -> None:
    federation = at_shares()
    federation.until_shares()
    for wrong in (random_words(9), np.zeros((10, 3)), random_words(10, 2)):
        refused(lambda w=wrong: federation.mask("c0", words=w), "of shape")


# ---- who delivered ------------------------------------------------------------------


@pytest.mark.parametrize(("delivered", "words"), WRONG_LISTS)
def test_lists_that_overlap_are_incomplete_or_too_short(
    delivered: Any, words: str
) -> None:
    federation = at_masked()
    refused(lambda: federation.confirm("c0", delivered=delivered(federation)), words)


def test_a_client_that_never_took_part_cannot_have_delivered() -> None:
    federation = Federation.of(5)
    federation.advertise()
    federation.until_shares({"c4"})
    federation.until_masked()
    refused(lambda: federation.confirm("c0", delivered=EVERYBODY), "took no part")


def test_the_least_number_is_counted_among_all_that_delivered() -> None:
    federation = at_masked()
    federation.min_clients = 5
    told = flags(federation, "c4")
    refused(lambda: federation.confirm("c0", delivered=told), "5 are needed")
    federation = at_masked(15, settings=RING)
    federation.min_clients = 15
    told = flags(federation, "c4")
    refused(lambda: federation.confirm("c0", delivered=told), "15 are needed")


def test_on_a_ring_enough_neighbours_must_have_delivered_too() -> None:
    federation = at_masked(15, settings=RING)
    others = [c for c in federation.session.near["c0"] if c != "c0"][:2]
    told = flags(federation, *others)
    refused(lambda: federation.confirm("c0", delivered=told), "6 are needed")


# ---- confirmations ------------------------------------------------------------------


@pytest.mark.parametrize("where", ["everybody", "ring"])
def test_a_list_that_others_were_not_told_is_not_confirmed(where: str) -> None:
    clients, options = (5, {}) if where == "everybody" else (15, {"settings": RING})
    federation = at_masked(clients, **options)
    far = federation.session.near["c0"][-1]
    lie = flags(federation, "c4" if where == "everybody" else far)
    for client in federation.values:
        told = lie if client == "c0" else flags(federation)
        rows = federation.confirm(client, delivered=told)
        federation.session.add_confirmations(client, rows)
    refused(lambda: federation.unmask("c0"), "only 1 of the neighbours")
    for client in list(federation.values)[1:]:
        federation.unmask(client)  # all others agree


def test_nor_is_another_list_of_those_that_sent_boxes() -> None:
    """Of ten clients, three are told that one of the others never took part."""
    federation = Federation.of(10)
    federation.advertise()
    federation.until_shares()
    few = ("c0", "c1", "c2")
    for client in federation.values:
        told = flags(federation, "c9") if client in few else flags(federation)
        federation.session.add_masked(client, federation.mask(client, present=told))
    delivered = flags(federation, "c9")
    for client in federation.values:
        if client != "c9":
            rows = federation.confirm(client, delivered=delivered)
            federation.session.add_confirmations(client, rows)
    for client in few:
        refused(lambda c=client: federation.unmask(c), "only 3 of the neighbours")
    refused(lambda: federation.unmask("c3"), "only 6 of the neighbours")


def test_a_confirmation_is_of_two_clients_and_one_direction() -> None:
    federation = at_masked()
    federation.until_confirmed()
    own = federation.session.confirmations_for("c0")
    for wrong in (
        own[::-1],  # of other neighbours
        np.roll(own, 1, axis=0),
        federation.session.confirmations_for("c1"),  # to another client
        federation.session.confirmed["c0"],  # those that it sent itself
        np.repeat(own[:1], 5, axis=0),
        np.zeros_like(own),
    ):
        given = np.ascontiguousarray(wrong)
        refused(
            lambda g=given: federation.unmask("c0", confirmations=g),
            "of the neighbours confirm",
        )
    for shape in (own[:-1], own[:, :-1], own.astype(np.uint64)):
        refused(
            lambda g=shape: federation.unmask("c0", confirmations=g), "one for each"
        )
    missing = own.copy()
    missing[place_of(federation, "c0", "c1")] = 0
    federation.unmask("c0", confirmations=missing)  # four of five confirm


def test_two_halves_that_are_told_two_lists_reveal_nothing() -> None:
    """Without confirmations the difference of the two sums would be one client."""
    federation = at_masked(9)
    lists = [flags(federation), flags(federation, "c8")]
    for k, client in enumerate(federation.values):
        if client != "c8":
            rows = federation.confirm(client, delivered=lists[k % 2])
            federation.session.add_confirmations(client, rows)
    for client in federation.session.confirmed:
        refused(lambda c=client: federation.unmask(c), "only 4 of the neighbours")


def test_every_step_is_answered_once() -> None:
    federation = at_shares()
    federation.until_shares()
    refused(lambda: federation.share("c0"), "answered once")
    federation.until_masked()
    refused(lambda: federation.mask("c0"), "answered once")
    federation.until_confirmed()
    refused(lambda: federation.confirm("c0"), "answered once")
    federation.until_unmasked()
    refused(lambda: federation.unmask("c0"), "answered once")


@pytest.mark.parametrize("step", ["mask", "confirm", "unmask"])
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


def test_numbers_enter_one_sum_of_a_run() -> None:
    """Also if that sum fails: sums over other clients would tell their difference."""
    federation = at_masked()
    refused(federation.advertise, "only once")


def test_before_that_another_sum_may_begin_and_the_first_is_dead() -> None:
    federation = at_shares()
    federation.until_shares()
    first = federation.session.terms.session
    federation.advertise()
    refused(lambda: federation.mask("c0", session=first), "another secure sum")
    federation.until_shares()
    federation.until_masked()
    federation.until_confirmed()
    federation.until_unmasked()
    assert (federation.session.total() == federation.expected).all()


def test_no_more_than_three_sums_are_begun() -> None:
    federation = at_shares()
    federation.advertise()
    federation.advertise()
    refused(federation.advertise, "begin 3 secure sums")


def test_a_session_is_not_begun_twice() -> None:
    federation = at_shares()
    name = federation.session.terms.session
    refused(lambda: federation.advertise(name=name), "has sent its keys")


def test_secrets_are_forgotten_as_early_as_possible() -> None:
    federation = at_masked()
    state = federation.states["c0"]
    assert not state.mask_secret
    assert not state.seed
    federation.until_confirmed()
    state = federation.states["c0"]
    assert not state.box_secret
    assert not state.keys
    federation.unmask("c0")
    done = federation.states["c0"]
    assert done == steps.ClientState(steps.COMPLETED, state.session, 1)


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
