"""Random tables, formulas and spellings: the pooled fit, or an error that names them.

Some in every run of the tests, the rest in `make fuzz`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz_tables import make_case, outcome, spoil

SHORT = range(24)
FULL = range(1_000, 1_600)


def check(seed: int, folder: Path, *, some: int = 1) -> None:
    """Fit as it is; of some cases also with a spoiled column, and with a lost site."""
    case = make_case(seed)
    assert outcome(case, folder) == "", f"seed {seed}: {case.formula}"
    if seed % some:
        return
    spoiled = spoil(make_case(seed))
    told = outcome(spoiled, folder)
    assert all(f"{part}" in told for part in spoiled.spoiled), f"seed {seed}: {told}"
    case = make_case(seed)
    lost = f"site{seed % len(case.frames)}"
    assert outcome(case, folder, lost) == "", f"seed {seed}: {case.formula}"


@pytest.mark.parametrize("seed", SHORT)
def test_tables_of_any_spelling_are_the_pooled_fit(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path, some=3)


@pytest.mark.slow
def test_hundreds_of_tables_are_the_pooled_fit(tmp_path: Path) -> None:
    for seed in FULL:
        folder = tmp_path / str(seed)
        folder.mkdir()
        check(seed, folder)
