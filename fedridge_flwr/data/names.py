"""`Names`: what is known of the names of some columns, and of their order."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import StatisticsError

_INDEX = re.compile(r"__index_level_\d+__")


def without_index(names: Iterable[str]) -> list[str]:
    """Return the names without those that pandas makes for a row index.

    A frame that was sorted, filtered or sampled has one that is written as a column.

    Examples
    --------
    >>> without_index(["age", "__index_level_0__", "days"])
    ['age', 'days']
    """
    return [name for name in names if not _INDEX.fullmatch(name)]


@dataclass(frozen=True)
class Names:
    """The names of some columns, or only their hashes where names are not shared.

    Two sets of columns have the same names in the same order if they `match`, and the
    same names in another order if `sorted_hash` is equal. There is no hash of a single
    name: it could be guessed. All three are compared, so that who lies about one of
    them is like nobody else.

    Parameters
    ----------
    hash : str
        Hash of the names in their order.
    sorted_hash : str
        Hash of the sorted names.
    order : tuple of int
        Places of the columns in the order of their sorted names; empty if they are
        sorted.
    known : tuple of str, optional
        The names themselves.

    Examples
    --------
    >>> ours, theirs = Names.of(["bmi", "age"]), Names.of(["age", "bmi"]).hidden
    >>> ours.matches(theirs), ours.sorted_hash == theirs.sorted_hash
    (False, True)
    >>> ours.places_of(theirs)  # age is our column 1, bmi our column 0
    array([1, 0])
    """

    hash: str
    sorted_hash: str = ""
    order: tuple[int, ...] = ()
    known: tuple[str, ...] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Without an order the columns are sorted.

        So they are where another version sent one hash only: if that is not true, it
        is the hash of nobody's sorted names.
        """
        if not self.sorted_hash:
            object.__setattr__(self, "sorted_hash", self.hash)

    @classmethod
    def of(cls, names: Sequence[str] | Names) -> Names:
        """Return what follows from the names themselves."""
        if isinstance(names, Names):
            return names
        known = tuple(names)
        order = tuple(sorted(range(len(known)), key=known.__getitem__))
        if order == tuple(range(len(known))):
            return cls(hash_names(known), known=known)
        in_order = hash_names([known[j] for j in order])
        return cls(hash_names(known), in_order, order, known)

    @property
    def are_other_positions(self) -> bool:
        """Whether the names are the numbers from 0, but not in order.

        Numbers in order are no names, so that nobody else may have any.
        """
        known = self.known or ()
        return sorted(known) == sorted(map(str, range(len(known)))) and bool(known)

    @property
    def hidden(self) -> Names:
        """The same without the names themselves."""
        return Names(self.hash, self.sorted_hash, self.order)

    def with_known(self, names: tuple[str, ...] | None) -> Names:
        """Return the same with the names themselves.

        Raises
        ------
        StatisticsError
            If these are not the names.
        """
        if names is None:
            return self
        found = Names.of(names)
        if not found.matches(self):
            raise StatisticsError("the feature names do not match their hash.")
        return found

    def matches(self, other: Names) -> bool:
        """Whether both are the same names in the same order.

        Of names that 0.1.0 sent, only the hash in order is known.
        """
        if self == other:
            return True
        one_hash = any(n.sorted_hash == n.hash for n in (self, other))
        return one_hash and self.hash == other.hash

    def places_of(self, wanted: Names) -> NDArray[Any] | None:
        """Return where the wanted columns are among these, or None if they are others.

        For names that do not match.
        """
        size = max(len(self.order), len(wanted.order))
        if self.sorted_hash != wanted.sorted_hash or size == 0:
            return None
        if {len(self.order), len(wanted.order)} - {0, size}:
            return None
        ours, theirs = (
            np.array(order or range(size), dtype=np.intp)
            for order in (self.order, wanted.order)
        )
        places = np.empty_like(ours)
        places[theirs] = ours
        return places

    def arranged(self, wanted: Names) -> Names:
        """Return these names in the order that is wanted; known names stay known."""
        if self.matches(wanted):
            return wanted if self.known is None else self
        places = self.places_of(wanted)
        if self.known is None or places is None:
            return wanted
        return Names.of([self.known[j] for j in places])

    def not_in(self, other: Names) -> tuple[list[int], list[str]]:
        """Return the places of names that only we have, and names only others have.

        Both are empty where the names themselves are not known.
        """
        if self.known is None or other.known is None:
            return [], []
        mine, theirs = set(self.known), set(other.known)
        return (
            [j for j, name in enumerate(self.known) if name not in theirs],
            [name for name in other.known if name not in mine],
        )


class Columns(NamedTuple):
    """The names of features and targets in the order that is wanted, where known."""

    features: Names | None = None
    targets: Names | None = None


def hash_names(names: Sequence[str]) -> str:
    """Return a short hash of names and their order."""
    text = json.dumps(list(names), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
