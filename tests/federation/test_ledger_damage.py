"""Spoiled ledgers: refused with a reason, or as they were at one time; never wrong."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ledgers import CLIENTS, part_of

from fedridge_flwr import Ledger, LedgerError
from fedridge_flwr.statistics.packing import pack

NAME = "trial.ledger"
ROWS = {name: range(30 * k, 30 * k + 25) for k, name in enumerate(CLIENTS)}
States = dict[bytes, list[str]]


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> tuple[Path, States]:
    """A folder with a ledger, closed and as after a crash, and its totals so far."""
    folder, states = tmp_path_factory.mktemp("good"), {}
    for kind in ("closed", "crashed"):
        (folder / kind).mkdir()
        ledger = Ledger(folder / kind / NAME)
        for client, rows in ROWS.items():
            ledger.add(client, part_of(rows))
            states[content_of(ledger)] = list(ledger.clients())
        ledger.replace(CLIENTS[0], part_of(range(200, 260)))
        states[content_of(ledger)] = list(ledger.clients())
        ledger.update(CLIENTS[1], part_of(range(300, 310)), 2)
        states[content_of(ledger)] = list(ledger.clients())
        if kind == "crashed":
            (folder / "files").mkdir()
            for suffix in ("", "-wal"):
                source = folder / kind / f"{NAME}{suffix}"
                shutil.copy(source, folder / "files" / source.name)
        ledger.close()
    (folder / "closed" / f"{NAME}.run").unlink()  # empty; it keeps runs apart
    shutil.rmtree(folder / "crashed")
    (folder / "files").rename(folder / "crashed")
    assert (folder / "crashed" / f"{NAME}-wal").stat().st_size > 1000
    return folder, states


def content_of(ledger: Ledger) -> bytes:
    about, numbers = pack(ledger.total())
    return about.encode() + numbers


def spoil(kind: int, data: bytearray, rng: np.random.Generator) -> None:
    """Spoil the bytes of a file, in one of several ways."""
    place = int(rng.integers(max(len(data), 1)))
    if kind == 0:  # cut off
        del data[place:]
    elif kind == 1:  # one bit
        data[place] ^= 1 << int(rng.integers(8))
    elif kind == 2:  # some bytes
        for each in rng.integers(len(data), size=20).tolist():
            data[each] = int(rng.integers(256))
    elif kind == 3:  # a lost page
        page = place // 4096 * 4096
        data[page : page + 4096] = bytes(len(data[page : page + 4096]))
    elif kind == 4:  # a page in the place of another
        pages = len(data) // 4096
        one, other = (4096 * int(k) for k in rng.integers(max(pages, 1), size=2))
        data[one : one + 4096] = data[other : other + 4096].ljust(4096, b"\0")
    else:  # bytes in the middle are gone
        del data[place : place + int(rng.integers(1, 50))]


def check_spoiled(case: int, good: tuple[Path, States], folder: Path) -> str:
    """Spoil one of the files, look at everything, and return what came of it."""
    rng = np.random.default_rng(case)
    source, states = good
    shutil.copytree(source / ("crashed" if case % 3 == 0 else "closed"), folder)
    files = sorted(folder.iterdir())
    file = files[int(rng.integers(len(files)))]
    data = bytearray(file.read_bytes())
    spoil(case % 6, data, rng)
    file.write_bytes(data)
    try:
        with Ledger(folder / NAME) as ledger:
            found = content_of(ledger)
            assert found in states, "a total that never was"
            try:
                assert list(ledger.clients()) == states[found]
                ledger.replace("late", part_of(range(50, 60)))
            except LedgerError as error:
                assert_is_clear(error, folder)
                return "total only"
            late = part_of(range(50, 60)).count
            assert ledger.total().count == count_in(found) + late
            try:
                ledger.verify()
                ledger.history()
            except LedgerError as error:
                assert_is_clear(error, folder)
                return "total only"
            return "as it was"
    except LedgerError as error:
        assert_is_clear(error, folder)
        return "refused"


def count_in(content: bytes) -> int:
    return json.JSONDecoder().raw_decode(content.decode("latin-1"))[0]["count"]


def assert_is_clear(error: LedgerError, folder: Path) -> None:
    text = str(error)
    assert text.startswith(f"the ledger {folder / NAME} ")
    assert any(word in text for word in ("damaged", "another program", "newer"))


def run_cases(cases: range, good: tuple[Path, States], folder: Path) -> dict[str, int]:
    seen: dict[str, int] = {}
    for case in cases:
        told = check_spoiled(case, good, folder / str(case))
        seen[told] = seen.get(told, 0) + 1
        shutil.rmtree(folder / str(case))
    return seen


def test_a_damaged_lock_is_told_from_a_damaged_ledger(good, tmp_path) -> None:
    shutil.copytree(good[0] / "closed", tmp_path / "here")
    lock = tmp_path / "here" / f"{NAME}.run"
    lock.write_bytes(b"no database " * 400)
    with Ledger(tmp_path / "here" / NAME) as ledger:
        with pytest.raises(LedgerError, match=r"\.run beside it is damaged"):
            ledger.remove(CLIENTS[0])
        assert content_of(ledger) in good[1]
    lock.unlink()
    with Ledger(tmp_path / "here" / NAME) as ledger:
        ledger.remove(CLIENTS[0])


def test_some_spoiled_ledgers(good, tmp_path) -> None:
    seen = run_cases(range(120), good, tmp_path)
    assert seen["refused"] > 10
    assert seen["as it was"] > 10


@pytest.mark.slow
def test_ten_thousand_spoiled_ledgers(good, tmp_path) -> None:
    print(run_cases(range(10_000), good, tmp_path))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def text(path: Path) -> None:
    path.write_text(json.dumps({"clients": {}}))


def other_database(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE total (id INTEGER)")
    database.commit()
    database.close()


def pragma(statement: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        Ledger(path).close()
        database = sqlite3.connect(path)
        database.execute(statement)
        database.commit()
        database.close()

    change.__name__ = statement
    return change


FOREIGN = {
    empty: "another program's database",
    text: "damaged",
    other_database: "another program's database",
    pragma("PRAGMA user_version = 2"): "newer fedridge-flwr",
    pragma("PRAGMA user_version = 0"): "damaged",
    pragma("DROP TABLE entries"): "damaged",
    pragma("DELETE FROM total"): "damaged",
    pragma("UPDATE total SET n_clients = 1"): "damaged",
}


@pytest.mark.parametrize("make", FOREIGN, ids=lambda make: make.__name__)
def test_other_files_are_refused_and_left_alone(make, tmp_path) -> None:
    path = tmp_path / NAME
    make(path)
    before = path.read_bytes()
    with pytest.raises(LedgerError, match=FOREIGN[make]), Ledger(path) as ledger:
        ledger.add("a", part_of(range(9)))
    if make in (empty, text):
        assert path.read_bytes() == before


@pytest.mark.parametrize("create", [True, False])
def test_another_file_is_said_to_be_no_ledger(tmp_path: Path, create: bool) -> None:
    other = tmp_path / "model.json"
    other.write_text('{"name": "Alice"}' * 100, encoding="utf-8")
    with pytest.raises(LedgerError, match="is not a ledger but another file") as told:
        Ledger(other, create=create)
    assert "Alice" not in str(told.value)
