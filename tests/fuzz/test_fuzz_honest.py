"""The law beside the fuzz: nothing that rows really have is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from fedridge_flwr import PlainStatistics, SufficientStatistics
from fedridge_flwr.data.rows import check_rows
from fedridge_flwr.data.schema import Schema
from fedridge_flwr.features import ColumnMoments
from fedridge_flwr.federation.requests import AskColumns
from fedridge_flwr.flower.protocol.answer_records import _read_columns
from fedridge_flwr.multiround import Opening, centred_product
from fedridge_flwr.multiround.product_checks import check_product
from fedridge_flwr.statistics.encoding import decode, encode, encode_rows


@st.composite
def hard_rows(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Few rows, many columns, far from zero, in odd units, repeated, weighted."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, d = draw(st.integers(1, 14)), draw(st.integers(1, 12))
    t = draw(st.integers(1, 3))
    rows = rng.normal(size=(n, d + t))
    if draw(st.booleans()):
        rows = np.round(2 * rows)
    if draw(st.booleans()):
        rows = rows[rng.integers(n, size=n)]
    rank = draw(st.integers(0, 3))
    if rank:
        rows = rows[:, :rank] @ rng.normal(size=(min(rank, d + t), d + t))
    scale = draw(st.sampled_from([0, 0, -8, 8, -60, 30, -159, -161]))
    rows = rows * 10.0**scale
    rows *= 10.0 ** rng.integers(-3, 4, size=d + t)
    if draw(st.booleans()):
        rows += draw(st.sampled_from([1.0, 1e3, 1e6, 1e8, 1e12, -1e15]))
    weight = None
    if draw(st.booleans()):
        # A weight of 1e20 makes something of the rounding of squares of 1e-160.
        odd = draw(st.sampled_from([0, 3, 20 if scale > -100 else 3]))
        weight = 10.0 ** rng.uniform(-odd, odd, size=n)
        weight[rng.random(n) < 0.3] = 0.0
    return rows[:, :d], rows[:, d:], weight


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@settings(max_examples=400)
@given(hard_rows(), st.booleans())
def test_no_honest_answer_is_refused(rows: tuple, is_sparse: bool) -> None:
    X, Y, weight = rows
    checked = check_rows(sparse.csr_matrix(X) if is_sparse else X, Y, weight)
    d, n = checked.n_features, checked.n_rows
    whole = SufficientStatistics.from_rows(checked)
    parts = [
        SufficientStatistics.from_data(
            X[k::2], Y[k::2], None if weight is None else weight[k::2]
        )
        for k in range(min(2, n))
    ]
    for dtype in ("float64", "float32"):
        for sent in (
            encode_rows(checked, dtype),
            encode(whole, dtype),
            encode(sum(parts[1:], start=parts[0]), dtype),
        ):
            arrays = list(sent.arrays.values())
            back = decode(sent.kind, arrays, checked.schema, sent.count)
            assert back.count == n
    columns = ColumnMoments.from_rows(checked).to_array()
    _read_columns(AskColumns(), [columns], checked.schema, n)
    own = np.ones(n) if weight is None else weight
    weighted = (X * own[:, None]).T
    PlainStatistics.from_arrays(weighted @ X, weighted @ Y, n)
    for factor in (True, False):
        opening = Opening.from_rows(checked, factor=factor)
        arrays = list(opening.to_arrays().values())
        Opening.from_arrays(arrays, checked.schema, n, factor=factor)
        # Directions of a fit are as small as its columns, or as large as one over them.
        size = np.clip(np.abs(X).max(initial=0.0), 1e-150, 1e150)
        for scale in (1.0, size, 1.0 / size):
            vectors = scale * np.random.default_rng(n).normal(size=(d, 3))
            check_product(opening, vectors, centred_product(checked, vectors))


@pytest.mark.parametrize("n_rows", range(1, 17))
def test_no_part_of_longley_is_refused(n_rows: int) -> None:
    rows = check_rows(LONGLEY[:n_rows, 1:], LONGLEY[:n_rows, 0])
    for dtype in ("float64", "float32"):
        for sent in (
            encode_rows(rows, dtype),
            encode(SufficientStatistics.from_rows(rows), dtype),
        ):
            decode(sent.kind, list(sent.arrays.values()), Schema(6), n_rows)


# NIST StRD: y, deflator, GNP, unemployed, armed forces, population, year.
LONGLEY = np.array(
    [
        [60323, 83.0, 234289, 2356, 1590, 107608, 1947],
        [61122, 88.5, 259426, 2325, 1456, 108632, 1948],
        [60171, 88.2, 258054, 3682, 1616, 109773, 1949],
        [61187, 89.5, 284599, 3351, 1650, 110929, 1950],
        [63221, 96.2, 328975, 2099, 3099, 112075, 1951],
        [63639, 98.1, 346999, 1932, 3594, 113270, 1952],
        [64989, 99.0, 365385, 1870, 3547, 115094, 1953],
        [63761, 100.0, 363112, 3578, 3350, 116219, 1954],
        [66019, 101.2, 397469, 2904, 3048, 117388, 1955],
        [67857, 104.6, 419180, 2822, 2857, 118734, 1956],
        [68169, 108.4, 442769, 2936, 2798, 120445, 1957],
        [66513, 110.8, 444546, 4681, 2637, 121950, 1958],
        [68655, 112.6, 482704, 3813, 2552, 123366, 1959],
        [69564, 114.2, 502601, 3931, 2514, 125368, 1960],
        [69331, 115.7, 518173, 4806, 2572, 127852, 1961],
        [70551, 116.9, 554894, 4007, 2827, 130081, 1962],
    ]
)
