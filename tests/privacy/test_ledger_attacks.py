"""No schedule of crashes, retries, links and concurrency gets more than the budget.

What counts is what was drawn, whether or not anybody remembers it.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedridge_flwr import DifferentialPrivacy, PrivacyError, PrivacyLedger
from fedridge_flwr.data.rows import check_rows
from fedridge_flwr.privacy import compose, curator, epsilon_of, ledger
from fedridge_flwr.privacy.curator import Curator, ReleaseRequest
from fedridge_flwr.privacy.release import ReleaseQuestion

BUDGET, DELTA = 2.0, 1e-5
ROWS = check_rows(np.eye(2), np.ones(2))
STEPS = 12
# Waiting for a disk is most of the time otherwise.
MEMORY = next((place for place in ("/dev/shm",) if os.access(place, os.W_OK)), None)


class CrashError(Exception):
    """The process ends here."""


@dataclass
class Site:
    """One client, its ledger, and a server that asks as it likes."""

    folder: Path
    chance: random.Random
    drawn: list[float] = field(default_factory=list)
    asked: list[ReleaseRequest] = field(default_factory=list)
    granted: int = 0

    def __post_init__(self) -> None:
        (self.folder / "disk").mkdir()
        self.target = self.folder / "disk" / "ledger.db"
        self.paths = [
            self.target,
            self.folder / "link.db",
            self.folder / "way/ledger.db",
        ]
        (self.folder / "way").symlink_to(self.folder / "disk")
        self.restart()

    def restart(self) -> None:
        """Begin another run, or the same one in a node that has forgotten it."""
        # As somebody would who finds the link gone.
        if self.target.exists():
            self.paths[1].unlink(missing_ok=True)
            self.paths[1].symlink_to(self.target)
        path = self.chance.choice(
            self.paths if self.target.exists() else self.paths[::2]
        )
        account = PrivacyLedger(path, BUDGET, DELTA)
        self.curator = Curator(ledger=account, name="site")

    def request(self) -> ReleaseRequest:
        """Ask for something new, or once more for something old."""
        if self.asked and self.chance.random() < 0.3:
            return self.chance.choice(self.asked)
        rounds = self.chance.choice([1, 1, 3])
        privacy = DifferentialPrivacy(
            self.chance.choice([0.3, 0.7, 1.0]),
            DELTA,
            x_norm_bound=1.0,
            y_bound=1.0,
            rounds=rounds,
        )
        clip = 1.0 if rounds > 1 else 0.0
        question = ReleaseQuestion(self.chance.randint(1, rounds), None, clip)
        name = f"{self.chance.getrandbits(128):032x}"
        self.asked.append(ReleaseRequest(name, privacy, True, question))
        return self.asked[-1]

    def answer(self, request: ReleaseRequest) -> None:
        try:
            self.curator.answer(request, ROWS)
            self.granted += 1
        except PrivacyError:
            pass

    def step(self) -> None:
        """Do something, at random."""
        what = self.chance.choice(["ask"] * 4 + ["twice", "crash", "restart", "copy"])
        if what == "restart":
            self.restart()
        elif what == "copy" and self.target.exists():
            shutil.copy(self.target, self.folder / "backup.db")  # which nobody uses
        elif what == "twice":
            requests = [self.request(), self.request()]
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(self.answer, requests))
        elif what == "crash":
            with pytest.MonkeyPatch.context() as patch:
                self.crash_in(patch, self.chance.choice(["entry", "noise", "memory"]))
                try:
                    self.answer(self.request())
                except CrashError:
                    self.restart()
        else:
            self.answer(self.request())

    def crash_in(self, patch: pytest.MonkeyPatch, place: str) -> None:
        if place == "entry":  # before the entry is on disk
            patch.setattr(ledger, "append", _crash)
        elif place == "noise":  # after it, and before noise is drawn
            patch.setattr(curator, "make_release", _crash)
        else:  # after the release, which may have been sent
            own = self.draw

            def crash_after(*args: Any, **options: Any) -> None:
                own(*args, **options)
                raise CrashError

            patch.setattr(curator, "make_release", crash_after)

    def draw(self, rows: Any, privacy: DifferentialPrivacy, **options: Any) -> Any:
        """Take the place of noise, which is not needed to count releases."""
        share = sum(privacy.shares(options["question"].server_round).values())
        self.drawn.append(privacy.mu() * share**0.5)
        return np.zeros(1)

    @property
    def epsilon(self) -> float:
        return epsilon_of(compose(self.drawn), DELTA) if self.drawn else 0.0


def _crash(*args: Any, **options: Any) -> None:
    raise CrashError


def run_schedule(seed: int, patch: pytest.MonkeyPatch) -> Site:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        site = Site(Path(folder), random.Random(seed))  # noqa: S311
        patch.setattr(curator, "make_release", site.draw)
        for _ in range(STEPS):
            site.step()
        return site


def overspent(seeds: range, patch: pytest.MonkeyPatch) -> tuple[int, int]:
    sites = [run_schedule(seed, patch) for seed in seeds]
    beyond = sum(site.epsilon > BUDGET * (1 + 1e-9) for site in sites)
    return beyond, sum(site.granted for site in sites)


def test_no_schedule_exceeds_the_budget(monkeypatch):
    beyond, granted = overspent(range(200), monkeypatch)
    assert beyond == 0
    assert granted > 400  # a ledger that refuses everything would pass, too


@pytest.mark.slow
def test_ten_thousand_schedules(monkeypatch):
    beyond, granted = overspent(range(10_000), monkeypatch)
    print(f"{beyond} of 10,000 schedules exceed the budget; {granted} answers")
    assert beyond == 0
    assert granted > 20_000


def test_the_schedules_notice_a_ledger_that_forgets(monkeypatch):
    """The ledger of each path by itself, as an atomic replace of a link makes it."""
    from fedridge_flwr.privacy import ledger_file

    def by_itself(path: Path) -> Path:
        if path.is_symlink():
            path.unlink()
        return path

    monkeypatch.setattr(ledger_file, "real_path", by_itself)
    assert overspent(range(60), monkeypatch)[0] > 0


def test_the_schedules_notice_noise_before_the_entry(monkeypatch):
    def enter_later(self: Curator, request: Any, rows: Any) -> Any:
        return curator.ClippingCounts()

    monkeypatch.setattr(Curator, "_charge", enter_later)
    assert overspent(range(20), monkeypatch)[0] > 0


def test_a_restored_copy_forgets_what_came_after_it(tmp_path):
    """No file can know this by itself: the documents say so, and what to do."""
    path, backup = tmp_path / "ledger.db", tmp_path / "backup.db"
    privacy = DifferentialPrivacy(1.0, DELTA, x_norm_bound=1.0, y_bound=1.0)
    account = PrivacyLedger(path, BUDGET, DELTA)
    account.charge("site", "first", privacy)
    shutil.copy(path, backup)
    account.charge("site", "second", privacy)
    assert account.spent("site").releases == 2
    shutil.copy(backup, path)
    assert account.spent("site").releases == 1
