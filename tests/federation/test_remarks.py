"""What is worth a look at clients that may well be honest."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from fits import run_fit
from poisoning import honest_worlds, unseen_worlds
from real_data import SHARED_DATA

from fedridge_flwr import SufficientStatistics
from fedridge_flwr.federation.screening.outliers import screen
from fedridge_flwr.federation.screening.profiles import Profile
from fedridge_flwr.federation.settings import FitSettings


def rows_of(k: int, n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Column 0 around 0, column 1 a mass around 70, column 2 a dummy of one in ten."""
    rng = np.random.default_rng(k)
    X = np.c_[
        rng.normal(size=n), rng.normal(70.0, 10.0, size=n), rng.random(n) < 0.1
    ].astype(float)
    return X, target(X, k)


def target(X: np.ndarray, k: int) -> np.ndarray:
    return X @ [1.0, 0.2, 3.0] + np.random.default_rng(100 + k).normal(size=len(X))


def fitted(spoil: Any = None, n: int = 60, **settings: Any) -> Any:
    clients = {f"c{k}": rows_of(k, n) for k in range(6)}
    if spoil is not None:
        clients["c2"] = spoil(*clients["c2"])
    return run_fit(clients, **settings).report


def column(j: int, change: Any) -> Any:
    def spoil(X: np.ndarray, y: np.ndarray) -> Any:
        X = X.copy()
        X[:, j] = change(X[:, j])
        return X, y

    return spoil


@pytest.mark.parametrize("mode", ["oneshot", "refine", "cg"])
def test_a_column_that_is_constant_at_one_site_is_worth_a_look(mode):
    report = fitted(column(0, lambda x: 0.0 * x), mode=mode)
    told = "its column 0 is 0 in all rows (missing?), and varies at 5 others"
    assert report.remarks == {"c2": told}
    assert f"worth a look:\n    client c2: {told}" in str(report)


def test_a_constant_column_is_told_by_name_and_value():
    profiles = {str(k): Profile(90.0, np.ones(2), np.ones(2), 1) for k in range(5)}
    profiles["5"] = Profile(90.0, np.array([-2.5, 0.0]), np.array([0.0, 1.0]), 1)
    told = screen(profiles, "", names=["chol"]).remarks["5"]
    assert told == "its column 'chol' is -2.5 in all rows, and varies at 5 others"


@pytest.mark.parametrize("factor", [1000.0, 0.001])
@pytest.mark.parametrize("mode", ["oneshot", "cg"])
def test_so_are_other_units(factor, mode):
    report = fitted(column(1, lambda x: factor * x), mode=mode)
    assert list(report.remarks) == ["c2"]
    assert "mean of its column 1 is" in report.remarks["c2"]
    assert "are the units the same?" in report.remarks["c2"]


def test_nobody_is_left_out_for_a_remark():
    def zeros(X: np.ndarray, y: np.ndarray) -> Any:
        X = X * [0.0, 1.0, 1.0]
        return X, target(X, 2)

    told, kept = (fitted(zeros, screen=s) for s in ("report", "exclude"))
    assert kept.failures == {}
    assert kept.remarks == told.remarks != {}


def test_a_dummy_without_a_one_is_common():
    spoil = column(2, lambda x: 0.0 * x)
    assert fitted(spoil).remarks == {}
    # Of 600 rows 60 would be expected.
    assert list(fitted(spoil, n=600).remarks) == ["c2"]


@pytest.mark.parametrize("sizes", [[1] + [50] * 9, [3] * 2 + [50] * 18, range(2, 62)])
def test_small_sites_with_counts_are_not_worth_a_look(sizes):
    for seed in range(20):
        rng, profiles = np.random.default_rng(seed), {}
        for k, n in enumerate(sizes):
            counts = [rng.poisson(mean, n) for mean in (0.05, 0.3, 0.7)]
            X = np.column_stack([rng.normal(size=n), *counts, rng.integers(18, 90, n)])
            part = SufficientStatistics.from_data(X, rng.normal(size=n))
            profiles[str(k)] = Profile.of(part)
        assert screen(profiles, "not here").remarks == {}


def test_nothing_is_remarked_where_nothing_is_compared():
    assert fitted(column(0, lambda x: 0.0 * x), screen="off").remarks == {}
    assert FitSettings(screen="report").screens


def test_a_site_of_one_row_is_not_worth_a_look():
    def one(X: np.ndarray, y: np.ndarray) -> Any:
        return X[:1], y[:1]

    assert fitted(one).remarks == {}


def test_honest_sites_that_were_drawn_are_never_worth_a_look():
    for name, draws in itertools.islice(honest_worlds(), 8):
        for parts in itertools.islice(draws, 5):
            profiles = {client: Profile.of(part) for client, part in parts.items()}
            assert screen(profiles, "not here").remarks == {}, name


def test_missing_values_that_became_zeros_are_found():
    """Cholesterol is 0 in all rows of one of four real hospitals."""
    worlds = dict(unseen_worlds()) if SHARED_DATA.exists() else {}
    hospitals = [draws for name, draws in worlds.items() if "4 hospitals" in name]
    if not hospitals:
        pytest.skip("the shared data are not beside this checkout")
    (parts,) = itertools.islice(hospitals[0], 1)
    profiles = {client: Profile.of(part) for client, part in parts.items()}
    found = screen(profiles, "not here").remarks
    assert list(found) == ["processed.switzerland"]
    assert "column 4 is 0 in all rows (missing?)" in found["processed.switzerland"]
