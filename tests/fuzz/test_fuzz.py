"""The fuzz: short in every run of the tests, 100,000 cases in `make fuzz`."""

from __future__ import annotations

import json

import pytest
from fuzz_cases import all_cases
from fuzz_planted import PLANTED
from fuzz_run import BAD, UNSENT, run, some
from fuzz_table import PAGE, RESULTS, render, write

SHORT, FULL = 11, 400
SEED = 0
# Not those on which readers and oracle were brought to agree (0 and 1,000,000 on).
FULL_SEED = 2_000_000


def test_nothing_crashes_and_nothing_impossible_is_taken() -> None:
    tally = run(all_cases(), SHORT, SEED)
    assert tally.tried >= 3_000
    assert not tally.findings, tally.in_words()


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, where = PLANTED[bug]
    cases = some(all_cases(), *where)
    plant(monkeypatch)
    tally = run(cases, SHORT, SEED)
    assert tally.findings, f"{tally.tried} cases did not find it"


def test_the_page_shows_the_last_full_run_which_found_nothing() -> None:
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert found["tried"] == sum(case["tried"] for case in found["cases"])
    assert found["read"] == found["tried"] - found["totals"][UNSENT] >= 100_000
    assert all(found["totals"][outcome] == 0 for outcome in BAD)
    assert not found["findings"]
    page = PAGE.read_text(encoding="utf-8")
    assert render(page) == page
    known = {(case.reader, case.attack) for case in all_cases()}
    assert {(case["reader"], case["attack"]) for case in found["cases"]} == known


@pytest.mark.slow
def test_a_hundred_thousand_cases() -> None:
    tally = run(all_cases(), FULL, FULL_SEED)
    print(tally.in_words())
    assert tally.read >= 100_000
    write(tally, FULL_SEED)
    assert not tally.findings, tally.in_words()
