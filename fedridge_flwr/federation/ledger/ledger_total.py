"""`Total`: the sum of the contributions in a ledger, and how exact it is.

Whole numbers are added and taken away exactly. With moments, a merge or removal
``C ± P ∓ w d d'`` rounds entry (i, j) by at most 8 eps s_i s_j, where s_j² is all that
is added to or taken from variance j. After several of them that is 8 eps √(e_i e_j),
with e_j the sum of these s_j² (Cauchy-Schwarz, twice). So one number per column is
enough for a bound on every entry.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..._types import Array
from ...errors import StatisticsError
from ...linalg.packed import EPS, diagonal_positions
from ...statistics.packing import Removable, pack

NO_CHECKSUM = bytes(32)
_ROUNDINGS = 8.0
_LARGEST_BOUND = 1e-11
_FEW = 64


@dataclass(frozen=True, eq=False)
class Total:
    """The sum of some contributions.

    Parameters
    ----------
    n_clients : int
        How many there are.
    stats : SufficientStatistics or FixedPointStatistics, optional
        Their sum; None if there are none.
    rounded : ndarray
        For each column, the sums of squares that were rounded so far, e_j.
    roster : bytes
        XOR of the checksums of all contributions: whether they are the same ones.
    salt : bytes
        Key of `hash`; the next change forgets it. So nobody can try out, later, which
        contribution leads from one hash to the next.
    """

    n_clients: int = 0
    stats: Any = None
    rounded: Array = field(default_factory=lambda: np.zeros(0))
    roster: bytes = NO_CHECKSUM
    salt: bytes = field(default_factory=lambda: secrets.token_bytes(16))

    @classmethod
    def merged(cls, stats: Any, roster: bytes) -> Total:
        """Return a total of moments that were merged one after the other.

        No partial sum has larger variances, so none was rounded by more than the last.
        """
        rounded = 2.0 * stats.n_clients * _variances(stats)
        return cls(stats.n_clients, stats, rounded, roster)

    @cached_property
    def hash(self) -> str:
        """A keyed hash of the sum."""
        about, numbers = ("", b"") if self.stats is None else pack(self.stats)
        content = about.encode() + numbers
        return hashlib.blake2b(content, key=self.salt, digest_size=16).hexdigest()

    @property
    def bound(self) -> float:
        """How far a co-moment may be off, in units of the root of both variances."""
        if not self.rounded.any():
            return 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(
                self.rounded > 0, self.rounded / _variances(self.stats), 0.0
            )
        return float(_ROUNDINGS * EPS * ratio.max())

    @property
    def is_worn(self) -> bool:
        """Whether removals have cost so many digits that it should be made again.

        Few contributions are merged again in no time, so they need not lose any.
        """
        merges = 4 * _ROUNDINGS * EPS * self.n_clients
        few = self.n_clients <= _FEW
        return self.bound > (merges if few else max(_LARGEST_BOUND, merges))

    def plus(self, part: Removable, checksum: bytes) -> Total:
        """Return the total with one more contribution."""
        found = part if self.stats is None else self.stats + part
        return self._changed(found, 1, checksum)

    def minus(self, part: Removable, checksum: bytes) -> Total:
        """Return the total without one of its contributions."""
        found = None if self.n_clients == 1 else self.stats - part
        return self._changed(found, -1, checksum)

    def updated(self, delta: Removable, old: bytes, new: bytes) -> Total:
        """Return the total with new rows of a client, and its new checksum."""
        return self._changed(self.stats + delta, 0, xor(old, new))

    def _changed(self, found: Any, clients: int, checksum: bytes) -> Total:
        number, rounded = self.n_clients + clients, np.zeros(0)
        if found is not None and found.form != "fixed":
            new = _variances(found)
            old = np.zeros_like(new) if self.stats is None else _variances(self.stats)
            before = self.rounded if self.rounded.size else np.zeros_like(new)
            # What goes in, what comes out, and what the means are apart: at most twice
            # the larger variance. The first contribution is not rounded.
            more = 2.0 * np.maximum(old, new)
            rounded = before if self.stats is None else before + more
        return Total(
            number,
            None if found is None else replace(found, n_clients=number),
            rounded,
            xor(self.roster, checksum),
        )

    def fitted(self, stats: Removable) -> Removable:
        """Return statistics with the columns in the order of the total.

        Raises
        ------
        StatisticsError
            If they are of another form; other columns are found by the sum.
        """
        there = self.stats
        if there is None:
            return stats
        if stats.form != there.form:
            raise StatisticsError(
                f'"{stats.form}" statistics do not go with a ledger of "{there.form}" '
                "ones."
            )
        same = stats.schema.mismatch(there.schema) is None
        if same or stats.schema.feature_map is not None:
            return stats
        try:
            return stats.arranged(there.schema.columns)
        except StatisticsError:
            return stats

    def difference(self, other: Total) -> float:
        """Return the largest difference of co-moments, in the units of `bound`."""
        mine, theirs = self.stats, other.stats
        if mine is None or theirs is None or theirs.form == "fixed":
            return 0.0 if mine is theirs or mine == theirs else np.inf
        if mine.count != theirs.count:
            return np.inf
        i, j = np.triu_indices(theirs.means.size)
        scale = np.sqrt(_variances(theirs))
        gap = np.abs(mine.triangle - theirs.triangle)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.where(gap > 0, gap / (scale[i] * scale[j]), 0.0)
        return float(found.max())


def _variances(stats: Any) -> Array:
    found: Array = stats.triangle[diagonal_positions(stats.means.size)]
    return found


def xor(one: bytes, other: bytes) -> bytes:
    """Return the bits in which two checksums differ."""
    both = int.from_bytes(one) ^ int.from_bytes(other)
    return both.to_bytes(len(NO_CHECKSUM))
