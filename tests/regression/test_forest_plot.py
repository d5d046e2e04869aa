"""Ratios on the axis of a forest plot are written as people read them."""

from __future__ import annotations

import numpy as np
import pytest

from fedridge_flwr.regression.sites.forest_plot import forest_plot


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.3, 7.0, ["0.5", "1", "2", "5"]),
        (0.5, 3.0, ["0.5", "1", "2"]),
        (0.9, 1.12, ["0.9", "0.95", "1", "1.05", "1.1"]),
        (1e-3, 1e4, ["0.001", "0.01", "0.1", "1", "10", "100", "1000", "10000"]),
    ],
)
def test_ratios_are_no_powers_of_ten(
    low: float, high: float, expected: list[str]
) -> None:
    ends = np.array([[low, low * 1.1], [high * 0.9, high]])
    figure = forest_plot(["a", "b"], ends.mean(axis=1), ends, ratios=True)
    figure.canvas.draw()
    (axis,) = figure.axes
    first, last = axis.get_xlim()
    ticks = zip(axis.get_xticklabels(), axis.get_xticks(), strict=True)
    assert [t.get_text() for t, x in ticks if first <= x <= last] == expected
    assert not any(t.get_text() for t in axis.get_xticklabels(minor=True))
