"""Secure sums over Flower: exact totals, lost clients, policies, refusals."""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from fakes import InProcessGrid, fit, node_context
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from generators import pooled as stacked
from secure_grids import (
    TASKS,
    after_answering,
    integer_total,
    lose,
    lost,
    same_bits,
    secure_grid,
    task_of,
    with_array,
    write_identities,
)
from sklearn.linear_model import Ridge

from fedridge_flwr import (
    DataError,
    DifferentialPrivacy,
    FedRidge,
    FedRidgeError,
    IncompleteFitError,
    LegacyFedRidge,
    NotEnoughClientsError,
    ProtocolError,
    RandomFourierFeatures,
    RidgeClient,
    SecurePolicy,
    SecureSum,
    SitePolicy,
    Standardize,
    TableFormula,
    ridge_client_app,
    select_alpha,
)
from fedridge_flwr.data.names import Columns, Names
from fedridge_flwr.data.schema import Schema
from fedridge_flwr.federation.answering import secure_respond
from fedridge_flwr.federation.fits import secure_fit
from fedridge_flwr.federation.requests import AskKeys
from fedridge_flwr.federation.secure_sum.client_steps import BOX
from fedridge_flwr.federation.secure_sum.server_steps import SecureSession
from fedridge_flwr.federation.secure_sum.terms import STATE
from fedridge_flwr.flower.secure_memory import SecureMemory, forget_secure_sums
from fedridge_flwr.statistics.integer_sums import DEFAULT_GRID

K, D = 8, 6


def rows_of(k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(k)
    X = rng.normal(loc=k, size=(20 + 5 * k, D))
    return X, X @ np.linspace(-1, 1, D) + rng.normal(size=len(X))


def load_data(context: Any) -> Any:
    return rows_of(int(context.node_config["partition-id"]))


APP = ridge_client_app(load_data)


def secure(**settings: Any) -> FedRidge:
    return FedRidge(
        settings.pop("alpha", 0.7),
        secure=settings.pop("secure", SecureSum()),
        min_available_nodes=settings.pop("nodes", K),
        **settings,
    )


def run(faults: Any = None, app: ClientApp = APP, **settings: Any) -> FedRidge:
    grid = secure_grid(app, settings.get("nodes", K), faults)
    return fit(secure(**settings), grid)


# ---- exact --------------------------------------------------------------------------


def test_the_total_is_that_of_a_plain_run_bit_for_bit() -> None:
    strategy = run()
    assert same_bits(strategy.statistics_, integer_total(map(rows_of, range(K))))
    plain = FedRidge(0.7, statistics="fixed", min_available_nodes=K)
    fit(plain, InProcessGrid.of_app(APP, K))
    assert (plain.model_.coef_ == strategy.model_.coef_).all()
    assert plain.model_.intercept_ == strategy.model_.intercept_
    pooled = Ridge(0.7, solver="svd").fit(*stacked([rows_of(k) for k in range(K)]))
    np.testing.assert_allclose(strategy.model_.coef_, pooled.coef_, atol=1e-12)
    assert len(strategy.report_.participants) == K
    assert strategy.model_.n_clients_ == K
    assert "secure sum" in str(strategy.report_)


def test_columns_far_from_zero_and_of_unlike_scales() -> None:
    scales = np.logspace(-6, 6, D)

    def rows(k: int) -> Any:
        X, y = rows_of(k)
        return X * scales + 1e6, y

    def load(context: Any) -> Any:
        return rows(int(context.node_config["partition-id"]))

    app = ridge_client_app(load)
    strategy = run(app=app, standardize=True)
    assert same_bits(strategy.statistics_, integer_total(map(rows, range(K))))
    plain = FedRidge(0.7, statistics="fixed", standardize=True, min_available_nodes=K)
    fit(plain, InProcessGrid.of_app(app, K))
    assert plain.model_.coef_.tobytes() == strategy.model_.coef_.tobytes()


def test_and_so_are_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    totals = []
    honest = SecureSession.total
    monkeypatch.setattr(
        SecureSession, "total", lambda self: totals.append(honest(self)) or totals[-1]
    )
    run()
    expected = integer_total(map(rows_of, range(K)))
    assert (totals[0][:-2] == expected.to_words()).all()


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("fault", [lost, after_answering])
def test_clients_are_lost_in_any_exchange(task: str, fault: Any) -> None:
    strategy = run(lose((2, 5), task, fault))
    stays = task in TASKS[3:]
    left = [k for k in range(K) if stays or k not in (2, 5)]
    assert same_bits(strategy.statistics_, integer_total(map(rows_of, left)))
    assert len(strategy.report_.participants) == len(left)
    assert set(strategy.report_.failures) == (set() if stays else {"1002", "1005"})


@pytest.mark.parametrize("task", TASKS[1:])
def test_too_many_are_lost(task: str) -> None:
    grid = secure_grid(APP, K, lose((1, 2, 3), task))  # six of eight must stay
    strategy = secure()
    with pytest.raises(NotEnoughClientsError, match="nothing is released") as caught:
        strategy.start(grid, timeout=60)
    assert "clients partition 1, partition 2, partition 3" in str(caught.value)
    assert "ConnectionError('gone')" in str(caught.value)
    with pytest.raises(AttributeError):
        _ = strategy.statistics_


def test_too_few_take_part() -> None:
    grid = secure_grid(APP, K, lose(range(2, K), TASKS[0]))
    with pytest.raises(NotEnoughClientsError, match="2 clients sent keys"):
        secure().start(grid, timeout=60)


@pytest.mark.parametrize(
    ("settings", "needed"),
    [
        ({}, 3),
        ({"secure": SecureSum(min_clients=5)}, 5),
        ({"cv": "groups", "alphas": [0.1, 1.0]}, 6),
    ],
)
def test_a_sum_over_fewer_clients_than_it_needs_is_not_begun(settings, needed) -> None:
    with pytest.raises(FedRidgeError, match=f"the secure sum needs {needed} clients"):
        secure(nodes=needed - 1, **settings)
    given = {"secure": SecureSum(), **settings}
    with pytest.raises(NotEnoughClientsError, match=f"2 of {needed} SuperNode"):
        FedRidge(**given).start(secure_grid(APP, 2), timeout=0.2)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    "change",
    [
        lambda array: array[:-1],
        lambda array: array[:, :-1],
        lambda array: array.astype(np.float64),
        lambda array: array[:0],
        lambda array: array.reshape(-1),
        lambda array: np.zeros((2, 2, 2), np.uint8),
    ],
)
def test_malformed_answers_are_lost_and_named(task: str, change: Any) -> None:
    strategy = run(lose((4,), task, with_array(change)))
    stays = task in TASKS[3:]
    left = [k for k in range(K) if stays or k != 4]
    assert same_bits(strategy.statistics_, integer_total(map(rows_of, left)))
    assert list(strategy.report_.failures) == ([] if stays else ["1004"])


def test_a_public_key_that_nobody_can_use_is_named() -> None:
    strategy = run(lose((4,), TASKS[0], with_array(np.zeros_like)))
    assert "public key is not valid" in strategy.report_.failures["1004"]
    assert len(strategy.report_.participants) == K - 1


def test_a_box_that_cannot_be_opened_is_told_with_its_sender() -> None:
    def spoilt(array: np.ndarray) -> np.ndarray:
        found = array.copy()
        first = int(array[0, :BOX].any())  # its own box is empty
        found[1 - first, 3] ^= 1
        return found

    strategy = run(lose((4,), TASKS[1], with_array(spoilt)))
    ((client, told),) = strategy.report_.failures.items()
    assert re.match(r"the box of neighbour \d \(client 1004\) cannot be opened", told)
    left = [k for k in range(K) if str(1000 + k) != client]
    assert len(left) == K - 1
    assert client != "1004"
    assert same_bits(strategy.statistics_, integer_total(map(rows_of, left)))

    def all_of_them(array: np.ndarray) -> np.ndarray:
        return np.zeros_like(array)

    with pytest.raises(NotEnoughClientsError, match=r"\(client partition 4\)"):
        run(lose((4,), TASKS[1], with_array(all_of_them)))


def test_wrong_shares_at_the_end_are_left_out() -> None:
    strategy = run(lose((4,), TASKS[4], with_array(np.ones_like)))
    assert same_bits(strategy.statistics_, integer_total(map(rows_of, range(K))))


def test_masked_numbers_that_are_none_are_found_out() -> None:
    """A client that does not keep to the protocol: the sum is refused, not wrong."""
    with pytest.raises(ProtocolError, match="masks do not cancel"):
        run(lose((4,), TASKS[2], with_array(np.ones_like)))


def test_an_answer_of_another_exchange_is_no_answer() -> None:
    def earlier(message: Message, answer: Any) -> Message:
        reply = answer()
        reply.content["config"]["kind"] = "secure-masked"
        return reply

    strategy = run(lose((4,), TASKS[1], earlier))
    assert "not asked for" in strategy.report_.failures["1004"]


def test_statistics_without_masks_are_refused() -> None:
    def plain(message: Message, answer: Any) -> Message:
        request = RecordDict({"config": ConfigRecord({"fedridge-protocol": 1})})
        message.__dict__["_content"] = request
        return APP(message, node_context(4, K))

    strategy = run(lose((4,), TASKS[0], plain))
    assert "not asked for" in strategy.report_.failures["1004"]


def test_strict_ends_before_anything_is_unmasked() -> None:
    grid = secure_grid(APP, K, lose((4,), TASKS[1]))
    with pytest.raises(IncompleteFitError, match="7 OF 8 CLIENTS"):
        secure(strict=True).start(grid, timeout=60)
    assert {task_of(message) for message in grid.sent} == set(TASKS[:2])


def test_strict_takes_those_that_delivered() -> None:
    strategy = run(lose((4,), TASKS[3]), strict=True)
    assert len(strategy.report_.participants) == K


def test_a_second_attempt_after_one_that_failed() -> None:
    faults = lose((1, 2, 3), TASKS[1])
    grid, strategy = secure_grid(APP, K, faults), secure()
    with pytest.raises(NotEnoughClientsError):
        strategy.start(grid, timeout=60)
    faults.clear()
    strategy.start(grid, timeout=60)
    assert same_bits(strategy.statistics_, integer_total(map(rows_of, range(K))))


# ---- what the server is told --------------------------------------------------------


def test_nothing_but_masks_depends_on_the_rows() -> None:
    """Counts, metrics and fields are the same whatever a client's rows are."""

    def seen(scale: float, n_rows: int) -> list[Any]:
        def load(context: Any) -> Any:
            X, y = rows_of(int(context.node_config["partition-id"]))
            return scale * X[:n_rows], scale * y[:n_rows]

        told: list[Any] = []

        def record(message: Message, answer: Any) -> Message:
            reply = answer()
            fields = dict(reply.content["config"])
            arrays = reply.content["arrays"]
            shapes = [(name, array.shape) for name, array in arrays.items()]
            told.append((fields, dict(reply.content["metrics"]), shapes))
            return reply

        faults = {(0, task): record for task in TASKS}
        run(faults, ridge_client_app(load))
        return told

    first, second = seen(1.0, 20), seen(3.0, 13)
    assert first == second
    assert [metrics for _, metrics, _ in first] == len(TASKS) * [{"num-examples": 1}]


def test_two_sums_of_the_same_rows_share_no_byte_that_tells() -> None:
    sent = []

    def record(message: Message, answer: Any) -> Message:
        reply = answer()
        sent.append(reply.content["arrays"]["masked"].numpy())
        return reply

    for _ in range(2):
        run({(0, TASKS[2]): record})
    assert (sent[0] != sent[1]).all()


# ---- a lying server -----------------------------------------------------------------


def reply_to(app: ClientApp, context: Any, request: Any, kind: str = "train") -> str:
    """Return what is wrong with a request, as a client says."""
    InProcessGrid([])
    content = RecordDict({"config": ConfigRecord({"fedridge-protocol": 1, **request})})
    answer = app(Message(content, dst_node_id=1000, message_type=kind), context)
    return str(answer.content["config"].get("error", ""))


PLAIN: list[tuple[str, dict[str, Any]]] = [
    ("train", {}),
    ("train", {"statistics": "fixed"}),
    ("train", {"fedridge-protocol": 3, "fedridge-task": "columns"}),
    (
        "train",
        {"fedridge-protocol": 3, "fedridge-task": "opening", "mode": "refine"},
    ),
]


@pytest.mark.parametrize(("kind", "request_"), PLAIN)
def test_a_client_with_a_policy_answers_secure_sums_only(
    kind: str, request_: dict[str, Any]
) -> None:
    app = ridge_client_app(load_data, secure_policy=SecurePolicy())
    assert "secure sums only" in reply_to(app, node_context(0, K), request_, kind)


@pytest.mark.parametrize(("kind", "request_"), PLAIN)
def test_after_a_secure_sum_there_is_no_plain_request(
    kind: str, request_: dict[str, Any]
) -> None:
    grid = secure_grid(APP, K)
    fit(secure(), grid)
    context = grid.handlers[1000].context  # type: ignore[attr-defined]
    assert "secure sums only" in reply_to(APP, context, request_, kind)
    forget_secure_sums(context)
    assert "secure sums only" not in reply_to(APP, context, request_, kind)


def test_not_even_after_it_has_only_begun() -> None:
    grid = secure_grid(APP, K, lose(range(K), TASKS[1]))
    with pytest.raises(NotEnoughClientsError):
        secure().start(grid, timeout=60)
    context = grid.handlers[1000].context  # type: ignore[attr-defined]
    assert "secure sums only" in reply_to(APP, context, {})


def test_no_evaluation_and_no_losses_either() -> None:
    grid = secure_grid(APP, K)
    fit(secure(), grid)
    evaluated = FedRidge(0.7, fraction_evaluate=1.0, min_available_nodes=K)
    with pytest.raises(NotEnoughClientsError, match="secure sums only"):
        evaluated.start(grid, timeout=60)
    with pytest.raises(FedRidgeError, match="fraction_evaluate must be 0"):
        secure(fraction_evaluate=0.5)


def test_there_is_one_sum_for_each_run() -> None:
    grid = secure_grid(APP, K)
    fit(secure(), grid)
    with pytest.raises(NotEnoughClientsError, match="only once"):
        secure().start(grid, timeout=60)


def test_a_sum_that_failed_after_masks_is_not_tried_again() -> None:
    faults = lose((1, 2, 3), TASKS[3])
    grid = secure_grid(APP, K, faults)
    with pytest.raises(NotEnoughClientsError, match="5 clients confirmed who is in"):
        secure().start(grid, timeout=60)
    faults.clear()
    with pytest.raises(NotEnoughClientsError, match="only once"):
        secure().start(grid, timeout=60)


def test_three_sums_are_begun_in_a_run() -> None:
    """Also those that a client refuses: each refusal tells something about its rows."""

    def load(context: Any) -> Any:
        X, y = load_data(context)
        return X, y, None, np.ones(len(y))  # an offset has no part in it

    context, app = node_context(0, K), ridge_client_app(load)
    told = []
    for number in range(5):
        request = {"fedridge-protocol": 4, "fedridge-task": "secure-keys"}
        name = number.to_bytes(16, "little")
        told.append(reply_to(app, context, {**request, "secure-session": name}))
    assert all("cannot be used in a secure sum" in each for each in told[:3])
    assert all("begin 3 secure sums" in each for each in told[3:])


def test_two_clients_with_one_key_are_one() -> None:
    sent: list[np.ndarray] = []

    def copied(array: np.ndarray) -> np.ndarray:
        sent.append(array)
        return sent[0]

    strategy = run(lose((2, 4), TASKS[0], with_array(copied)))
    assert "that another client has sent" in strategy.report_.failures["1004"]
    assert "1002" not in strategy.report_.failures


def test_other_columns_than_agreed_on_are_not_masked() -> None:
    """The server says in exchange 3 another map than the terms are about."""

    def lie(message: Message, answer: Any) -> Message:
        config = message.content["config"]
        assert isinstance(config, ConfigRecord)
        config["feature-map"] = RandomFourierFeatures(9, gamma=0.1).to_json()
        return answer()  # type: ignore[no-any-return]

    strategy = run(lose((4,), TASKS[2], lie))
    assert "other columns" in strategy.report_.failures["1004"]


def named_rows(context: Any) -> Any:
    """Nobody has anything in `rare`: what is found there is of one client."""
    X, y = load_data(context)
    frame = pandas.DataFrame({"rare": 0.0, "age": X[:, 0], "bmi": X[:, 1]})
    return frame, pandas.Series(y, name="y")


def other_order(message: Message, answer: Any) -> Message:
    """The server exchanges the places of `rare` and `age`, and tells no other hash."""
    config = message.content["config"]
    assert isinstance(config, ConfigRecord)
    order = bytes(config["feature-order"])  # type: ignore[arg-type]
    config["feature-order"] = order.translate(bytes.maketrans(b"\0\1", b"\1\0"))
    return answer()  # type: ignore[no-any-return]


def test_another_order_for_one_client_is_refused() -> None:
    """Its `age` would be alone where all others have zeros."""
    app = ridge_client_app(named_rows)
    strategy = run(lose((4,), TASKS[2], other_order), app=app)
    assert "another order" in strategy.report_.failures["1004"]
    assert strategy.statistics_.means[0] == 0.0


def subject_in(order: tuple[int, ...]) -> bytes:
    names = Names("f" * 32, "e" * 32, order)
    asked = AskKeys(bytes(16), columns=Columns(names))
    return secure_respond.subject_of(Schema(3), asked, DEFAULT_GRID)


def test_the_terms_are_about_the_order_of_the_columns() -> None:
    assert subject_in((0, 2, 1)) != subject_in((2, 1, 0))


def test_an_order_that_does_not_give_the_hash_is_refused() -> None:
    """Also if the terms are about that order, and all clients are told the same."""
    honest = secure_fit.subject_of

    def told(schema: Any, request: Any, grid: Any) -> bytes:
        names, targets = request.columns
        order = tuple({0: 1, 1: 0}.get(j, j) for j in names.order)
        wrong = Columns(replace(names, order=order), targets)
        return honest(schema, replace(request, columns=wrong), grid)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secure_fit, "subject_of", told)
        faults = lose(range(K), TASKS[2], other_order)
        with pytest.raises(NotEnoughClientsError, match="another order"):
            run(faults, app=ridge_client_app(named_rows))


@pytest.mark.parametrize("task", [TASKS[0], TASKS[2]])
def test_classes_and_their_weights_have_no_part_in_it(task: str) -> None:
    """Weights of nearly zero at all clients but one would leave that one's sums."""

    def lie(message: Message, answer: Any) -> Message:
        config = message.content["config"]
        assert isinstance(config, ConfigRecord)
        config["classes"] = '["0", "1"]'
        config["class-weights"] = '{"0": 1e-30, "1": 1e-30}'
        return answer()  # type: ignore[no-any-return]

    strategy = run(lose((4,), task, lie))
    assert "labels of classes have no part" in strategy.report_.failures["1004"]


def test_what_is_wrong_with_rows_is_told_in_the_clients_own_log_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def load(context: Any) -> Any:
        X, y = load_data(context)
        if context.node_config["partition-id"] == 4:
            X[3, 0] = 1e200
        return X, y

    with caplog.at_level("WARNING", logger="flwr"):
        strategy = run(app=ridge_client_app(load))
    assert "cannot be used in a secure sum" in strategy.report_.failures["1004"]
    assert "column 0" not in strategy.report_.failures["1004"]
    assert "column 0" in caplog.text


def test_an_offset_is_not_forgotten_in_a_secure_sum() -> None:
    def load(context: Any) -> Any:
        X, y = load_data(context)
        return X, y, None, np.ones(len(y))

    with pytest.raises(NotEnoughClientsError, match="cannot be used"):
        run(app=ridge_client_app(load))


def test_a_client_counts_who_is_in_the_sum_itself() -> None:
    """Whatever the server says: by the keys, and again when masks are taken off."""
    strict = ridge_client_app(load_data, secure_policy=SecurePolicy(min_clients=K))
    strategy = run(app=strict)
    assert len(strategy.report_.participants) == K
    with pytest.raises(NotEnoughClientsError, match="8 are needed"):
        run(lose((4,), TASKS[2]), app=strict)
    with pytest.raises(NotEnoughClientsError, match="takes part from 9"):
        run(app=ridge_client_app(load_data, secure_policy=SecurePolicy(9)))


def test_requests_that_are_no_requests() -> None:
    context = node_context(0, K)
    base = {"fedridge-protocol": 4}
    for fields, words in (
        ({"fedridge-task": "secure-keys"}, "secure-session"),
        ({"fedridge-task": "secure-keys", "secure-session": b"short"}, "session"),
        ({"fedridge-task": "secure-keys", "secure-session": "text"}, "session"),
        ({"fedridge-task": "secure-shares", "secure-terms": b"x"}, "terms"),
        ({"fedridge-task": "secure-shares"}, "terms"),
        ({"fedridge-task": "secure-shares", "secure-terms": bytes(100)}, "others"),
        ({"fedridge-task": "secure-masked", "secure-session": bytes(16)}, "present"),
        ({"fedridge-task": "secure-unmask", "secure-session": bytes(16)}, "one array"),
        ({"fedridge-task": "secure-confirm", "secure-session": bytes(16)}, "delivered"),
        (
            {
                "fedridge-task": "secure-confirm",
                "secure-session": bytes(16),
                "secure-delivered": b"\1\1\1",
            },
            "sent no keys",
        ),
        ({"fedridge-task": "secure-sum"}, "does not support"),
    ):
        assert words in reply_to(APP, context, {**base, **fields})
    assert STATE not in context.state


# ---- policies of sites --------------------------------------------------------------


def with_site(**rules: Any) -> ClientApp:
    return ridge_client_app(load_data, site_policy=SitePolicy(**rules))


def test_a_site_can_insist_on_secure_sums() -> None:
    app = with_site(require_secure_sums=True)
    context = node_context(0, K)
    assert reply_to(app, context, {}) == "declined by site policy."
    strategy = run(app=app)
    assert len(strategy.report_.participants) == K


def test_a_site_counts_sites_whatever_the_server_says() -> None:
    honest = with_site(min_sites=K)

    def app(message: Message, context: Any) -> Message:
        message.content["config"]["fedridge-sites"] = 99
        return honest(message, context)

    strategy = run(app=app)  # type: ignore[arg-type]
    assert len(strategy.report_.participants) == K
    with pytest.raises(NotEnoughClientsError, match="8 are needed"):
        run(lose((4,), TASKS[2]), app=app)  # type: ignore[arg-type]
    with pytest.raises(NotEnoughClientsError, match="takes part from 8"):
        run(lose((4,), TASKS[0]), app=app)  # type: ignore[arg-type]


def test_rules_about_rows_hold_in_secure_sums() -> None:
    app = with_site(min_rows=30)  # clients 0 and 1 have fewer
    strategy = run(app=app)
    assert strategy.report_.failures == {
        "1000": "declined by site policy.",
        "1001": "declined by site policy.",
    }
    with pytest.raises(NotEnoughClientsError):
        run(app=with_site(requests=["statistics"]))


def apps_with_folders(folder: Path, load: Any, **rules: Any) -> ClientApp:
    """Return clients of which each has a folder of its own."""
    for k in range(K):
        (folder / f"site-{k}").mkdir(exist_ok=True)
    policies = [SitePolicy(state=folder / f"site-{k}", **rules) for k in range(K)]
    apps = [ridge_client_app(load, site_policy=policy) for policy in policies]

    def app(message: Message, context: Any) -> Message:
        return apps[int(context.node_config["partition-id"])](message, context)

    return app  # type: ignore[return-value]


def test_an_upload_is_remembered(tmp_path: Path) -> None:
    def one_row_less(context: Any) -> Any:
        X, y = load_data(context)
        return X[1:], y[1:]

    rules = {"min_row_difference": 5}
    run(app=apps_with_folders(tmp_path, load_data, **rules))
    later = secure_grid(apps_with_folders(tmp_path, one_row_less, **rules), K)
    for node in later.handlers.values():
        node.context.run_id = 2  # type: ignore[attr-defined]
    with pytest.raises(NotEnoughClientsError, match="declined by site policy"):
        secure().start(later, timeout=60)


def test_a_site_marks_its_steps_on_its_own_disk(tmp_path: Path) -> None:
    """Before it answers: whatever becomes of its memory, it answers no step twice."""
    app = apps_with_folders(tmp_path, load_data)
    strategy = run(app=app)
    assert len(strategy.report_.participants) == K
    marked = {file.name for file in (tmp_path / "site-0").iterdir()}
    of_the_run = {f"{task}-1-1" for task in TASKS}
    assert of_the_run < marked
    (name,) = {each.split("-")[2] for each in marked - of_the_run}
    assert marked - of_the_run == {f"{task}-{name}-1" for task in TASKS}
    # New memories, as after a crash: keys and shares, and no second answer after that.
    with pytest.raises(NotEnoughClientsError, match='answered "secure-masked"'):
        run(app=app)


# ---- the roster ---------------------------------------------------------------------


def identities(folder: Path, number: int) -> Any:
    keys = write_identities(folder, number)
    for k in range(number):
        rules = f'identity = "site-{k}.pem"\nroster = "roster.pem"\n'
        rules += "require_secure_sums = true\nmin_sites = 3\n"
        (folder / f"policy-{k}.toml").write_text(rules)
    return keys


def test_sites_with_a_roster_of_their_own(tmp_path: Path) -> None:
    identities(tmp_path, K)
    apps = [
        ridge_client_app(
            load_data, site_policy=SitePolicy.load(tmp_path / f"policy-{k}.toml")
        )
        for k in range(K)
    ]

    def app(message: Message, context: Any) -> Message:
        return apps[int(context.node_config["partition-id"])](message, context)

    strategy = run(app=app)  # type: ignore[arg-type]
    assert len(strategy.report_.participants) == K

    # A stranger among them: nobody takes part with it.
    apps[3] = ridge_client_app(load_data)
    with pytest.raises(NotEnoughClientsError, match="roster of this client"):
        run(app=app)  # type: ignore[arg-type]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")
def test_keys_that_openssl_makes(tmp_path: Path) -> None:
    """As the how-to says."""
    for command in (
        "openssl genpkey -algorithm ed25519 -out site.pem",
        "openssl pkey -in site.pem -pubout -out site.pub",
    ):
        subprocess.run(command.split(), cwd=tmp_path, check=True)
    (tmp_path / "roster.pem").write_bytes(2 * (tmp_path / "site.pub").read_bytes())
    policy = SecurePolicy(
        identity=tmp_path / "site.pem", roster=tmp_path / "roster.pem"
    )
    identity, roster = policy.read_keys()
    assert identity is not None
    assert roster == {identity.public_key().public_bytes_raw()}


def test_policies_with_keys_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(FedRidgeError, match="roster needs identity"):
        SitePolicy(roster=tmp_path / "roster.pem")
    with pytest.raises(FedRidgeError, match="identity must be the path of a file"):
        SitePolicy(identity=3)  # type: ignore[arg-type]
    app = with_site(identity=tmp_path / "none.pem")
    with pytest.raises(NotEnoughClientsError, match="declined by site policy"):
        run(app=app)


# ---- columns, weights, maps, formulas -----------------------------------------------


def test_columns_in_another_order_are_rearranged_by_the_clients() -> None:
    names = [f"x{j}" for j in range(D)]

    def load(context: Any) -> Any:
        k = int(context.node_config["partition-id"])
        X, y = rows_of(k)
        frame = pandas.DataFrame(X, columns=names)
        return (frame[names[::-1]] if k == 2 else frame), pandas.Series(y, name="y")

    app = ridge_client_app(load)
    strategy = run(app=app)
    assert same_bits(strategy.statistics_, integer_total(map(rows_of, range(K))))
    assert strategy.report_.rearranged == ["1002"]
    strategy = run(app=app, feature_names=names)
    assert same_bits(strategy.statistics_, integer_total(map(rows_of, range(K))))
    assert strategy.model_.feature_names_in_.tolist() == names


def test_other_columns_are_named() -> None:
    def load(context: Any) -> Any:
        X, y = load_data(context)
        return (X[:, :3] if context.node_config["partition-id"] == 1 else X), y

    strategy = run(app=ridge_client_app(load))
    assert "3 features against 6" in strategy.report_.failures["1001"]
    left = [k for k in range(K) if k != 1]
    assert same_bits(strategy.statistics_, integer_total(map(rows_of, left)))


def test_weights_and_several_targets() -> None:
    def rows(k: int) -> Any:
        X, y = rows_of(k)
        rng = np.random.default_rng(k)
        return X, np.column_stack([y, y**2]), rng.uniform(0.5, 2.0, size=len(y))

    def load(context: Any) -> Any:
        return rows(int(context.node_config["partition-id"]))

    strategy = run(app=ridge_client_app(load))
    assert same_bits(strategy.statistics_, integer_total(map(rows, range(K))))
    X, y, weight = (np.concatenate(p) for p in zip(*map(rows, range(K)), strict=True))
    ridge = Ridge(0.7, solver="svd").fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(strategy.model_.coef_, ridge.coef_, atol=1e-9)


def test_a_feature_map_without_data() -> None:
    mapping = RandomFourierFeatures(20, gamma=0.1, seed=3)
    strategy = run(feature_map=mapping)
    plain = FedRidge(0.7, statistics="fixed", feature_map=mapping)
    fit(plain, InProcessGrid.of_app(APP, K))
    assert (plain.model_.coef_ == strategy.model_.coef_).all()


def test_a_formula_whose_levels_are_known() -> None:
    def load(context: Any) -> Any:
        X, y = load_data(context)
        sex = np.where(X[:, 1] > 0, "f", "m")
        return pandas.DataFrame({"age": X[:, 0], "sex": sex, "bp": y})

    formula = TableFormula("bp ~ age + C(sex)", levels={"sex": ["f", "m"]})
    strategy = run(app=ridge_client_app(load), formula=formula)
    plain = FedRidge(0.7, statistics="fixed", formula=formula)
    fit(plain, InProcessGrid.of_app(ridge_client_app(load), K))
    assert (plain.model_.coef_ == strategy.model_.coef_).all()
    with pytest.raises(FedRidgeError, match="level"):
        secure(formula="bp ~ age + C(sex)")


def test_alpha_is_chosen_from_the_total() -> None:
    strategy = run(cv="gcv")
    plain = FedRidge(cv="gcv", statistics="fixed", min_available_nodes=K)
    fit(plain, InProcessGrid.of_app(APP, K))
    assert strategy.model_.alpha_ == plain.model_.alpha_
    assert (strategy.model_.coef_ == plain.model_.coef_).all()
    assert run(alphas=[0.1, 1.0]).selection_.method == "gcv"


def test_alpha_is_chosen_by_leaving_out_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every client is in one group; the sums of the groups are all that is known."""
    sums, honest = [], SecureSession.total

    def recorded(session: SecureSession) -> Any:
        sums.append((session, honest(session)))
        return sums[-1][1]

    monkeypatch.setattr(SecureSession, "total", recorded)
    alphas = [0.01, 0.1, 1.0, 10.0]
    strategy = run(cv="groups", alphas=alphas)
    groups = [sorted(int(c) - 1000 for c in each.keys) for each, _ in sums]
    assert sorted(map(len, groups)) == [4, 4]
    assert sorted(k for group in groups for k in group) == list(range(K))
    for group, (_, words) in zip(groups, sums, strict=True):
        expected = integer_total(map(rows_of, group)).to_words()
        assert (words[:-2] == expected).all()
    assert same_bits(strategy.statistics_, integer_total(map(rows_of, range(K))))
    parts = [integer_total(map(rows_of, g)).to_sufficient() for g in groups]
    by_hand = select_alpha(parts, alphas, method="loco")
    assert strategy.model_.alpha_ == by_hand.alpha
    told = strategy.model_.alpha_chosen_by
    assert told == "leaving out 2 groups of clients in turn, 4 candidates"
    assert strategy.selection_.to_dict()["description"] == told
    assert strategy.report_.to_html(strategy.model_)
    assert not hasattr(strategy, "client_statistics_")
    np.testing.assert_allclose(strategy.selection_.mean, by_hand.mean, rtol=1e-9)


@pytest.mark.parametrize("task", TASKS)
def test_one_of_a_group_may_be_lost(task: str) -> None:
    strategy = run(lose((2,), task), cv="groups", alphas=[0.1, 1.0])
    left = [k for k in range(K) if k != 2 or task in TASKS[3:]]
    assert same_bits(strategy.statistics_, integer_total(map(rows_of, left)))


def test_groups_are_as_large_as_clients_want_them() -> None:
    two_gone, given = lose((1, 2), TASKS[0]), {"secure": SecureSum(min_clients=5)}
    with pytest.raises(NotEnoughClientsError, match="two groups of 5 clients"):
        run(two_gone, cv="groups", alphas=[0.1, 1.0], nodes=10, **given)
    wary = ridge_client_app(load_data, secure_policy=SecurePolicy(min_clients=5))
    with pytest.raises(NotEnoughClientsError, match="takes part from 5"):
        run(app=wary, cv="groups", alphas=[0.1, 1.0])
    with pytest.raises(FedRidgeError, match="is for secure sums"):
        FedRidge(cv="groups")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cv": "server"}, 'use cv="gcv"'),
        ({"cv": "clients"}, 'use cv="gcv"'),
        ({"screen": "exclude"}, "compares single clients"),
        ({"mode": "refine"}, 'mode="oneshot"'),
        ({"mode": "cg"}, 'mode="oneshot"'),
        ({"wire_dtype": "float32"}, "not exact"),
        ({"feature_map": Standardize()}, "public knowledge"),
        ({"secure": True}, "SecureSum"),
        (
            {"privacy": DifferentialPrivacy(1.0, 1e-5, x_norm_bound=1.0, y_bound=1.0)},
            'another trust than "secagg"',
        ),
    ],
)
def test_what_needs_single_clients_is_refused(
    settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(FedRidgeError, match=words):
        secure(**settings)


# ---- the older API ------------------------------------------------------------------


def test_the_older_api_refuses_and_says_what_to_use() -> None:
    with pytest.raises(FedRidgeError, match=r"Use FedRidge\(secure"):
        LegacyFedRidge(secure=SecureSum())
    app = ClientApp(
        client_fn=lambda context: RidgeClient(*load_data(context)).to_client()
    )
    with pytest.raises(NotEnoughClientsError, match="use ridge_client_app"):
        run(app=app)


# ---- state and log ------------------------------------------------------------------


def test_the_state_is_made_of_records_of_flower() -> None:
    grid = secure_grid(APP, K, lose(range(K), TASKS[2]))
    with pytest.raises(NotEnoughClientsError):
        secure().start(grid, timeout=60)
    context = grid.handlers[1000].context  # type: ignore[attr-defined]
    state = SecureMemory(context).read()
    assert state is not None
    assert state.mask_secret
    assert isinstance(context.state[STATE], ConfigRecord)


def test_the_log_says_what_is_done(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="flwr"):
        run()
    assert "a secure sum in five exchanges (experimental)" in caplog.text


def test_equal_refusals_are_told_together_and_no_advice_is_refused_in_turn() -> None:
    def refuse(context: Any) -> Any:
        raise DataError("no rows this month")

    strategy = secure()
    with pytest.raises(NotEnoughClientsError) as told:
        strategy.start(secure_grid(ridge_client_app(refuse), K), timeout=60)
    assert "clients partition 0, partition 1, " in str(told.value)
    assert str(told.value).count("its rows cannot be used in a secure sum") == 1
    strategy = secure()
    strategy.start(secure_grid(APP, K), timeout=60)
    with pytest.raises(AttributeError, match="only ever has their total") as error:
        _ = strategy.client_statistics_
    assert "cv=" not in str(error.value)
