"""The kernel experiment: partitions, methods on features, tables, committed results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import InProcessGrid, node_context
from fedridge_simulations.cells import Cell, Outcome, Store, load_outcomes
from fedridge_simulations.client_app import app as client_app
from fedridge_simulations.cohort import Federation
from fedridge_simulations.datasets import (
    DATA_VARIABLE,
    DATASETS,
    data_folder,
    dataset_clients,
    pairs_of_labels,
    pool,
    signed_targets,
    two_labels_each,
)
from fedridge_simulations.experiments import EXPERIMENTS
from fedridge_simulations.feature_cells import run_feature_cell
from fedridge_simulations.mapped_rows import feature_map_of
from fedridge_simulations.method import CENTRALIZED, ONE_SHOT, SCALED, Method
from fedridge_simulations.output import write_experiment
from fedridge_simulations.problem import Problem
from fedridge_simulations.results import Results
from fedridge_simulations.server_app import choose, facts
from fedridge_simulations.settings import SettingsError
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.linear_model import Ridge, RidgeClassifier

from fedridge_flwr.errors import FedRidgeError

COMMITTED = Path(__file__).resolve().parents[2] / "simulations" / "results" / "kernels"
NOWHERE = "/nowhere"
FRIEDMAN = Problem(clients=4, rows=60, features=10, alpha=0.1, dataset="friedman1")
DIGITS = Problem(clients=10, features=64, alpha=1.0, dataset="digits")


def federation(clients: int, folder: str = NOWHERE) -> Federation:
    """Return clients in this process."""
    contexts = [
        node_context(k, clients, **{"data-dir": folder}) for k in range(clients)
    ]
    handlers = [lambda message, c=c: client_app(message, c) for c in contexts]
    return Federation(InProcessGrid(handlers), clients)


def run(problem: Problem, method: Method, folder: str = NOWHERE) -> Outcome:
    clients = federation(problem.clients, folder)
    return run_feature_cell(Cell(problem, method), clients, folder)


# ---- who holds which rows ------------------------------------------------------------


@given(clients=st.integers(5, 130), seed=st.integers(0, 5))
def test_every_row_has_one_client_and_every_client_two_labels(
    clients: int, seed: int
) -> None:
    labels = np.random.default_rng(seed).permutation(np.arange(1000) % 10)
    parts = two_labels_each(labels, clients, seed)
    assert sorted(np.concatenate(parts)) == list(range(1000))
    assert [len(np.unique(labels[part])) for part in parts] == [2] * clients


@pytest.mark.parametrize("clients", [10, 50, 100])
def test_whole_tens_of_clients_have_equally_many_rows(clients: int) -> None:
    labels = np.arange(5000) % 10
    assert {len(p) for p in two_labels_each(labels, clients, 0)} == {5000 // clients}
    # Not only neighbours on the circle: clients differ in their pairs.
    assert len(set(pairs_of_labels(clients))) == min(clients, 90)


def test_too_few_clients_for_all_labels() -> None:
    with pytest.raises(FedRidgeError, match="need at least 5 clients, got 4"):
        pairs_of_labels(4)
    with pytest.raises(SettingsError, match=r"kernels: .*at least 5 there .*got 3"):
        choose({"experiment": "kernels", "clients": "2, 3"})


def test_blocks_of_sorted_rows_are_unlike_and_complete() -> None:
    clients = dataset_clients(FRIEDMAN, NOWHERE)
    assert [(len(rows.X), len(rows.X_test)) for rows in clients] == [(48, 12)] * 4
    highest = [rows.X[:, 3].max() for rows in clients]
    lowest = [rows.X[:, 3].min() for rows in clients]
    assert all(a < b for a, b in zip(highest, lowest[1:], strict=False))
    both = pool(clients)
    assert len(np.unique(np.concatenate([both.X, both.X_test]), axis=0)) == 240


def test_digits_are_all_there_once() -> None:
    both = pool(dataset_clients(DIGITS, NOWHERE))
    X, labels = load_digits(return_X_y=True)
    found = np.concatenate([both.y, both.y_test]).argmax(axis=1)
    assert np.bincount(found).tolist() == np.bincount(labels).tolist()
    total = np.concatenate([both.X, both.X_test]).sum(axis=0)
    np.testing.assert_allclose(total, X.sum(axis=0) / 16, rtol=1e-12)


def test_signed_targets_are_those_of_scikit_learn() -> None:
    X, labels = load_digits(return_X_y=True)
    ours = Ridge(alpha=3.0).fit(X, signed_targets(labels))
    theirs = RidgeClassifier(alpha=3.0).fit(X, labels)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-9, atol=1e-12)
    assert np.array_equal(ours.predict(X).argmax(axis=1), theirs.predict(X))


# ---- where the files are -------------------------------------------------------------


def test_the_folder_is_given_or_in_the_environment_or_beside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    assert Path(data_folder({})).parts[-2:] == ("shared", "data")
    monkeypatch.setenv(DATA_VARIABLE, "/from/environment")
    assert data_folder({"data-dir": ""}) == "/from/environment"
    assert data_folder({"data-dir": "/given"}) == "/given"


def test_data_sets_that_are_not_there_are_left_out_and_the_table_says_so() -> None:
    config = {"experiment": "kernels", "data-dir": NOWHERE}
    ((experiment, settings, cells),) = choose(config)
    assert settings.datasets == ("friedman1", "digits")
    assert {cell.problem.dataset for cell in cells} == {"friedman1", "digits"}
    text = experiment.tables(Results(settings, Store(None)))
    assert "`mnist_5k`: left out, no `mnist_5k/mnist_5k.csv.gz` in the data" in text
    assert "`california_housing`: left out" in text
    with pytest.raises(SettingsError, match=r"nothing is in /nowhere.*data-dir"):
        choose({**config, "datasets": "mnist_5k"})
    with pytest.raises(FedRidgeError, match="leave mnist_5k out of datasets"):
        dataset_clients(replace(DIGITS, dataset="mnist_5k"), NOWHERE)
    with pytest.raises(SettingsError, match=r"friedman1, .*mnist_5k.*got 'iris'"):
        choose({**config, "datasets": "iris"})


# ---- methods on features, on clients in this process ---------------------------------


def test_a_map_is_drawn_with_the_seed_of_the_problem() -> None:
    text = "standardize | fourier 9 gamma=scale"
    one, other = (feature_map_of(text, seed) for seed in (1, 2))
    assert one is not None
    assert one != other
    assert one.needs_data
    assert feature_map_of("", 1) is None
    assert feature_map_of("polynomial 2", 1) == feature_map_of("polynomial 2", 2)


@pytest.mark.parametrize(
    ("features", "rounds"),
    [
        ("", 1),
        ("polynomial 2", 1),
        ("tangent 4", 1),
        ("fourier 30 gamma=0.3", 1),
        ("standardize", 2),
        ("standardize | fourier 30 gamma=scale", 2),
    ],
)
def test_one_shot_predicts_what_scikit_learn_does_on_pooled_features(
    features: str, rounds: int
) -> None:
    outcome = run(FRIEDMAN, replace(ONE_SHOT, features=features))
    oracle = run(FRIEDMAN, replace(CENTRALIZED, features=features))
    assert outcome.distance < 1e-12
    assert outcome.test_mse == pytest.approx(oracle.test_mse, rel=1e-10)
    assert outcome.facts["rounds"] == rounds
    assert outcome.facts["answered"] == 4
    assert outcome.bytes_up > 0


@pytest.mark.parametrize("features", ["", "fourier 50 gamma=0.1"])
def test_one_shot_gives_the_labels_of_the_pooled_ridge_classifier(
    features: str,
) -> None:
    outcome = run(DIGITS, replace(ONE_SHOT, features=features))
    oracle = run(DIGITS, replace(CENTRALIZED, features=features))
    assert outcome.distance < 1e-11
    assert outcome.facts["other_labels"] == 0
    assert outcome.facts["accuracy"] == oracle.facts["accuracy"] > 0.8


@pytest.mark.parametrize("features", ["", "fourier 20 gamma=0.3"])
@pytest.mark.parametrize("problem", [FRIEDMAN, DIGITS], ids=["numbers", "labels"])
def test_fedavg_does_what_the_formula_says(problem: Problem, features: str) -> None:
    method = Method("FedAvg", rounds=3, local_epochs=2, penalty=SCALED)
    outcome = run(problem, replace(method, features=features))
    clients, step = dataset_clients(problem, NOWHERE), outcome.facts["learning_rate"]
    feature_map = feature_map_of(features, problem.seed)
    phi: Callable[[Any], Any] = feature_map.transform if feature_map else np.asarray
    rows = [(phi(c.X), c.y.reshape(len(c.y), -1)) for c in clients]
    n = sum(len(X) for X, _ in rows)
    coef = np.zeros((rows[0][0].shape[1], rows[0][1].shape[1]))
    intercept = np.zeros(coef.shape[1])
    for _ in range(3):
        models = []
        for X, Y in rows:
            w, b = coef, intercept
            for _ in range(2):
                residual = X @ w + b - Y
                slope = X.T @ residual / len(X) + problem.alpha / n * w
                w, b = w - step * slope, b - step * residual.mean(axis=0)
            models.append((len(X) / n, w, b))
        coef = sum(share * w for share, w, _ in models)
        intercept = sum(share * b for share, _, b in models)
    test = pool(clients)
    truth = test.y_test.reshape(len(test.y_test), -1)
    error = np.mean((phi(test.X_test) @ coef + intercept - truth) ** 2)
    assert outcome.test_mse == pytest.approx(error, rel=1e-10)
    assert len(outcome.mse_by_round) == 3


def test_the_experiment_at_toy_size(tmp_path: Path) -> None:
    ((experiment, settings, cells),) = choose({"experiment": "kernels", "size": "toy"})
    store = Store(None)
    for cell in cells:
        clients = federation(cell.problem.clients)
        store.add(cell, run_feature_cell(cell, clients, NOWHERE))
    results, about = Results(settings, store), facts(experiment, settings, "toy")
    text = write_experiment(experiment, results, about, tmp_path)
    assert "not run" not in text
    assert "random_features 40/60" in text
    assert "gamma 0.5" not in text, "settings of the paper's rows say nothing here"
    (digits,) = (line for line in text.splitlines() if "| digits   | linear" in line)
    columns = [column.strip() for column in digits.split("|")[1:-1]]
    assert columns[2:5] == ["64", "10", "1"]
    assert columns[7] == "0", "no other labels"
    assert float(columns[6]) < 1e-12
    assert (tmp_path / "regression.png").stat().st_size > 1000
    assert (tmp_path / "labels.png").stat().st_size > 1000
    assert experiment.claims(results) == []
    assert "scikit-learn on the pooled features" in experiment.verdict(results)


# ---- real data -----------------------------------------------------------------------


def test_mnist_in_one_round_has_the_labels_of_pooled_scikit_learn(
    shared_data: Callable[[str], Path],
) -> None:
    """Clients of 40 rows and 784 columns, two digits each."""
    folder = str(shared_data("mnist_5k").parent)
    problem = Problem(clients=100, features=784, alpha=1.0, dataset="mnist_5k")
    clients = dataset_clients(problem, folder)
    assert {(len(c.X), len(np.unique(c.y.argmax(1)))) for c in clients} == {(40, 2)}
    accuracy = []
    for features in ("", "fourier 1000 gamma=0.01"):
        outcome = run(problem, replace(ONE_SHOT, features=features), folder)
        oracle = run(problem, replace(CENTRALIZED, features=features), folder)
        assert outcome.facts["other_labels"] == 0
        assert outcome.facts["accuracy"] == oracle.facts["accuracy"]
        assert outcome.distance < 1e-10
        accuracy.append(outcome.facts["accuracy"])
    assert accuracy[1] > accuracy[0] + 0.05


def test_california_housing_in_two_rounds_is_the_pooled_model(
    shared_data: Callable[[str], Path],
) -> None:
    folder = str(shared_data("california_housing").parent)
    problem = Problem(clients=20, features=8, alpha=0.1, dataset="california_housing")
    errors = []
    for features in ("standardize", "standardize | fourier 300 gamma=scale"):
        outcome = run(problem, replace(ONE_SHOT, features=features), folder)
        assert outcome.facts["rounds"] == 2
        assert outcome.distance < 1e-9
        errors.append(outcome.test_mse)
    assert errors[1] < 0.8 * errors[0]


# ---- what is committed ---------------------------------------------------------------


def committed(dataset: str, name: str) -> dict[str, Outcome]:
    """Return the first trial's outcomes of a method, by features."""
    return {
        cell.method.features.split("gamma")[0].strip(): outcome
        for cell, outcome in load_outcomes(COMMITTED / "results.json")
        if (cell.problem.dataset, cell.problem.seed) == (dataset, 0)
        and cell.method.name == name
    }


def score(outcome: Outcome) -> float:
    facts = outcome.facts
    return float(facts.get("accuracy", 1 - outcome.test_mse / facts["test_variance"]))


@pytest.mark.parametrize("dataset", list(DATASETS))
def test_committed_fourier_features_beat_the_linear_model(dataset: str) -> None:
    by_features = committed(dataset, "One-Shot")
    (straight,) = (o for f, o in by_features.items() if f in ("", "standardize"))
    (curved,) = (o for f, o in by_features.items() if "fourier" in f)
    assert score(curved) > score(straight) + 0.03
    assert curved.facts["rounds"] == (2 if dataset == "california_housing" else 1)
    for outcome in committed(dataset, "FedAvg").values():
        assert len(outcome.mse_by_round) == 100
    (fedavg,) = (o for f, o in committed(dataset, "FedAvg").items() if "fourier" in f)
    assert score(fedavg) < score(curved)


def test_committed_models_are_those_of_pooled_scikit_learn() -> None:
    cells = load_outcomes(COMMITTED / "results.json")
    found = [o for cell, o in cells if cell.method.name == "One-Shot"]
    assert len(found) == 3 * 12
    assert max(outcome.distance for outcome in found) < 1e-9
    assert all(outcome.facts.get("other_labels", 0) == 0 for outcome in found)
    for cell, outcome in cells:
        if cell.method.name == "One-Shot":
            assert outcome.facts["answered"] == cell.problem.clients


def test_committed_results_say_what_the_report_says() -> None:
    assert EXPERIMENTS["kernels"].sizes["paper"].datasets == tuple(DATASETS)
    report = (COMMITTED.parent / "REPORT.md").read_text(encoding="utf-8")
    assert "[kernels](kernels/table.md)" in report
    assert "all labels are the same" in report
