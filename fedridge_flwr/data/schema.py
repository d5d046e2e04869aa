"""`Schema`: the columns of some rows, and whether other rows have the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._text import counted, quoted
from ..errors import StatisticsError
from .names import Columns, Names


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
    features : Names, optional
        Names of the raw columns, or their hashes.
    targets : Names, optional
        Names of the targets, or their hashes.
    feature_map : str, optional
        Fingerprint of the feature map that the rows went through.
    n_features_in : int, optional
        Number of raw columns; without a map always `n_features`.

    Examples
    --------
    >>> ours = Schema(2, features=Names.of(["age", "bmi"]))
    >>> ours.mismatch(Schema(3))
    '2 features against 3'
    >>> ours.mismatch(Schema(2, features=Names.of(["bmi", "age"])))
    'the same feature names in another order'
    >>> ours.mismatch(Schema(2)) is None  # unnamed columns match by their number
    True
    """

    n_features: int
    n_targets: int = 1
    features: Names | None = None
    targets: Names | None = None
    feature_map: str | None = None
    n_features_in: int | None = None

    def __post_init__(self) -> None:
        """Fill in what follows from the rest."""
        if self.feature_map is None:
            object.__setattr__(self, "n_features_in", self.n_features)
        for names, width, noun in (
            (self.features, self.n_features_in, "feature"),
            (self.targets, self.n_targets, "target"),
        ):
            if names is None or width is None:
                continue
            for told in (names.known, names.order):
                if told and len(told) != width:
                    raise StatisticsError(
                        f"{len(told)} {noun} names for {counted(width, noun)}."
                    )

    @classmethod
    def of(
        cls,
        n_features: int,
        n_targets: int = 1,
        *,
        feature_names: Sequence[str] | None = None,
        feature_hash: str | None = None,
        **fields: Any,
    ) -> Schema:
        """Return the schema of columns of which the names, or their hash, are known."""
        features = None if feature_names is None else Names.of(feature_names)
        if feature_hash is not None:
            known = None if features is None else features.known
            features = Names(feature_hash).with_known(known)
        return cls(n_features, n_targets, features, **fields)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the raw columns, where they are known."""
        return None if self.features is None else self.features.known

    @property
    def target_names(self) -> tuple[str, ...] | None:
        """Names of the targets, where they are known."""
        return None if self.targets is None else self.targets.known

    @property
    def feature_hash(self) -> str | None:
        """Hash of the names of the raw columns in their order."""
        return None if self.features is None else self.features.hash

    def mismatch(self, other: Schema) -> str | None:
        """Return why rows of both cannot be added up, or None if they can."""
        if self == other:
            return None
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
        for noun in ("feature", "target"):
            ours, theirs = (getattr(s, f"{noun}s") for s in (self, other))
            if ours is not None and theirs is not None and not ours.matches(theirs):
                return _name_difference(noun, ours, theirs)
        return None

    @property
    def columns(self) -> Columns:
        """The names of features and targets."""
        return Columns(self.features, self.targets)

    def places_of(self, wanted: Columns) -> NDArray[Any]:
        """Return where the wanted columns are in [X Y]; there must be no map."""
        features, targets = (
            np.arange(width)
            if ours is None or theirs is None or ours.matches(theirs)
            else ours.places_of(theirs)
            for ours, theirs, width in (
                (self.features, wanted.features, self.n_features),
                (self.targets, wanted.targets, self.n_targets),
            )
        )
        if features is None or targets is None:
            raise StatisticsError("the columns have other names.")
        return np.concatenate([features, self.n_features + targets])

    def arranged(self, wanted: Columns) -> Schema:
        """Return the schema of the same columns in the order that is wanted."""
        return replace(
            self,
            features=_arranged(self.features, wanted.features),
            targets=_arranged(self.targets, wanted.targets),
        )

    @property
    def unnamed(self) -> Schema:
        """The same columns without their names."""
        return replace(self, features=None, targets=None)

    def with_names_of(self, other: Schema) -> Schema:
        """Return the same columns, with whatever names either of the two knows."""
        features = _better_known(self.features, other.features)
        targets = _better_known(self.targets, other.targets)
        raw = self.n_features_in or other.n_features_in
        known = features is self.features and targets is self.targets
        if known and raw == self.n_features_in:
            return self
        return replace(self, features=features, targets=targets, n_features_in=raw)


def _of_schema(name: str, doc: str) -> Any:
    """Return a property that reads a field of the schema."""
    return property(attrgetter(f"schema.{name}"), doc=doc)


class HasSchema:
    """Gives what carries a `Schema` its fields as attributes of its own."""

    schema: Schema
    n_features: int = _of_schema("n_features", "Number of features.")
    n_targets: int = _of_schema("n_targets", "Number of targets.")
    feature_names: tuple[str, ...] | None = _of_schema(
        "feature_names", "Names of the features, or None where they are not known."
    )
    target_names: tuple[str, ...] | None = _of_schema(
        "target_names", "Names of the targets, or None where they are not known."
    )
    feature_hash: str | None = _of_schema(
        "feature_hash", "Hash of the names of the features, None without names."
    )
    feature_map: str | None = _of_schema(
        "feature_map", "Fingerprint of the feature map, or None without one."
    )
    n_features_in: int | None = _of_schema(
        "n_features_in", "Number of raw columns, None if it is not known."
    )


def _arranged(ours: Names | None, wanted: Names | None) -> Names | None:
    return ours if ours is None or wanted is None else ours.arranged(wanted)


def _better_known(ours: Names | None, theirs: Names | None) -> Names | None:
    if ours is None or theirs is None:
        return ours or theirs
    # Names in clear have been compared with their hashes; an order alone may be a lie.
    better = theirs.known is not None and ours.known is None
    return theirs if better and ours.matches(theirs) else ours


def _name_difference(noun: str, ours: Names, theirs: Names) -> str:
    if ours.sorted_hash == theirs.sorted_hash:
        return f"the same {noun} names in another order"
    places, missing = ours.not_in(theirs)
    if not places and not missing:
        return f"other {noun} names, or another order of them"
    mine = [ours.known[j] for j in places] if ours.known else []
    here, there = quoted(mine) or "none", quoted(missing) or "none"
    return f"other {noun} names: only here {here}, only there {there}"
