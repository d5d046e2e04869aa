"""Residual refinement by secure sums: one in every round, with noise once."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import InProcessGrid, fit, node_context
from flwr.app import Message
from flwr.clientapp import ClientApp
from secure_grids import (
    TASKS,
    Fault,
    apps_on_a_roster,
    lost,
    secure_grid,
    task_of,
    with_array,
)
from shared_simulation import SharedSimulation

from fedridge_flwr import (
    DifferentialPrivacy,
    FedRidge,
    NotEnoughClientsError,
    PrivacyError,
    PrivacyLedger,
    PrivacyPolicy,
    SecurePolicy,
    SecureSum,
    ridge_client_app,
)
from fedridge_flwr.federation.secure_sum.server_steps import SecureSession
from fedridge_flwr.federation.settings import SECURE_ROUNDS
from fedridge_flwr.privacy.release import Layout

K, D, ROUNDS = 6, 3, 4
TRUTH = [1.0, -1.0, 0.5]


def privacy(epsilon: float = 5.0, **options: Any) -> DifferentialPrivacy:
    given = {"trust": "secagg", "min_clients": 4, "rounds": ROUNDS, **options}
    return DifferentialPrivacy(epsilon, 1e-5, x_norm_bound=4.0, y_bound=4.0, **given)


def load_data(context: Any) -> Any:
    rng = np.random.default_rng(int(context.node_config["partition-id"]))
    X = rng.normal(size=(200, D))
    return X, X @ TRUTH + 0.1 * rng.normal(size=200)


APP = ridge_client_app(load_data)


def strategy(**settings: Any) -> FedRidge:
    given = {"secure": SecureSum(), "privacy": privacy(), "min_available_nodes": K}
    return FedRidge(0.1, **{**given, **settings})


def run(
    app: ClientApp = APP, grid: InProcessGrid | None = None, **settings: Any
) -> Any:
    return fit(strategy(**settings), grid or secure_grid(app, K))


def round_of(message: Message) -> int:
    """Return the round of a sum, which two of its five messages tell."""
    return int(message.content["config"].get("release-round", 0))


def losing(clients: Collection[int], server_round: int, task: str) -> InProcessGrid:
    """Return a grid in which clients are lost in one exchange of one round."""
    return faulty(clients, server_round, task, lost)


def faulty(
    clients: Collection[int], server_round: int, task: str, fault: Fault
) -> InProcessGrid:
    """Return a grid in which clients misbehave in one exchange of one round."""

    def node(k: int) -> Callable[[Message], Message]:
        context, now = node_context(k, K), [0]

        def handle(message: Message) -> Message:
            now[0] = round_of(message) or now[0]
            if k in clients and (now[0], task_of(message)) == (server_round, task):
                return fault(message, lambda: APP(message, context))
            return APP(message, context)

        return handle

    return InProcessGrid([node(k) for k in range(K)])


@pytest.fixture
def no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(self: Layout, part: float, source: Any = None) -> np.ndarray:
        return np.zeros(self.length, dtype=np.int64)

    monkeypatch.setattr(Layout, "noise", none)


# ---- what it reaches ----------------------------------------------------------------


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("epsilon", [0.5, 5.0])
def test_it_is_the_fit_with_noise_by_the_server(
    epsilon: float, intercept: bool
) -> None:
    """Without noise both see the same sums, and so ask the same questions."""
    secure = run(privacy=privacy(epsilon, min_clients=K), fit_intercept=intercept)
    trusted = fit(
        strategy(
            privacy=privacy(epsilon, trust="server", min_clients=1),
            secure=None,
            fit_intercept=intercept,
        ),
        InProcessGrid.of_app(APP, K),
    )
    found, expected = secure.model_, trusted.model_
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-9, atol=1e-12)
    assert found.intercept_ == pytest.approx(expected.intercept_, rel=1e-9)
    assert np.abs(found.coef_).max() > 0.1


def test_with_noise_it_is_near_the_truth() -> None:
    found = run(privacy=privacy(50.0, min_clients=K), fit_intercept=False)
    np.testing.assert_allclose(found.model_.coef_, TRUTH, atol=0.05)
    report = found.report_
    assert report.privacy.releases == ROUNDS
    assert "totals only" in report.mode


def test_every_round_is_a_sum_of_its_own() -> None:
    grid = secure_grid(APP, K)
    run(grid=grid)
    sent = [task_of(message) for message in grid.sent]
    assert sent == [task for _ in range(ROUNDS) for task in TASKS for _ in range(K)]
    assert len(sent) == K * ROUNDS * SECURE_ROUNDS
    sessions = {m.content["config"].get("secure-session") for m in grid.sent}
    assert len(sessions - {None}) == ROUNDS


def test_every_client_adds_its_part_of_the_noise_in_every_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts, honest = [], Layout.noise

    def recorded(self: Layout, part: float, source: Any = None) -> Any:
        parts.append((self.server_round, part))
        return honest(self, part)

    monkeypatch.setattr(Layout, "noise", recorded)
    run(privacy=privacy(max_colluding=1))
    each = 1 / np.sqrt(4 - 1)
    expected = [(r, pytest.approx(each)) for r in range(1, ROUNDS + 1)]
    assert sorted(parts) == [pair for pair in expected for _ in range(K)]


def test_moments_are_one_sum() -> None:
    asked = privacy(50.0, rounds=1, estimator="moments", min_clients=K)
    grid = secure_grid(APP, K)
    found = run(grid=grid, privacy=asked)
    assert len(grid.sent) == K * SECURE_ROUNDS
    assert found.report_.privacy.estimator == "moments"
    assert found.model_.coef_[0] > 0.3


# ---- clients that are lost ----------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("server_round", [1, 2, ROUNDS])
def test_one_client_may_be_lost(server_round: int, task: str) -> None:
    grid = losing([2], server_round, task)
    found = run(grid=grid, privacy=privacy(50.0), fit_intercept=False)
    np.testing.assert_allclose(found.model_.coef_, TRUTH, atol=0.1)
    report = found.report_
    assert report.privacy.releases == ROUNDS
    delivered = task in TASKS[3:]
    assert list(report.failures) == ([] if delivered else ["1002"])
    if not delivered and server_round > 1:
        assert report.failures["1002"].startswith(f"round {server_round} of {ROUNDS}")
        later = [m for m in grid.sent if round_of(m) > server_round]
        assert all(m.metadata.dst_node_id != 1002 for m in later)


@pytest.mark.parametrize("task", TASKS)
def test_with_too_few_in_the_first_round_there_is_nothing(task: str) -> None:
    with pytest.raises(NotEnoughClientsError, match="needed"):
        run(grid=losing([1, 2, 3], 1, task))


@pytest.mark.parametrize("task", TASKS)
def test_with_too_few_later_the_round_is_not_released(
    task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is that of the rounds before; nobody learns the sum of this one."""
    seen, honest = [], SecureSession.total

    def recorded(self: SecureSession) -> Any:
        seen.append(self.terms.shape)
        found = honest(self)
        seen[-1] = found.shape
        return found

    monkeypatch.setattr(SecureSession, "total", recorded)
    found = run(grid=losing([1, 2, 3], 3, task), privacy=privacy(50.0))
    totals = 3 if task == TASKS[4] else 2  # shares are missing for the third
    assert len(seen) == totals
    privately = found.report_.privacy
    assert any(f"ended in round 3 of {ROUNDS}" in text for text in privately.damage)
    assert privately.releases == 3
    assert np.abs(found.model_.coef_).max() > 0.1


def test_numbers_that_no_rows_have_end_a_later_round_and_not_the_fit() -> None:
    """One client that breaks the protocol does not take what the others have paid."""

    def huge(words: np.ndarray) -> np.ndarray:
        words = words.copy()
        words[0, 1] += np.uint64(2**50)
        return words

    grid = faulty([2], 3, TASKS[2], with_array(huge))
    privately = run(grid=grid, privacy=privacy(50.0)).report_.privacy
    assert privately.releases == 3
    assert any("too large numbers" in text for text in privately.damage)


@pytest.mark.parametrize("task", TASKS)
def test_a_threshold_of_all_ends_the_fit_when_one_is_lost_later(task: str) -> None:
    given = {"secure": SecureSum(threshold=K), "privacy": privacy(50.0)}
    privately = run(grid=losing([2], 3, task), **given).report_.privacy
    assert privately.releases == 3
    assert any(f"ended in round 3 of {ROUNDS}" in text for text in privately.damage)


# ---- what clients insist on ---------------------------------------------------------


def test_a_ledger_is_charged_once_before_the_first_answer(tmp_path: Path) -> None:
    def app_of(limit: float) -> ClientApp:
        return ridge_client_app(
            load_data,
            privacy_policy=PrivacyPolicy(limit, 1e-5, trust="secagg"),
            privacy_ledger=PrivacyLedger(tmp_path / "ledger.db", limit, 1e-5),
            client_name=lambda context: f"site-{context.node_config['partition-id']}",
        )

    assert run(app_of(5.0)).report_.privacy.releases == ROUNDS
    ledger = PrivacyLedger(tmp_path / "ledger.db", 5.0, 1e-5)
    spent = ledger.spent("site-0")
    assert (spent.releases, spent.epsilon) == (1, pytest.approx(5.0))
    with pytest.raises(NotEnoughClientsError):
        run(app_of(5.0))


def test_sites_mark_every_round_on_their_disk(tmp_path: Path) -> None:
    needs = {"require_privacy": True, "max_epsilon": 5.0, "require_secure_sums": True}
    app = apps_on_a_roster(load_data, tmp_path, K, **needs, min_sites=3, state=True)
    run(app)
    marks = [path.name for path in (tmp_path / "0").glob("secure-*")]
    # Each of five steps in each round: for the sum, the run and the fit.
    assert len(marks) == 3 * SECURE_ROUNDS * ROUNDS
    assert sum("-round-3-" in name for name in marks) == 2 * SECURE_ROUNDS


@pytest.mark.parametrize("task", [TASKS[0], TASKS[2]])
def test_a_message_that_comes_twice_is_refused(task: str) -> None:
    replies: list[str] = []

    def node(k: int) -> Callable[[Message], Message]:
        context = node_context(k, K)

        def handle(message: Message) -> Message:
            reply = APP(message, context)
            if k == 2 and (round_of(message), task_of(message)) == (2, task):
                again = APP(message, context)
                replies.append(str(again.content["config"].get("error")))
            return reply

        return handle

    run(grid=InProcessGrid([node(k) for k in range(K)]))
    (reply,) = replies
    assert "has sent its keys" in reply or "every step" in reply


def test_another_question_to_one_client_leaves_it_out() -> None:
    """Its masks are of other terms than those of the others."""

    def node(k: int) -> Callable[[Message], Message]:
        context = node_context(k, K)

        def handle(message: Message) -> Message:
            if k == 2 and (round_of(message), task_of(message)) == (2, TASKS[2]):
                config: Any = message.content["config"]
                config["release-clip"] = 2 * config["release-clip"]
            return APP(message, context)

        return handle

    found = run(grid=InProcessGrid([node(k) for k in range(K)]))
    assert list(found.report_.failures) == ["1002"]
    assert "than was agreed on" in found.report_.failures["1002"]


def test_a_plain_fit_is_one_sum() -> None:
    """What several rounds allow is not for exact numbers."""
    app = ridge_client_app(load_data, secure_policy=SecurePolicy())
    grid = secure_grid(app, K)
    plain = {"secure": SecureSum(), "min_available_nodes": K}
    fit(FedRidge(0.1, **plain), grid)
    with pytest.raises(NotEnoughClientsError, match="only once"):
        fit(FedRidge(0.1, **plain), grid)
    with pytest.raises(NotEnoughClientsError, match="only once"):
        run(grid=grid)


def test_coefficients_on_the_wire_are_a_vector() -> None:
    def node(k: int) -> Callable[[Message], Message]:
        context = node_context(k, K)

        def handle(message: Message) -> Message:
            if k == 2 and (round_of(message), task_of(message)) == (2, TASKS[2]):
                message.content["arrays"].pop("coef")  # type: ignore[union-attr]
            return APP(message, context)

        return handle

    found = run(grid=InProcessGrid([node(k) for k in range(K)]))
    assert list(found.report_.failures) == ["1002"]


def test_waves_would_divide_the_information() -> None:
    with pytest.raises(PrivacyError, match="waves need"):
        privacy(waves=2)


# ---- in Ray -------------------------------------------------------------------------


@pytest.mark.ray
def test_in_a_simulation(simulation: SharedSimulation) -> None:
    asked = strategy(privacy=privacy(50.0, min_clients=K), fit_intercept=False)
    simulation.run(lambda grid: asked.start(grid, timeout=300), APP, K)
    np.testing.assert_allclose(asked.model_.coef_, TRUTH, atol=0.05)
    assert len(asked.report_.participants) == K
