"""`Curator`: answers private questions about one client's rows, each of them once."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import MutableMapping
from dataclasses import dataclass, field

import numpy as np

from .._types import Array
from ..data.rows import Rows
from ..errors import PrivacyError
from .ledger import PrivacyLedger
from .mechanism import RELATIONS, DifferentialPrivacy
from .policy import PrivacyPolicy
from .release import ReleaseQuestion, RowsSeen, check_question, make_release

__all__ = ["Curator", "Past", "ReleaseRequest"]

Past = MutableMapping[str, Array]
"""What was answered in this run, by question; it must outlive a lost message."""

log = logging.getLogger("flwr")
_RELEASE = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True)
class ReleaseRequest:
    """One question of one fit.

    Parameters
    ----------
    release : str
        Name of the fit: 32 hexadecimal digits, drawn by the server.
    privacy : DifferentialPrivacy
        What the fit promises.
    intercept : bool
        Whether the constant feature is part of the release.
    question : ReleaseQuestion
        What is asked in this round.
    """

    release: str
    privacy: DifferentialPrivacy
    intercept: bool
    question: ReleaseQuestion

    def __post_init__(self) -> None:
        """Refuse what is not a request."""
        if not isinstance(self.release, str) or not _RELEASE.fullmatch(self.release):
            raise PrivacyError("the request does not name its release.")
        asked = self.question.server_round
        if type(asked) is not int or not 1 <= asked <= self.privacy.rounds:
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
    message costs no privacy. A new one is held against the policy, then entered in the
    ledger, and only then is anything drawn.

    Parameters
    ----------
    policy : PrivacyPolicy, optional
        What the client grants; without it, whatever it is asked for, or, with a
        ledger, whatever fits the ledger's budget.
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

    def __post_init__(self) -> None:
        """Take a ledger for a policy: who counts does not give away for nothing."""
        if self.policy is None and self.ledger is not None:
            self.policy = PrivacyPolicy(self.ledger.max_epsilon, self.ledger.max_delta)

    def answer(self, request: ReleaseRequest, rows: Rows) -> Array:
        """Return the release, made now or before."""
        self.agree(request)
        if request.key in self.past:
            return self.past[request.key]
        question = request.question
        check_question(
            rows, request.privacy, intercept=request.intercept, question=question
        )
        if self.ledger is not None:
            self.ledger.charge(
                self.name, request.release, request.privacy, question.server_round
            )
        self.past[request.fit] = _mus(request.privacy)
        seen = RowsSeen()
        found = make_release(
            rows,
            request.privacy,
            intercept=request.intercept,
            question=question,
            seen=seen,
        )
        self.past[request.key] = found
        if question.server_round == 1:
            _log_rows(seen)
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

    def agree(self, request: ReleaseRequest) -> None:
        """Raise the reason why a question is not answered, if there is one.

        It is asked before rows are loaded, so that whoever gets no answer does not
        learn either whether they can be.
        """
        if request.key in self.past:
            return
        privacy, fits = request.privacy, [k for k in self.past if k.count("/") == 1]
        if privacy.trust == "secagg":
            # A part of the noise protects nobody whose sum is seen by itself.
            raise PrivacyError(
                'the server asks for trust="secagg"; this version has no secure sums, '
                "and without them a part of the noise is no privacy."
            )
        if any(key.startswith(request.round + "/") for key in self.past):
            raise PrivacyError(
                f"round {request.question.server_round} of this fit was answered "
                "already, to another question."
            )
        if request.fit in fits:
            return
        if any(key.startswith(request.release + "/") for key in fits):
            raise PrivacyError("the terms of this fit were others when it began.")
        if self.policy is not None:
            self.policy.check(privacy)
            which = RELATIONS.index(privacy.neighboring)
            before = [float(self.past[key][which]) for key in fits]
            self.policy.check_sum([*before, float(_mus(privacy)[which])])


def _log_rows(seen: RowsSeen) -> None:
    if seen.doubtful:
        log.warning(
            "Private release of %s: are bounds and rows in the same unit? Tell the "
            "server's operator that they do not fit, not these numbers.",
            seen.in_words(),
        )
    else:
        log.info("Private release of %s (for this client's log only).", seen.in_words())


def _mus(privacy: DifferentialPrivacy) -> Array:
    return np.array([privacy.mu(relation) for relation in RELATIONS])


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]
