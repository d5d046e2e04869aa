"""Conjugate gradients: the steps, and the loop that drives them with products."""

from __future__ import annotations

import numpy as np
import pytest
from generators import relative_error
from hypothesis import given
from hypothesis import strategies as st

from fedridge_flwr.linalg.conjugate_gradient import ConjugateSteps, conjugate_gradients


def positive_definite(d: int, condition: float, seed: int = 0) -> np.ndarray:
    Q, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))
    return Q * np.geomspace(1.0, 1.0 / condition, d) @ Q.T


# ---- one step at a time --------------------------------------------------------------


@given(st.integers(1, 8), st.integers(1, 3), st.integers(0, 99))
def test_steps_solve_any_positive_system_in_as_many_rounds_as_unknowns(d, t, seed):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d, d))
    A, H = root @ root.T + 0.1 * np.eye(d), rng.normal(size=(d, t))
    steps = ConjugateSteps(H, lambda r: r, tol=1e-13)
    rounds = 0
    while not steps.done:
        steps.take(A @ steps.directions)
        rounds += 1
    assert rounds <= d + 1
    np.testing.assert_allclose(A @ steps.solution, H, atol=1e-9)


def test_steps_say_why_they_end():
    indefinite = np.diag([1.0, -1.0])
    steps = ConjugateSteps(np.ones((2, 1)), lambda r: r, tol=1e-12)
    while not steps.done:
        steps.take(indefinite @ steps.directions)
    assert not steps.converged
    assert "positive definite" in steps.ended
    noisy = ConjugateSteps(np.ones((3, 1)), lambda r: r, tol=1e-12, patience=5)
    rng = np.random.default_rng(0)
    while not noisy.done:
        root = rng.normal(size=(3, 3))
        noisy.take((root @ root.T + np.eye(3)) @ noisy.directions)
    assert noisy.ended
    assert not noisy.converged


def test_the_same_reason_ends_only_the_targets_it_concerns():
    A, B = np.diag([1.0, 2.0, 0.0]), np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    steps = ConjugateSteps(B, tol=1e-12)
    while not steps.done:
        steps.take(A @ steps.directions)
    assert steps.stuck == [1]
    assert steps.flat
    assert steps.estimates[0] <= 1e-12
    assert steps.solution[:, 0] == pytest.approx([1.0, 0.5, 0.0])


def test_images_that_overflow_end_it_without_a_solution():
    steps = ConjugateSteps(np.full((2, 1), 1e200), tol=1e-12)
    assert steps.done
    assert not steps.converged
    assert steps.ended == "the estimate is not finite"


def test_known_images_of_earlier_directions_are_taken_after_a_restart():
    A = positive_definite(6, 10.0)
    b = np.random.default_rng(0).normal(size=(6, 2))
    steps = ConjugateSteps(b, tol=1e-12)
    earlier = steps.directions[:, :1]
    lengths = steps.take(A @ earlier, earlier, [0])
    assert lengths[0] > 0
    assert lengths[1] == 0
    while not steps.done:
        steps.take(A @ steps.directions)
    np.testing.assert_allclose(A @ steps.solution, b, atol=1e-10)


# ---- the loop -----------------------------------------------------------------------


@given(
    seed=st.integers(0, 10_000),
    d=st.integers(1, 40),
    t=st.integers(1, 4),
    condition=st.sampled_from([1.0, 10.0, 1e4]),
)
def test_it_solves_for_every_right_hand_side(seed, d, t, condition):
    A = positive_definite(d, condition, seed)
    B = np.random.default_rng(seed).normal(size=(d, t))
    found = conjugate_gradients(lambda V: A @ V, B)
    assert found.converged.all()
    assert not found.flat
    true = np.linalg.norm(B - A @ found.solution, axis=0) / np.linalg.norm(B, axis=0)
    assert found.residual == pytest.approx(true, abs=1e-13)
    assert relative_error(found.solution, np.linalg.solve(A, B)) < 1e-10 * condition
    low, high = found.ritz
    assert 1.0 / condition * (1 - 1e-9) <= low <= high <= 1.0 + 1e-9


def test_one_product_serves_all_right_hand_sides_that_still_need_it():
    A = positive_definite(30, 100.0)
    values, vectors = np.linalg.eigh(A)
    easy, hard = vectors[:, 0], np.random.default_rng(0).normal(size=30)
    widths = []

    def product(V):
        widths.append(V.shape[1])
        return A @ V

    found = conjugate_gradients(product, np.column_stack([easy, hard, 0 * hard]))
    assert widths[0] == 2  # nothing to do for a right-hand side of zeros
    assert widths[1:-1] == [1] * (len(widths) - 2)
    assert found.converged.all()
    assert not found.solution[:, 2].any()
    assert found.residual[2] == 0.0
    assert found.solution[:, 0] == pytest.approx(easy / values[0], rel=1e-10)


def test_a_good_preconditioner_takes_few_steps():
    A = positive_definite(60, 1e6)
    near = np.linalg.inv(A + 1e-9 * np.eye(60))
    b = np.random.default_rng(0).normal(size=(60, 1))
    plain = conjugate_gradients(lambda V: A @ V, b, tol=1e-10, max_steps=1000)
    found = conjugate_gradients(lambda V: A @ V, b, lambda V: near @ V, tol=1e-10)
    assert found.converged.all()
    assert found.steps <= 5 < plain.steps
    assert found.ritz == pytest.approx((1.0, 1.0), rel=1e-2)


@pytest.mark.parametrize("worst", [0.0, -1e-3])
def test_a_flat_or_negative_direction_ends_it(worst):
    Q, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(10, 10)))
    A = Q * np.r_[np.ones(9), worst] @ Q.T
    b = np.random.default_rng(1).normal(size=(10, 1))
    found = conjugate_gradients(lambda V: A @ V, b, lowest=1e-14)
    assert found.flat
    assert not found.converged.all()
    assert np.isfinite(found.solution).all()


def test_it_gives_up_and_says_how_far_it_came():
    A = positive_definite(50, 1e6)
    b = np.random.default_rng(0).normal(size=(50, 1))
    found = conjugate_gradients(lambda V: A @ V, b, max_steps=7)
    assert found.steps == 7
    assert not found.converged.any()
    assert found.residual[0] > 1e-12


def test_it_ends_where_rounding_is_all_that_is_left():
    A = positive_definite(40, 1e10)
    b = np.random.default_rng(0).normal(size=(40, 1))
    found = conjugate_gradients(lambda V: A @ V, b, tol=1e-15, max_steps=10_000)
    assert found.steps < 10_000
    assert found.residual[0] < 1e-3


def test_no_right_hand_side_takes_no_steps():
    found = conjugate_gradients(lambda V: V, np.zeros((3, 2)))
    assert found.steps == 0
    assert found.converged.all()
    assert np.isnan(found.ritz).all()
