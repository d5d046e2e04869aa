"""The privacy ledger: how it counts, and that its file cannot lose an entry."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import sqlite3
import stat
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fedridge_flwr import DifferentialPrivacy, PrivacyError, PrivacyLedger, _files
from fedridge_flwr.privacy import epsilon_of, ledger_file, noise_multiplier

# Two releases of "clinic", one of them in two rounds of three, and one of "site",
# written by 0.1.0.
JSON_LEDGER = Path(__file__).parent / "ledger_0_1_0.json"


def make(epsilon: float = 1.0, delta: float = 1e-5, **options) -> DifferentialPrivacy:
    return DifferentialPrivacy(epsilon, delta, x_norm_bound=1.0, y_bound=2.0, **options)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


# ---- accounting ---------------------------------------------------------------------


def test_exact_and_basic_accounts(tmp_path):
    ledgers = {
        how: PrivacyLedger(tmp_path / how, 100.0, 0.1, accounting=how)
        for how in ("exact", "basic")
    }
    for ledger in ledgers.values():
        for number in range(4):
            ledger.charge("site", str(number), make(0.5, 1e-5))
    mu = 2.0 / noise_multiplier(0.5, 1e-5)
    exact, basic = (ledgers[how].spent("site") for how in ("exact", "basic"))
    assert exact.epsilon == pytest.approx(epsilon_of(mu, 0.1))
    assert basic.epsilon == pytest.approx(2.0)
    assert basic.delta == pytest.approx(4e-5)


def test_exact_composition_equals_the_oracle(path):
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    ledger = PrivacyLedger(path, 100.0, 1e-5)
    total = None
    for epsilon in (0.3, 1.0, 2.0):
        ledger.charge("site", str(epsilon), make(epsilon))
        one = pld.from_gaussian_mechanism(noise_multiplier(epsilon, 1e-5))
        total = one if total is None else total.compose(one)
    oracle = total.get_epsilon_for_delta(1e-5)
    assert ledger.spent("site").epsilon == pytest.approx(oracle, rel=1e-3)


def test_a_ledger_for_replaced_records_counts_more(tmp_path):
    added = PrivacyLedger(tmp_path / "a", 100.0, 1e-5)
    replaced = PrivacyLedger(tmp_path / "b", 100.0, 1e-5, neighboring="replace-one")
    for ledger in (added, replaced):
        ledger.charge("site", "1", make())
    assert replaced.spent("site").epsilon > 1.9 * added.spent("site").epsilon


def test_clients_of_one_file_have_their_own_budgets(path):
    ledger = PrivacyLedger(path, 1.0, 1e-5)
    ledger.charge("a", "1", make())
    ledger.charge("b", "1", make())
    with pytest.raises(PrivacyError, match=r"declined: .* epsilon 1\.465"):
        ledger.charge("a", "2", make())
    with pytest.raises(PrivacyError, match="not remember it"):
        ledger.charge("a", "1", make())
    assert ledger.spent("a").releases == ledger.spent("b").releases == 1
    assert ledger.spent("nobody").releases == 0


def test_a_budget_that_fits_exactly_fits(tmp_path):
    for epsilon in (0.001, 0.3, 1.0, 3.0, 5.0):
        ledger = PrivacyLedger(tmp_path / f"{epsilon}.db", epsilon, 1e-5)
        ledger.charge("site", "1", make(epsilon))
        assert ledger.spent("site").releases == 1


def test_the_first_round_pays_for_all(path):
    ledger = PrivacyLedger(path, 1.0, 1e-5)
    for server_round in (1, 2, 3):
        ledger.charge("site", "fit", make(rounds=3), server_round)
    assert ledger.spent("site").releases == 1
    with pytest.raises(PrivacyError, match="not remember it"):
        ledger.charge("site", "fit", make(rounds=3), 2)
    with pytest.raises(PrivacyError, match="have changed since it began"):
        ledger.charge("site", "fit", make(0.5, rounds=3), 4)


@pytest.mark.parametrize("name", ["", "  ", None, 7])
def test_a_ledger_needs_a_name(path, name):
    with pytest.raises(PrivacyError, match="client_name"):
        PrivacyLedger(path, 1.0, 1e-5).charge(name, "1", make())


# ---- the file -----------------------------------------------------------------------


def test_a_new_ledger_is_readable_by_its_owner_only(path):
    before = os.umask(0)
    try:
        PrivacyLedger(path, 1.0, 1e-5).charge("a", "1", make())
    finally:
        os.umask(before)
    assert path.read_bytes().startswith(b"SQLite format 3\0")
    if sys.platform != "win32":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_numbers_are_stored_exactly(path):
    privacy = make(math.pi / 3, 1e-7 / 3)
    PrivacyLedger(path, 10.0, 1e-5).charge("a", "1", privacy)
    with closing(sqlite3.connect(path)) as database:
        row = database.execute("SELECT * FROM answers").fetchone()
    assert row[4:8] == (privacy.epsilon, privacy.delta, *privacy.mus.values())


def test_nothing_is_entered_for_a_release_that_is_declined(path):
    ledger = PrivacyLedger(path, 1.0, 1e-5)
    ledger.charge("a", "1", make())
    before = path.read_bytes()
    with pytest.raises(PrivacyError, match="declined"):
        ledger.charge("a", "2", make())
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[]",
        "SQLite format 3\0",
        "\0" * 8192,
        '{"format": "fedridge-privacy-ledger", "version": 3, "clients": {}}',
        '{"format": "fedridge-privacy-ledger", "version": 1, "clients": {"a": [{}]}}',
    ],
)
def test_a_damaged_ledger_refuses_everything(path, content):
    path.write_text(content)
    ledger = PrivacyLedger(path, 1.0, 1e-5)
    for use in (lambda: ledger.charge("a", "1", make()), lambda: ledger.spent("a")):
        with pytest.raises(PrivacyError, match="damaged"):
            use()
    assert path.read_text() == content


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("UPDATE answers SET client = 'b'", "damaged"),
        ("UPDATE answers SET mu_add_or_remove = 1e-9", "damaged"),
        ("UPDATE answers SET release = x'00ff'", "damaged"),
        ("UPDATE answers SET epsilon = 9e999", "damaged"),
        ("DELETE FROM answers", "damaged"),
        ("DELETE FROM checksum", "damaged"),
        ("PRAGMA user_version = 0", "damaged"),
        ("PRAGMA user_version = 2", "newer"),
        ("DROP TABLE answers", "nothing is released"),
        ("ALTER TABLE answers DROP COLUMN rounds", "damaged"),
    ],
)
def test_a_database_with_one_thing_changed_refuses_everything(path, change, reason):
    ledger = PrivacyLedger(path, 2.0, 1e-5)
    ledger.charge("a", "1", make())
    with closing(sqlite3.connect(path)) as database:
        database.execute(change)
        database.commit()
    with pytest.raises(PrivacyError, match=reason):
        ledger.spent("a")


def test_a_flipped_bit_in_the_schema_is_damage_and_no_other_error(path):
    """SQLite quotes the schema in its error, and Python cannot decode that."""
    ledger = PrivacyLedger(path, 5.0, 1e-5)
    ledger.charge("clinic", "1", make())
    before, content = ledger.spent("clinic"), path.read_bytes()
    start, refused = content.index(b"CREATE TABLE"), 0
    for position in range(start - 20, start + 60):
        damaged = bytearray(content)
        damaged[position] ^= 0x80
        path.write_bytes(damaged)
        try:
            assert ledger.spent("clinic") == before
        except PrivacyError:
            refused += 1
    assert refused > 40


def test_no_flipped_bit_hides_what_was_spent(path):
    """Read as before, or not at all."""
    ledger = PrivacyLedger(path, 5.0, 1e-5)
    ledger.charge("clinic", "1", make())
    before, content = ledger.spent("clinic"), path.read_bytes()
    used = [k for k, byte in enumerate(content) if byte]
    refused = 0
    for position in used[:: len(used) // 150]:
        damaged = bytearray(content)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        try:
            assert ledger.spent("clinic") == before
        except PrivacyError:
            refused += 1
    assert refused > 50


def test_a_ledger_that_cannot_be_written_refuses_everything(tmp_path):
    (tmp_path / "file").write_text("in the way")
    for folder in ("file", "missing"):
        ledger = PrivacyLedger(tmp_path / folder / "ledger.db", 1.0, 1e-5)
        with pytest.raises(PrivacyError, match="does not exist"):
            ledger.charge("a", "1", make())
    with pytest.raises(PrivacyError, match="must be absolute"):
        PrivacyLedger("ledger.db", 1.0, 1e-5)
    (tmp_path / "ledger.db").mkdir()
    with pytest.raises(PrivacyError, match="nothing is released"):
        PrivacyLedger(tmp_path / "ledger.db", 1.0, 1e-5).charge("a", "1", make())


def test_a_ledger_that_stays_locked_refuses_everything(path, monkeypatch):
    monkeypatch.setattr(_files, "_BUSY_SECONDS", 0.1)
    ledger = PrivacyLedger(path, 2.0, 1e-5)
    ledger.charge("a", "1", make())
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(PrivacyError, match="cannot be read or written"):
            ledger.charge("a", "2", make())
    assert ledger.spent("a").releases == 1


# ---- links --------------------------------------------------------------------------


@pytest.mark.parametrize("old", [False, True], ids=["database", "JSON"])
def test_a_link_and_its_target_are_one_account(tmp_path, old):
    (tmp_path / "disk").mkdir()
    target, link = tmp_path / "disk" / "ledger.json", tmp_path / "link.json"
    link.symlink_to(target)
    direct, linked = (PrivacyLedger(p, 50.0, 1e-5) for p in (target, link))
    known = 0
    if old:
        target.write_text(JSON_LEDGER.read_text())
        known = 2
    else:
        direct.charge("clinic", "first", make(0.5))
        known = 1
    linked.charge("clinic", "through the link", make(0.5))
    direct.charge("clinic", "directly", make(0.5))
    assert direct.spent("clinic") == linked.spent("clinic")
    assert direct.spent("clinic").releases == known + 2
    assert link.is_symlink()
    assert {p.name for p in tmp_path.iterdir()} == {"disk", "link.json"}


def test_a_link_to_nowhere_is_no_new_ledger(tmp_path):
    target, link = tmp_path / "ledger.db", tmp_path / "link.db"
    link.symlink_to(target)
    with pytest.raises(PrivacyError, match="nothing is released"):
        PrivacyLedger(link, 1.0, 1e-5).charge("a", "1", make())
    assert not target.exists()


# ---- ledgers of 0.1.0 ---------------------------------------------------------------


@pytest.mark.parametrize("accounting", ["exact", "basic"])
@pytest.mark.parametrize("neighboring", ["add-or-remove-one", "replace-one"])
def test_a_json_ledger_keeps_what_was_spent(path, accounting, neighboring):
    path.write_text(JSON_LEDGER.read_text())
    options = {"accounting": accounting, "neighboring": neighboring}
    ledger = PrivacyLedger(path, 50.0, 1e-3, **options)
    clients = json.loads(JSON_LEDGER.read_text())["clients"]
    again = PrivacyLedger(path.with_name("again.db"), 50.0, 1e-3, **options)
    for client, releases in clients.items():
        for release in releases:
            privacy = make(
                release["epsilon"], release["delta"], rounds=release["rounds"]
            )
            assert release["mu"] == privacy.mus
            again.charge(client, release["release"], privacy)
        assert ledger.spent(client) == again.spent(client)
    assert path.read_bytes().startswith(b"SQLite")


def test_a_json_ledger_keeps_the_rounds_that_were_answered(path):
    path.write_text(JSON_LEDGER.read_text())
    ledger = PrivacyLedger(path, 50.0, 1e-5)
    for server_round in (1, 2):
        with pytest.raises(PrivacyError, match="not remember it"):
            ledger.charge("clinic", "second", make(0.7, 1e-6, rounds=3), server_round)
    ledger.charge("clinic", "second", make(0.7, 1e-6, rounds=3), 3)
    assert ledger.spent("clinic").releases == 2


def _of_clients(change: Any) -> str:
    content = json.loads(JSON_LEDGER.read_text())
    change(content["clients"])
    content["checksum"] = ledger_file._checksum(content["clients"])
    return json.dumps(content)


@pytest.mark.parametrize(
    "content",
    [
        JSON_LEDGER.read_text().replace('"clinic"', '"clinjc"'),
        JSON_LEDGER.read_text().replace('"version": 2', '"version": 3'),
        JSON_LEDGER.read_text().replace('"version": 2', '"version": true'),
        JSON_LEDGER.read_text().replace('"checksum"', '"checksun"'),
        JSON_LEDGER.read_text()[:-20],
        _of_clients(lambda clients: clients.clear()),
        _of_clients(lambda clients: clients["site"].clear()),
        _of_clients(lambda clients: clients["clinic"][0]["answered"].clear()),
        _of_clients(lambda clients: clients["clinic"][0]["answered"].append(1)),
        _of_clients(lambda clients: clients["clinic"][0].update(release="second")),
        _of_clients(lambda clients: clients["clinic"][0].update(epsilon=-1.0)),
        _of_clients(lambda clients: clients["clinic"][0].update(delta=1.0)),
        _of_clients(lambda clients: clients["clinic"][0].update(rounds=True)),
        _of_clients(lambda clients: clients["clinic"][0].pop("mu")),
        _of_clients(lambda clients: clients.update({" ": clients["clinic"]})),
    ],
)
def test_a_json_ledger_that_0_1_0_never_wrote_is_damaged(path, content):
    path.write_text(content)
    with pytest.raises(PrivacyError, match="damaged"):
        PrivacyLedger(path, 50.0, 1e-5).spent("clinic")
    assert path.read_text() == content


def test_a_json_ledger_without_a_checksum_is_read(path):
    content = json.loads(JSON_LEDGER.read_text())
    del content["checksum"]
    path.write_text(json.dumps(content | {"version": 1}))
    assert PrivacyLedger(path, 50.0, 1e-5).spent("clinic").releases == 2


def test_a_conversion_that_fails_leaves_the_json_ledger(path, monkeypatch):
    path.write_text(JSON_LEDGER.read_text())

    def fail(*args: Any) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(ledger_file, "append", fail)
        with pytest.raises(PrivacyError, match="cannot be read or written"):
            PrivacyLedger(path, 50.0, 1e-5).spent("clinic")
    assert path.read_text() == JSON_LEDGER.read_text()
    assert PrivacyLedger(path, 50.0, 1e-5).spent("clinic").releases == 2


# ---- several processes and threads --------------------------------------------------


def _charge_often(path: Path, worker: int) -> None:
    ledger = PrivacyLedger(path, 1e6, 1e-5)
    for number in range(10):
        ledger.charge("clinic", f"{worker}/{number}", make())


@pytest.mark.parametrize("old", [False, True], ids=["new", "JSON"])
def test_clients_at_the_same_time_lose_no_entry(path, old):
    """They also all want to create the file, or to convert it."""
    if old:
        path.write_text(JSON_LEDGER.read_text())
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_charge_often, args=(path, k)) for k in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all(worker.exitcode == 0 for worker in workers)
    assert PrivacyLedger(path, 1e6, 1e-5).spent("clinic").releases == 80 + 2 * old


def test_threads_and_processes_at_the_same_time_lose_no_entry(path):
    """Threads of one process share the locks that the operating system gives it."""
    path.write_text(JSON_LEDGER.read_text())
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_charge_often, args=(path, k)) for k in range(3)]
    threads = [
        threading.Thread(target=_charge_often, args=(path, 10 + k)) for k in range(4)
    ]
    for worker in (*workers, *threads):
        worker.start()
    for worker in (*workers, *threads):
        worker.join()
    assert PrivacyLedger(path, 1e6, 1e-5).spent("clinic").releases == 72


def test_a_budget_is_not_exceeded_by_processes_at_the_same_time(path):
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_charge_once, args=(path, k)) for k in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    # 1.465 is what two releases at epsilon 1 are together, 1.83 what three are.
    assert sorted(worker.exitcode for worker in workers) == [0, 0, 7, 7, 7, 7]
    assert PrivacyLedger(path, 1.5, 1e-5).spent("site").releases == 2


def _charge_once(path: Path, worker: int) -> None:
    try:
        PrivacyLedger(path, 1.5, 1e-5).charge("site", str(worker), make())
    except PrivacyError:
        os._exit(7)
