"""Try cases, and count what became of them. One case again, with all it says:

python tests/fuzz/fuzz_run.py "packed statistics: bits flipped" 17
"""

from __future__ import annotations

import logging
import sys
import time
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

if __name__ == "__main__":  # the folder of this file is there already
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from fakes import set_task_identity

from fedridge_flwr import FedRidgeError

Trial = Callable[[np.random.Generator], str | None]

REFUSED, REAL = "refused", "accepted and real"
UNSENT = "stopped by Flower"
WRONG, CRASH, HIDDEN = "wrong accepts", "crashes", "caught by the catch-all"
OUTCOMES = (REFUSED, REAL, UNSENT, WRONG, CRASH, HIDDEN)
BAD = (WRONG, CRASH, HIDDEN)


class WrongAcceptError(Exception):
    """Something was taken that nothing can have."""


class HiddenError(Exception):
    """An error that is none of the package's, which a catch-all would hide."""


def quiet(trial: Trial) -> Trial:
    """Return the trial without what strategies log, and without warnings."""

    def silent(rng: np.random.Generator) -> str | None:
        set_task_identity()
        logging.disable(logging.CRITICAL)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return trial(rng)
        finally:
            logging.disable(logging.NOTSET)

    return silent


@dataclass(frozen=True)
class Case:
    """One way to attack one reader.

    `trial` returns a word on what was accepted, raises the `FedRidgeError` of a
    refusal, or anything else, which is then a finding.
    """

    reader: str
    attack: str
    trial: Trial
    share: float = 1.0

    @property
    def name(self) -> str:
        return f"{self.reader}: {self.attack}"

    def rng(self, seed: int) -> np.random.Generator:
        return np.random.default_rng([seed, zlib.crc32(self.name.encode())])


@dataclass
class Finding:
    """One trial that went wrong, and how to see it again."""

    case: str
    seed: int
    outcome: str
    reason: str

    def __str__(self) -> str:
        again = f'python tests/fuzz/fuzz_run.py "{self.case}" {self.seed}'
        return f"{self.outcome}: {self.reason}\n    {again}"


@dataclass
class Tally:
    """How often every case was tried, and what became of it."""

    counts: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def tried(self) -> int:
        return sum(sum(each.values()) for each in self.counts.values())

    @property
    def read(self) -> int:
        """Cases that reached a reader of ours; Flower stopped the others."""
        return self.tried - self.total(UNSENT)

    def total(self, *outcomes: str) -> int:
        return sum(each[o] for each in self.counts.values() for o in outcomes)

    def in_words(self, most: int = 20) -> str:
        lines = [f"{self.tried} cases, {len(self.findings)} findings"]
        return "\n".join(lines + [str(each) for each in self.findings[:most]])


def outcome_of(case: Case, seed: int) -> tuple[str, str]:
    """Run one trial; return what became of it, and why."""
    try:
        said = case.trial(case.rng(seed))
    except FedRidgeError as error:
        text = str(error)
        bad = not text.strip() or len(text) > 3000 or "\x1b" in text
        return (
            (HIDDEN, f"an unreadable reason: {text[:80]!r}") if bad else (REFUSED, "")
        )
    except WrongAcceptError as error:
        return WRONG, str(error)
    except (MemoryError, RecursionError) as error:
        return CRASH, type(error).__name__
    except HiddenError as error:
        return HIDDEN, str(error)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}:{where.lineno}"
        return HIDDEN, f"{type(error).__name__} at {place}: {error}"[:200]
    return (said, "") if said in (REFUSED, UNSENT) else (REAL, said or "")


def run(cases: Sequence[Case], times: int, first_seed: int = 0) -> Tally:
    """Try every case about `times` times, by its share."""
    tally, began = Tally(), time.perf_counter()
    for case in cases:
        counter = tally.counts.setdefault((case.reader, case.attack), Counter())
        for seed in range(first_seed, first_seed + max(1, round(times * case.share))):
            outcome, reason = outcome_of(case, seed)
            counter[outcome] += 1
            if outcome in BAD:
                tally.findings.append(Finding(case.name, seed, outcome, reason))
    tally.seconds = time.perf_counter() - began
    return tally


def some(cases: Iterable[Case], *words: str) -> list[Case]:
    """Return the cases in whose names one of the words is."""
    return [case for case in cases if any(word in case.name for word in words)]


def main(name: str, seed: str) -> None:
    from fuzz_cases import all_cases, fixed_cases
    from fuzz_secure import secure_cases

    known = all_cases() + fixed_cases() + secure_cases()
    (case,) = (each for each in known if each.name == name)
    print(*outcome_of(case, int(seed)), sep=": ")
    case.trial(case.rng(int(seed)))


if __name__ == "__main__":
    sys.modules["fuzz_run"] = sys.modules["__main__"]
    main(*sys.argv[1:])
