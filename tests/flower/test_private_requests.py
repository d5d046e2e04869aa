"""Private fits in both APIs: what leaves a client, what is refused, what is told."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pytest
import wire
from fakes import InProcessGrid, drive, node_context, set_task_identity
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from privacy_mechanisms import seeded_source
from secure_grids import with_array

from fedridge_flwr import (
    DifferentialPrivacy,
    FedRidge,
    LegacyFedRidge,
    NotEnoughClientsError,
    PrivacyError,
    PrivacyLedger,
    PrivacyPolicy,
    PrivacyWarning,
    RidgeClient,
    RidgeModel,
    SufficientStatistics,
    ridge_client_app,
    solve,
)
from fedridge_flwr.flower.exchange import message_bytes
from fedridge_flwr.flower.protocol.array_records import model_arrays
from fedridge_flwr.flower.release_memory import ReleaseMemory, forget_releases
from fedridge_flwr.privacy import release
from fedridge_flwr.privacy.gaussian_sampler import discrete_gaussian
from fedridge_flwr.privacy.privacy_report import accuracy_advice
from fedridge_flwr.regression.alpha.leave_client_out import HeldOut

K, D = 6, 4
BOUNDS = {"x_norm_bound": 4.0, "y_bound": 6.0}
EXPECTED = {"n_features": 100, "n_rows": 8000, "n_clients": 20}


def privacy(epsilon: float = 1.0, **options: Any) -> DifferentialPrivacy:
    return DifferentialPrivacy(epsilon, 1e-5, **{**BOUNDS, **options})


def rows_of(k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(k)
    X = rng.uniform(-1, 1, size=(200 + k, D))
    return X, X @ [1.0, -1.0, 0.5, 2.0] + 0.7 + 0.1 * rng.normal(size=len(X))


def load_data(context: Any) -> Any:
    return rows_of(int(context.node_config["partition-id"]))


def exact_model(clients: range | list[int], **options: Any) -> Any:
    parts = [SufficientStatistics.from_data(*rows_of(k)) for k in clients]
    return solve(sum(parts), **options)


NATIVE = ridge_client_app(load_data)
NUMPY = ClientApp(
    client_fn=lambda context: RidgeClient(
        *load_data(context), context=context
    ).to_client()
)


def fit(strategy: Any, grid: InProcessGrid) -> Any:
    if isinstance(strategy, LegacyFedRidge):
        drive(strategy, grid, num_rounds=strategy._settings.rounds)
    else:
        strategy.start(grid, timeout=120)
    return strategy


# ---- the answer -------------------------------------------------------------------


@pytest.mark.parametrize("app", [NATIVE, NUMPY], ids=["message", "numpy"])
@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("trust", ["local", "server"])
def test_with_hardly_any_noise_the_model_is_the_exact_one(app, kind, intercept, trust):
    strategy = kind(
        alpha=0.5,
        fit_intercept=intercept,
        privacy=privacy(1e12, trust=trust),
        min_available_nodes=K,
    )
    fit(strategy, InProcessGrid.of_app(app, K))
    expected = exact_model(range(K), alpha=0.5, fit_intercept=intercept)
    model = strategy.model_
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=2e-4)
    np.testing.assert_allclose(model.intercept_, expected.intercept_, atol=2e-4)
    report = strategy.report_
    assert len(report.participants) == K
    assert report.privacy.epsilon == 1e12
    if intercept:
        assert report.n_rows == sum(len(rows_of(k)[1]) for k in range(K))
    else:
        assert report.n_rows is None


def test_the_report_says_what_is_promised_and_what_it_costs():
    # Once in a hundred fits the noise looks like a signal.
    for _ in range(5):
        strategy = FedRidge(privacy=privacy(0.1), min_available_nodes=K)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", PrivacyWarning)
            fit(strategy, InProcessGrid.of_app(NATIVE, K))
        if any("every coefficient is 0" in str(each.message) for each in caught):
            break
    else:
        pytest.fail("five private models of noise alone")
    report = strategy.report_.privacy
    assert (report.epsilon, report.delta, report.unit) == (0.1, 1e-5, "record")
    assert report.neighboring == "add-or-remove-one"
    assert report.releases == 1
    assert report.noise_multiplier == pytest.approx(30.75, rel=1e-3)
    sd = report.noise_multiplier * np.sqrt(K)
    length = BOUNDS["x_norm_bound"] * np.sqrt(1 + 1 / D)
    gram, moment = sd * length**2 / 0.35**0.5, sd * length * 6.0 / 0.65**0.5
    assert report.deviations["gram"] == pytest.approx(gram, rel=1e-6)
    assert report.deviations["moment"] == pytest.approx(moment, rel=1e-6)
    text = str(strategy.report_)
    for words in (
        "NOT USABLE",
        "epsilon 0.1",
        "for each record",
        "rows to length 4, targets to 6",
        "mostly noise",
        "larger epsilon",
    ):
        assert words in text
    assert "withheld" in text
    assert strategy.report_.to_dict()["privacy"]["epsilon"] == 0.1
    assert strategy.model_.r2_ is None


def test_the_noise_of_all_clients_is_in_the_sum_and_once_with_a_trusted_server():
    found = {}
    for trust in ("local", "server"):
        strategy = FedRidge(privacy=privacy(trust=trust), min_available_nodes=K)
        fit(strategy, InProcessGrid.of_app(NATIVE, K))
        found[trust] = strategy.report_.privacy.deviations["gram"]
    assert found["local"] == pytest.approx(np.sqrt(K) * found["server"])


@pytest.mark.parametrize("app", [NATIVE, NUMPY])
def test_moments_alone_are_one_round(app):
    """The question about residuals, once: enough where all features vary alike."""
    asked = privacy(0.5, estimator="auto", expected=EXPECTED)
    assert asked.estimator == "moments"
    strategy = FedRidge(privacy=asked, min_available_nodes=K)
    grid = InProcessGrid.of_app(app, K)
    fit(strategy, grid)
    assert len(grid.sent) == K
    report = strategy.report_.privacy
    assert (report.estimator, report.releases) == ("moments", 1)
    assert set(report.deviations) == {"gram", "residual"}
    with pytest.raises(PrivacyError, match="alpha cannot be chosen"):
        FedRidge(privacy=asked, alphas="auto")
    with pytest.raises(PrivacyError):
        FedRidge(privacy=privacy(estimator="moments", trust="secagg"))


def test_a_share_for_the_targets_gives_a_noisy_r2():
    split = {"gram": 0.45, "moment": 0.45, "target_gram": 0.1}
    strategy = FedRidge(
        alpha=0.0, privacy=privacy(1e10, budget_split=split), min_available_nodes=K
    )
    fit(strategy, InProcessGrid.of_app(NATIVE, K))
    expected = exact_model(range(K), alpha=0.0)
    assert strategy.model_.r2_ == pytest.approx(expected.r2_, abs=1e-3)


def test_alpha_is_chosen_from_the_noisy_statistics():
    strategy = FedRidge(alphas=[1e-3, 1e9], privacy=privacy(1e4), min_available_nodes=K)
    fit(strategy, InProcessGrid.of_app(NATIVE, K))
    assert strategy.model_.alpha_ == 1e-3
    assert "privacy noise" in strategy.model_.alpha_chosen_by
    assert strategy.selection_.method == "noise"
    automatic = FedRidge(alphas="auto", privacy=privacy(1e4), min_available_nodes=K)
    fit(automatic, InProcessGrid.of_app(NATIVE, K))
    assert automatic.selection_.alphas.size == 30


# ---- what leaves a client -----------------------------------------------------------


def private_request(release: str = "0" * 32, **options: Any) -> Message:
    set_task_identity()
    asked = {
        **privacy(**options).to_config(),
        wire.PROTOCOL_KEY: 2,
        "release-id": release,
        "release-intercept": True,
        "release-round": 1,
        "release-clip": 0.0,
    }
    message = Message(wire.train_request(asked), dst_node_id=1000, message_type="train")
    message.metadata.__dict__["_message_id"] = "1"
    return message


def answer(app: ClientApp, message: Message, context: Any = None) -> RecordDict:
    return app(message, context or node_context(0, 1)).content


def app_of(X: Any, y: Any, **options: Any) -> ClientApp:
    return ridge_client_app(lambda _: (X, y), **options)


def test_nothing_but_the_release_and_the_schema_travels():
    content = answer(app_of(*rows_of(0)), private_request())
    assert set(content) == {"arrays", "metrics", "config"}
    assert list(content["arrays"]) == ["release"]
    assert dict(content["metrics"]) == {"num-examples": 1}
    assert dict(content["config"]) == {
        wire.PROTOCOL_KEY: 1,
        "kind": "private",
        "n-features": D,
        "n-targets": 1,
        "client-name": "partition 0",  # what it was started with
    }


@pytest.mark.parametrize(
    "rows",
    [
        (np.zeros((0, D)), np.zeros(0)),
        (np.ones((1, D)), np.ones(1)),
        (np.full((5, D), np.nan), np.ones(5)),
        (np.full((5, D), 1e308), np.full(5, -1e308)),
        (np.ones((3000, D)), np.ones(3000)),
    ],
    ids=["no rows", "one row", "NaN", "huge", "many"],
)
def test_answers_look_alike_whatever_the_rows(rows):
    """Every client answers, and size and form of the answer reveal nothing."""
    usual = app_of(*rows_of(0))(private_request(), node_context(0, 1))
    message = app_of(*rows)(private_request(), node_context(0, 1))
    assert message_bytes(message) == message_bytes(usual)
    assert dict(message.content["metrics"]) == dict(usual.content["metrics"])
    assert dict(message.content["config"]) == dict(usual.content["config"])
    release = message.content["arrays"]["release"].numpy()
    assert np.isfinite(release).all()


@pytest.mark.parametrize("app", [NATIVE, NUMPY], ids=["message", "numpy"])
def test_a_release_is_made_once_and_sent_again_on_retry(app):
    context = node_context(0, 1)
    first, again, other = (
        _release(answer(app, private_request(name * 32), context)) for name in "aab"
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def _release(content: RecordDict) -> np.ndarray:
    (record,) = content.array_records.values()
    (array,) = record.values()
    return np.asarray(array.numpy())


def test_the_terms_of_a_fit_cannot_change_after_it_began():
    context = node_context(0, 1)
    answer(NATIVE, private_request(), context)
    content = answer(NATIVE, private_request(epsilon=5.0), context)
    assert "have changed since it began" in content["config"]["error"]


def test_errors_tell_nothing_of_the_data():
    def load(_: Any) -> Any:
        raise ValueError("row 17: salary 123456 is not plausible")

    content = answer(ridge_client_app(load), private_request())
    reason = content["config"]["error"]
    assert "123456" not in reason
    assert reason.startswith("could not make a private release")


@pytest.mark.parametrize(
    "rows",
    [
        np.array([[1.0, "secret"], [2.0, 3.0]], dtype=object),
        np.ma.masked_array([[1.0, 2.0], [3.0, 4.0]], [[True, False], [False, False]]),
        pandas.DataFrame({"a": ["x", 1.0], "b": [1.0, 2.0]}),
        pandas.DataFrame({"a": [10**400, 1.0], "b": [1.0, 2.0]}),
        pandas.DataFrame({"a": [1j, 1.0], "b": [1.0, 2.0]}),
        np.array([[1j, 1.0], [1.0, 2.0]]),
    ],
    ids=["text", "masked", "frame", "huge", "complex frame", "complex"],
)
def test_one_bad_record_does_not_stop_a_release(rows):
    """That a client refuses would tell that the record is there."""
    content = answer(app_of(rows, [1.0, 2.0]), private_request())
    assert "arrays" in content


def test_a_guarded_client_says_nothing_of_its_data_to_anybody():
    def load(_: Any) -> Any:
        raise ValueError("could not convert 'John Smith'")

    set_task_identity()
    exact = Message(wire.train_request({}), dst_node_id=1, message_type="train")
    models = wire.evaluate_request(ArrayRecord([np.zeros(D), np.zeros(1)]), {})
    evaluate = Message(models, dst_node_id=1, message_type="evaluate")
    for message in (exact, evaluate, private_request(epsilon=0.5)):
        message.metadata.__dict__["_message_id"] = "1"
        content = answer(ridge_client_app(load, privacy_policy=POLICY), message)
        assert "Smith" not in content["config"]["error"]


def test_a_ledger_alone_is_a_policy_too(tmp_path):
    """Who counts what is released does not tell the same without counting."""
    ledger = PrivacyLedger(tmp_path / "ledger.json", 1.0, 1e-5)
    app = app_of(*rows_of(0), privacy_ledger=ledger, client_name="site")
    set_task_identity()
    exact = Message(wire.train_request({}), dst_node_id=1, message_type="train")
    exact.metadata.__dict__["_message_id"] = "1"
    assert "private ones only" in answer(app, exact)["config"]["error"]
    trusting = answer(app, private_request(trust="server"))
    assert 'trust="server"' in trusting["config"]["error"]
    assert ledger.spent("site").releases == 0
    assert "arrays" in answer(app, private_request())


def test_sample_weights_are_refused():
    X, y = rows_of(0)
    app = ridge_client_app(lambda _: (X, y, np.ones(len(y))))
    assert "weights" in answer(app, private_request())["config"]["error"]


def test_a_client_without_memory_refuses():
    app = ClientApp(client_fn=lambda context: RidgeClient(*rows_of(0)).to_client())
    grid = InProcessGrid.of_app(app, 1)
    with pytest.raises(NotEnoughClientsError, match="context=context"):
        FedRidge(privacy=privacy(), min_available_nodes=1).start(grid, timeout=120)


def test_a_request_that_is_badly_made_gets_no_answer():
    """Privacy fails closed: every setting must be there, known and valid."""
    good = dict(private_request().content["config"])
    broken = [{k: v for k, v in good.items() if k != gone} for gone in good]
    broken = [each for each in broken if "privacy-rules" in each]  # rules of 0.1.0
    broken += [{**good, "privacy-epsilon": bad} for bad in (0.0, -1.0, "1", 1e400)]
    broken += [{**good, "privacy-delta": bad} for bad in (0.0, 1.0, 2.0)]
    broken += [{**good, "privacy-secret-door": 1.0}]
    broken += [{**good, "privacy-trust": "me"}, {**good, "release-round": 2}]
    broken += [{**good, "release-round": True}, {**good, "release-intercept": 1}]
    broken += [{**good, "release-clip": True}, {**good, "release-clip": -1.0}]
    broken += [{**good, "privacy-share-gram": 0.9}, {**good, "release-id": "x"}]
    for config in broken:
        message = private_request()
        message.content["config"] = ConfigRecord(config)
        del message.content["fitins.config"]
        content = answer(NATIVE, message)
        assert "arrays" not in content, config
        assert "error" in content["config"]


def test_a_client_that_knows_no_privacy_refuses_the_request():
    """Versions without privacy know protocol 1 only, and would answer exactly."""
    grid = InProcessGrid.of_app(NATIVE, 1)
    FedRidge(privacy=privacy(), min_available_nodes=1).start(grid, timeout=120)
    (message,) = grid.sent
    for key in ("config", "fitins.config"):
        assert message.content[key][wire.PROTOCOL_KEY] == 2


# ---- what a client refuses -----------------------------------------------------------

POLICY = PrivacyPolicy(max_epsilon=1.0, max_delta=1e-5)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"epsilon": 1.1}, "asks for epsilon 1.1"),
        ({"trust": "server"}, 'trust="server"'),
        ({"neighboring": "replace-one"}, '"replace-one"'),
    ],
)
def test_a_policy_refuses_weaker_requests(options, reason):
    strict = PrivacyPolicy(1.0, 1e-5, neighboring="add-or-remove-one")
    content = answer(
        app_of(*rows_of(0), privacy_policy=strict), private_request(**options)
    )
    assert reason in content["config"]["error"]


def test_a_part_of_the_noise_is_not_sent_without_a_secure_sum():
    """A server could ask for a hundredth of it: min_clients is its own word."""
    options = {"trust": "secagg", "min_clients": 10_000}
    content = answer(app_of(*rows_of(0)), private_request(**options))
    assert "secure sums" in content["config"]["error"]


@pytest.mark.parametrize("policy", [None, POLICY])
def test_the_papers_calibration_is_refused_with_a_policy_or_without(policy):
    message = changed_request({"privacy-calibration": "paper"})
    app = app_of(*rows_of(0), privacy_policy=policy)
    assert "calibration must be" in answer(app, message)["config"]["error"]


def test_a_policy_refuses_a_large_delta():
    message = changed_request({"privacy-delta": 1e-3})
    app = app_of(*rows_of(0), privacy_policy=POLICY)
    assert "delta 0.001" in answer(app, message)["config"]["error"]


def changed_request(settings: dict[str, Any]) -> Message:
    set_task_identity()
    message = private_request()
    message.content["config"] = ConfigRecord(
        {**dict(message.content["config"]), **settings}
    )
    return message


def test_a_policy_counts_what_one_run_asks_for():
    context = node_context(0, 1)
    app = app_of(*rows_of(0), privacy_policy=POLICY)
    half = {"epsilon": 0.5}
    assert (
        "error" not in answer(app, private_request("a" * 32, **half), context)["config"]
    )
    assert (
        "error" not in answer(app, private_request("b" * 32, **half), context)["config"]
    )
    third = answer(app, private_request("c" * 32, epsilon=0.9), context)
    assert "earlier requests of this run" in third["config"]["error"]


def test_a_policy_refuses_exact_statistics_and_names_the_client():
    apps = [ridge_client_app(load_data)] * 3
    apps.append(ridge_client_app(load_data, privacy_policy=POLICY))
    contexts = [node_context(k, 4) for k in range(4)]
    grid = InProcessGrid([lambda m, k=k: apps[k](m, contexts[k]) for k in range(4)])
    strategy = FedRidge(alpha=1.0, min_available_nodes=4)
    strategy.start(grid, timeout=120)
    assert "private ones only" in strategy.report_.failures["1003"]
    expected = exact_model(range(3), alpha=1.0)
    np.testing.assert_allclose(strategy.model_.coef_, expected.coef_, rtol=1e-11)


@pytest.mark.parametrize("app", [NATIVE, NUMPY], ids=["message", "numpy"])
def test_after_a_private_release_nothing_exact_is_told(app):
    grid = InProcessGrid.of_app(app, 2)
    FedRidge(privacy=privacy(), min_available_nodes=2).start(grid, timeout=120)
    with pytest.raises(NotEnoughClientsError, match="would break its guarantee"):
        FedRidge(min_available_nodes=2).start(grid, timeout=120)


@pytest.mark.parametrize("task", [{}, {wire.TASK_KEY: wire.LOSSES_TASK}])
@pytest.mark.parametrize("form", ["config", "evaluateins.config"])
def test_evaluation_is_refused_by_policy_and_after_a_release(task, form):
    set_task_identity()
    shapes = [(2, 1, D), (2, 1)] if task else [(D,), (1,)]
    request = wire.evaluate_request(ArrayRecord([np.zeros(s) for s in shapes]), task)
    if form != "config":
        del request["config"]
    message = Message(request, dst_node_id=1, message_type="evaluate")
    message.metadata.__dict__["_message_id"] = "1"

    def reason(app, context=None):
        content = answer(app, message, context)
        assert "metrics" not in content
        status = content.get("evaluateres.status")
        return content["config"]["error"] if status is None else status["message"]

    free = answer(NATIVE, message)
    assert "error" not in free.get("config", {}), "the question itself is a good one"
    assert "private ones only" in reason(app_of(*rows_of(0), privacy_policy=POLICY))
    context = node_context(0, 1)
    answer(NATIVE, private_request(), context)
    assert "would break its guarantee" in reason(NATIVE, context)


def test_a_client_of_its_own_tells_nothing_exact_either():
    client = RidgeClient(*rows_of(0), context=node_context(0, 1), privacy_policy=POLICY)
    model = RidgeModel(coef=np.zeros(D), intercept=0.0, alpha=1.0)
    held_out = HeldOut(np.zeros((2, 1, D)), np.zeros((2, 1)))
    losses = {wire.TASK_KEY: wire.LOSSES_TASK}
    for tell in (
        client.statistics,
        lambda: client.evaluate(list(model_arrays(model).values()), {}),
        lambda: client.evaluate([held_out.coef, held_out.intercept], losses),
    ):
        with pytest.raises(PrivacyError, match="private ones only"):
            tell()


def test_a_refused_question_does_not_tell_whether_rows_load():
    def broken(_: Any) -> Any:
        raise OSError("no file")

    for load in (load_data, broken):
        app = ridge_client_app(load, privacy_policy=POLICY)
        content = answer(app, private_request(epsilon=5.0))
        assert "asks for epsilon 5" in content["config"]["error"]


def test_what_is_worth_nothing_says_so_for_each_target():
    X = np.random.default_rng(0).uniform(-1, 1, size=(2000, 2))
    Y = np.column_stack([X[:, 0], np.zeros(2000)])
    told, advice, files = [], [], []
    for _ in range(3):  # the noise has no seed, and one in 200 looks like a signal
        strategy = FedRidge(
            fit_intercept=False,
            min_available_nodes=1,
            privacy=privacy(5.0, x_norm_bound=1.5, y_bound=1.0),
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", PrivacyWarning)
            fit(strategy, InProcessGrid.of_app(app_of(X, Y), 1))
        told += [str(w.message) for w in caught if w.category is PrivacyWarning]
        files += [w.filename for w in caught if w.category is PrivacyWarning]
        advice += strategy.report_.privacy.advice
    assert any("NOT USABLE for 1 target (1)" in words for words in told)
    assert advice
    assert not any("fedridge_flwr" in Path(file).parts for file in files)


@pytest.mark.parametrize(
    ("scale", "shortens"), [(1e3, True), (9.0, True), (0.6, False)]
)
def test_rows_that_are_all_shortened_ask_for_other_units(scale, shortens):
    X = scale * np.random.default_rng(0).normal(size=(20_000, 2))
    strategy = FedRidge(min_available_nodes=1, privacy=privacy(8.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        fit(strategy, InProcessGrid.of_app(app_of(X, np.zeros(len(X))), 1))
    advice = accuracy_advice(strategy._settings.privacy, strategy.statistics_)
    assert ("unless bounds and rows are in different units" in advice) == shortens
    assert "smaller public bounds" in advice


def test_features_far_from_zero_are_judged_about_their_means(monkeypatch):
    # Noise of a fixed source: one draw in some hundred makes the matrix look sound.
    fixed = seeded_source(1)
    monkeypatch.setattr(
        release,
        "discrete_gaussian",
        lambda sd, source: discrete_gaussian(sd, source=fixed),
    )

    def load(context: Any) -> Any:
        rng = np.random.default_rng(context.node_config["partition-id"])
        X = 1.0 + rng.uniform(-0.05, 0.05, size=(300, D))
        return X, X.sum(axis=1)

    strategy = FedRidge(privacy=privacy(1.0), min_available_nodes=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        fit(strategy, InProcessGrid.of_app(ridge_client_app(load), 2))
    report = strategy.report_.privacy
    assert report.verdict.startswith(("NOT USABLE", "WEAK"))
    assert "mostly noise" in report.damage[0]


def test_a_simulation_may_give_a_client_other_rows():
    context = node_context(0, 1)
    answer(NATIVE, private_request(), context)
    assert len(ReleaseMemory(context.state)) == 2
    forget_releases(context)
    assert len(ReleaseMemory(context.state)) == 0


# ---- what the server refuses ---------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"cv": "clients"}, "further release"),
        ({"cv": "server"}, "further release"),
        ({"cv": "gcv"}, "squared residuals"),
        ({"standardize": True}, "public constants"),
        ({"wire_dtype": "float32"}, "float64"),
        ({"fraction_evaluate": 1.0}, "fraction_evaluate must be 0"),
        ({"privacy": privacy(trust="secagg")}, "secure sums"),
        ({"privacy": 1.0}, "must be DifferentialPrivacy"),
    ],
)
@pytest.mark.parametrize("kind", [FedRidge, LegacyFedRidge])
def test_settings_that_cannot_be_had_with_privacy(kind, options, reason):
    with pytest.raises(PrivacyError, match=reason):
        kind(**{"privacy": privacy(), **options})


@pytest.mark.parametrize("given", [{}, {"y_bound": 1.0}, {"x_norm_bound": None}])
def test_bounds_are_never_guessed(given):
    with pytest.raises(TypeError, match="from public knowledge") as caught:
        DifferentialPrivacy(1.0, 1e-5, **given)
    assert isinstance(caught.value, PrivacyError)


def test_wrong_bounds_are_told_in_the_clients_own_log(caplog):
    answer(app_of(*rows_of(0)), private_request(x_norm_bound=1e-3))
    assert "200 were shortened to x_norm_bound" in caplog.text
    assert "same unit" in caplog.text
    assert "operator" not in caplog.text
    caplog.clear()
    answer(app_of(*rows_of(0)), private_request())
    assert "same unit" not in caplog.text


def _hostile(change: Any) -> Any:
    def handler(message: Message) -> Message:
        content = NATIVE(message, node_context(0, 1)).content
        change(content)
        return Message(content, reply_to=message)

    return handler


def _set_release(content: RecordDict, value: Any) -> None:
    content["arrays"] = ArrayRecord([value])


LENGTH = (D + 1) * (D + 2) // 2 + D + 1
HOSTILE = {
    "negative squares": lambda c: _set_release(c, np.full(LENGTH, -1e20)),
    "NaN": lambda c: _set_release(c, np.full(LENGTH, np.nan)),
    "huge": lambda c: _set_release(c, np.full(LENGTH, 1e300)),
    "short": lambda c: _set_release(c, np.zeros(LENGTH - 1)),
    "square": lambda c: _set_release(c, np.zeros((LENGTH, 1))),
    "complex": lambda c: _set_release(c, np.zeros(LENGTH, dtype=complex)),
    "other size": lambda c: c["config"].update({"n-features": 10**5}),
    "two arrays": lambda c: c.update({"arrays": ArrayRecord([np.zeros(3)] * 2)}),
    "kind": lambda c: c["config"].update({"kind": "centred"}),
    "plain": lambda c: (c.pop("config"), _set_release(c, np.eye(3))),
}


@pytest.mark.parametrize("fault", HOSTILE)
def test_a_hostile_release_is_named_and_does_not_spoil_the_rest(fault):
    contexts = [node_context(k, K) for k in range(K)]
    handlers: list[Any] = [lambda m, k=k: NATIVE(m, contexts[k]) for k in range(K - 1)]
    grid = InProcessGrid([*handlers, _hostile(HOSTILE[fault])])
    strategy = FedRidge(alpha=0.5, privacy=privacy(1e12), min_available_nodes=K)
    strategy.start(grid, timeout=120)
    assert list(strategy.report_.failures) == [str(1000 + K - 1)]
    expected = exact_model(range(K - 1), alpha=0.5)
    np.testing.assert_allclose(strategy.model_.coef_, expected.coef_, atol=2e-4)


@pytest.mark.parametrize("rounds", [1, 3])
def test_one_release_at_the_limit_leaves_nobody_else_out(rounds):
    """It came first, and the sum with any other was too large for a single release."""
    largest = with_array(lambda sums: np.full_like(sums, np.nextafter(2.0**74, 0.0)))
    grid = InProcessGrid.of_app(NATIVE, K)
    honest = grid.handlers[1000]
    grid.handlers[1000] = lambda message: largest(message, lambda: honest(message))
    asked = FedRidge(privacy=privacy(rounds=rounds), min_available_nodes=K)
    assert fit(asked, grid).report_.failures == {}


def test_exact_answers_to_a_private_question_are_not_used():
    X, y = rows_of(0)

    def exact(message: Message) -> Message:
        stats = SufficientStatistics.from_data(X, y)
        return Message(wire.statistics_reply(stats, False), reply_to=message)

    def plain(message: Message) -> Message:
        content = RecordDict(
            {
                "arrays": ArrayRecord([X.T @ X, X.T @ y]),
                "metrics": MetricRecord({"num-examples": len(y)}),
            }
        )
        return Message(content, reply_to=message)

    context = node_context(0, 3)
    grid = InProcessGrid([lambda m: NATIVE(m, context), exact, plain])
    strategy = FedRidge(privacy=privacy(), min_available_nodes=3)
    strategy.start(grid, timeout=120)
    assert strategy.report_.participants == ["1000"]
    for client in ("1001", "1002"):
        assert "sent exact statistics" in strategy.report_.failures[client]


def test_a_private_answer_to_an_exact_question_is_not_used():
    def private(message: Message) -> Message:
        content = answer(app_of(*rows_of(5)), private_request())
        return Message(content, reply_to=message)

    context = node_context(0, 2)
    grid = InProcessGrid([lambda m: NATIVE(m, context), private])
    strategy = FedRidge(min_available_nodes=2)
    strategy.start(grid, timeout=120)
    assert "not asked for" in strategy.report_.failures["1001"]


# ---- the ledger ----------------------------------------------------------------------


def test_a_second_fit_is_counted_and_refused_beyond_the_budget(tmp_path):
    ledger = PrivacyLedger(tmp_path / "ledger.json", 1.8, 1e-5)
    app = ridge_client_app(
        load_data,
        privacy_ledger=ledger,
        client_name=lambda c: f"site {c.node_config['partition-id']}",
    )
    for _ in range(2):
        # Another run: other contexts, the same names.
        grid = InProcessGrid.of_app(app, 2)
        FedRidge(privacy=privacy(), min_available_nodes=2).start(grid, timeout=120)
    spent = ledger.spent("site 0")
    assert spent.releases == 2
    assert spent.epsilon == pytest.approx(1.465, abs=1e-3)
    grid = InProcessGrid.of_app(app, 2)
    with pytest.raises(NotEnoughClientsError, match=r"budget is 1\.8"):
        FedRidge(privacy=privacy(), min_available_nodes=2).start(grid, timeout=120)
    assert ledger.spent("site 0").releases == 2


def test_a_ledger_needs_a_name(tmp_path):
    ledger = PrivacyLedger(tmp_path / "ledger.json", 2.0, 1e-5)
    with pytest.raises(PrivacyError, match="client_name="):
        ridge_client_app(load_data, privacy_ledger=ledger)
    with pytest.raises(PrivacyError, match="client_name="):
        RidgeClient(*rows_of(0), privacy_ledger=ledger, context=node_context(0, 1))
    with pytest.raises(PrivacyError, match="context=context"):
        RidgeClient(*rows_of(0), privacy_policy=POLICY)


def test_a_policy_beyond_the_ledger_is_pointed_out(tmp_path):
    ledger = PrivacyLedger(tmp_path / "ledger.json", 0.5, 1e-5)
    with pytest.warns(PrivacyWarning, match=r"budget is 0\.5"):
        ridge_client_app(
            load_data, privacy_policy=POLICY, privacy_ledger=ledger, client_name="a"
        )


def test_a_release_that_is_forgotten_is_not_drawn_again(tmp_path):
    """Without the state of the node, the ledger still knows that it was made."""
    ledger = PrivacyLedger(tmp_path / "ledger.json", 9.0, 1e-5)
    app = app_of(*rows_of(0), privacy_ledger=ledger, client_name="site")
    assert "arrays" in answer(app, private_request(), node_context(0, 1))
    later = answer(app, private_request(), node_context(0, 1))
    assert "not remember it" in later["config"]["error"]


def test_a_retry_costs_nothing(tmp_path):
    ledger = PrivacyLedger(tmp_path / "ledger.json", 1.0, 1e-5)
    app = app_of(*rows_of(0), privacy_ledger=ledger, client_name="site")
    context = node_context(0, 1)
    releases = [_release(answer(app, private_request(), context)) for _ in range(3)]
    np.testing.assert_array_equal(releases[0], releases[2])
    assert ledger.spent("site").releases == 1


_UNREADABLE = {
    "a whole number above 2**53": pa.array([1, 2, 3, 2**53 + 1]),
    "a date after all years": pa.array([1, 2, 3, 2**31 - 1], pa.int32()).cast("date32"),
    "a time beyond datetime": pa.array([1, 2, 3, 2**62]).cast(pa.timestamp("s")),
    "a nanosecond": pa.array([1, 2, 3, 1001]).cast(pa.duration("ns")),
    "text that is not UTF-8": pa.Array.from_buffers(
        pa.string(),
        4,
        [
            None,
            pa.py_buffer(np.arange(5, dtype="i4")),
            pa.py_buffer(b"111\xff"),
        ],
    ),
}


@pytest.mark.parametrize("entry", _UNREADABLE)
@pytest.mark.parametrize("library", ["pyarrow", "pandas"])
def test_an_entry_that_its_library_cannot_read_decides_nothing(entry, library):
    """Its record is left out; whether there is a release does not depend on it."""
    column = _UNREADABLE[entry]
    told = []
    for values in (column, column.take(pa.array([0, 1, 2, 0]))):
        table = pa.table({"a": values, "b": [0.1] * 4, "c": [0.1] * 4})
        if library == "pandas":
            table = table.to_pandas(types_mapper=pandas.ArrowDtype)
        app = ridge_client_app(lambda _, t=table: (t, [0.5, 1.0, 2.0, 3.0]))
        content = answer(app, private_request())
        shapes = {name: len(a.data) for name, a in content["arrays"].items()}
        told.append((shapes, dict(content["config"])))
    assert told[0] == told[1]
