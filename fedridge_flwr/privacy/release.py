"""One client's private release: exact sums of clipped rows, and noise, added once."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import ceil, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._types import Array
from ..data.rows import Block, Rows
from ..errors import PrivacyError
from ..linalg.packed import diagonal_positions, upper_triangle
from .clipping import EXACT_ROWS, LENGTH, Bounds, GridRows
from .gaussian_sampler import LARGEST_SD, RandomBytes, discrete_gaussian
from .mechanism import DifferentialPrivacy
from .refinement.residuals import residual_sums

# So many products of two grid lengths fit into an int64, with room for the noise.
_INT64_ROWS = 2**21
_MANY_CHANGED = 0.2
NO_WEIGHTS = "privacy has bounds for rows, none for sample weights."


@dataclass(frozen=True)
class ReleaseQuestion:
    """The part of a private request that differs from round to round.

    Parameters
    ----------
    server_round : int
        From 1 to the rounds of the mechanism.
    coef : ndarray, optional
        In residual refinement, the present coefficients, that of the constant feature
        last.
    clip : float
        In residual refinement, the bound on residuals.
    """

    server_round: int = 1
    coef: Array | None = None
    clip: float = 0.0


@dataclass(frozen=True)
class Layout:
    """The blocks of an answer, in the order in which they are packed.

    Every block is a sum over rows of integer vectors of Euclidean length LENGTH² at
    most (a symmetric block as the whole matrix, of which the upper triangle is sent).

    Examples
    --------
    >>> privacy = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=1.0, y_bound=1.0)
    >>> Layout(privacy, Bounds(1.0, 1.0, 2, 1, intercept=True), 1).sizes
    {'gram': 6, 'moment': 3}
    """

    privacy: DifferentialPrivacy
    bounds: Bounds
    server_round: int

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Numbers of each block."""
        width, t = self.bounds.width, self.bounds.n_targets
        known = {
            "gram": width * (width + 1) // 2,
            "moment": width * t,
            "target_gram": t * (t + 1) // 2,
            "count": 1,
            "trace": 1,
            "residual": width + 1,
        }
        blocks = self.privacy.shares(self.server_round)
        return {block: known[block] for block in blocks}

    @cached_property
    def length(self) -> int:
        """Numbers of the whole answer."""
        return sum(self.sizes.values())

    def split(self, packed: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return the blocks of a packed answer."""
        ends = np.cumsum(list(self.sizes.values()))
        return dict(zip(self.sizes, np.split(packed, ends[:-1]), strict=True))

    def deviation(self, block: str) -> int:
        """Return the deviation of the noise on a block, on the diagonal of a matrix."""
        return ceil(self._units[block])

    def deviations(self, block: str) -> NDArray[np.int64]:
        """Return the deviation of the noise on every number, rounded up."""
        found = np.full(self.sizes[block], self.deviation(block), dtype=np.int64)
        if block in ("gram", "target_gram"):
            order = self.bounds.width if block == "gram" else self.bounds.n_targets
            # Each number off the diagonal stands for two of the matrix.
            found[:] = ceil(self._units[block] / sqrt(2.0))
            found[diagonal_positions(order)] = self.deviation(block)
        return found

    @cached_property
    def _units(self) -> dict[str, float]:
        deviation, asked = self.privacy.deviation, self.server_round
        t = self.bounds.n_targets
        # At the most 2^62: too large to be drawn, and refused there.
        return {b: min(deviation(b, asked, t) * LENGTH**2, 2.0**62) for b in self.sizes}

    def noise(self, part: float, source: RandomBytes = os.urandom) -> NDArray[Any]:
        """Return noise for the whole answer, with this fraction of the deviation."""
        whole = np.concatenate([self.deviations(block) for block in self.sizes])
        own = np.ceil(whole * part).astype(np.int64)
        return discrete_gaussian(own, source=source)


@dataclass
class ClippingCounts:
    """How many rows clipping has changed: for the client's own log only."""

    total: int = 0
    shortened: int = 0
    cut: int = 0
    dropped: int = 0

    def add(self, grid: GridRows) -> None:
        """Count a block of rows."""
        self.total += len(grid.Y)
        self.shortened += grid.n_shortened
        self.cut += grid.n_cut
        self.dropped += grid.n_dropped

    def __str__(self) -> str:
        """Return one line for the log."""
        return (
            f"{self.total} rows, of which {self.shortened} were shortened to "
            f"x_norm_bound, {self.cut} cut to y_bound, {self.dropped} dropped as not "
            "finite"
        )

    @property
    def doubtful(self) -> bool:
        """Whether so many rows were changed that the bounds, or the rows, are wrong."""
        changed = max(self.shortened, self.cut, self.dropped)
        return changed > _MANY_CHANGED * self.total


def make_release(
    rows: Rows,
    privacy: DifferentialPrivacy,
    *,
    intercept: bool,
    question: ReleaseQuestion | None = None,
    source: RandomBytes = os.urandom,
    counts: ClippingCounts | None = None,
) -> Array:
    """Return the answer of one client: clipped, summed exactly, noised.

    Parameters
    ----------
    rows : Rows
        The client's rows; there may be none.
    privacy : DifferentialPrivacy
        Bounds and noise.
    intercept : bool
        Whether the constant feature is part of the release.
    question : ReleaseQuestion, optional
        What is asked in this round; by default the one-shot release.
    source : callable
        Source of random bytes; any other than the default is for tests.
    counts : ClippingCounts, optional
        Filled with the numbers of clipped rows.
    """
    whole = whole_release(
        rows,
        privacy,
        intercept=intercept,
        question=question or ReleaseQuestion(),
        source=source,
        counts=counts or ClippingCounts(),
    )
    return whole.astype(np.float64)


def whole_release(
    rows: Rows,
    privacy: DifferentialPrivacy,
    *,
    intercept: bool,
    question: ReleaseQuestion,
    source: RandomBytes = os.urandom,
    counts: ClippingCounts,
) -> NDArray[Any]:
    """Return the same as integers, int64 or Python's own, of which nothing is rounded.

    A part of the noise in a secure sum must not be: rounding each part is not rounding
    the sum.
    """
    layout = check_question(rows, privacy, intercept=intercept, question=question)
    sums = _sums(rows, layout, question, counts)
    if privacy.client_part > 0:
        sums = sums + layout.noise(privacy.client_part, source)
    return sums


def check_question(
    rows: Rows,
    privacy: DifferentialPrivacy,
    *,
    intercept: bool,
    question: ReleaseQuestion,
) -> Layout:
    """Return the layout of an answer, or raise what is wrong with the question.

    All checks are made before any row is read: a later error would reveal that there
    are rows.
    """
    if rows.weight is not None:
        raise PrivacyError(NO_WEIGHTS)
    bounds = privacy.bounds(rows.n_features, rows.n_targets, intercept)
    layout = Layout(privacy, bounds, question.server_round)
    if max(layout.deviation(block) for block in layout.sizes) > LARGEST_SD:
        raise PrivacyError("the noise is too large to be drawn: raise epsilon.")
    if "residual" in layout.sizes:
        if rows.n_targets != 1:
            raise PrivacyError(
                "residual refinement supports one target only: fit each by itself, "
                "with a part of the budget."
            )
        coef = _coefficients(question, bounds)
        finite = coef.shape == (bounds.width,) and bool(np.isfinite(coef).all())
        if not finite or not 0 < question.clip < np.inf:
            raise PrivacyError("the question about residuals does not fit the rows.")
    return layout


def _coefficients(question: ReleaseQuestion, bounds: Bounds) -> Array:
    return np.zeros(bounds.width) if question.coef is None else question.coef


def _sums(
    rows: Rows, layout: Layout, question: ReleaseQuestion, counts: ClippingCounts
) -> NDArray[Any]:
    total: NDArray[Any] = np.zeros(layout.length, dtype=np.int64)
    for block in rows.blocks():
        for start in range(0, len(block.Y), EXACT_ROWS):
            part = slice(start, start + EXACT_ROWS)
            grid = layout.bounds.on_grid(Block(block.X[part], block.Y[part], None))
            added = _block_sums(grid, layout, question)
            counts.add(grid)
            if counts.total > _INT64_ROWS and total.dtype != object:
                total = total.astype(object)
            total = total + added.astype(np.int64)
    return total


def _block_sums(grid: GridRows, layout: Layout, question: ReleaseQuestion) -> Array:
    X, Y, bounds = grid.X, grid.Y, layout.bounds
    coef = _coefficients(question, bounds)
    sums: dict[str, Callable[[], Array]] = {
        "gram": lambda: upper_triangle(X.T @ X),
        "moment": lambda: (X.T @ Y).ravel(),
        "target_gram": lambda: upper_triangle(Y.T @ Y),
        "count": lambda: np.array([np.count_nonzero(grid.present) * LENGTH**2], float),
        "trace": lambda: np.array([np.einsum("ij,ij->", X, X)]),
        "residual": lambda: residual_sums(grid, bounds, coef, question.clip),
    }
    return np.concatenate([sums[block]() for block in layout.sizes])
