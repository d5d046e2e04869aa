"""Experiment 5: the paper's privacy, the private methods, and what was measured."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedridge_simulations import client_app as client_module
from fedridge_simulations.cells import Cell, Outcome, Store, load_outcomes
from fedridge_simulations.clipped_descent import (
    clipped_sum,
    private_step,
    step_noise_sd,
)
from fedridge_simulations.experiments.privacy import EXPERIMENT
from fedridge_simulations.honest import (
    CORRELATED,
    REFINEMENTS,
    SECURE_TRIALS,
    SMALL_FEATURES,
    clipped_fedavg,
    correlated_methods,
    honest_cells,
    methods,
    once_methods,
    refinement,
    release,
    small_release,
)
from fedridge_simulations.honest_tables import level
from fedridge_simulations.method import CLIPPED_FEDAVG, ONE_SHOT, Method
from fedridge_simulations.paper_privacy import (
    algorithm_2,
    classical_multiplier,
    exact_cost,
    one_shot_cost,
    theorem_cost,
)
from fedridge_simulations.private_tuning import (
    CLIPS,
    STEPS,
    TUNING_SEEDS,
    Choice,
    tail_rounds,
    tuned_choice,
)
from fedridge_simulations.problem import Problem, client_rows, pooled_rows
from fedridge_simulations.report import load
from fedridge_simulations.results import Results, Spread
from fedridge_simulations.run import run_cell
from fedridge_simulations.settings import override
from test_simulation_methods import federation

from fedridge_flwr.errors import PrivacyError
from fedridge_flwr.privacy import DifferentialPrivacy, compose, epsilon_of

COMMITTED = Path(__file__).resolve().parents[2] / "simulations" / "results"
EPSILONS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
TOY = EXPERIMENT.sizes["toy"]
SMALL = Problem(clients=4, rows=60, features=6)


# ---- the paper's privacy -------------------------------------------------------------


def test_algorithm_2_adds_symmetric_noise_of_the_papers_size() -> None:
    X, y = np.zeros((3, 200)), np.zeros(3)
    gram, moment = algorithm_2(X, y, 2.0, 1e-5, np.random.default_rng(0))
    tau = classical_multiplier(2.0, 1e-5)
    np.testing.assert_array_equal(gram, gram.T)
    upper = gram[np.triu_indices(200, 1)]
    assert upper.std() == pytest.approx(tau / np.sqrt(2), rel=0.02)
    assert np.diagonal(gram).std() == pytest.approx(tau, rel=0.2)
    assert moment.std() == pytest.approx(tau, rel=0.2)


@pytest.mark.parametrize(
    ("claimed", "one_shot", "theorem", "exact"),
    [
        (0.1, 0.089, 0.49, 0.06),
        (0.5, 0.514, 2.66, 0.35),
        (1, 1.10, 5.85, 0.75),
        (2, 2.37, 14.0, 1.6),
        (5, 6.82, 56.4, 4.5),
        (10, 16.1, 220.0, 10.4),
    ],
)
def test_what_the_papers_methods_cost_for_unit_rows(
    claimed: float, one_shot: float, theorem: float, exact: float
) -> None:
    root = math.sqrt(2)
    assert one_shot_cost(claimed, 1e-5, root) == pytest.approx(one_shot, rel=6e-3)
    assert theorem_cost(claimed, 1e-5, 100) == pytest.approx(theorem, rel=5e-3)
    assert exact_cost(claimed, 1e-5, 100) == pytest.approx(exact, rel=0.05)
    # R rounds of the paper's Gaussian noise for ε/√R cost what one release at ε does.
    single = epsilon_of(1 / classical_multiplier(claimed, 1e-5), 1e-5)
    assert exact_cost(claimed, 1e-5, 100) == pytest.approx(single, rel=1e-9)


# ---- DP-FedAvg, done right -----------------------------------------------------------


def test_no_record_moves_the_sum_by_more_than_the_clip() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 3)) * 10, rng.normal(size=50)
    coefs, clips = rng.normal(size=(3, 4)), np.array([0.1, 1.0, 10.0, 1e9])
    whole = clipped_sum(X, y, coefs, clips)
    for k in range(len(X)):
        kept = np.arange(len(X)) != k
        change = whole - clipped_sum(X[kept], y[kept], coefs, clips)
        assert (np.linalg.norm(change, axis=0) <= clips * (1 + 1e-9)).all()
    np.testing.assert_allclose(whole[:, 3], X.T @ (X @ coefs[:, 3] - y))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_all_rounds_together_have_exactly_this_epsilon(epsilon: float) -> None:
    clip, rounds = 0.7, 100
    mu = clip / step_noise_sd(epsilon, 1e-5, clip, rounds)
    assert epsilon_of(compose([mu] * rounds), 1e-5) == pytest.approx(epsilon, rel=1e-8)


def test_a_step_has_the_noise_it_was_asked_for() -> None:
    rng, d = np.random.default_rng(1), 4000
    settings = {"step": 0.5, "clip": 1.0, "noise_sd": 8.0, "rows": 40, "rng": rng}
    moved = private_step(np.zeros((3, d)), np.ones(3), np.zeros(d), **settings)
    assert moved.std() == pytest.approx(0.5 * 8.0 / 40, rel=0.05)


def test_the_noise_of_a_client_is_never_repeated() -> None:
    """Neither from round to round nor in a second run of the same cell."""
    method = replace(clipped_fedavg(TOY, 1.0), clip=1.0, learning_rate=0.1)
    rows = client_rows(SMALL, 0)
    step = client_module._private_training
    first, second = (step(Cell(SMALL, method), rows, np.zeros(6)) for _ in range(2))
    assert (first != second).all()


@pytest.mark.parametrize("tail", [False, True])
def test_flowers_fedavg_runs_it_and_the_server_averages_the_tail(
    tail: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Almost without noise, it is gradient descent on all rows."""
    choice = Choice(clip=1e3, step=0.3, tail=tail, error=0.0)
    monkeypatch.setattr(
        "fedridge_simulations.run.tuned_choice", lambda problem, method: choice
    )
    method = replace(clipped_fedavg(TOY, 1e14, draws=1), rounds=6)
    outcome = run_cell(Cell(SMALL, method), federation())
    rows, coef, models = pooled_rows(SMALL), np.zeros(6), []
    for _ in range(6):
        coef = coef - 0.3 * rows.X.T @ (rows.X @ coef - rows.y) / len(rows.X)
        models.append(coef)
    if tail:
        coef = np.mean(models[3:], axis=0)
    assert outcome.test_mse == pytest.approx(rows.test_error(coef), rel=1e-3)
    assert len(outcome.mse_by_round) == 6
    assert outcome.facts["tail"] is tail
    assert outcome.facts["clip"] == 1e3
    assert outcome.facts["null_mse"] > outcome.facts["noiseless_mse"] > 0


def test_tuning_is_on_other_trials_and_finds_the_best_of_its_grid() -> None:
    assert not set(TUNING_SEEDS) & set(range(1000))
    method = replace(clipped_fedavg(TOY, 5.0), rounds=20)
    choice = tuned_choice(SMALL, method)
    assert choice == tuned_choice(replace(SMALL, seed=7), method)
    assert any(choice.clip == pytest.approx(c * math.sqrt(6), rel=1e-4) for c in CLIPS)
    assert choice.step in STEPS
    null = np.mean([_null(replace(SMALL, seed=seed)) for seed in TUNING_SEEDS])
    assert choice.error < 0.5 * null
    strict = tuned_choice(SMALL, replace(method, epsilon=0.01))
    assert choice.error < strict.error < 2 * null


def _null(problem: Problem) -> float:
    return float(np.square(pooled_rows(problem).y_test).mean())


def test_the_twin_that_tunes_does_what_the_clients_do() -> None:
    """Same error on average, over the tuning trials themselves."""
    method = replace(clipped_fedavg(TOY, 20.0, draws=1), rounds=8)
    choice = tuned_choice(SMALL, method)
    clients = federation()
    errors, drawn = (
        [
            run_cell(Cell(replace(SMALL, seed=seed), each), clients).test_mse
            for seed in TUNING_SEEDS
        ]
        for each in (method, replace(method, draws=20))
    )
    assert np.mean(errors) == pytest.approx(choice.error, rel=0.25)
    assert np.mean(drawn) == pytest.approx(choice.error, rel=0.25)


@pytest.mark.parametrize("name", ["DP-FedAvg", "refinement"])
def test_a_cell_with_draws_keeps_them_and_is_their_mean(name: str) -> None:
    method = clipped_fedavg(TOY, 5.0)
    if name == "refinement":
        method = replace(refinement(TOY, 5.0, 20), rounds=3, draws=2)
    outcome = run_cell(Cell(SMALL, method), federation())
    draws = outcome.facts["draws"]
    assert len(set(draws)) == method.draws > 1
    assert outcome.test_mse == pytest.approx(np.mean(draws), rel=1e-12)


def test_noise_of_a_trusted_server_is_that_of_one_client() -> None:
    local, once = (
        tuned_choice(SMALL, replace(clipped_fedavg(TOY, 5.0, trust), rounds=20))
        for trust in ("local", "server")
    )
    assert once.error < local.error


def test_the_tail_is_the_last_half() -> None:
    assert list(tail_rounds(100)) == list(range(51, 101))
    assert list(tail_rounds(3)) == [2, 3]


# ---- private One-Shot in the experiment ----------------------------------------------


@pytest.mark.parametrize("trust", ["local", "server"])
@pytest.mark.parametrize("estimator", ["noise_aware", "ridge_floor", "plain"])
def test_private_one_shot_has_the_noise_of_its_mechanism(
    estimator: str, trust: str
) -> None:
    method = release(TOY, 5.0, estimator, trust)
    outcome = run_cell(Cell(SMALL, method), federation())
    privacy = DifferentialPrivacy(
        5.0, 1e-5, x_norm_bound=method.x_norm_bound, y_bound=method.y_bound
    )
    sd = privacy.deviation("gram") * method.x_norm_bound**2
    if trust == "local":
        sd *= math.sqrt(SMALL.clients)
    # 21 numbers: a chi-square within its 1e-6 quantiles.
    assert 0.3 < outcome.facts["gram_noise_sd"] / sd < 1.9
    assert outcome.facts["answered"] == 4
    assert math.isfinite(outcome.test_mse)


def test_with_a_large_epsilon_it_is_the_model_of_the_clipped_rows() -> None:
    method = replace(release(TOY, 1e14), x_norm_bound=10.0, y_bound=10.0)
    outcome = run_cell(Cell(SMALL, method), federation())
    assert outcome.test_mse == pytest.approx(outcome.facts["noiseless_mse"], rel=0.02)


@pytest.mark.parametrize("rounds", REFINEMENTS)
def test_refinement_runs_in_the_experiment(rounds: int) -> None:
    try:
        DifferentialPrivacy(1.0, 1e-5, x_norm_bound=1.0, y_bound=1.0, rounds=rounds)
    except NotImplementedError:
        pytest.skip("refinement is not in this version")
    outcome = run_cell(Cell(SMALL, refinement(TOY, 1e3, rounds)), federation())
    assert outcome.test_mse < outcome.facts["null_mse"]


def test_a_new_cell_is_a_new_fit_for_the_clients() -> None:
    """Within a run clients refuse exact answers after a private one."""
    clients = federation()
    # So large an epsilon that the coefficients are not shrunk to nothing.
    private = Cell(SMALL, release(TOY, 1e4))
    first, second = (run_cell(private, clients).test_mse for _ in range(2))
    assert first != second
    assert run_cell(Cell(SMALL, ONE_SHOT), clients).distance < 1e-13


def test_without_a_new_cell_they_remember(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "forget_releases", lambda context: None)
    clients = federation()
    run_cell(Cell(SMALL, release(TOY, 1.0)), clients)
    with pytest.raises(Exception, match=r"exact|private"):
        run_cell(Cell(SMALL, ONE_SHOT), clients)


def test_bounds_are_checked_by_the_mechanism() -> None:
    with pytest.raises(PrivacyError):
        run_cell(Cell(SMALL, replace(release(TOY, 1.0), y_bound=-1.0)), federation())


# ---- cells ---------------------------------------------------------------------------


def test_cells_from_before_private_methods_keep_their_keys() -> None:
    """A key is what JSON made of the settings when there were fewer of them."""
    before = (
        *("name", "rounds", "learning_rate", "local_epochs", "batch_size"),
        *("proximal_mu", "penalty", "tuned", "sampled", "epsilon", "delta"),
        "projection",
    )
    for file in sorted(COMMITTED.glob("*/results.json")):
        entries = json.loads(file.read_text(encoding="utf-8"))["cells"]
        for entry, (cell, _) in zip(entries, load_outcomes(file), strict=True):
            if cell.method.private or cell.method.tol or cell.method.features:
                continue
            assert set(entry["method"]) == set(before)
            method = dict(entry["method"])
            if not (method["epsilon"] or method["tuned"]):
                method["rounds"] = 0
            assert cell.key() == json.dumps([entry["problem"], method], sort_keys=True)


def test_private_settings_make_another_cell_and_survive_the_file() -> None:
    method = release(TOY, 1.0)
    assert Method(**json.loads(json.dumps(method.to_json()))) == method
    others = [
        replace(method, trust="server"),
        replace(method, estimator="plain"),
        replace(method, y_bound=2.0),
        refinement(TOY, 1.0, 3),
        refinement(TOY, 1.0, 20),
    ]
    assert len({Cell(SMALL, m).key() for m in (method, *others)}) == 6


def test_the_full_experiment_is_what_was_asked_for() -> None:
    settings = EXPERIMENT.sizes["paper"]
    cells = honest_cells(settings)
    large = [cell for cell in cells if cell.problem.features == 100]
    among = [*methods(settings, 1.0), *correlated_methods(settings, 1.0)]
    assert len(large) == (10 * len(among) + SECURE_TRIALS) * len(EPSILONS)
    assert settings.epsilon == EPSILONS
    assert {cell.problem.seed for cell in cells} == set(range(200, 210))
    for cell in large:
        known = {"seed": 0, "spectrum": 0.0, "rotated": False}
        assert replace(cell.problem, **known) == Problem()
        assert cell.method.delta == 1e-5
        if cell.method.name != CLIPPED_FEDAVG:
            assert cell.method.x_norm_bound == pytest.approx(1.1 * 10)
            assert cell.method.y_bound == 3.0
        else:
            assert cell.method.rounds == 100
    small = [cell for cell in cells if cell.problem.features != 100]
    assert {(c.problem.features, c.method.y_bound) for c in small} == {
        (d, 2.0) for d in SMALL_FEATURES
    }
    assert len(small) == 60


def test_fewer_trials_are_fewer_trials_of_private_methods_too() -> None:
    paper = EXPERIMENT.sizes["paper"]
    assert override(paper, {"trials": 2}).private_trials == 2
    assert override(paper, {"trials": 20}).private_trials == 10
    assert override(paper, {"private-trials": 3}).private_trials == 3


# ---- verdicts ------------------------------------------------------------------------


def measured(errors: dict[str, float], noise_ratio: float = math.sqrt(20)) -> Results:
    """Return results in which methods have the errors given by name."""
    settings = replace(EXPERIMENT.sizes["paper"], private_trials=2)
    store = Store(None)
    for cell in EXPERIMENT.cells(settings):
        method = cell.method
        sd = noise_ratio if method.trust == "local" else 1.0
        facts = {"gram_noise_sd": sd, "null_mse": 1.0, "noiseless_mse": 0.01}
        error = errors.get(method.name, 0.01) * (1 + 0.01 * cell.problem.seed)
        store.add(cell, Outcome(error, 0.1, 1.0, facts=facts))
    return Results(settings, store)


def verdicts(results: Results) -> dict[str, bool]:
    return {claim.what: claim.holds for claim in EXPERIMENT.claims(results)}


def test_the_noise_corollary_is_decided_by_the_errors() -> None:
    what = "ε 1: noise corollary (ε ≥ 1)"
    assert not verdicts(measured({"Private One-Shot": 0.5}))[what]
    assert verdicts(measured({CLIPPED_FEDAVG: 0.5}))[what]
    assert "worse at every ε" in EXPERIMENT.verdict(measured({"Private One-Shot": 0.5}))


def test_root_k_is_decided_by_the_noise() -> None:
    what = "noise on the sum alone, not of every client"
    assert verdicts(measured({}))[what]
    assert not verdicts(measured({}, noise_ratio=20.0))[what]


def test_no_composition_penalty_is_not_an_advantage() -> None:
    (claim,) = (c for c in EXPERIMENT.claims(measured({})) if "Advantage" in c.what)
    assert not claim.holds
    assert "0.49, 2.66, 5.85, 14, 56.4, 220" in claim.measured


# ---- what is committed ---------------------------------------------------------------


@pytest.fixture(scope="module")
def committed() -> Results:
    (found,) = (each for each in load(COMMITTED) if each.experiment.name == "privacy")
    if not found.results.settings.private_trials:
        pytest.skip("the committed results have no private methods yet")
    return found.results


def _mse(results: Results, method: Method, **axis: Any) -> Spread:
    found = results.mse(method, **axis)
    assert found.trials >= 10
    return found


def test_committed_noise_aware_one_shot_is_as_good_as_it_was(
    committed: Results,
) -> None:
    settings = committed.settings
    errors = {e: _mse(committed, release(settings, e)).mean for e in EPSILONS}
    assert errors[10.0] <= 0.06
    assert errors[1.0] <= 0.6
    for epsilon, error in errors.items():
        null = level(committed, "null_mse", release(settings, epsilon)).mean
        assert error <= 1.05 * null, epsilon


def _compared(
    results: Results, epsilon: float, trust: str = "local", **axis: Any
) -> tuple[Spread, Spread]:
    """Return the errors of refinement and of DP-FedAvg, of at least 100 draws."""
    settings = results.settings
    refined = refinement(settings, epsilon, 20, trust)
    fedavg = clipped_fedavg(settings, epsilon, trust)
    drawn = [len(o.facts["draws"]) for o in results.outcomes(fedavg, **axis)]
    assert sum(drawn) >= 100
    return _mse(results, refined, **axis), _mse(results, fedavg, **axis)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_committed_refinement_beside_dp_fedavg(
    committed: Results, epsilon: float
) -> None:
    refined, fedavg = _compared(committed, epsilon)
    if epsilon == 0.1:  # about 0.81 is the limit of any local method
        assert refined.mean <= 1.05 * fedavg.mean
    elif epsilon < 5:
        assert refined.mean < fedavg.mean
    else:
        assert refined.mean <= fedavg.mean + fedavg.error


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 5.0, 10.0])
def test_committed_refinement_on_correlated_features(
    committed: Results, epsilon: float
) -> None:
    refined, fedavg = _compared(committed, epsilon, **CORRELATED)
    assert refined.mean < fedavg.mean


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_committed_refinement_with_noise_once(
    committed: Results, epsilon: float
) -> None:
    refined, fedavg = _compared(committed, epsilon, "server")
    assert refined.mean <= fedavg.mean + fedavg.error


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_committed_refinement_by_secure_sums(
    committed: Results, epsilon: float
) -> None:
    """On the same trials: below or level with DP-FedAvg, by which noise is added once.

    Level is within a standard error of the differences, trial by trial.
    """
    secure, _, fedavg = once_methods(committed.settings, epsilon)
    found = committed.by_trial(secure)
    assert set(found) >= set(range(SECURE_TRIALS))
    others = committed.by_trial(fedavg)
    above = [found[t].test_mse - others[t].test_mse for t in range(SECURE_TRIALS)]
    assert np.mean(above) <= np.std(above, ddof=1) / math.sqrt(SECURE_TRIALS)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(
    ("trust", "axis"),
    [("local", {}), ("local", CORRELATED), ("server", {}), ("secagg", {})],
)
def test_no_committed_run_of_refinement_is_far_from_the_others(
    committed: Results, epsilon: float, trust: str, axis: dict[str, Any]
) -> None:
    method = refinement(committed.settings, epsilon, 20, trust)
    errors = [
        error
        for outcome in committed.outcomes(method, **axis)
        for error in outcome.facts.get("draws", [outcome.test_mse])
    ]
    assert max(errors) <= 3 * np.median(errors)


@pytest.mark.parametrize(("features", "limit"), [(5, 0.016), (10, 0.03), (20, 0.07)])
def test_committed_one_shot_with_few_features(
    committed: Results, features: int, limit: float
) -> None:
    method = small_release(committed.settings, features)
    assert _mse(committed, method, features=features).mean <= limit


@pytest.mark.parametrize(("epsilon", "limit"), [(1.0, 0.10), (2.0, 0.04)])
def test_committed_one_shot_in_a_secure_sum(
    committed: Results, epsilon: float, limit: float
) -> None:
    settings = committed.settings
    found = _mse(committed, release(settings, epsilon, trust="secagg"))
    assert found.mean <= limit
    noise, once = (
        level(committed, "gram_noise_sd", release(settings, epsilon, trust=trust)).mean
        for trust in ("secagg", "server")
    )
    assert noise == pytest.approx(once, rel=0.05)


def test_committed_secure_sum_with_ten_features(committed: Results) -> None:
    method = small_release(committed.settings, 10, "secagg")
    assert _mse(committed, method, features=10).mean <= 0.012


def test_committed_noise_on_the_sum_is_root_k_smaller(committed: Results) -> None:
    settings = committed.settings
    for epsilon in EPSILONS:
        local, server = (
            level(committed, "gram_noise_sd", release(settings, epsilon, trust=trust))
            for trust in ("local", "server")
        )
        assert local.mean / server.mean == pytest.approx(math.sqrt(20), rel=0.05)
