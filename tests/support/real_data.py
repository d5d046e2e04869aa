"""Real data whose rows belong to clients: loaders that return X, y and groups.

Each loader takes the `shared_data` fixture, which skips the test where the folder of
data sets is not beside the checkout.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes

from fedridge_flwr import SufficientStatistics

SHARED_DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]
Folder = Callable[[str], Path]


def diabetes(_: Folder) -> Rows:
    """Return 442 patients, 10 features; 20 clients by rows k::20."""
    X, y = load_diabetes(return_X_y=True)
    return X, y, np.arange(len(y)) % 20


def parkinsons(shared_data: Folder, n_targets: int = 1) -> Rows:
    """Return 5875 recordings of 42 patients: age, sex, test_time, 16 voice measures.

    The columns differ in scale by 1e6 and two pairs are multiples of each other up to
    rounding. Targets: total_UPDRS, and motor_UPDRS as a second one.
    """
    table = pd.read_csv(
        shared_data("parkinsons_telemonitoring") / "parkinsons_updrs.data"
    )
    scores = ["total_UPDRS", "motor_UPDRS"]
    y = table[scores].to_numpy(float)[:, :n_targets]
    X = table.drop(columns=["subject#", *scores]).to_numpy(float)
    return X, y[:, 0] if n_targets == 1 else y, table["subject#"].to_numpy()


def of_full_rank(shared_data: Folder) -> Rows:
    """Return parkinsons without two columns that are three times other ones.

    Jitter:DDP and Shimmer:DDA differ from them only by rounding. With both, statsmodels
    itself is off by 1.5e-6 and co-moments by 1.5e-7 (against 80-bit arithmetic), and
    not by the same on every processor.
    """
    X, y, groups = parkinsons(shared_data)
    return np.delete(X, [7, 13], axis=1), y, groups


def communities(shared_data: Folder) -> Rows:
    """Return 1993 communities of 46 states, 100 features; some states have one row.

    Without the columns that name a community, the 22 police columns that are mostly
    missing, and the one row whose OtherPerCap is missing.
    """
    folder = shared_data("communities_crime")
    names = re.findall(
        r"^@attribute (\S+)", (folder / "communities.names").read_text(), re.MULTILINE
    )
    table = pd.read_csv(
        folder / "communities.data", header=None, names=names, na_values="?"
    )
    groups = table["state"]
    table = table.drop(columns=["state", "county", "community", "communityname"])
    table = table.drop(columns="fold").dropna(axis="columns", thresh=len(table) // 2)
    table = table.dropna()
    y = table.pop("ViolentCrimesPerPop").to_numpy(float)
    return table.to_numpy(float), y, groups[table.index].to_numpy()


def exam(shared_data: Folder) -> Rows:
    """Return 4059 pupils of 65 schools: two scores and six dummy columns.

    schavg and the type of the school are constant inside a client.
    """
    table = pd.read_csv(shared_data("exam_ilea") / "Exam.csv")
    features = pd.get_dummies(
        table[["standLRT", "schavg", "sex", "intake", "vr", "type"]], drop_first=True
    )
    y = table["normexam"].to_numpy(float)
    return features.to_numpy(float), y, table["school"].to_numpy()


def heart(shared_data: Folder) -> Rows:
    """Return 852 patients of 4 hospitals: 7 complete columns; the target is thalach."""
    complete = ["age", "sex", "cp", "trestbps", "restecg", "exang", "oldpeak"]
    columns = ["age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach"]
    columns += ["exang", "oldpeak", "slope", "ca", "thal", "num"]
    folder, tables = shared_data("heart_disease"), []
    for hospital in ("cleveland", "hungarian", "switzerland", "va"):
        path = folder / f"processed.{hospital}.data"
        table = pd.read_csv(path, header=None, names=columns, na_values="?")
        tables.append(table.assign(hospital=hospital))
    table = pd.concat(tables)[[*complete, "thalach", "hospital"]].dropna()
    groups, y = table.pop("hospital").to_numpy(), table.pop("thalach").to_numpy(float)
    return table.to_numpy(float), y, groups


def radon(shared_data: Folder) -> Rows:
    """Return 919 homes in 85 counties, some with one home; uranium is by county."""
    table = pd.read_csv(shared_data("radon_mn") / "radon.csv")
    X = table[["basement", "uranium"]].to_numpy(float)
    return X, table["log.radon"].to_numpy(float), table["county"].to_numpy()


LOADERS = {
    "diabetes": diabetes,
    "parkinsons": parkinsons,
    "communities": communities,
    "exam": exam,
}


def by_client(
    X: np.ndarray, y: np.ndarray, groups: np.ndarray
) -> dict[str, SufficientStatistics]:
    """Return the statistics of every group of rows."""
    return {
        str(group): SufficientStatistics.from_data(
            X[groups == group], y[groups == group]
        )
        for group in np.unique(groups)
    }
