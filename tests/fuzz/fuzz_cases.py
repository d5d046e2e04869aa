"""All cases there are."""

from __future__ import annotations

from fuzz_drafts import FIXED
from fuzz_files import file_cases
from fuzz_memory import memory_cases
from fuzz_replies import reply_cases
from fuzz_rounds import round_cases
from fuzz_run import Case


def fixed_cases() -> list[Case]:
    return reply_cases(FIXED)


def all_cases() -> list[Case]:
    return [*reply_cases(), *file_cases(), *round_cases(), *memory_cases()]
