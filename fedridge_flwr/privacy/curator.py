"""`Curator`: answers private questions about one client's rows, each of them once."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field

import numpy as np

from ..errors import PrivacyError
from ..rows import Array, Rows
from .accounting import compose, epsilon_of
from .ledger import PrivacyLedger
from .mechanism import RELATIONS, DifferentialPrivacy
from .policy import PrivacyPolicy
from .release import Question, RowsSeen, make_release

__all__ = ["Curator", "Past", "Request"]

Past = MutableMapping[str, Array]
"""What was answered in this run, by question; it must outlive a lost message."""

log = logging.getLogger("flwr")
_RELEASE = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True)
class Request:
    """One question of one fit.

    Parameters
    ----------
    release : str
        Name of the fit: 32 hexadecimal digits, drawn by the server.
    privacy : DifferentialPrivacy
        What the fit promises.
    intercept : bool
        Whether the constant feature is part of the release.
    question : Question
        What is asked in this round.
    """

    release: str
    privacy: DifferentialPrivacy
    intercept: bool
    question: Question

    def __post_init__(self) -> None:
        """Refuse what is not a request."""
        if not isinstance(self.release, str) or not _RELEASE.fullmatch(self.release):
            raise PrivacyError("the request does not name its release.")
        asked = self.question.server_round
        if not 1 <= asked <= self.privacy.rounds:
            raise PrivacyError(
                f"the server asks for round {asked} of {self.privacy.rounds}: beyond "
                "what was agreed."
            )

    @property
    def fit(self) -> str:
        """Name of the fit and of all that was agreed about it."""
        terms = json.dumps(
            [self.privacy.to_config(), self.intercept], sort_keys=True, default=str
        )
        return f"{self.release}/{_digest(terms.encode())}"

    @property
    def round(self) -> str:
        """Name of the round within the fit."""
        return f"{self.fit}/{self.question.server_round}"

    @property
    def key(self) -> str:
        """Name of the question itself."""
        coef = self.question.coef
        words = b"" if coef is None else np.ascontiguousarray(coef).tobytes()
        return f"{self.round}/{_digest(words + repr(self.question.clip).encode())}"


@dataclass
class Curator:
    """Keeps the promise for one client.

    A question that was answered gets the same answer again, to the last bit: a lost
    message costs no privacy. A new one is held against the policy, entered in the
    ledger, and only then are the rows looked at.

    Parameters
    ----------
    policy : PrivacyPolicy, optional
        What the client grants; without it, whatever it is asked for.
    ledger : PrivacyLedger, optional
        Account over all runs.
    name : str
        The client's name in the ledger.
    past : mutable mapping
        Answers of this run.
    """

    policy: PrivacyPolicy | None = None
    ledger: PrivacyLedger | None = None
    name: str = ""
    past: Past = field(default_factory=dict)

    def answer(self, request: Request, load_rows: Callable[[], Rows]) -> Array:
        """Return the release, made now or before."""
        if request.privacy.trust == "secagg":
            # A part of the noise protects nobody whose sum is seen by itself.
            raise PrivacyError(
                'the server asks for trust="secagg"; this version has no secure sums, '
                "and without them a part of the noise is no privacy."
            )
        if request.key in self.past:
            return self.past[request.key]
        if any(key.startswith(request.round + "/") for key in self.past):
            raise PrivacyError(
                f"round {request.question.server_round} of this fit was answered "
                "already, to another question."
            )
        if request.fit not in self.past:
            self._agree(request)
        seen = RowsSeen()
        found = make_release(
            load_rows(),
            request.privacy,
            intercept=request.intercept,
            question=request.question,
            seen=seen,
        )
        self.past[request.key] = found
        level = logging.INFO if request.question.server_round == 1 else logging.DEBUG
        log.log(
            level,
            "Private release: %d rows, of which %d were shortened to the bounds and %d "
            "without finite numbers left out. This stays with the client.",
            seen.total,
            seen.clipped,
            seen.dropped,
        )
        return found

    def refuse_exact(self) -> None:
        """Raise the reason why nothing exact is told, if there is one."""
        if self.policy is not None:
            self.policy.check(None)
        if self.past:
            raise PrivacyError(
                "this client has made a private release in this run: whatever else it "
                "told of the same rows would break its promise."
            )

    def _agree(self, request: Request) -> None:
        fits = [key for key in self.past if key.count("/") == 1]
        if any(key.startswith(request.release + "/") for key in fits):
            raise PrivacyError("the terms of this fit were others when it began.")
        policy, privacy = self.policy, request.privacy
        mus = np.array([privacy.mu(relation) for relation in RELATIONS])
        if policy is not None:
            policy.check(privacy)
            which = RELATIONS.index(privacy.neighboring)
            spent = compose([mus[which], *(self.past[key][which] for key in fits)])
            epsilon = epsilon_of(spent, policy.max_delta)
            if fits and epsilon > policy.max_epsilon:
                raise PrivacyError(
                    f"with what this run has asked for before, epsilon would be "
                    f"{epsilon:.4g}; this client's policy grants "
                    f"{policy.max_epsilon:g}."
                )
        if self.ledger is not None:
            self.ledger.charge(self.name, request.release, privacy)
        self.past[request.fit] = mus


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]
