"""A private fit of several rounds is one secure sum in each, whatever a server says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lying_server import LyingServer
from test_secure_lies import (
    confirmed,
    listed,
    name_of,
    own_folders,
    sizes_of,
    unmasked,
)

from fedridge_flwr import DifferentialPrivacy
from fedridge_flwr.federation.requests import AskKeys
from fedridge_flwr.federation.secure_sum.server_steps import SecureSession
from fedridge_flwr.privacy.curator import ReleaseRequest
from fedridge_flwr.privacy.release import ReleaseQuestion

K = 5
PRIVACY = DifferentialPrivacy(
    5.0,
    1e-5,
    x_norm_bound=4.0,
    y_bound=6.0,
    trust="secagg",
    rounds=4,
    min_clients=4,
)
ONCE = "only once"
NOT_NEXT = "not the next one"
PROMISE = "another promise"


def asked(number: int = 1, coef: float = 0.5, **changed: Any) -> ReleaseRequest:
    """Return the request of a round; what is changed makes it one of another fit."""
    name = changed.pop("name", "a" * 32)
    point = None if number == 1 else np.array([coef, 0.0])
    question = ReleaseQuestion(number, point, 1.0)
    promise = replace(PRIVACY, **changed)
    return ReleaseRequest(name, promise, True, question, in_secure_sum=True)


def begin(server: LyingServer, release: Any, session: int) -> SecureSession:
    """Return a sum of a release, for which all clients that agree have sent keys."""
    server.release = release
    name = name_of(session)
    keys = server.keys(name, [client.number for client in server.clients])
    return server.session(name, keys, sizes_of(len(server.clients)))


def finish(server: LyingServer, session: SecureSession) -> bool:
    """Return whether the server gets the sum, if it keeps to the protocol from here."""
    clients = [client.number for client in server.clients]
    for step in (server.share, server.mask):
        answered = [step(session, k) for k in clients if str(k) in session.keys]
        if not all(answered):
            return False
    confirmed(server, session, dict.fromkeys(clients, listed(session)))
    return unmasked(server, session, clients) == clients


def rounds(server: LyingServer, number: int) -> None:
    """Let an honest server ask for so many rounds."""
    for each in range(1, number + 1):
        assert finish(server, begin(server, asked(each), each))


def why_not(server: LyingServer, release: Any, session: int = 99) -> str:
    """Return why no client sends keys for a release, its releases forgotten.

    They are remembered elsewhere, and refused there a second time: see the last test.
    """
    for client in server.clients:
        client.curator.past.clear()
    assert not begin(server, release, session).keys
    reasons = {client.refusals[-1] for client in server.clients}
    assert len(reasons) == 1
    return reasons.pop()


def test_one_sum_in_every_round() -> None:
    server = LyingServer(K)
    rounds(server, 4)
    assert server.witness.check(4) == 4


# ---- which rounds ------------------------------------------------------------------


@pytest.mark.parametrize("coef", [0.5, 0.25])
def test_a_round_is_not_repeated(coef: float) -> None:
    server = LyingServer(K)
    rounds(server, 2)
    assert ONCE in why_not(server, asked(2, coef))
    assert ONCE in why_not(server, asked(1))
    assert server.witness.check(4) == 2


def test_nor_if_it_failed_when_the_numbers_had_been_sent() -> None:
    server = LyingServer(K)
    rounds(server, 1)
    session = begin(server, asked(2), 2)
    for step in (server.share, server.mask):
        assert all(step(session, k) for k in range(K))
    assert ONCE in why_not(server, asked(2))
    assert ONCE in why_not(server, asked(2, coef=0.25))


def test_no_round_is_skipped() -> None:
    server = LyingServer(K)
    assert NOT_NEXT in why_not(server, asked(2))
    rounds(server, 1)
    assert NOT_NEXT in why_not(server, asked(3))


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "b" * 32},
        {"min_clients": 3},
        {"max_colluding": 1},
        {"epsilon": 10.0},
        {"rounds": 5},
        {"x_norm_bound": 8.0},
    ],
)
def test_all_rounds_are_of_one_fit(changed: dict[str, Any]) -> None:
    server = LyingServer(K)
    rounds(server, 1)
    assert NOT_NEXT in why_not(server, asked(2, **changed))
    assert ONCE in why_not(server, asked(1, **changed))


def test_no_exact_sum_follows_and_none_comes_before() -> None:
    server = LyingServer(K)
    rounds(server, 1)
    assert ONCE in why_not(server, None)
    server = LyingServer(K)
    assert finish(server, begin(server, None, 1))
    assert ONCE in why_not(server, asked(1))
    assert NOT_NEXT in why_not(server, asked(2))


def test_three_sums_are_begun_in_a_round() -> None:
    server = LyingServer(K)
    rounds(server, 1)
    for session in (2, 3, 4):
        assert len(begin(server, asked(2), session).keys) == K
    assert "begin 3 secure sums" in why_not(server, asked(2))


# ---- what a sum is about -----------------------------------------------------------


@pytest.mark.parametrize("release", [asked(3), None, asked(2, epsilon=9.0)])
def test_the_numbers_are_of_the_round_that_began(release: Any) -> None:
    """Two exact sums, over other clients each, would tell their difference."""
    server = LyingServer(K)
    rounds(server, 1)
    keys = begin(server, asked(2), 2).keys
    server.release = release
    session = server.session(name_of(2), dict(keys), sizes_of(K))
    for client in server.clients:
        client.curator.past.clear()  # as if it remembered nothing else
    assert not finish(server, session)
    assert all(PROMISE in client.refusals[-1] for client in server.clients)
    assert server.witness.check(4) == 1


def test_all_clients_are_asked_about_the_same_coefficients() -> None:
    server = LyingServer(K)
    rounds(server, 1)
    session = begin(server, asked(2), 2)
    lie = replace(session.terms, subject=_subject(asked(2, coef=9.0), 2))
    for k in range(K):
        terms = {"subject": lie.subject} if k == 0 else {}
        assert server.share(session, k, terms=terms)
    for k in range(1, K):
        assert not server.mask(session, k)
        assert "cannot be opened" in server.clients[k].refusals[-1]


def test_coefficients_are_those_of_the_terms() -> None:
    server = LyingServer(K)
    rounds(server, 1)
    session = begin(server, asked(2), 2)
    for k in range(K):
        assert server.share(session, k)
    assert not server.mask(session, 0, release=asked(2, coef=9.0))
    assert "than was agreed on" in server.clients[0].refusals[-1]


def _subject(release: ReleaseRequest, session: int) -> bytes:
    from fedridge_flwr.data.schema import Schema
    from fedridge_flwr.federation.answering.secure_respond import subject_of
    from fedridge_flwr.statistics.integer_sums import DEFAULT_GRID

    ask = AskKeys(name_of(session), release)
    return subject_of(Schema(1), ask, DEFAULT_GRID)


def test_enough_clients_must_be_in_the_sum_of_every_round() -> None:
    """Noise is divided among six: with five there would be too little."""
    server = LyingServer(7)
    assert finish(server, begin(server, asked(1, min_clients=6), 1))
    session = begin(server, asked(2, min_clients=6), 2)
    for step in (server.share, server.mask):
        assert all(step(session, k) for k in range(7))
    told = listed(session, 0, 1)
    assert server.confirm(session, 2, told) is None
    assert "6 are needed" in server.clients[2].refusals[-1]


# ---- memory that is put back -------------------------------------------------------


def answered_again(server: LyingServer, run: int) -> bool:
    """Return whether a round is answered twice by clients whose memory is put back."""
    rounds(server, 1)
    saved = [client.saved() for client in server.clients]
    past = [dict(client.curator.past) for client in server.clients]
    assert finish(server, begin(server, asked(2), 2))
    for client, state, releases in zip(server.clients, saved, past, strict=True):
        client.roll_back(state)
        client.curator.past = releases
        client.enter_run(run)
    return finish(server, begin(server, asked(2), 3))


@pytest.mark.parametrize("run", [0, 7])
def test_a_place_on_disk_remembers_the_rounds_of_all_runs(
    run: int, tmp_path: Path
) -> None:
    server = LyingServer(K, folders=own_folders(tmp_path, K))
    same = server.clients[0].context.run_id
    assert not answered_again(server, run or same)
    assert server.witness.check(4) == 2
    assert 'answered "secure-masked"' in server.clients[0].refusals[0]


def test_without_one_a_round_is_answered_twice() -> None:
    """What the documents say: why sites need `state`, or a privacy ledger."""
    server = LyingServer(K)
    assert answered_again(server, 7)


def test_the_memory_of_releases_alone_refuses_a_second_answer() -> None:
    server = LyingServer(K)
    rounds(server, 1)
    saved = [client.saved() for client in server.clients]
    assert finish(server, begin(server, asked(2), 2))
    for client, state in zip(server.clients, saved, strict=True):
        client.roll_back(state)
    assert not finish(server, begin(server, asked(2), 3))
    assert "in a secure sum already" in server.clients[0].refusals[-1]
    for client, state in zip(server.clients, saved, strict=True):
        client.roll_back(state)
    assert not begin(server, asked(2, coef=0.25), 4).keys
    assert "answered to another question" in server.clients[0].refusals[-1]
