"""Every bug that the fuzz found in a reader, each in its smallest form."""

from __future__ import annotations

import numpy as np
import pytest
from fakes import set_task_identity
from fuzz_headers import header, packed

from fedridge_flwr import ProtocolError, SufficientStatistics
from fedridge_flwr.flower import wire
from fedridge_flwr.flower.arrays import decode_array


@pytest.fixture(autouse=True)
def _identity() -> None:
    set_task_identity()


# ---- headers: MemoryError, RecursionError, ValueError, TypeError before -------------


@pytest.mark.parametrize(
    "shape",
    [
        "(" + "-" * 9000 + "1,)",
        "(" + "1+" * 4000 + "1j,)",
        "(0x" + "f" * 8000 + ",)",
        "(" + "9" * 400 + ", 0)",
        f"({2**63}, 0)",
        f"({2**62}, {2**62}, 0)",
        "(" + "1, " * 65 + ")",
        "(True, 0)",
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_no_header_makes_numpy_or_python_give_up(shape: str, version: int) -> None:
    with pytest.raises(ProtocolError, match="an array"):
        decode_array(header("'<f8'", shape, version=version))


def test_headers_as_others_write_them_are_read() -> None:
    data = np.arange(6.0).tobytes()
    for text in (
        "{'descr': '<f8', 'fortran_order': False, 'shape': (6,), }",
        '{"shape": (6,), "fortran_order": False, "descr": "<f8"}',
        "{ 'fortran_order':False,'descr':'<f8','shape':(2 ,3) }",
    ):
        for version in (1, 2):
            found = decode_array(packed(text.encode(), version) + data)
            np.testing.assert_array_equal(found.ravel(), np.arange(6.0))


# ---- names -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, '[{"a": 1, "a": 2}]', b'["a"]', 3]
)
def test_names_nested_deeply_are_refused_as_any_other_text(text: object) -> None:
    stats = SufficientStatistics.from_data([[1.0], [2.0], [4.0]], [1.0, 2.0, 3.0])
    content = wire.statistics_reply(stats, share_names=False)
    content["config"]["feature-names"] = text  # type: ignore[index]
    with pytest.raises(ProtocolError, match="not a list of text"):
        wire.read_answer(content)
