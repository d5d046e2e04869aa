"""Residual refinement: one promise for all rounds, and what it reaches."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from fakes import InProcessGrid, node_context
from flwr.app import Array, ArrayRecord, ConfigRecord, Message
from flwr.clientapp import ClientApp
from flwr.server import ServerAppComponents, ServerConfig
from flwr.serverapp import ServerApp
from hypothesis import given
from hypothesis import strategies as st

from fedridge_flwr import (
    DifferentialPrivacy,
    FedRidge,
    LegacyFedRidge,
    PrivacyError,
    PrivacyPolicy,
    RidgeClient,
    SufficientStatistics,
    ridge_client_app,
    solve,
)
from fedridge_flwr.app.synthetic import paper_rows
from fedridge_flwr.data.rows import check_rows
from fedridge_flwr.privacy.clipping import LENGTH, Bounds
from fedridge_flwr.privacy.refinement.coefficients import ResidualRefinement
from fedridge_flwr.privacy.refinement.curvature import relative_curvature
from fedridge_flwr.privacy.refinement.scale import Scale, unclipped
from fedridge_flwr.privacy.release import ReleaseQuestion, make_release

K, D = 8, 5


def privacy(epsilon: float, rounds: int, d: int = D, **options: Any) -> Any:
    bounds = {"x_norm_bound": 1.5 * math.sqrt(d), "y_bound": 3.0}
    return DifferentialPrivacy(epsilon, 1e-5, rounds=rounds, **{**bounds, **options})


def rows_of(k: int, d: int = D, rows: int = 400) -> tuple[np.ndarray, np.ndarray]:
    return paper_rows(k, rows=rows, features=d, gamma=0.5, seed=0)


def load_data(context: Any) -> Any:
    return rows_of(int(context.node_config["partition-id"]))


NATIVE = ridge_client_app(load_data)
NUMPY = ClientApp(
    client_fn=lambda context: RidgeClient(
        *load_data(context), context=context
    ).to_client()
)


def exact(clients: range = range(K), **options: Any) -> Any:
    parts = [SufficientStatistics.from_data(*rows_of(k)) for k in clients]
    return solve(sum(parts), **{"alpha": 0.1, "fit_intercept": False, **options})


def refined(grid: InProcessGrid, epsilon: float, rounds: int, **options: Any) -> Any:
    settings = {"alpha": 0.1, "fit_intercept": False, **options}
    strategy = FedRidge(
        privacy=privacy(epsilon, rounds), min_available_nodes=K, **settings
    )
    strategy.start(grid, timeout=120)
    return strategy


# ---- one promise for all rounds ----------------------------------------------------


@given(st.integers(2, 1000), st.floats(0.01, 100.0))
def test_the_shares_of_all_rounds_add_up_to_one(rounds, epsilon):
    promise = privacy(epsilon, rounds)
    total = math.fsum(
        math.fsum(promise.shares(t).values()) for t in range(1, rounds + 1)
    )
    assert total == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("rounds", [2, 20])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_the_noise_of_all_rounds_is_one_mechanism(rounds, epsilon):
    """Σ (bound / deviation)² over all blocks and rounds is mu² of the promise."""
    promise = privacy(epsilon, rounds)
    square = math.fsum(
        promise.deviation(block, t) ** -2
        for t in range(1, rounds + 1)
        for block in promise.shares(t)
    )
    assert math.sqrt(square) == pytest.approx(promise.mu(), rel=1e-12)
    assert promise.true_epsilon() == pytest.approx(epsilon, rel=1e-9)


def test_later_rounds_send_answers_about_residuals_only():
    rows = check_rows(*rows_of(0))
    promise = privacy(1.0, 5)
    first = make_release(
        rows, promise, intercept=True, question=ReleaseQuestion(1, None, 1.0)
    )
    later = make_release(
        rows, promise, intercept=True, question=ReleaseQuestion(2, np.zeros(D + 1), 1.0)
    )
    assert first.size == 2 + (D + 1) * (D + 2) // 2 + D + 2
    assert later.size == D + 2


@pytest.mark.parametrize(
    "question",
    [ReleaseQuestion(2, np.zeros(D), 1.0), ReleaseQuestion(2, np.zeros(D + 1), 0.0)],
)
def test_questions_that_do_not_fit_are_refused(question):
    rows = check_rows(*rows_of(0))
    with pytest.raises(PrivacyError, match="does not fit"):
        make_release(rows, privacy(1.0, 5), intercept=True, question=question)


def test_one_target_only():
    X, y = rows_of(0)
    rows = check_rows(X, np.column_stack([y, y]))
    with pytest.raises(PrivacyError, match="one target"):
        make_release(
            rows,
            privacy(1.0, 5),
            intercept=False,
            question=ReleaseQuestion(1, None, 1.0),
        )


def test_replacing_a_record_needs_twice_the_noise():
    added, replaced = (
        privacy(1.0, 5, neighboring=n) for n in ("add-or-remove-one", "replace-one")
    )
    ratio = replaced.deviation("residual", 2) / added.deviation("residual", 2)
    assert ratio == pytest.approx(2.0)


def test_a_client_answers_every_round_once():
    asked: list[Message] = []
    context = node_context(0, 1)

    def listening(message: Message) -> Message:
        asked.append(message)
        return NATIVE(message, context)

    others = [node_context(k, K) for k in range(1, K)]
    handlers: list[Any] = [lambda m, c=c: NATIVE(m, c) for c in others]
    refined(InProcessGrid([listening, *handlers]), 1.0, 4)
    assert len(asked) == 4
    again = NATIVE(asked[2], context).content
    np.testing.assert_array_equal(
        again["arrays"]["release"].numpy(),
        NATIVE(asked[2], context).content["arrays"]["release"].numpy(),
    )
    forged = asked[2]
    forged.content["config"]["release-clip"] = 123.0
    refusal = NATIVE(forged, context).content["config"]["error"]
    assert "another question" in refusal
    forged.content["config"]["release-round"] = 5
    assert "round 5 of 4" in NATIVE(forged, context).content["config"]["error"]


# ---- what it reaches ---------------------------------------------------------------


@pytest.mark.parametrize("trust", ["local", "server"])
def test_it_tends_to_the_ridge_solution(trust):
    strategy = FedRidge(
        alpha=0.1,
        fit_intercept=False,
        privacy=privacy(1e6, 15, trust=trust),
        min_available_nodes=K,
    )
    strategy.start(InProcessGrid.of_app(NATIVE, K), timeout=120)
    expected = exact().coef_
    gap = np.linalg.norm(strategy.model_.coef_ - expected)
    assert gap < 5e-3 * np.linalg.norm(expected)
    report = strategy.report_.privacy
    assert report.releases == 15
    assert report.estimator == "refinement"
    assert "estimates medians" in " ".join(report.damage)
    assert abs(strategy.model_.n_rows_ - K * 400) < 100


def test_it_finds_an_intercept():
    app = ridge_client_app(lambda c: (lambda X, y: (X, y + 1.0))(*load_data(c)))
    strategy = refined(InProcessGrid.of_app(app, K), 1e6, 15, fit_intercept=True)
    assert strategy.model_.intercept_ == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("app", [NATIVE, NUMPY], ids=["message", "numpy"])
def test_the_older_api_needs_as_many_rounds(app):
    strategy = LegacyFedRidge(alpha=0.1, fit_intercept=False, privacy=privacy(1e4, 6))
    server = ServerApp(
        server_fn=lambda _: ServerAppComponents(
            strategy=strategy, config=ServerConfig(num_rounds=6)
        )
    )
    server(InProcessGrid.of_app(app, K), node_context(0, 1))
    expected = exact().coef_
    gap = np.linalg.norm(strategy.model_.coef_ - expected)
    assert gap < 0.1 * np.linalg.norm(expected)
    assert strategy.report_.privacy.releases == 6


def test_more_rounds_help_where_one_shot_is_mostly_noise():
    d, errors = 60, {}
    rows = [rows_of(k, d, 300) for k in range(K)]
    app = ridge_client_app(lambda c: rows[int(c.node_config["partition-id"])])
    X = np.concatenate([part[0] for part in rows])
    y = np.concatenate([part[1] for part in rows])
    for rounds in (1, 20):
        strategy = FedRidge(
            alpha=0.1,
            fit_intercept=False,
            privacy=privacy(2.0, rounds, d),
            min_available_nodes=K,
        )
        strategy.start(InProcessGrid.of_app(app, K), timeout=60)
        errors[rounds] = np.mean((strategy.model_.predict(X) - y) ** 2)
    assert errors[20] < 0.3 * errors[1]


def test_when_the_rows_do_not_stand_out_everything_is_zero():
    tiny = ridge_client_app(lambda c: tuple(part[:2] for part in load_data(c)))
    strategy = refined(InProcessGrid.of_app(tiny, K), 0.01, 3)
    assert not strategy.model_.coef_.any()
    assert strategy.model_.n_rows_ is None
    assert "all coefficients are 0" in str(strategy.report_)


def test_clients_that_drop_out_are_named_and_the_rest_goes_on():
    contexts = [node_context(k, K) for k in range(K)]
    calls = dict.fromkeys(range(K), 0)

    def node(k: int) -> Any:
        def handle(message: Message) -> Message:
            calls[k] += 1
            if k < 2 and calls[k] > 3:
                raise RuntimeError("gone")
            return NATIVE(message, contexts[k])

        return handle

    strategy = refined(InProcessGrid([node(k) for k in range(K)]), 1e5, 8)
    assert len(strategy.report_.participants) == K
    assert set(strategy.report_.failures) == {"1000", "1001"}
    assert strategy.report_.failures["1000"].startswith("round 4 of 8: ")
    assert calls[0] == 4
    expected = exact().coef_
    gap = np.linalg.norm(strategy.model_.coef_ - expected)
    assert gap < 0.1 * np.linalg.norm(expected)


def _with_last(answer: Any, rounds: int = 4, n_clients: int = 3, **options: Any) -> Any:
    """Return a fit in which the last client answers from round 2 on as it likes."""
    contexts = [node_context(k, n_clients) for k in range(n_clients)]
    calls = [0]

    def hostile(message: Message) -> Message:
        calls[0] += 1
        own = contexts[-1]
        if calls[0] == 1:
            return NATIVE(message, own)
        return answer(message, NATIVE(message, own))

    handlers: list[Any] = [
        lambda m, c=context: NATIVE(m, c) for context in contexts[:-1]
    ]
    # It answers first, where ties are decided.
    strategy = FedRidge(
        alpha=0.1,
        fit_intercept=False,
        privacy=privacy(1e5, rounds),
        min_available_nodes=n_clients,
        **options,
    )
    strategy.start(InProcessGrid([hostile, *handlers]), timeout=120)
    return strategy


@pytest.mark.parametrize("field", ["n-features", "n-targets"])
def test_other_columns_in_a_later_round_are_refused(field):
    def other(message: Message, reply: Message) -> Message:
        reply.content["config"][field] = 7
        size = 8 if field == "n-features" else D + 1
        reply.content["arrays"] = ArrayRecord({"release": Array(np.zeros(size))})
        return reply

    strategy = _with_last(other)
    assert list(strategy.report_.failures) == ["1000"]
    assert "round 2 of 4" in strategy.report_.failures["1000"]
    assert np.isfinite(strategy.model_.coef_).all()


@pytest.mark.parametrize("value", [-(2.0**73), 2.0**73])
def test_absurd_answers_end_in_a_finite_model(value):
    def absurd(message: Message, reply: Message) -> Message:
        reply.content["arrays"] = ArrayRecord({"release": Array(np.full(D + 1, value))})
        return reply

    strategy = _with_last(absurd, rounds=60)
    assert np.isfinite(strategy.model_.coef_).all()


def test_too_few_answers_in_a_later_round_end_the_fit_with_what_is_reached():
    def gone(message: Message, reply: Message) -> Message:
        raise RuntimeError("gone")

    strategy = _with_last(gone, n_clients=2, min_train_nodes=2)
    assert strategy.model_.coef_.any()
    assert "ended in round 2 of 4" in str(strategy.report_)


class _Leaving(InProcessGrid):
    """A grid that some nodes leave after the first round."""

    staying = 0

    def get_node_ids(self):
        nodes = list(super().get_node_ids())
        return nodes if not self.sent else nodes[: self.staying]


@pytest.mark.parametrize("staying", [0, 2])
def test_clients_that_disconnect_are_named(staying):
    grid = _Leaving.of_app(NATIVE, 3)
    grid.staying = staying
    strategy = FedRidge(
        fit_intercept=False, privacy=privacy(1e4, 3), min_available_nodes=3
    )
    strategy.start(grid, timeout=120)
    gone = [str(1000 + k) for k in range(staying, 3)]
    assert list(strategy.report_.failures) == gone
    assert "not connected" in strategy.report_.failures[gone[0]]
    assert strategy.model_.coef_.any()
    assert strategy.report_.privacy.releases == (3 if staying else 2)


def test_the_older_api_keeps_what_was_reached_when_all_disconnect():
    grid = _Leaving.of_app(NATIVE, 3)
    models: list[Any] = []
    strategy = LegacyFedRidge(
        fit_intercept=False,
        privacy=privacy(1e4, 3),
        min_available_clients=3,
        on_model=models.append,
    )
    server = ServerApp(
        server_fn=lambda _: ServerAppComponents(
            strategy=strategy, config=ServerConfig(num_rounds=3)
        )
    )
    server(grid, node_context(0, 1))
    assert models[0].coef_.any()


def test_a_strategy_used_again_begins_another_fit():
    grid = InProcessGrid.of_app(NATIVE, 3)
    strategy = FedRidge(
        fit_intercept=False, privacy=privacy(1e4, 3), min_available_nodes=3
    )
    requests = strategy.configure_train(1, ArrayRecord(), ConfigRecord(), grid)
    strategy.aggregate_train(1, grid.send_and_receive(list(requests), timeout=120))
    strategy.start(grid, timeout=120)
    rounds = [m.content["config"]["release-round"] for m in grid.sent]
    assert rounds == [1] * 3 + [t for t in (1, 2, 3) for _ in range(3)]


def test_a_policy_grants_all_rounds_or_none():
    app = ridge_client_app(load_data, privacy_policy=PrivacyPolicy(1.0, 1e-5))
    strategy = refined(InProcessGrid.of_app(app, K), 1.0, 3)
    assert len(strategy.report_.participants) == K
    assert strategy.report_.failures == {}


# ---- its parts ---------------------------------------------------------------------


@given(st.floats(1e-3, 1e3))
def test_the_unclipped_fraction_against_a_sum(width):
    z = np.linspace(-10, 10, 200_001)
    weight = np.exp(-(z**2) / 2)
    angle = np.clip(z / width, -np.pi / 2, np.pi / 2)
    expected = float((np.cos(angle) * weight).sum() / weight.sum())
    assert unclipped(width) == pytest.approx(expected, rel=1e-2, abs=1e-4)


def test_the_scale_is_followed():
    scale = Scale(0.0)
    for _ in range(30):
        clip = 0.5 * scale.value
        scale.observe(unclipped(clip / 0.1), clip, 1e-3)
    assert scale.value == pytest.approx(0.1, rel=0.02)


def test_curvature_without_noise_is_the_gram_matrix_over_its_mean():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(50, 4)) * [1.0, 2.0, 3.0, 4.0]
    G = A.T @ A
    shape = relative_curvature(G, 1e-9, float(np.trace(G)))
    again = shape.vectors * shape.values @ shape.vectors.T
    np.testing.assert_allclose(again, G / (np.trace(G) / 4), rtol=1e-6, atol=1e-8)


def test_curvature_that_is_all_noise_is_flat():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(30, 30))
    shape = relative_curvature(1.0 * np.eye(30) + (noise + noise.T) / 2, 1.0, 30.0)
    np.testing.assert_allclose(shape.values, 1.0, atol=0.2)


def test_bounds_of_a_row_include_the_constant():
    bounds = Bounds(2.0, 1.0, 4, 1, True)
    assert bounds.width == 5
    assert (bounds.constant * bounds.x_step) == pytest.approx(1.0, abs=1e-5)


# ---- what is known beforehand --------------------------------------------------------


class _Answer:
    """The noisy answer of rows of length 2 about residuals that are noise alone."""

    n_clients = server_round = 1
    gram_sd = 50.0

    def __init__(self, noise: float, trace: float) -> None:
        self._noise = noise
        self.count, self.trace, self.gram = 100.0, trace, trace / D * np.eye(D)
        rng = np.random.default_rng(0)
        self.residual = np.append(10.0 * rng.normal(size=D), 12.0)

    def deviation(self, block: str) -> float:
        unit = {"count": LENGTH**2, "trace": (LENGTH / 4.0) ** 2}
        return self._noise * unit.get(block, LENGTH**2)


def _asked_once(answer: Any, expected_r2: float = 1.0) -> ResidualRefinement:
    bounds = Bounds(4.0, 3.0, D, 1, intercept=False)
    refinement = ResidualRefinement(bounds, 0.1, 1.0, expected_r2)
    assert refinement.update(answer)
    return refinement


def test_the_length_of_rows_is_what_was_measured_as_far_as_it_is_clear():
    """Without noise trace / count, with ever more of it 0.75 of the bound squared."""
    square = [_asked_once(_Answer(n, 400.0))._square for n in (1e-9, 1.0, 10.0, 30.0)]
    assert square[0] == pytest.approx(4.0)
    assert square == sorted(square)
    assert square[-1] < 0.75 * 4.0**2
    assert _asked_once(_Answer(1e-9, 1e9))._square == 4.0**2


def test_the_less_signal_is_expected_the_more_coefficients_are_shrunk():
    sizes = [
        np.linalg.norm(_asked_once(_Answer(10.0, 400.0), r2).coef)
        for r2 in (1.0, 0.6, 0.2, 0.01)
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 0.6 * sizes[0]
