"""Labels of classes are spelled as the levels of tables are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedridge_flwr.data.labels import (
    are_canonical,
    encode_labels,
    label_numbers,
    label_text,
    natural_labels,
    sorted_labels,
)
from fedridge_flwr.data.table_values import level_of, level_text

NUMERALS = st.from_regex(r"[ ]?[+-]?[0-9.]{1,6}(e[+-][0-9]{2})?[ ]?", fullmatch=True)
WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=9)
WHOLE = st.integers(-(2**62), 2**62) | st.booleans()


@given(NUMERALS | WORDS | st.sampled_from(["TRUE", "False", "-0", "1.", ".5", "é"]))
def test_text_has_the_spelling_of_its_level(text: str) -> None:
    expected = level_text(pa.array([text], pa.string())).to_pylist()[0]
    assert level_of(text) == (expected or "")


@given(st.lists(WHOLE, min_size=1))
def test_numbers_and_booleans_have_the_spelling_of_their_level(
    values: list[Any],
) -> None:
    for value in values:
        expected = level_text(pa.array([value])).to_pylist()[0]
        assert label_text(value) == expected
        assert label_text(str(value)) == expected


@given(st.lists(st.integers(-(2**40), 2**40) | WORDS.filter(str.strip), min_size=1))
def test_a_spelling_stays_as_it_is(values: list[Any]) -> None:
    labels, codes = encode_labels(np.array(values, dtype=object))
    assert are_canonical(labels)
    assert labels == sorted_labels(labels)
    assert [labels[c] for c in codes] == [label_text(value) for value in values]
    again, same = encode_labels(natural_labels(labels)[codes])
    assert again == labels
    assert (same == codes).all()


@pytest.mark.parametrize(
    ("values", "natural"),
    [
        ([1, 2.0, "10"], [1, 2, 10]),
        (["b", "a", 1], ["1", "a", "b"]),
        ([True, "FALSE"], [False, True]),
        (["007", "7"], ["007", "7"]),
        ([2**70, 1], [str(1), str(2**70)]),
    ],
)
def test_classes_come_back_in_their_natural_type(values, natural):
    labels, _ = encode_labels(np.array(values, dtype=object))
    assert natural_labels(labels).tolist() == natural


def test_every_label_has_a_number_of_its_own():
    labels = ["1", "-7", "true", "false", *(f"class {k}" for k in range(500))]
    assert label_numbers(labels)[:4].tolist() == [1.0, -7.0, 1.0, 0.0]
    assert len(set(label_numbers(labels)[4:])) == 500
