"""Every spoiled table gives the right numbers, or an error that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from spoiled import CASES, Spoiled

from fedridge_flwr import DataError


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_a_spoiled_table(case: Spoiled, tmp_path: Path) -> None:
    if not case.error:
        assert case.read(tmp_path) == {**case.numbers, **case.levels}
        return
    with pytest.raises(DataError) as caught:
        case.read(tmp_path)
    message = str(caught.value)
    assert case.error in message
    assert str(tmp_path) not in message
    assert not case.value or case.value not in message
    if not case.options.get("seperator"):
        assert message.startswith(f"{case.file}: ")
        assert case.file not in caught.value.anonymous().split(":", 1)[1]
    assert message.endswith(".")


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 30
    assert len({case.what for case in CASES}) == len(CASES)
    assert all(bool(c.error) != bool(c.numbers or c.levels) for c in CASES)
