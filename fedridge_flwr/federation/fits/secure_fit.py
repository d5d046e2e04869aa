"""The fit by a secure sum: five exchanges, after which the server has the total only.

A client that is lost, or whose answer cannot be used, is named and left out; the sum is
exact for the others. If too many are lost, there is an error and nothing is released.
A private fit of several rounds is one such sum in each, with new keys: a mask key of a
client that is lost is revealed, and would reveal its numbers of the rounds before.
"""

import random
import secrets
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np

from ..._text import counted
from ...data.coding import Coding
from ...data.names import Columns
from ...data.schema import Schema
from ...errors import FedRidgeError, NotEnoughClientsError, ProtocolError
from ...linalg import limbs
from ...linalg.packed import packed_length
from ...privacy.curator import ReleaseRequest
from ...privacy.noisy_statistics import PrivateStatistics
from ...privacy.release import Layout, ReleaseQuestion
from ...regression.model import RidgeModel
from ...statistics.fixed_point import FixedPointStatistics
from ...statistics.integer_sums import DEFAULT_GRID
from ..aggregate import Aggregate, Answers
from ..agreement.columns import reason_to_refuse
from ..answering.secure_respond import EXTRA_ROWS, PRIVATE_WORDS, subject_of
from ..costs import MOST_FEATURES
from ..requests import AskConfirm, AskKeys, AskMasked, AskShares, AskUnmask, Request
from ..round import Fit, Round
from ..scope import by_reason
from ..screening.screener import Screener
from ..secure_sum import SecureSum, Terms
from ..secure_sum.keys import PublicKeys
from ..secure_sum.server_steps import SecureSession
from ..secure_sum.terms import SESSION
from ..settings import SECURE_ROUNDS, FitSettings
from .gather import Gathered
from .one_shot import solve_gathered
from .private_fit import Later, new_release, private_result, refine

_WORDS = DEFAULT_GRID.n_words
_GONE = "not connected any more"
_SHOWN = 10
_MOST_GROUPS = 10

Step: TypeAlias = Callable[[SecureSession, str, Any], None]
"""What a secure sum does with an answer of a client."""


def secure_fit(settings: FitSettings) -> Fit:
    """Learn the sum of all statistics and nothing else, choose alpha, solve."""
    privacy = settings.privacy
    if privacy is None:
        gathered = yield from gather_securely(settings)
        result = yield from solve_gathered(settings, gathered)
    elif privacy.uses_residuals:
        result = yield from refine(settings, gather_securely, _ask_again)
    else:
        ask = new_release(settings)
        gathered = yield from gather_securely(settings, ask(ReleaseQuestion()))
        result = private_result(settings, gathered)
    seen = "the total" if settings.rounds == SECURE_ROUNDS else "totals"
    result.mode = f"secure sum: the server has seen {seen} only (experimental)"
    return result


def gather_securely(
    settings: FitSettings, release: ReleaseRequest | None = None
) -> Generator[Round, None, Gathered]:
    """Agree with all clients on their columns, and learn the sum of their numbers."""
    members = Members(settings=settings, feature_map=settings.feature_map)
    found = Gathered(
        settings, Screener(settings), members, feature_map=settings.feature_map
    )
    if settings.formula is not None:
        found.table.coding = Coding.public(settings.formula)

    parts = yield from _exchanges(found, members, release)
    found.total = _as_solved(sum(parts[1:], start=parts[0]))
    found.rounds, members.parts = SECURE_ROUNDS, {}
    if settings.selection == "groups":
        members.parts = {f"group {k}": _as_solved(p) for k, p in enumerate(parts, 1)}
    return found


def _ask_again(
    found: Gathered, release: ReleaseRequest, clients: list[str], model: RidgeModel
) -> Generator[Round, None, Later]:
    """Learn the sum of a later round over the clients that are left.

    The columns are those of the first round. A client that is lost before it delivers
    is not asked again: clients refuse to skip a round. Whatever is wrong with the sum,
    also numbers that no rows can have, the model of the rounds before stays.
    """
    first = found.answers
    members = Members(settings=first.settings, feature_map=found.feature_map)
    members.agreement = first.agreement
    try:
        parts = yield from _exchanges(found, members, release, clients, model)
    except FedRidgeError as error:
        return Later(None, members, str(error).splitlines()[0])
    return Later(parts[0], members)


def _exchanges(
    found: Gathered,
    members: "Members",
    release: ReleaseRequest | None,
    to: list[str] | None = None,
    model: RidgeModel | None = None,
) -> Generator[Round, None, list[Any]]:
    """Ask for keys, shares, masked statistics, confirmations, and for unmasking."""
    name = secrets.token_bytes(SESSION)
    begins = AskKeys(name, release)
    yield Round(found.about(begins), members, to=to, model=model)
    members.refuse_silent(to or (), _GONE)
    if members.agreement is None:
        members.result()
    sums = Sums(members, found.about(begins), model)

    asked: dict[str, Request]
    asked = {c: AskShares(s.terms, *s.keys_for(c)) for s in sums for c in s.keys}
    yield from sums.ask(asked, SecureSession.add_entries)
    sums.check_left("shares")

    asked = {
        c: found.about(AskMasked(name, *s.boxes_for(c), release))
        for s in sums
        for c in s.members
    }
    yield from sums.ask(asked, SecureSession.add_masked)
    sums.check_left("masked statistics")

    asked = {c: AskConfirm(name, s.who_delivered()) for s in sums for c in s.delivered}
    yield from sums.ask(asked, SecureSession.add_confirmations, stays=True)
    sums.check_confirmed()

    asked = {
        c: AskUnmask(name, s.confirmations_for(c)) for s in sums for c in s.confirmed
    }
    yield from sums.ask(asked, SecureSession.add_shares, stays=True)
    return [_total(session, sums) for session in sums]


@dataclass(frozen=True)
class AdvertisedKeys:
    """A client's public keys and columns; it is counted, and nothing is added up."""

    keys: PublicKeys
    schema: Schema
    count: int = 1

    form: ClassVar[str] = "secure"
    rounding: ClassVar[float] = 0.0

    def start_total(self) -> "AdvertisedKeys":
        """Return itself: there is nothing to add up."""
        return self

    def add(self, other: object) -> None:
        """Count nothing: the rows of single clients are not known."""

    def total(self) -> "AdvertisedKeys":
        """Return itself."""
        return self

    def __add__(self, other: object) -> "AdvertisedKeys":
        """Return itself."""
        return self

    def arranged(self, wanted: Columns) -> "AdvertisedKeys":
        """Return the same: clients rearrange their rows themselves."""
        return replace(self, schema=self.schema.arranged(wanted))

    def scale(self) -> Any:
        """Return a weight above zero, all that is known."""
        return 1.0, None, None


@dataclass
class _Exchange(Answers):
    """Answers that are handed to the sum of their client and not kept."""

    session_of: Mapping[str, SecureSession] = field(default_factory=dict)
    step: Step = field(default=lambda session, client, part: None)

    def add(self, client: str, part: Any) -> None:
        if self._is_first(client):
            self.step(self.session_of[client], client, part)
            self.parts[client] = None


@dataclass
class Members(Aggregate):
    """The clients of a fit by secure sums, of which only keys and columns are known."""

    @property
    def rows_left_out(self) -> dict[str, int]:
        """Nothing: how many rows a single client has is not known."""
        return {}

    def check(self, what: str, left: int, least: int = 0) -> None:
        """Raise if too few clients are left in a sum."""
        settings = self.settings
        promised = 0 if settings.privacy is None else settings.privacy.min_clients
        needed = max(_secure(settings).min_clients, promised, least)
        if left < needed:
            raise NotEnoughClientsError(
                _listed(
                    f"{counted(left, 'client')} sent {what} for the secure sum, at "
                    f"least {needed} needed: nothing is released.",
                    self.failures,
                )
            )

    def _reason_to_refuse(self, part: Any) -> str | None:
        if part.form != "secure":
            return "sent statistics without masks, which were not asked for"
        if any(part.keys.meets(other.keys) for other in self.parts.values()):
            return "sent a public key that another client has sent"
        return reason_to_refuse(part.schema, self.settings)


class Sums:
    """One secure sum over all clients, or one for each of several groups of them.

    Parameters
    ----------
    members : Members
        Clients that have sent their keys.
    asked : AskKeys
        What they were asked, about the columns agreed on.
    model : RidgeModel, optional
        The model so far, for those who watch the fit.
    """

    def __init__(
        self, members: Members, asked: AskKeys, model: RidgeModel | None = None
    ) -> None:
        members.check("keys", len(members.participants), members.settings.min_clients)
        self.members, self.release, self._model = members, asked.release, model
        self.late: dict[str, str] = {}
        self._sessions = [_session(members, group, asked) for group in _groups(members)]
        self._session_of = {c: each for each in self._sessions for c in each.keys}

    def __iter__(self) -> Iterator[SecureSession]:
        """Return the sums, one after another."""
        return iter(self._sessions)

    def ask(
        self, requests: Mapping[str, Request], step: Step, *, stays: bool = False
    ) -> Generator[Round, None, None]:
        """Ask clients, and name those that are lost; with `stays` they still count."""
        answers = _Exchange(session_of=self._session_of, step=step)
        yield Round(requests, answers, to=list(requests), model=self._model)
        answers.refuse_silent(requests, _GONE)
        self.members.repeated += answers.repeated
        lost = {
            client: self._session_of[client].name_neighbour(client, reason)
            for client, reason in answers.failures.items()
            if client in requests
        }
        if stays:
            self.late |= lost
            answers.failures.clear()  # they have delivered, and are in the sum
            return
        for client, reason in lost.items():
            self.members.reject(client, reason)

    def check_left(self, what: str) -> None:
        """Raise if too few clients are left in any of the sums."""
        members = self.members
        members.check(what, len(members.participants), members.settings.min_clients)
        for each in self:
            terms = each.terms
            everybody = terms.neighbours == terms.clients
            left = sum(client not in members.failures for client in each.keys)
            members.check(what, left, terms.threshold if everybody else 0)

    def check_confirmed(self) -> None:
        """Raise if too few clients have confirmed who is in the sum."""
        for each in self:
            confirmed, needed = len(each.confirmed), each.terms.threshold
            if confirmed < needed:
                raise NotEnoughClientsError(
                    _listed(
                        f"{counted(confirmed, 'client')} confirmed who is in the "
                        f"secure sum, at least {needed} needed: nothing is released.",
                        self.late,
                    )
                )


def _secure(settings: FitSettings) -> SecureSum:
    return settings.secure or SecureSum()


def _groups(members: Members) -> list[list[str]]:
    """Return all clients, or random groups of them that are large enough each."""
    clients, least = list(members.participants), _secure(members.settings).min_clients
    if members.settings.selection != "groups":
        return [clients]
    number = min(len(clients) // least, _MOST_GROUPS)
    if number < 2:
        raise NotEnoughClientsError(
            f'cv="groups" needs two groups of {least} clients each, and there are '
            f'{len(clients)}: use cv="gcv".'
        )
    random.SystemRandom().shuffle(clients)
    return [clients[k::number] for k in range(number)]


def _session(members: Members, clients: Sequence[str], asked: AskKeys) -> SecureSession:
    """Return the secure sum of some clients, whose columns fit together."""
    settings, agreed = members.settings, members.agreement
    if agreed is None:
        raise ProtocolError("no columns were agreed on.")
    schema, privacy = agreed.columns, settings.privacy
    colluding = None if privacy is None else privacy.max_colluding
    neighbours, threshold = _secure(settings).sizes(len(clients), colluding)
    if schema.n_features > MOST_FEATURES:
        raise FedRidgeError(
            f"{schema.n_features} features are too many for a matrix of d x d (at most "
            f"{MOST_FEATURES})."
        )
    rows, words = packed_length(schema.n_features, schema.n_targets), _WORDS
    if asked.release is not None:
        rows, words = _layout(asked.release, schema).length, PRIVATE_WORDS
    terms = Terms(
        session=asked.session,
        clients=len(clients),
        neighbours=neighbours,
        threshold=threshold,
        rows=rows + EXTRA_ROWS,
        words=words,
        subject=subject_of(schema, asked, DEFAULT_GRID),
        members=b"",
    )
    return SecureSession(terms, {c: members.parts[c].keys for c in clients})


def _total(session: SecureSession, sums: Sums) -> Any:
    """Return the statistics of all that delivered; what is no sum is refused."""
    try:
        words = session.total()
    except NotEnoughClientsError as error:
        raise NotEnoughClientsError(_listed(str(error), sums.late)) from None
    statistics, extra = words[:-EXTRA_ROWS], words[-EXTRA_ROWS:]
    count, clients = limbs.to_ints(extra)
    release, agreed = sums.release, sums.members.agreement
    if clients != len(session.delivered) or agreed is None:
        raise ProtocolError(
            "the masks do not cancel: some client did not keep to the protocol. "
            "Nothing of this sum can be used."
        )
    if release is not None:
        layout = _layout(release, agreed.columns)
        return PrivateStatistics(
            np.array(limbs.to_ints(statistics), dtype=np.float64),
            layout.privacy,
            layout.bounds,
            layout.server_round,
            n_clients=clients,
            schema=agreed.columns,
        )
    total = FixedPointStatistics.from_words(
        statistics,
        count,
        agreed.columns,
        replace(DEFAULT_GRID, max_clients=1),
        weighted=True,
    )
    return replace(total, n_clients=clients)


def _as_solved(total: Any) -> Any:
    return total.to_sufficient() if total.form == "fixed" else total


def _layout(release: ReleaseRequest, schema: Schema) -> Layout:
    """Return how a private release of these columns is packed."""
    sizes = schema.n_features, schema.n_targets, release.intercept
    bounds = release.privacy.bounds(*sizes)
    return Layout(release.privacy, bounds, release.question.server_round)


def _listed(sentence: str, reasons: Mapping[str, str]) -> str:
    """Return a sentence with the reasons of clients, a line for each that differs."""
    grouped = by_reason(reasons, _SHOWN)
    lines = [f"  {clients}: {why}" for clients, why in grouped[:_SHOWN]]
    more = len(grouped) - _SHOWN
    return "\n".join([sentence, *lines, *([f"  ... and {more} more"] * (more > 0))])
