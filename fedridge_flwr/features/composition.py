"""`Composition`: one map after another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

from .._types import Array
from ..data.rows import finite_block
from ..errors import FedRidgeError
from .base import FeatureMap
from .column_moments import ColumnMoments

_MOST_MAPS = 8


@dataclass(frozen=True)
class Composition(FeatureMap):
    """Maps one after another: ``a | b`` is ``phi(x) = phi_b(phi_a(x))``.

    Parameters
    ----------
    maps : tuple of FeatureMap
        The maps in order, two to eight; compositions among them are taken apart.

    Examples
    --------
    >>> from fedridge_flwr.features import PolynomialMap, Standardize
    >>> both = Standardize(means=[1.0], scales=[2.0]) | PolynomialMap(2)
    >>> both.transform([[5.0]])
    array([[2., 4.]])
    >>> [each.kind for each in both.maps]
    ['standardize', 'polynomial']
    """

    maps: tuple[FeatureMap, ...]

    kind: ClassVar[str] = "composition"
    number: ClassVar[int] = 6

    def __post_init__(self) -> None:
        """Take compositions apart."""
        flat: list[FeatureMap] = []
        for each in self.maps:
            if not isinstance(each, FeatureMap):
                raise FedRidgeError(
                    f"a composition is of feature maps, got {type(each).__name__}."
                )
            flat += each.maps if isinstance(each, Composition) else (each,)
        if len(flat) < 2:
            raise FedRidgeError("a composition needs two maps or more.")
        if len(flat) > _MOST_MAPS:
            raise FedRidgeError(f"{len(flat)} maps in a row: at most {_MOST_MAPS}.")
        self._set(maps=tuple(flat))

    @property
    def needs_data(self) -> bool:
        """Whether any of the maps needs data."""
        return any(each.needs_data for each in self.maps)

    def refuse_unresolved(self) -> None:
        """Raise an error if any of the maps has no numbers yet."""
        for each in self.maps:
            each.refuse_unresolved()

    def resolve(self, columns: ColumnMoments) -> Composition:
        """Resolve every map by the moments of the columns that reach it."""
        known: ColumnMoments | None = columns
        resolved: list[FeatureMap] = []
        for each in self.maps:
            if each.needs_data:
                if known is None:
                    raise FedRidgeError(
                        f"means and variances after {resolved[-1].kind} are not known, "
                        f"so {each.kind} cannot be resolved there: give its numbers, "
                        'such as gamma="scale" as a number, or put it first.'
                    )
                each = each.resolve(known)
            resolved.append(each)
            known = None if known is None else each.moments_after(known)
        return Composition(tuple(resolved))

    def moments_after(self, columns: ColumnMoments) -> ColumnMoments | None:
        """Return means and variances of the mapped columns, where they are known."""
        known: ColumnMoments | None = columns
        for each in self.maps:
            known = None if known is None else each.moments_after(known)
        return known

    def widest(self, n_features_in: int) -> int:
        """Return the largest width after any of the maps."""
        return max(each.widest(n) for each, n in self._stages(n_features_in))

    def is_identity(self, n_features_in: int) -> bool:
        """Whether every map leaves the rows as they are."""
        return all(each.is_identity(n_features_in) for each in self.maps)

    def numbers(self, n_features_in: int) -> tuple[Array, ...]:
        """Return the random numbers of every map, in order."""
        drawn = (each.numbers(n) for each, n in self._stages(n_features_in))
        return tuple(chain.from_iterable(drawn))

    def describe(self, n_features_in: int) -> str:
        """Return the descriptions of the maps in one line."""
        stages = self._stages(n_features_in)
        return ", then ".join(each.describe(n) for each, n in stages)

    def kernel(self, X: Any, Z: Any) -> Array:
        """Return the kernel of the last map, on rows that the others have mapped."""
        *before, last = self.maps
        left, right = finite_block(X), finite_block(Z)
        for each in before:
            if each.numbers(left.shape[1]):
                raise FedRidgeError(
                    f"{each.kind} is random and not the last map: the kernel would "
                    "depend on its random numbers."
                )
            left, right = each.transform(left), each.transform(right)
        return last.kernel(left, right)

    def to_sklearn(self, n_features_in: int) -> Any:
        """Return a fitted ``sklearn.pipeline.Pipeline`` of the maps."""
        from sklearn.pipeline import Pipeline

        stages = enumerate(self._stages(n_features_in))
        return Pipeline(
            [(f"{each.kind}{k}", each.to_sklearn(n)) for k, (each, n) in stages]
        )

    def content(self) -> dict[str, Any]:
        """Return the content of every map, as it goes into JSON."""
        return {"kind": self.kind, "maps": [each.content() for each in self.maps]}

    def _stages(self, n_features_in: int) -> Iterator[tuple[FeatureMap, int]]:
        """Yield every map with the number of columns that it is given."""
        for each in self.maps:
            yield each, n_features_in
            n_features_in = each.n_features_out(n_features_in)

    def _width(self, n_features_in: int) -> int:
        for each in self.maps:
            n_features_in = each.n_features_out(n_features_in)
        return n_features_in

    def _apply(self, X: Any) -> Any:
        for each in self.maps:
            X = each.map_block(X)
        return X
