"""Singular systems are explained by the columns that make them so."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from generators import client_statistics, linear_rows
from hypothesis import given
from hypothesis import strategies as st

from fedridge_flwr import (
    IllConditionedWarning,
    SingularSystemError,
    SufficientStatistics,
    solve,
)
from fedridge_flwr.regression.singular import explain_singular


def explanation(X, alpha=0.0, names=None, **options):
    """Return what `solve` says of rows whose coefficients cannot be determined."""
    y = np.arange(float(len(X)))
    if names is not None:
        X = pytest.importorskip("pandas").DataFrame(X, columns=names)
    with pytest.raises(SingularSystemError) as caught:
        solve(SufficientStatistics.from_data(X, y), alpha, **options)
    return str(caught.value)


def independent(n=40, d=4, seed=0):
    return linear_rows(n, d, np.random.default_rng(seed))[0]


@pytest.mark.parametrize("where", [0, 2, 4])
def test_a_constant_column_is_named_and_no_other(where):
    X = np.insert(independent(), where, 7.0, axis=1)
    found = explanation(X, names=[f"f{j}" for j in range(5)])
    assert f"column {where} ('f{where}') is constant" in found
    assert found.count("column ") == 1
    assert "depend" not in found


def test_several_constant_columns_are_named_together():
    X = np.column_stack([independent(), np.ones(40), np.zeros(40)])
    found = explanation(X)
    assert "columns 4, 5 are constant" in found
    assert "depend" not in found


def test_a_zero_column_is_named_where_there_is_no_intercept():
    X = np.column_stack([independent(), np.zeros(40)])
    found = explanation(X, fit_intercept=False)
    assert "column 4 is" in found
    assert "depend" not in found


def test_a_constant_and_a_duplicated_column_are_both_named():
    X = independent()
    X = np.column_stack([X, np.ones(40), X[:, 1]])
    found = explanation(X)
    assert "column 4 is constant" in found
    assert "column 5 is a copy of column 1" in found


@given(
    columns=st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True),
    seed=st.integers(0, 1000),
)
def test_every_duplicated_column_is_named_with_its_twin(columns, seed):
    X = independent(seed=seed)
    found = explanation(np.column_stack([X, X[:, columns]]))
    for j, column in enumerate(columns):
        assert f"column {4 + j} is a copy of column {column}" in found
    assert found.count("copy of") == len(columns)


def test_a_rescaled_column_is_not_called_a_copy():
    X = independent()
    found = explanation(np.column_stack([X, 32.0 + 1.8 * X[:, 1]]))
    assert "column 4 is a linear function of column 1" in found
    assert "a copy of" not in found


def test_a_linear_combination_is_named_with_its_parts():
    X = independent()
    X = np.column_stack([X, X[:, 0] - 2.0 * X[:, 3]])
    found = explanation(X)
    assert "linear combination of columns" in found
    named = {part for part in ("0", "3", "4") if part in found}
    assert named == {"0", "3", "4"}
    assert "1" not in found.split("Remedy")[0].replace("alpha", "")
    assert "2" not in found.split("Remedy")[0]


def test_indicators_that_add_up_to_one_are_named():
    groups = np.arange(40) % 3
    found = explanation(np.eye(3)[groups], names=["red", "green", "blue"])
    for name in ("red", "green", "blue"):
        assert f"'{name}'" in found
    y = np.arange(40.0)
    stats = SufficientStatistics.from_data(np.eye(3)[groups], y)
    model = solve(stats, 0.0, fit_intercept=False)
    assert np.allclose(model.coef_, [y[groups == k].mean() for k in range(3)])


def test_at_most_four_dependencies_are_spelt_out():
    X = independent(d=7)
    found = explanation(np.column_stack([X, X]))
    assert found.count("copy of") == 4
    assert "and 3 more columns are dependent" in found


def test_nearly_dependent_columns_are_named():
    rng = np.random.default_rng(0)
    X = independent()
    # Independent enough for the pivots, and yet not to be trusted with this penalty.
    X = np.column_stack([X, X[:, 2] + 1e-4 * rng.normal(size=40)])
    gram = np.corrcoef(X, rowvar=False)
    (sentence,) = explain_singular(gram, [], None)
    assert sentence == "columns 2, 4 are nearly dependent"


def test_the_remedy_fits_the_penalty():
    X = independent()
    X = np.column_stack([X, X[:, 0]])
    assert "Remedy: use alpha > 0, or drop these columns." in explanation(X)
    # Below rounding, the processor decides whether the factorisation fails; the copy
    # and the remedy are named in either case.
    with warnings.catch_warnings():
        warnings.simplefilter("error", IllConditionedWarning)
        with pytest.raises((SingularSystemError, IllConditionedWarning)) as caught:
            solve(SufficientStatistics.from_data(X, np.arange(40.0)), 1e-17)
    found = str(caught.value)
    assert "column 4 is a copy of column 0" in found
    assert "raise alpha (now 1e-17)" in found


def test_too_few_rows_are_told_first():
    found = explanation(independent(n=3))
    before = "the data do not determine the coefficients: 3 rows cannot determine 5"
    assert found.startswith(before)
    assert "1 row cannot determine 5" in explanation(independent(n=1))


def test_dependence_is_found_in_the_sum_and_not_in_each_client():
    X, y = linear_rows(40, 3, np.random.default_rng(0))
    X[:20, 2] = 1.0
    X[20:, 2] = 2.0
    parts = np.array_split(np.arange(40), 2)
    clients = client_statistics(X, y, parts)
    for client in clients:
        with pytest.raises(SingularSystemError, match="column 2 is constant"):
            solve(client, 0.0)
    assert solve(sum(clients), 0.0).n_rows_ == 40


@given(
    dependent=st.integers(1, 3),
    seed=st.integers(0, 10_000),
    exponent=st.integers(-6, 6),
)
def test_dropping_the_columns_named_makes_the_system_solvable(
    dependent, seed, exponent
):
    """The columns before "is a" are as many as the rank lacks."""
    rng = np.random.default_rng(seed)
    X = independent(d=4, seed=seed)
    X = np.column_stack([X, X @ rng.normal(size=(4, dependent))]) * 10.0**exponent
    sentences = explain_singular(np.cov(X, rowvar=False), [], None)
    named = [int(sentence.split()[1]) for sentence in sentences]
    assert len(named) == dependent
    rest = np.delete(X, named, axis=1)
    assert np.linalg.matrix_rank(rest) == rest.shape[1] == 4
