"""Correct digits on NIST's certified regressions, into docs/results: `make digits`.

The digits of a number are those that it shares with the certified one, the negative
logarithm of the relative error, 15 at most; of several numbers, those of the worst.
"""

from __future__ import annotations

import json
import platform
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedridge_flwr import (
    FedRidgeError,
    SufficientStatistics,
    TriangularStatistics,
    infer,
)

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data" / "nist_strd"
RESULTS = ROOT / "docs" / "results" / "nist.json"
DEGREES = {"Filip": 10, "Pontius": 2} | {f"Wampler{k}": 5 for k in range(1, 6)}
NAMES = ("Norris", "Pontius", "NoInt1", "NoInt2", "Longley", "Filip")
NAMES += tuple(f"Wampler{k}" for k in range(1, 6))
MOST = 15.0
_NUMBER = r"(-?[\d.]+(?:E[+-]?\d+)?)"


@dataclass(frozen=True)
class Certified:
    """Rows of one regression, and the certified numbers; the intercept comes first."""

    X: np.ndarray
    y: np.ndarray
    coefficients: np.ndarray
    se: np.ndarray
    sigma: float
    r2: float

    @property
    def fit_intercept(self) -> bool:
        """Whether the model has an intercept."""
        return self.coefficients.size > self.X.shape[1]


@dataclass(frozen=True)
class Digits:
    """Correct digits of a fit; None is what a method does not compute."""

    coefficients: float
    se: float | None = None
    sigma: float | None = None
    r2: float | None = None


def read(folder: Path, name: str) -> Certified:
    """Return one regression as NIST publishes it."""
    lines = (folder / f"{name}.dat").read_text().splitlines()
    head = "\n".join(lines[:60])
    found = re.findall(rf"(?m)^\s*B\d+\s+{_NUMBER}\s+{_NUMBER}\s*$", head)
    coefficients, se = np.array(found, dtype=float).T
    sigma = re.search(rf"Standard Deviation\s+{_NUMBER}", head)
    r2 = re.search(rf"R-Squared\s+{_NUMBER}", head)
    table = np.array([line.split() for line in lines[60:] if line.strip()], dtype=float)
    X, y = table[:, 1:], table[:, 0]
    if name in DEGREES:
        X = X ** np.arange(1, DEGREES[name] + 1)
    if sigma is None or r2 is None:
        raise SystemExit(f"{name}.dat has no certified values")
    return Certified(X, y, coefficients, se, float(sigma[1]), float(r2[1]))


def digits(found: Any, certified: Any) -> float:
    """Return the correct digits of the worst number; of a certified zero, its size."""
    found, certified = np.atleast_1d(found), np.atleast_1d(certified)
    error = np.abs(found - certified) / np.where(certified == 0, 1.0, abs(certified))
    worst = float(error.max())
    if not np.isfinite(worst):
        return 0.0
    return max(0.0, min(MOST, -np.log10(max(worst, 1e-300))))


def federated(kind: Any, known: Certified, clients: int) -> Digits | None:
    """Return the digits of the sum over so many clients, None if it is refused."""
    parts = np.array_split(np.arange(len(known.y)), min(clients, len(known.y)))
    total = sum(kind.from_data(known.X[part], known.y[part]) for part in parts)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit = infer(total, fit_intercept=known.fit_intercept)
    except FedRidgeError:
        return None
    return Digits(
        digits(fit.coefficients, known.coefficients),
        digits(fit.se, known.se),
        digits(fit.sigma, known.sigma),
        digits(fit.r2, known.r2),
    )


def _design(known: Certified) -> np.ndarray:
    ones = np.ones((len(known.y), int(known.fit_intercept)))
    return np.hstack([ones, known.X])


def _lstsq(known: Certified) -> Digits:
    found = np.linalg.lstsq(_design(known), known.y, rcond=None)[0]
    return Digits(digits(found, known.coefficients))


def _sklearn(known: Certified) -> Digits:
    from sklearn.linear_model import LinearRegression

    fit = LinearRegression(fit_intercept=known.fit_intercept).fit(known.X, known.y)
    first = [fit.intercept_] if known.fit_intercept else []
    return Digits(digits(np.concatenate([first, fit.coef_]), known.coefficients))


def _statsmodels(known: Certified) -> Digits:
    import statsmodels.api as sm

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Filip
        fit = sm.OLS(known.y, _design(known)).fit()
    return Digits(
        digits(fit.params, known.coefficients),
        digits(fit.bse, known.se),
        digits(np.sqrt(fit.mse_resid), known.sigma),
        digits(fit.rsquared, known.r2),
    )


EACH_ROW = sys.maxsize
METHODS: dict[str, Callable[[Certified], Digits | None]] = {
    "triangular, 3 clients": lambda k: federated(TriangularStatistics, k, 3),
    "triangular, each row": lambda k: federated(TriangularStatistics, k, EACH_ROW),
    "moments, 3 clients": lambda k: federated(SufficientStatistics, k, 3),
    "moments, each row": lambda k: federated(SufficientStatistics, k, EACH_ROW),
    "numpy lstsq": _lstsq,
    "scikit-learn": _sklearn,
    "statsmodels": _statsmodels,
}
"""Ours from several clients, or one for each row; the others from pooled rows."""


def measure(folder: Path) -> dict[str, Any]:
    """Return the digits of all methods, and with what they were measured."""
    import scipy
    import sklearn
    import statsmodels

    found = {}
    for name in NAMES:
        known = read(folder, name)
        each = {method: compute(known) for method, compute in METHODS.items()}
        found[name] = {
            method: None if result is None else vars(result)
            for method, result in each.items()
        }
    modules = (np, scipy, sklearn, statsmodels)
    versions = {module.__name__: module.__version__ for module in modules}
    return {
        "machine": platform.machine(),
        "versions": {"Python": platform.python_version(), **versions},
        "digits": found,
    }


def main() -> None:
    """Measure, and keep the result."""
    if not DATA.exists():
        raise SystemExit(f"NIST's files are not in {DATA}: nothing is measured.")
    found = json.dumps(measure(DATA), indent=1)
    RESULTS.write_text(f"{found}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
