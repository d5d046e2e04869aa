"""`respond_since`: a client's answer that has new rows only, where that is safe.

The server says which uploads it has, by the random ids that clients gave them. A client
whose last upload is among them sends the statistics of the rows since; in any doubt it
sends those of all rows. So what the server has under an id is always the rows up to the
position that the client recorded with it, whatever was lost, repeated or late.
"""

import hashlib
import json
import math
import secrets
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from ..._files import read_bytes, strict_json, write_bytes
from ...data.local_table import RawRows
from ...data.rows import Rows, check_rows
from ...errors import DataError
from ..requests import ID_BYTES, Answer, AskStatistics
from .respond import Guards, admitted_rows, respond

LoadSince: TypeAlias = Callable[[Any], tuple[Any, Any] | None]
"""From a position, None for the beginning, to the rows since and the new position.

It returns None where it does not know the position.
"""

_FORMAT, _VERSION = "fedridge-uploads", 1
_KEPT = 64
_LONGEST_POSITION = 4096


@dataclass(frozen=True)
class Upload:
    """One upload: what the server calls it, and which rows it had sent with it.

    Parameters
    ----------
    id : str
        Random, in hexadecimal.
    number : int
        How many uploads there were, this one included.
    position : int, float or str
        Where its rows end, as `load_new_data` said.
    n_rows : int
        How many rows were sent, in this upload and those before that it continues.
    asked : str
        Hash of what the server asked for.
    """

    id: str
    number: int
    position: Any
    n_rows: int
    asked: str


class UploadRecord:
    """The last uploads of a client, in a file of its own: no rows, no statistics.

    A record that is missing or damaged is empty: all rows are sent again.

    Parameters
    ----------
    path : Path, optional
        The file, in a folder that exists; without one nothing is remembered.

    Examples
    --------
    >>> import tempfile
    >>> record = UploadRecord(Path(tempfile.mkdtemp()) / "uploads.json")
    >>> record.enter(Upload("0" * 32, 1, 20, 20, "a"))
    >>> record.last({"0" * 32}, "a").position
    20
    >>> record.last({"1" * 32}, "a") is None  # the server has another upload, or none
    True
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def uploads(self) -> list[Upload]:
        """Return the uploads, the oldest first."""
        if self._path is None:
            return []
        try:
            content = strict_json(read_bytes(self._path).decode("utf-8"))
            known = content["format"], content["version"]
            if known != (_FORMAT, _VERSION) or content["sha256"] != _digest(
                content["uploads"]
            ):
                return []
            return [Upload(**each) for each in content["uploads"]]
        except FileNotFoundError:
            if not self._path.parent.is_dir():
                raise DataError(
                    "there is no folder for the record of uploads: create it, or "
                    "name another."
                ) from None
            return []
        except (OSError, ValueError, LookupError, TypeError):
            return []

    def last(self, known: Collection[str], asked: str) -> Upload | None:
        """Return the one upload that the server has and that was asked for alike."""
        found = [upload for upload in self.uploads() if upload.id in known]
        return found[0] if len(found) == 1 and found[0].asked == asked else None

    def enter(self, upload: Upload) -> None:
        """Record an upload; it is on disk before it is sent."""
        if self._path is None:
            return
        kept = [asdict(each) for each in [*self.uploads(), upload][-_KEPT:]]
        content = {"format": _FORMAT, "version": _VERSION, "uploads": kept}
        text = json.dumps({**content, "sha256": _digest(kept)}, indent=1)
        write_bytes(self._path, text.encode())


def respond_since(
    request: AskStatistics, load: LoadSince, guards: Guards, record: UploadRecord
) -> Answer:
    """Return the statistics of new rows, or of all, or raise the reason why not.

    Parameters
    ----------
    request : AskStatistics
        What the server asks, with the uploads that it has.
    load : callable
        Returns rows and a position, from a position.
    guards : Guards
        What the client insists on: of the new rows as of all.
    record : UploadRecord
        What was sent before.
    """
    guards.check_request(request)
    asked = _digest_of(request)
    last = record.last(request.uploads or (), asked)
    if request.classes is not None:
        last = None  # of which classes there are, the new rows do not decide alone
    loaded_since = None if last is None else load(last.position)
    if last is None or loaded_since is None or not _goes_on(loaded_since, last):
        last, loaded_since = None, load(None)
    if loaded_since is None:
        raise DataError("load_new_data(context, None) must return all rows.")
    found, position = RawRows(*loaded_since[0]), loaded_since[1]
    check_position(position)
    if last is not None and not _checked(found).n_rows:
        # That there is nothing new is all that this says.
        nothing = respond(replace(request, uploads=None), lambda: found, Guards(0))
        return _answer(nothing, last, last)
    loaded, _ = admitted_rows(request, found, guards)
    uploads = record.uploads()
    n_rows = loaded.n_filled + (0 if last is None else last.n_rows)
    # Two uploads that differ by one row are the row, whatever their forms and columns.
    for each in uploads:
        if n_rows != each.n_rows:
            guards.check_number(abs(n_rows - each.n_rows))
    if last is not None and guards.keeps_history:
        whole = load(None)
        if whole is None or whole[1] != position:
            raise DataError("rows arrived while they were read: ask again.")
        all_rows = RawRows(*whole[0])
        guards.remember(_checked(all_rows), all_rows.origin)
    answer = respond(request, lambda: found, guards)
    number = 1 + max((each.number for each in uploads), default=0)
    upload = Upload(secrets.token_hex(ID_BYTES), number, position, n_rows, asked)
    record.enter(upload)
    return _answer(answer, upload, last)


def _checked(raw: RawRows) -> Rows:
    return check_rows(raw.X, raw.y, raw.weight)


def _answer(answer: Any, upload: Upload, last: Upload | None) -> Answer:
    since = b"" if last is None else bytes.fromhex(last.id)
    found: Answer = replace(answer, upload=bytes.fromhex(upload.id), since=since)
    return found


def _goes_on(loaded: Any, last: Upload) -> bool:
    """Whether rows since a position fit it; otherwise some that were sent are gone."""
    found, position = loaded
    if _goes_back(position, last):
        return False
    return position == last.position or _checked(RawRows(*found)).n_rows > 0


def _goes_back(position: Any, last: Upload) -> bool:
    """Whether rows that were sent are no longer there, where positions are numbers."""
    numbers = isinstance(position, int | float) and isinstance(
        last.position, int | float
    )
    return numbers and position < last.position


def check_position(position: Any) -> None:
    """Refuse a position that would not come back from the record as it is."""
    known = type(position) in (int, str) or (
        type(position) is float and math.isfinite(position)
    )
    if not known or len(str(position)) > _LONGEST_POSITION:
        # Not what it is: it may be rows, where somebody forgot the position.
        raise DataError(
            "load_new_data must return rows and a position, a number or a text of at "
            f"most {_LONGEST_POSITION} characters, got {type(position).__name__}."
        )


def _digest_of(request: AskStatistics) -> str:
    """Return a hash of all that decides what statistics of the same rows are."""
    maps = [
        None if m is None else m.to_json()
        for m in (request.feature_map, request.coding)
    ]
    rest = repr((request.columns, request.classes, request.class_weight))
    return _digest([*maps, rest, request.statistics, request.wire_dtype])


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
