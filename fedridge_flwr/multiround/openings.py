"""`Openings`: those of all clients with one schema, kept apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import StatisticsError
from .opening import Opening

__all__ = ["Openings"]


@dataclass(frozen=True)
class Openings:
    """The openings of several clients; ``+`` puts two such sets together.

    They are kept as sent, so that a client that drops out can be taken out again.
    """

    of: Mapping[str, Opening]

    def __post_init__(self) -> None:
        """Refuse what is none."""
        if not self.of:
            raise StatisticsError("there are no openings.")

    def __add__(self, other: Openings) -> Openings:
        """Return the openings of both."""
        return Openings({**self.of, **other.of})

    @property
    def first(self) -> Opening:
        """One of them; the schema of all is the same."""
        return next(iter(self.of.values()))

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return self.first.n_features

    @property
    def n_targets(self) -> int:
        """Number of targets t."""
        return self.first.n_targets

    @property
    def n_features_in(self) -> int | None:
        """Number of columns before any feature map."""
        return self.first.n_features_in

    @property
    def feature_hash(self) -> str | None:
        """Hash of the feature names, where some client told it."""
        hashes = [opening.feature_hash for opening in self.of.values()]
        return next((known for known in hashes if known is not None), None)
