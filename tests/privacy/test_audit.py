"""Membership audit: can one tell from the release whether a canary was in the data?

Many releases with and without the canary; the likelihood ratio is thresholded midway
between its means over the first runs, and the error rates of the other runs, each with
a Clopper-Pearson bound, give a lower bound on mu and so on epsilon. A mechanism is
flagged if that is more than it claims. Slow: `make audit`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from privacy_mechanisms import (
    ClipAfter,
    HalfSigma,
    Ours,
    PairAsOne,
    PaperAlgorithm2,
    Unclipped,
)
from scipy.stats import beta, norm

from fedridge_flwr.data.rows import check_rows
from fedridge_flwr.privacy import DifferentialPrivacy, epsilon_of
from fedridge_flwr.privacy.release import Layout, ReleaseQuestion, make_release

RUNS = 10_000
CONFIDENCE = 0.999
DELTA = 1e-5
D = 4
ROWS = np.random.default_rng(0).normal(size=(10, D))
TARGETS = np.clip(ROWS[:, 0], -1.0, 1.0)
CANARIES = {
    "one feature": np.eye(D)[0],
    "all features": np.full(D, 1.0 / math.sqrt(D)),
}


def lower_bound(mechanism, canary, runs: int) -> float:
    """Return an epsilon that the mechanism exceeds, but for one chance in 1,000."""
    without = ROWS, TARGETS
    with_canary = np.vstack([ROWS, canary]), np.append(TARGETS, 1.0)
    direction = _direction(mechanism, without, with_canary, canary)
    return bound_of(
        np.array([_score(mechanism, data, *direction) for _ in range(runs)])
        for data in (without, with_canary)
    )


def bound_of(found: Iterable[np.ndarray]) -> float:
    """Return that epsilon from scores without the canary, and with it."""
    scores = list(found)
    runs = len(scores[0])
    first = runs // 10
    threshold = float(np.mean([s[:first].mean() for s in scores]))
    rest = runs - first
    false_alarms = int(np.count_nonzero(scores[0][first:] > threshold))
    misses = int(np.count_nonzero(scores[1][first:] <= threshold))
    tail = (1 - CONFIDENCE) / 2
    rates = [beta.ppf(1 - tail, k + 1, rest - k) for k in (false_alarms, misses)]
    mu = max(norm.ppf(1 - rates[0]) - norm.ppf(rates[1]), 0.0)
    return epsilon_of(mu, DELTA)


def _direction(mechanism, without, with_canary, canary):
    """Return how the canary moves G and h, which the attacker knows."""
    if not hasattr(mechanism, "clipped"):
        return np.outer(canary, canary), canary
    (X, y), (X2, y2) = (mechanism.clipped(*data) for data in (without, with_canary))
    return X2.T @ X2 - X.T @ X, X2.T @ y2 - X.T @ y


def _score(mechanism, data, gram, moment) -> float:
    """Return the log likelihood ratio, up to constants, of noise as declared."""
    G, h = mechanism.release(*data)
    return float(
        np.sum(G * gram) / mechanism.gram_sd**2 + h @ moment / mechanism.moment_sd**2
    )


def _mechanism(kind, epsilon: float):
    return kind(DifferentialPrivacy(epsilon, DELTA, x_norm_bound=1.0, y_bound=1.0))


@pytest.mark.slow
@pytest.mark.parametrize("canary", CANARIES)
@pytest.mark.parametrize("epsilon", [1.0, 5.0, 10.0])
def test_the_audit_passes_ours(epsilon, canary):
    # The bound scatters by a tenth in 10,000 runs, which is much of epsilon 1.
    runs = RUNS if epsilon > 1.0 else 3 * RUNS
    found = lower_bound(_mechanism(Ours, epsilon), CANARIES[canary], runs)
    print(f"ours at epsilon {epsilon:g}, {canary}: at least {found:.3g}")
    assert found <= epsilon
    # An audit that sees nothing would pass everything.
    assert found > 0.5 * epsilon


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [5.0, 10.0])
def test_the_audit_flags_the_papers_mechanism(epsilon):
    mechanism = _mechanism(PaperAlgorithm2, epsilon)
    found = lower_bound(mechanism, CANARIES["one feature"], RUNS)
    print(f"the paper's at epsilon {epsilon:g}: at least {found:.3g}")
    assert found > epsilon


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "epsilon"),
    # At epsilon 1 the pair as one is really 1.46, which needs more runs to be seen.
    [*((HalfSigma, e) for e in (1.0, 5.0, 10.0)), (PairAsOne, 5.0), (PairAsOne, 10.0)],
)
def test_the_audit_flags_too_little_noise(broken, epsilon):
    found = lower_bound(_mechanism(broken, epsilon), CANARIES["one feature"], RUNS)
    print(f"{broken.__name__} at epsilon {epsilon:g}: at least {found:.3g}")
    assert found > epsilon


@pytest.mark.slow
@pytest.mark.parametrize("broken", [Unclipped, ClipAfter])
def test_the_audit_flags_bounds_that_are_not_kept(broken):
    found = lower_bound(_mechanism(broken, 5.0), 100.0 * np.eye(D)[0], RUNS)
    print(f"{broken.__name__} at epsilon 5: at least {found:.3g}")
    assert found > 5.0


BLOCKS = {
    "intercept": {},
    "squares of targets": {
        "budget_split": {"gram": 0.35, "moment": 0.55, "target_gram": 0.1}
    },
    "moments alone": {"estimator": "moments"},
    "rules of 0.1.0": {"rules": 1},
}


def block_bound(asked: DifferentialPrivacy, drawn: DifferentialPrivacy) -> float:
    """Attack all blocks of a release together, the constant feature included."""
    clip = 1.0 if asked.uses_residuals else 0.0
    question = ReleaseQuestion(1, None, clip)
    canary = np.full(D, 3.0), 1.0  # too long, and so shortened with its constant
    without = check_rows(ROWS, TARGETS)
    with_canary = check_rows(np.vstack([ROWS, canary[0]]), np.append(TARGETS, 1.0))
    layout = Layout(asked, asked.bounds(D, 1, True), 1)
    sd = np.concatenate([layout.deviations(block) for block in layout.sizes])
    sums = [
        make_release(
            rows, replace(asked, trust="server"), intercept=True, question=question
        )
        for rows in (without, with_canary)
    ]
    weights = (sums[1] - sums[0]) / sd.astype(float) ** 2
    return bound_of(
        np.array(
            [
                make_release(rows, drawn, intercept=True, question=question) @ weights
                for _ in range(RUNS)
            ]
        )
        for rows in (without, with_canary)
    )


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS)
def test_the_audit_passes_every_block_of_ours(block):
    options = {"x_norm_bound": 1.0, "y_bound": 1.0, **BLOCKS[block]}
    ours = DifferentialPrivacy(3.0, DELTA, **options)
    found = block_bound(ours, ours)
    print(f"{block} at epsilon 3: at least {found:.3g}")
    assert found <= 3.0
    assert found > 1.0
    # The same blocks with half of their noise.
    less = epsilon_of(2.0 / ours.noise_multiplier, DELTA)
    broken = replace(ours, epsilon=less)
    if block == "moments alone":  # whose shares depend on epsilon below 1 only
        assert broken.shares(1) == ours.shares(1)
    assert block_bound(ours, broken) > 3.0
