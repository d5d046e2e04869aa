"""Cases of whole rounds: hostile clients beside honest ones, through the strategies."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import wire
from fakes import InProcessGrid, node_context
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, RecordDict
from flwr.compat.common.recorddict_compat import (
    recorddict_to_evaluateres,
    recorddict_to_fitres,
)
from fuzz_attacks import attacks_on
from fuzz_drafts import HONEST, PRIVACY, Draft, Rng, npy
from fuzz_replies import arrived
from fuzz_run import REFUSED, UNSENT, Case, HiddenError, Trial, WrongAcceptError, quiet

from fedridge_flwr import FedRidge, LegacyFedRidge, ridge_client_app
from fedridge_flwr.statistics.sufficient import SufficientStatistics

Handler = Callable[[Message], Message]
KINDS = list(HONEST)[:11]
ALPHA = 0.7


# ---- who takes part --------------------------------------------------------------


def honest_data(rng: Rng, clients: int = 3) -> list[tuple[np.ndarray, np.ndarray]]:
    d = int(rng.integers(1, 5))
    made = []
    for _ in range(clients):
        X = rng.normal(size=(int(rng.integers(d + 3, d + 12)), d))
        made.append((X, X.sum(axis=1) + rng.normal(size=len(X))))
    return made


def pooled(data: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return ridge regression on the pooled rows, from the normal equations."""
    X, y = np.vstack([X for X, _ in data]), np.hstack([y for _, y in data])
    centred = X - X.mean(axis=0)
    gram = centred.T @ centred + ALPHA * np.eye(X.shape[1])
    return np.linalg.solve(gram, centred.T @ (y - y.mean()))


def node(rows: tuple[np.ndarray, np.ndarray]) -> Handler:
    app, context = ridge_client_app(lambda _: rows), node_context(0, 1)
    return lambda message: app(message, context)


def spoilt(rng: Rng, kinds: list[str] | None = None) -> RecordDict:
    """Return a hostile answer that can be sent."""
    while True:
        kind = str(rng.choice(kinds or KINDS))
        attacks = attacks_on(kind)
        draft = HONEST[kind](rng)
        attacks[str(rng.choice([a for a in attacks if a != "nothing"]))](rng, draft)
        try:
            content = arrived(draft.records())
        except (TypeError, ValueError, IndexError):
            continue
        if content is not None:
            return content


def liar(rng: Rng, kinds: list[str] | None = None) -> Handler:
    return lambda message: Message(spoilt(rng, kinds), reply_to=message)


def _readable(reasons: dict[str, str]) -> None:
    """Refuse reasons that say no more than that an error of Python was caught."""
    for reason in reasons.values():
        if "unreadable answer" in reason:
            raise HiddenError(reason)


def _compare(
    strategy: Any, expected: np.ndarray, liars: set[str], tolerance: float = 1e-10
) -> str | None:
    """Say whether the model is that of the honest, if no liar was believed."""
    report = strategy.report_
    _readable(report.failures)
    known = {*report.participants, *report.failures}
    if not liars <= known:
        raise WrongAcceptError(f"nobody says what became of {sorted(liars - known)}")
    if liars & set(report.participants):
        return None  # rows that could exist: poisoning, which no decoder can see
    found = np.ravel(strategy.model_.coef_)
    gap = np.abs(found - expected).max() if found.shape == expected.shape else np.inf
    if not gap <= tolerance * max(1.0, np.abs(expected).max()):
        raise WrongAcceptError(f"the model of the honest is off by {gap:.1e}")
    return REFUSED


# ---- with start --------------------------------------------------------------------


def _beside(options: dict[str, Any], kinds: list[str] | None = None) -> Trial:
    """Three honest clients and one or two that are not."""

    def trial(rng: Rng) -> str | None:
        data = honest_data(rng)
        bad = int(rng.integers(1, 3))
        handlers = [node(rows) for rows in data] + [liar(rng, kinds)] * bad
        grid = InProcessGrid(handlers)
        strategy = FedRidge(ALPHA, min_available_nodes=3 + bad, **options)
        strategy.start(grid, timeout=120)
        liars = {str(1003 + k) for k in range(bad)}
        tolerance = 1e-5 if "wire_dtype" in options else 1e-10
        return _compare(strategy, pooled(data), liars, tolerance)

    return quiet(trial)


def _survives(options: dict[str, Any], kinds: list[str]) -> Trial:
    """The same where noise, or a map, makes another model than the pooled one."""

    def trial(rng: Rng) -> str | None:
        data = honest_data(rng)
        grid = InProcessGrid([*(node(rows) for rows in data), liar(rng, kinds)])
        strategy = FedRidge(ALPHA, min_available_nodes=4, **options)
        strategy.start(grid, timeout=120)
        report = strategy.report_
        _readable(report.failures)
        if not {"1000", "1001", "1002"} <= set(report.participants):
            raise WrongAcceptError("an honest client is left out")
        if not np.isfinite(strategy.model_.coef_).all():
            raise WrongAcceptError("coefficients that are not finite")
        return REFUSED if "1003" in report.failures else None

    return quiet(trial)


def _later(mode: str) -> Trial:
    """Honest in the first round of a refinement, and not afterwards."""

    def trial(rng: Rng) -> str | None:
        data = honest_data(rng, 4)
        honest, turned = node(data[3]), [False]

        def turncoat(message: Message) -> Message:
            reply = honest(message)
            task = wire.request_config(message.content).get("fedridge-task")
            if task != "product" or (not turned[0] and rng.random() < 0.5):
                return reply
            turned[0] = True
            if rng.random() < 0.5:
                return Message(spoilt(rng), reply_to=message)
            array = next(iter(reply.content["arrays"].values())).numpy().copy()
            array.flat[rng.integers(array.size)] *= 1 + rng.choice([1.0, -2.0, 1e3])
            answer = dict(reply.content)
            answer["arrays"] = ArrayRecord([array])
            return Message(RecordDict(answer), reply_to=message)

        grid = InProcessGrid([node(rows) for rows in data[:3]] + [turncoat])
        strategy = FedRidge(ALPHA, mode=mode, min_available_nodes=4, max_rounds=60)
        strategy.start(grid, timeout=120)
        if "1003" in strategy.report_.participants:
            if turned[0]:
                return None  # a product that its own variances and factor allow
            _compare(strategy, pooled(data), set())
            return None  # it never lied
        return _compare(strategy, pooled(data[:3]), {"1003"})

    return quiet(trial)


def _all_hostile(rng: Rng) -> str | None:
    grid = InProcessGrid([liar(rng, KINDS[:6])] * 3)
    strategy = FedRidge(ALPHA, min_available_nodes=3)
    strategy.start(grid, timeout=120)
    if not np.isfinite(strategy.model_.coef_).all():
        raise WrongAcceptError("coefficients that are not finite")
    return None


def _evaluates(options: dict[str, Any], kind: str) -> Trial:
    """Honest rows, and lies about errors afterwards."""

    def trial(rng: Rng) -> str | None:
        data = honest_data(rng, 4)
        honest = node(data[3])

        def turncoat(message: Message) -> Message:
            evaluates = message.metadata.message_type == "evaluate"
            return liar(rng, [kind])(message) if evaluates else honest(message)

        grid = InProcessGrid([node(rows) for rows in data[:3]] + [turncoat])
        strategy = FedRidge(min_available_nodes=4, **options)
        strategy.start(grid, timeout=120)
        report = strategy.report_
        failed = {**report.evaluation_failures, **report.selection_failures}
        _readable(failed)
        if not np.isfinite(strategy.model_.coef_).all():
            raise WrongAcceptError("coefficients that are not finite")
        if not all(map(np.isfinite, (report.evaluation or {}).values())):
            raise WrongAcceptError("an average of errors that is not finite")
        return REFUSED if "1003" in failed else None

    return quiet(trial)


def _bad_errors(rng: Rng) -> str | None:
    """Errors of Flower itself, with a text that the client wrote."""
    data = honest_data(rng)
    part = str(rng.choice(["<class ''>:<'", "Error.", "\x1b[31m", "\n", "x: Error: "]))
    text = part * int(rng.choice([1, 1000, 100_000]))

    def broken(message: Message) -> Message:
        return Message(Error(code=2, reason=text), reply_to=message)

    grid = InProcessGrid([*(node(rows) for rows in data), broken])
    strategy = FedRidge(ALPHA, min_available_nodes=4)
    strategy.start(grid, timeout=120)
    if len(strategy.report_.failures["1003"]) > 400:
        raise WrongAcceptError("a reason of more than one line")
    return _compare(strategy, pooled(data), {"1003"})


# ---- replies that somebody else hands over ---------------------------------------


def _asked(strategy: FedRidge, n_nodes: int) -> list[Message]:
    grid = InProcessGrid([lambda message: message] * n_nodes)
    asked = list(strategy.configure_train(1, ArrayRecord(), ConfigRecord(), grid))
    for message in asked:
        message.metadata.__dict__["_message_id"] = str(uuid.uuid4())
    return asked


def _reply(rows: tuple[np.ndarray, np.ndarray], to: Message) -> Message:
    stats = SufficientStatistics.from_data(*rows)
    return Message(wire.statistics_reply(stats, False), reply_to=to)


def _stranger(to: Message, **metadata: Any) -> Callable[[RecordDict], Message]:
    def send(content: RecordDict) -> Message:
        reply = Message(content, reply_to=to)
        for key, value in metadata.items():
            reply.metadata.__dict__[f"_{key}"] = value
        return reply

    return send


def _handed_over(which: str) -> Trial:
    """Duplicates, replays, other runs, strangers: before and after the real answers."""

    def trial(rng: Rng) -> str | None:
        data = honest_data(rng)
        strategy = FedRidge(ALPHA, min_available_nodes=3)
        asked = _asked(strategy, 3)
        replies = [_reply(*pair) for pair in zip(data, asked, strict=True)]
        lie = wire.statistics_reply(
            SufficientStatistics.from_data(100 * data[0][0] + 5, -data[0][1]), False
        )
        target = asked[int(rng.integers(3))]
        source = target.metadata.dst_node_id
        liars: set[str] = set()
        if which == "duplicate answers":
            send = _stranger(target)
            extra = [send(lie if rng.random() < 0.5 else spoilt(rng, KINDS[:6]))]
            replies = replies + extra * int(rng.integers(1, 4))
        else:
            if which == "replayed answers, other runs":
                other = {"reply_to_message_id": str(uuid.uuid4())}
                if rng.random() < 0.3:
                    other["run_id"] = 99
                send = _stranger(target, **other)
            elif which == "one node answers for another":
                liar_id = int(rng.choice([4242, *(1000 + k for k in range(3))]))
                if liar_id == source:
                    liar_id = 4242
                send = _stranger(target, src_node_id=liar_id)
                liars = {"4242"} if liar_id == 4242 else set()
            else:
                odd = {"reply_to_message_id": str(rng.choice(["", "x"]))}
                send = _stranger(target, src_node_id=4242, **odd)
                liars = {"4242"}
            place = int(rng.integers(len(replies) + 1))
            replies.insert(place, send(lie))
        strategy.aggregate_train(1, replies)
        return _compare(strategy, pooled(data), liars)

    return quiet(trial)


# ---- the older API ---------------------------------------------------------------


def _proxies(n: int) -> list[Any]:
    return [SimpleNamespace(cid=str(k), node_id=1000 + k) for k in range(n)]


def _legacy(rng: Rng) -> str | None:
    """Hostile, doubled and uncalled-for results in the older strategy."""
    data = honest_data(rng)
    strategy = LegacyFedRidge(ALPHA, min_available_clients=4)
    clients = _proxies(5)
    manager: Any = SimpleNamespace(
        num_available=lambda: 4, all=lambda: {c.cid: c for c in clients[:4]}
    )
    strategy.configure_fit(1, strategy.initialize_parameters(manager), manager)
    results = []
    for rows, client in zip(data, clients, strict=False):
        stats = SufficientStatistics.from_data(*rows)
        answer = Draft("centred", [], {}, 0, True)
        fields = wire.schema_fields("centred", stats, False)
        answer.arrays = [("0", npy(stats.to_array()))]
        answer.fields, answer.count = dict(fields), stats.count
        results.append((client, recorddict_to_fitres(answer.records(), True)))
    hostile = None
    while hostile is None:
        kind = str(rng.choice(KINDS))
        draft = HONEST[kind](rng)
        attacks = attacks_on(kind)
        attacks[str(rng.choice(list(attacks)))](rng, draft)
        draft.legacy = True
        try:
            content = arrived(draft.records())
            if content is not None:
                hostile = recorddict_to_fitres(content, True)
        except (TypeError, KeyError, ValueError, AttributeError, IndexError):
            continue
    results.append((clients[3], hostile))
    if rng.random() < 0.3:
        results.append((clients[int(rng.integers(3))], hostile))
    if rng.random() < 0.3:
        results.append((clients[4], results[0][1]))
    strategy.aggregate_fit(1, results, [])
    return _compare(strategy, pooled(data), {"1003"})


def _legacy_evaluation(rng: Rng) -> str | None:
    data = honest_data(rng)
    strategy = LegacyFedRidge(ALPHA, fraction_evaluate=1.0, min_available_clients=3)
    clients = _proxies(3)
    for rows, client in zip(data, clients, strict=True):
        part = SufficientStatistics.from_data(*rows)
        strategy._run.round.into.add(str(client.node_id), part)
    strategy._finish_round("aggregate_fit", 1)
    strategy._asked = [str(client.node_id) for client in clients]
    try:
        told = recorddict_to_evaluateres(spoilt(rng, ["evaluation"]))
    except (TypeError, KeyError, ValueError, AttributeError, IndexError):
        return UNSENT
    strategy.aggregate_evaluate(1, [(client, told) for client in clients], [])
    averaged = strategy.report_.evaluation or {}
    _readable(strategy.report_.evaluation_failures)
    if not all(map(np.isfinite, averaged.values())):
        raise WrongAcceptError("an average of errors that is not finite")
    return None if averaged else REFUSED


def round_cases() -> list[Case]:
    beside = "hostile beside honest"
    cases = {
        (beside, "one round"): _beside({}, KINDS[:6]),
        (beside, "one round, any answer"): _beside({}),
        (beside, "one round, float32"): _beside({"wire_dtype": "float32"}, KINDS[:6]),
        (beside, "one round, triangular"): _beside(
            {"statistics": "triangular"}, ["triangular statistics", KINDS[0]]
        ),
        (beside, "private"): _survives({"privacy": PRIVACY}, ["private release"]),
        (beside, "a map that needs data"): _survives(
            {"feature_map": "standardize"}, ["column moments", KINDS[0]]
        ),
        (beside, "refine"): _beside({"mode": "refine"}),
        (beside, "cg"): _beside({"mode": "cg"}),
        (beside, "honest first (refine)"): _later("refine"),
        (beside, "honest first (cg)"): _later("cg"),
        (beside, "evaluation"): _evaluates({"fraction_evaluate": 1.0}, "evaluation"),
        (beside, "held-out losses"): _evaluates(
            {"alphas": [0.1, 1.0, 10.0], "cv": "clients"}, "held-out losses"
        ),
        (beside, "errors with a text"): quiet(_bad_errors),
        (beside, "older API"): quiet(_legacy),
        (beside, "older API, evaluation"): quiet(_legacy_evaluation),
        ("all hostile", "one round"): quiet(_all_hostile),
    }
    for which in (
        "duplicate answers",
        "replayed answers, other runs",
        "one node answers for another",
        "strangers that were not asked",
    ):
        cases["handed over", which] = _handed_over(which)
    return [Case(*name, trial, share=0.3) for name, trial in cases.items()]
