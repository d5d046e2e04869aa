"""Columns in which only a few rows differ from the others."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from fedridge_flwr.data.rows import BLOCK_BYTES, check_rows
from fedridge_flwr.federation.site.rare_values import rare_columns

matrices = st.tuples(st.integers(1, 30), st.integers(1, 4)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.sampled_from([0.0, 1.0, 2.5]))
)


def counted(Z: np.ndarray, k: int) -> dict[int, int]:
    found = {}
    for column, values in enumerate(Z.T):
        others = len(values) - max(Counter(values.tolist()).values())
        if 0 < others < k:
            found[column] = others
    return found


@given(matrices, st.integers(2, 8))
def test_rare_columns_are_those_that_counting_finds(Z: np.ndarray, k: int) -> None:
    X, y = Z, np.arange(float(len(Z)))
    wanted = counted(np.column_stack([X, y]), k)
    for form in (np.asarray, sparse.csr_array, sparse.csc_array):
        assert rare_columns(check_rows(form(X), y), k) == wanted


@given(matrices, st.integers(2, 5), st.data())
def test_rows_without_weight_are_not_there(Z: np.ndarray, k: int, data: Any) -> None:
    weight = data.draw(arrays(np.float64, len(Z), elements=st.sampled_from([0.0, 2.0])))
    y = np.zeros(len(Z))
    kept = Z[weight > 0]
    wanted = counted(kept, k) if len(kept) else {}
    for form in (np.asarray, sparse.csr_array):
        assert rare_columns(check_rows(form(Z), y, weight), k) == wanted


@pytest.mark.parametrize("where", [0, 12_345, -1])
def test_one_row_is_found_in_any_block(where: int) -> None:
    n = BLOCK_BYTES // 8
    X = np.ones((n, 2))
    X[:, 1] = np.arange(n)
    X[where, 0] = 0.0
    assert rare_columns(check_rows(X, np.arange(n)), 11) == {0: 1}


def test_targets_count_and_constants_do_not() -> None:
    X, y = np.ones((20, 1)), np.zeros(20)
    assert rare_columns(check_rows(X, y), 5) == {}
    y[3] = 1.0
    assert rare_columns(check_rows(X, y), 5) == {1: 1}
