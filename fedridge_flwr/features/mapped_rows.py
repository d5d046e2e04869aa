"""`MappedRows`: rows behind a feature map, made one block at a time."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..data.rows import Rows
from ..errors import DataError, FedRidgeError
from .base import FeatureMap


@dataclass(frozen=True)
class MappedRows(Rows):
    """Rows ``[phi(X) Y]`` with weights: the raw rows, mapped as they are read.

    No more than a block of mapped rows exists at any time. Names are those of the raw
    columns, and so are the columns that a `DataError` names. Made by `map_rows`; the
    parameters are also the attributes.

    Parameters
    ----------
    X, Y, weight, n_rows, places, target_places
        Of the raw rows.
    schema : Schema
        The mapped columns, with the names of the raw ones.
    raw : Rows
        The raw rows.
    mapping : FeatureMap
        The map.

    Examples
    --------
    >>> from fedridge_flwr import PolynomialMap
    >>> from fedridge_flwr.features import map_rows
    >>> from fedridge_flwr.data.rows import check_rows
    >>> rows = map_rows(check_rows([[2.0], [3.0]], [0.0, 1.0]), PolynomialMap(2))
    >>> rows.n_features_in, rows.n_features
    (1, 2)
    >>> next(rows.blocks()).X
    array([[2., 4.],
           [3., 9.]])
    """

    raw: Rows = field(kw_only=True)
    mapping: FeatureMap = field(kw_only=True)

    @property
    def is_sparse(self) -> bool:
        """Whether the mapped X is sparse, that is where the map leaves it as it is."""
        return self.raw.is_sparse and self._is_identity

    def refuse_bad_values(self) -> None:
        """Raise a `DataError` that names raw columns, or says that the map overflows.

        Raw values can be finite and their features not: then no column is to blame.
        """
        self.raw.refuse_nonfinite()
        raise DataError(
            "values of X or y are so large that their features, or the squares of "
            "them, overflow float64. Change the unit of the largest columns, or "
            "standardize before the other maps."
        )

    @property
    def _is_identity(self) -> bool:
        return self.mapping.is_identity(self.raw.n_features)

    @property
    def _width(self) -> int:
        # A block of raw rows is read, and perhaps copied, to make one of mapped rows.
        raw = 0 if self.raw.is_sparse else self.raw.n_features
        return max(raw, self.mapping.widest(self.raw.n_features)) + self.n_targets

    def _features(self, part: slice) -> Any:
        block = self.raw._features(part)
        if self._is_identity:
            return block
        if not self.raw.is_sparse:
            block = np.asarray(block, dtype=np.float64)
        return self.mapping.map_block(block)


def map_rows(rows: Rows, feature_map: FeatureMap | None) -> Rows:
    """Return rows behind a map; None leaves them as they are.

    Parameters
    ----------
    rows : Rows
        Raw rows, as ``fedridge_flwr.data.rows.check_rows`` returns them.
    feature_map : FeatureMap or None
        A map whose rules that need data have been resolved.

    Returns
    -------
    Rows
        `MappedRows`, or the rows themselves without a map.

    Raises
    ------
    FedRidgeError
        If the map needs data, is not a map, or the rows are mapped already.
    DataError
        If the map does not fit the number of columns.

    Examples
    --------
    >>> from fedridge_flwr import FeatureMap
    >>> from fedridge_flwr.features import map_rows
    >>> from fedridge_flwr.data.rows import check_rows
    >>> rows = check_rows([[1.0, 2.0]], [0.0])
    >>> map_rows(rows, FeatureMap.from_text("polynomial 2")).n_features
    5
    """
    if feature_map is None:
        return rows
    if not isinstance(feature_map, FeatureMap):
        raise FedRidgeError(
            f"feature_map must be a FeatureMap, got {type(feature_map).__name__}. "
            'Use FeatureMap.from_text("fourier 200 gamma=0.1").'
        )
    if isinstance(rows, MappedRows):
        raise FedRidgeError("the rows are mapped already: join maps with |.")
    feature_map.refuse_unresolved()
    d = rows.n_features
    schema = replace(
        rows.schema,
        n_features=feature_map.n_features_out(d),
        feature_map=feature_map.fingerprint(d),
        n_features_in=d,
    )
    return MappedRows(
        *(rows.X, rows.Y, rows.weight, rows.n_rows, schema),
        target_places=rows.target_places,
        raw=rows,
        mapping=feature_map,
    )
