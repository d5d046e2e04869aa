"""Families, labels and working statistics: laws, and numbers beyond all reason."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import sparse

from fedridge_flwr.data.labels import (
    join_labels,
    label_text,
    outcome_codes,
    read_labels,
)
from fedridge_flwr.data.labels import write_labels as written
from fedridge_flwr.data.rows import check_rows
from fedridge_flwr.errors import DataError, ProtocolError, StatisticsError
from fedridge_flwr.regression.likelihood.families import FAMILIES
from fedridge_flwr.regression.likelihood.working import (
    Points,
    is_convex,
    read_working,
    reason_to_refuse,
    working_arrays,
    working_statistics,
)
from fedridge_flwr.statistics.outcome import OutcomeStatistics

predictors = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8)


def outcome(name: str, n: int, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 2 if name == "binomial" else 9, size=n).astype(float)


def points(d: int, rng: np.random.Generator, scale: float = 1.0) -> Points:
    coef, intercept = scale * rng.normal(size=(1, d)), rng.normal(size=1)
    return Points(coef, intercept, np.ones(1, dtype=np.int64), rng.normal(size=d))


@pytest.mark.parametrize("name", FAMILIES)
@given(eta=predictors)
def test_nothing_overflows_however_large_the_linear_predictor(
    name: str, eta: list[float]
) -> None:
    family = FAMILIES[name]
    for y in (0.0, 1.0):
        found = family.working(np.full(len(eta), y), np.array(eta))
        assert all(np.isfinite(each).all() for each in found)
        assert (found.weight > 0).all()
        assert (found.deviance >= 0).all()


@pytest.mark.parametrize("name", FAMILIES)
def test_unit_deviances_means_and_weights_are_those_of_statsmodels(name: str) -> None:
    rng = np.random.default_rng(0)
    eta, y = rng.normal(size=50), outcome(name, 50, rng)
    theirs = getattr(sm.families, name.capitalize())()
    found, mu = FAMILIES[name].working(y, eta), theirs.fitted(eta)
    assert np.allclose(found.deviance.sum(), theirs.deviance(y, mu), rtol=1e-12)
    assert np.allclose(FAMILIES[name].mean(eta), mu, rtol=1e-12)
    assert np.allclose(found.weight, theirs.variance(mu), rtol=1e-10)


@pytest.mark.parametrize("name", FAMILIES)
def test_working_statistics_add_up_whatever_the_split(name: str) -> None:
    rng = np.random.default_rng(1)
    X, y, w = rng.normal(size=(60, 4)), outcome(name, 60, rng), rng.uniform(0, 2, 60)
    at, family = points(4, rng), FAMILIES[name]

    def statistics(part: slice) -> object:
        rows = check_rows(X[part], y[part], w[part])
        return working_statistics(rows, family, at, np.linspace(0, 1, 60)[part])[0]

    whole = statistics(slice(None))
    parts = statistics(slice(0, 13)) + statistics(slice(13, 60))  # type: ignore[operator]
    assert np.allclose(parts.stats.to_array(), whole.stats.to_array(), rtol=1e-10)  # type: ignore[attr-defined]
    assert np.isclose(parts.deviance, whole.deviance, rtol=1e-12)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", FAMILIES)
def test_gradient_and_curvature_are_the_derivatives_of_the_deviance(name: str) -> None:
    rng = np.random.default_rng(2)
    rows = check_rows(rng.normal(size=(40, 3)), outcome(name, 40, rng))
    at, family = points(3, rng, 0.3), FAMILIES[name]
    (here,) = working_statistics(rows, family, at)
    for h, tolerance in ((1e-3, 1e-5), (1e-4, 1e-8)):
        step = h * rng.normal(size=4)
        moved = Points(
            at.coef + step[1:], at.intercept + step[0], at.classes, at.centre
        )
        (there,) = working_statistics(rows, family, moved)
        assert abs(there.deviance - here.deviance - here.change(step)) < tolerance
        assert is_convex(here, there, step)


@pytest.mark.parametrize("name", FAMILIES)
def test_sparse_rows_and_rows_far_from_zero_keep_their_digits(name: str) -> None:
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(200, 3)), outcome(name, 200, rng)
    at, family = points(3, rng), FAMILIES[name]
    (near,) = working_statistics(check_rows(X, y), family, at)
    far = Points(at.coef, at.intercept, at.classes, at.centre + 1e6)
    (there,) = working_statistics(check_rows(X + 1e6, y), family, far)
    assert np.allclose(there.stats.to_array(), near.stats.to_array(), rtol=1e-7)
    thin = sparse.csr_array(np.where(X > 0.5, X, 0.0))
    (left,) = working_statistics(check_rows(thin, y), family, at)
    (right,) = working_statistics(check_rows(thin.toarray(), y), family, at)
    assert np.allclose(left.stats.to_array(), right.stats.to_array(), rtol=1e-10)


# ---- what no rows have --------------------------------------------------------------


def honest(name: str) -> tuple[list[np.ndarray], object, object, Points]:
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(50, 3)), outcome(name, 50, rng)
    family, at = FAMILIES[name], points(3, rng, 0.3)
    rows = check_rows(X, y)
    if name == "binomial":
        start = OutcomeStatistics.of_classes(rows, (0.0, 1.0)).coded((0.0, 1.0), False)
    else:
        sums = family.sums(y, np.ones(50))
        start = OutcomeStatistics.of_counts(rows, sums).coded((), False)
    arrays = list(working_arrays(working_statistics(rows, family, at)).values())
    return arrays, rows.schema, start, at


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("scale", [1e-3, 0.5, 3.0, 1e6])
def test_statistics_of_other_rows_than_the_first_are_refused(
    name: str, scale: float
) -> None:
    arrays, schema, start, at = honest(name)

    def reason(packed: np.ndarray) -> str | None:
        (found,) = read_working([packed, arrays[1]], schema, 50, 1)  # type: ignore[arg-type]
        return reason_to_refuse(found, start, FAMILIES[name], 0, at.centre)  # type: ignore[arg-type]

    assert reason(arrays[0]) is None
    heavier = arrays[0].copy()
    heavier[:, 0] *= scale  # weights
    heavier[:, 5:] *= scale  # and co-moments with them
    if name == "poisson" or scale > 1:
        assert reason(heavier) is not None
    shifted = arrays[0].copy()
    shifted[:, 4] += 100 * scale  # residuals
    assert scale < 0.1 or reason(shifted) is not None


@pytest.mark.parametrize(
    "change",
    [
        lambda a: [a[0]],
        lambda a: [a[0][:, :-1], a[1]],
        lambda a: [np.full_like(a[0], np.nan), a[1]],
        lambda a: [a[0], -a[1]],
        lambda a: [a[0], a[1] * np.inf],
        lambda a: [-a[0], a[1]],
        lambda a: [a[0].astype(np.float32), a[1]],
        lambda a: [a[0], np.append(a[1], 1.0)],
    ],
)
def test_what_no_rows_can_have_is_refused_on_arrival(change: object) -> None:
    arrays, schema, _, _ = honest("binomial")
    with pytest.raises(StatisticsError):
        read_working(change(arrays), schema, 50, 1)  # type: ignore[operator, arg-type]


@pytest.mark.parametrize(
    "arrays",
    [
        [],
        [np.zeros((1, 2))] * 4,
        [np.full((1, 2), np.nan), np.zeros(1), np.zeros(1, dtype=int), np.zeros(2)],
        [np.full((1, 2), 1e200), np.zeros(1), np.zeros(1, dtype=int), np.zeros(2)],
        [np.zeros((0, 2)), np.zeros(0), np.zeros(0, dtype=int), np.zeros(2)],
        [np.zeros((1, 2)), np.zeros(1), np.zeros(1), np.zeros(2)],
    ],
)
def test_a_client_declines_points_that_are_none(arrays: list[np.ndarray]) -> None:
    with pytest.raises(ProtocolError):
        Points.from_arrays(arrays)


def test_an_outcome_that_is_no_outcome_is_refused() -> None:
    rows = check_rows(np.arange(6.0)[:, None], np.array([0, 1, 1, 0, 1, 0]))
    arrays = list(OutcomeStatistics.of_classes(rows, ("a", "b")).to_arrays().values())
    back = OutcomeStatistics.from_arrays(arrays, rows.schema, 6, classes=True)
    assert back.labels == ("a", "b")
    packed, sums, labels = arrays
    half = packed.copy()
    half[2] = 0.9  # more than a half of both labels
    for wrong in (
        [half, sums, labels],
        [packed, sums + 1, labels],
        [packed, sums, labels.astype(float)],
        [packed, sums, np.frombuffer(b'["b", "a"]', np.uint8)],
        [packed, sums, np.frombuffer(b'["a"]', np.uint8)],
        [packed, sums],
    ):
        with pytest.raises(StatisticsError):
            OutcomeStatistics.from_arrays(wrong, rows.schema, 6, classes=True)


# ---- labels -------------------------------------------------------------------------

texts = st.lists(st.text("abyes 1", max_size=5), min_size=1, max_size=6)
numbers = st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=6)


@given(parts=st.lists(texts, min_size=1, max_size=4) | st.lists(numbers, min_size=1))
def test_labels_of_the_parts_are_those_of_the_whole(parts: list[list]) -> None:
    everything = [label for part in parts for label in part]
    assume(
        not any(isinstance(label, str) and not label.strip() for label in everything)
    )
    whole = join_labels(outcome_codes(part)[0] for part in parts)
    assert set(outcome_codes(everything)[0]) <= set(whole)
    assert read_labels(written(whole)) == whole
    _, codes = outcome_codes(everything, whole)
    spelled = [label_text(label) for label in everything]
    assert [whole[int(code)] for code in codes] == spelled


def test_booleans_zeros_and_ones_are_the_same_labels() -> None:
    columns = [True, False], [1, 0], [1.0, 0.0], ["1", "0"], np.array([True, False])
    nullable = pd.array([True, False], dtype="boolean")
    for column in (*columns, nullable):
        labels, codes = outcome_codes(column)
        assert labels == ("0", "1")
        assert codes.tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    "y",
    [[1.0, np.nan], ["a", None], [["a", "b"]], np.arange(2000.0), [0.5], ["a" * 300]],
)
def test_values_that_are_no_labels_are_not_quoted(y: object) -> None:
    with pytest.raises(DataError) as caught:
        outcome_codes(y)
    assert "aaa" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [None, "", "{}", "[]", '["1", "1"]', '["2", "1"]', '["1.0"]', "[1]", "[[]]", "x"],
)
def test_labels_from_the_wire_are_not_trusted(text: object) -> None:
    with pytest.raises(StatisticsError):
        read_labels(text)
