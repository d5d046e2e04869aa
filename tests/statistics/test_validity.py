"""A short way to a verdict is the verdict of the long one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedridge_flwr.errors import StatisticsError
from fedridge_flwr.linalg.packed import upper_triangle
from fedridge_flwr.statistics import validity


def refused(matrix: np.ndarray, raw: np.ndarray, most: int) -> str:
    try:
        validity.check_moments(upper_triangle(matrix), raw, most, "variances")
    except StatisticsError as error:
        return str(error)
    return ""


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    width=st.integers(2, 40),
    missing=st.integers(0, 6),
    claimed=st.integers(0, 2),
    kind=st.sampled_from(["random", "twice", "constant", "far", "one more row"]),
)
def test_directions_never_accept_what_eigenvalues_refuse(
    seed: int, width: int, missing: int, claimed: int, kind: str
) -> None:
    rng = np.random.default_rng(seed)
    n_rows = max(width - missing, 1)
    X = rng.normal(size=(n_rows, width)) * 10 ** rng.uniform(-3, 3, width)
    if kind == "twice":
        X[:, 0] = X[:, -1]
    elif kind == "constant":
        X[:, 0] = 3.0
    elif kind == "far":
        X += 1e6
    raw = (X**2).sum(axis=0)
    centred = X - X.mean(axis=0)
    matrix = centred.T @ centred
    if kind == "one more row":
        row = np.sqrt(np.diagonal(matrix)) * rng.normal(size=width)
        row *= 10 ** rng.uniform(-6, 0)
        matrix, raw = matrix + np.outer(row, row), raw + row**2
    most = max(n_rows - 1 - claimed, 0)
    found = refused(matrix, raw, most)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validity, "_directions_are_flat", lambda *_: False)
        assert refused(matrix, raw, most) == found
    if claimed == 0 and kind != "one more row":
        assert not found


def test_directions_decide_for_nearly_all_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng, answers = np.random.default_rng(0), []
    decide = validity._directions_are_flat

    def watched(*args: object) -> bool:
        answers.append(decide(*args))
        return answers[-1]

    monkeypatch.setattr(validity, "_directions_are_flat", watched)
    for _ in range(100):
        X = rng.normal(size=(100, 101)) + rng.normal()
        centred = X - X.mean(axis=0)
        assert not refused(centred.T @ centred, (X**2).sum(axis=0), 99)
    assert len(answers) == 100
    assert sum(answers) >= 95
