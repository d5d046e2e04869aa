"""Messages of a secure sum as fields and arrays of bytes, and back, without trust."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...data.schema import Schema
from ...errors import ProtocolError
from ...federation.requests import (
    SECURE_TASKS,
    AskKeys,
    AskMasked,
    AskShares,
    AskUnmask,
    Request,
)
from ...federation.secure_sum.terms import SESSION, Terms

_SESSION, _TERMS = "secure-session", "secure-terms"
_PRESENT, _DELIVERED = "secure-present", "secure-delivered"
_MOST_CLIENTS = 100_000


# ---- the server writes --------------------------------------------------------------


def secure_parts(request: Any) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return a request of a secure sum as scalars, and arrays."""
    if request.task == AskShares.task:
        return {_TERMS: request.terms.pack()}, {"keys": request.keys}
    fields = {_SESSION: request.session}
    if request.task == AskMasked.task:
        return {**fields, _PRESENT: request.present}, {"boxes": request.boxes}
    if request.task == AskUnmask.task:
        fields[_DELIVERED] = request.delivered
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
        return AskShares(Terms.unpack(config.get(_TERMS, b"")), _bytes(arrays), **rest)
    session = _field(config, _SESSION, SESSION)
    if task == AskKeys.task:
        return AskKeys(session, **rest)
    if task == AskMasked.task:
        return AskMasked(session, _field(config, _PRESENT), _bytes(arrays), **rest)
    return AskUnmask(session, _field(config, _DELIVERED), **rest)


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
    from ...federation.secure_fit import AdvertisedKeys
    from ...federation.secure_sum.keys import PublicKeys

    _check_asked(request, AskKeys.task)
    keys = PublicKeys.unpack(_bytes(arrays).tobytes())
    keys.check()
    return AdvertisedKeys(keys, schema)


def _read_shares(
    request: Any, arrays: Sequence[NDArray[Any]], schema: Schema, count: int
) -> NDArray[np.uint8]:
    _check_asked(request, AskShares.task)
    return _bytes(arrays)


def _read_masked(
    request: Any, arrays: Sequence[NDArray[Any]], schema: Schema, count: int
) -> NDArray[np.uint64]:
    _check_asked(request, AskMasked.task)
    if len(arrays) != 1 or arrays[0].dtype != np.uint64:
        raise ProtocolError("expected one array of masked numbers.")
    return arrays[0]


def _read_unmask(
    request: Any, arrays: Sequence[NDArray[Any]], schema: Schema, count: int
) -> NDArray[np.uint8]:
    _check_asked(request, AskUnmask.task)
    return _bytes(arrays)


SECURE_READERS: dict[str, Any] = dict(
    zip(
        SECURE_TASKS,
        (_read_keys, _read_shares, _read_masked, _read_unmask),
        strict=True,
    )
)
"""Readers of answers by their kind, which is the task; shapes are checked later."""


def _check_asked(request: Any, task: str) -> None:
    if request.task != task:
        raise ProtocolError(f'sent "{task}", which was not asked for.')
