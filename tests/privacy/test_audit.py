"""Membership audit: can one tell from the release whether a canary was in the data?

Many releases with and without the canary; the likelihood ratio is thresholded midway
between its means over the first runs, and the error rates of the other runs, each with
a Clopper-Pearson bound, give a lower bound on mu and so on epsilon. A mechanism is
flagged if that is more than it claims. Slow: `make audit`.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from privacy_mechanisms import HalfSigma, Ours, PairAsOne, PaperAlgorithm2
from scipy.stats import beta, norm

from fedridge_flwr.privacy import DifferentialPrivacy, epsilon_of

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
    scores = [
        np.array([_score(mechanism, data, canary) for _ in range(runs)])
        for data in (without, with_canary)
    ]
    first = runs // 10
    threshold = float(np.mean([s[:first].mean() for s in scores]))
    rest = runs - first
    false_alarms = int(np.count_nonzero(scores[0][first:] > threshold))
    misses = int(np.count_nonzero(scores[1][first:] <= threshold))
    tail = (1 - CONFIDENCE) / 2
    rates = [beta.ppf(1 - tail, k + 1, rest - k) for k in (false_alarms, misses)]
    mu = max(norm.ppf(1 - rates[0]) - norm.ppf(rates[1]), 0.0)
    return epsilon_of(mu, DELTA)


def _score(mechanism, data, canary) -> float:
    """Return the log likelihood ratio, up to constants, of noise as declared."""
    G, h = mechanism.release(*data)
    return float(
        canary @ G @ canary / mechanism.gram_sd**2 + h @ canary / mechanism.moment_sd**2
    )


def _mechanism(kind, epsilon: float):
    return kind(DifferentialPrivacy(epsilon, DELTA, x_norm_bound=1.0, y_bound=1.0))


@pytest.mark.slow
@pytest.mark.parametrize("canary", CANARIES)
@pytest.mark.parametrize("epsilon", [1.0, 5.0, 10.0])
def test_the_audit_passes_ours(epsilon, canary):
    found = lower_bound(_mechanism(Ours, epsilon), CANARIES[canary], RUNS)
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
