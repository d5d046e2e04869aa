"""Data sets with real or generated rows, and how clients come to hold them.

`friedman1` is generated, `digits` comes with scikit-learn; `california_housing` and
`mnist_5k` are read from a folder, where there is one.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedridge_flwr.errors import FedRidgeError

from .problem import Array, ClientRows, Problem

__all__ = ["DATASETS", "DATA_VARIABLE", "DataSet", "beside_the_project"]
__all__ += ["data_folder", "dataset_clients", "is_there", "pairs_of_labels"]
__all__ += ["pool", "signed_targets", "two_labels_each"]

DATA_VARIABLE = "FEDRIDGE_DATA"
LABELS = 10
Parts = list[NDArray[np.intp]]


@dataclass(frozen=True)
class DataSet:
    """What is known of a data set before it is loaded.

    Parameters
    ----------
    columns : int
        Raw columns.
    labels : bool
        Whether the target is one of ten labels and not a number.
    split : str
        How clients differ, in words.
    file : str
        Where it is in the data folder; empty for what needs no folder.
    """

    columns: int
    labels: bool
    split: str
    file: str = ""


_TWO = "two labels each"
DATASETS = {
    "friedman1": DataSet(10, False, "blocks in the order of column 4"),
    "california_housing": DataSet(
        8,
        False,
        "blocks in the order of region and longitude",
        "california_housing/housing.csv",
    ),
    "digits": DataSet(64, True, _TWO),
    "mnist_5k": DataSet(784, True, _TWO, "mnist_5k/mnist_5k.csv.gz"),
}


# ---- where the files are ---------------------------------------------------------


def data_folder(run_config: Mapping[str, Any]) -> str:
    """Return the folder of data sets: run-config, environment, or beside the project.

    Examples
    --------
    >>> data_folder({"data-dir": "/data"})
    '/data'
    """
    given = str(run_config.get("data-dir", "")) or os.environ.get(DATA_VARIABLE, "")
    return given or beside_the_project()


def beside_the_project() -> str:
    """Return the folder beside the project.

    An app that Flower has installed elsewhere has no project around it: whoever starts
    it says where the folder is.
    """
    return str(Path(__file__).resolve().parents[3] / "shared" / "data")


def is_there(name: str, folder: str) -> bool:
    """Return whether a data set can be loaded."""
    file = DATASETS[name].file
    return not file or (Path(folder) / file).is_file()


# ---- clients ---------------------------------------------------------------------


@lru_cache(maxsize=1)
def dataset_clients(problem: Problem, folder: str) -> tuple[ClientRows, ...]:
    """Return the rows of every client, loaded once per process and problem."""
    name = problem.dataset
    if not is_there(name, folder):
        raise FedRidgeError(
            f"{DATASETS[name].file} is not in {folder}: say where it is with the "
            f"run-config data-dir, or leave {name} out of datasets."
        )
    X, y, parts = _LOADERS[name](problem, folder)
    clients = []
    for k, part in enumerate(parts):
        order = np.random.default_rng([problem.seed, 5, k]).permutation(part)
        n = int(problem.test_fraction * len(order))
        test, train = order[:n], order[n:]
        clients.append(ClientRows(X[train], y[train], X[test], y[test]))
    return tuple(clients)


def pool(clients: tuple[ClientRows, ...]) -> ClientRows:
    """Return the rows of all clients together."""
    return ClientRows(
        X=np.concatenate([client.X for client in clients]),
        y=np.concatenate([client.y for client in clients]),
        X_test=np.concatenate([client.X_test for client in clients]),
        y_test=np.concatenate([client.y_test for client in clients]),
    )


def signed_targets(labels: NDArray[np.intp]) -> Array:
    """Return +1 in the column of a row's label and -1 in all others.

    These are the targets of scikit-learn's `RidgeClassifier`; the largest prediction
    names the label.

    Examples
    --------
    >>> signed_targets(np.array([1]))[0, :3]
    array([-1.,  1., -1.])
    """
    return np.where(labels[:, None] == np.arange(LABELS), 1.0, -1.0)


def pairs_of_labels(clients: int) -> list[tuple[int, int]]:
    """Return two different labels for every client, each label about equally often.

    Examples
    --------
    >>> pairs_of_labels(5)
    [(0, 5), (1, 6), (2, 7), (3, 8), (4, 9)]
    >>> pairs_of_labels(12)[-2:]
    [(0, 6), (1, 7)]
    """
    if 2 * clients < LABELS:
        raise FedRidgeError(
            f"{LABELS} labels, two for each client, need at least {LABELS // 2} "
            f"clients, got {clients}."
        )
    # The first ten are five apart, the next ten six, and so on round the circle.
    first, most = LABELS // 2 - 1, LABELS - 1
    shifts = [1 + (first + k // LABELS) % most for k in range(clients)]
    return [(k % LABELS, (k + shift) % LABELS) for k, shift in enumerate(shifts)]


def two_labels_each(labels: NDArray[np.intp], clients: int, seed: int) -> Parts:
    """Return the rows of each client: two labels each, every row once."""
    pairs = pairs_of_labels(clients)
    parts: list[Parts] = [[] for _ in pairs]
    rng = np.random.default_rng([seed, 6])
    for label in range(LABELS):
        holders = [k for k, pair in enumerate(pairs) if label in pair]
        rows = rng.permutation(np.flatnonzero(labels == label))
        for k, share in zip(holders, np.array_split(rows, len(holders)), strict=True):
            parts[k].append(share)
    return [np.concatenate(part) for part in parts]


# ---- loaders ---------------------------------------------------------------------

Loaded = tuple[Array, Array, Parts]


def _friedman1(problem: Problem, _: str) -> Loaded:
    from sklearn.datasets import make_friedman1

    X, y = make_friedman1(
        problem.clients * problem.rows, noise=1.0, random_state=problem.seed
    )
    return X, y, _blocks(np.argsort(X[:, 3], kind="stable"), problem.clients)


def _california_housing(problem: Problem, folder: str) -> Loaded:
    """Read the 20,433 complete rows of eight numeric columns; target in $100,000."""
    file = Path(folder) / DATASETS["california_housing"].file
    with file.open(encoding="utf-8", newline="") as lines:
        _, *rows = csv.reader(lines)
    rows = [row for row in rows if all(row)]
    numbers = np.array([row[:-1] for row in rows], dtype=np.float64)
    X, y = numbers[:, :-1], numbers[:, -1] / 1e5
    order = np.lexsort((X[:, 0], np.array([row[-1] for row in rows])))
    return X, y, _blocks(order, problem.clients)


def _digits(problem: Problem, _: str) -> Loaded:
    from sklearn.datasets import load_digits

    X, labels = load_digits(return_X_y=True)
    return _labelled(X / 16.0, labels, problem)


def _mnist_5k(problem: Problem, folder: str) -> Loaded:
    file = Path(folder) / DATASETS["mnist_5k"].file
    values = np.loadtxt(file, delimiter=",", dtype=np.float64)
    return _labelled(values[:, :-1] / 255.0, values[:, -1].astype(np.intp), problem)


_LOADERS: dict[str, Callable[[Problem, str], Loaded]] = {
    "friedman1": _friedman1,
    "california_housing": _california_housing,
    "digits": _digits,
    "mnist_5k": _mnist_5k,
}


def _labelled(X: Array, labels: NDArray[np.intp], problem: Problem) -> Loaded:
    parts = two_labels_each(labels, problem.clients, problem.seed)
    return X, signed_targets(labels), parts


def _blocks(order: NDArray[np.intp], clients: int) -> Parts:
    return list(np.array_split(order, clients))
