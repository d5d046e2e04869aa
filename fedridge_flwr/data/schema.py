"""`Schema`: the columns of some rows, and whether other rows have the same ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from .._text import counted
from ..errors import StatisticsError

_SHOWN_NAMES = 4


@dataclass(frozen=True)
class Schema:
    """What two sets of rows must have in common before their statistics are added.

    Every contribution of a client carries one.

    Parameters
    ----------
    n_features : int
        Number of features, after the feature map if there is one.
    n_targets : int
        Number of targets.
    feature_names : tuple of str, optional
        Names of the raw columns, where they are known.
    feature_hash : str, optional
        Hash of the names, known also where the names themselves are not shared.
    feature_map : str, optional
        Fingerprint of the feature map that the rows went through.
    n_features_in : int, optional
        Number of raw columns; without a map always `n_features`.

    Examples
    --------
    >>> Schema(2, feature_names=("age", "bmi")).mismatch(Schema(3))
    '2 features against 3'
    >>> ours = Schema(2, feature_names=("age", "bmi"))
    >>> ours.mismatch(Schema(2, feature_names=("bmi", "age")))
    'the same feature names in another order'
    >>> ours.mismatch(Schema(2)) is None  # unnamed columns match by their number
    True
    """

    n_features: int
    n_targets: int = 1
    # Equal hashes are equal names, whether or not the names themselves are known.
    feature_names: tuple[str, ...] | None = field(default=None, compare=False)
    feature_hash: str | None = None
    feature_map: str | None = None
    n_features_in: int | None = None

    def __post_init__(self) -> None:
        """Fill in what follows from the rest."""
        if self.feature_map is None:
            object.__setattr__(self, "n_features_in", self.n_features)
        if self.feature_names is not None:
            self._set_names(tuple(self.feature_names))

    def _set_names(self, names: tuple[str, ...]) -> None:
        width = self.n_features_in
        if width is not None and len(names) != width:
            raise StatisticsError(
                f"{len(names)} feature names for {counted(width, 'feature')}."
            )
        digest = hash_names(names)
        if self.feature_hash not in (None, digest):
            raise StatisticsError("the feature names do not match their hash.")
        object.__setattr__(self, "feature_names", names)
        object.__setattr__(self, "feature_hash", digest)

    def mismatch(self, other: Schema) -> str | None:
        """Return why rows of both cannot be added up, or None if they can."""
        for noun in ("feature", "target"):
            mine, theirs = (getattr(s, f"n_{noun}s") for s in (self, other))
            if mine != theirs:
                return f"{counted(mine, noun)} against {theirs}"
        if self.feature_map != other.feature_map:
            if self.feature_map is None:
                return "no feature map against one"
            if other.feature_map is None:
                return "a feature map against none"
            return (
                "another feature map (kind, size, seed, parameters, or the random "
                "numbers of another NumPy version)"
            )
        if None in (self.feature_hash, other.feature_hash):
            return None
        if self.feature_hash == other.feature_hash:
            return None
        return _name_difference(self.feature_names, other.feature_names)

    @property
    def unnamed(self) -> Schema:
        """The same columns without their names."""
        return replace(self, feature_names=None, feature_hash=None)

    def with_names_of(self, other: Schema) -> Schema:
        """Return the same columns, with whatever names either of the two knows."""
        return replace(
            self,
            feature_names=self.feature_names or other.feature_names,
            feature_hash=self.feature_hash or other.feature_hash,
            n_features_in=self.n_features_in or other.n_features_in,
        )


class HasSchema:
    """Gives what carries a `Schema` its fields as attributes of its own."""

    schema: Schema
    n_features: int = property(attrgetter("schema.n_features"))  # type: ignore[assignment]
    n_targets: int = property(attrgetter("schema.n_targets"))  # type: ignore[assignment]
    feature_names: tuple[str, ...] | None = property(  # type: ignore[assignment]
        attrgetter("schema.feature_names")
    )
    feature_hash: str | None = property(  # type: ignore[assignment]
        attrgetter("schema.feature_hash")
    )
    feature_map: str | None = property(  # type: ignore[assignment]
        attrgetter("schema.feature_map")
    )
    n_features_in: int | None = property(  # type: ignore[assignment]
        attrgetter("schema.n_features_in")
    )


def hash_names(names: Sequence[str] | None) -> str | None:
    """Return a short hash of feature names and their order, or None for None."""
    if names is None:
        return None
    text = json.dumps(list(names), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _name_difference(
    ours: tuple[str, ...] | None, theirs: tuple[str, ...] | None
) -> str:
    if ours is None or theirs is None:
        return "other feature names, or another order of them"
    if sorted(ours) == sorted(theirs):
        return "the same feature names in another order"
    only_ours = sorted(set(ours) - set(theirs))[:_SHOWN_NAMES]
    only_theirs = sorted(set(theirs) - set(ours))[:_SHOWN_NAMES]
    if not only_ours and not only_theirs:
        return "other feature names: some occur more often on one side"
    return f"other feature names: only here {only_ours}, only there {only_theirs}"
