"""The fuzz of secure sums: short in every run, 100,000 cases in `make fuzz`."""

from __future__ import annotations

import pytest
from fuzz_run import run, some
from fuzz_secure import secure_cases

from fedridge_flwr.federation.secure_sum import client_steps, server_steps

SHORT, FULL = 20, 1_300
FULL_SEED = 3_000_000


def test_nothing_crashes_and_no_sum_is_wrong() -> None:
    tally = run(secure_cases(), SHORT)
    assert tally.tried >= 1_500
    assert not tally.findings, tally.in_words()


def test_decoders_without_checks_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        server_steps, "check_rows_of_bytes", lambda rows, number, width: rows
    )
    tally = run(some(secure_cases(), "secure shares answer"), SHORT)
    assert tally.findings


def test_shares_of_anybody_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_steps, "TAG", 0)
    monkeypatch.setattr(server_steps, "tag", lambda share, context: b"")
    tally = run(some(secure_cases(), "unmask answer: bits flipped"), SHORT)
    assert tally.findings


def test_flags_of_anything_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_steps, "_check_flags", lambda *given: None)
    tally = run(some(secure_cases(), "confirm request: bytes"), 10 * SHORT)
    assert tally.findings


def test_confirmations_of_anything_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_steps.hmac, "compare_digest", lambda one, other: True)
    tally = run(some(secure_cases(), "unmask request: rows"), 10 * SHORT)
    assert tally.findings


@pytest.mark.slow
def test_a_hundred_thousand_cases() -> None:
    tally = run(secure_cases(), FULL, FULL_SEED)
    print(tally.in_words())
    assert tally.read >= 100_000
    assert not tally.findings, tally.in_words()
