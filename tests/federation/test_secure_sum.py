"""The protocol of secure sums: exact sums, whoever is lost, and no more than that."""

from __future__ import annotations

import os

import numpy as np
import pytest
from Crypto.Protocol.SecretSharing import Shamir
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import hypergeom
from secure import NOBODY, Federation, random_words

from fedridge_flwr import FedRidgeError, NotEnoughClientsError, SecureSum
from fedridge_flwr.federation.secure_sum import graph, shares
from fedridge_flwr.federation.secure_sum.graph import (
    in_order,
    least_threshold,
    usual_sizes,
    window,
)
from fedridge_flwr.linalg.limbs import add, subtract

# ---- sums ---------------------------------------------------------------------------


@pytest.mark.parametrize("clients", [3, 4, 5, 12])
def test_the_sum_of_all_is_exact(clients: int) -> None:
    federation = Federation.of(clients)
    assert (federation.run() == federation.expected).all()
    assert len(federation.session.delivered) == clients


@pytest.mark.parametrize("exchange", range(5))
def test_clients_may_be_lost_in_any_exchange(exchange: int) -> None:
    federation = Federation.of(10)
    lost = list(NOBODY)
    lost[exchange] = (1, 4, 7)
    assert (federation.run(tuple(lost)) == federation.expected).all()
    assert len(federation.session.delivered) == (10 if exchange >= 3 else 7)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whoever_is_lost_the_sum_is_exact_or_there_is_none(data: st.DataObject) -> None:
    clients = data.draw(st.integers(3, 9))
    lost = tuple(
        data.draw(st.sets(st.integers(0, clients - 1), max_size=3)) for _ in range(5)
    )
    federation = Federation.of(clients, rows=2)
    try:
        found = federation.run(lost)
    except FedRidgeError:
        return
    assert (found == federation.expected).all()
    left = len(federation.session.delivered)
    assert left >= max(federation.session.terms.threshold, 3)


def test_more_lost_than_the_threshold_allows_release_nothing() -> None:
    federation = Federation.of(9)  # seven must stay
    federation.advertise()
    federation.until_shares()
    federation.until_masked({"c0"})
    federation.until_confirmed()
    federation.until_unmasked({"c1", "c2"})
    with pytest.raises(NotEnoughClientsError, match="6 valid shares of client c0, 7"):
        federation.session.total()


@pytest.mark.parametrize("exchange", range(5))
def test_on_a_ring_as_well(exchange: int) -> None:
    federation = Federation.of(60, rows=3, settings=SecureSum(neighbours=15))
    lost = list(NOBODY)
    lost[exchange] = (3, 30)
    assert (federation.run(tuple(lost)) == federation.expected).all()


def test_a_wrong_share_is_left_out_and_spoils_nothing() -> None:
    federation = Federation.of(5)
    federation.advertise()
    federation.until_shares()
    federation.until_masked()
    federation.until_confirmed()
    for client in federation.values:
        given = federation.unmask(client).copy()
        if client == federation.session.ring[0]:
            given[:] = 7
        federation.session.add_shares(client, given)
    assert (federation.session.total() == federation.expected).all()


def test_what_the_server_sees_of_a_client_is_unlike_what_it_added() -> None:
    federation = Federation.of(4, rows=500)
    federation.values["c0"] = np.zeros((500, 3), dtype=np.uint64)
    federation.advertise()
    federation.until_shares()
    first = federation.mask("c0")
    bits = np.unpackbits(first.view(np.uint8)).mean()
    assert abs(bits - 0.5) < 6 * 0.5 / np.sqrt(500 * 192)


# ---- shares -------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.binary(min_size=16, max_size=16), st.integers(2, 12), st.data())
def test_shares_combine_as_those_of_pycryptodome(
    secret: bytes, number: int, data: st.DataObject
) -> None:
    threshold = data.draw(st.integers(2, number))
    dealt = Shamir.split(threshold, number, secret)
    chosen = data.draw(st.permutations(dealt))[:threshold]
    assert shares.combine(dict(chosen), threshold) == secret == Shamir.combine(chosen)
    ours = dict(enumerate(shares.split(secret, threshold, number), 1))
    assert Shamir.combine(list(ours.items())[:threshold]) == secret


def test_one_share_less_says_nothing() -> None:
    dealt = shares.split(bytes(16), 3, 5)
    with pytest.raises(FedRidgeError, match="2 shares, 3 needed"):
        shares.combine({1: dealt[0], 2: dealt[1]}, 3)
    wrong = shares.combine({1: dealt[0], 2: dealt[1], 3: os.urandom(16)}, 3)
    assert wrong != bytes(16)


def test_a_tag_is_of_one_share_in_one_session() -> None:
    assert shares.tag(b"a" * 16, b"s") != shares.tag(b"b" * 16, b"s")
    assert shares.tag(b"a" * 16, b"s") != shares.tag(b"a" * 16, b"t")


# ---- neighbours ---------------------------------------------------------------------


@pytest.mark.parametrize(("clients", "near"), [(5, 5), (60, 15), (101, 41)])
def test_neighbours_are_mutual_and_distinct(clients: int, near: int) -> None:
    found = [window(place, clients, near) for place in range(clients)]
    assert all(len(set(others)) == near for others in found)
    assert all(place in others for place, others in enumerate(found))
    assert all(a in found[b] for a, others in enumerate(found) for b in others)


def test_nobody_chooses_a_place_by_a_key() -> None:
    """The order of all others changes with every key, and so does the commitment."""
    prints = [os.urandom(32) for _ in range(30)]
    first, ring = in_order(prints)
    second, other = in_order([*prints[:-1], os.urandom(32)])
    assert first != second
    kept = set(prints[:-1])
    assert [p for p in ring if p in kept] != [p for p in other if p in kept]


@pytest.mark.parametrize("clients", range(3, 60))
def test_any_two_quorums_have_an_honest_client_in_common(clients: int) -> None:
    for neighbours in [clients, *range(3, clients, 2)]:
        for colluding in range(3 if neighbours == clients else 1):
            least = least_threshold(neighbours, clients, colluding)
            assert 2 * least - neighbours > colluding
            assert 3 * least > 2 * neighbours
            if neighbours < clients:
                # Two that reveal shares of one client, all between them silent.
                apart = neighbours - least + 1
                assert 2 * least > neighbours + apart


@pytest.mark.parametrize("clients", [50, 100, 200, 1000])
def test_rings_are_large_enough_by_the_bounds_of_the_paper(clients: int) -> None:
    near, threshold = usual_sizes(clients)
    corrupt, lost = -(-clients // 5), -(-clients // 10)
    bad, gone = (hypergeom(clients - 1, n, near - 1) for n in (corrupt, lost))
    alone = hypergeom(clients - 1, corrupt + lost, near - 1).pmf(near - 1)
    assert near < 2 * threshold
    if near < clients:
        assert clients * bad.sf(2 * threshold - near - 1) < 2.0**-40
        assert clients * gone.sf(near - threshold) < 2.0**-20
        assert clients * alone < 2.0**-40


def test_tails_are_those_of_scipy() -> None:
    found = graph._tails(99, 20, 40)
    expected = hypergeom(99, 20, 40).sf(np.arange(41) - 1)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-300)


def test_settings_that_do_not_go_together_are_refused() -> None:
    for wrong in (
        {"min_clients": 1},
        {"neighbours": 4},
        {"neighbours": 9, "threshold": 4},
        {"neighbours": 9, "threshold": 10},
        {"threshold": 1},
    ):
        with pytest.raises(FedRidgeError):
            SecureSum(**wrong)
    with pytest.raises(FedRidgeError, match="more than two thirds"):
        SecureSum(threshold=5).sizes(8)


def test_words_are_a_group() -> None:
    a, b = random_words(5), random_words(5)
    assert (subtract(add(a, b), b) == a).all()
