"""`BinnedOutcomes`: how well a model predicts, from counts in bins of its predictions.

Rows are put into bins by what the model predicts of them. Of each bin the weight and
the weighted sums of y and of its predicted mean are kept, which add up over clients.
AUC, calibration, deviance and accuracy of all rows follow; no row is seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._checks import check_numbers
from ..._types import Array
from ...data.rows import Rows
from ...errors import DataError, StatisticsError
from ...statistics.outcome import outcome_column
from .families import FAMILIES, Family
from .working import Points, linear_predictors

BINS = 100
_REACH = 5.0
_ROUNDING = 1e-9
_GROUPS = 10


@dataclass(frozen=True, eq=False)
class BinnedOutcomes:
    """Sums in bins of what a model predicts; ``a + b`` is that of the rows of both.

    Parameters
    ----------
    family : str
        The family of the model.
    table : ndarray of shape (p, 3, BINS)
        For each class that is fitted, and each bin: weight, weighted sum of y and of
        predicted means.
    sums : ndarray of shape (p, 2)
        Deviance, and the weighted sum of y log y.
    correct : float
        Weight of the rows whose label is predicted, 0 for counts.
    n_rows : int
        Number of rows.

    Examples
    --------
    >>> table = np.zeros((1, 3, BINS))
    >>> table[0, :, 20] = 50.0, 10.0, 10.0
    >>> table[0, :, 80] = 50.0, 40.0, 40.0
    >>> found = BinnedOutcomes("binomial", table, np.array([[90.0, 0.0]]), 80.0, 100)
    >>> scores = found.scores()
    >>> scores["auc"], scores["accuracy"]
    (0.8, 0.8)
    >>> [(row["predicted"], row["observed"]) for row in found.calibration()]
    [(0.2, 0.2), (0.8, 0.8)]
    """

    family: str
    table: Array
    sums: Array
    correct: float
    n_rows: int

    def __add__(self, other: BinnedOutcomes) -> BinnedOutcomes:
        """Return the sums of the rows of both."""
        return BinnedOutcomes(
            self.family,
            self.table + other.table,
            self.sums + other.sums,
            self.correct + other.correct,
            self.n_rows + other.n_rows,
        )

    def scores(self) -> dict[str, float]:
        """Return mean deviance and D², of classes also accuracy and AUC.

        AUC takes rows of a bin for ties. Of several classes it is the mean over them.
        """
        family, weight = FAMILIES[self.family], float(self.table[0, 0].sum())
        deviances, entropies = self.sums.T
        totals = self.table[:, 1].sum(axis=1)
        null = np.array(
            [
                family.constant_deviance(weight, total, entropy, total / weight)
                for total, entropy in zip(totals, entropies, strict=True)
            ]
        )
        found = {"deviance": float(deviances.mean()) / weight}
        if (null > 0).all():
            found["d2"] = float(np.mean(1.0 - deviances / null))
        if self.family == "binomial":
            found["accuracy"] = self.correct / weight
            areas = [_area(wins, all_ - wins) for all_, wins, _ in self.table]
            if not np.isnan(areas).any():
                found["auc"] = float(np.mean(areas))
        return found

    def calibration(self, place: int = 0) -> list[dict[str, float]]:
        """Return weight, predicted and observed mean in up to ten groups of bins."""
        weight, wins, means = self.table[place]
        filled = np.flatnonzero(weight > 0)
        share = np.cumsum(weight[filled]) / weight.sum()
        group = np.minimum((share - 0.5 * weight[filled] / weight.sum()) * _GROUPS, 9.0)
        found = []
        for number in np.unique(group.astype(int)):
            inside = filled[group.astype(int) == number]
            own = float(weight[inside].sum())
            found.append(
                {
                    "weight": own,
                    "predicted": float(means[inside].sum()) / own,
                    "observed": float(wins[inside].sum()) / own,
                }
            )
        return found

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the one array that travels."""
        rest = np.concatenate([self.sums.ravel(), self.table.ravel()])
        return {"counts": np.append(self.correct, rest)}

    @classmethod
    def from_arrays(
        cls, arrays: Sequence[NDArray[Any]], family: str, n_points: int, count: int
    ) -> BinnedOutcomes:
        """Put `to_arrays` together again; everything is checked, nothing trusted."""
        if len(arrays) != 1:
            raise StatisticsError(f"counts are one array, got {len(arrays)}.")
        size = 1 + n_points * (2 + 3 * BINS)
        flat = check_numbers(arrays[0], np.float64, size, "counts in bins")
        sums = flat[1 : 1 + 2 * n_points].reshape(n_points, 2)
        table = flat[1 + 2 * n_points :].reshape(n_points, 3, BINS)
        weight, wins, means = table.transpose(1, 0, 2)
        total, slack = weight[0].sum(), _ROUNDING * (weight + 1.0)
        bad = (table < 0).any() or (sums[:, 0] < 0).any() or not total > 0 or count < 1
        if family == "binomial":
            bad |= (wins > weight + slack).any() or (means > weight + slack).any()
        bad |= not -_ROUNDING <= flat[0] <= total * (1 + _ROUNDING)
        if bad or np.abs(weight.sum(axis=1) - total).max() > _ROUNDING * total:
            raise StatisticsError("no rows can have these counts in bins.")
        return cls(family, table, sums, float(flat[0]), count)


def bin_outcomes(
    rows: Rows,
    family: Family,
    points: Points,
    offset: Array | None = None,
    *,
    least: int = 1,
) -> BinnedOutcomes:
    """Return the sums of rows; bins with fewer than `least` rows join their neighbours.

    Examples
    --------
    >>> from fedridge_flwr.data.rows import check_rows
    >>> rows = check_rows(np.array([[-1.0], [1.0], [2.0]]), np.array([0.0, 1.0, 1.0]))
    >>> one = np.ones(1, dtype=int)
    >>> points = Points(np.ones((1, 1)), np.zeros(1), one, np.zeros(1))
    >>> found = bin_outcomes(rows, FAMILIES["binomial"], points)
    >>> found.correct, found.scores()["auc"]
    (3.0, 1.0)
    """
    own = np.ones(rows.n_rows) if rows.weight is None else rows.weight
    if not own.any():
        raise DataError("there are no rows with weight to evaluate on.")
    codes, table, sums = outcome_column(rows), [], []
    classes = family.name == "binomial"
    etas = [linear_predictors(rows, points, j, offset) for j in range(len(points.coef))]
    for j, eta in enumerate(etas):
        y = (codes == points.classes[j]).astype(float) if classes else codes
        deviance = float(own @ family.working(y, eta).deviance)
        sums.append([deviance, family.sums(y, own)[0]])
        mean = family.mean(eta)
        where = mean if classes else (eta - points.intercept[j]) / (2 * _REACH) + 0.5
        places = np.clip((where * BINS).astype(int), 0, BINS - 1)
        places = _joined(places, own > 0, least)
        columns = (own, own * y, own * mean)
        table.append([np.bincount(places, each, BINS) for each in columns])
    correct = 0.0
    if classes and len(etas) == 1:
        correct = float(own @ ((etas[0] > 0) == (codes == points.classes[0])))
    elif classes:
        said = points.classes[np.argmax(etas, axis=0)]
        correct = float(own @ (said == codes))
    return BinnedOutcomes(
        family.name, np.array(table), np.array(sums), correct, rows.n_rows
    )


def _joined(places: NDArray[Any], filled: NDArray[Any], least: int) -> NDArray[Any]:
    """Return bins in which neighbours have joined until each has rows enough."""
    counts = np.bincount(places[filled], minlength=BINS)
    target, inside, start = np.arange(BINS), 0, 0
    last = None
    for number in range(BINS):
        inside += counts[number]
        if inside >= least:
            target[start : number + 1] = number
            last, start, inside = number, number + 1, 0
    if inside and last is not None:
        target[start:] = last
    elif last is None:
        target[:] = 0
    return np.asarray(target[places])


def _area(wins: Array, losses: Array) -> float:
    """Return the area under the ROC curve of counts in ascending bins."""
    total = float(wins.sum() * losses.sum())
    below = np.cumsum(losses) - losses
    return float(wins @ (below + losses / 2.0)) / total if total > 0 else np.nan
