"""`Curator`: answers private requests to one client, each of them once."""

import hashlib
import json
import logging
import re
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._types import Array
from ..data.rows import Rows
from ..errors import PrivacyError
from .ledger import PrivacyLedger
from .mechanism import RELATIONS, DifferentialPrivacy
from .policy import PrivacyPolicy
from .release import (
    ClippingCounts,
    ReleaseQuestion,
    check_question,
    make_release,
    whole_release,
)

# The answers of this run by `ReleaseRequest.key`; it must outlive a lost message.
Past = MutableMapping[str, Array]

log = logging.getLogger("flwr")
_RELEASE = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True)
class ReleaseRequest:
    """One request of one private fit.

    Parameters
    ----------
    release : str
        Name of the fit: 32 hexadecimal digits, drawn by the server.
    privacy : DifferentialPrivacy
        The guarantee of the fit.
    intercept : bool
        Whether the constant feature is part of the release.
    question : ReleaseQuestion
        What is asked in this round.
    in_secure_sum : bool
        Whether nobody sees the release but in a sum, as ``trust="secagg"`` needs.
    """

    release: str
    privacy: DifferentialPrivacy
    intercept: bool
    question: ReleaseQuestion
    in_secure_sum: bool = False

    def __post_init__(self) -> None:
        """Validate the name of the release and the round."""
        if not isinstance(self.release, str) or not _RELEASE.fullmatch(self.release):
            raise PrivacyError("the private request has no valid release name.")
        asked, rounds = self.question.server_round, self.privacy.rounds
        if type(asked) is not int or not 1 <= asked <= rounds:
            raise PrivacyError(f"declined: asked for round {asked} of {rounds}.")

    @cached_property
    def fit(self) -> str:
        """Name of the fit, with a hash of its settings."""
        settings = [self.privacy.to_config(), self.intercept]
        text = json.dumps(settings, sort_keys=True, default=str)
        return f"{self.release}/{_digest(text.encode())}"

    @cached_property
    def round(self) -> str:
        """Name of the round within the fit."""
        return f"{self.fit}/{self.question.server_round}"

    @cached_property
    def key(self) -> str:
        """Name of the request, with a hash of its question."""
        coef = self.question.coef
        content = b"" if coef is None else np.ascontiguousarray(coef).tobytes()
        return f"{self.round}/{_digest(content + repr(self.question.clip).encode())}"


@dataclass
class Curator:
    """Answers private requests to one client within its policy and its ledger.

    A request that was answered gets the same answer again, to the last bit: a lost
    message costs no privacy. A new one is compared with the policy, then entered in the
    ledger, and only then is noise drawn.

    Parameters
    ----------
    policy : PrivacyPolicy, optional
        The client's policy; without one, every private request is accepted, or, with a
        ledger, every one within the ledger's budget.
    ledger : PrivacyLedger, optional
        Account over all runs.
    name : str
        The client's name in the ledger.
    past : mutable mapping
        Answers of this run.
    site : sequence of (PrivacyPolicy, PrivacyLedger or None)
        What the site's own rules accept, and their account; all of them hold.
    """

    policy: PrivacyPolicy | None = None
    ledger: PrivacyLedger | None = None
    name: str = ""
    past: Past = field(default_factory=dict)
    site: Sequence[tuple[PrivacyPolicy, PrivacyLedger | None]] = ()

    def __post_init__(self) -> None:
        """Take the budget of a ledger as the policy, if there is no other."""
        if self.policy is None and self.ledger is not None:
            self.policy = PrivacyPolicy(self.ledger.max_epsilon, self.ledger.max_delta)

    def answer(self, request: ReleaseRequest, rows: Rows) -> Array:
        """Return the release, made now or before."""
        self.agree(request)
        if request.key in self.past:
            return self.past[request.key]
        counts = self._charge(request, rows)
        privacy, question = request.privacy, request.question
        found = make_release(
            rows,
            privacy,
            intercept=request.intercept,
            question=question,
            counts=counts,
        )
        self.past[request.key] = found
        if question.server_round == 1:
            _log_clipping(counts)
        return found

    def answer_in_sum(self, request: ReleaseRequest, rows: Rows) -> NDArray[Any]:
        """Return the release as integers to be masked, once: it is not sent again."""
        self.agree(request)
        if request.key in self.past:
            raise PrivacyError("declined: this release is in a secure sum already.")
        counts = self._charge(request, rows)
        self.past[request.key] = np.zeros(0)
        found = whole_release(
            rows,
            request.privacy,
            intercept=request.intercept,
            question=request.question,
            counts=counts,
        )
        if request.question.server_round == 1:
            _log_clipping(counts)
        return found

    def _charge(self, request: ReleaseRequest, rows: Rows) -> ClippingCounts:
        """Check the question, and enter the release before any noise is drawn."""
        privacy, question = request.privacy, request.question
        check_question(rows, privacy, intercept=request.intercept, question=question)
        for ledger, name in self._accounts():
            # By its settings too: under the same name, in another run, others would
            # have other shares of the budget, and cost more than was entered.
            ledger.charge(name, request.fit, privacy, question.server_round)
        self.past[request.fit] = _mus(privacy)
        return ClippingCounts()

    def _accounts(self) -> Iterator[tuple[PrivacyLedger, str]]:
        """Yield every ledger once, with the name in it, whoever else has a policy."""
        files: dict[Path, PrivacyLedger] = {}
        for _, ledger in self.site:
            if ledger is not None:
                known = files.get(ledger.path, ledger)
                epsilon = min(known.max_epsilon, ledger.max_epsilon)
                delta = min(known.max_delta, ledger.max_delta)
                files[ledger.path] = PrivacyLedger(ledger.path, epsilon, delta)
        yield from ((ledger, "site policy") for ledger in files.values())
        if self.ledger is not None:
            yield self.ledger, self.name

    def refuse_exact(self) -> None:
        """Raise the reason to decline exact answers, if there is one."""
        if self.policy is not None:
            self.policy.check(None)
        if self.past:
            raise PrivacyError(
                "declined: exact answers after a private one would break its guarantee."
            )

    def agree(self, request: ReleaseRequest) -> None:
        """Raise the reason to decline a private request, if there is one.

        Called before rows are loaded, so that a declined request does not reveal
        whether there are any.
        """
        if request.key in self.past:
            return
        privacy, fits = request.privacy, [k for k in self.past if k.count("/") == 1]
        if (privacy.trust == "secagg") != request.in_secure_sum:
            # A fraction of the noise protects nobody whose own sum is visible.
            raise PrivacyError('declined: secure sums and trust="secagg" go together.')
        if any(key.startswith(request.round + "/") for key in self.past):
            raise PrivacyError("declined: this round was answered to another question.")
        if request.fit in fits:
            return
        if any(key.startswith(request.release + "/") for key in fits):
            raise PrivacyError("the settings of this fit have changed since it began.")
        which = RELATIONS.index(privacy.neighboring)
        before = [float(self.past[key][which]) for key in fits]
        for policy in (self.policy, *(accepted for accepted, _ in self.site)):
            if policy is not None:
                policy.check(privacy)
                policy.check_sum([*before, float(_mus(privacy)[which])])


def _log_clipping(counts: ClippingCounts) -> None:
    if counts.doubtful:
        log.warning(
            "Private release of %s: are bounds and rows in the same unit? For this "
            "client's log only: even that bounds and rows do not fit is a fact about "
            "the rows, which the guarantee does not cover once it is passed on.",
            counts,
        )
    else:
        log.info("Private release of %s (for this client's log only).", counts)


def _mus(privacy: DifferentialPrivacy) -> Array:
    return np.array(list(privacy.mus.values()))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]
