"""Conjugate gradients: A X = B by products with A alone.

`ConjugateSteps` is the iteration. It does not know A: its caller multiplies the
`directions` by A and hands the result to `take`, in a loop (`conjugate_gradients`) or
one communication round at a time (`federation`).
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh_tridiagonal

from .._types import Array

Product: TypeAlias = Callable[[Array], Array]
Precondition: TypeAlias = Product

# A residual this small relative to A x is rounding error of the product.
_ROUNDING = 1e-14
_FLAT = "not positive definite, or solved to rounding"


class ConjugateSteps:
    """Solve A X = B for several right-hand sides, one product with A at a time.

    Parameters
    ----------
    rhs : ndarray of shape (d, t)
        B, one column for each target.
    precondition : callable, optional
        ``precondition(V)`` returns M^-1 V for a positive definite M near A.
    tol : float or ndarray of shape (t,)
        A target is solved at sqrt(r' M^-1 r / b' M^-1 b) <= tol. Without
        preconditioner that is |r| / |b|; where M is near A, it is near the relative
        error of the predictions.
    patience : int, optional
        Number of steps without progress after which a target is given up; None for
        never.
    start, image : ndarray of shape (d, t), optional
        Initial X, and A times it.
    remembered : int
        Number of earlier directions to which a new one is made conjugate. In exact
        arithmetic 1 is enough; more cost little where a product is a communication
        round, and make up for rounding.
    lowest : float
        Curvature p'Ap / p'p at or below which A counts as singular.

    Examples
    --------
    >>> A, B = np.array([[4.0, 1.0], [1.0, 3.0]]), np.array([[1.0], [2.0]])
    >>> steps = ConjugateSteps(B, tol=1e-12)
    >>> while not steps.done:
    ...     _ = steps.take(A @ steps.directions)
    >>> steps.solution.ravel().round(6)
    array([0.090909, 0.636364])
    """

    def __init__(
        self,
        rhs: Array,
        precondition: Precondition | None = None,
        tol: float | Array = 1e-12,
        patience: int | None = 25,
        start: Array | None = None,
        image: Array | None = None,
        *,
        remembered: int = 60,
        lowest: float = 0.0,
    ) -> None:
        n_targets = rhs.shape[1]
        self._precondition = precondition
        self._tol = np.broadcast_to(tol, n_targets)
        self._patience, self._lowest = patience, lowest
        self._solution = np.zeros_like(rhs) if start is None else start.copy()
        self._residual = rhs.copy() if image is None else rhs - image
        self._size = _dots(rhs, self._preconditioned(rhs))
        self._energy = np.zeros(n_targets)
        self._best = np.full(n_targets, np.inf)
        self._idle = np.zeros(n_targets, dtype=int)
        self._directions = np.zeros_like(rhs)
        self._past = deque[tuple[list[int], Array, Array, Array]](maxlen=remembered)
        # Step lengths and ratios of energies: the coefficients of Lanczos.
        self._steps: list[tuple[Array, Array]] = []
        self._reasons = [""] * n_targets
        self._aim()
        self._rhs, self._first = rhs, self._energy.copy()

    @property
    def active(self) -> list[int]:
        """Targets that are not solved yet."""
        return [j for j, reason in enumerate(self._reasons) if not reason]

    @property
    def done(self) -> bool:
        """Whether no target is active."""
        return all(self._reasons)

    @property
    def flat(self) -> bool:
        """Whether a direction without curvature was met: A may be singular."""
        return _FLAT in self._reasons

    @property
    def converged(self) -> bool:
        """Whether all targets reached the tolerance."""
        return bool((self.estimates <= self._tol).all())

    @property
    def estimates(self) -> Array:
        """Relative residual of each target, by which it ends."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.sqrt(np.maximum(self._energy, 0.0) / self._size)
        return np.where(self._size != 0, ratio, 0.0)

    @property
    def estimate(self) -> float:
        """Largest of the `estimates`."""
        return float(self.estimates.max())

    @property
    def stuck(self) -> list[int]:
        """Targets that ended above the tolerance."""
        above = ~(self.estimates <= self._tol)
        return [j for j, why in enumerate(self._reasons) if why and above[j]]

    @property
    def ended(self) -> str:
        """Why a target ended above the tolerance; "" if none did."""
        return next((self._reasons[j] for j in self.stuck), "")

    @property
    def solution(self) -> Array:
        """The current X, shape (d, t)."""
        return self._solution.copy()

    @property
    def directions(self) -> Array:
        """What to multiply by A next, shape (d, number of active targets)."""
        return self._directions[:, self.active]

    def take(
        self,
        images: Array,
        directions: Array | None = None,
        targets: list[int] | None = None,
    ) -> Array:
        """Step along the directions, given A times them; return step lengths (t,).

        `directions` other than the current ones may be given for some of the targets:
        after a restart the products with the earlier ones are already known.
        """
        columns = self.active if targets is None else targets
        p = self._directions[:, columns] if directions is None else directions
        before = self._energy.copy()
        lengths = np.zeros_like(before)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            curvature = _dots(p, images)
            lowest = self._lowest * _dots(p, p) if self._lowest else 0.0
            # Rounding makes it negative once the solution is as good as it gets.
            curved = np.isfinite(curvature) & (curvature > lowest)
            for column in np.flatnonzero(~curved):
                self._reasons[columns[column]] = _FLAT
            columns = [columns[column] for column in np.flatnonzero(curved)]
            p, q, curvature = p[:, curved], images[:, curved], curvature[curved]
            lengths[columns] = _dots(p, self._residual[:, columns]) / curvature
            self._solution[:, columns] += lengths[columns] * p
            self._residual[:, columns] -= lengths[columns] * q
            self._past.append((columns, p, q, curvature))
            self._aim()
            self._steps.append((lengths, self._energy / before))
        return lengths

    def ritz(self) -> tuple[float, float]:
        """Return the smallest and largest Ritz value, NaN before the first step.

        Both lie within the eigenvalues of M^-1 A, and converge to the outermost of
        those that the right-hand sides have a part in.
        """
        found: list[float] = []
        for j in range(len(self._reasons)):
            own = np.array([(length[j], ratio[j]) for length, ratio in self._steps])
            length, ratio = own.reshape(-1, 2).T
            taken = np.isfinite(length) & (length != 0.0)
            if not taken.any():
                continue
            length, ratio = length[taken], ratio[taken]
            diagonal = 1.0 / length
            diagonal[1:] += ratio[:-1] / length[:-1]
            beside = np.sqrt(ratio[:-1]) / length[:-1]
            for k in (0, length.size - 1):
                found += eigvalsh_tridiagonal(diagonal, beside, "i", (k, k)).tolist()
        return (min(found), max(found)) if found else (np.nan, np.nan)

    def errors(self) -> Array:
        """Estimate |x - x*| / |x*| of each target in the norm of A.

        Where A is X'X and a small penalty, that is the relative error of predictions.
        The residual alone does not see directions in which M is far from A. This is
        the upper bound of Gauss and Radau on the error of conjugate gradients (Golub
        and Meurant 2010, chapter 12), with half the smallest Ritz value for the
        smallest eigenvalue of M^-1 A.
        """
        lowest = self.ritz()[0] / 2.0
        bound, energy = np.full(self._size.shape, 1.0 / lowest), self._first.copy()
        with np.errstate(divide="ignore", invalid="ignore"):
            for length, ratio in self._steps:
                took = np.isfinite(length) & (length != 0.0)
                rest = np.maximum(bound - length, 0.0)
                bound = np.where(took, rest / (lowest * rest + ratio), bound)
                energy = np.where(took, energy * ratio, energy)
            size = np.abs(_dots(self._solution, self._rhs))
            found = np.sqrt(bound * np.maximum(energy, 0.0) / size) + _ROUNDING
        # Before the first step nothing is known, and a target of zeros is exact.
        found = np.where(np.isfinite(found), found, self.estimates)
        return np.where(self._size != 0, found, 0.0)

    def _preconditioned(self, vectors: Array) -> Array:
        return vectors if self._precondition is None else self._precondition(vectors)

    def _aim(self) -> None:
        """Choose the next directions, and end targets that need none."""
        active = self.active
        if not active:
            return
        with np.errstate(over="ignore", invalid="ignore"):
            residual = self._residual[:, active]
            steepest = np.zeros_like(self._residual)
            steepest[:, active] = self._preconditioned(residual)
            self._energy[active] = _dots(residual, steepest[:, active])
            self._judge(active)
            for columns, p, q, curvature in self._past:
                steepest[:, columns] -= p * (_dots(q, steepest[:, columns]) / curvature)
        self._directions[:, active] = steepest[:, active]

    def _judge(self, active: list[int]) -> None:
        estimates = self.estimates
        for j in active:
            if not np.isfinite(estimates[j]):
                self._reasons[j] = "the estimate is not finite"
            elif estimates[j] <= self._tol[j]:
                self._reasons[j] = "solved"
            elif estimates[j] < 0.9 * self._best[j]:
                self._best[j], self._idle[j] = estimates[j], 0
            else:
                self._idle[j] += 1
                if self._patience is not None and self._idle[j] >= self._patience:
                    self._reasons[j] = f"no progress in {self._patience} rounds"


class ConjugateSolution(NamedTuple):
    """What `conjugate_gradients` found.

    Attributes
    ----------
    solution : ndarray of shape (d, t)
        One column for each right-hand side.
    steps : int
        Number of products with A, one for all right-hand sides together.
    residual : ndarray of shape (t,)
        |b - A x| / |b|, computed from the solution; 0 where b is 0.
    converged : ndarray of bool, shape (t,)
        Whether the residual is within the tolerance, or within rounding error.
    flat : bool
        Whether a direction p with p'Ap <= lowest p'p was met: A is singular, or not
        positive definite.
    ritz : tuple of float
        Smallest and largest Ritz value, see `ConjugateSteps.ritz`.
    """

    solution: Array
    steps: int
    residual: Array
    converged: NDArray[np.bool_]
    flat: bool
    ritz: tuple[float, float]


def conjugate_gradients(
    product: Product,
    rhs: Array,
    precondition: Precondition | None = None,
    *,
    tol: float | Array = 1e-12,
    max_steps: int | None = None,
    lowest: float = 0.0,
) -> ConjugateSolution:
    """Solve A X = B until |b - A x| <= tol |b|, for a symmetric positive definite A.

    All right-hand sides take their steps together, so that A is read once per step.
    The residual that the steps update drifts from the true one; where they differ, the
    steps start again from the true one, as long as that at least halves it.

    Parameters
    ----------
    product : callable
        ``product(V)`` returns A V for V of shape (d, k).
    rhs : ndarray of shape (d, t)
        Right-hand sides.
    precondition, tol, lowest
        As in `ConjugateSteps`.
    max_steps : int, optional
        Steps after which to give up; 2 d + 200 by default.

    Examples
    --------
    >>> A = np.array([[4.0, 1.0], [1.0, 3.0]])
    >>> found = conjugate_gradients(lambda V: A @ V, np.array([[1.0], [2.0]]))
    >>> found.solution.round(6).tolist(), found.steps
    ([[0.090909], [0.636364]], 2)
    >>> round(found.ritz[1] / found.ritz[0], 6), round(np.linalg.cond(A).item(), 6)
    (1.938749, 1.938749)
    """
    max_steps = 2 * len(rhs) + 200 if max_steps is None else max_steps
    size = np.linalg.norm(rhs, axis=0)
    goal = np.broadcast_to(tol, size.shape) * size
    solution, residual = np.zeros_like(rhs), rhs
    before = np.full(size.shape, np.inf)
    taken, flat, low, high = 0, False, np.nan, np.nan
    while True:
        length = np.linalg.norm(residual, axis=0)
        attainable = _ROUNDING * np.nan_to_num(high) * np.linalg.norm(solution, axis=0)
        converged = length <= np.maximum(goal, attainable)
        worth = ~converged & (length <= before / 2)
        if flat or taken >= max_steps or not worth.any():
            break
        own_tol = goal[worth] / length[worth]
        steps = ConjugateSteps(
            residual[:, worth], precondition, own_tol, None, remembered=1, lowest=lowest
        )
        while not (steps.done or steps.flat or taken >= max_steps):
            steps.take(product(steps.directions))
            taken += 1
        flat = steps.flat
        smallest, largest = steps.ritz()
        low, high = np.fmin(low, smallest), np.fmax(high, largest)
        solution[:, worth] += steps.solution
        before = np.where(worth, length, before)
        residual = rhs - product(solution)
    relative = np.divide(length, size, out=np.zeros_like(size), where=size > 0)
    ritz = float(low), float(high)
    return ConjugateSolution(solution, taken, relative, converged, flat, ritz)


def _dots(a: Array, b: Array) -> Array:
    """Return the inner products of the columns of two matrices."""
    return np.asarray(np.einsum("ij,ij->j", a, b))
