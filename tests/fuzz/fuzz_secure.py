"""Hostile messages in secure sums: answers to the server, requests to a client.

The answers of one client of five are spoilt and read as the server reads them. What is
then accepted is held against what was dealt; in whole sums, against the exact sum.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import lru_cache, partial
from typing import Any

import numpy as np
import wire
from fakes import node_context, set_task_identity
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from fuzz_attacks import BESIDE, SENT, Attack
from fuzz_drafts import Draft, Rng, npy
from fuzz_replies import arrived
from fuzz_run import REFUSED, UNSENT, Case, HiddenError, Trial, WrongAcceptError, quiet
from secure_grids import TASKS, integer_total, same_bits

from fedridge_flwr import FedRidgeError, SecurePolicy, SecureSum, ridge_client_app
from fedridge_flwr.federation.fit_run import FitRun
from fedridge_flwr.federation.fits.secure_fit import AdvertisedKeys
from fedridge_flwr.federation.secure_sum.client_steps import CONFIRMATION, ENTRY
from fedridge_flwr.federation.secure_sum.server_steps import SecureSession
from fedridge_flwr.federation.settings import FitSettings
from fedridge_flwr.flower.protocol.answer_records import read_answer
from fedridge_flwr.flower.protocol.request_records import (
    open_request,
    request_content,
    request_parts,
)

CLIENTS, FEATURES = 5, 2
READERS = {task: f"{task.replace('-', ' ')} answer" for task in TASKS}
ASKED = {task: f"{task.replace('-', ' ')} request" for task in TASKS}

_NO_ARRAY = {
    name: attack for name, attack in BESIDE.items() if name != "a count that cannot be"
}


def rows_of(k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(k)
    X = rng.normal(size=(6, FEATURES))
    return X, X.sum(axis=1) + rng.normal(size=6)


def load_data(context: Context) -> Any:
    return rows_of(int(context.node_config["partition-id"]))


APP = ridge_client_app(load_data, secure_policy=SecurePolicy(), reuse_data=False)


class Stage:
    """A sum at one exchange: the requests, everybody's answers, and the session."""

    def __init__(self, contexts: list[Context], run: FitRun) -> None:
        self.contexts, self.run = contexts, run
        self.requests = _requests(run)
        self.before = [deepcopy(context) for context in contexts]
        self.answers = [
            _reply(self.requests[str(k)], context) for k, context in enumerate(contexts)
        ]


def _requests(run: FitRun) -> dict[str, Any]:
    asked: Any = run.round.ask if run.round is not None else {}
    return asked if isinstance(asked, dict) else {str(k): asked for k in range(CLIENTS)}


def _message(request: Any) -> RecordDict:
    fields, arrays = request_parts(request)
    return request_content(fields, arrays, "message")


def _reply(request: Any, context: Context) -> RecordDict:
    set_task_identity()
    asked = Message(_message(request), dst_node_id=1, message_type="train")
    return APP(asked, context).content


def _give(run: FitRun, stage: Stage, answers: dict[str, RecordDict]) -> None:
    for client, content in answers.items():
        request = stage.requests[client]
        run.round.into.take(client, partial(read_answer, content, request))


@lru_cache(maxsize=1)
def stages() -> dict[str, Stage]:
    """Return an honest sum, exchange by exchange."""
    contexts = [node_context(k, CLIENTS) for k in range(CLIENTS)]
    run, found = FitRun(FitSettings(secure=SecureSum())), {}
    for task in TASKS:
        stage = found[task] = Stage(contexts, run)
        _give(run, stage, {str(k): stage.answers[k] for k in range(CLIENTS)})
        stage.session = _session(run)  # type: ignore[attr-defined]
        run.finish_round()
    return found


def _session(run: FitRun) -> SecureSession | None:
    """Return the session of a sum, from where its answers go."""
    return getattr(run.round.into, "session_of", {}).get("0")


def draft_of(content: RecordDict, request: Any, rng: Rng) -> Draft:
    arrays: Any = content.get("arrays", {})
    return Draft(
        kind=str(content["config"].get("kind", "")),
        arrays=[(name, npy(array.numpy())) for name, array in arrays.items()],
        fields=dict(content["config"]),
        count=1,
        legacy=bool(rng.random() < 0.2),
        question=request,
    )


def _sent(draft: Draft, attack: Attack, rng: Rng) -> RecordDict | None:
    try:
        attack(rng, draft)
        return arrived(draft.records())
    except (TypeError, ValueError, IndexError):
        return None


# ---- answers ---------------------------------------------------------------------


def _decoded(task: str, name: str, attack: Attack) -> Trial:
    """Read one spoilt answer, and let the session take it."""

    def trial(rng: Rng) -> str | None:
        stage, client = stages()[task], int(rng.integers(CLIENTS))
        draft = draft_of(stage.answers[client], stage.requests[str(client)], rng)
        content = _sent(draft, attack, rng)
        if content is None:
            return UNSENT
        try:
            _judge(task, wire.read_answer(content, draft.question, None), str(client))
        except FedRidgeError as error:
            if name == "nothing":
                raise WrongAcceptError(
                    f"an honest answer is refused: {error}"
                ) from None
            raise
        return None

    return quiet(trial)


def _judge(task: str, found: Any, client: str) -> None:
    """Let a copy of the session take an answer, and look at what it believes."""
    if task == TASKS[0]:
        if not isinstance(found, AdvertisedKeys) or len(found.keys.mask) != 32:
            raise WrongAcceptError("keys that are none")
        return
    honest = stages()[task].session  # type: ignore[attr-defined]
    session = SecureSession(honest.terms, honest.keys)
    session.entries = dict(honest.entries)
    session.delivered = list(honest.delivered)
    if task == TASKS[1]:
        session.add_entries(client, found)
        entries = session.entries[client]
        if entries.shape != (CLIENTS, ENTRY) or entries.dtype != np.uint8:
            raise WrongAcceptError("boxes of another form")
    elif task == TASKS[2]:
        session.delivered = []
        session.add_masked(client, found)
        if found.shape != session.terms.shape or found.dtype != np.uint64:
            raise WrongAcceptError("masked numbers of another form")
    elif task == TASKS[3]:
        session.add_confirmations(client, found)
        rows = session.confirmed[client]
        if rows.shape != (CLIENTS, CONFIRMATION) or rows.dtype != np.uint8:
            raise WrongAcceptError("confirmations of another form")
    else:
        session.add_shares(client, found)
        for owner, shares in session._shares.items():
            for place, share in shares.items():
                if honest._shares[owner].get(place) != share:
                    raise WrongAcceptError("a share that nobody dealt")


def _whole(task: str, attack: Attack) -> Trial:
    """One client lies in one exchange: the sum of the others is exact, or none."""

    def trial(rng: Rng) -> str | None:
        contexts = [node_context(k, CLIENTS) for k in range(CLIENTS)]
        run, lied = FitRun(FitSettings(secure=SecureSum())), False
        for now in TASKS:
            stage = Stage.__new__(Stage)
            stage.requests = _requests(run)
            answers = {
                client: _reply(request, contexts[int(client)])
                for client, request in stage.requests.items()
            }
            if now == task and "4" in answers:
                draft = draft_of(answers["4"], stage.requests["4"], rng)
                content = _sent(draft, attack, rng)
                if content is None:
                    return UNSENT
                answers["4"], lied = content, True
            _give(run, stage, answers)
            _readable(run.round.into.failures)
            run.round.into.refuse_silent(stage.requests, "no answer")
            run.finish_round()
        members = [int(c) for c in run.report.participants]
        if same_bits(run.result.statistics, integer_total(map(rows_of, members))):
            return REFUSED if lied and 4 not in members else None
        if task == TASKS[2] and 4 in members:
            return None  # other numbers under its masks: poisoning, which nobody sees
        raise WrongAcceptError("a sum that is not that of its members")

    return quiet(trial)


def _readable(reasons: dict[str, str]) -> None:
    for reason in reasons.values():
        if "unreadable answer" in reason:
            raise HiddenError(reason)


# ---- requests --------------------------------------------------------------------


def _bytes_changed(rng: Rng, draft: Draft) -> None:
    """Flip, cut, extend or exchange the bytes of a field."""
    names = [name for name, value in draft.fields.items() if isinstance(value, bytes)]
    key = names[rng.integers(len(names))]
    value = bytearray(draft.fields[key])
    which = int(rng.integers(5))
    if which == 4:
        value = bytearray(
            rng.integers(0, 2, size=len(value)).astype(np.uint8).tobytes()
        )
    elif which == 0 and value:
        value[int(rng.integers(len(value)))] = int(rng.choice([0, 1, 2, 255]))
    elif which == 1:
        value = value[: int(rng.integers(len(value) + 1))]
    elif which == 2:
        value += rng.bytes(int(rng.choice([1, 2, 100, 100_000])))
    else:
        value = bytearray(rng.bytes(len(value)))
    draft.fields[key] = bytes(value)


def _rows_changed(rng: Rng, draft: Draft) -> None:
    """Exchange, repeat or leave out rows of an array of bytes."""
    name, data = draft.arrays[0]
    array = np.frombuffer(data[-5 * _width(data) :], np.uint8).reshape(5, -1)
    order = rng.integers(5, size=int(rng.choice([4, 5, 5, 5, 6])))
    draft.arrays[0] = (name, npy(array[order]))


def _width(data: bytes) -> int:
    return (len(data) - 128) // 5


def _asked_in_vain(task: str, attack: Attack) -> Trial:
    """Spoil a request: the client refuses, or answers what it may."""

    def trial(rng: Rng) -> str | None:
        stage, client = stages()[task], int(rng.integers(CLIENTS))
        context = deepcopy(stage.before[client])
        draft = draft_of(_message(stage.requests[str(client)]), None, rng)
        try:
            attack(rng, draft)
            content = arrived(_request_records(draft))
        except (TypeError, ValueError, IndexError):
            content = None
        if content is None:
            return UNSENT
        message = Message(content, dst_node_id=1, message_type="train")
        reply: Any = APP(message, context).content
        told = reply.get("config", reply.get("fitres.status", {}))
        if "error" in told or told.get("code"):
            raise FedRidgeError(str(told.get("error", told.get("message"))))
        if told.get("kind") != task:
            raise WrongAcceptError(f"answered {told.get('kind')!r}")
        if task == TASKS[3]:
            _check_confirmed(stage.requests[str(client)], draft.fields)
        if task == TASKS[4]:
            _check_unmasked(stage.requests[str(client)], content)
        return None

    return quiet(trial)


def _request_records(draft: Draft) -> RecordDict:
    arrays = {
        name: FlowerArray("uint8", (1,), "numpy.ndarray", data)
        for name, data in draft.arrays
    }
    found: dict[str, Any] = {
        "arrays": ArrayRecord(arrays),
        "config": ConfigRecord(draft.fields),
    }
    for key, record in draft.swap.items():
        found.pop(key, None)
        if record is not None:
            found[key] = record
    return RecordDict(found)


def _check_confirmed(request: Any, fields: dict[str, Any]) -> None:
    """Refuse that a list of too few is confirmed."""
    flags = fields.get("secure-delivered", request.delivered)
    good = len(flags) == CLIENTS and set(flags) <= {0, 1} and sum(flags) >= 4
    if not good:
        raise WrongAcceptError(f"confirmed {flags!r}")


def _check_unmasked(request: Any, content: RecordDict) -> None:
    """Refuse that masks are taken off without enough confirmations."""
    (given,) = (array.numpy() for array in open_request(content).arrays.values())
    if given.shape != request.confirmations.shape:
        raise WrongAcceptError("unmasked with confirmations of another form")
    if (given == request.confirmations).all(axis=1).sum() < 4:
        raise WrongAcceptError("unmasked without enough confirmations")


def _cases(make: Callable[[str, str, Attack], Trial]) -> list[tuple[str, str, Trial]]:
    return [
        (task, name, make(task, name, attack))
        for task in TASKS
        for name, attack in SENT.items()
        if name != "an answer to another question"
    ]


def secure_cases() -> list[Case]:
    answers = [
        Case(READERS[task], name, trial) for task, name, trial in _cases(_decoded)
    ]
    sums = [
        Case(f"a sum with a spoilt {READERS[task]}", name, trial, share=0.02)
        for task, name, trial in _cases(lambda t, n, a: _whole(t, a))
    ]
    asked = []
    for task in TASKS:
        attacks = {"bytes of a field": _bytes_changed, **_NO_ARRAY}
        if task in (*TASKS[1:3], TASKS[4]):
            attacks |= {"rows of the array": _rows_changed}
            attacks |= {name: SENT[name] for name in SENT if "header" in name}
            attacks |= {name: SENT[name] for name in ("bits flipped", "random numbers")}
        asked += [
            Case(ASKED[task], name, _asked_in_vain(task, attack), share=0.3)
            for name, attack in attacks.items()
        ]
    return [*answers, *sums, *asked]
