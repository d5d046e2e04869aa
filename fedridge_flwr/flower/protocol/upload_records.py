"""Ids of uploads on the wire: which ones a server has, and which one an answer is."""

from collections.abc import Iterable, Mapping
from typing import Any

from ...errors import ProtocolError
from ...federation.requests import ID_BYTES, Answer, Request, Sent

UPLOADS_KEY = "ledger-uploads"
_UPLOAD, _SINCE = "upload", "since-upload"
_MOST_BYTES = ID_BYTES << 16


def uploads_fields(uploads: Iterable[str]) -> dict[str, bytes]:
    """Return which uploads the server has; the ids say nothing to anybody else."""
    return {UPLOADS_KEY: b"".join(bytes.fromhex(each) for each in sorted(uploads))}


def read_uploads(config: Mapping[str, Any]) -> frozenset[str] | None:
    """Return which uploads the server says it has; None if it keeps none."""
    told = config.get(UPLOADS_KEY)
    if told is None:
        return None
    if not isinstance(told, bytes) or len(told) % ID_BYTES or len(told) > _MOST_BYTES:
        raise ProtocolError("the request does not say which uploads the server has.")
    places = range(0, len(told), ID_BYTES)
    return frozenset(told[k : k + ID_BYTES].hex() for k in places)


def upload_fields(answer: Answer) -> dict[str, bytes]:
    """Return what an answer says of the upload that it is."""
    return {_UPLOAD: answer.upload, _SINCE: answer.since}


def as_sent(found: Any, fields: Mapping[str, Any], request: Request) -> Sent:
    """Return statistics with the upload that they are, for a server that keeps them."""
    uploads = getattr(request, "uploads", ())
    upload, since = (_read_id(fields.get(key, b"")) for key in (_UPLOAD, _SINCE))
    if since and (since not in uploads or not upload):
        raise ProtocolError("sent the rows since an upload that the server has not.")
    return Sent(found, upload, since)


def _read_id(value: Any) -> str:
    if not isinstance(value, bytes) or len(value) not in (0, ID_BYTES):
        raise ProtocolError("sent an id of an upload that is none.")
    return value.hex()
