"""The fuzz of fixed-point statistics: short in every run, at length in `make fuzz`."""

from __future__ import annotations

import pytest
from fuzz_cases import fixed_cases
from fuzz_planted import PLANTED_IN_FIXED
from fuzz_run import run

SHORT, FULL = 11, 400
SEED, FULL_SEED = 0, 2_000_000


def test_nothing_crashes_and_no_impossible_sums_are_taken() -> None:
    tally = run(fixed_cases(), SHORT, SEED)
    assert not tally.findings, tally.in_words()


@pytest.mark.parametrize("bug", PLANTED_IN_FIXED)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED_IN_FIXED[bug](monkeypatch)
    tally = run(fixed_cases(), SHORT, SEED)
    assert tally.findings, f"{tally.tried} cases did not find it"


@pytest.mark.slow
def test_ten_thousand_cases() -> None:
    tally = run(fixed_cases(), FULL, FULL_SEED)
    print(tally.in_words())
    assert tally.tried >= 10_000
    assert not tally.findings, tally.in_words()
