"""Measure false alarms and detection of the screening, for the page on poisoning.

``python tools/poisoning.py`` measures (a minute, needs the shared data sets) and writes
docs/results/poisoning.json; with ``--render`` it only puts the table into the page.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from generators import paper_clients, split_rows

from fedridge_flwr import SufficientStatistics
from fedridge_flwr._text import text_table
from fedridge_flwr.federation.screening.outliers import Screening, screen
from fedridge_flwr.federation.screening.profiles import Profile
from fedridge_flwr.linalg.blas import one_blas_thread

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "explanation" / "poisoning.md"
RESULTS = ROOT / "docs" / "results" / "poisoning.json"
FALSE_ALARMS = ("<!-- false alarms: written by tools/poisoning.py -->", "<!-- end -->")
DETECTION = ("<!-- detection: written by tools/poisoning.py -->", "<!-- end -->")
EVERYDAY = ("<!-- everyday: written by tools/poisoning.py -->", "<!-- end -->")
COSTS = ("<!-- costs: written by tools/poisoning.py -->", "<!-- end -->")
SEEDS = 40
K, D, N = 10, 10, 200

Rows = tuple[np.ndarray, np.ndarray]
Parts = Mapping[str, SufficientStatistics]
Lie = Callable[[np.ndarray, np.ndarray], Rows]


def screened(parts: Parts, alpha: float = 1.0) -> Screening:
    """Screen clients as a one-shot fit does."""
    profiles = {client: Profile.of(part) for client, part in parts.items()}
    return screen({c: p for c, p in profiles.items() if p}, parts, alpha)


def statistics(clients: list[Rows]) -> dict[str, SufficientStatistics]:
    return {
        str(k): SufficientStatistics.from_data(*rows) for k, rows in enumerate(clients)
    }


# ---- honest clients ---------------------------------------------------------------


def honest_worlds() -> Iterator[tuple[str, Iterator[Parts]]]:
    """Yield what kind of honest clients, and many draws of them."""
    for gamma in (0.0, 1.0, 5.0, 20.0):
        yield (
            f"the paper's generator, gamma {gamma:g}",
            (
                statistics(paper_clients(d, n, clients, gamma, seed))
                for seed in range(SEEDS)
                for d, n, clients in ((10, 200, 10), (50, 30, 40))
            ),
        )
    for tau in (0.3, 1.0, 3.0):
        words = f"each site its own model, {tau:g} residual sd apart"
        yield words, (statistics(own_models(tau, seed)) for seed in range(SEEDS))
    yield (
        "one site with 500 times the rows",
        (statistics(own_models(0.3, seed, largest=500)) for seed in range(SEEDS)),
    )
    yield from real_worlds()
    for words, draws in unseen_worlds():
        yield f"{words} *", draws


def real_worlds() -> Iterator[tuple[str, Iterator[Parts]]]:
    from real_data import LOADERS, SHARED_DATA, by_client
    from sklearn.datasets import load_breast_cancer, load_digits, load_wine

    for name, loader in LOADERS.items():
        X, y, groups = loader(lambda folder: SHARED_DATA / folder)
        yield f"{name}, its own groups", iter([by_client(X, y, groups)])
        yield f"{name}, sorted by y", (by_client(X, y, slices(y, k)) for k in (10, 40))
        yield (
            f"{name}, Dirichlet of y (0.1, 0.5)",
            (
                by_client(X, y, dirichlet(y, 10, concentration, seed))
                for concentration in (0.1, 0.5)
                for seed in range(10)
            ),
        )

    for words, load in (
        ("breast cancer", load_breast_cancer),
        ("wine", load_wine),
        ("digits", load_digits),
    ):
        yield f"{words}, Dirichlet of labels", by_labels(*load(return_X_y=True))


def unseen_worlds() -> Iterator[tuple[str, Iterator[Parts]]]:
    """Yield data that played no part in setting the thresholds."""
    from real_data import SHARED_DATA, by_client
    from sklearn.datasets import load_iris, load_linnerud

    heart = pd.concat(
        [
            pd.read_csv(file, header=None, na_values="?").assign(site=file.stem)
            for file in sorted((SHARED_DATA / "heart_disease").glob("processed.*"))
        ]
    )
    heart = heart[[0, 1, 2, 3, 4, 6, 7, 8, 9, "site"]].dropna()
    X, y = heart[[0, 1, 2, 3, 4, 6, 8, 9]].to_numpy(float), heart[7].to_numpy(float)
    sites = iter([by_client(X, y, heart["site"].to_numpy())])
    yield "heart disease, 4 hospitals", sites

    trees = pd.read_csv(SHARED_DATA / "covtype" / "covtype.csv.xz")
    y = trees.pop("Elevation").to_numpy(float)
    X = trees.drop(columns=[c for c in trees if "Cover" in c]).to_numpy(float)
    areas = X[:, [k for k, c in enumerate(trees.columns) if "Wilderness" in c]]
    draws = (by_client(X, y, each) for each in (areas.argmax(axis=1), slices(y, 40)))
    yield "covtype, 4 areas and sorted by y", draws

    soil = pd.read_csv(SHARED_DATA / "nirsoil" / "nirsoil.csv.gz")
    soil = soil[soil["Ciso"].notna()]
    y, X = soil["Ciso"].to_numpy(float), soil.filter(regex="^nm").to_numpy(float)
    yield "nirsoil, 140 features, sorted and Dirichlet", splits(X[:, ::5], y)
    flowers = load_iris(return_X_y=True)
    yield "iris, Dirichlet of labels", by_labels(*flowers)
    X, y = load_linnerud(return_X_y=True)
    yield "linnerud, 20 rows, 3 targets", iter([by_client(X, y, np.arange(20) % 5)])


def splits(X: np.ndarray, y: np.ndarray) -> Iterator[Parts]:
    from real_data import by_client

    yield by_client(X, y, np.arange(len(y)) % 10)
    yield by_client(X, y, slices(y, 10))
    yield by_client(X, y, slices(X[:, 0], 20))
    for seed in range(10):
        yield by_client(X, y, dirichlet(y, 10, 0.1, seed))


def by_labels(X: np.ndarray, y: np.ndarray) -> Iterator[Parts]:
    """Yield clients that mostly have one label each, and hardly any other."""
    from real_data import by_client

    for clients in (10, 30):
        for concentration in (0.03, 0.1, 0.5):
            for seed in range(10):
                yield by_client(X, y, dirichlet(y, clients, concentration, seed, y))


def own_models(tau: float, seed: int, largest: int = 1) -> list[Rows]:
    """Return sites with coefficients and intercepts of their own."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=D)
    clients = []
    for k in range(K):
        n = 20 * largest if k == 0 and largest > 1 else (20 if largest > 1 else N)
        X = rng.normal(size=(n, D)) + rng.normal(size=D)
        own = shared + tau * rng.normal(size=D) / np.sqrt(D)
        clients.append((X, X @ own + tau * rng.normal() + rng.normal(size=n)))
    return clients


def slices(y: np.ndarray, clients: int) -> np.ndarray:
    """Return groups of rows with the smallest y, the next, and so on."""
    groups = np.empty(len(y), dtype=int)
    parts = split_rows(len(y), clients, np.random.default_rng(0), "sorted", y)
    for k, rows in enumerate(parts):
        groups[rows] = k
    return groups


def dirichlet(
    y: np.ndarray,
    clients: int,
    beta: float,
    seed: int,
    labels: np.ndarray | None = None,
) -> np.ndarray:
    """Return groups in which labels, or tenths of y, are shared out by a Dirichlet."""
    rng = np.random.default_rng(seed)
    cuts = np.quantile(y, np.linspace(0.0, 1.0, 11)[1:-1])
    tenths = np.digitize(y, cuts) if labels is None else labels
    groups = np.empty(len(y), dtype=int)
    for tenth in np.unique(tenths):
        rows = np.flatnonzero(tenths == tenth)
        shares = rng.dirichlet(np.full(clients, beta))
        groups[rows] = rng.choice(clients, size=len(rows), p=shares)
    return groups


# ---- real rows, and everyday mistakes ---------------------------------------------

FACTORS = (0.01, 0.1, 1 / 2.54, 2.54, 7.5, 18.0, 1000.0)
Split = tuple[str, np.ndarray, np.ndarray, np.ndarray]


def real_splits() -> Iterator[Split]:
    """Yield in what way rows are divided, X, y and groups, for eight data sets."""
    for X, y, groups in real_rows():
        rng = np.random.default_rng(0)
        if groups is not None:
            yield "own groups", X, y, groups
        for clients in (5, 10, 30):
            for seed in range(3):
                yield "at random", X, y, rng.integers(0, clients, len(y))
                yield "Dirichlet of y (0.3)", X, y, dirichlet(y, clients, 0.3, seed)
            yield "sorted by y", X, y, slices(y, clients)
            for j in range(min(X.shape[1], 8)):
                yield "sorted by a feature", X, y, slices(X[:, j], clients)
        for size in (5, 10, 20):
            for _ in range(3):
                some = rng.permutation(len(y))[: 20 * size]
                yield (
                    f"sites of {size} rows",
                    X[some],
                    y[some],
                    np.arange(20 * size) % 20,
                )


def real_rows() -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
    """Yield features and target in their own units, and groups if rows have them."""
    from real_data import SHARED_DATA, communities, exam, heart, parkinsons, radon
    from sklearn.datasets import load_diabetes

    yield *load_diabetes(return_X_y=True, scaled=False), None
    for load in (parkinsons, communities, exam, heart, radon):
        X, y, groups = load(lambda folder: SHARED_DATA / folder)
        yield X, y, groups
    homes = pd.read_csv(SHARED_DATA / "california_housing" / "housing.csv").dropna()
    y = homes.pop("median_house_value").to_numpy(float)
    places = homes.pop("ocean_proximity").to_numpy()
    yield homes.to_numpy(float), y, places
    columns = ["PM2.5", "PM10", "SO2", "NO2", "CO", "O3", "TEMP", "PRES", "DEWP"]
    files = sorted((SHARED_DATA / "beijing_air").glob("PRSA*"))
    air = pd.concat([pd.read_csv(file).iloc[::10] for file in files])
    air = air[[*columns, "WSPM", "station"]].dropna()
    stations = air.pop("station").to_numpy()
    y = air.pop("PM2.5").to_numpy(float)
    yield air.to_numpy(float), y, stations


def everyday(seed: int = 0) -> list[dict[str, Any]]:
    """Return how many honest clients get a remark, and how many mistakes are found."""
    from real_data import by_client

    rng = np.random.default_rng(seed)
    rows: dict[str, Counter[str]] = {}
    for words, X, y, groups in real_splits():
        parts = by_client(X, y, groups)
        if len(parts) < 4:
            continue
        found, row = screened(parts), rows.setdefault(words, Counter())
        row["fits"] += 1
        row["clients"] += len(parts)
        row["suspects"] += len(found.suspects)
        row["remarks"] += len(found.remarks)
        # Few data sets have groups of their own.
        for _ in range(10 if words == "own groups" else 1):
            row.update(mistaken(parts, X, y, groups, rng))
    return [{"split": words, **row} for words, row in rows.items()]


def mistaken(
    parts: Parts, X: np.ndarray, y: np.ndarray, groups: np.ndarray, rng: Any
) -> Counter[str]:
    """Let one site use another unit, then swap two columns, and count who is told."""
    told: Counter[str] = Counter()
    liar = str(rng.choice([c for c, part in parts.items() if part.count >= 5]))
    mine = np.array([str(group) for group in groups]) == liar
    columns = np.flatnonzero([len(np.unique(x)) > 5 for x in X.T])
    for kind in ("units", "swapped"):
        wrong = X[mine].copy()
        if kind == "units":
            wrong[:, rng.choice(columns)] *= rng.choice(FACTORS)
        elif columns.size > 1:
            pair = rng.choice(columns, 2, replace=False)
            wrong[:, pair] = wrong[:, pair[::-1]]
        else:
            continue
        part = SufficientStatistics.from_data(wrong, y[mine])
        found = screened({**parts, liar: part})
        told[kind] += 1
        told[f"{kind} found"] += liar in found.suspects or liar in found.remarks
    return told


# ---- liars ------------------------------------------------------------------------


def shift_column(size: float) -> Lie:
    return lambda X, y: (X + size * np.eye(D)[0], y)


def scale_column(size: float) -> Lie:
    return lambda X, y: (np.where(np.arange(D) == 0, size, 1.0) * X, y)


def shift_labels(size: float) -> Lie:
    return lambda X, y: (X, y + size)


def scale_labels(size: float) -> Lie:
    return lambda X, y: (X, size * y)


def random_labels(size: float) -> Lie:
    return lambda X, y: (X, np.random.default_rng(0).permutation(y))


ATTACKS: list[tuple[str, Callable[[float], Lie], tuple[float, ...], int]] = [
    ("one column shifted, in sd", shift_column, (1, 10, 100, 1000), 1),
    ("one column scaled", scale_column, (3, 30, 1000), 1),
    ("labels shifted, in residual sd", shift_labels, (0.5, 1, 3, 10), 1),
    ("the same lie at 2 of 10", shift_labels, (0.5, 1, 3, 10), 2),
    ("labels scaled", scale_labels, (2, 10, 1e6), 1),
    ("the same lie at 2 of 10", scale_labels, (2, 10, 1e6), 2),
    ("labels flipped", scale_labels, (-1,), 1),
    ("the same lie at 2 of 10", scale_labels, (-1,), 2),
    ("the same lie at 4 of 10", scale_labels, (-1,), 4),
    ("labels permuted", random_labels, (1,), 1),
]


def attacked(lie: Lie, liars: int, seed: int, gamma: float, snr: float) -> Parts:
    """Return ten sites of the paper's kind, residual sd 1, of which some lie."""
    clients = []
    for k, (A, b) in enumerate(paper_clients(D, N, K, gamma, seed)):
        # The paper's noise is 0.1 beside a unit vector of coefficients.
        noise = np.random.default_rng([seed, k]).normal(size=N)
        rows = A, snr * b + np.sqrt(1.0 - (0.1 * snr) ** 2) * noise
        clients.append(lie(*rows) if k < liars else rows)
    return statistics(clients)


# ---- measuring --------------------------------------------------------------------


def measure() -> dict[str, Any]:
    honest = []
    for words, draws in honest_worlds():
        seen = [(len(parts), screened(parts)) for parts in draws]
        row = {"clients": words, "fits": len(seen), "screened": sum(n for n, _ in seen)}
        row["false_alarms"] = sum(len(found.suspects) for _, found in seen)
        honest.append(row | {"remarks": sum(len(found.remarks) for _, found in seen)})
        print(honest[-1], flush=True)
    attacks = []
    for words, make, sizes, liars in ATTACKS:
        for size in sizes:
            row = {"attack": words, "size": size, "liars": liars}
            for name, snr in (("weak", 1.0), ("strong", 3.0)):
                row |= {name: _rates(make(size), liars, snr)}
            attacks.append(row)
            print(row, flush=True)
    found = {"seeds": SEEDS, "honest": honest, "attacks": attacks}
    return found | {"everyday": everyday(), "costs": costs()}


def costs(clients: int = 200, d: int = 100) -> dict[str, Any]:
    """Return seconds of processor time, which others on the machine do not change."""
    parts = statistics(paper_clients(d, 150, clients, 1.0, 0))
    profiles = {client: Profile.of(part) for client, part in parts.items()}
    found = {"clients": clients, "features": d}
    with one_blas_thread():
        for name, given in (("scale", "not now"), ("both", parts)):
            spent = []
            for _ in range(7):
                began = time.process_time()
                screen(profiles, given)
                spent.append(time.process_time() - began)
            found[name] = round(min(spent), 4)
    return found


def _rates(lie: Lie, liars: int, snr: float) -> dict[str, float]:
    caught = wrong = seen = looked = 0
    guilty = {str(k) for k in range(liars)}
    for seed in range(SEEDS):
        found = screened(attacked(lie, liars, seed, 1.0, snr))
        suspects = set(found.suspects)
        either = suspects | set(found.remarks)
        caught += len(suspects & guilty)
        wrong += len(suspects - guilty)
        seen += len(either & guilty)
        looked += len(either - guilty)
    return {
        "detected": caught / (liars * SEEDS),
        "false_alarms": wrong / ((K - liars) * SEEDS),
        "told": seen / (liars * SEEDS),
        "false_told": looked / ((K - liars) * SEEDS),
    }


# ---- the page ---------------------------------------------------------------------


def false_alarm_table(results: dict[str, Any]) -> str:
    keys = ("fits", "screened", "false_alarms", "remarks")
    rows = [
        [each["clients"], *(str(each[key]) for key in keys)]
        for each in results["honest"]
    ]
    totals = [sum(each[key] for each in results["honest"]) for key in keys]
    rows.append(["all", *map(str, totals)])
    return text_table(
        ["honest clients", "fits", "clients", "suspects", "remarks"], rows
    )


def detection_table(results: dict[str, Any]) -> str:
    heads = ["lie", "size"]
    for r2 in ("0.5", "0.9"):
        heads += [f"found, R² {r2}", "or remark", "honest", "or remark"]
    rows = []
    for each in results["attacks"]:
        cells = [each["attack"], f"{each['size']:g}"]
        for name in ("weak", "strong"):
            keys = ("detected", "told", "false_alarms", "false_told")
            cells += [f"{each[name][key]:.0%}" for key in keys]
        rows.append(cells)
    return text_table(heads, rows)


def everyday_table(results: dict[str, Any]) -> str:
    heads = ["rows divided", "fits", "clients", "suspects", "remarks"]
    heads += ["wrong unit found", "swapped columns found"]
    rows = []
    for each in results["everyday"]:
        shares = [f"{each[f'{k} found'] / each[k]:.0%}" for k in ("units", "swapped")]
        numbers = [str(each[key]) for key in ("fits", "clients", "suspects", "remarks")]
        rows.append([each["split"], *numbers, *shares])
    return text_table(heads, rows)


def costs_in_words(results: dict[str, Any]) -> str:
    found = results["costs"]
    return (
        f"{found['clients']} clients of {found['features']} features: "
        f"{1000 * found['scale']:.0f} ms of one processor to compare scales, "
        f"{1000 * found['both']:.0f} ms with leverage."
    )


def render() -> None:
    from documents import put

    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    text = PAGE.read_text(encoding="utf-8")
    text = put(text, FALSE_ALARMS, f"\n{false_alarm_table(results)}\n")
    text = put(text, DETECTION, f"\n{detection_table(results)}\n")
    text = put(text, EVERYDAY, f"\n{everyday_table(results)}\n")
    text = put(text, COSTS, f"\n{costs_in_words(results)}\n")
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if "--render" not in sys.argv:
        RESULTS.parent.mkdir(exist_ok=True)
        text = json.dumps(measure(), indent=1)
        RESULTS.write_text(text + "\n", encoding="utf-8")
    render()
