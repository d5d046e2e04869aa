"""Is there a data set behind what the server took? Decided without the package.

For statistics a data set is built: rows from the eigenvectors of the co-moments, as
many as were claimed at most, each of the same weight (rows beyond are given weight
zero). It must have the weight, the means and the co-moments that were claimed, up to
the rounding that the package allows for: of a co-moment 1e-6 of the deviations of its
columns (float32: 6e-8 or 1.2e-7 more for each column) and 1e-12 of the raw second
moments; of a product also 1e-10 of the mean of a column, beside its deviation. For more
than that it returns the reason; None means that all is well.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

RELATIVE, RAW, DENORMAL = 1e-6, 1e-12, 1e-310
LARGEST = 1e150


def against(kind: str, found: Any, draft: Any) -> str | None:
    """Return why nothing can have what was accepted as this kind of answer."""
    with np.errstate(all="ignore"):
        return _of_type(type(found).__name__)(found, draft)


def _of_type(name: str) -> Any:
    return {
        "SufficientStatistics": _statistics,
        "PlainStatistics": _plain,
        "FixedPointStatistics": _fixed,
        "Opening": _opening,
        "ndarray": _array,
        "ColumnMoments": _columns,
        "PrivateStatistics": _private,
        "Evaluation": _evaluation,
        "ErrorMoments": _error_moments,
    }[name]


# ---- rows from moments -----------------------------------------------------------


def _allowance(diagonal: np.ndarray, raw: np.ndarray, rounding: float) -> np.ndarray:
    slack = RELATIVE + diagonal.size * rounding
    return slack * np.abs(diagonal) + RAW * raw + DENORMAL


def _rows_with(C: np.ndarray, unit: np.ndarray, rank: int) -> np.ndarray:
    """Return the best B (rank x p) with B'B = C, where `unit` counts as rounding."""
    scale = 1.0 / np.sqrt(unit)
    values, vectors = np.linalg.eigh((C * scale) * scale[:, None])
    kept = np.argsort(values)[::-1][:rank]
    half = np.sqrt(np.maximum(values[kept], 0.0))
    return (vectors[:, kept] * half).T / scale


def _centred(B: np.ndarray) -> np.ndarray:
    """Return rows Q B with orthonormal Q whose columns sum to zero (Helmert)."""
    k = len(B)
    Q = np.zeros((k + 1, k))
    for j in range(k):
        Q[: j + 1, j], Q[j + 1, j] = 1.0, -(j + 1.0)
        Q[:, j] /= math.sqrt((j + 1.0) * (j + 2.0))
    return Q @ B


def _gap(C: np.ndarray, rebuilt: np.ndarray, unit: np.ndarray) -> float:
    scale = 1.0 / np.sqrt(unit)
    return float(np.abs(((C - rebuilt) * scale) * scale[:, None]).max(initial=0.0))


def _counted(count: Any) -> str | None:
    if type(count) is not int or not 0 <= count < 2**53:
        return f"a count of {count!r}"
    return None


def _weighed(count: Any, weight: float, *numbers: np.ndarray) -> str | None:
    wrong = _counted(count)
    if wrong:
        return wrong
    if not (math.isfinite(weight) and weight >= 0):
        return f"a weight of {weight}"
    if not all(np.isfinite(each).all() for each in numbers):
        return "numbers that are not finite"
    if (count == 0 or weight == 0) and any(each.any() for each in numbers):
        return "no weight, yet means or moments"
    if count == 0 and weight:
        return "no rows, yet weight"
    return None


def _moments(
    count: int, weight: float, means: np.ndarray, C: np.ndarray, rounding: float
) -> str | None:
    wrong = _weighed(count, weight, means, C)
    if wrong or count == 0 or weight == 0:
        return wrong
    p, diagonal = len(C), np.diagonal(C)
    if (diagonal < 0).any():
        return "negative variances"
    raw = np.abs(diagonal) + weight * means**2
    if not (raw < LARGEST).all():
        return "second moments that overflow in the sum"
    unit = _allowance(diagonal, raw, rounding)
    rows = _centred(_rows_with(C, unit, min(count - 1, p)))  # times sqrt(weight)
    n = len(rows)
    Z = rows * math.sqrt(n / weight) + means
    if not np.isfinite(Z).all():
        return None  # rows beyond float64, of next to no weight
    mean = Z.mean(axis=0)
    centred = (Z - mean) * math.sqrt(weight / n)
    off = np.abs(mean - means) * math.sqrt(weight) / np.sqrt(unit)
    if off.max(initial=0.0) > 1.0:
        return "no rows have these means"
    gap = _gap(C, centred.T @ centred, unit)
    if gap > p + 1.0:
        return f"no {count} rows have these co-moments: off by {gap:.1e} roundings"
    return None


def _statistics(stats: Any, draft: Any) -> str | None:
    p = stats.n_features + stats.n_targets
    C = np.zeros((p, p))
    C[np.triu_indices(p)] = stats.triangle
    C += np.triu(C, 1).T
    return _named(stats) or _moments(
        stats.count, stats.total_weight, stats.means, C, stats.rounding
    )


def _fixed(stats: Any, draft: Any) -> str | None:
    """Whole numbers: the weight and the variances are exact, the rest as above."""
    p = stats.n_features + stats.n_targets
    data = np.ascontiguousarray(stats.words, "<u8").tobytes()
    S = np.zeros((p + 1, p + 1), dtype=object)
    S[np.triu_indices(p + 1)] = [
        int.from_bytes(data[k : k + 24], "little", signed=True)
        for k in range(0, len(data), 24)
    ]
    total, sums = int(S[0, 0]), S[0, 1:]
    if draft.fields.get("kind") == "fixed" and total != stats.count << 120:
        return "another weight than that of its rows"
    if total <= 0 or stats.count == 0:
        return "sums of no rows" if data.strip(b"\x00") else _named(stats)
    if max(np.diagonal(S)) > 2**191 // 1024:
        return "squares that overflow in the sum"
    exact = S[1:, 1:] * total - np.outer(sums, sums)
    C = np.zeros((p, p))
    for i, j in zip(*np.triu_indices(p), strict=True):
        C[i, j] = C[j, i] = exact[i, j] / (total << 120)
    means = np.array([each / total for each in sums])
    return _named(stats) or _moments(stats.count, total / 2**120, means, C, 0.0)


def _named(found: Any) -> str | None:
    names = found.feature_names
    raw = found.n_features if found.feature_map is None else found.n_features_in
    if names is not None and len(names) != raw:
        return f"{len(names)} names for {raw} columns"
    return None


def _plain(stats: Any, draft: Any) -> str | None:
    wrong = _weighed(stats.count, float(stats.count), stats.gram, stats.moment)
    if wrong or stats.count == 0:
        return wrong
    G, d = stats.gram, len(stats.gram)
    diagonal = np.diagonal(G)
    if (diagonal < 0).any():
        return "negative sums of squares"
    unit = _allowance(diagonal, diagonal, 0.0)
    B = _rows_with(G, unit, min(stats.count, d))
    gap = _gap(G, B.T @ B, unit)
    if gap > d + 1.0:
        return f"no {stats.count} rows have this G: off by {gap:.1e} roundings"
    # Of the targets nothing is known but that their squares do not overflow.
    longest = np.sqrt(diagonal + unit) * math.sqrt(LARGEST)
    if (np.abs(stats.moment) > 1.001 * longest[:, None]).any():
        return "no targets have this h with these features"
    return None


# ---- openings and products -------------------------------------------------------


def _opening(opening: Any, draft: Any) -> str | None:
    m, n = opening.moments, opening.count
    wrong = _named(opening) or _weighed(n, m.weight, m.means, m.variances, m.moment)
    if wrong or n == 0 or m.weight == 0:
        return wrong
    d = len(m.moment)
    if (m.variances < 0).any():
        return "negative variances"
    raw = m.variances + m.weight * m.means**2
    if not (raw < LARGEST).all():
        return "second moments that overflow in the sum"
    unit = _allowance(m.variances, raw, 0.0)
    if opening.factor is not None and opening.factor.height > n:
        return "a factor of more rows than there are"
    # With y along one axis, every x has its own angle to it: two axes are enough.
    for k in range(m.moment.shape[1]):
        ends = np.append(m.variances[:d], m.variances[d + k])
        units = np.append(unit[:d], unit[d + k])
        if _axes(ends, m.moment[:, k], units) > n - 1:
            return f"no {n} rows have these variances and moments"
    return None


def _axes(variances: np.ndarray, moment: np.ndarray, unit: np.ndarray) -> float:
    """Return how many dimensions columns need that have this moment with the last."""
    size = np.sqrt(variances)
    rounding = np.sqrt(variances + unit) - size + RELATIVE * size
    slack = 4 * (rounding[:-1] * size[-1] + rounding[-1] * (size + rounding)[:-1])
    slack = slack + np.sqrt(unit[:-1] * unit[-1])
    short = size[:-1] * size[-1] - np.abs(moment)
    if (short < -slack).any():
        return math.inf
    if (variances <= unit + RAW * unit).all():
        return 0.0
    return 2.0 if (short > slack).any() else 1.0


def _array(found: np.ndarray, draft: Any) -> str | None:
    if draft.kind == "losses":
        good = np.isfinite(found).all() and (found >= 0).all()
        return None if good and found.shape == (draft.question,) else "no losses"
    V, d = draft.question.vectors, len(draft.question.vectors)
    m = draft.opening.moments
    if found.shape != V.shape or not np.isfinite(found).all():
        return "another shape, or not finite"
    raw = m.variances[:d] + m.weight * m.means[:d] ** 2
    length = np.sqrt(m.variances[:d] + 1e-20 * raw + DENORMAL)
    size = np.linalg.norm(V * length[:, None], axis=0)
    unit = 1e-8 * d * np.outer(size, size) + 1e-300
    M = V.T @ found
    if (np.abs(M - M.T) > unit).any():
        return "a product of no symmetric matrix"
    scale = 1.0 / np.sqrt(np.diagonal(unit))
    if np.linalg.eigvalsh((M + M.T) / 2 * np.outer(scale, scale)).min() < -len(M):
        return "a product of a matrix that is no sum of squares"
    # d = 1: the matrix is the variance, which is known.
    if d == 1:
        off = np.abs(found - m.variances[0] * V)
        allowed = 1e-4 * length**2 + 1e-20 * raw  # the latter for a rounded mean
        if (off > allowed * np.abs(V)).any():
            return "a product of another number than the variance"
    curvature = np.maximum(np.diagonal(M), 0.0) + np.diagonal(unit)
    if (np.abs(found) > 1.001 * np.outer(length, np.sqrt(curvature))).any():
        return "a product larger than the variances allow"
    return None


# ---- the rest --------------------------------------------------------------------


def _columns(found: Any, draft: Any) -> str | None:
    weight, means, variances = found.weight, found.means, found.variances
    count = draft.count
    wrong = _weighed(count, weight, means, variances)
    if wrong or count == 0 or weight == 0:
        return wrong
    if (variances < 0).any():
        return "negative variances"
    if count == 1 and (variances > RELATIVE * RELATIVE * means**2 + DENORMAL).any():
        return "one row that varies"
    return None


def _private(found: Any, draft: Any) -> str | None:
    sums = found.sums
    if sums.dtype != np.float64 or not (np.abs(sums) < 2.0**74).all():
        return "a release that is not finite float64"
    if (sums != np.rint(sums)).any():
        return "a release beside the grid"
    return _named(found)


def _evaluation(found: Any, draft: Any) -> str | None:
    wrong = _counted(found.n_rows)
    good = type(found.mse) is float and math.isfinite(found.mse) and found.mse >= 0
    r2 = type(found.r2) is float and (math.isnan(found.r2) or -1e300 < found.r2 <= 1)
    # Where no number may be, Flower's records leave it out, and R² is not known.
    said = [draft.fields.get("mse")]
    said += [] if math.isnan(found.r2) else [draft.fields.get("r2")]
    if any(isinstance(each, bool) for each in said):
        return "a truth value in place of a number"
    return wrong or (None if good and r2 else "no mean squared error, or no R²")


def _error_moments(found: Any, draft: Any) -> str | None:
    sums = found.to_array()
    if not np.isfinite(sums).all() or found.weight <= 0 or found.n_rows < 1:
        return "sums of no rows, or not finite"
    if (found.variance < 0).any() or (found.error < 0).any():
        return "a negative square"
    if not math.isclose(found.mse, float(draft.fields["mse"]), rel_tol=1e-6):
        return "sums that contradict the error told"
    return _evaluation(found, draft)
