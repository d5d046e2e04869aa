"""Privacy with secure sums: every client adds its part of the noise, under masks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import InProcessGrid, fit, node_context
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from secure_grids import TASKS, apps_on_a_roster, lose, secure_grid

from fedridge_flwr import (
    DifferentialPrivacy,
    FedRidge,
    FedRidgeError,
    NotEnoughClientsError,
    PrivacyLedger,
    PrivacyPolicy,
    SecureSum,
    SitePolicy,
    ridge_client_app,
)
from fedridge_flwr.federation.fits.secure_fit import Members
from fedridge_flwr.privacy import curator
from fedridge_flwr.privacy.release import LENGTH

K, D = 6, 3


def privacy(epsilon: float = 5.0, **options: Any) -> DifferentialPrivacy:
    given = {"trust": "secagg", "min_clients": 4, **options}
    return DifferentialPrivacy(epsilon, 1e-5, x_norm_bound=4.0, y_bound=4.0, **given)


def rows_of(k: int, n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(k)
    X = rng.normal(size=(n, D))
    return X, X @ [1.0, -1.0, 0.5] + 0.1 * rng.normal(size=n)


def load_data(context: Any) -> Any:
    return rows_of(int(context.node_config["partition-id"]))


APP = ridge_client_app(load_data)


def strategy(**settings: Any) -> FedRidge:
    given = {"secure": SecureSum(), "privacy": privacy(), "min_available_nodes": K}
    return FedRidge(0.1, **{**given, **settings})


def run(faults: Any = None, app: ClientApp = APP, **settings: Any) -> FedRidge:
    return fit(strategy(**settings), secure_grid(app, K, faults))


# ---- the sum ------------------------------------------------------------------------


def test_the_total_is_that_of_all_releases_to_the_last_integer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, honest = [], curator.whole_release

    def recorded(*given: Any, **named: Any) -> Any:
        made.append(honest(*given, **named))
        return made[-1]

    monkeypatch.setattr(curator, "whole_release", recorded)
    total = run().statistics_
    assert len(made) == K
    assert total.sums.tolist() == sum(made).tolist()
    assert total.n_clients == K


def test_sums_too_long_for_float64_are_not_rounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = curator.whole_release

    def longer(*given: Any, **named: Any) -> Any:
        return honest(*given, **named).astype(object) + 2**60 + 1

    monkeypatch.setattr(curator, "whole_release", longer)
    found = run().statistics_.sums
    monkeypatch.setattr(curator, "whole_release", honest)
    # Six ones above six times 2^60: float64 would have lost each of them by itself.
    assert (found > 5 * 2.0**60).all()


def test_every_client_adds_its_part_of_the_noise() -> None:
    found = run(privacy=privacy(max_colluding=1)).statistics_
    assert found.noise_factor == pytest.approx(np.sqrt(K / 3))
    alone = run(privacy=privacy(min_clients=K)).statistics_
    assert alone.noise_factor == pytest.approx(1.0)


def test_the_model_is_near_that_of_the_rows() -> None:
    model = run(privacy=privacy(50.0, min_clients=K)).model_
    np.testing.assert_allclose(model.coef_, [1.0, -1.0, 0.5], atol=0.1)


@pytest.mark.parametrize("task", TASKS)
def test_one_client_may_be_lost(task: str) -> None:
    found = run(lose((2,), task)).statistics_
    assert found.n_clients == (K if task in TASKS[3:] else K - 1)


def test_the_number_of_rows_is_not_told() -> None:
    report = run().report_
    assert report.rows_left_out == {}
    assert report.privacy is not None
    assert "secure sum" in str(report.privacy)


# ---- what clients insist on ---------------------------------------------------------


def test_enough_clients_must_be_in_the_sum() -> None:
    whole = privacy(min_clients=K)
    with pytest.raises(NotEnoughClientsError, match="at least 6 needed"):
        run(lose((2,), TASKS[2]), privacy=whole)


def test_clients_count_those_who_delivered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that goes on with fewer gets nothing."""
    monkeypatch.setattr(Members, "check", lambda *given: None)
    with pytest.raises(NotEnoughClientsError, match="6 are needed"):
        run(lose((2,), TASKS[2]), privacy=privacy(min_clients=K))
    with pytest.raises(NotEnoughClientsError):
        run(lose((2,), TASKS[0]), privacy=privacy(min_clients=K))
    assert "takes part from 6" in caplog.text


def test_the_threshold_allows_for_those_that_collude(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    four = privacy(min_clients=K, max_colluding=4)
    assert len(run(privacy=four).report_.participants) == K
    monkeypatch.setattr(SecureSum, "sizes", lambda *given: (K, 5))
    with pytest.raises(NotEnoughClientsError, match="4 of which may collude"):
        run(privacy=four)
    monkeypatch.setattr(SecureSum, "sizes", lambda *given: (5, 5))
    with pytest.raises(NotEnoughClientsError, match="must see all others"):
        run()


def reply_to(app: ClientApp, context: Any, **request: Any) -> str:
    InProcessGrid([])
    content = RecordDict({"config": ConfigRecord(request)})
    answer = app(Message(content, dst_node_id=1000, message_type="train"), context)
    return str(answer.content["config"].get("error", ""))


def asked(trust: str, **more: Any) -> dict[str, Any]:
    promise = privacy(trust=trust).to_config()
    fields = {"release-id": "0" * 32, "release-intercept": True}
    return {**promise, **fields, "release-round": 1, "release-clip": 0.0, **more}


def test_a_part_of_the_noise_is_for_secure_sums_and_the_whole_is_not() -> None:
    context = node_context(0, K)
    plain = asked("secagg", **{"fedridge-protocol": 2})
    assert "go together" in reply_to(APP, context, **plain)
    begins = {"fedridge-task": TASKS[0], "secure-session": bytes(16)}
    local = asked("local", **{"fedridge-protocol": 4}, **begins)
    assert "go together" in reply_to(APP, context, **local)


def test_the_promise_is_the_one_the_sum_began_with() -> None:
    def weaker(message: Message, answer: Any) -> Message:
        config: Any = message.content["config"]
        config.update(privacy(0.5, min_clients=5).to_config())
        return answer()  # type: ignore[no-any-return]

    failures = run(lose((2,), TASKS[2], weaker)).report_.failures
    assert list(failures) == ["1002"]

    def exact(message: Message, answer: Any) -> Message:
        config: Any = message.content["config"]
        for key in [k for k in config if k.startswith(("privacy-", "release-"))]:
            del config[key]
        return answer()  # type: ignore[no-any-return]

    failures = run(lose((2,), TASKS[2], exact)).report_.failures
    assert list(failures) == ["1002"]


def test_policy_and_ledger_hold(tmp_path: Path) -> None:
    def app_of(folder: Path, limit: float) -> ClientApp:
        return ridge_client_app(
            load_data,
            privacy_policy=PrivacyPolicy(limit, 1e-5, trust=("local", "secagg")),
            privacy_ledger=PrivacyLedger(folder / "ledger.db", limit, 1e-5),
            client_name=lambda context: f"site-{context.node_config['partition-id']}",
        )

    app = app_of(tmp_path, 5.0)
    assert len(run(app=app).report_.participants) == K
    with pytest.raises(NotEnoughClientsError):  # the budget is spent
        run(app=app)
    with pytest.raises(NotEnoughClientsError, match="private"):  # nothing exact
        fit(
            FedRidge(secure=SecureSum(), min_available_nodes=K),
            secure_grid(app, K),
        )
    (tmp_path / "other").mkdir()
    with pytest.raises(NotEnoughClientsError):
        run(app=app_of(tmp_path / "other", 1.0))


def test_how_many_may_collude_is_not_the_servers_word() -> None:
    policy = PrivacyPolicy(5.0, 1e-5, trust="secagg", max_colluding=1)
    app = ridge_client_app(load_data, privacy_policy=policy)
    with pytest.raises(NotEnoughClientsError, match="max_colluding 0"):
        run(app=app)
    found = run(app=app, privacy=privacy(max_colluding=1))
    assert len(found.report_.participants) == K


NEEDS = {"require_privacy": True, "max_epsilon": 5.0, "require_secure_sums": True}


def test_a_site_can_require_both(tmp_path: Path) -> None:
    app = apps_on_a_roster(load_data, tmp_path, K, **NEEDS, min_sites=3)
    assert len(run(app=app).report_.participants) == K
    with pytest.raises(NotEnoughClientsError, match="declined by site policy"):
        fit(
            FedRidge(secure=SecureSum(), min_available_nodes=K),
            secure_grid(app, K),
        )


def test_sites_that_a_server_could_invent_add_no_noise() -> None:
    """With 1,200 of them, epsilon 1 was 82, and no rule about rows applies."""
    app = ridge_client_app(load_data, site_policy=SitePolicy(**NEEDS))
    with pytest.raises(NotEnoughClientsError, match='trust="secagg"'):
        run(app=app)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"secure": None}, 'trust="secagg" is for secure sums'),
        ({"privacy": privacy(trust="local")}, 'another trust than "secagg"'),
        ({"secure": SecureSum(neighbours=5)}, "not all others"),
        ({"privacy": privacy(min_clients=1)}, "must be above max_colluding by 2"),
        ({"privacy": privacy(max_colluding=3)}, "must be above max_colluding by 2"),
        ({"cv": "gcv"}, "sum of squared residuals"),
    ],
)
def test_settings_that_do_not_go_together(settings: Any, words: str) -> None:
    with pytest.raises(FedRidgeError, match=words):
        strategy(**settings)


# ---- accuracy -----------------------------------------------------------------------


def excess(d: int, epsilon: float, seed: int, clients: int = 20) -> float:
    """Return the test error of a private model, noise of 0.01 included."""
    truth = np.random.default_rng(seed).normal(size=d)
    truth /= np.linalg.norm(truth)

    def load(context: Any) -> Any:
        k = int(context.node_config["partition-id"])
        rng = np.random.default_rng([seed, k])
        X = rng.normal(size=(400, d))
        return X, X @ truth + 0.1 * rng.normal(size=400)

    promise = DifferentialPrivacy(
        epsilon,
        1e-5,
        x_norm_bound=1.1 * np.sqrt(d),
        y_bound=3.0,
        trust="secagg",
        min_clients=clients,
    )
    found = FedRidge(
        0.01,
        fit_intercept=False,
        privacy=promise,
        secure=SecureSum(),
        min_available_nodes=clients,
    )
    fit(found, secure_grid(ridge_client_app(load), clients))
    gap = found.model_.coef_ - truth
    return float(gap @ gap) + 0.01


def test_noise_on_the_sum_is_little_with_few_features() -> None:
    assert np.mean([excess(10, 1.0, seed) for seed in range(5)]) <= 0.012


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "limit"), [(1.0, 0.10), (2.0, 0.04)])
def test_and_with_many(epsilon: float, limit: float) -> None:
    """With the noise of every client, as trust="local" has it, 0.55 and 0.25."""
    found = [excess(100, epsilon, seed) for seed in range(5)]
    print(epsilon, np.round(found, 4))
    assert np.mean(found) <= limit


def test_the_grid_has_room() -> None:
    assert LENGTH**2 * 10**9 * 1024 < 2**127
