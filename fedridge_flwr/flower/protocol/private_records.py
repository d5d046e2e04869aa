"""Private questions and answers as Flower records, and the memory of a client."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, TypeAlias

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, Context, RecordDict
from numpy.typing import NDArray

from ..._types import Array
from ...errors import PrivacyError, PrivacyWarning, ProtocolError
from ...privacy.curator import Curator
from ...privacy.curator import ReleaseRequest as Request
from ...privacy.ledger import PrivacyLedger
from ...privacy.mechanism import PREFIX, DifferentialPrivacy
from ...privacy.noisy_statistics import PrivateStatistics
from ...privacy.policy import PrivacyPolicy
from ...privacy.release import ReleaseQuestion as Question

__all__ = [
    "PRIVATE_PROTOCOL",
    "PROTOCOL_KEY",
    "ClientName",
    "StatePast",
    "check_guards",
    "curator_of",
    "forget_releases",
    "is_private",
    "private_request",
    "read_release",
    "refuse_private_evaluation",
    "request_arrays",
    "request_fields",
]

ClientName: TypeAlias = str | Callable[[Context], str]

PROTOCOL_KEY = "fedridge-protocol"
PRIVATE_PROTOCOL = 2
"""Clients that know no privacy refuse this version instead of answering exactly."""

_STATE = "fedridge-releases"
_LARGEST_COEF = 1e100
_RELEASE, _INTERCEPT = "release-id", "release-intercept"
_ROUND, _CLIP = "release-round", "release-clip"


class StatePast(MutableMapping[str, Array]):
    """A client's answers in one run, kept in Flower's state of the node.

    It outlives messages and processes, as long as the run.
    """

    def __init__(self, state: RecordDict) -> None:
        self._state = state

    def _record(self) -> ArrayRecord:
        record = self._state.get(_STATE)
        return record if isinstance(record, ArrayRecord) else ArrayRecord()

    def __getitem__(self, key: str) -> Array:
        return np.asarray(self._record()[key].numpy(), dtype=np.float64)

    def __setitem__(self, key: str, value: Array) -> None:
        kept = dict(self._record())
        kept[key] = FlowerArray(np.ascontiguousarray(value, dtype=np.float64))
        self._state[_STATE] = ArrayRecord(kept)

    def __delitem__(self, key: str) -> None:
        raise PrivacyError("what was released cannot be taken back.")

    def __iter__(self) -> Iterator[str]:
        return iter(self._record())

    def __len__(self) -> int:
        return len(self._record())


def check_guards(
    policy: PrivacyPolicy | None,
    ledger: PrivacyLedger | None,
    name: ClientName | None,
) -> None:
    """Refuse a client's own settings that would only fail when it is asked."""
    if ledger is not None and not name:
        raise PrivacyError(
            "privacy_ledger needs client_name=, the name that these data have in the "
            'ledger in every run, as client_name="clinic-a": node ids change from run '
            "to run."
        )
    if ledger is None or policy is None:
        return
    if policy.max_epsilon > ledger.max_epsilon:
        warnings.warn(
            f"the policy grants epsilon {policy.max_epsilon:g}, but the ledger's "
            f"budget is {ledger.max_epsilon:g}: anything above is refused.",
            PrivacyWarning,
            stacklevel=3,
        )


def curator_of(
    context: Context,
    policy: PrivacyPolicy | None,
    ledger: PrivacyLedger | None,
    name: ClientName | None,
) -> Curator:
    """Return the curator of a client, with its memory of this run."""
    known = name(context) if callable(name) else name
    return Curator(policy, ledger, known or "", StatePast(context.state))


def refuse_private_evaluation(
    privacy: DifferentialPrivacy | None, fraction_evaluate: float
) -> None:
    """Refuse an evaluate round of a private fit."""
    if privacy is not None and fraction_evaluate > 0:
        raise PrivacyError(
            "fraction_evaluate must be 0 with privacy: errors counted on the clients' "
            "rows are a further release about them. Evaluate on rows that are public, "
            "or the server's own: start(grid, evaluate_fn=f), f(server_round, arrays)."
        )


def forget_releases(context: Context) -> None:
    """Forget what a client released in this run, because its rows are others now.

    For simulations that give their clients new rows within one run. With the same rows
    it would break the promise.
    """
    context.state.pop(_STATE, None)


# ---- questions -------------------------------------------------------------------


def request_fields(request: Request) -> dict[str, bool | float | int | str]:
    """Return a question as scalars of both APIs."""
    return {
        **request.privacy.to_config(),
        PROTOCOL_KEY: PRIVATE_PROTOCOL,
        _RELEASE: request.release,
        _INTERCEPT: request.intercept,
        _ROUND: request.question.server_round,
        _CLIP: float(request.question.clip),
    }


def request_arrays(request: Request) -> dict[str, NDArray[Any]]:
    """Return the arrays of a question: coefficients, in residual refinement."""
    coef = request.question.coef
    return {} if coef is None else {"coef": np.ascontiguousarray(coef)}


def is_private(config: Mapping[str, Any]) -> bool:
    """Whether a request is a private one, however badly made."""
    return config.get(PROTOCOL_KEY) == PRIVATE_PROTOCOL or any(
        str(key).startswith(PREFIX) for key in config
    )


def private_request(
    config: Mapping[str, Any], arrays: list[NDArray[Any]]
) -> Request | None:
    """Return the private question in a request, None if it is not a private one."""
    privacy = DifferentialPrivacy.from_config(config)
    if privacy is None:
        if is_private(config):
            raise PrivacyError("the request for privacy does not say how much.")
        return None
    server_round: Any = config.get(_ROUND)
    clip: Any = config.get(_CLIP)
    intercept: Any = config.get(_INTERCEPT)
    # Python takes True for 1, and a second name for a round would be a second answer.
    kinds = (type(server_round), type(intercept))
    if kinds != (int, bool) or not isinstance(clip, float):
        raise PrivacyError("the request does not say what it asks for.")
    if not np.isfinite(clip) or clip < 0:
        raise PrivacyError("the bound on residuals must be a finite number.")
    coef = None
    if arrays:
        coef = np.asarray(arrays[0], dtype=np.float64)
        sane = coef.ndim == 1 and bool((np.abs(coef) <= _LARGEST_COEF).all())
        if len(arrays) != 1 or not sane:
            raise PrivacyError("the coefficients of the request are not a vector.")
    return Request(
        release=str(config.get(_RELEASE)),
        privacy=privacy,
        intercept=intercept,
        question=Question(server_round, coef, float(clip)),
    )


# ---- answers ---------------------------------------------------------------------


def read_release(
    arrays: list[NDArray[Any]],
    n_features: int,
    n_targets: int,
    request: Request,
    **schema: Any,
) -> PrivateStatistics:
    """Return the release in an answer, held against what was asked."""
    if len(arrays) != 1:
        raise ProtocolError(f"expected one array of a release, got {len(arrays)}.")
    privacy = request.privacy
    return PrivateStatistics(
        sums=arrays[0],
        privacy=privacy,
        bounds=privacy.bounds(n_features, n_targets, request.intercept),
        server_round=request.question.server_round,
        **schema,
    )
