"""A client's memory of its private releases, in Flower's state of the node."""

import warnings
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, Context, RecordDict

from .._types import Array
from ..errors import PrivacyError, PrivacyWarning, users_level
from ..federation.site.disclosure import SitePolicy
from ..privacy.curator import Curator
from ..privacy.ledger import PrivacyLedger
from ..privacy.policy import PrivacyPolicy

ClientName: TypeAlias = str | Callable[[Context], str]

RELEASES = "fedridge-releases"


class ReleaseMemory(MutableMapping[str, Array]):
    """A client's releases in one run; it outlives messages and processes."""

    def __init__(self, state: RecordDict) -> None:
        self._state = state

    def _record(self) -> ArrayRecord:
        record = self._state.get(RELEASES)
        return record if isinstance(record, ArrayRecord) else ArrayRecord()

    def __getitem__(self, key: str) -> Array:
        return np.asarray(self._record()[key].numpy(), dtype=np.float64)

    def __setitem__(self, key: str, value: Array) -> None:
        kept = dict(self._record())
        kept[key] = FlowerArray(np.ascontiguousarray(value, dtype=np.float64))
        self._state[RELEASES] = ArrayRecord(kept)

    def __delitem__(self, key: str) -> None:
        raise PrivacyError("a release cannot be taken back.")

    def __iter__(self) -> Iterator[str]:
        return iter(self._record())

    def __len__(self) -> int:
        return len(self._record())


@dataclass(frozen=True)
class PrivacyTerms:
    """A client's policy and ledger, and its name in the ledger."""

    policy: PrivacyPolicy | None = None
    ledger: PrivacyLedger | None = None
    name: ClientName | None = None

    def __post_init__(self) -> None:
        """Refuse settings that would only fail when a request arrives."""
        if self.ledger is not None and not self.name:
            raise PrivacyError(
                "privacy_ledger needs client_name=, the name that these data have in "
                'the ledger in every run, as client_name="clinic-a": node ids change '
                "from run to run."
            )
        if self.ledger is None or self.policy is None:
            return
        if self.policy.max_epsilon > self.ledger.max_epsilon:
            warnings.warn(
                f"the policy grants epsilon {self.policy.max_epsilon:g}, but the "
                f"ledger's budget is {self.ledger.max_epsilon:g}: anything above is "
                "declined.",
                PrivacyWarning,
                stacklevel=users_level(),
            )

    @property
    def reports_failures(self) -> bool:
        """Whether the server may hear why a private release failed."""
        return self.policy is not None and self.policy.report_failures

    def curator(self, context: Context, policies: Sequence[SitePolicy]) -> Curator:
        """Return the one who answers private requests, with its memory of this run."""
        name = self.name(context) if callable(self.name) else self.name
        site = [
            (policy.accepted_privacy, policy.privacy_ledger)
            for policy in policies
            if policy.accepted_privacy is not None
        ]
        past = ReleaseMemory(context.state)
        return Curator(self.policy, self.ledger, name or "", past, site)


def forget_releases(context: Context) -> None:
    """Forget what a client released in this run, because its rows are others now.

    For simulations that give their clients new rows within one run. With the same rows
    it would break the promise.
    """
    context.state.pop(RELEASES, None)
