"""The paper's statements, one test each, named after them.

Read as a checklist of the paper's algebra. What it says of privacy (Theorems 6 and 7,
Corollary 3, Algorithm 2) and of projections (Propositions 2 and 3) is measured instead,
by tests/privacy/test_accounting.py and the experiments: docs/explanation/paper.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fakes import InProcessGrid
from generators import paper_clients, pooled
from generators import relative_error as relative
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from fedridge_flwr import (
    FedRidge,
    SufficientStatistics,
    ridge_client_app,
    select_alpha,
    solve,
)
from fedridge_flwr.data.rows import check_rows
from fedridge_flwr.regression.alpha.leave_client_out import held_out_models
from fedridge_flwr.regression.diagnostics import spectrum

SIGMA = 0.01
sigmas = st.floats(1e-6, 1e3)
Clients = list[tuple[np.ndarray, np.ndarray]]


def statistics(clients: Clients) -> list[SufficientStatistics]:
    return [SufficientStatistics.from_data(A, b) for A, b in clients]


def centralized(clients: Clients, sigma: float) -> np.ndarray:
    A, b = pooled(clients)
    return np.linalg.solve(A.T @ A + sigma * np.eye(A.shape[1]), A.T @ b)


def federated(clients: Clients, sigma: float) -> np.ndarray:
    return solve(sum(statistics(clients)), sigma, fit_intercept=False).coef_


@given(sigmas, st.integers(1, 6))
def test_proposition_1_well_posedness(sigma: float, rows: int) -> None:
    """A'A + sigma I is positive definite, also with fewer rows than features."""
    rng = np.random.default_rng(rows)
    stats = SufficientStatistics.from_data(rng.normal(size=(rows, 8)), np.ones(rows))
    values = np.linalg.eigvalsh(stats.gram + sigma * np.eye(8))
    assert values[0] >= sigma * (1 - 1e-6) - 1e-12
    assert np.isfinite(solve(stats, sigma, fit_intercept=False).coef_).all()


def test_definition_1_sufficient_statistics() -> None:
    """G = A'A and h = A'b."""
    ((A, b),) = paper_clients(d=6, n_k=40, K=1, gamma=1, seed=0)
    stats = SufficientStatistics.from_data(A, b)
    np.testing.assert_allclose(stats.gram, A.T @ A, rtol=1e-12)
    np.testing.assert_allclose(stats.moment[:, 0], A.T @ b, rtol=1e-11, atol=1e-11)


def test_theorem_1_additive_decomposition() -> None:
    """G = sum G_k and h = sum h_k."""
    clients = paper_clients(d=6, n_k=10, K=7, gamma=1, seed=1)
    parts, (A, b) = statistics(clients), pooled(clients)
    np.testing.assert_allclose(sum(p.gram for p in parts), A.T @ A, rtol=1e-11)
    np.testing.assert_allclose(sum(parts).gram, A.T @ A, rtol=1e-11, atol=1e-10)
    moment = sum(parts).moment[:, 0]
    np.testing.assert_allclose(moment, A.T @ b, rtol=1e-10, atol=1e-10)


def test_algorithm_1_one_shot_sigma_fusion() -> None:
    """Phases 1 to 3 in Flower give w_sigma, in one message per client and way."""
    clients = paper_clients(d=20, n_k=50, K=20, gamma=0.5, seed=2)

    def load_data(context: Any) -> Any:
        return clients[int(context.node_config["partition-id"])]

    grid = InProcessGrid.of_app(ridge_client_app(load_data), 20)
    strategy = FedRidge(alpha=SIGMA, fit_intercept=False, min_available_nodes=20)
    strategy.start(grid)
    assert relative(strategy.model_.coef_, centralized(clients, SIGMA)) < 1e-12
    assert len(grid.sent) == 20


@pytest.mark.parametrize("K", [1, 2, 20, 100])
@pytest.mark.parametrize("sigma", [1e-8, 1e-2, 1e2])
def test_theorem_2_exact_recovery(K: int, sigma: float) -> None:
    """w_fed = w_central for any partition and any sigma > 0."""
    clients = paper_clients(d=30, n_k=60, K=K, gamma=1, seed=3)
    assert relative(federated(clients, sigma), centralized(clients, sigma)) < 1e-12


@given(sigmas)
def test_theorem_3_guaranteed_invertibility(sigma: float) -> None:
    """G + sigma I is invertible even where G is not."""
    A = np.ones((5, 3))
    stats = SufficientStatistics.from_data(A, np.arange(5.0))
    coef = solve(stats, sigma, fit_intercept=False).coef_
    np.testing.assert_allclose(coef, 10.0 / (15.0 + sigma), rtol=1e-6)


@given(sigmas)
def test_corollary_1_condition_number(sigma: float) -> None:
    """kappa = (l_max + sigma) / (l_min + sigma) <= (l_max + sigma) / sigma."""
    total = sum(statistics(paper_clients(d=8, n_k=20, K=3, gamma=1, seed=4)))
    found = spectrum(total, solve(total, sigma, fit_intercept=False))
    assert found is not None
    matrix = total.gram + sigma * np.eye(8)
    assert found.kappa == pytest.approx(np.linalg.cond(matrix), rel=1e-9)
    assert found.kappa <= found.kappa_bound


@pytest.mark.parametrize(
    ("d", "paper"),
    [(50, 10_600), (100, 41_200), (200, 162_400), (400, 644_800), (1000, 4_012_000)],
)
def test_theorem_4_communication(d: int, paper: int) -> None:
    """Upload d(d+1)/2 + d numbers; ours are d + 3 more, for intercept and R²."""
    stats = SufficientStatistics.from_data(np.eye(2, d), np.ones(2))
    assert 8 * (d * (d + 1) // 2 + d) == paper
    assert stats.to_array().nbytes == paper + 8 * (d + 3)


@pytest.mark.parametrize(
    ("d", "rounds"), [(50, 14), (100, 27), (200, 52), (400, 102), (1000, 252)]
)
def test_corollary_2_efficiency_condition(d: int, rounds: int) -> None:
    """One-Shot sends fewer numbers than FedAvg once R > (d + 5) / 4."""
    ours = d * (d + 1) / 2 + 2 * d
    assert 2 * (rounds - 1) * d <= ours < 2 * rounds * d
    assert rounds - 1 <= (d + 5) / 4 < rounds


def test_definition_2_feature_coverage() -> None:
    """Clients that each see a part of the features cover them all together."""
    rng = np.random.default_rng(5)
    clients = []
    for k in range(4):
        A = np.zeros((30, 8))
        A[:, 2 * k : 2 * k + 2] = rng.normal(size=(30, 2))
        clients.append((A, A.sum(axis=1)))
    parts = statistics(clients)

    def coverage(stats: SufficientStatistics) -> float:
        found = spectrum(stats, solve(stats, 1.0, fit_intercept=False))
        assert found is not None
        return found.coverage

    assert all(coverage(part) == pytest.approx(0.0, abs=1e-12) for part in parts)
    assert coverage(sum(parts)) > 10


@pytest.mark.parametrize("gamma", [0.0, 1.0, 30.0])
def test_theorem_5_heterogeneity_invariance(gamma: float) -> None:
    """Rows dealt evenly or sorted by client give the same solution."""
    clients = paper_clients(d=20, n_k=40, K=10, gamma=gamma, seed=6)
    A, b = pooled(clients)
    shuffled = [(A[k::10], b[k::10]) for k in range(10)]
    assert relative(federated(clients, SIGMA), federated(shuffled, SIGMA)) < 1e-12
    assert relative(federated(clients, SIGMA), centralized(clients, SIGMA)) < 1e-12


@given(st.sets(st.integers(0, 9), min_size=1))
def test_theorem_8_dropout_robustness(participants: set[int]) -> None:
    """Whoever takes part, the answer is exact for the rows of those."""
    clients = paper_clients(d=5, n_k=20, K=10, gamma=1, seed=7)
    there = [clients[k] for k in sorted(participants)]
    assert relative(federated(there, SIGMA), centralized(there, SIGMA)) < 1e-12


def test_proposition_4_gradient_insufficiency() -> None:
    """The best single gradient step, eta h, misses; (G + sigma I)^-1 h does not."""
    clients = paper_clients(d=20, n_k=40, K=5, gamma=1, seed=8)
    A, b = pooled(clients)
    A = A * np.linspace(0.3, 3.0, 20)
    G, h = A.T @ A, A.T @ b
    optimum = np.linalg.solve(G + SIGMA * np.eye(20), h)
    best = (h @ h) / (h @ (G + SIGMA * np.eye(20)) @ h)
    assert relative(best * h, optimum) > 0.1
    parts = [(A[k::5], b[k::5]) for k in range(5)]
    assert relative(federated(parts, SIGMA), optimum) < 1e-12


def test_proposition_5_leave_one_client_out() -> None:
    """w_-k(sigma) from the others' statistics; client k reports one scalar each."""
    clients = paper_clients(d=6, n_k=15, K=5, gamma=1, seed=11)
    parts = {str(k): part for k, part in enumerate(statistics(clients))}
    grid = np.array([1e-4, 0.01, 1.0, 100.0])
    models = held_out_models(parts, grid, fit_intercept=False)
    losses = {}
    for k, (A, b) in enumerate(clients):
        others = clients[:k] + clients[k + 1 :]
        for j, sigma in enumerate(grid):
            found = models[str(k)].coef[j, 0]
            assert relative(found, centralized(others, sigma)) < 1e-12
        losses[str(k)] = models[str(k)].losses_of_rows(check_rows(A, b))
    sums = sum(15 * counted for counted in losses.values())
    chosen = select_alpha(parts, grid, fit_intercept=False)
    assert chosen.alpha == grid[np.argmin(sums)]


def test_shrinkage_is_within_its_bound() -> None:
    """|w_sigma - w*| <= sigma / (l_min + sigma) |w*|."""
    clients = paper_clients(d=10, n_k=20, K=4, gamma=1, seed=9)
    total = sum(statistics(clients))
    for sigma in (1e-3, 1.0, 1e3):
        found = spectrum(total, solve(total, sigma, fit_intercept=False))
        assert found is not None
        assert found.shrinkage is not None
        assert found.shrinkage_bound is not None
        assert found.shrinkage <= found.shrinkage_bound * (1 + 1e-9)
        assert found.vacuous == (found.shrinkage_factor > 0.9)


def test_the_papers_sigma_is_scikit_learns_alpha() -> None:
    """The objective is |Aw - b|² + sigma |w|², not its mean over rows."""
    clients = paper_clients(d=10, n_k=20, K=4, gamma=1, seed=10)
    ridge = Ridge(alpha=3.0, fit_intercept=False).fit(*pooled(clients))
    assert relative(federated(clients, 3.0), ridge.coef_) < 1e-12
