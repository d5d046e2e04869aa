"""A server that lies in every message: no sum but the one that all clients agree on.

The attacks that once succeeded are written out; then a server takes thousands of random
decisions. Each time a witness counts which shares have come out, and which sums of
honest clients follow from them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lying_server import LyingServer

from fedridge_flwr.federation.requests import AskKeys
from fedridge_flwr.federation.secure_sum.graph import least_threshold
from fedridge_flwr.federation.secure_sum.keys import (
    PublicKeys,
    new_secret,
    public_key,
)
from fedridge_flwr.federation.secure_sum.server_steps import SecureSession

Rng = np.random.Generator
EPISODES, MANY = 120, 4_000


def sizes_of(clients: int, neighbours: int | None = None) -> tuple[int, int]:
    near = clients if neighbours is None else min(neighbours, clients)
    return near, least_threshold(near, clients)


def name_of(number: int) -> bytes:
    return number.to_bytes(16, "little")


def listed(session: SecureSession, *without: int) -> bytes:
    return bytes(int(client) not in without for client in session.ring)


def until_masked(
    server: LyingServer, neighbours: int | None = None, number: int = 1
) -> SecureSession:
    everybody = [client.number for client in server.clients]
    keys = server.keys(name_of(number), everybody)
    session = server.session(name_of(number), keys, sizes_of(len(keys), neighbours))
    for k in everybody:
        assert server.share(session, k)
    for k in everybody:
        assert server.mask(session, k)
    return session


def confirmed(
    server: LyingServer, session: SecureSession, told: dict[int, bytes]
) -> None:
    for k, delivered in told.items():
        rows = server.confirm(session, k, delivered)
        if rows is not None:
            session.add_confirmations(str(k), rows)


def unmasked(server: LyingServer, session: SecureSession, clients: Any) -> list[int]:
    return [
        k
        for k in clients
        if server.unmask(session, k, session.confirmations_for(str(k)))
    ]


# ---- attacks that are written out ---------------------------------------------------


@pytest.mark.parametrize(("clients", "near"), [(5, None), (13, 7)])
def test_an_honest_server_gets_one_sum(clients: int, near: int | None) -> None:
    server = LyingServer(clients)
    session = until_masked(server, near)
    confirmed(server, session, dict.fromkeys(range(clients), listed(session, 2)))
    assert unmasked(server, session, set(range(clients)) - {2})
    assert server.witness.check(3) == 1
    (group,) = server.witness.sums()
    assert {server.witness.dealt[key].client for key in group} == (
        set(range(clients)) - {2}
    )


@pytest.mark.parametrize(("clients", "near"), [(9, None), (20, None), (20, 9)])
def test_lists_that_differ_in_one_client(clients: int, near: int | None) -> None:
    """The difference of two sums would be that one."""
    server = LyingServer(clients)
    session = until_masked(server, near)
    halves = listed(session), listed(session, 0)
    told = {int(k): halves[place % 2] for place, k in enumerate(session.ring)}
    confirmed(server, session, {**told, 0: halves[0]})
    assert not unmasked(server, session, range(clients))
    assert server.witness.check(3) == 0


def test_each_client_gets_a_list_of_its_own() -> None:
    server = LyingServer(20)
    session = until_masked(server)
    told = {k: listed(session, (k + 1) % 20, (k + 2) % 20) for k in range(20)}
    confirmed(server, session, told)
    assert not unmasked(server, session, range(20))


def test_a_ring_is_not_cut_into_pieces() -> None:
    """Each piece hears that what lies between the pieces is lost."""
    server = LyingServer(30)
    session = until_masked(server, 7)
    ring = [int(client) for client in session.ring]
    gaps = [*ring[:2], *ring[15:17]]
    confirmed(server, session, {k: listed(session, *gaps) for k in ring[2:15]})
    confirmed(server, session, {k: listed(session, *ring[:2]) for k in ring[17:]})
    unmasked(server, session, ring)
    assert server.witness.check(3) == 0


def test_a_present_list_that_divides() -> None:
    """A third is told that another third never sent boxes, and the other way round."""
    server = LyingServer(9)
    keys = server.keys(name_of(1), list(range(9)))
    session = server.session(name_of(1), keys, sizes_of(9))
    for k in range(9):
        assert server.share(session, k)
    without = {k: (7, 8) if k < 2 else (0, 1) if k > 6 else () for k in range(9)}
    for k in range(9):
        assert server.mask(session, k, present=listed(session, *without[k]))
    # Those of whom others never heard cannot be said to have delivered to all.
    for lost in ((7, 8), (0, 1), ()):
        told = listed(session, *lost)
        confirmed(server, session, dict.fromkeys(range(9), told))
    unmasked(server, session, range(9))
    assert server.witness.check(3) == 0


def test_a_low_threshold_or_another_number_gets_no_shares() -> None:
    server = LyingServer(9)
    keys = server.keys(name_of(1), list(range(9)))
    session = server.session(name_of(1), keys, sizes_of(9))
    for k, lie in enumerate(
        [{"threshold": 6}, {"threshold": 1}, {"clients": 8}, {"neighbours": 7}]
    ):
        assert not server.share(session, k, terms=lie)
        assert not server.share(session, k)  # a refusal ends it
    assert server.clients[0].refusals[0].startswith("the threshold of 6 is too low")


def test_terms_and_keys_that_differ_from_client_to_client() -> None:
    """Two rings over the same clients: boxes of the one do not open in the other."""
    server = LyingServer(12)
    keys = server.keys(name_of(1), list(range(12)))
    parts = [
        server.session(name_of(1), {str(k): keys[str(k)] for k in part}, sizes_of(9))
        for part in (range(9), range(3, 12))
    ]
    for k in range(12):
        assert server.share(parts[k >= 6], k)
    for k in range(12):
        own = parts[k >= 6]
        for other in parts:
            own.entries |= {c: e for c, e in other.entries.items() if c in own.keys}
        assert not server.mask(own, k)
    assert server.witness.check(3) == 0


def test_swapped_keys_and_a_roster() -> None:
    for near in (None, 7):
        server = LyingServer(11, roster=True)
        keys = server.keys(name_of(1), list(range(11)))
        keys["3"] = PublicKeys(public_key(new_secret()), public_key(new_secret()))
        session = server.session(name_of(1), keys, sizes_of(11, near))
        for k in map(int, session.near["3"]):
            assert k == 3 or not server.share(session, k)
    server = LyingServer(11, roster=True)
    session = until_masked(server, 7)
    confirmed(server, session, dict.fromkeys(range(11), listed(session)))
    assert unmasked(server, session, range(11)) == list(range(11))
    assert server.witness.check(3) == 1


def test_two_sums_side_by_side() -> None:
    """A client is in one of them: the keys of a second sum end the first."""
    server = LyingServer(8)
    first = server.keys(name_of(1), list(range(8)))
    one = server.session(name_of(1), first, sizes_of(8))
    for k in range(8):
        assert server.share(one, k)
    for k in range(4):
        assert server.mask(one, k)
    second = server.keys(name_of(2), list(range(8)))
    assert sorted(second) == list("4567")  # the others have delivered
    two = server.session(name_of(2), second, sizes_of(4))
    for k in range(4, 8):
        assert not server.mask(one, k)
        assert server.share(two, k)
    for k in range(4, 8):
        assert server.mask(two, k)
        assert not server.mask(one, k)
        # Boxes and lists of the one are nothing in the other.
        assert server.confirm(one, k) is None
    confirmed(server, two, dict.fromkeys(range(4, 8), listed(two)))
    confirmed(server, one, dict.fromkeys(range(4), listed(one)))
    for k in range(4, 8):
        given = one.confirmations_for(str(k))[:4]
        assert not server.unmask(two, k, np.ascontiguousarray(given))
    assert server.witness.check(3) == 0


def test_confirmations_of_an_earlier_sum_are_worth_nothing() -> None:
    server = LyingServer(5)
    session = until_masked(server)
    confirmed(server, session, dict.fromkeys(range(5), listed(session)))
    other = LyingServer(5)
    again = until_masked(other, number=2)
    confirmed(other, again, dict.fromkeys(range(5), listed(again)))
    rows = again.confirmations_for("0")
    assert not server.unmask(session, 0, rows)
    # A refusal ends it: also the right ones come too late.
    assert not server.unmask(session, 0, session.confirmations_for("0"))


def test_refusals_are_no_oracle() -> None:
    """Three sums, and in each of them one refusal, whatever is asked."""
    server = LyingServer(5)
    client = server.clients[0]
    for number in range(3):
        keys = server.keys(name_of(number), list(range(5)))
        session = server.session(name_of(number), keys, sizes_of(5))
        assert server.share(session, 0, terms={"threshold": 1}) is False
    for number in range(3, 50):
        assert client.ask(AskKeys(name_of(number))) is None
    reasons = {reason for reason in client.refusals if "begin 3 secure sums" in reason}
    assert len(reasons) == 1
    assert len(client.refusals) == 3 + 47


# ---- memory that is lost or put back ------------------------------------------------


def own_folders(folder: Path, clients: int) -> list[Path]:
    found = [folder / f"site-{k}" for k in range(clients)]
    for each in found:
        each.mkdir()
    return found


def rolled_back(server: LyingServer) -> int:
    """Let all clients confirm two lists, and unmask by both; return how many did."""
    clients = len(server.clients)
    session = until_masked(server)
    lists = [listed(session), listed(session, 0)]
    before = [client.saved() for client in server.clients]
    twice = []
    for delivered in lists:
        for client, saved in zip(server.clients, before, strict=True):
            client.roll_back(saved)
        session.confirmed.clear()
        confirmed(server, session, dict.fromkeys(range(clients), delivered))
        twice.append(set(unmasked(server, session, range(clients))))
    return len(twice[0] & twice[1])


def test_markers_on_disk_outlive_a_memory_that_is_put_back(tmp_path: Path) -> None:
    server = LyingServer(5, folders=own_folders(tmp_path, 5))
    assert rolled_back(server) == 0
    assert server.witness.check(3) == 1
    assert 'answered "secure-confirm" in this run' in server.clients[1].refusals[-2]


def test_without_a_place_on_disk_both_secrets_come_out() -> None:
    """What the documents say of a memory that is put back: why sites need `state`."""
    server = LyingServer(5)
    assert rolled_back(server) == 4
    assert server.witness.both_secrets() == [0]


def test_a_lost_memory_is_no_second_sum(tmp_path: Path) -> None:
    server = LyingServer(5, folders=own_folders(tmp_path, 5))
    until_masked(server)
    for client in server.clients:
        client.context.state.clear()
    keys = server.keys(name_of(2), list(range(5)))
    session = server.session(name_of(2), keys, sizes_of(5))
    for k in range(5):
        assert server.share(session, k)
        assert not server.mask(session, k)


def test_a_folder_that_is_not_there_declines(tmp_path: Path) -> None:
    server = LyingServer(3, folders=[tmp_path / "not mounted"] * 3)
    assert server.keys(name_of(1), [0, 1, 2]) == {}
    assert "steps of secure sums cannot be marked" in server.clients[0].refusals[0]


# ---- a server that may do anything --------------------------------------------------


def some(rng: Rng, those: Any, share: float) -> list[Any]:
    return [each for each in those if rng.random() < share]


def random_list(rng: Rng, base: bytes, threshold: int) -> bytes:
    """Return another list, mostly one that clients could be told."""
    flags = bytearray(base)
    most = max(1, len(flags) - threshold)
    for where in rng.permutation(len(flags))[: int(rng.integers(1, most + 1))]:
        flags[where] = 2 if rng.random() < 0.05 else flags[where] ^ 1
    return bytes(flags)


class RandomServer:
    """Mostly keeps to the protocol, and lies now and then, to some or to all."""

    def __init__(self, rng: Rng, folder: Path | None = None) -> None:
        ring = rng.random() < 0.4
        clients = int(rng.integers(9, 14) if ring else rng.integers(3, 9))
        self.rng, self.near = rng, int(rng.choice([5, 7])) if ring else None
        corrupt = int(not ring and clients >= 6 and rng.random() < 0.4)
        folders = None if folder is None else own_folders(folder, clients)
        self.server = LyingServer(clients, corrupt=corrupt, folders=folders)
        self.everybody = list(range(clients))
        self.put_back = folder is not None
        self.boldness = float(rng.choice([0.1, 0.3, 1.0]))

    def run(self) -> int:
        for number in range(int(self.rng.integers(1, 5))):
            self._sum(number)
        return self.server.witness.check(self.server.min_clients)

    def _chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def _lies(self, share: float) -> bool:
        return self._chance(share * self.boldness)

    def _sum(self, number: int) -> None:
        rng, server = self.rng, self.server
        share = 1.0 if self._chance(0.6) else float(rng.uniform(0.5, 1.0))
        keys = server.keys(name_of(number), some(rng, self.everybody, share))
        for group in self._groups(list(keys)):
            if len(group) < 3:
                continue
            near, threshold = sizes_of(len(group), self.near)
            if self._lies(0.1):
                threshold = int(rng.integers(1, near + 1))
            session = server.session(
                name_of(number), {k: keys[k] for k in group}, (near, threshold)
            )
            self._shares(session)
            self._masked(session)
            self._confirmed(session)

    def _groups(self, clients: list[str]) -> list[list[str]]:
        if self._chance(0.8):
            return [clients]
        self.rng.shuffle(clients)
        cut = int(self.rng.integers(len(clients) + 1))
        overlap = int(self.rng.integers(3))
        return [clients[: cut + overlap], clients[cut:]]

    def _shares(self, session: SecureSession) -> None:
        for k in some(self.rng, map(int, session.ring), 0.97):
            lies: dict[str, Any] = {}
            if self._lies(0.03):
                lies["terms"] = {
                    str(self.rng.choice(["threshold", "clients", "neighbours"])): int(
                        self.rng.integers(1, 12)
                    )
                }
            if self._lies(0.02):
                keys = session.keys_for(str(k))[0]
                lies["keys"] = keys[self.rng.permutation(len(keys))]
            self.server.share(session, k, **lies)

    def _lists(self, session: SecureSession, base: bytes) -> dict[int, bytes]:
        """Return what each client is told: one list, two, or one for each."""
        number = int(self.rng.choice([1, 2, len(base)], p=[0.6, 0.3, 0.1]))
        lists = [base]
        for _ in range(number - 1):
            lists.append(random_list(self.rng, base, session.terms.threshold))
        chances = np.full(number, 0.5 / number)
        chances[0] += 0.5
        return {
            int(client): lists[self.rng.choice(number, p=chances)]
            for client in session.ring
        }

    def _masked(self, session: SecureSession) -> None:
        told = self._lists(session, session._flags(session.entries))
        for k in some(self.rng, map(int, session.members), 0.97):
            saved = self.server.clients[k].saved()
            self.server.mask(session, k, present=told[k])
            self._again(k, saved, lambda k=k: self.server.mask(session, k))

    def _again(self, k: int, saved: Any, ask: Any) -> None:
        """Put the memory of a client back, and ask once more."""
        if self.put_back and self._chance(0.1):
            kept = self.server.clients[k].saved()
            self.server.clients[k].roll_back(saved)
            ask()
            if self._chance(0.5):
                self.server.clients[k].roll_back(kept)

    def _confirmed(self, session: SecureSession) -> None:
        rng, server = self.rng, self.server
        told = self._lists(session, session.who_delivered())
        lists = sorted(set(told.values()))
        by_list: dict[bytes, dict[str, np.ndarray]] = {each: {} for each in lists}
        for k in some(rng, map(int, session.delivered), 0.97):
            client = server.clients[k]
            saved = client.saved()
            # Those that side with the server confirm everything to everybody.
            for each in [*lists, told[k]] if client.corrupt else [told[k]]:
                client.roll_back(saved)
                rows = server.confirm(session, k, each)
                if rows is not None:
                    by_list[each][str(k)] = rows
            other = lists[rng.integers(len(lists))]
            self._again(k, saved, lambda k=k, o=other: server.confirm(session, k, o))
        everything = {c: rows for each in by_list.values() for c, rows in each.items()}
        for k in map(int, everything):
            mixed = {**everything, **by_list[told[k]]}
            session.confirmed = mixed if self._chance(0.5) else by_list[told[k]]
            rows = session.confirmations_for(str(k))
            if self._lies(0.03):
                rows = rows[rng.permutation(len(rows))]
            saved = server.clients[k].saved()
            server.unmask(session, k, rows)
            self._again(k, saved, lambda k=k, r=rows: server.unmask(session, k, r))


def tried(episodes: int, seed: int, folder: Path | None = None) -> list[int]:
    """Return how many sums the server got in each of so many attempts."""
    found = []
    for number in range(episodes):
        own = None if folder is None else folder / str(number)
        if own is not None:
            own.mkdir()
        found.append(RandomServer(np.random.default_rng([seed, number]), own).run())
    return found


def test_random_lies_get_agreed_sums_or_nothing(tmp_path: Path) -> None:
    found = [*tried(EPISODES, 1), *tried(EPISODES // 3, 2, tmp_path)]
    assert 0.2 < np.mean(np.array(found) > 0) < 0.95  # lies, and not only lies


@pytest.mark.slow
def test_thousands_of_random_lies(tmp_path: Path) -> None:
    found = [*tried(MANY, 3), *tried(MANY // 4, 4, tmp_path)]
    assert 0.2 < np.mean(np.array(found) > 0) < 0.95
