"""FLamby's Fed-Heart-Disease, by its own protocol: `make flamby`.

Four hospitals, 740 patients, columns 10 to 12 left out, dummies for columns 2 and 6,
two thirds of each hospital to train (scikit-learn's split with seed 43, stratified),
and columns scaled by each hospital's own training rows. Accuracies on the test rows are
averaged over hospitals, or over rows. The published ones are those of FLamby (du
Terrail et al., NeurIPS 2022), for logistic regression.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from fedridge_flwr._text import text_table
from fedridge_flwr.flower.local_fit import LocalFit

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data" / "heart_disease"
RESULTS = ROOT / "docs" / "results" / "flamby.json"
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
PUBLISHED = {
    "FedAvg (published)": (0.685, 0.706),
    "best federated strategy (published)": (0.731, 0.741),
    "pooled rows (published)": (0.735, 0.750),
}


def hospitals(folder: Path) -> dict[str, tuple[Any, Any, Any]]:
    """Return features, labels and which rows train, of every hospital."""
    files = [folder / f"processed.{name}.data" for name in HOSPITALS]
    frames = [pd.read_csv(file, header=None, na_values="?") for file in files]
    frames = [frame.drop(columns=[10, 11, 12]).dropna() for frame in frames]
    everybody = pd.concat(frames, keys=HOSPITALS)
    X = pd.get_dummies(everybody.drop(columns=13), columns=[2, 6], drop_first=True)
    return {
        name: _scaled(X.loc[name].to_numpy(float), everybody[13].loc[name] > 0)
        for name in HOSPITALS
    }


def _scaled(X: Any, sick: Any) -> tuple[Any, Any, Any]:
    y = sick.to_numpy().astype(int)
    many = min(np.bincount(y, minlength=2)) > 2
    rows, _ = train_test_split(
        np.arange(len(y)),
        train_size=0.66,
        test_size=0.34,
        random_state=43,
        stratify=y if many else None,
    )
    train = np.isin(np.arange(len(y)), rows)
    scale = X[train].std(axis=0, ddof=1) + 1e-9
    return (X - X[train].mean(axis=0)) / scale, y, train


def accuracy(model: Any, sites: dict[str, tuple[Any, Any, Any]]) -> tuple[float, float]:
    """Return the accuracy on test rows, averaged over hospitals and over rows."""
    right = []
    for X, y, train in sites.values():
        found = np.asarray(model.predict(X[~train])).astype(int)
        right.append(found == y[~train])
    return float(np.mean([r.mean() for r in right])), float(
        np.concatenate(right).mean()
    )


def measure(folder: Path) -> dict[str, Any]:
    """Return the accuracies of one round, and of logistic regression."""
    sites = hospitals(folder)
    rows = {
        name: lambda X=X, y=y, train=train: (X[train], y[train])
        for name, (X, y, train) in sites.items()
    }
    ways: dict[str, dict[str, Any]] = {
        "FedRidge, one round, alpha 1": {"alpha": 1.0, "classes": [0, 1]},
        "FedRidge, one round, alpha chosen by leaving hospitals out": {
            "alphas": "auto",
            "cv": "server",
            "classes": [0, 1],
        },
        "FedRidge, logistic regression, alpha 1": {"alpha": 1.0, "family": "binomial"},
    }
    tested = sum(int((~train).sum()) for _, _, train in sites.values())
    best = PUBLISHED["pooled rows (published)"][1]
    return {
        "tested_rows": tested,
        "standard_error": float(np.sqrt(best * (1 - best) / tested)),
        "found": {
            name: accuracy(LocalFit(**settings).run(rows).model_, sites)
            for name, settings in ways.items()
        },
    }


def flamby_table() -> str:
    """Return what was measured beside what was published."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))
    error = 100 * kept["standard_error"]
    heads = ["Fed-Heart-Disease", "accuracy, mean of hospitals", "mean of test rows"]
    rows = [
        [name, *(f"{value:.3f}" for value in values)]
        for name, values in {**kept["found"], **PUBLISHED}.items()
    ]
    return (
        f"{text_table(heads, rows)}\n\nOne standard error is "
        f"{error:.1f} points on {kept['tested_rows']} test rows, "
        "so most of these differences mean little."
    )


def main() -> None:
    """Measure, and keep the result."""
    if not DATA.exists():
        raise SystemExit("the four hospitals are not in ../shared/data: not measured.")
    RESULTS.write_text(f"{json.dumps(measure(DATA), indent=1)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
