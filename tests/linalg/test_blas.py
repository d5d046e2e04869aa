"""Workers with one BLAS thread each: the same numbers, and BLAS left as it was."""

from __future__ import annotations

import numpy as np
import pytest
from generators import assert_same_statistics, linear_rows
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import ThreadpoolController, threadpool_limits

from fedridge_flwr import SufficientStatistics
from fedridge_flwr.data import rows
from fedridge_flwr.errors import DataError
from fedridge_flwr.linalg.blas import blas_workers
from fedridge_flwr.statistics import moments as comoments

from_data = SufficientStatistics.from_data


@pytest.fixture(autouse=True)
def two_blas_threads():
    """Give BLAS two threads, whatever the machine has, and watch it get them back."""
    with threadpool_limits(2, user_api="blas"):
        yield
        assert blas_threads() == {2}


def blas_threads() -> set[int]:
    blas = ThreadpoolController().select(user_api="blas")
    return {found["num_threads"] for found in blas.info()}


def test_there_is_a_worker_per_thread_and_each_has_one():
    with blas_workers() as workers:
        assert workers == 2
        assert blas_threads() == {1}


def test_the_limit_is_lifted_after_an_error():
    with pytest.raises(KeyError), blas_workers():
        raise KeyError
    assert blas_threads() == {2}


def test_a_second_caller_at_the_same_time_works_alone():
    with blas_workers(), blas_workers() as inner:
        assert inner == 1
    with blas_workers() as workers:
        assert workers == 2


def test_a_single_thread_stays_a_single_worker():
    with threadpool_limits(1, user_api="blas"), blas_workers() as workers:
        assert workers == 1


@given(n=st.integers(0, 60), d=st.integers(1, 4), weighted=st.booleans())
def test_shared_rows_have_the_same_statistics(n, d, weighted):
    rng = np.random.default_rng([n, d])
    X, y = linear_rows(n, d, rng)
    X += 1e4
    weight = rng.integers(0, 3, size=n).astype(float) if weighted else None
    expected = from_data(X, y, weight)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comoments, "_WORTH_SHARING", 0.5)
        patch.setattr(rows, "BLOCK_BYTES", 200)
        assert_same_statistics(from_data(X, y, weight), expected)


def test_bad_values_in_the_second_share_are_named_without_warnings(monkeypatch):
    monkeypatch.setattr(comoments, "_WORTH_SHARING", 0.5)
    X = np.ones((50, 2))
    X[49, 1] = np.inf
    with pytest.raises(DataError, match=r"1 NaN or infinite value in column 1 "):
        from_data(X, np.ones(50))
