"""The exact answer in high dimension: a rough factor, then a few rounds of vectors.

rows -> `Opening` -> wire -> `System` -> `ConjugateSteps` -> directions -> wire ->
`centred_product` -> wire -> steps ... -> model
"""

from ..linalg.conjugate_gradient import ConjugateSteps
from .opening import Opening, Openings
from .products import centred_product
from .system import System

__all__ = ["ConjugateSteps", "Opening", "Openings", "System", "centred_product"]
