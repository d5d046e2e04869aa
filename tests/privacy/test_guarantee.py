"""The tests that tell a private release from one that only looks like it.

Each is a function of a mechanism that raises if it is broken. Ours passes all; every
broken one of `privacy_mechanisms` fails the test that is meant for it. The membership
audit, which needs many runs, is in test_privacy_audit.py.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from privacy_mechanisms import (
    ClipAfter,
    HalfSigma,
    HalvedOffDiagonal,
    Ours,
    PairAsOne,
    PaperAlgorithm2,
    Seeded,
    Unclipped,
    seeded_source,
)
from scipy import stats

from fedridge_flwr.data.rows import Block, check_rows
from fedridge_flwr.privacy import DifferentialPrivacy
from fedridge_flwr.privacy.budget_shares import one_shot_shares, replacement
from fedridge_flwr.privacy.clipping import LENGTH, Bounds
from fedridge_flwr.privacy.curator import Curator, ReleaseRequest
from fedridge_flwr.privacy.refinement.residuals import residual_sums
from fedridge_flwr.privacy.release import Layout, ReleaseQuestion, make_release

PRIVACY = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=2.0, y_bound=3.0)
DATA = np.random.default_rng(0).normal(size=(40, 7))
X, Y = DATA[:, :6], DATA[:, 6]
RELEASES = 30
FALSE_ALARM = 1e-7


# ---- 1. noise scale per block -----------------------------------------------------


def check_noise_scale(mechanism) -> None:
    nothing = np.zeros((0, 6)), np.zeros(0)
    found = [mechanism.release(*nothing) for _ in range(RELEASES)]
    G, h = (np.array(part) for part in zip(*found, strict=True))
    upper = np.triu_indices(6, k=1)
    blocks = {
        "diagonal": (np.einsum("kii->ki", G), mechanism.gram_sd),
        "off the diagonal": (
            G[:, upper[0], upper[1]],
            mechanism.gram_sd / math.sqrt(2.0),
        ),
        "moment": (h, mechanism.moment_sd),
    }
    for name, (noise, sd) in blocks.items():
        energy = float(np.sum((noise / sd) ** 2))
        low = stats.chi2.ppf(FALSE_ALARM, noise.size)
        high = stats.chi2.ppf(1 - FALSE_ALARM, noise.size)
        assert energy >= low, f"too little noise: {name}"
        assert energy <= high, f"more noise than declared: {name}"


def test_noise_scale():
    check_noise_scale(Ours(PRIVACY))


@pytest.mark.parametrize(
    "broken", [HalvedOffDiagonal, PairAsOne, HalfSigma, PaperAlgorithm2]
)
def test_noise_scale_tells_broken_mechanisms(broken):
    # The paper's tau is larger than ours below epsilon 1, smaller far above.
    epsilon = 10.0 if broken is PaperAlgorithm2 else 1.0
    privacy = DifferentialPrivacy(epsilon, 1e-5, x_norm_bound=2.0, y_bound=3.0)
    with pytest.raises(AssertionError, match="too little noise"):
        check_noise_scale(broken(privacy))


SPLIT = {"gram": 0.45, "moment": 0.45, "target_gram": 0.1}
ASKED = {
    "one target": ({}, 1, 1),
    "three targets": ({}, 3, 1),
    "target gram": ({"budget_split": SPLIT}, 1, 1),
    "target gram of three": ({"budget_split": SPLIT}, 3, 1),
    "replace one": ({"neighboring": "replace-one", "budget_split": SPLIT}, 3, 1),
    "first of three rounds": ({"rounds": 3}, 1, 1),
    "second of three rounds": ({"rounds": 3}, 1, 2),
    "replace one, second round": ({"rounds": 3, "neighboring": "replace-one"}, 1, 2),
}


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("through", ["release", "curator"])
def test_the_noise_that_is_drawn_has_the_declared_deviation(asked, intercept, through):
    """Whatever is asked for, block by block, from releases about no rows at all."""
    options, t, server_round = ASKED[asked]
    privacy = DifferentialPrivacy(1.0, 1e-5, x_norm_bound=2.0, y_bound=3.0, **options)
    bounds = Bounds(2.0, 3.0, 4, t, intercept)
    clip = 1.0 if privacy.rounds > 1 else 0.0
    coef = np.zeros(bounds.width) if server_round > 1 else None
    question = ReleaseQuestion(server_round, coef, clip)
    nothing = check_rows(np.zeros((0, 4)), np.zeros((0, t)))

    def draw(number):
        if through == "release":
            return make_release(
                nothing, privacy, intercept=intercept, question=question
            )
        request = ReleaseRequest(f"{number:032x}", privacy, intercept, question)
        return Curator().answer(request, nothing)

    layout = Layout(privacy, bounds, server_round)
    found = [layout.split(draw(number)) for number in range(RELEASES)]
    sigma = privacy.noise_multiplier * privacy.sensitivity(t)
    for block, share in privacy.shares(server_round).items():
        noise = np.array([release[block] for release in found])
        sd = np.full(noise.shape[1], sigma * LENGTH**2 / math.sqrt(share))
        if block in ("gram", "target_gram"):
            order = bounds.width if block == "gram" else t
            rows, columns = np.triu_indices(order)
            sd = np.where(rows == columns, sd, sd / math.sqrt(2.0))
        energy = float(np.sum((noise / sd) ** 2))
        assert energy >= stats.chi2.ppf(FALSE_ALARM, noise.size), block
        assert energy <= stats.chi2.ppf(1 - FALSE_ALARM, noise.size), block


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 50.0])
@pytest.mark.parametrize("neighboring", ["add-or-remove-one", "replace-one"])
@pytest.mark.parametrize("intercept", [False, True])
def test_declared_deviations(epsilon, neighboring, intercept):
    """Deviations on the grid are sigma · bound / √share, whatever is released."""
    split = {"gram": 0.45, "moment": 0.45, "target_gram": 0.1}
    privacy = DifferentialPrivacy(
        epsilon,
        1e-5,
        x_norm_bound=2.0,
        y_bound=3.0,
        neighboring=neighboring,
        budget_split=split,
    )
    bounds = Bounds(2.0, 3.0, 4, 2, intercept)
    layout = Layout(privacy, bounds, 1)
    sigma = privacy.noise_multiplier * privacy.sensitivity(2)
    for block, share in split.items():
        expected = sigma * LENGTH**2 / math.sqrt(share)
        deviations = layout.deviations(block)
        assert deviations.max() == math.ceil(expected)
        if block != "moment":
            assert deviations.min() == math.ceil(expected / math.sqrt(2.0))


# ---- 2. one record is bounded, whatever float64 it holds ----------------------------

anything = st.floats(allow_nan=True, allow_infinity=True, width=64)
finite = st.floats(allow_nan=False, allow_infinity=False, width=64)
rows_of_anything = arrays(np.float64, (1, 3), elements=anything)


def record_length(bounds: Bounds, row, target) -> float:
    """Return the exact length of what one row adds to z, shares included."""
    grid = bounds.on_grid(Block(row, target, None))
    u = sum(int(v) ** 2 for v in grid.X[0])
    v = sum(int(v) ** 2 for v in grid.Y[0])
    assert np.array_equal(grid.X, np.rint(grid.X))
    assert np.array_equal(grid.Y, np.rint(grid.Y))
    assert u <= LENGTH**2
    assert v <= LENGTH**2
    return math.sqrt((0.45 * u * u + 0.45 * u * v + 0.1 * v * v) / LENGTH**4)


@given(
    rows_of_anything,
    arrays(np.float64, (1, 2), elements=anything),
    st.floats(1e-50, 1e50),
    st.floats(1e-50, 1e50),
    st.booleans(),
)
@settings(max_examples=500)
def test_every_record_has_length_at_most_one(row, target, Bx, By, intercept):
    assert record_length(Bounds(Bx, By, 3, 2, intercept), row, target) <= 1.0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["X", "y"])
def test_rows_that_are_not_finite_count_for_nothing(value, where):
    bounds = Bounds(1.0, 1.0, 3, 1, True)
    row, target = np.ones((1, 3)), np.ones((1, 1))
    (row if where == "X" else target)[0, 0] = value
    grid = bounds.on_grid(Block(row, target, None))
    assert not grid.X.any()
    assert not grid.Y.any()
    assert grid.n_dropped == 1


def test_clipping_keeps_the_fit():
    """A shortened row still satisfies y = X w, if its target is not cut as well."""
    rng = np.random.default_rng(1)
    A, w = 100 * rng.normal(size=(50, 3)), np.array([0.1, -0.2, 0.3])
    bounds = Bounds(1.0, 10.0, 3, 1, False)
    grid = bounds.on_grid(Block(A, (A @ w)[:, None], None))
    assert grid.n_shortened == 50
    clipped, targets = grid.X * bounds.x_step, grid.Y * bounds.y_step
    np.testing.assert_allclose(np.linalg.norm(clipped, axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(clipped @ w, targets[:, 0], atol=1e-5)


def test_rows_within_the_bounds_are_only_rounded():
    bounds = Bounds(10.0, 10.0, 6, 1, False)
    grid = bounds.on_grid(Block(X, Y[:, None], None))
    assert grid.n_shortened == grid.n_cut == 0
    np.testing.assert_allclose(grid.X * bounds.x_step, X, atol=bounds.x_step)
    np.testing.assert_allclose(grid.Y[:, 0] * bounds.y_step, Y, atol=bounds.y_step)


@pytest.mark.parametrize("n_targets", [1, 3])
@pytest.mark.parametrize(
    "split",
    [
        {"gram": 0.5, "moment": 0.5},
        {"gram": 0.1, "moment": 0.9},
        {"gram": 0.9, "moment": 0.1},
        {"gram": 0.45, "moment": 0.45, "target_gram": 0.1},
        {"gram": 0.1, "moment": 0.1, "target_gram": 0.8},
        {"gram": 0.05, "moment": 0.9, "target_gram": 0.05},
        {"gram": 0.001, "moment": 0.498, "target_gram": 0.501},
        {"gram": 0.0001, "moment": 0.249, "target_gram": 0.7509},
    ],
)
def test_replacing_a_record_is_bounded_and_the_bound_is_reached(split, n_targets):
    """The formula against two million random and extreme pairs of records."""
    rng = np.random.default_rng(0)
    n, d = 200_000, 2

    def ball(size):
        v = rng.normal(size=(n, size))
        v /= np.linalg.norm(v, axis=1, keepdims=True)
        radius = np.where(rng.random(n) < 0.7, 1.0, rng.random(n))
        radius = np.where(rng.random(n) < 0.1, 0.0, radius)
        return v * radius[:, None]

    bound = replacement(one_shot_shares(split), n_targets)
    largest = 0.0
    for _ in range(10):
        u, u2, v, v2 = ball(d), ball(d), ball(n_targets), ball(n_targets)
        v2 = np.where(rng.random((n, 1)) < 0.5, -v * rng.random((n, 1)) ** 0.5, v2)
        u2 = np.where(rng.random((n, 1)) < 0.3, u, u2)
        square = 0.0
        for share, (a, b, a2, b2) in {
            split["gram"]: (u, u, u2, u2),
            split["moment"] + 1e-15: (u, v, u2, v2),
            split.get("target_gram", 0.0) + 2e-15: (v, v, v2, v2),
        }.items():
            dot = np.einsum("ni,ni->n", a, a2) * np.einsum("ni,ni->n", b, b2)
            norms = [np.einsum("ni,ni->n", p, p) for p in (a, b, a2, b2)]
            square = square + share * (norms[0] * norms[1] + norms[2] * norms[3])
            square = square - 2 * share * dot
        largest = max(largest, float(square.max()))
    assert math.sqrt(largest) <= bound * (1 + 1e-9)
    assert math.sqrt(largest) >= 0.97 * bound


# ---- 3. two releases are independent ------------------------------------------------


def check_independence(mechanism) -> None:
    products = []
    for _ in range(20):
        noise = []
        for _ in range(2):
            G, h = mechanism.release(np.zeros((0, 6)), np.zeros(0))
            upper = G[np.triu_indices(6)] / mechanism.gram_sd
            noise.append(np.concatenate([upper, h / mechanism.moment_sd]))
        products.append(np.corrcoef(*noise)[0, 1])
    assert abs(np.mean(products)) < 0.25, "two releases are correlated"


def test_two_releases_of_the_same_data_are_uncorrelated():
    check_independence(Ours(PRIVACY))


def test_independence_tells_a_seeded_generator():
    with pytest.raises(AssertionError, match="correlated"):
        check_independence(Seeded(PRIVACY))


# ---- 6. replay: neighbours differ by the declared sensitivity, nowhere else ----------


def check_replay(mechanism) -> None:
    """Neighbouring data under identical noise: what differs is one record's z."""
    rng = np.random.default_rng(5)
    Bx, By = mechanism.privacy.x_norm_bound, mechanism.privacy.y_bound
    share = mechanism.privacy.shares(1)
    extremes = [np.full(6, 1e6), np.zeros(6), rng.normal(size=6), 3.0 * np.eye(6)[0]]
    for extra in extremes:
        for target in (0.0, 1e9, -3.0):
            used = []

            def counting(n, source=None, used=used):
                used[-1] += n
                return source(n)

            found = []
            for data in ((X, Y), (np.vstack([X, extra]), np.append(Y, target))):
                used.append(0)
                source = seeded_source(7)
                found.append(
                    mechanism.release(*data, lambda n, s=source: counting(n, s))
                )
            (G0, h0), (G1, h1) = found
            moved = (
                share["gram"] * np.sum((G1 - G0) ** 2) / Bx**4
                + share["moment"] * np.sum((h1 - h0) ** 2) / (Bx * By) ** 2
            )
            assert math.sqrt(moved) <= 1 + 1e-9, "one record moves the release too far"
            assert used[0] == used[1], "how much noise is drawn depends on the data"


def test_replay():
    check_replay(Ours(PRIVACY))


@pytest.mark.parametrize("broken", [ClipAfter, Unclipped])
def test_replay_tells_broken_mechanisms(broken):
    with pytest.raises(AssertionError, match="too far"):
        check_replay(broken(PRIVACY))


@given(st.integers(0, 2**32 - 1), st.booleans())
@settings(max_examples=25, deadline=None)
def test_replay_in_exact_integers(seed, intercept):
    """On the grid the difference *is* the record's integer vector, to the last unit."""
    rng = np.random.default_rng(seed)
    extra = rng.normal(size=6) * 10.0 ** rng.integers(-5, 5)
    target = float(rng.normal() * 10.0 ** rng.integers(-5, 5))
    small = check_rows(X, Y)
    large = check_rows(np.vstack([X, extra]), np.append(Y, target))
    a, b = (
        make_release(rows, PRIVACY, intercept=intercept, source=seeded_source(1))
        for rows in (small, large)
    )
    bounds = Bounds(2.0, 3.0, 6, 1, intercept)
    grid = bounds.on_grid(Block(extra[None], np.array([[target]]), None))
    layout = Layout(PRIVACY, bounds, 1)
    moved = layout.split(b - a)
    width = bounds.width
    upper = np.triu_indices(width)
    np.testing.assert_array_equal(moved["gram"], np.outer(grid.X, grid.X)[upper])
    np.testing.assert_array_equal(moved["moment"], grid.X[0] * grid.Y[0, 0])


def test_sums_do_not_depend_on_order_or_blocks(monkeypatch):
    from fedridge_flwr.privacy import release

    rng = np.random.default_rng(2)
    A, b = rng.normal(size=(5000, 6)), rng.normal(size=5000)
    order = rng.permutation(5000)
    whole = make_release(
        check_rows(A, b), PRIVACY, intercept=True, source=seeded_source(1)
    )
    other = make_release(
        check_rows(A[order], b[order]),
        PRIVACY,
        intercept=True,
        source=seeded_source(1),
    )
    monkeypatch.setattr(release, "EXACT_ROWS", 7)
    monkeypatch.setattr(release, "_INT64_ROWS", 100)
    pieces = make_release(
        check_rows(A, b), PRIVACY, intercept=True, source=seeded_source(1)
    )
    np.testing.assert_array_equal(whole, other)
    np.testing.assert_array_equal(whole, pieces)


# ---- residual refinement: the same laws ----------------------------------------------


@given(
    rows_of_anything,
    arrays(np.float64, (1, 1), elements=anything),
    arrays(np.float64, (4,), elements=finite),
    st.floats(1e-300, 1e300),
)
@settings(max_examples=300)
def test_every_answer_about_residuals_has_length_at_most_one(row, target, coef, clip):
    bounds = Bounds(2.0, 3.0, 3, 1, True)
    grid = bounds.on_grid(Block(row, target, None))
    found = residual_sums(grid, bounds, coef, clip)
    assert np.array_equal(found, np.rint(found))
    assert sum(int(v) ** 2 for v in found) <= LENGTH**4
    if not grid.present[0]:
        assert not found.any()


def test_answers_about_residuals_do_not_depend_on_other_rows():
    rng = np.random.default_rng(2)
    A, b = rng.normal(size=(4000, 6)), rng.normal(size=4000)
    bounds, coef = Bounds(2.0, 3.0, 6, 1, False), rng.normal(size=6)

    def sums(rows):
        grid = bounds.on_grid(Block(A[rows], b[rows, None], None))
        return residual_sums(grid, bounds, coef, 0.7)

    whole = sums(np.arange(4000))
    np.testing.assert_array_equal(whole, sums(rng.permutation(4000)))
    parts = [sums(part) for part in np.array_split(rng.permutation(4000), 37)]
    np.testing.assert_array_equal(whole, np.sum(parts, axis=0))
