"""Drift: Chow's test from two sets of statistics, its size and power, the figure."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from generators import linear_rows
from scipy import stats as distributions

from fedridge_flwr import (
    FedRidgeError,
    FixedPointStatistics,
    SingularSystemError,
    StatisticsError,
    SufficientStatistics,
)
from fedridge_flwr.regression import drift, drift_over_time, infer

from_data = SufficientStatistics.from_data


def chow(X, y, first, intercept):
    """Return F by three regressions on rows, as Chow (1960) has it."""
    A = np.column_stack([np.ones(len(y)), X]) if intercept else X

    def rss(part):
        found = np.linalg.lstsq(A[part], y[part], rcond=None)[0]
        return ((y[part] - A[part] @ found) ** 2).sum()

    p, n = A.shape[1], len(y)
    apart = rss(slice(None, first)) + rss(slice(first, None))
    return (rss(slice(None)) - apart) / p / (apart / (n - 2 * p)), p, n - 2 * p


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_it_is_chows_test_on_the_rows(intercept, offset):
    X, y = linear_rows(120, 4, np.random.default_rng(1))
    y[80:] += 0.4 * X[80:, 1]
    before, after = (
        from_data(X[k] + offset, y[k]) for k in (slice(80), slice(80, 120))
    )
    if offset and not intercept:
        return  # another model: there the offset is no intercept
    found = drift(before, after, fit_intercept=intercept).test
    value, p, freedom = chow(X, y, 80, intercept)
    assert (found.df, found.df_residual) == (p, freedom)
    assert abs(found.statistic - value) < 1e-8 * value
    assert abs(found.p - distributions.f.sf(value, p, freedom)) < 1e-8


def test_coefficients_and_standard_errors_are_those_of_both_fits():
    X, y = linear_rows(100, 3, np.random.default_rng(2))
    before, after = from_data(X[:60], y[:60]), from_data(X[60:], y[60:])
    found, one, two = drift(before, after), infer(before), infer(after)
    assert np.allclose(found.before, one.coefficients, rtol=1e-12)
    assert np.allclose(found.after, two.coefficients, rtol=1e-12)
    assert np.allclose(found.after_se, two.se, rtol=1e-10)
    variance = (one.rss + two.rss) / (one.df_residual + two.df_residual)
    se = np.sqrt(variance * ((one.se / one.sigma) ** 2 + (two.se / two.sigma) ** 2))
    assert np.allclose(found.se, se, rtol=1e-10)
    assert np.allclose(found.table["x1", "change"], found.after[2] - found.before[2])
    inside = (found.ci[:, 0] < found.change) & (found.change < found.ci[:, 1])
    assert inside.all()


def rejected(slope: float, seed: int, repetitions: int) -> np.ndarray:
    """Return p-values of simulated updates: 200 rows before, 40 after."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(repetitions):
        X, e = rng.normal(size=(240, 3)) + 2.0, rng.normal(size=240)
        y = X @ [1.0, -1.0, 0.0] + 3.0 + e
        y[200:] += slope * X[200:, 2]
        test = drift(from_data(X[:200], y[:200]), from_data(X[200:], y[200:])).test
        found.append(test.p)
    return np.array(found)


def test_without_drift_p_values_are_uniform():
    p = rejected(0.0, seed=3, repetitions=1_500)
    # Within three standard errors of the nominal size.
    for level in (0.01, 0.05, 0.5):
        error = np.sqrt(level * (1 - level) / len(p))
        assert abs((p < level).mean() - level) < 3 * error
    assert distributions.kstest(p, "uniform").pvalue > 0.01


def test_drift_is_found():
    assert (rejected(0.5, seed=4, repetitions=200) < 0.05).mean() > 0.95


def test_whole_numbers_and_differences_of_totals_are_taken():
    X, y = linear_rows(90, 2, np.random.default_rng(5))
    before, after = from_data(X[:60], y[:60]), from_data(X[60:], y[60:])
    total = FixedPointStatistics.from_data(X, y)
    new = FixedPointStatistics.from_data(X[60:], y[60:])
    expected = drift(before, after).test
    for found in (
        drift(total - new, new).test,
        drift(from_data(X, y) - after, after).test,
    ):
        assert abs(found.statistic - expected.statistic) < 1e-9 * expected.statistic


def test_what_cannot_be_tested_is_told():
    X, y = linear_rows(60, 3, np.random.default_rng(6))
    good = from_data(X, y)
    with pytest.raises(StatisticsError, match="no degrees of freedom"):
        drift(good, from_data(X[:4], y[:4]))
    with pytest.raises(SingularSystemError):
        drift(good, from_data(np.ones((20, 3)), y[:20]))
    with pytest.raises(StatisticsError, match="3 features against 2"):
        drift(good, from_data(X[:, :2], y))
    two = from_data(X, np.column_stack([y, y]))
    with pytest.raises(StatisticsError, match="one target"):
        drift(two, two)
    with pytest.raises(StatisticsError, match="no update"):
        drift_over_time([])


def months(n_months: int = 14, from_month: int = 10) -> dict[str, SufficientStatistics]:
    rng, found = np.random.default_rng(7), {}
    for k in range(n_months):
        X = pd.DataFrame(rng.normal(size=(80, 2)), columns=["age", "dose $"])
        y = X["age"] + (0.2 if k < from_month else 1.2) * X["dose $"]
        found[f"month {k}"] = from_data(X, y + rng.normal(size=80))
    return found


def test_the_history_has_the_model_of_all_rows_so_far():
    parts = months()
    found = drift_over_time(parts)
    assert found.labels[10] in found.drifted
    assert not set(found.drifted) & set(found.labels[:10])
    assert found.table["month 13", "rows"] == 14 * 80
    whole = infer(sum(parts.values()))
    assert np.allclose(found.totals[-1].coefficients, whole.coefficients, rtol=1e-10)


def test_an_update_with_few_rows_is_in_the_model_and_has_no_test():
    parts = list(months().values())
    few = from_data(
        pd.DataFrame(np.eye(2), columns=["age", "dose $"]), np.array([1.0, 2.0])
    )
    found = drift_over_time([parts[0], few, parts[1]])
    assert [update is None for update in found.updates] == [True, True, False]
    assert found.table["2", "rows"] == 82
    other = from_data(np.ones((3, 5)), np.arange(3.0))
    with pytest.raises(StatisticsError, match="2 features against 5"):
        drift_over_time([parts[0], other])


def test_the_figure_has_one_panel_for_each_coefficient(tmp_path):
    found = drift_over_time(months())
    figure = found.plot()
    assert [axis.get_ylabel() for axis in figure.axes] == ["age", r"dose \$"]
    told = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "new rows that differ" in told
    figure.savefig(tmp_path / "drift.png")
    assert drift(*list(months().values())[:2]).plot().axes
    with pytest.raises(FedRidgeError, match="no such terms"):
        found.plot(["sex"])
