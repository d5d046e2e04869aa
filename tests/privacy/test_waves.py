"""Waves of a refinement: the same promise and limit, whoever is asked when."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from fakes import InProcessGrid, node_context
from flwr.app import Message
from flwr.server import ServerAppComponents, ServerConfig
from flwr.serverapp import ServerApp
from hypothesis import given, settings
from hypothesis import strategies as st
from test_private_refinement import NATIVE, D, K, exact, privacy, rows_of

from fedridge_flwr import FedRidge, LegacyFedRidge, PrivacyError, ridge_client_app
from fedridge_flwr.data.rows import check_rows
from fedridge_flwr.privacy import compose
from fedridge_flwr.privacy.curator import Curator, ReleaseRequest
from fedridge_flwr.privacy.release import ReleaseQuestion

RELEASE = "0" * 32


def fitted(grid: InProcessGrid, promise: Any, **options: Any) -> FedRidge:
    strategy = FedRidge(
        alpha=0.1,
        fit_intercept=False,
        privacy=promise,
        min_available_nodes=K,
        **options,
    )
    strategy.start(grid, timeout=120)
    return strategy


def by_round(grid: InProcessGrid) -> dict[int, list[list[int]]]:
    """Return the nodes that were asked, wave by wave, by the round they answer."""
    waves: dict[int, list[list[int]]] = {}
    before = None
    for sent in grid.sent:
        asked = sent.content["config"]
        number, question = asked["release-round"], asked["release-clip"]
        if (number, question) != before:
            waves.setdefault(number, []).append([])
            before = number, question
        waves[number][-1].append(sent.metadata.dst_node_id)
    return waves


# ---- the limit ---------------------------------------------------------------------


def test_without_noise_waves_and_plain_rounds_end_in_the_ridge_solution():
    expected = exact().coef_
    coefs = [
        fitted(InProcessGrid.of_app(NATIVE, K), privacy(e, 15, waves=w)).model_.coef_
        for w, e in ((1, 1e8), (4, 1e8), (4, 1e14))
    ]
    for coef in coefs:
        # Rows that are clipped are the rest of it.
        assert np.linalg.norm(coef - expected) < 1e-3 * np.linalg.norm(expected)
        np.testing.assert_allclose(coef, coefs[0], atol=2e-4)


def test_clients_of_unequal_size_are_weighed_by_their_rows():
    """Of one client with most rows, and many small ones, no wave is like another."""
    X, y = (np.concatenate(part) for part in zip(*map(rows_of, range(K)), strict=True))
    edges = [0, *np.linspace(2800, len(X), K).astype(int)]
    rows = [(X[a:b], y[a:b]) for a, b in itertools.pairwise(edges)]
    app = ridge_client_app(lambda c: rows[int(c.node_config["partition-id"])])
    expected, gaps = exact().coef_, []
    for waves in (1, 4):
        grid = InProcessGrid.of_app(app, K)
        model = fitted(grid, privacy(1e6, 15, waves=waves)).model_
        gaps.append(np.linalg.norm(model.coef_ - expected))
    assert max(gaps) < 5e-3 * np.linalg.norm(expected)


# ---- who is asked when -------------------------------------------------------------


@pytest.mark.parametrize(("rounds", "waves"), [(2, 4), (3, 1), (5, 3), (4, 99)])
def test_every_client_answers_every_round_once(rounds, waves):
    promise = privacy(100.0, rounds, waves=waves)
    grid = InProcessGrid.of_app(NATIVE, K)
    report = fitted(grid, promise).report_
    asked = by_round(grid)
    everybody = sorted(grid.handlers)
    assert sorted(asked) == list(range(1, rounds + 1))
    for number, groups in asked.items():
        inner = 1 < number < rounds
        assert len(groups) == (min(waves, K) if inner else 1)
        assert sorted(node for group in groups for node in group) == everybody
    assert len(grid.sent) == K * rounds
    assert report.privacy.releases == rounds
    assert report.failures == {}


def test_groups_are_others_in_every_round():
    grid = InProcessGrid.of_app(NATIVE, K)
    fitted(grid, privacy(100.0, 12, waves=4))
    inner = [groups for groups in by_round(grid).values() if len(groups) > 1]
    assert len(inner) == 10
    assert len({str(groups) for groups in inner}) == 10


def test_the_older_api_asks_in_waves_too():
    promise = privacy(1e4, 6, waves=3)
    strategy = LegacyFedRidge(alpha=0.1, fit_intercept=False, privacy=promise)
    assert promise.steps == 14
    server = ServerApp(
        server_fn=lambda _: ServerAppComponents(
            strategy=strategy, config=ServerConfig(num_rounds=promise.steps)
        )
    )
    grid = InProcessGrid.of_app(NATIVE, K)
    server(grid, node_context(0, 1))
    expected = exact().coef_
    gap = np.linalg.norm(strategy.model_.coef_ - expected)
    assert gap < 0.1 * np.linalg.norm(expected)
    assert strategy.report_.privacy.releases == 6
    assert len(grid.sent) == K * 6


# ---- who drops out -----------------------------------------------------------------


@pytest.mark.parametrize("away", [1, 2, K - 1])
def test_clients_that_drop_out_between_waves_are_named_and_the_rest_goes_on(away):
    contexts = [node_context(k, K) for k in range(K)]
    calls = dict.fromkeys(range(K), 0)

    def node(k: int) -> Any:
        def handle(message: Message) -> Message:
            calls[k] += 1
            if k < away and calls[k] > 2:
                raise RuntimeError("gone")
            return NATIVE(message, contexts[k])

        return handle

    grid = InProcessGrid([node(k) for k in range(K)])
    strategy = fitted(grid, privacy(1e5, 8, waves=4), min_train_nodes=1)
    gone = {str(1000 + k) for k in range(away)}
    assert set(strategy.report_.failures) == gone
    assert all(r.startswith("round 3 of 8") for r in strategy.report_.failures.values())
    assert len(strategy.report_.participants) == K
    assert [calls[k] for k in range(away)] == [3] * away
    assert [calls[k] for k in range(away, K)] == [8] * (K - away)
    expected = exact().coef_
    gap = np.linalg.norm(strategy.model_.coef_ - expected)
    assert gap < 0.1 * np.linalg.norm(expected)


def test_too_few_answers_in_all_waves_of_a_round_end_the_fit():
    contexts = [node_context(k, K) for k in range(K)]

    def node(k: int) -> Any:
        def handle(message: Message) -> Message:
            if k < 3 and message.content["config"]["release-round"] > 2:
                raise RuntimeError("gone")
            return NATIVE(message, contexts[k])

        return handle

    grid = InProcessGrid([node(k) for k in range(K)])
    strategy = fitted(grid, privacy(1e4, 6, waves=4), min_train_nodes=K - 2)
    assert "ended in round 3 of 6" in str(strategy.report_)
    assert strategy.report_.privacy.releases == 3
    assert strategy.model_.coef_.any()


# ---- hostile servers ---------------------------------------------------------------


def _request(rounds: int, number: int, clip: float) -> ReleaseRequest:
    question = ReleaseQuestion(number, np.full(D, 0.1), clip)
    return ReleaseRequest(RELEASE, privacy(1.0, rounds), False, question)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.sampled_from([1.0, 2.0])), max_size=14))
def test_whatever_order_of_waves_a_server_claims_a_round_is_answered_once(asked):
    """A retry gets the same bits, any other question none: the promise is kept."""
    curator, rows, released = Curator(), check_rows(*rows_of(0, rows=20)), {}
    for number, clip in asked:
        request = _request(4, number, clip)
        before = released.get(number)
        if before is None or before[0] == clip:
            answer = curator.answer(request, rows)
            if before is not None:
                np.testing.assert_array_equal(answer, before[1])
            released[number] = clip, answer
        else:
            with pytest.raises(PrivacyError, match="another question"):
                curator.answer(request, rows)
    promise = privacy(1.0, 4)
    spent = compose(
        [1 / promise.deviation(b, t) for t in released for b in promise.shares(t)]
    )
    assert spent <= promise.mu() * (1 + 1e-12)
    if len(released) == 4:
        assert spent == pytest.approx(promise.mu(), rel=1e-12)


def test_a_server_that_asks_a_client_in_two_waves_of_a_round_is_refused():
    context, asked = node_context(0, K), []

    def listening(message: Message) -> Message:
        asked.append(message)
        return NATIVE(message, context)

    others = [node_context(k, K) for k in range(1, K)]
    handlers: list[Any] = [lambda m, c=c: NATIVE(m, c) for c in others]
    fitted(InProcessGrid([listening, *handlers]), privacy(1.0, 4, waves=3))
    assert [m.content["config"]["release-round"] for m in asked] == [1, 2, 3, 4]
    first, again = (NATIVE(asked[1], context).content["arrays"] for _ in range(2))
    np.testing.assert_array_equal(first["release"].numpy(), again["release"].numpy())
    # The question of a later wave under the number of an earlier one.
    asked[2].content["config"]["release-round"] = 2
    refusal = NATIVE(asked[2], context).content["config"]["error"]
    assert "another question" in refusal


# ---- the promise -------------------------------------------------------------------


@given(st.integers(2, 50), st.integers(1, 20))
def test_waves_change_nothing_that_a_client_is_asked_for(rounds, waves):
    plain, in_waves = privacy(1.0, rounds), privacy(1.0, rounds, waves=waves)
    assert in_waves.to_config() == plain.to_config()
    assert in_waves.mu() == plain.mu()
    assert in_waves.steps == 2 + (rounds - 2) * waves
    assert math.isclose(in_waves.true_epsilon(), 1.0, rel_tol=1e-9)
