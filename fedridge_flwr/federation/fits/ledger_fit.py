"""`LedgerAggregate`: a fit that merges into what a ledger has.

Answers that have been checked are in the ledger before anybody waits for others; those
that came together share a transaction. When the fit has ended, all answers that count
enter the ledger's total together. After a crash between the two, the next fit finds the
run open and asks only who is missing.
"""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from ..._text import counted
from ...data.schema import Schema
from ...errors import LedgerError, StatisticsError
from ..aggregate import Aggregate, Contribution
from ..ledger.contribution_ledger import Ledger
from ..ledger.ledger_storage import LedgerEntry
from ..requests import AskStatistics
from ..scope import by_reason
from ..settings import FitSettings

log = logging.getLogger("flwr")
_MOST_UPLOADS = 4096
_EARLIER = "earlier upload"
_RESUMED = "answer to an interrupted run"
_UNWRITTEN_BYTES = 16 << 20
_NAMELESS = (
    "has no name that is the same in every run, which a ledger needs: register its "
    "SuperNode with --name, or start it with --node-config 'name=\"clinic-a\"'"
)
_SHARED = (
    "another node has the same name, so a ledger cannot tell the two apart: give every "
    "SuperNode a name of its own"
)


class _Opened(NamedTuple):
    ledger: Ledger
    arrived: Mapping[str, LedgerEntry]
    """Who answered before the run was interrupted."""
    columns: Schema | None
    """The columns of its total, if it has one."""


@dataclass
class LedgerAggregate(Aggregate):
    """The contributions of one fit, and those that a ledger has of other clients.

    Clients go by their names in the ledger. One that does not answer, or whose answer
    is of no use, stays in the model with its earlier contribution, and `stale` says
    why. All whose contribution is of an earlier run are in `earlier`; those that had
    withdrawn and have answered again are in `returned`. `uploads` says of every client
    in the model what this run has of it.
    """

    earlier: list[str] = field(default_factory=list)
    stale: dict[str, str] = field(default_factory=dict)
    returned: dict[str, str] = field(default_factory=dict)
    _sent: dict[str, str] = field(default_factory=dict)
    _nodes: dict[str, str] = field(default_factory=dict)
    _latest: Any = None
    _unwritten: dict[str, Any] = field(default_factory=dict)
    _sum: Any = None

    @cached_property
    def _opened(self) -> _Opened:
        """The ledger, opened for this run, and what was in it."""
        ledger = Ledger(self.settings.ledger or "")
        try:
            arrived = ledger.open_run(_what_is_asked(self.settings))
            total: Any = ledger.total() if ledger.clients() else None
            if total is not None and (total.form == "fixed") != self._wants_fixed:
                made = "fixed" if total.form == "fixed" else "moments"
                raise LedgerError(
                    f'the ledger was made with statistics="{made}", and this fit asks '
                    f'for statistics="{self.settings.statistics}". Use the settings '
                    "that it was made with."
                )
            found = _Opened(ledger, arrived, None if total is None else total.schema)
        except BaseException:
            ledger.close()
            raise
        if arrived:
            told = counted(len(arrived), "answer")
            log.info("The ledger has an open run with %s: it goes on.", told)
        return found

    @property
    def _wants_fixed(self) -> bool:
        return self.settings.statistics == "fixed"

    # ---- whom to ask ----------------------------------------------------------

    def has_answered(self, client: str) -> bool:
        """Whether a client answered before the run was interrupted."""
        return client in self._opened.arrived

    def request_with_uploads(self, request: AskStatistics) -> AskStatistics:
        """Return a request, one for all, that says which uploads the ledger has.

        If they are too many to be sent to everybody, clients send all their rows.
        """
        uploads = self._opened.ledger.uploads()
        few = uploads if len(uploads) <= _MOST_UPLOADS else frozenset()
        return replace(request, uploads=few)

    # ---- answers --------------------------------------------------------------

    def claim(self, client: str, node: str) -> None:
        """Say which node goes by a name; two of them with one name are both refused."""
        if self._nodes.setdefault(client, node) != node:
            self._nodes[client] = ""
            self._is_first(client)
            self.reject(client, _SHARED)

    def take(self, client: str, read: Callable[[], Any]) -> None:
        """Take an answer, and keep it in the ledger once it has been checked."""
        if self.has_answered(client) or self._nodes.get(client) == "":
            return
        if client.isdigit():
            self.refuse(client, _NAMELESS)
            return
        is_first = client not in self.answered
        super().take(client, read)
        if is_first and client not in self.failures:
            self._unwritten[client] = self._latest
            if len(self._unwritten) * self._latest[0].nbytes >= _UNWRITTEN_BYTES:
                self.keep()

    def refuse(self, client: str, reason: str) -> None:
        """Name a client that failed, but not one whose answer is in the open run.

        Nodes that tell their names only when they answer are asked once more.
        """
        if not self.has_answered(client):
            super().refuse(client, reason)

    def keep(self) -> None:
        """Write the answers that have been checked since the last time."""
        if self._unwritten:
            self._opened.ledger.receive_all(self._unwritten)
            self._unwritten = {}

    def add(self, client: str, part: Any) -> None:
        """Add one contribution; of new rows, together with those before."""
        part, upload, since = part
        self._sent[client] = _kind(upload, since)
        if since:
            part = self._opened.ledger.with_new_rows(client, part, since)
        self._latest = part, upload
        super().add(client, part)

    def _reason_to_refuse(self, part: Contribution) -> str | None:
        reason = super()._reason_to_refuse(part)
        there, schema = self._opened.columns, part.schema
        if reason is not None or there is None:
            return reason
        unnamed = schema.features is None and there.features is not None
        if unnamed and self.settings.unnamed == "refuse":
            return (
                "has no feature names (a bare array), so their order cannot be "
                "compared with that of the ledger"
            )
        why = schema.mismatch(there)
        if why is None or _in_another_order(schema, there):
            return None
        return f"its columns are not those of the ledger: {why}"

    # ---- the end --------------------------------------------------------------

    def result(self) -> Any:
        """Return the total of this run and of all else that the ledger has."""
        part: Any
        self.keep()
        ledger = self._opened.ledger
        known = ledger.clients()
        if "" in self._nodes.values():
            self._groups = {}  # again, without those who share a name
            for client, part in ledger.received(self.participants):
                self._merge(client, part)
        missing = [c for c in self._opened.arrived if c not in self._seen]
        for client, part in ledger.received(missing):
            super().add(client, part)
        self._bring_in({c: known[c] for c in known if c not in self.participants})
        total = super().result()
        if rejected := {c: known[c] for c in known if c in self.failures}:
            # Their answers did not fit those of the others: the earlier ones may.
            self._groups = {
                key: group
                for key, group in self._groups.items()
                if not rejected.keys() & set(group.clients)
            }
            self._bring_in(rejected)
            total = super().result()
        for client in known:
            if client in self.failures:
                raise LedgerError(
                    f"what the ledger has of {client!r} cannot be used in this fit: "
                    f"{self.failures[client]}. Use the settings that it was made with, "
                    "or remove the client from the ledger."
                )
        for client, when in ledger.withdrawn().items():
            if client in self.participants:
                self.returned[client] = f"withdrawn on {when}, in the model again"
                log.warning("client %s: %s", client, self.returned[client])
        for clients, reason in by_reason(self.stale):
            log.warning("%s: %s", clients, reason)
        self._sum = total
        return total

    @property
    def uploads(self) -> dict[str, str]:
        """What this run has of every client in the model."""
        known = dict.fromkeys(self.participants, _RESUMED) | self._sent
        known |= dict.fromkeys(self.earlier, _EARLIER)
        return {client: known[client] for client in self.participants}

    def _bring_in(self, clients: Mapping[str, LedgerEntry]) -> None:
        """Add the earlier contributions of clients that this run has nothing of."""
        for client, entry in clients.items():
            if client in self.failures:
                self.stale[client] = (
                    f"in the model with its upload of {entry.time}: "
                    f"{self.failures.pop(client)}"
                )
            self._seen.pop(client, None)
            self.repeated = [each for each in self.repeated if each != client]
            part: Any = self._opened.ledger.contribution(client)
            super().add(client, part)
            self.earlier.append(client)

    def close_run(self) -> None:
        """Put the answers that count into the ledger's total."""
        fresh = [c for c in self.participants if c not in self.stale]
        # Rearranged, or whole numbers that have become moments, it is another total.
        same = not (self.rearranged or self._wants_fixed)
        self._opened.ledger.close_run(fresh, self._sum if same else None)
        self.release()

    def release(self) -> None:
        """Let others use the ledger; an open run stays open."""
        if "_opened" in self.__dict__:
            self._opened.ledger.close()
            del self.__dict__["_opened"]


def _kind(upload: Any, since: Any) -> str:
    """Return what an answer is about: without new rows, it is the last upload again."""
    if not since:
        return "all rows"
    return "nothing new" if upload == since else "new rows"


def _in_another_order(schema: Schema, there: Schema) -> bool:
    try:
        schema.places_of(there.columns)
    except StatisticsError:
        return False
    return schema.unnamed == there.unnamed


def _what_is_asked(settings: FitSettings) -> str:
    """Return what decides about the answers; another alpha does not."""
    feature_map, names = settings.feature_map, settings.feature_names
    asked = {
        "statistics": settings.statistics,
        "wire_dtype": settings.wire_dtype,
        "feature_map": None if feature_map is None else feature_map.to_json(),
        "feature_names": None if names is None else list(names),
    }
    return json.dumps(asked, sort_keys=True)
