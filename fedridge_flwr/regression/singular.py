"""Which columns make a system of equations singular, and what to do about it."""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from .._text import counted
from .._types import Array
from ..errors import SingularSystemError, column_labels
from ..linalg.pivoted import factor_of_matrix

_SHOWN = 4
# As formulas name the columns of levels, and of interactions with them.
_LEVEL = re.compile(r"\[T\.[^\[\]]+\]")
_INTERACTION = re.compile(r"\[[^\[\]]+\]:|:[^\s:']+\[[^\[\]]+\]")
_RELATED = re.compile(r" (is a|are) (linear|copy)|dependent")
_DEPENDENT = 1e-10


def explain_singular(
    matrix: Array, constant: Sequence[int], names: Sequence[str] | None
) -> list[str]:
    """Name the constant, duplicated and dependent columns of a Gram matrix.

    Parameters
    ----------
    matrix : ndarray of shape (d, d)
        The (penalised) Gram matrix that could not be solved.
    constant : sequence of int
        Columns already known to carry no information.
    names : sequence of str, optional
        Names of the columns.

    Examples
    --------
    >>> import numpy as np
    >>> A = np.array([[1.0, 2.0, 3.0], [0.0, 1.0, 1.0], [2.0, 0.0, 2.0]])
    >>> explain_singular(A.T @ A, [], ["a", "b", "c"])
    ["column 0 ('a') is a linear combination of columns 2 ('c'), 1 ('b')"]
    """
    found = []
    if len(constant):
        verb = "is" if len(constant) == 1 else "are"
        found.append(f"{column_labels(constant, names)} {verb} constant")
    rest = np.setdiff1d(np.arange(matrix.shape[0]), constant)
    if rest.size:
        among = _dependencies(matrix[np.ix_(rest, rest)], rest, names)
        # Constant columns are explanation enough: the others need not be named.
        found += among if among or found else [_nearly(matrix, names)]
    return found


def too_few_rows(count: int, needed: int) -> list[str]:
    """Return the reason that there are fewer rows than coefficients, if there are.

    Examples
    --------
    >>> too_few_rows(3, 5), too_few_rows(5, 5)
    (['3 rows cannot determine 5 coefficients'], [])
    """
    if count >= needed:
        return []
    return [f"{counted(count, 'row')} cannot determine {needed} coefficients"]


def singular_error(
    reasons: Sequence[str], alpha: float = 0.0, drop: str = ""
) -> SingularSystemError:
    """Return the error with these reasons and the remedy that fits alpha."""
    drop = drop or what_to_drop(*reasons)
    penalty = "use alpha > 0" if alpha == 0.0 else f"raise alpha (now {alpha:g})"
    return SingularSystemError(
        f"the data do not determine the coefficients: {'; '.join(reasons)}. "
        f"Remedy: {penalty}, or {drop}."
    )


def what_to_drop(*reasons: str) -> str:
    """Return what to do about columns: those of levels are not in any table.

    Examples
    --------
    >>> what_to_drop("column 2 ('dose') is constant")
    'drop these columns'
    >>> what_to_drop("column 2 ('sex[T.x]') is constant")
    'merge these levels with others in every table'
    >>> what_to_drop("column 4 ('sex[T.m]:C(ward)[T.2]') is constant")
    'take the interaction out of the formula (some combinations of levels have no, or \
too few, rows), or merge levels in every table'
    """
    if any(_INTERACTION.search(reason) for reason in reasons):
        return (
            "take the interaction out of the formula (some combinations of levels "
            "have no, or too few, rows), or merge levels in every table"
        )
    if any(_LEVEL.search(r) and not _RELATED.search(r) for r in reasons):
        return "merge these levels with others in every table"
    return "drop these columns"


def _nearly(matrix: Array, names: Sequence[str] | None) -> str:
    scale = np.sqrt(np.diagonal(matrix))
    _, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    weakest = np.abs(vectors[:, 0])
    involved = np.flatnonzero(weakest > 0.1 * weakest.max())
    verb = "is" if involved.size == 1 else "are"
    return f"{column_labels(involved.tolist(), names)} {verb} nearly dependent"


def _dependencies(
    matrix: Array, columns: NDArray[np.int64], names: Sequence[str] | None
) -> list[str]:
    scale = np.sqrt(np.diagonal(matrix))
    correlation = matrix / np.outer(scale, scale)
    upper, pivots = factor_of_matrix(correlation, _DEPENDENT)
    rank = len(upper)
    if rank == len(matrix):
        return []
    # Columns of `combine` write each dependent column by the independent ones.
    combine = solve_triangular(upper[:, :rank], upper[:, rank:])
    sentences = []
    for j, weights in enumerate(combine.T[:_SHOWN]):
        strong = np.flatnonzero(np.abs(weights) > 1e-6 * np.abs(weights).max())
        strong = strong[np.argsort(-np.abs(weights[strong]), kind="stable")]
        involved = columns[pivots[[rank + j, *strong]]]
        relation = "a linear combination of"
        if strong.size == 1:
            ratio = weights[strong[0]] * scale[pivots[rank + j]]
            same = abs(ratio / scale[pivots[strong[0]]] - 1.0) < 1e-6
            relation = "a copy of" if same else "a linear function of"
            # Either is that of the other; which is a pivot is decided by rounding.
            involved = np.sort(involved)[::-1]
        one, *others = involved.tolist()
        sentences.append(
            f"{column_labels([one], names)} is {relation} "
            f"{column_labels(others, names)}"
        )
    if combine.shape[1] > _SHOWN:
        sentences.append(f"and {combine.shape[1] - _SHOWN} more columns are dependent")
    return sentences
