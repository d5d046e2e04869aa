"""recommend: the table of advice, the bytes behind it, and laws it obeys."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedridge_flwr import (
    DifferentialPrivacy,
    FedRidgeError,
    Recommendation,
    SufficientStatistics,
    recommend,
)
from fedridge_flwr.data.rows import check_rows
from fedridge_flwr.federation.costs import (
    BUDGET,
    cg_bytes,
    cg_rounds,
    fedavg_bytes,
    oneshot_bytes,
    private_bytes,
    private_refine_bytes,
    refine_bytes,
    refine_rounds,
)
from fedridge_flwr.linalg.packed import packed_length
from fedridge_flwr.privacy.clipping import Bounds
from fedridge_flwr.privacy.release import Layout
from fedridge_flwr.statistics.encoding import encode_rows

METHODS = ["oneshot", "refine", "cg", "projection", "iterative"]


# ---- the advice, case by case -------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "method", "words"),
    [
        ({"d": 100, "n": 500, "K": 20}, "oneshot", "within the budget of 8 MB"),
        ({"d": 1000, "n": 500, "K": 20}, "oneshot", "exact in one round"),
        ({"d": 1400, "n": 5000, "K": 20}, "oneshot", "within the budget"),
        ({"d": 1500, "n": 5000, "K": 20}, "refine", "exact in about 7 rounds"),
        ({"d": 5000, "n": 5000, "K": 20, "spectrum": 2}, "refine", "about 15 rounds"),
        ({"d": 5000, "n": 5000, "K": 20, "rounds": 7}, "refine", "an estimate else"),
        ({"d": 5000, "n": 5000, "K": 20, "rounds": 6}, "oneshot", "is not exact"),
        ({"d": 5000, "n": 5000, "K": 20, "rounds": 1}, "oneshot", "5740%"),
        ({"d": 5000, "n": 50, "K": 20}, "oneshot", "alpha > 0"),
        ({"d": 50_000, "n": 900, "K": 20}, "cg", "do not fit the server's 16 GB"),
        ({"d": 50_000, "n": 900, "K": 99, "rounds": 50}, "iterative", "nothing exact"),
        ({"d": 50_000, "n": 900, "K": 99, "rounds": 1}, "projection", "nothing exact"),
        ({"d": 5, "n": 500, "K": 20, "epsilon": 1.0}, "oneshot", "is enough"),
        ({"d": 100, "n": 500, "K": 20, "epsilon": 1.0}, "refine", "20 rounds"),
        (
            {"d": 100, "n": 500, "K": 20, "epsilon": 0.1},
            "refine",
            "than tuned DP-FedAvg at 0.5 to 2",
        ),
        (
            {"d": 100, "n": 500, "K": 20, "epsilon": 1.0, "rounds": 3},
            "oneshot",
            "rounds=3 are too few for refinement",
        ),
        ({"d": 100, "n": 500, "K": 20, "epsilon": 1, "t": 2}, "oneshot", "one target"),
        ({"d": 100, "n": 10**6, "K": 20, "epsilon": 1.0}, "oneshot", "is enough"),
        ({"d": 50, "n": 99, "K": 9, "budget": 1e3}, "refine", "where one shot takes"),
    ],
)
def test_what_is_advised(problem, method, words):
    found = recommend(**problem)
    assert found.method == method
    assert words in found.reason
    by_method = {each.method: each for each in found.alternatives}
    assert found.bytes_per_client == by_method[method].bytes_per_client


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        ({"d": 100}, "with R = 200, one-shot. We agree."),
        ({"d": 1000}, "with R = 200, iterate. We differ: the rule compares"),
        ({"d": 2000}, "with R = 200, iterate. We say refine."),
        ({"d": 2000, "rounds": 600}, "with R = 600, one-shot. We differ: refine"),
        ({"d": 100, "epsilon": 0.5}, "with R = 200, iterate. We say refine."),
        ({"d": 2, "epsilon": 0.5}, "with R = 200, iterate. We differ"),
        ({"d": 100, "epsilon": 1.0}, "one-shot. We differ: refine"),
    ],
)
def test_the_rule_of_the_paper_stands_beside_it(problem, words):
    assert words in recommend(n=5000, K=20, **problem).paper


def test_all_methods_are_in_the_table():
    found = recommend(d=1000, n=500, K=20, spectrum=0)
    assert [each.method for each in found.alternatives] == METHODS
    assert [each.exact for each in found.alternatives] == [True] * 3 + [False] * 2
    assert [each.rounds for each in found.alternatives] == [1, 6, 22, 1, 200]
    assert recommend(1000, 500, 20, rounds=30).alternatives[-1].rounds == 30


def test_it_can_be_read():
    text = str(recommend(d=1000, n=500, K=20))
    lines = text.splitlines()
    assert lines[0].startswith("oneshot: exact in one round, and 3.014 MB per client")
    assert lines[2].split("|")[1].strip() == "method"
    assert len({len(line) for line in lines[2:9]}) == 1
    assert "| oneshot *  | statistics once (trapezoid factor) |" in text
    assert lines[-1].startswith("Paper: one-shot if d < 4 R and epsilon >= 1")
    private = str(recommend(d=100, n=500, K=20, epsilon=1.0))
    assert "DifferentialPrivacy(rounds=20)" in private
    assert "| yes" not in private


def test_a_recommendation_cannot_be_changed():
    found = recommend(10, 10, 10)
    assert isinstance(found, Recommendation)
    with pytest.raises(AttributeError):
        found.method = "cg"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"d": 0}, "d must be a whole number of at least 1, got 0"),
        ({"n": 1.5}, "n must be a whole number"),
        ({"K": True}, "K must be a whole number"),
        ({"rounds": 0}, "rounds must be a whole number"),
        ({"epsilon": 0.0}, "epsilon must be a number from 1e-06 to 1e"),
        ({"epsilon": float("inf")}, "epsilon must be"),
        ({"epsilon": "1"}, "epsilon must be a number"),
        ({"spectrum": -1}, "spectrum must be a number from 0 to 10"),
        ({"spectrum": float("nan")}, "spectrum must be"),
        ({"budget": 0}, "budget must be"),
        ({"memory": None, "t": 0}, "t must be"),
    ],
)
def test_what_is_no_problem_is_refused(wrong, words):
    with pytest.raises(FedRidgeError, match=words):
        recommend(**{"d": 10, "n": 10, "K": 10, **wrong})


# ---- bytes --------------------------------------------------------------------------


@given(n=st.integers(1, 60), d=st.integers(1, 40), t=st.integers(1, 3))
def test_one_shot_is_what_a_client_really_sends(n, d, t):
    rng = np.random.default_rng(n)
    rows = check_rows(rng.normal(size=(n, d)), rng.normal(size=(n, t)))
    sent = encode_rows(rows)
    assert sum(a.nbytes for a in sent.arrays.values()) == oneshot_bytes(d, t, n)
    assert SufficientStatistics.from_rows(rows).to_array().nbytes == oneshot_bytes(d, t)
    assert oneshot_bytes(d, t) == 8 * packed_length(d, t)
    assert oneshot_bytes(d, t, n) <= oneshot_bytes(d, t)


@pytest.mark.parametrize(
    ("spectrum", "refine", "cg"), [(0, 0.51, 0.36), (1, 0.52, 2.07), (2, 0.65, 21.1)]
)
def test_megabytes_are_those_that_were_measured(spectrum, refine, cg):
    steps, more = refine_rounds(spectrum), cg_rounds(spectrum)
    assert refine_bytes(1000, n=500, rounds=steps) == pytest.approx(
        1e6 * refine, rel=0.02
    )
    assert cg_bytes(1000, rounds=more) == pytest.approx(1e6 * cg, rel=0.02)
    assert fedavg_bytes(1000, rounds=200) == pytest.approx(3.20e6, rel=0.01)
    assert oneshot_bytes(400) == pytest.approx(0.65e6, rel=0.01)


@pytest.mark.parametrize("d", [3, 100])
def testprivate_bytes_are_those_of_the_release(d):
    bounds = {"x_norm_bound": 1.0, "y_bound": 1.0}
    once = DifferentialPrivacy(1.0, 1e-5, **bounds)
    box = Bounds(1.0, 1.0, d, 1, intercept=True)
    assert private_bytes(d, 1) == 8 * Layout(once, box, 1).length
    many = DifferentialPrivacy(1.0, 1e-5, rounds=20, **bounds)
    up = sum(Layout(many, box, r).length for r in range(1, 21))
    assert private_refine_bytes(d, 20) == 8 * (up + 20 * (d + 1))


# ---- laws ---------------------------------------------------------------------------

problems = st.fixed_dictionaries(
    {
        "d": st.integers(1, 25_000),
        "n": st.integers(1, 100_000),
        "K": st.integers(1, 1000),
        "spectrum": st.none() | st.floats(0.0, 4.0),
        "t": st.integers(1, 3),
    }
)


@given(problems, st.integers(1, 3000), st.integers(0, 3000))
def test_more_rounds_never_cost_more_bytes(problem, rounds, more):
    few, many = (recommend(**problem, rounds=r) for r in (rounds, rounds + more))
    assert many.bytes_per_client <= few.bytes_per_client
    assert recommend(**problem).bytes_per_client <= many.bytes_per_client


@given(problems, st.floats(1e3, 1e9), st.floats(1.0, 100.0))
def test_a_smaller_budget_never_costs_more_bytes(problem, budget, times):
    small, large = (recommend(**problem, budget=b) for b in (budget, times * budget))
    assert small.bytes_per_client <= large.bytes_per_client


@given(problems)
def test_one_round_is_taken_wherever_it_is_within_the_budget(problem):
    found = recommend(**problem)
    payload = oneshot_bytes(problem["d"], problem["t"], problem["n"])
    assert (found.method == "oneshot") >= (payload <= BUDGET)
    assert found.method in ("oneshot", "refine")
    assert found.bytes_per_client <= payload


@given(problems, st.floats(0.01, 100.0), st.floats(1.0, 10.0))
def test_more_privacy_never_calls_for_fewer_rounds(problem, epsilon, times):
    strong, weak = (recommend(**problem, epsilon=e) for e in (epsilon, times * epsilon))
    assert not (strong.method == "oneshot" and weak.method == "refine")
    assert not any(each.exact for each in strong.alternatives)


@given(st.floats(0.0, 5.0), st.floats(0.0, 5.0))
def test_a_steeper_spectrum_never_takes_fewer_rounds(a, b):
    low, high = sorted((a, b))
    assert refine_rounds(low) <= refine_rounds(high)
    assert cg_rounds(low) <= cg_rounds(high)
    assert refine_rounds(low) < cg_rounds(low)
