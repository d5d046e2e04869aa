"""`FeatureMap`: what all maps have in common, and how they are written down."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .._checks import LARGEST_SIZE, check_size
from .._types import Array
from ..data.rows import finite_block
from ..errors import DataError, FedRidgeError
from .parsing import KINDS, compose, parse_json, parse_text

if TYPE_CHECKING:
    from .column_moments import ColumnMoments


# Half a gigabyte: a client that claims many columns makes the server draw them too.
_MOST_NUMBERS = 2**26


@dataclass(frozen=True)
class FeatureMap(ABC):
    """A map of rows ``x -> phi(x)``, the same wherever it is built.

    This is the base class of all maps. Create a `GaussianProjection`,
    `RandomFourierFeatures`, `NeuralTangentFeatures`, `PolynomialMap` or `Standardize`,
    or read a map with `from_text`. ``|`` applies maps one after another.

    A map is fixed by its kind, its sizes, its seed and its parameters. Random numbers
    are drawn from ``PCG64(SeedSequence([seed, number of the kind, sizes...]))`` as
    float64, in the order in which the class names them.

    Notes
    -----
    ============================  =====================================================
    input                         result
    ============================  =====================================================
    no rows                       no rows, with as many columns as the map makes
    frame, sparse X               dense float64, unless the map leaves rows as they are
    NaN, inf                      `DataError` naming the raw columns
    values that overflow          `DataError`
    ``needs_data``                an error until `resolve` has put numbers in place
    another number of columns     another map: sizes are part of the random numbers
    ============================  =====================================================

    Examples
    --------
    >>> from fedridge_flwr import FeatureMap
    >>> feature_map = FeatureMap.from_text("fourier 200 gamma=0.1 seed=3")
    >>> feature_map
    RandomFourierFeatures(n_components=200, gamma=0.1, seed=3)
    >>> feature_map.transform([[1.0, 2.0], [3.0, 4.0]]).shape
    (2, 200)
    >>> FeatureMap.from_json(feature_map.to_json()) == feature_map
    True
    """

    kind: ClassVar[str]
    number: ClassVar[int]
    """Number of the kind in the seeds of random numbers; never reused."""
    spelled: ClassVar[tuple[str, ...]] = ()
    """Parameters that may be given in text; the first one without its name."""
    unresolved: ClassVar[str] = ""
    """What to do about a rule that needs data, at the start of the error."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Make the kind known to `from_json` and `from_text`; it must be a new one."""
        super().__init_subclass__(**options)
        for other in KINDS.values():
            again = (other.__module__, other.__qualname__)
            if again == (cls.__module__, cls.__qualname__):
                continue  # the same class, from a module that is loaded again
            for name in ("kind", "number"):
                value = getattr(cls, name)
                if value == getattr(other, name):
                    raise FedRidgeError(
                        f"{cls.__name__} has the {name} {value!r} of "
                        f"{other.__name__}: give it one of its own."
                    )
        KINDS[cls.kind] = cls

    # ---- use ------------------------------------------------------------------

    def transform(self, X: Any) -> Any:
        """Return ``phi(x)`` of every row: float64 of shape (n, D).

        Dense, unless the map leaves a sparse X as it is.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n, d)
            Raw columns.

        Returns
        -------
        ndarray or sparse matrix of shape (n, D)
            The mapped rows; D is `n_features_out` of d.

        Raises
        ------
        DataError
            If X has NaN or infinite values, or values whose features overflow.
        FedRidgeError
            If the map still needs data (`needs_data`).

        Examples
        --------
        >>> from fedridge_flwr import PolynomialMap, Standardize
        >>> PolynomialMap(2).transform([[2.0, 3.0]])
        array([[2., 3., 4., 6., 9.]])
        >>> Standardize().transform([[2.0, 3.0]])
        Traceback (most recent call last):
        fedridge_flwr.errors.FedRidgeError: standardize has no numbers yet: give \
means and scales, let FedRidge agree on it in a first round, or resolve() it with the \
ColumnMoments of all rows.
        """
        block = finite_block(X)
        with np.errstate(over="ignore", invalid="ignore"):
            mapped = self.map_block(block)
        values = mapped.data if hasattr(mapped, "indptr") else mapped
        if not np.isfinite(values).all():
            raise DataError(
                "values of X are so large that their features overflow float64. "
                "Change the unit of the largest columns, or standardize first."
            )
        return mapped

    def map_block(self, X: Any) -> Any:
        """Return ``phi(x)`` of float64 rows, dense or CSR, as they are.

        Values are not checked; `transform` does that.
        """
        self._check_ready(X.shape[1])
        return X if self.is_identity(X.shape[1]) else self._apply(X)

    def n_features_out(self, n_features_in: int) -> int:
        """Return how many columns D the map makes of d; sizes are checked here.

        Parameters
        ----------
        n_features_in : int
            Number of raw columns d.

        Raises
        ------
        DataError
            If the map does not fit d columns, or would make too many.

        Examples
        --------
        >>> from fedridge_flwr import NeuralTangentFeatures, PolynomialMap
        >>> PolynomialMap(2).n_features_out(10)
        65
        >>> NeuralTangentFeatures(50).n_features_out(10)
        600
        """
        n_features_in = check_size("the number of columns", n_features_in)
        width = self._width(n_features_in)
        if width > LARGEST_SIZE:
            raise DataError(
                f"{self.kind} would make {width} columns of {n_features_in}, more than "
                f"{LARGEST_SIZE}: choose a smaller size."
            )
        return width

    def widest(self, n_features_in: int) -> int:
        """Return how many dense columns there are at most while rows are mapped."""
        return self.n_features_out(n_features_in)

    def is_identity(self, n_features_in: int) -> bool:
        """Whether ``phi(x)`` is x for rows of this many columns; it is then skipped."""
        return False

    @abstractmethod
    def describe(self, n_features_in: int) -> str:
        """Return a one-line description of the map.

        Examples
        --------
        >>> from fedridge_flwr import FeatureMap
        >>> FeatureMap.from_text("projection 5").describe(20)
        'projection of 20 columns to 5, seed 0'
        """

    def kernel(self, X: Any, Z: Any) -> Array:
        """Return the kernel ``k(x, z)`` that ``phi(x)'phi(z)`` approximates.

        Parameters
        ----------
        X, Z : array, data frame or sparse matrix of shape (n, d) and (m, d)
            Raw columns.

        Returns
        -------
        ndarray of shape (n, m)
            The kernel between every row of X and every row of Z.

        Raises
        ------
        FedRidgeError
            If the map does not approximate a kernel.
        """
        raise FedRidgeError(
            f"{self.kind} does not approximate a kernel: take the inner products of "
            "transform(X)."
        )

    def to_sklearn(self, n_features_in: int) -> Any:
        """Return the same map as a fitted scikit-learn transformer.

        It can be pickled and cloned; a clone of scikit-learn's own random maps draws
        its own numbers when it is fitted again.

        Parameters
        ----------
        n_features_in : int
            Number of raw columns d.

        Examples
        --------
        >>> from fedridge_flwr import PolynomialMap
        >>> PolynomialMap(2).to_sklearn(3)
        PolynomialFeatures(include_bias=False)
        """
        from .estimator import FeatureMapTransformer

        return FeatureMapTransformer(self.to_json()).fit(np.zeros((1, n_features_in)))

    def __or__(self, other: object) -> FeatureMap:
        """Apply `other` after this map."""
        if not isinstance(other, FeatureMap):
            return NotImplemented
        return compose([self, other])

    # ---- random numbers -------------------------------------------------------

    def numbers(self, n_features_in: int) -> tuple[Array, ...]:
        """Return the random numbers that are used for rows of this many columns."""
        self._check_ready(n_features_in)
        return () if self.is_identity(n_features_in) else _numbers(self, n_features_in)

    def fingerprint(self, n_features_in: int) -> str:
        """Return 32 hex digits over parameters, sizes and the random numbers used.

        Two machines whose generators differ have different fingerprints.

        Examples
        --------
        >>> from fedridge_flwr import FeatureMap
        >>> one, other = (FeatureMap.from_text(f"projection 2 seed={s}") for s in "12")
        >>> one.fingerprint(5) == other.fingerprint(5)
        False
        """
        self._check_ready(n_features_in)
        return _fingerprint(self, n_features_in)

    # ---- rules that need data -------------------------------------------------

    @property
    def needs_data(self) -> bool:
        """Whether a rule such as ``gamma="scale"`` needs means and variances first."""
        return False

    def refuse_unresolved(self) -> None:
        """Raise an error that says what to do if the map still needs data."""
        if self.needs_data:
            raise FedRidgeError(
                f"{self.unresolved}, let FedRidge agree on it in a first round, or "
                "resolve() it with the ColumnMoments of all rows."
            )

    def _check_ready(self, n_features_in: int) -> None:
        self.refuse_unresolved()
        self.n_features_out(n_features_in)

    def resolve(self, columns: ColumnMoments) -> FeatureMap:
        """Return the same map with numbers in place of rules that need data.

        Parameters
        ----------
        columns : ColumnMoments
            Means and variances of the raw columns over all clients.

        Returns
        -------
        FeatureMap
            A map without rules; this one itself if it has none.

        Examples
        --------
        `FedRidge` does this by itself, in a small first round.

        >>> import numpy as np
        >>> from fedridge_flwr import RandomFourierFeatures
        >>> from fedridge_flwr.features import ColumnMoments
        >>> columns = ColumnMoments(100.0, np.array([0.0, 1.0]), np.array([0.25, 0.25]))
        >>> RandomFourierFeatures(50, gamma="scale").resolve(columns)
        RandomFourierFeatures(n_components=50, gamma=1.0, seed=0)
        """
        return self

    def moments_after(self, columns: ColumnMoments) -> ColumnMoments | None:
        """Return means and variances of the mapped columns, where they are known."""
        return columns if self.is_identity(columns.n_features) else None

    # ---- written down ---------------------------------------------------------

    def to_json(self) -> str:
        """Return canonical JSON: equal maps have equal text.

        Examples
        --------
        >>> from fedridge_flwr import FeatureMap
        >>> FeatureMap.from_text("fourier 200 gamma=0.1").to_json()
        '{"gamma":0.1,"kind":"fourier","n_components":200,"seed":0}'
        """
        return json.dumps(self.content(), sort_keys=True, separators=(",", ":"))

    def content(self) -> dict[str, Any]:
        """Return the kind and all parameters, as they go into JSON."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"kind": self.kind, **own}

    @staticmethod
    def from_json(text: str) -> FeatureMap:
        """Read `to_json`; every value is checked.

        Parameters
        ----------
        text : str
            JSON of one map.

        Raises
        ------
        ProtocolError
            If it is not a feature map.

        Examples
        --------
        >>> from fedridge_flwr import FeatureMap
        >>> FeatureMap.from_json('{"kind":"polynomial","degree":2}')
        PolynomialMap(degree=2, interaction_only=False)
        """
        return parse_json(text)

    @staticmethod
    def from_text(text: str) -> FeatureMap:
        """Read the short spelling of run configurations and command lines.

        ``kind size name=value ...``, several maps with ``|`` between them.

        Parameters
        ----------
        text : str
            For example "projection 50", "fourier 200 gamma=0.1 seed=3", "tangent 40",
            "polynomial 2", ``"standardize | fourier 500 gamma=scale"``.

        Raises
        ------
        FedRidgeError
            If it cannot be parsed; the message lists the known maps.

        Examples
        --------
        >>> from fedridge_flwr import FeatureMap
        >>> FeatureMap.from_text("standardize | polynomial 2").describe(3)
        '3 standardised columns, then 9 powers and products of 3 columns, degree 2'
        """
        return parse_text(text)

    # ---- for the kinds --------------------------------------------------------

    @abstractmethod
    def _width(self, n_features_in: int) -> int:
        """Return D, or raise a `DataError` where d columns do not fit."""

    @abstractmethod
    def _apply(self, X: Any) -> Array:
        """Return phi of rows that are not left as they are."""

    def _draw(self, n_features_in: int) -> tuple[Array, ...]:
        """Draw the random numbers, in a fixed order."""
        return ()

    def _set(self, **checked: Any) -> None:
        """Put checked parameters in place of those given; for ``__post_init__``."""
        for name, value in checked.items():
            object.__setattr__(self, name, value)


def dense(X: Any) -> Any:
    """Return rows as a dense array."""
    return X.toarray() if hasattr(X, "indptr") else X


def generator(*entropy: int) -> np.random.Generator:
    """Return a generator that is fixed by these whole numbers.

    Examples
    --------
    >>> bool(generator(0, 1).random() == generator(0, 1).random())
    True
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))


def refuse_too_many(count: int, feature_map: FeatureMap) -> None:
    """Refuse to draw more random numbers than fit into memory."""
    if count > _MOST_NUMBERS:
        raise DataError(
            f"{feature_map.kind} would need {count} random numbers, more than "
            f"{_MOST_NUMBERS}: choose a smaller size, or fewer columns."
        )


# Blocks of the same rows ask for the same numbers again and again.
@lru_cache(maxsize=4)
def _numbers(feature_map: FeatureMap, n_features_in: int) -> tuple[Array, ...]:
    numbers = feature_map._draw(n_features_in)
    for array in numbers:
        array.setflags(write=False)
    return numbers


@lru_cache(maxsize=64)
def _fingerprint(feature_map: FeatureMap, n_features_in: int) -> str:
    digest = hashlib.sha256(feature_map.to_json().encode())
    digest.update(f"\n{n_features_in}\n".encode())
    for array in feature_map.numbers(n_features_in):
        digest.update(f"{array.shape}".encode())
        digest.update(np.ascontiguousarray(array, dtype="<f8").data)
    return digest.hexdigest()[:32]
