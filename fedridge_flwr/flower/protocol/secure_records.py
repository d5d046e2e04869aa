"""Messages of a secure sum as fields and arrays of bytes, and back, without trust."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...data.schema import Schema
from ...errors import ProtocolError
from ...federation.requests import (
    SECURE_TASKS,
    AskConfirm,
    AskKeys,
    AskMasked,
    AskShares,
    AskUnmask,
    Request,
)
from ...federation.secure_sum.terms import FINGERPRINT, SESSION, Terms

_SESSION, _TERMS = "secure-session", "secure-terms"
_PRESENT, _DELIVERED = "secure-present", "secure-delivered"
_OTHERS = "secure-others"
_MOST_CLIENTS = 100_000


# ---- the server writes --------------------------------------------------------------


def secure_parts(request: Any) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return a request of a secure sum as scalars, and arrays."""
    if request.task == AskShares.task:
        told = {_TERMS: request.terms.pack(), _OTHERS: b"".join(request.others)}
        return told, {"keys": request.keys}
    fields = {_SESSION: request.session}
    if request.task == AskMasked.task:
        return {**fields, _PRESENT: request.present}, {"boxes": request.boxes}
    if request.task == AskConfirm.task:
        return {**fields, _DELIVERED: request.delivered}, {}
    if request.task == AskUnmask.task:
        return fields, {"confirmations": request.confirmations}
    return fields, {}


# ---- the client reads ---------------------------------------------------------------


def read_secure(
    task: str,
    config: Mapping[str, Any],
    arrays: Sequence[NDArray[Any]],
    rest: Mapping[str, Any],
) -> Request:
    """Return what a request of a secure sum asks for, or raise what is wrong."""
    if task == AskShares.task:
        terms = Terms.unpack(config.get(_TERMS, b""))
        told = _field(config, _OTHERS)
        starts = range(0, len(told), FINGERPRINT)
        others = [told[start : start + FINGERPRINT] for start in starts]
        return AskShares(terms, _bytes(arrays), others, **rest)
    session = _field(config, _SESSION, SESSION)
    if task == AskKeys.task:
        return AskKeys(session, **rest)
    if task == AskMasked.task:
        return AskMasked(session, _field(config, _PRESENT), _bytes(arrays), **rest)
    if task == AskConfirm.task:
        return AskConfirm(session, _field(config, _DELIVERED), **rest)
    return AskUnmask(session, _bytes(arrays), **rest)


def _field(config: Mapping[str, Any], key: str, length: int | None = None) -> bytes:
    value = config.get(key)
    if type(value) is not bytes or length not in (None, len(value)):
        raise ProtocolError(f"the request has no valid {key}.")
    return value


def _bytes(arrays: Sequence[NDArray[Any]]) -> NDArray[np.uint8]:
    if len(arrays) != 1 or arrays[0].dtype != np.uint8 or arrays[0].ndim != 2:
        raise ProtocolError("expected one array with a row of bytes for each client.")
    if not 0 < len(arrays[0]) <= _MOST_CLIENTS:
        raise ProtocolError(f"an array has {len(arrays[0])} rows for clients.")
    return arrays[0]


# ---- the server reads ---------------------------------------------------------------


def _read_keys(
    request: Any, arrays: Sequence[NDArray[Any]], schema: Schema, count: int
) -> Any:
    # They bring the primitives along, which no other answer needs.
    from ...federation.fits.secure_fit import AdvertisedKeys
    from ...federation.secure_sum.keys import PublicKeys

    _check_asked(request, AskKeys.task)
    keys = PublicKeys.unpack(_bytes(arrays).tobytes())
    keys.check()
    return AdvertisedKeys(keys, schema)


def _read_bytes(
    task: str,
    request: Any,
    arrays: Sequence[NDArray[Any]],
    schema: Schema,
    count: int,
) -> NDArray[np.uint8]:
    _check_asked(request, task)
    return _bytes(arrays)


def _read_masked(
    request: Any, arrays: Sequence[NDArray[Any]], schema: Schema, count: int
) -> NDArray[np.uint64]:
    _check_asked(request, AskMasked.task)
    if len(arrays) != 1 or arrays[0].dtype != np.uint64:
        raise ProtocolError("expected one array of masked numbers.")
    return arrays[0]


SECURE_READERS: dict[str, Any] = {
    **{task: partial(_read_bytes, task) for task in SECURE_TASKS},
    AskKeys.task: _read_keys,
    AskMasked.task: _read_masked,
}
"""Readers of answers by their kind, which is the task; shapes are checked later."""


def _check_asked(request: Any, task: str) -> None:
    if request.task != task:
        raise ProtocolError(f'sent "{task}", which was not asked for.')
