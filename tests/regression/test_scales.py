"""Columns of unlike scales are named, and so is the remedy."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from fits import run_fit

from fedridge_flwr import (
    IllConditionedWarning,
    SingularSystemError,
    SufficientStatistics,
    UnlikeScalesWarning,
    select_alpha,
    solve,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 3))
Y = X.sum(axis=1) + RNG.normal(size=90)


def scaled(factor: float, names: list[str] | None = None) -> SufficientStatistics:
    found = SufficientStatistics.from_data(X * [1.0, factor, 1.0], Y)
    return found if names is None else found.with_feature_names(names)


@pytest.mark.parametrize("method", ["gcv", "loco"])
@pytest.mark.parametrize("factor", [1e4, 1e-4])
def test_auto_names_columns_whose_scales_differ(factor, method):
    half = SufficientStatistics.from_data(X[:45] * [1.0, factor, 1.0], Y[:45])
    parts = [scaled(factor, list("abc")), half]
    with pytest.warns(
        UnlikeScalesWarning, match=r"1 \('b'\).*standardize=True"
    ) as told:
        select_alpha(parts, "auto", method=method)
    assert {each.filename for each in told} == {__file__}  # the line of the user


@pytest.mark.parametrize(("factor", "standardize"), [(300.0, False), (1e5, True)])
def test_auto_is_silent_where_scales_do_not_matter(factor, standardize):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnlikeScalesWarning)
        select_alpha(scaled(factor), "auto", method="gcv", standardize=standardize)


@pytest.mark.parametrize(
    ("factor", "settings", "expected"),
    [
        (1e4, {}, True),
        (1e4, {"alphas": [1.0, 2.0], "cv": "gcv"}, True),
        (1e4, {"standardize": True}, False),
        (1e4, {"alpha": 0.0}, False),
        (300.0, {}, False),
    ],
)
def test_the_report_advises_to_standardize(factor, settings, expected):
    units = np.array([1.0, factor, 1.0])
    clients = {str(k): (X[k::3] * units, Y[k::3]) for k in range(3)}
    report = run_fit(clients, **settings).report
    told = "standardize=True: column 1 varies" in report.advice
    assert told == expected
    assert ("standardize=True" in str(report)) == expected


def dependent(gap: float, unit: float = 1e5) -> SufficientStatistics:
    """Return statistics of two columns that differ by `gap`, in large units."""
    far = X * [unit, unit, 1.0]
    far[:, 1] = far[:, 0] * (1.0 + gap * RNG.normal(size=len(X)))
    return SufficientStatistics.from_data(far, Y)


def test_a_singular_system_names_standardize_where_it_helps():
    stats = dependent(0.0, unit=1e9)
    with pytest.raises(
        SingularSystemError, match=r"column .*use standardize=True: col"
    ):
        solve(stats, 1e-6)
    with pytest.raises(SingularSystemError) as error:
        solve(dependent(0.0), 0.0)
    assert "standardize" not in str(error.value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IllConditionedWarning)
        assert solve(stats, 1e-3, standardize=True).condition_ > 1.0


def test_predictions_that_are_determined_are_answered_with_a_warning():
    stats = dependent(0.0, unit=1e6)
    with pytest.warns(IllConditionedWarning, match=r"Predictions are right to"):
        model = solve(stats, 1.0)
    kept = SufficientStatistics.from_data(X[:, [0, 2]] * [np.sqrt(2) * 1e6, 1.0], Y)
    reference = solve(kept, 1.0)
    far = X * [1e6, 1e6, 1.0]
    far[:, 1] = far[:, 0]
    expected = reference.predict(X[:, [0, 2]] * [np.sqrt(2) * 1e6, 1.0])
    np.testing.assert_allclose(model.predict(far), expected, rtol=0, atol=1e-8)
