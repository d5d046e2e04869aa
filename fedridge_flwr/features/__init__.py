"""Feature maps that are the same at every client: random only through a shared seed.

A map is fixed by its kind, its sizes, its seed and its parameters (`base`), so that
only a line of text is sent. Each client maps its rows block by block (`mapped_rows`);
ridge regression on the mapped columns is kernel or compressed regression on the raw
ones. Rules that need data, such as ``gamma="scale"``, are resolved by the means and
variances of the columns over all clients (`column_moments`).
"""

from .allowlist import check_allowed, check_permission
from .base import FeatureMap
from .column_moments import ColumnMoments
from .composition import Composition
from .fourier import RandomFourierFeatures
from .mapped_rows import MappedRows, map_rows
from .neural_tangent import NeuralTangentFeatures
from .polynomial import PolynomialMap
from .projection import Distortion, GaussianProjection
from .standardize import Standardize

__all__ = [
    "ColumnMoments",
    "Composition",
    "Distortion",
    "FeatureMap",
    "GaussianProjection",
    "MappedRows",
    "NeuralTangentFeatures",
    "PolynomialMap",
    "RandomFourierFeatures",
    "Standardize",
    "check_allowed",
    "check_permission",
    "map_rows",
]
