"""A client's part in a secure sum: its rows, its policy, and what it remembers."""

import hashlib
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from ...data.rows import Rows
from ...data.schema import Schema
from ...errors import (
    ColumnNamesError,
    DataError,
    PolicyError,
    PrivacyError,
    ProtocolError,
)
from ...features import map_rows
from ...linalg import limbs
from ...privacy.curator import ReleaseRequest
from ...statistics.fixed_point import FixedPointStatistics
from ...statistics.integer_sums import DEFAULT_GRID, MAX_CLIENTS, FixedGrid
from ..requests import (
    SECURE_TASKS,
    Answer,
    AskConfirm,
    AskKeys,
    AskMasked,
    AskShares,
    AskUnmask,
    Request,
)
from ..secure_sum import SecurePolicy
from ..secure_sum.client_steps import (
    KEYS_DUE,
    MOST_SUMS,
    SHARES_DUE,
    ClientState,
    advertise,
    as_rows,
    confirm,
    enter,
    mask,
    share,
    unmask,
)
from .private_respond import private_rows
from .respond import Guards, admitted_rows

EXTRA_ROWS = 2
"""Beside the statistics: the number of rows, and a one for the client itself."""

PRIVATE_WORDS = 2
"""128 bits: sums of clipped rows and their noise stay far below."""

_NO_COLUMNS = Schema(1)
_UNUSABLE = (
    "declined: its rows cannot be used in a secure sum; why is in this client's own "
    "log, and not told here."
)

log = logging.getLogger("flwr")


class ClientMemory(Protocol):
    """Where a client keeps its state between messages, for as long as a run."""

    def read(self) -> ClientState | None:
        """Return what it remembers of the secure sum of this run."""

    def write(self, state: ClientState) -> None:
        """Remember it."""

    def mark(self, step: str, state: ClientState, most: int) -> None:
        """Enter on disk, if it has a place there, that a step is answered.

        It raises if that was done `most` times in this run, or round of a private fit,
        or for this sum at all.
        """


@dataclass(frozen=True)
class SecureGuard:
    """A client that takes part in secure sums and answers nothing else.

    Parameters
    ----------
    memory : ClientMemory
        Its state between messages.
    policies : tuple of SecurePolicy
        What it insists on; all of them hold.
    """

    memory: ClientMemory
    policies: tuple[SecurePolicy, ...] = (SecurePolicy(),)

    def check_request(self, request: Request) -> None:
        """Refuse what is not part of a secure sum: it would tell of this client alone.

        That holds with a policy, and without one from the first secure sum of a run on.
        """
        if request.task not in SECURE_TASKS:
            raise ProtocolError(
                "this client takes part in secure sums only, and the request is for "
                "its own numbers: use FedRidge(secure=SecureSum()), without "
                "evaluation."
            )

    @property
    def min_clients(self) -> int:
        """How many clients must be in a sum, by the strictest policy."""
        return max(policy.min_clients for policy in self.policies)


def respond_securely(request: Any, load: Callable[[], Any], guards: Guards) -> Answer:
    """Return the next answer of a secure sum, or raise the reason why there is none."""
    guard = guards.secure
    if guard is None:
        raise ProtocolError(
            "a secure sum takes several messages, and this client remembers nothing "
            "between them: use ridge_client_app."
        )
    if request.classes is not None or request.class_weight:
        # One message could weigh the rows of all clients but one as nothing.
        raise ProtocolError("labels of classes have no part in a secure sum.")
    answer, stage = _ANSWERS[request.task], SECURE_TASKS.index(request.task) + KEYS_DUE
    before = guard.memory.read()
    entered = enter(before, stage, request.session, *_place_in_run(request))
    # From here on the step is taken, whatever becomes of it and of this process.
    most = MOST_SUMS if stage <= SHARES_DUE else 1
    guard.memory.mark(request.task, entered, most)
    guard.memory.write(entered)
    begun = entered if stage == KEYS_DUE else before
    try:
        state, found = answer(request, load, guards, guard, begun)
    except (ColumnNamesError, PolicyError):
        raise
    except DataError as error:
        # What is wrong with rows, and in how many, is about this client alone.
        log.warning("not part of the secure sum: %s", error)
        raise DataError(_UNUSABLE) from None
    guard.memory.write(state)
    return found


def _place_in_run(request: Request) -> tuple[str, int]:
    """Return which private fit a sum is for, and the round; exact ones have no fit."""
    release = request.private_release
    return ("", 1) if release is None else (release.fit, release.question.server_round)


def subject_of(schema: Schema, request: Request, grid: FixedGrid) -> bytes:
    """Return the hash of what is summed: which columns, in which order, how encoded.

    Examples
    --------
    >>> one = subject_of(Schema(2), AskKeys(bytes(16)), DEFAULT_GRID)
    >>> one == subject_of(Schema(3), AskKeys(bytes(16)), DEFAULT_GRID)
    False
    """
    columns, release = request.columns or (), request.private_release
    told = [
        (schema.n_features, schema.n_targets),
        (grid.fraction_bits, grid.total_bits, grid.exponents),
        [n and (n.hash, n.sorted_hash, n.order) for n in columns],
        None if request.feature_map is None else request.feature_map.to_json(),
        None if request.coding is None else request.coding.to_json(),
        None if release is None else [release.fit, release.key],
    ]
    return hashlib.sha256(json.dumps(told).encode()).digest()


def _keys(
    request: AskKeys,
    load: Callable[[], Any],
    guards: Guards,
    guard: SecureGuard,
    begun: ClientState,
) -> tuple[ClientState, Answer]:
    release, noise = request.release, (0, 0)
    if release is None:
        _, rows = admitted_rows(request, load(), guards)
        schema = map_rows(rows, request.feature_map).schema
    else:
        schema = private_rows(request, load(), guards).schema
        noise = release.privacy.min_clients, release.privacy.max_colluding
    identity, _ = _signers(guard)
    state, keys = advertise(begun, identity, *noise)
    return state, Answer(request.task, {"keys": as_rows([keys], len(keys))}, 1, schema)


def _shares(
    request: AskShares,
    load: Callable[[], Any],
    guards: Guards,
    guard: SecureGuard,
    before: ClientState,
) -> tuple[ClientState, Answer]:
    _, roster = _signers(guard)
    keys = [row.tobytes() for row in request.keys]
    state, entries = share(
        before, request.terms, keys, request.others, guard.min_clients, roster
    )
    return state, Answer(request.task, {"shares": entries}, 1, _NO_COLUMNS)


def _masked(
    request: AskMasked,
    load: Callable[[], Any],
    guards: Guards,
    guard: SecureGuard,
    before: ClientState,
) -> tuple[ClientState, Answer]:
    _check_promise(request, before)
    found = load()
    if request.release is None:
        loaded, rows = admitted_rows(request, found, guards)
        rows = map_rows(rows, request.feature_map)
        _check_subject(request, rows.schema, before)
        numbers = partial(_exact_words, rows, before)
    else:
        rows = loaded = private_rows(request, found, guards)
        _check_subject(request, rows.schema, before)
        numbers = partial(_noisy_words, request.release, rows, guards)
    told = request.session, request.present, request.boxes
    state, masked = mask(before, *told, numbers, guard.min_clients)
    if request.release is None:
        guards.remember(loaded, found.origin)
    return state, Answer(request.task, {"masked": masked}, 1, rows.schema)


def _check_promise(request: Request, before: ClientState) -> None:
    # Exact numbers in the rounds of a private fit would be several exact sums.
    if (before.fit, before.number) != _place_in_run(request):
        raise ProtocolError("the secure sum has begun under another promise.")


def _check_subject(request: Request, schema: Schema, before: ClientState) -> None:
    # Columns are moved by the order that the server tells: it must give its own hash.
    pairs = zip(schema.columns, request.columns or (None, None), strict=True)
    moved = any(own and told and own.hash != told.hash for own, told in pairs)
    if moved or subject_of(schema, request, DEFAULT_GRID) != before.agreed.subject:
        raise ProtocolError(
            "the secure sum is about other columns, or another order or map of them, "
            "than was agreed on."
        )


def _exact_words(rows: Rows, before: ClientState) -> limbs.Words:
    """Return what a client adds: its statistics, its number of rows, and a one."""
    # A limit that the server could move would tell how large the largest value is.
    if before.agreed.clients > MAX_CLIENTS:
        raise ProtocolError(f"a secure sum has at most {MAX_CLIENTS} clients.")
    stats = FixedPointStatistics.from_rows(rows, DEFAULT_GRID)
    extra = limbs.from_ints([stats.count, 1], DEFAULT_GRID.n_words)
    return np.concatenate([stats.to_words(), extra])


def _noisy_words(release: ReleaseRequest, rows: Rows, guards: Guards) -> limbs.Words:
    """Return a private release as it is masked; the number of rows is private."""
    if guards.curator is None:
        raise PrivacyError("there is nobody who makes private releases.")
    whole = guards.curator.answer_in_sum(release, rows)
    return limbs.from_ints([*map(int, whole), 0, 1], PRIVATE_WORDS)


def _confirm(
    request: AskConfirm,
    load: Callable[[], Any],
    guards: Guards,
    guard: SecureGuard,
    before: ClientState,
) -> tuple[ClientState, Answer]:
    told = request.session, request.delivered
    state, rows = confirm(before, *told, guard.min_clients)
    return state, Answer(request.task, {"confirmations": rows}, 1, _NO_COLUMNS)


def _unmask(
    request: AskUnmask,
    load: Callable[[], Any],
    guards: Guards,
    guard: SecureGuard,
    before: ClientState,
) -> tuple[ClientState, Answer]:
    state, shares = unmask(before, request.session, request.confirmations)
    return state, Answer(request.task, {"shares": shares}, 1, _NO_COLUMNS)


_ANSWERS: dict[str, Callable[..., tuple[ClientState, Answer]]] = dict(
    zip(SECURE_TASKS, (_keys, _shares, _masked, _confirm, _unmask), strict=True)
)


def _signers(guard: SecureGuard) -> tuple[Any, frozenset[bytes]]:
    """Return the key to sign with, and who must have signed: in all rosters."""
    identity, roster = None, frozenset[bytes]()
    for policy in guard.policies:
        key, members = policy.read_keys()
        identity = key or identity
        if members:
            roster = roster & members if roster else members
            if not roster:
                raise ProtocolError("nobody is on all rosters of this client.")
    return identity, roster
