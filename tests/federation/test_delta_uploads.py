"""New rows only: whatever is lost, repeated, late or restored, no total is wrong."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generators import linear_rows, relative_error

from fedridge_flwr import (
    DataError,
    FixedPointStatistics,
    Ledger,
    LedgerError,
    PolicyError,
    PolynomialMap,
    ProtocolError,
    SitePolicy,
    SufficientStatistics,
)
from fedridge_flwr.federation.answering.delta_respond import UploadRecord, respond_since
from fedridge_flwr.federation.answering.respond import Guards
from fedridge_flwr.federation.requests import AskStatistics, Sent
from fedridge_flwr.flower.protocol.answer_records import read_answer, reply_content
from fedridge_flwr.flower.protocol.request_records import read_request, request_parts

FORMS = {"moments": SufficientStatistics, "fixed": FixedPointStatistics}
X, Y = linear_rows(4_000, 3, np.random.default_rng(0))


class Site:
    """A client whose rows grow, with its record of uploads."""

    def __init__(self, folder: Path, first: int = 0, **guards: Any) -> None:
        self.file = folder / f"uploads-{first}.json"
        self.first, self.n_rows = first, 0
        self.guards = Guards(**guards)
        self.calls: list[Any] = []

    def rows(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        place = slice(self.first + start, self.first + stop)
        return X[place], Y[place]

    def load(self, since: Any) -> Any:
        self.calls.append(since)
        return (*self.rows(since or 0, self.n_rows), None), self.n_rows

    def answer(self, request: AskStatistics) -> Sent:
        """Answer as over the wire, in both directions."""
        fields, arrays = request_parts(request)
        asked: Any = read_request(fields, list(arrays.values()), evaluating=False)
        found = respond_since(asked, self.load, self.guards, UploadRecord(self.file))
        sent: Sent = read_answer(reply_content(found, False), request)
        return sent

    def positions(self) -> dict[str, int]:
        return {u.id: u.position for u in UploadRecord(self.file).uploads()}


def ask(ledger: Ledger, form: str = "moments") -> AskStatistics:
    return AskStatistics(statistics=form, uploads=ledger.uploads())


def deliver(ledger: Ledger, name: str, sent: Sent) -> bool:
    ledger.open_run("statistics")
    try:
        whole = sent.statistics
        if sent.since:
            whole = ledger.with_new_rows(name, whole, sent.since)
        ledger.receive(name, whole, sent.upload)
    except LedgerError:
        ledger.close_run([])
        return False
    ledger.close_run([name])
    return True


def assert_is(found: Any, rows: Any, form: str) -> None:
    whole = FORMS[form].from_data(*rows)
    assert found.count == whole.count
    if form == "fixed":
        assert found == whole
    else:
        assert relative_error(found.triangle, whole.triangle) < 1e-11
        assert relative_error(found.means, whole.means) < 1e-11


class Walk:
    """Two clients and a server: messages wait, and are delivered never or often.

    Files of both sides are lost, damaged, and restored from copies.
    """

    def __init__(self, folder: Path, form: str, seed: int) -> None:
        self.rng, self.folder, self.form = np.random.default_rng(seed), folder, form
        self.ledger = Ledger(folder / "ledger")
        self.sites = {name: Site(folder, 2000 * k) for k, name in enumerate("ab")}
        self.waiting: list[tuple[str, Sent]] = []
        self.meant: dict[str, int] = {}

    def step(self) -> None:
        often = [self.grow, self.send, self.arrive]
        seldom = [self.copy_ledger, self.restore_ledger, self.copy_record]
        seldom += [self.restore_record, self.spoil_record, self.withdraw]
        steps = often if self.rng.random() < 0.8 else seldom
        name = "ab"[self.rng.integers(2)]
        steps[self.rng.integers(len(steps))](name, self.sites[name])
        for client, entry in self.ledger.clients().items():
            rows = self.sites[client].rows(0, self.meant[entry.upload])
            assert_is(self.ledger.contribution(client), rows, self.form)

    def finish(self) -> None:
        """One round in which nothing goes wrong repairs everything."""
        for name, site in self.sites.items():
            site.n_rows += 5
            assert deliver(self.ledger, name, site.answer(ask(self.ledger, self.form)))
            found = self.ledger.contribution(name)
            assert_is(found, site.rows(0, site.n_rows), self.form)
        self.ledger.verify()
        self.ledger.close()

    def grow(self, _: str, site: Site) -> None:
        site.n_rows += int(self.rng.integers(2, 9))

    def send(self, name: str, site: Site) -> None:
        try:
            sent = site.answer(ask(self.ledger, self.form))
        except DataError:  # no rows at all, or nearly those of an earlier upload
            return
        self.meant[sent.upload] = site.n_rows
        self.waiting = [*self.waiting[-5:], (name, sent)]

    def arrive(self, *_: object) -> None:
        if self.waiting:
            name, sent = self.waiting[self.rng.integers(len(self.waiting))]
            deliver(self.ledger, name, sent)

    def copy_ledger(self, *_: object) -> None:
        self.ledger.close()
        shutil.copy(self.folder / "ledger", self.folder / "copy")
        self.ledger = Ledger(self.folder / "ledger")

    def restore_ledger(self, *_: object) -> None:
        if (self.folder / "copy").exists():
            self.ledger.close()
            shutil.copy(self.folder / "copy", self.folder / "ledger")
            self.ledger = Ledger(self.folder / "ledger")

    def copy_record(self, _: str, site: Site) -> None:
        if site.file.exists():
            shutil.copy(site.file, site.file.with_suffix(".copy"))

    def restore_record(self, _: str, site: Site) -> None:
        if site.file.with_suffix(".copy").exists():
            shutil.copy(site.file.with_suffix(".copy"), site.file)

    def spoil_record(self, _: str, site: Site) -> None:
        if site.file.exists():
            content = json.loads(site.file.read_text())
            content["uploads"][-1]["position"] -= 1
            site.file.write_text(json.dumps(content))

    def withdraw(self, name: str, _: Site) -> None:
        if name in self.ledger:
            self.ledger.remove(name)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(3))
def test_no_total_is_ever_wrong_and_one_good_round_repairs_all(form, seed, tmp_path):
    walk = Walk(tmp_path, form, seed)
    for _ in range(100):
        walk.step()
    walk.finish()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    found = Site(tmp_path)
    found.n_rows = 20
    return found


@pytest.fixture
def ledger(tmp_path: Path) -> Any:
    with Ledger(tmp_path / "ledger") as opened:
        yield opened


def test_new_rows_only_are_sent_after_the_first_upload(site, ledger):
    first = site.answer(ask(ledger))
    assert (first.since, first.statistics.count) == ("", 20)
    assert deliver(ledger, "a", first)
    site.n_rows = 25
    second = site.answer(ask(ledger))
    assert (second.since, second.statistics.count) == (first.upload, 5)
    assert deliver(ledger, "a", second)
    assert_is(ledger.total(), site.rows(0, 25), "moments")
    assert ledger.clients()["a"].sequence == 2
    assert site.calls == [None, 20]


def test_nothing_new_is_said_and_changes_nothing(site, ledger):
    deliver(ledger, "a", site.answer(ask(ledger)))
    before = ledger.history()
    again = site.answer(ask(ledger))
    assert (again.statistics.count, again.upload) == (0, again.since)
    assert deliver(ledger, "a", again)
    assert ledger.history() == before


def test_an_answer_that_was_lost_is_in_the_next_one(site, ledger):
    deliver(ledger, "a", site.answer(ask(ledger)))
    site.n_rows = 25
    site.answer(ask(ledger))  # lost
    site.n_rows = 30
    assert site.answer(ask(ledger)).statistics.count == 10


def test_a_lost_acknowledgement_sends_nothing_twice(site, ledger):
    request = ask(ledger)
    sent = site.answer(request)
    deliver(ledger, "a", sent)  # and the client hears nothing of it
    deliver(ledger, "a", sent)  # twice
    site.n_rows = 25
    assert site.answer(ask(ledger)).statistics.count == 5


def test_new_rows_are_not_added_twice(site, ledger):
    deliver(ledger, "a", site.answer(ask(ledger)))
    site.n_rows = 25
    sent = site.answer(ask(ledger))
    assert deliver(ledger, "a", sent)
    assert not deliver(ledger, "a", sent)
    assert not deliver(ledger, "b", sent)  # and not to another client
    assert ledger.total().count == 25


def test_another_question_is_answered_with_all_rows(site, ledger):
    deliver(ledger, "a", site.answer(ask(ledger)))
    site.n_rows = 25
    request = AskStatistics(wire_dtype="float32", uploads=ledger.uploads())
    assert site.answer(request).since == ""


def test_a_client_with_fewer_rows_than_it_sent_sends_all(site, ledger):
    deliver(ledger, "a", site.answer(ask(ledger)))
    site.n_rows = 15
    sent = site.answer(ask(ledger))
    assert (sent.since, sent.statistics.count) == ("", 15)


@pytest.mark.parametrize("kind", [float, lambda n: f"{n:05d}"])
def test_positions_of_any_kind_tell_that_rows_are_gone(site, ledger, kind):
    def load(since: Any) -> Any:
        start = min(int(float(since or 0)), site.n_rows)
        return (*site.rows(start, site.n_rows), None), kind(site.n_rows)

    site.load, site.n_rows = load, 100
    for n_rows in (100, 60, 80):
        site.n_rows = n_rows
        assert deliver(ledger, "a", site.answer(ask(ledger)))
        assert ledger.total().count == n_rows


def test_a_position_that_load_new_data_does_not_know_means_all_rows(site, ledger):
    deliver(ledger, "a", site.answer(ask(ledger)))
    site.n_rows = 25
    known = site.load
    site.load = lambda since: None if since is not None else known(None)
    assert site.answer(ask(ledger)).statistics.count == 25


@pytest.mark.parametrize(
    "position", [None, object(), {1: 2}, [1.0], True, "x" * 5000, float("inf")]
)
def test_a_position_must_come_back_from_the_record(site, ledger, position):
    rows = (*site.rows(0, 20), None)
    site.load = lambda since: (rows, position)
    with pytest.raises(DataError, match="must return rows and a position"):
        site.answer(ask(ledger))


def test_the_record_has_no_rows_and_is_the_owners(site, ledger):
    site.answer(ask(ledger))
    content = json.loads(site.file.read_text())
    kept = {"id", "number", "position", "n_rows", "asked"}
    assert [set(each) for each in content["uploads"]] == [kept]
    assert site.file.stat().st_mode & 0o077 == 0


def test_a_folder_that_is_not_there_is_named(site, ledger):
    site.file = site.file.parent / "gone" / "uploads.json"
    with pytest.raises(DataError, match="no folder for the record of uploads"):
        site.answer(ask(ledger))


# ---- what a site refuses ------------------------------------------------------------


def test_one_new_row_is_the_row_and_is_not_sent(site, ledger):
    deliver(ledger, "a", site.answer(ask(ledger)))
    site.n_rows = 21
    with pytest.raises(DataError, match="fewer rows than its min_rows=2"):
        site.answer(ask(ledger))
    # Nor by a server that has forgotten, or says so, and subtracts.
    with pytest.raises(DataError, match="fewer rows than its min_rows=2"):
        site.answer(AskStatistics(uploads=frozenset()))


@pytest.mark.parametrize(
    "other",
    [
        {"statistics": "triangular"},
        {"statistics": "fixed"},
        {"wire_dtype": "float32"},
        {"feature_map": PolynomialMap(2)},
    ],
)
def test_another_form_does_not_let_one_new_row_out(site, ledger, other):
    site.guards = Guards(min_rows=5)
    site.n_rows = 20
    deliver(ledger, "a", site.answer(ask(ledger)))
    site.n_rows = 21
    for request in (ask(ledger), replace(ask(ledger), **other)):
        with pytest.raises(DataError, match="fewer rows than its min_rows=5"):
            site.answer(request)


def test_an_answer_that_was_lost_and_one_row_more_is_not_sent(site, ledger):
    deliver(ledger, "a", site.answer(ask(ledger)))
    site.n_rows = 25
    site.answer(ask(ledger))  # the server says that it was lost
    site.n_rows = 26
    with pytest.raises(DataError, match="min_rows=2"):
        site.answer(ask(ledger))
    site.n_rows = 27
    assert site.answer(ask(ledger)).statistics.count == 7


def test_the_policy_of_the_site_holds_for_new_rows(tmp_path, ledger):
    policy = SitePolicy(min_rows=10)
    site = Site(tmp_path, policies=(policy,))
    site.n_rows = 20
    deliver(ledger, "a", site.answer(ask(ledger)))
    site.n_rows = 29
    with pytest.raises(PolicyError, match="min_rows=10, but there are 9"):
        site.answer(ask(ledger))
    site.n_rows = 30
    assert site.answer(ask(ledger)).statistics.count == 10


def test_the_history_of_uploads_knows_the_sum_of_two(tmp_path, ledger):
    """All rows less the first upload less the second are one row."""
    policy = SitePolicy(min_row_difference=5, state=tmp_path)
    site = Site(tmp_path, policies=(policy,))
    site.n_rows = 20
    deliver(ledger, "a", site.answer(ask(ledger)))
    site.n_rows = 30
    assert site.answer(ask(ledger)).statistics.count == 10
    site.n_rows = 33
    site.file.unlink()  # only the history of the policy remembers
    with pytest.raises(
        PolicyError, match="differ from those of an earlier upload in 3"
    ):
        site.answer(ask(ledger))


# ---- hostile ------------------------------------------------------------------------


@pytest.mark.parametrize("told", [b"x", "text", 3, b"0" * 17, b"0" * (16 << 17)])
def test_a_request_with_something_else_than_ids_is_refused(told):
    with pytest.raises(ProtocolError, match="which uploads"):
        read_request({"ledger-uploads": told}, [], evaluating=False)


@pytest.mark.parametrize(
    ("upload", "since"),
    [(b"x" * 16, b"y" * 16), (b"", b""), ("x", b""), (b"x" * 15, b""), (3, b"")],
)
def test_an_answer_since_an_upload_that_nobody_has_is_refused(
    site, ledger, upload, since
):
    request = ask(ledger)
    found = respond_since(request, site.load, site.guards, UploadRecord(site.file))
    content = reply_content(found, False)
    content["config"]["upload"], content["config"]["since-upload"] = upload, since
    if (upload, since) == (b"", b""):
        assert read_answer(content, request).upload == ""
        return
    with pytest.raises(ProtocolError, match="upload"):
        read_answer(content, request)
