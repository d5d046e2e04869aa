"""Real tables as files: how they are read, and the pooled fit they are held against."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from formulaic import Formula
from sklearn.linear_model import Ridge

from fedridge_flwr import RidgeModel

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
HEART_COLUMNS = [
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach"),
    *("exang", "oldpeak", "slope", "ca", "thal", "num"),
]
HEART_TABLE = """\
# The four files have no header. '?' means missing anyway.
header = false
delimiter = ","
decimal = "."
missing = ["?"]
columns = [
  "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach",
  "exang", "oldpeak", "slope", "ca", "thal", "num",
]
"""
HEART = "thalach ~ age + C(sex) + C(cp) + trestbps + C(restecg) + C(exang) + oldpeak"
BEIJING = (
    "`PM2.5` ~ PM10 + SO2 + NO2 + CO + O3 + TEMP + PRES + DEWP + RAIN + WSPM + "
    "C(wd) + C(month) + C(hour)"
)


def heart_frame(folder: Path, hospitals: Sequence[str] = HOSPITALS) -> pd.DataFrame:
    """Return the patients of all hospitals, by pandas."""
    return pd.concat(
        pd.read_csv(
            folder / f"processed.{hospital}.data",
            header=None,
            names=HEART_COLUMNS,
            na_values="?",
        )
        for hospital in hospitals
    )


def beijing_frame(folder: Path, stations: str = "*") -> pd.DataFrame:
    """Return the hours of all stations, by pandas."""
    files = sorted(folder.glob(f"PRSA_Data_{stations}_*.csv.gz"))
    return pd.concat(map(pd.read_csv, files))


def pooled_ridge(
    formula: str, frame: pd.DataFrame, alpha: float = 1.0
) -> tuple[Ridge, list[str]]:
    """Return scikit-learn's fit on complete rows coded by formulaic, and its columns.

    By singular values: the default solver of scikit-learn squares the condition.
    """
    design = Formula(formula).get_model_matrix(frame.reset_index(drop=True))
    X = design.rhs.drop(columns="Intercept")
    y = design.lhs.to_numpy(float)[:, 0]
    ridge = Ridge(alpha=alpha, solver="svd").fit(X.to_numpy(float), y)
    return ridge, list(X.columns)


def assert_is_ridge(
    model: RidgeModel, ridge: Any, names: list[str], *, tolerance: float
) -> None:
    """Assert that coefficients are scikit-learn's, relative to the largest of them."""
    found = [re_number(name) for name in model.feature_names_in_]
    assert found == [re_number(name) for name in names]
    largest = np.abs(ridge.coef_).max()
    np.testing.assert_allclose(
        np.ravel(model.coef_), ridge.coef_, rtol=0, atol=tolerance * largest
    )
    np.testing.assert_allclose(model.intercept_, ridge.intercept_, rtol=tolerance)


def re_number(name: str) -> str:
    """Return the name of a column with its level as we spell it: 1, and not 1.0."""
    return name.replace(".0]", "]")
