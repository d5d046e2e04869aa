"""The fit by a secure sum: four exchanges, after which the server has the total only.

A client that is lost, or whose answer cannot be used, is named and left out; the sum is
exact for the others. If too many are lost, there is an error and nothing is released.
"""

import secrets
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from .._text import counted
from ..data.coding import Coding
from ..data.names import Columns
from ..data.schema import Schema
from ..errors import FedRidgeError, NotEnoughClientsError, ProtocolError
from ..linalg import limbs
from ..linalg.packed import packed_length
from ..privacy.curator import ReleaseRequest
from ..privacy.noisy_statistics import PrivateStatistics
from ..privacy.release import Layout, ReleaseQuestion
from ..statistics.fixed_point import FixedPointStatistics
from ..statistics.integer_sums import DEFAULT_GRID
from .aggregate import Aggregate, Answers
from .columns import reason_to_refuse
from .costs import MOST_FEATURES
from .gather import Gathered
from .one_shot import solve_gathered
from .private_fit import private_result
from .requests import AskKeys, AskMasked, AskShares, AskUnmask, Request
from .round import Fit, Round
from .screening.screener import Screener
from .secure_respond import EXTRA_ROWS, PRIVATE_WORDS, subject_of
from .secure_sum import SecureSum, Terms
from .secure_sum.keys import PublicKeys
from .secure_sum.server_steps import SecureSession
from .secure_sum.terms import SESSION
from .settings import FitSettings

_WORDS = DEFAULT_GRID.n_words
_GONE = "not connected any more"
_SHOWN = 10


def secure_one_shot(settings: FitSettings) -> Fit:
    """Learn the sum of all statistics and nothing else, choose alpha, solve."""
    gathered = yield from gather_securely(settings)
    if settings.privacy is not None:
        result = private_result(settings, gathered)
    else:
        result = yield from solve_gathered(settings, gathered)
    result.mode = "secure sum: the server has seen the total only (experimental)"
    return result


def gather_securely(settings: FitSettings) -> Generator[Round, None, Gathered]:
    """Ask for keys, shares, masked statistics and the shares that take masks off."""
    members = Members(settings=settings, feature_map=settings.feature_map)
    found = Gathered(
        settings, Screener(settings), members, feature_map=settings.feature_map
    )
    if settings.formula is not None:
        found.table.coding = Coding.public(settings.formula)

    name, release = secrets.token_bytes(SESSION), _release(settings)
    begins = AskKeys(name, release)
    yield Round(found.about(begins), members)
    members.result()
    session = _begin(members, found.about(begins))
    members.name_neighbour = session.name_neighbour

    asked: dict[str, Request]
    asked = {c: AskShares(session.terms, session.keys_for(c)) for c in session.keys}
    yield from members.ask(asked, session.add_entries)
    members.check_left("shares", session.terms)

    asked = {
        c: found.about(AskMasked(name, *session.boxes_for(c), release))
        for c in session.members
    }
    yield from members.ask(asked, session.add_masked)
    members.check_left("masked statistics", session.terms)

    asked = {c: AskUnmask(name, session.delivered_near(c)) for c in session.delivered}
    yield from members.ask(asked, session.add_shares, stays=True)
    found.total = _total(session, members)
    found.rounds, members.parts = 4, {}
    return found


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
    """Answers that are handed on as they arrive and not kept."""

    take_in: Callable[[str, Any], None] = field(default=lambda client, part: None)

    def add(self, client: str, part: Any) -> None:
        if self._is_first(client):
            self.take_in(client, part)
            self.parts[client] = None


@dataclass
class Members(Aggregate):
    """The clients of a secure sum, and who is lost in which exchange.

    `late` are clients that are in the sum, and did not help to take the masks off.
    """

    late: dict[str, str] = field(default_factory=dict)
    name_neighbour: Callable[[str, str], str] = field(default=lambda client, why: why)

    @property
    def rows_left_out(self) -> dict[str, int]:
        """Nothing: how many rows a single client has is not known."""
        return {}

    def ask(
        self,
        requests: Mapping[str, Request],
        take_in: Callable[[str, Any], None],
        *,
        stays: bool = False,
    ) -> Generator[Round, None, None]:
        """Ask clients, and name those that are lost; with `stays` they still count."""
        answers = _Exchange(take_in=take_in)
        yield Round(requests, answers, to=list(requests))
        answers.refuse_silent(requests, _GONE)
        self.repeated += answers.repeated
        if stays:
            self.late = {c: r for c, r in answers.failures.items() if c in requests}
            answers.failures.clear()  # it has delivered, and is in the sum
            return
        for client, reason in answers.failures.items():
            if client in requests:
                self.reject(client, self.name_neighbour(client, reason))

    def check_left(self, what: str, terms: Terms | None = None) -> None:
        """Raise if too few clients are left for a sum."""
        settings, left = self.settings, len(self.participants)
        secure = settings.secure or SecureSum()
        needed = max(settings.min_clients, secure.min_clients)
        if settings.privacy is not None:
            needed = max(needed, settings.privacy.min_clients)
        if terms is not None and terms.neighbours == terms.clients:
            needed = max(needed, terms.threshold)
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
        return reason_to_refuse(part.schema, self.settings)


def _release(settings: FitSettings) -> ReleaseRequest | None:
    """Return what noise is asked for, if any is."""
    if settings.privacy is None:
        return None
    return ReleaseRequest(
        secrets.token_hex(16),
        settings.privacy,
        settings.fit_intercept,
        ReleaseQuestion(),
        in_secure_sum=True,
    )


def _begin(members: Members, asked: AskKeys) -> SecureSession:
    """Return the session of the clients whose columns fit together."""
    members.check_left("keys")
    agreed = members.agreement
    if agreed is None:
        raise ProtocolError("no columns were agreed on.")
    settings, clients = members.settings, members.participants
    secure, privacy = settings.secure or SecureSum(), settings.privacy
    colluding = None if privacy is None else privacy.max_colluding
    neighbours, threshold = secure.sizes(len(clients), colluding)
    schema = agreed.columns
    if schema.n_features > MOST_FEATURES:
        raise FedRidgeError(
            f"{schema.n_features} features are too many for a matrix of d x d (at most "
            f"{MOST_FEATURES})."
        )
    rows, words = packed_length(schema.n_features, schema.n_targets), _WORDS
    if privacy is not None:
        rows, words = _layout(settings, schema).length, PRIVATE_WORDS
    terms = Terms(
        session=asked.session,
        clients=len(clients),
        neighbours=neighbours,
        threshold=threshold,
        rows=rows + EXTRA_ROWS,
        words=words,
        subject=subject_of(schema, asked, DEFAULT_GRID),
    )
    return SecureSession(terms, {c: members.parts[c].keys for c in clients})


def _total(session: SecureSession, members: Members) -> Any:
    """Return the statistics of all that delivered; what is no sum is refused."""
    try:
        words = session.total()
    except NotEnoughClientsError as error:
        raise NotEnoughClientsError(_listed(str(error), members.late)) from None
    statistics, extra = words[:-EXTRA_ROWS], words[-EXTRA_ROWS:]
    count, clients = limbs.to_ints(extra)
    if clients != len(session.delivered) or members.agreement is None:
        raise ProtocolError(
            "the masks do not cancel: some client did not keep to the protocol. "
            "Nothing of this sum can be used."
        )
    schema = members.agreement.columns
    if members.settings.privacy is not None:
        layout = _layout(members.settings, schema)
        return PrivateStatistics(
            np.array(limbs.to_ints(statistics), dtype=np.float64),
            layout.privacy,
            layout.bounds,
            n_clients=clients,
            schema=schema,
        )
    total = FixedPointStatistics.from_words(
        statistics,
        count,
        schema,
        replace(DEFAULT_GRID, max_clients=1),
        weighted=True,
    )
    return replace(total, n_clients=clients).to_sufficient()


def _layout(settings: FitSettings, schema: Schema) -> Layout:
    """Return how a private release of these columns is packed."""
    if settings.privacy is None:
        raise ProtocolError("this fit is not private.")
    sizes = schema.n_features, schema.n_targets, settings.fit_intercept
    return Layout(settings.privacy, settings.privacy.bounds(*sizes), 1)


def _listed(sentence: str, reasons: Mapping[str, str]) -> str:
    """Return a sentence with the reasons of clients, a line for each."""
    lines = [f"  client {c}: {why}" for c, why in list(reasons.items())[:_SHOWN]]
    more = len(reasons) - _SHOWN
    return "\n".join([sentence, *lines, *([f"  ... and {more} more"] * (more > 0))])
