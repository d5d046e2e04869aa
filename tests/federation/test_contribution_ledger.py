"""The ledger: whatever is done to it, by whom, the total is that of the rows in it."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)
from ledgers import (
    CLIENTS,
    FORMS,
    X,
    Y,
    assert_total,
    in_another_process,
    killed_at,
    part_of,
)

from fedridge_flwr import (
    FedRidgeError,
    Ledger,
    LedgerError,
    PlainStatistics,
    StatisticsError,
    SufficientStatistics,
    TriangularStatistics,
    _files,
)
from fedridge_flwr.federation.ledger import ledger_database
from fedridge_flwr.federation.ledger.ledger_storage import IN_RUN
from fedridge_flwr.statistics.packing import pack

ROWS = st.lists(st.integers(0, 399), min_size=2, max_size=30, unique=True)
WHO = st.sampled_from(CLIENTS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trial.ledger"


# ---- any sequence of changes --------------------------------------------------------


class AnyChanges(RuleBasedStateMachine):
    """Changes by this process, by another one, and by one that is killed."""

    form = "moments"

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "trial.ledger"
        self.rows: dict[str, list[int]] = {}
        self.uploads: dict[str, int] = {}
        self.ledger = Ledger(self.path)

    def teardown(self) -> None:
        self.ledger.close()
        self.folder.cleanup()

    def change(self, client: str, rows: list[int] | None, work: Any, how: str) -> None:
        """Do `work`, after which the client has these rows, in one of three ways."""
        if how == "here":
            work(self.ledger)
        elif how == "elsewhere":
            assert in_another_process(self.path, work) == 0
        else:
            if how != "killed beside":
                self.ledger.close()
            statement = int(how.split()[-1]) if how[-1].isdigit() else 9
            ended = killed_at(self.path, work, statement)
            if how != "killed beside":
                self.ledger = Ledger(self.path)
            entry = self.ledger.clients().get(client)
            done = (None if entry is None else entry.sequence) != self.uploads.get(
                client
            )
            assert done or ended != 0, "what returned was acknowledged"
            if not done:
                return
        if rows is None:
            del self.rows[client], self.uploads[client]
        else:
            self.rows[client] = rows
            self.uploads[client] = self.ledger.clients()[client].sequence

    how = st.one_of(
        st.sampled_from(["here", "here", "elsewhere", "killed beside"]),
        st.integers(0, 30).map(lambda k: f"killed at {k}"),
    )

    @rule(client=WHO, rows=ROWS, how=how)
    def add(self, client: str, rows: list[int], how: str) -> None:
        if client in self.rows:
            return
        part = part_of(rows, self.form)
        self.change(client, rows, lambda ledger: ledger.add(client, part), how)

    @rule(client=WHO, rows=ROWS, how=how)
    def replace(self, client: str, rows: list[int], how: str) -> None:
        part = part_of(rows, self.form)
        self.change(client, rows, lambda ledger: ledger.replace(client, part), how)

    @rule(client=WHO, rows=ROWS, how=how)
    def update(self, client: str, rows: list[int], how: str) -> None:
        if client not in self.rows:
            return
        delta, number = part_of(rows, self.form), self.uploads[client] + 1
        whole = self.rows[client] + rows
        self.change(client, whole, lambda x: x.update(client, delta, number), how)

    @rule(client=WHO, rows=ROWS)
    def late_or_lost(self, client: str, rows: list[int]) -> None:
        if client not in self.rows:
            return
        delta, number = part_of(rows, self.form), self.uploads[client]
        assert not self.ledger.update(client, delta, number).taken
        with pytest.raises(LedgerError, match="send all rows"):
            self.ledger.update(client, delta, number + 2)

    @rule(client=WHO, how=how)
    def remove(self, client: str, how: str) -> None:
        if client not in self.rows:
            return
        self.change(client, None, lambda ledger: ledger.remove(client), how)

    @rule(clients=st.sets(WHO), rows=ROWS, refused=WHO, breaks=st.booleans())
    def run(self, clients: set[str], rows: list[int], refused: str, breaks: bool):
        """A run of several clients, one of them not accepted, interrupted or not."""
        self.ledger.open_run("moments")
        for client in clients:
            self.ledger.receive(client, part_of(rows, self.form))
        if breaks:
            self.reload()
            assert set(self.ledger.open_run("moments")) == clients
        for receipt in self.ledger.close_run(clients - {refused}):
            self.rows[receipt.client] = rows
            self.uploads[receipt.client] = receipt.sequence
        self.reload()

    @rule()
    def reload(self) -> None:
        self.ledger.close()
        self.ledger = Ledger(self.path)

    @rule()
    def verify(self) -> None:
        found = self.ledger.verify()
        assert found.n_clients == len(self.rows)
        assert found.difference <= found.bound

    @invariant()
    def total_is_that_of_the_rows(self) -> None:
        if not hasattr(self, "rows"):
            return
        assert list(self.ledger.clients()) == sorted(self.rows)
        if self.rows:
            rows = [row for each in self.rows.values() for row in each]
            assert_total(self.ledger.total(), rows, self.form)


class AnyChangesInFixedPoint(AnyChanges):
    form = "fixed"


FEW = settings(max_examples=6, stateful_step_count=12, deadline=None)
TestAnyChanges = AnyChanges.TestCase
TestAnyChanges.settings = FEW
TestAnyChangesInFixedPoint = AnyChangesInFixedPoint.TestCase
TestAnyChangesInFixedPoint.settings = FEW


@pytest.mark.slow
@pytest.mark.parametrize("machine", [AnyChanges, AnyChangesInFixedPoint])
def test_many_sequences_of_changes(machine) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    many = settings(max_examples=300, stateful_step_count=30, deadline=None)
    run_state_machine_as_test(machine, settings=many)


# ---- exactness ----------------------------------------------------------------------


@given(
    sizes=st.lists(st.integers(2, 60), min_size=2, max_size=6), scale=st.floats(0, 9)
)
@settings(max_examples=15)
def test_the_bound_of_a_receipt_holds(sizes, scale) -> None:
    """Against whole numbers, which are exact, however much larger the removed is."""
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(sum(sizes))
        rows = [(rng.normal(size=(n, 2)), rng.normal(size=n)) for n in sizes]
        rows[0] = (rows[0][0] * 10**scale + 1.0, rows[0][1])
        with Ledger(f"{folder}/ledger") as ledger:
            for k, (A, b) in enumerate(rows):
                ledger.add(f"clinic {k}", SufficientStatistics.from_data(A, b))
            receipt = ledger.remove("clinic 0")
            total = ledger.total()
        exact = sum(FORMS["fixed"].from_data(*each) for each in rows[1:])
        gap = abs(total.comoment - exact.to_sufficient().comoment)
        unit = np.sqrt(np.outer(*[np.diagonal(total.comoment)] * 2))
        # The parts themselves were rounded when they were made of rows.
        assert (gap <= (receipt.bound + 1e-14) * unit).all()
        assert receipt.bound < 1e-11


def test_a_client_that_dwarfs_the_others_leaves_them_as_they_were(path) -> None:
    with Ledger(path) as ledger:
        ledger.add("small", part_of(range(50)))
        huge = SufficientStatistics.from_data(X[50:] * 1e9, Y[50:] * 1e9)
        ledger.add("huge", huge)
        assert ledger.remove("huge").bound < 1e-11
        assert_total(ledger.total(), range(50))


def test_columns_in_another_order_are_rearranged_and_others_are_refused(path) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["age", "bmi", "dose"])
    first, second = (slice(0, 100), slice(100, 400))
    with Ledger(path) as ledger:
        ledger.add("a", SufficientStatistics.from_data(frame[first], Y[first]))
        turned = frame[["dose", "age", "bmi"]]
        ledger.add("b", SufficientStatistics.from_data(turned[second], Y[second]))
        assert_total(ledger.total(), range(400))
        for wrong in (frame.rename(columns={"dose": "mass"}), frame[["age", "bmi"]]):
            with pytest.raises(StatisticsError, match="the columns differ"):
                ledger.add("c", SufficientStatistics.from_data(wrong, Y))
        assert len(ledger) == 2


def test_forms_that_cannot_be_taken_away_again_are_refused(path) -> None:
    with Ledger(path) as ledger:
        whole = part_of(range(9))
        plain = PlainStatistics.from_statistics(whole)
        for wrong in (TriangularStatistics.from_data(X, Y), plain):
            with pytest.raises(StatisticsError, match="taken away"):
                ledger.add("a", wrong)
        ledger.add("a", part_of(range(9)))
        with pytest.raises(StatisticsError, match="do not go with"):
            ledger.add("b", part_of(range(9), "fixed"))
        assert list(ledger.clients()) == ["a"]


@pytest.mark.parametrize("name", ["", " a", "a\n", "x" * 201, 7, "a\x00b"])
def test_names_are_one_printable_line(path, name) -> None:
    with Ledger(path) as ledger:
        with pytest.raises(LedgerError, match="one printable line"):
            ledger.replace(name, part_of(range(9)))
        assert len(ledger) == 0


def test_nobody_is_in_twice_and_nobody_is_removed_who_is_not_there(path) -> None:
    with Ledger(path) as ledger:
        ledger.add("a", part_of(range(9)))
        with pytest.raises(LedgerError, match="'a' is in the ledger already"):
            ledger.add("a", part_of(range(9)))
        with pytest.raises(
            LedgerError, match="'b' is not in the ledger, which has 'a'"
        ):
            ledger.remove("b")
        ledger.remove("a")
        with pytest.raises(LedgerError, match="has no contributions"):
            ledger.total()


# ---- really gone --------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_what_is_removed_is_gone_from_every_file(path, form) -> None:
    secret, others = part_of(range(100, 150), form), part_of(range(100), form)
    with Ledger(path) as ledger:
        ledger.add("others", others)
        ledger.open_run("statistics")
        ledger.receive("withdrawn", secret)
        ledger.close_run(["withdrawn"])
        before = ledger.total()
        ledger.update("others", part_of(range(200, 220), form), 2)
        between = ledger.total()
        assert any_file_has(path, secret)
        receipt = ledger.remove("withdrawn")
        assert receipt.erased
        # With the total before and after, anybody could compute the difference.
        for gone in (secret, before, between):
            assert not any_file_has(path, gone)
        assert any_file_has(path, ledger.total())
    assert not any_file_has(path, secret)


def any_file_has(path: Path, stats: Any) -> bool:
    """Whether any eight numbers in a row are in a file of the ledger."""
    numbers = pack(stats)[1]
    pieces = [numbers[k : k + 64] for k in range(0, len(numbers) - 63, 8)]
    files = [each.read_bytes() for each in path.parent.glob(f"{path.name}*")]
    assert any(file.startswith(b"SQLite format 3") for file in files)
    return any(piece in file for piece in pieces if any(piece) for file in files)


def test_runs_leave_nothing_that_a_removal_does_not_erase(tmp_path) -> None:
    """SQLite moves rows between pages, and leaves copies where they were."""
    for seed in range(6):
        rng, path = np.random.default_rng(seed), tmp_path / f"{seed}.ledger"
        present: dict[str, Any] = {}
        gone: list[Any] = []
        for step in range(8):
            some = rng.choice(
                200, size=rng.choice([10, 63, 64, 65, 128]), replace=False
            )
            batch = {f"s{k}": numbers_of(1000 * step + int(k)) for k in some}
            with Ledger(path) as ledger:
                ledger.open_run("statistics")
                ledger.receive_all({c: (part, "") for c, part in batch.items()})
                ledger.close_run(list(batch))
                gone += [present[client] for client in batch if client in present]
                present |= batch
                for client in rng.choice(sorted(present), size=3, replace=False):
                    assert ledger.remove(str(client)).erased
                    gone.append(present.pop(str(client)))
        content = b"".join(p.read_bytes() for p in tmp_path.glob(f"{seed}.ledger*"))
        assert not [part for part in gone if pack(part)[1][8:40] in content]
        assert all(pack(part)[1][8:40] in content for part in present.values())


def numbers_of(seed: int) -> SufficientStatistics:
    rng = np.random.default_rng(seed)
    return SufficientStatistics.from_data(rng.normal(size=(9, 3)), rng.normal(size=9))


def test_where_nothing_can_be_written_anew_it_is_not_called_erased(
    path, monkeypatch
) -> None:
    with Ledger(path) as ledger:
        ledger.add("a", part_of(range(9)))
        ledger.add("b", part_of(range(9, 20)))
        with sqlite3.connect(path) as other:
            monkeypatch.setattr(ledger._file, "forget", lambda: True)
            ledger._file._database.execute("PRAGMA busy_timeout = 10")
            other.execute("BEGIN IMMEDIATE")
            assert not ledger._file.erase()
        other.close()
        assert ledger._file.erase()


def test_a_reader_that_still_sees_it_is_told(path, monkeypatch) -> None:
    monkeypatch.setattr(_files, "_BUSY_SECONDS", 0.1)
    with Ledger(path) as ledger, Ledger(path) as reader:
        ledger.add("a", part_of(range(9)))
        ledger.add("b", part_of(range(9, 20)))
        with reader._file.reading() as database:
            database.execute("SELECT * FROM parts").fetchone()
            assert not ledger.remove("a").erased
        assert ledger.remove("b").erased


def test_hashes_do_not_give_the_removed_away(path) -> None:
    """Who has all later files and guesses right still cannot tell from the hashes."""
    with Ledger(path) as ledger:
        ledger.add("a", part_of(range(9)))
        ledger.add("b", part_of(range(9, 20)))
        told = ledger.remove("b").before
        ledger.add("b", part_of(range(9, 20)))
        assert ledger.history()[-1].after not in (told, ledger.history()[0].after)
        assert ledger.history()[-1].before == ledger.history()[-2].after


def test_only_the_owner_can_read_the_files(path) -> None:
    with Ledger(path) as ledger:
        ledger.add("a", part_of(range(9)))
        for each in path.parent.glob(f"{path.name}*"):
            assert stat.S_IMODE(each.stat().st_mode) == 0o600, each
        ledger.open_run("statistics")


# ---- files and processes ------------------------------------------------------------


def test_where_the_file_system_has_no_shared_memory_it_says_so(path, monkeypatch):
    """SQLite's dot-file locks are what a file system without shared memory leaves."""

    def without(where: Path, mode: str = "rw") -> sqlite3.Connection:
        uri = f"{where.as_uri()}?mode={mode}&vfs=unix-dotfile"
        return sqlite3.connect(uri, uri=True, isolation_level=None)

    monkeypatch.setattr(ledger_database, "connect", without)
    with pytest.raises(LedgerError, match="put it on a local disk"):
        Ledger(path)


def test_a_folder_that_is_not_there_is_not_made(tmp_path) -> None:
    with pytest.raises(LedgerError, match="folder that does not exist"):
        Ledger(tmp_path / "unmounted" / "ledger")
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    with pytest.raises(LedgerError, match="a link to a file that is missing"):
        Ledger(tmp_path / "link")
    with pytest.raises(LedgerError, match="does not exist"):
        Ledger(tmp_path / "none", create=False)
    assert [each.name for each in tmp_path.iterdir()] == ["link"]


def test_two_writers_wait_for_each_other(path) -> None:
    """Forty changes by four threads of two processes each: none is lost."""
    code = (
        "import sys, threading; from fedridge_flwr import Ledger\n"
        "from ledgers import part_of\n"
        "def work(k):\n"
        "    for n in range(5):\n"
        "        with Ledger(sys.argv[1]) as ledger:\n"
        "            ledger.add(f'{sys.argv[2]} {k} {n}', part_of(range(5, 12)))\n"
        "threads = [threading.Thread(target=work, args=[k]) for k in range(4)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
    )
    folder = Path(__file__).parents[1] / "support"
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    running = [
        subprocess.Popen([sys.executable, "-c", code, path, name], env=environment)
        for name in ("one", "two")
    ]
    assert [each.wait(timeout=300) for each in running] == [0, 0]
    with Ledger(path) as ledger:
        assert ledger.verify().n_clients == 40
        assert ledger.total().count == 40 * 7


def test_a_lock_that_is_never_released_is_a_clear_error(path, monkeypatch) -> None:
    monkeypatch.setattr(_files, "_BUSY_SECONDS", 0.1)
    with Ledger(path) as ledger, Ledger(path) as other, ledger._file.changing():
        with pytest.raises(LedgerError, match="in use by another process"):
            other.add("a", part_of(range(9)))
        assert len(other) == 0  # reading goes on


@pytest.mark.parametrize(
    "change",
    [
        lambda other: other.open_run("statistics"),
        lambda other: other.add("b", part_of(range(9))),
        lambda other: other.replace("a", part_of(range(20))),
        lambda other: other.update("a", part_of(range(9, 20)), 2),
        lambda other: other.remove("a"),
        lambda other: other.verify(),
    ],
    ids=["run", "add", "replace", "update", "remove", "verify"],
)
def test_runs_and_changes_during_a_run_are_kept_apart(path, change) -> None:
    """The sum with which a run ends would not have them."""
    with Ledger(path) as ledger, Ledger(path) as other:
        ledger.add("a", part_of(range(9)))
        ledger.open_run("statistics")
        with pytest.raises(LedgerError, match="in use by another process"):
            change(other)
        assert in_another_process(path, change) == 1
        ledger.close_run([])
    with Ledger(path) as other:
        change(other)


def test_an_answer_to_an_interrupted_run_can_be_withdrawn(path) -> None:
    secret = part_of(range(100, 150))
    with Ledger(path) as ledger:
        ledger.add("others", part_of(range(9)))
        ledger.open_run("statistics")
        ledger.receive("withdrawn", secret)
    with Ledger(path) as ledger:
        assert set(ledger.waiting()) == {"withdrawn"}
        assert any_file_has(path, secret)
        receipt = ledger.remove("withdrawn")
        assert receipt.before == receipt.after
        assert (receipt.action, receipt.erased) == ("remove", True)
        assert not any_file_has(path, secret)
        assert ledger.open_run("statistics") == {}
        assert set(ledger.withdrawn()) == {"withdrawn"}
        assert_total(ledger.total(), range(9))
        with pytest.raises(LedgerError, match="not in the ledger"):
            ledger.remove("withdrawn")


def test_a_run_in_which_nothing_is_new_leaves_the_total_as_it_is(path) -> None:
    with Ledger(path) as ledger:
        ledger.open_run("statistics")
        ledger.receive("a", part_of(range(9)), "first")
        ledger.close_run(["a"], part_of(range(9)))
        ledger.open_run("statistics")
        ledger.receive("a", part_of(range(9)), "first")
        assert ledger.close_run(["a"], part_of(range(9))) == []
        ledger.add("b", part_of(range(9, 20)))
        first, second = ledger.history()
        assert first.after == second.before


def test_a_run_that_asks_for_something_else_does_not_get_the_old_answers(path) -> None:
    with Ledger(path) as ledger:
        ledger.open_run("one")
        ledger.receive("a", part_of(range(9)))
        assert set(ledger.open_run("one")) == {"a"}
        assert ledger.open_run("two") == {}
        assert ledger.close_run(["a"]) == []


@pytest.mark.parametrize("change", ["add", "replace", "update"])
def test_a_later_change_is_not_overwritten_by_an_answer_that_waits(
    path, change
) -> None:
    with Ledger(path) as ledger:
        if change != "add":
            ledger.add("a", part_of(range(9)))
        ledger.open_run("statistics")
        ledger.receive("a", part_of(range(20, 40)))
        ledger.receive("b", part_of(range(40, 60)))
    rows = list(range(60, 90))
    with Ledger(path) as ledger:
        if change == "update":
            ledger.update("a", part_of(rows), 2)
            rows += range(9)
        else:
            getattr(ledger, change)("a", part_of(rows))
    with Ledger(path) as ledger:
        assert set(ledger.open_run("statistics")) == {"b"}
        ledger.close_run(["a", "b"])
        assert_total(ledger.total(), [*rows, *range(40, 60)])


def test_an_answer_of_before_the_last_upload_is_dropped(path) -> None:
    with Ledger(path) as ledger:
        ledger.open_run("statistics")
        ledger.receive("a", part_of(range(20, 40)))
        ledger._file._in_run = True
        with ledger._file.changing():
            ledger._put("replace", "a", part_of(range(9)), 5)
            ledger._file.write("a", 5, part_of(range(20, 40)), IN_RUN)
        ledger.close_run(["a"])
        assert ledger.total().count == 9


@pytest.mark.parametrize("create", [True, False])
def test_a_new_ledger_does_not_begin_with_changes_of_a_deleted_one(
    path, create
) -> None:
    def work(ledger: Ledger) -> None:
        ledger.add("old", part_of(range(9)))
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_another_process(path, work) == -signal.SIGKILL
    path.unlink()
    with pytest.raises(
        LedgerError, match=r"is missing, but trial\.ledger-wal beside it"
    ):
        Ledger(path, create=create)
    path.with_name("trial.ledger-wal").unlink()
    with Ledger(path) as ledger:
        assert not ledger.clients()


def test_a_file_with_two_names_is_refused(path, monkeypatch) -> None:
    monkeypatch.setattr(ledger_database, "_ATTEMPTS", 2)
    Ledger(path).close()
    os.link(path, path.with_name("other.ledger"))
    with pytest.raises(LedgerError, match="has a hard link"):
        Ledger(path)


@pytest.mark.parametrize("how", ["moved", "replaced", "deleted"])
def test_what_is_no_longer_at_its_place_is_not_changed(path, how) -> None:
    with Ledger(path) as ledger:
        ledger.add("a", part_of(range(9)))
        path.rename(path.with_name("moved.ledger"))
        if how == "replaced":
            path.write_bytes(path.with_name("moved.ledger").read_bytes())
        with pytest.raises(LedgerError, match=r"moved or replaced|No such file"):
            ledger.add("b", part_of(range(9, 20)))


def test_names_that_look_the_same_are_one_client(path) -> None:
    with Ledger(path) as ledger:
        ledger.add("caf\u00e9", part_of(range(9)))
        for name in ("cafe\u0301", "\ud800"):
            assert name not in ledger
            for change in (ledger.add, ledger.replace):
                with pytest.raises(LedgerError, match="one printable line"):
                    change(name, part_of(range(9)))
            with pytest.raises(LedgerError, match="one printable line"):
                ledger.remove(name)


def test_a_sequence_has_room_for_the_next_one(path) -> None:
    with Ledger(path) as ledger:
        ledger.replace("a", part_of(range(9)), 2**62)
        with pytest.raises(FedRidgeError, match="sequence must be a whole number"):
            ledger.replace("a", part_of(range(9)), 2**63)
        ledger.open_run("statistics")
        ledger.receive("a", part_of(range(20)))
        ledger.close_run(["a"])
        assert ledger.total().count == 20


def test_a_ledger_can_be_asked_while_it_is_read(path) -> None:
    with Ledger(path) as ledger:
        ledger.add("a", part_of(range(9)))
        for client, part in ledger.contributions():
            assert client in ledger
            assert ledger.total().count == part.count
            with pytest.raises(
                LedgerError, match="is being read: change it after that"
            ):
                ledger.remove("a")
        assert ledger.remove("a").taken


def test_an_export_is_of_one_moment(path, tmp_path, monkeypatch) -> None:
    with Ledger(path) as ledger, Ledger(path) as other:
        ledger.add("a", part_of(range(9)))
        save = SufficientStatistics.save

        def change_meanwhile(self: Any, where: Any) -> None:
            other.replace("a", part_of(range(100)))
            save(self, where)

        monkeypatch.setattr(SufficientStatistics, "save", change_meanwhile)
        ledger.export(tmp_path / "files")
    for name in ("000001.stats", "total.stats"):
        assert SufficientStatistics.load(tmp_path / "files" / name).count == 9
    told = json.loads((tmp_path / "files" / "ledger.json").read_text())
    assert [each["n_rows"] for each in told["clients"]] == [9]
    assert len(told["history"]) == 1


def test_a_copy_of_the_file_is_a_ledger(path, tmp_path) -> None:
    with Ledger(path) as ledger:
        ledger.add("a", part_of(range(9)))
    (tmp_path / "copy").write_bytes(path.read_bytes())
    with Ledger(tmp_path / "copy") as copy:
        assert_total(copy.total(), range(9))
        assert copy.verify().n_clients == 1


def test_threads_may_share_a_ledger(path) -> None:
    with Ledger(path) as ledger:
        thread = threading.Thread(target=ledger.add, args=("a", part_of(range(9))))
        thread.start()
        thread.join()
        assert_total(ledger.total(), range(9))


def test_one_client_counts_once_however_many_it_was_made_of(path) -> None:
    with Ledger(path) as ledger:
        ledger.add("a", replace(part_of(range(9)), n_clients=3))
        ledger.add("b", part_of(range(9, 20)))
        assert ledger.total().n_clients == 2
