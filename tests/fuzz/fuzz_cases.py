"""All cases there are."""

from __future__ import annotations

from fuzz_replies import reply_cases
from fuzz_run import Case


def all_cases() -> list[Case]:
    return reply_cases()
