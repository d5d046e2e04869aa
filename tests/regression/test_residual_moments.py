"""Sums of squared residuals: they add up, and what no rows have is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from fedridge_flwr import (
    DataError,
    FedRidgeError,
    ProtocolError,
    StatisticsError,
    SufficientStatistics,
    infer,
)
from fedridge_flwr.data.rows import check_rows
from fedridge_flwr.federation.requests import AskResiduals
from fedridge_flwr.flower.protocol.request_records import read_request, request_parts
from fedridge_flwr.regression import ResidualMoments
from fedridge_flwr.regression.inference.residual_moments import POWERS, ResidualProbe
from fedridge_flwr.regression.least_squares import least_squares

KINDS = st.sampled_from(sorted(POWERS))


def rows_of(seed: int = 0, n: int = 60, d: int = 3, t: int = 1) -> Any:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + rng.normal(size=d)
    y = X @ rng.normal(size=(d, t)) + rng.normal(size=(n, t))
    return X, y, rng.uniform(0.1, 2.0, size=n)


def moments_of(rows: Any, kind: str, **options: Any) -> ResidualMoments:
    stats = SufficientStatistics.from_data(*rows)
    return ResidualMoments.from_data(*rows, stats=stats, kind=kind, **options)


def probe_of(rows: Any, kind: str) -> ResidualProbe:
    return ResidualProbe.of(least_squares(SufficientStatistics.from_data(*rows)), kind)


# ---- laws ---------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(1, 7), KINDS, st.booleans())
def test_any_split_adds_up(seed: int, sites: int, kind: str, intercept: bool) -> None:
    rows = rows_of(seed, t=2)
    stats = SufficientStatistics.from_data(*rows)
    groups = np.random.default_rng(seed).integers(0, sites, size=60)
    first, *others = (
        ResidualMoments.from_data(
            *(each[groups == k] for each in rows),
            stats=stats,
            kind=kind,
            fit_intercept=intercept,
        )
        for k in np.unique(groups)
    )
    split = sum(others, start=first)
    whole = moments_of(rows, kind, fit_intercept=intercept)
    assert split.count == whole.count == 60
    moved = split.about(whole.centre).matrices
    np.testing.assert_allclose(moved, whole.matrices, rtol=1e-9, atol=1e-9)
    one, other = (
        infer(stats, covariance=kind, residuals=each, fit_intercept=intercept)
        for each in (split, whole)
    )
    np.testing.assert_allclose(one.se, other.se, rtol=1e-10)


@given(st.integers(0, 10**6), KINDS)
def test_the_kinds_are_in_order(seed: int, kind: str) -> None:
    """HC0 <= HC2 <= HC3, and HC1 is HC0 with the factor n / (n - p)."""
    rows = rows_of(seed)
    stats = SufficientStatistics.from_data(*rows)
    se = {
        kind: infer(stats, covariance=kind, residuals=moments_of(rows, kind)).se
        for kind in POWERS
    }
    assert (se["HC0"] <= se["HC2"]).all()
    assert (se["HC2"] <= se["HC3"]).all()
    np.testing.assert_allclose(se["HC1"], se["HC0"] * np.sqrt(60 / 56), rtol=1e-12)


@given(st.integers(0, 10**6), KINDS)
def test_arrays_come_back(seed: int, kind: str) -> None:
    found = moments_of(rows_of(seed, t=2), kind)
    arrays = list(found.to_arrays().values())
    again = ResidualMoments.from_arrays(arrays, found.count, found.probe)
    assert (again.matrices == found.matrices).all()
    assert (again.centre == found.centre).all()


@given(st.integers(0, 10**6), KINDS)
def test_requests_come_back(seed: int, kind: str) -> None:
    probe = probe_of(rows_of(seed, t=2), kind)
    fields, arrays = request_parts(AskResiduals(probe))
    again: Any = read_request(fields, list(arrays.values()), evaluating=False)
    assert again.probe.power == probe.power
    assert again.probe.leverages == (kind in ("HC2", "HC3"))
    for name in ("coef", "intercept", "means", "bread"):
        np.testing.assert_array_equal(getattr(again.probe, name), getattr(probe, name))


@pytest.mark.parametrize("kind", POWERS)
def test_sparse_rows_and_rows_without_weight(kind: str) -> None:
    X, y, weights = rows_of()
    X[np.abs(X) < 0.5] = 0.0
    weights[::5] = 0.0
    dense = moments_of((X, y, weights), kind)
    thin = moments_of((sparse.csr_array(X), y, weights), kind)
    np.testing.assert_allclose(thin.matrices, dense.matrices, rtol=1e-11, atol=1e-12)
    used = weights > 0
    stats = SufficientStatistics.from_data(X, y, weights)
    fewer = ResidualMoments.from_data(
        X[used], y[used], weights[used], stats=stats, kind=kind
    )
    np.testing.assert_allclose(fewer.matrices, dense.matrices, rtol=1e-11, atol=1e-12)


# ---- what a server must not believe -------------------------------------------------


@given(st.integers(0, 10**6), st.integers(0, 9), st.floats(allow_subnormal=False))
def test_no_number_crashes_the_reader(seed: int, place: int, value: float) -> None:
    """A changed number is refused, or the matrix is still one that rows have."""
    found = moments_of(rows_of(seed), "HC0")
    packed, centre = found.to_arrays().values()
    packed[0, place] = value
    try:
        again = ResidualMoments.from_arrays([packed, centre], 60, found.probe)
    except StatisticsError:
        return
    (matrix,) = again.matrices
    scale = np.sqrt(np.diagonal(matrix))
    smallest = np.linalg.eigvalsh(matrix / np.outer(scale, scale))[0]
    assert smallest > -1e-5


def test_one_row_has_rank_one() -> None:
    found = moments_of(rows_of(), "HC0")
    arrays = list(found.to_arrays().values())
    with pytest.raises(StatisticsError):
        ResidualMoments.from_arrays(arrays, 1, found.probe)


# ---- what a site must not believe ---------------------------------------------------


@pytest.mark.parametrize("factor", [1.01, 10.0, -1.0, 1e6])
def test_an_inverse_that_is_too_large_is_declined(factor: float) -> None:
    """Else a server could give one row a weight above all others."""
    rows = rows_of()
    probe = probe_of(rows, "HC3")
    assert probe.bread is not None
    spoilt = ResidualProbe(
        probe.coef, probe.intercept, probe.power, probe.means, factor * probe.bread
    )
    with pytest.raises(ProtocolError, match="not that of these rows"):
        ResidualMoments.from_rows(check_rows(*rows), spoilt)


def test_one_direction_that_is_too_large_is_declined() -> None:
    X, y, weights = rows_of()
    probe = probe_of((X, y, weights), "HC3")
    assert probe.bread is not None
    assert probe.means is not None
    towards = np.r_[0.0, X[0] - probe.means]
    aimed = probe.bread + np.outer(towards, towards) / (towards @ towards) ** 2
    spoilt = ResidualProbe(probe.coef, probe.intercept, 2, probe.means, aimed)
    with pytest.raises(ProtocolError, match="not that of these rows"):
        ResidualMoments.from_rows(check_rows(X, y, weights), spoilt)


@pytest.mark.parametrize(
    ("change", "power"),
    [
        (lambda a: a[:1], 0),
        (lambda a: a, 1),
        (lambda a: [a[0].astype(np.float32), a[1]], 0),
        (lambda a: [a[0][0], a[1]], 0),
        (lambda a: [a[0] * np.nan, a[1]], 0),
        (lambda a: [a[0] * np.inf, a[1]], 0),
        (lambda a: [a[0], a[1], np.zeros(3), np.zeros(4)], 2),
        (lambda a: a, 3),
        (lambda a: a, True),
        (lambda a: a, "2"),
    ],
)
def test_requests_that_are_none(change: Any, power: Any) -> None:
    fields, arrays = request_parts(AskResiduals(probe_of(rows_of(), "HC0")))
    fields["leverage-power"] = power
    with pytest.raises(ProtocolError):
        read_request(fields, change(list(arrays.values())), evaluating=False)


def test_rows_of_other_sizes_are_declined() -> None:
    probe = probe_of(rows_of(), "HC0")
    with pytest.raises(ProtocolError, match="3 features and 1 targets"):
        ResidualMoments.from_rows(check_rows(*rows_of(d=2)), probe)


# ---- what cannot be answered --------------------------------------------------------


def test_what_infer_refuses() -> None:
    rows = rows_of()
    stats, moments = SufficientStatistics.from_data(*rows), moments_of(rows, "HC3")
    with pytest.raises(FedRidgeError, match="squared residuals of all rows"):
        infer(stats, covariance="HC3")
    with pytest.raises(StatisticsError, match="of another model, or not for HC0"):
        infer(stats, covariance="HC0", residuals=moments)
    with pytest.raises(StatisticsError, match="of another model"):
        infer(stats, 0.5, covariance="HC3", residuals=moments)
    fewer = ResidualMoments.from_data(
        *(each[:40] for each in rows), stats=stats, kind="HC3"
    )
    with pytest.raises(StatisticsError, match="of 40 rows and stats of 60"):
        infer(stats, covariance="HC3", residuals=fewer)
    with pytest.raises(StatisticsError, match="different models"):
        _ = moments + moments_of(rows_of(1), "HC3")
    with pytest.raises(FedRidgeError, match="kind must be"):
        moments_of(rows, "HC9")


@pytest.mark.filterwarnings("ignore::fedridge_flwr.IllConditionedWarning")
@pytest.mark.parametrize("kind", ["HC0", "HC3"])
def test_residuals_that_are_zero_have_no_f_test(kind: str) -> None:
    X, y, _ = rows_of()
    stats = SufficientStatistics.from_data(X, y)
    none = moments_of((X, y), kind)
    for value in (0.0, np.inf):
        spoilt = ResidualMoments(
            np.full_like(none.matrices, value), none.centre, none.count, none.probe
        )
        found = infer(stats, covariance=kind, residuals=spoilt)
        assert np.isnan(found.f)
        assert isinstance(found.summary(), str)


def test_rows_that_overflow_or_stand_alone() -> None:
    X, y, _ = rows_of()
    probe = probe_of((X, y), "HC0")
    with pytest.raises(DataError):
        ResidualMoments.from_rows(check_rows(X, y * 1e200), probe)
    broken = X.copy()
    broken[0, 0] = np.nan
    with pytest.raises(DataError, match="NaN"):
        ResidualMoments.from_rows(check_rows(broken, y), probe)
    alone = np.column_stack([X, np.arange(60) == 0])
    with pytest.raises(DataError, match="leverage 1"):
        moments_of((alone, y), "HC2")
