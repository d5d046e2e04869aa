"""One-shot ridge and FedAvg over the same sites: run, seconds, table."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedridge_flwr import RidgeModel
from fedridge_flwr._text import text_table
from fedridge_flwr.app.descent import curvature
from fedridge_flwr.app.machine import versions

from .federation import federation

__all__ = ["ALPHA", "Demo", "demo", "demo_table", "pooled_ridge", "write_sites"]

APPS = Path(__file__).resolve().parent.parent
ALPHA = 1.0
_PACKAGES = ("flwr", "fedridge-flwr", "numpy", "scipy", "scikit-learn")


@dataclass(frozen=True)
class Method:
    """What one method took, from its first request to the model and in all."""

    name: str
    rounds: int
    distance: float
    round_seconds: float
    run_seconds: float


@dataclass(frozen=True)
class Demo:
    """Both methods in one deployment, and what a reader has to know beside."""

    methods: list[Method]
    sites: int
    rows: int
    features: int
    versions: dict[str, str]

    @property
    def times_faster(self) -> float:
        """How many times as long FedAvg took, from ``flwr run`` to its end."""
        ours, other = self.methods
        return other.run_seconds / ours.run_seconds

    def save(self, path: Path) -> None:
        """Write everything as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Demo:
        """Read what `save` wrote."""
        content = json.loads(path.read_text(encoding="utf-8"))
        methods = [Method(**method) for method in content.pop("methods")]
        return cls(methods=methods, **content)


def demo(
    n_sites: int, rounds: int, output: Path, tell: Callable[[str], object] = print
) -> Demo:
    """Start a federation with TLS and authentication, and fit in it twice."""
    with federation() as running:
        tell(f"SuperLink with TLS on 127.0.0.1:{running.port}")
        data = write_sites(running.folder / "data", n_sites)
        for file in data:
            running.add_site(file.stem, file)
            tell(f"registered and started {file.stem}")
        running.wait_for()
        tell(f"{n_sites} SuperNodes are online; one-shot ridge")
        X, _ = _pooled(data)
        coef, intercept = pooled_ridge(data)
        told = {"min-sites": n_sites, "output-dir": str(output), "alpha": ALPHA}
        seconds = running.run(APPS / "sites", told).seconds
        model = RidgeModel.load(output / "model.json")
        report = json.loads((output / "report.json").read_text(encoding="utf-8"))
        ours = Method(
            "One-Shot (FedRidge)",
            1,
            _distance(model.coef_, model.intercept_, coef, intercept),
            sum(report["seconds"].values()),
            seconds,
        )
        tell(f"{seconds:.1f} s; FedAvg, {rounds} rounds")
        told |= {
            "num-rounds": rounds,
            "rows": len(X),
            "features": X.shape[1],
            "learning-rate": 1.0 / (curvature(X) + ALPHA / len(X)),
        }
        seconds = running.run(APPS / "fedavg", told).seconds
        tell(f"{seconds:.1f} s")
        found = json.loads((output / "fedavg.json").read_text(encoding="utf-8"))
        other = Method(
            "FedAvg",
            rounds,
            _distance(found["coef"], found["intercept"][0], coef, intercept),
            found["seconds"],
            seconds,
        )
        rows, features = X.shape
        return Demo([ours, other], n_sites, rows, features, versions(_PACKAGES))


def write_sites(folder: Path, n_sites: int) -> list[Path]:
    """Write the diabetes rows as one CSV file per site, in units of deviations.

    Sites differ as hospitals do: rows are sorted by age, and every site has more
    of them than the one before.
    """
    import pandas as pd
    from sklearn.datasets import load_diabetes

    frame = load_diabetes(as_frame=True).frame.sort_values("age", kind="stable")
    y = frame.pop("target")
    frame = (frame - frame.mean()) / frame.std(ddof=0)
    frame["y"] = y
    folder.mkdir(parents=True)
    shares = np.cumsum(np.arange(2, n_sites + 2, dtype=float))
    ends = np.round(shares / shares[-1] * len(frame)).astype(int)
    files = []
    for k, rows in enumerate(np.split(np.arange(len(frame)), ends[:-1])):
        part: pd.DataFrame = frame.iloc[rows]
        files.append(folder / f"site-{k}.csv")
        part.to_csv(files[-1], index=False)
    return files


def pooled_ridge(files: list[Path], alpha: float = ALPHA) -> tuple[Any, float]:
    """Return scikit-learn's answer on all rows, as nobody has them outside a demo."""
    from sklearn.linear_model import Ridge

    ridge = Ridge(alpha=alpha).fit(*_pooled(files))
    return ridge.coef_, float(ridge.intercept_)


def _pooled(files: list[Path]) -> tuple[Any, Any]:
    import pandas as pd

    frame = pd.concat([pd.read_csv(file) for file in files])
    y = frame.pop("y")
    return frame.to_numpy(), y.to_numpy()


def _distance(coef: Any, intercept: Any, pooled: Any, pooled_intercept: float) -> float:
    found = np.append(coef, intercept)
    expected = np.append(pooled, pooled_intercept)
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def demo_table(found: Demo) -> str:
    """Return both methods as a table, and the settings below it."""
    table = text_table(
        ["method", "rounds", "distance to pooled", "seconds of rounds", "`flwr run`"],
        [
            [
                method.name,
                str(method.rounds),
                f"{method.distance:.1e}",
                f"{method.round_seconds:.1f}",
                f"{method.run_seconds:.1f} s",
            ]
            for method in found.methods
        ],
    )
    versions_told = ", ".join(f"{k} {v}" for k, v in found.versions.items())
    return (
        f"{table}\n\n"
        f"diabetes sorted by age, {found.sites} sites of different size, {found.rows} "
        f"rows, {found.features} features, alpha {ALPHA:g}; TLS and SuperNode "
        f"authentication, all on one machine: {found.times_faster:.1f} times faster "
        f"from `flwr run` to its end.\n{versions_told}."
    )
