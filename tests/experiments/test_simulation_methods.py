"""What the experiments compare: problems and methods."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fakes import InProcessGrid, node_context
from fedridge_simulations.cells import Cell
from fedridge_simulations.client_app import app as client_app
from fedridge_simulations.cohort import Federation
from fedridge_simulations.method import (
    CENTRALIZED,
    ONE_SHOT,
    SCALED,
    UNSCALED,
    Method,
    stock_strategies,
)
from fedridge_simulations.problem import Problem, centralized, client_rows, pooled_rows
from fedridge_simulations.run import run_cell
from fedridge_simulations.tuning import STEP_SIZES, AveragedDescent
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score

from fedridge_flwr import GaussianProjection
from fedridge_flwr.errors import NotEnoughClientsError

SMALL = Problem(clients=4, rows=60, features=6)
LOCAL = {"learning_rate": 0.05, "local_epochs": 2}


def federation(clients: int = 4) -> Federation:
    """Return clients in this process; each keeps its context, as SuperNodes do."""
    contexts = [node_context(k, clients) for k in range(clients)]
    handlers = [lambda message, c=c: client_app(message, c) for c in contexts]
    return Federation(InProcessGrid(handlers), clients)


# ---- problems ------------------------------------------------------------------------


def test_test_rows_are_a_fifth_of_each_client_and_never_trained_on() -> None:
    rows = client_rows(SMALL, 2)
    assert (len(rows.X), len(rows.X_test)) == (48, 12)
    both = np.concatenate([rows.X, rows.X_test])
    assert len(np.unique(both, axis=0)) == 60


def test_missing_clients_are_fixed_by_the_seed_and_one_always_answers() -> None:
    problem = replace(SMALL, clients=20, missing=0.5)
    assert len(problem.participants) == 10
    assert problem.participants == replace(problem).participants
    assert problem.participants != replace(problem, seed=1).participants
    assert len(replace(SMALL, missing=0.99).participants) == 1


def test_pooled_rows_train_on_participants_and_test_on_everybody() -> None:
    problem = replace(SMALL, missing=0.5)
    rows = pooled_rows(problem)
    assert len(rows.X) == problem.training_rows == 2 * 48
    assert len(rows.X_test) == 4 * 12


def test_features_seen_leaves_the_others_zero_and_covers_all_of_them() -> None:
    problem = replace(SMALL, features_seen=3)
    seen = [np.flatnonzero(client_rows(problem, k).X.any(axis=0)) for k in range(4)]
    assert [len(features) for features in seen] == [3, 3, 3, 3]
    assert set(np.concatenate(seen)) == set(range(6))


def test_the_spectrum_decays_and_keeps_the_mean_variance() -> None:
    problem = Problem(clients=1, rows=20_000, features=5, gamma=0.0, spectrum=2.0)
    variances = client_rows(problem, 0).X.var(axis=0)
    assert variances.mean() == pytest.approx(1.0, rel=0.2)
    assert variances[0] / variances[4] == pytest.approx(25.0, rel=0.6)


def test_rotation_keeps_lengths_targets_and_the_test_error() -> None:
    plain = replace(SMALL, spectrum=2.0)
    turned = replace(plain, rotated=True)
    a, b = pooled_rows(plain), pooled_rows(turned)
    assert not np.allclose(a.X, b.X)
    np.testing.assert_allclose(a.X @ a.X.T, b.X @ b.X.T, atol=1e-12)
    np.testing.assert_array_equal(a.y, b.y)
    # Ridge does not care which way the axes point.
    errors = [
        rows.test_error(centralized(problem))
        for rows, problem in ((a, plain), (b, turned))
    ]
    assert errors[0] == pytest.approx(errors[1], rel=1e-10)
    # One matrix for all clients and trials, and part of the key.
    other = [replace(problem, seed=1) for problem in (plain, turned)]
    Q = np.linalg.lstsq(a.X, b.X)[0]
    np.testing.assert_allclose(
        client_rows(other[0], 2).X @ Q, client_rows(other[1], 2).X, atol=1e-10
    )
    assert "rotated" not in plain.to_json()
    assert Problem(**turned.to_json()) == turned


def test_a_diverged_model_has_an_infinite_error() -> None:
    assert pooled_rows(SMALL).test_error(np.full(6, np.inf)) == np.inf


# ---- methods on clients in this process ----------------------------------------------


def by_hand(problem: Problem, method: Method) -> np.ndarray:
    """Return what FedAvg and FedProx are meant to compute, in a plain loop."""
    clients = [client_rows(problem, k) for k in range(problem.clients)]
    n = problem.training_rows
    penalty = problem.alpha / n if method.penalty == SCALED else problem.alpha
    coef = np.zeros(problem.features)
    for _ in range(method.rounds):
        models = []
        for rows in clients:
            local = coef.copy()
            for _ in range(method.local_epochs):
                slope = rows.X.T @ (rows.X @ local - rows.y) / len(rows.X)
                slope += penalty * local + method.proximal_mu * (local - coef)
                local -= method.learning_rate * slope
            models.append(local)
        coef = np.mean(models, axis=0)
    return coef


@pytest.mark.parametrize("missing", [0.0, 0.5])
def test_one_shot_is_the_oracle_of_those_who_answer(missing: float) -> None:
    cell = Cell(replace(SMALL, missing=missing), ONE_SHOT)
    outcome = run_cell(cell, federation())
    oracle = run_cell(replace(cell, method=CENTRALIZED), federation())
    assert outcome.distance < 1e-13
    assert outcome.test_mse == pytest.approx(oracle.test_mse, rel=1e-12)
    assert outcome.facts["answered"] == len(cell.problem.participants)


@pytest.mark.parametrize("penalty", [SCALED, UNSCALED])
@pytest.mark.parametrize(
    ("name", "mu"), [("FedAvg", 0.0), ("FedProx", 0.3)], ids=["FedAvg", "FedProx"]
)
def test_flowers_strategies_do_what_the_formula_says(
    name: str, mu: float, penalty: str
) -> None:
    method = Method(name, rounds=4, penalty=penalty, proximal_mu=mu, **LOCAL)
    problem = replace(SMALL, alpha=5.0)
    outcome = run_cell(Cell(problem, method), federation())
    coef = by_hand(problem, method)
    error = pooled_rows(problem).test_error(coef)
    assert outcome.test_mse == pytest.approx(error, rel=1e-12)
    assert len(outcome.mse_by_round) == 4
    if name == "FedAvg":
        computed = AveragedDescent(problem, method).model(LOCAL["learning_rate"])
        np.testing.assert_allclose(computed, coef, rtol=1e-11)


def test_both_readings_of_the_penalty_have_their_own_limit() -> None:
    """With σ/n FedAvg ends at the oracle, with σ unscaled at ridge with n σ."""
    problem = replace(SMALL, gamma=0.0, alpha=0.5, rows=200)
    rows = pooled_rows(problem)
    step = {"learning_rate": 0.3, "local_epochs": 1}
    for penalty, alpha in ((SCALED, 0.5), (UNSCALED, 0.5 * len(rows.X))):
        method = Method("FedAvg", rounds=200, penalty=penalty, **step)
        coef = AveragedDescent(problem, method).model(0.3)
        ridge = Ridge(alpha=alpha, fit_intercept=False).fit(rows.X, rows.y)
        np.testing.assert_allclose(coef, ridge.coef_, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", stock_strategies())
def test_every_stock_strategy_runs_unmodified(name: str) -> None:
    clients = 8  # Bulyan and Krum want enough to leave some out
    problem = replace(SMALL, clients=clients)
    method = Method(name, rounds=2, penalty=SCALED, **LOCAL)
    outcome = run_cell(Cell(problem, method), federation(clients))
    assert len(outcome.mse_by_round) == 2
    assert outcome.bytes_up > 0
    assert outcome.bytes_down > 0


def test_minibatches_and_sampling_are_repeatable() -> None:
    method = Method("FedAvg", rounds=2, penalty=SCALED, batch_size=8, **LOCAL)
    method = replace(method, sampled=2)
    first = run_cell(Cell(SMALL, method), federation())
    second = run_cell(Cell(SMALL, method), federation())
    full = run_cell(Cell(SMALL, replace(method, batch_size=0)), federation())
    assert first.mse_by_round == second.mse_by_round
    assert first.mse_by_round != full.mse_by_round
    everybody = run_cell(Cell(SMALL, replace(method, sampled=0)), federation())
    assert first.bytes_up == pytest.approx(everybody.bytes_up / 2, rel=0.02)


def test_a_tuned_step_is_the_best_of_its_grid() -> None:
    problem = replace(SMALL, gamma=10.0)
    method = Method("FedAvg", rounds=5, penalty=SCALED, tuned=True, local_epochs=3)
    outcome = run_cell(Cell(problem, method), federation())
    rows = pooled_rows(problem)
    descent = AveragedDescent(problem, method)
    errors = [rows.test_error(descent.model(step)) for step in STEP_SIZES]
    assert outcome.test_mse <= min(errors) * (1 + 1e-9)
    step = outcome.facts["learning_rate"]
    assert outcome.test_mse == pytest.approx(
        rows.test_error(descent.model(step)), rel=1e-9
    )
    for other in (0.9 * step, 0.97 * step, 1.03 * step, 1.1 * step):
        assert rows.test_error(descent.model(other)) >= 0.98 * outcome.test_mse


def test_conjugate_gradients_end_at_the_oracle_and_one_step_does_not() -> None:
    conjugate = Cell(SMALL, Method("Conjugate gradients", rounds=9))
    step = Cell(SMALL, Method("Best gradient step", rounds=2))
    assert run_cell(conjugate, federation()).distance < 1e-12
    assert run_cell(step, federation()).distance > 1e-3


def test_a_projection_is_ridge_on_projected_rows() -> None:
    problem = replace(SMALL, seed=3)
    outcome = run_cell(
        Cell(problem, Method("Projected One-Shot", projection=3)), federation()
    )
    projection, rows = GaussianProjection(3, seed=3), pooled_rows(problem)
    ridge = Ridge(alpha=problem.alpha, fit_intercept=False)
    ridge.fit(projection.transform(rows.X), rows.y)
    coef = projection.original_coef(ridge.coef_, 6)
    error = rows.test_error(coef)
    assert outcome.test_mse == pytest.approx(error, rel=1e-10)
    oracle = centralized(problem)
    distance = np.linalg.norm(coef - oracle) / np.linalg.norm(oracle)
    assert outcome.distance == pytest.approx(distance, rel=1e-10)
    assert outcome.facts["distortion"] == list(projection.distortion(rows.X_test))
    explained = [r2_score(rows.y_test, rows.X_test @ w) for w in (coef, oracle)]
    assert outcome.facts["explained_lost"] == pytest.approx(
        1 - explained[0] / explained[1], rel=1e-9
    )


@pytest.mark.parametrize("spectrum", [0.0, 2.0])
@pytest.mark.parametrize("mode", ["refine", "cg"])
def test_the_modes_of_several_rounds_end_at_the_oracle(
    mode: str, spectrum: float
) -> None:
    problem = replace(SMALL, rows=8, spectrum=spectrum, rotated=True)
    method = Method(mode, rounds=50, tol=1e-12)
    outcome = run_cell(Cell(problem, method), federation())
    assert outcome.distance < 1e-10
    facts = outcome.facts
    assert facts["converged"]
    assert facts["rounds"] == len(facts["by_round"]) <= 15
    ups = [up for up, *_ in facts["by_round"]]
    assert ups == sorted(set(ups))
    assert facts["by_round"][-1] == [
        outcome.bytes_up,
        outcome.bytes_down,
        outcome.test_mse,
        outcome.distance,
    ]
    # Nothing is solved in the round that sets it up.
    assert facts["by_round"][0][3] == 1.0


def test_a_mode_that_is_stopped_says_so() -> None:
    method = Method("cg", rounds=3, tol=1e-12)
    outcome = run_cell(Cell(SMALL, method), federation())
    assert not outcome.facts["converged"]
    assert outcome.facts["rounds"] == 3
    assert outcome.distance > 1e-6


def test_too_few_clients_is_an_error_that_says_how_to_get_more() -> None:
    with pytest.raises(RuntimeError, match="a client failed"):
        Federation(InProcessGrid([lambda message: 1 / 0]), 1)  # type: ignore[arg-type]


def test_nodes_that_never_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedridge_simulations.cohort._CONNECT_SECONDS", 0.01)
    with pytest.raises(NotEnoughClientsError, match="num-supernodes=3"):
        Federation(InProcessGrid([]), 3)
