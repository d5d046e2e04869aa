"""Arrays on the wire: decoded without trust, and models as records of arrays."""

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from ...errors import ProtocolError
from ...regression.alpha.leave_client_out import HeldOut
from ...regression.model import RidgeModel
from ..error_text import one_line

_MAGIC = b"\x93NUMPY"
_LENGTH_BYTES = {b"\x01\x00": 2, b"\x02\x00": 4}
_LONGEST_HEADER = 1024
_MOST_DIMENSIONS = 32
_MOST_NUMBERS = 2**58
_DESCR = rb"""['"]descr['"]\s*:\s*['"]([^'"\\]{1,64})['"]"""
_ORDER = rb"""['"]fortran_order['"]\s*:\s*(True|False)"""
_SHAPE = rb"""['"]shape['"]\s*:\s*\(((?:\s*-?\d{1,19}\s*,)*\s*(?:-?\d{1,19})?\s*)\)"""
_HEADER = re.compile(
    rb"\{\s*(?:(?:%b|%b|%b)\s*(?:,\s*|(?=\}))){3}\}\s*" % (_DESCR, _ORDER, _SHAPE)
)
_NUMBERS = re.compile("[<>]?[iuf][248]|[|]?[iu]1|[<>]?c(8|16)|[|]?b1")


def array_record(arrays: Mapping[str, NDArray[Any]]) -> ArrayRecord:
    """Return arrays as a record of Flower's."""
    return ArrayRecord({name: FlowerArray(array) for name, array in arrays.items()})


def decode_arrays(record: ArrayRecord) -> list[NDArray[Any]]:
    """Return the arrays of a record without trusting their headers."""
    return [decode_array(bytes(array.data)) for array in record.values() if array.data]


def decode_array(data: bytes) -> NDArray[Any]:
    """Read an array in NumPy's own format; no pickle, no size beyond what is there.

    `numpy.load` would allocate whatever shape the header claims before it looks at
    the data, and evaluates the header as an expression of Python, however deep. Here
    the header is one flat line of three values, held against the number of bytes.
    """
    start = _header_length(data)
    shape, fortran, dtype = _read_header(data[:start])
    if math.prod(shape) * dtype.itemsize != len(data) - start:
        raise ProtocolError(
            f"an array claims the shape {shape} of {dtype}, which is not the "
            f"{len(data) - start} bytes it has."
        )
    flat = np.frombuffer(data, dtype=dtype, offset=start)
    return flat.reshape(shape, order="F" if fortran else "C")


def _header_length(data: bytes) -> int:
    # After six bytes of magic and two of version, the length of the rest of the header.
    size = _LENGTH_BYTES.get(data[6:8], 0)
    length = int.from_bytes(data[8 : 8 + size], "little")
    if data[:6] != _MAGIC or not size or len(data) < 8 + size + length:
        raise ProtocolError("an array is not in NumPy's format.")
    if length > _LONGEST_HEADER:
        raise ProtocolError(
            f"the header of an array has {length} bytes, {_LONGEST_HEADER} at most."
        )
    return 8 + size + length


@lru_cache(maxsize=64)
def _read_header(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, order and dtype; the answers of a round have one header."""
    text = header[8 + _LENGTH_BYTES[header[6:8]] :]
    found = _HEADER.fullmatch(text)
    if found is None or None in found.groups():
        raise ProtocolError("an array is not in NumPy's format.")
    descr, order, sizes = (part.decode("ascii", "replace") for part in found.groups())
    if not _NUMBERS.fullmatch(descr):
        raise ProtocolError(f"an array has dtype {one_line(descr)}, expected numbers.")
    shape = tuple(int(size) for size in sizes.split(",") if size.strip())
    # A zero beside huge sizes is no memory, and still more than NumPy can index.
    largest = math.prod(max(size, 1) for size in shape)
    if (
        min(shape, default=1) < 0
        or len(shape) > _MOST_DIMENSIONS
        or largest > _MOST_NUMBERS
    ):
        raise ProtocolError(f"an array claims the shape {shape}.")
    return shape, order == "True", np.dtype(descr)


def model_arrays(model: RidgeModel) -> dict[str, NDArray[Any]]:
    """Return coefficients and intercept, as `Result.arrays` holds them."""
    targets = model.coef_.shape[:-1] or (1,)
    intercept = np.broadcast_to(np.asarray(model.intercept_, float), targets)
    return {"coef": np.ascontiguousarray(model.coef_), "intercept": intercept.copy()}


def model_from_arrays(arrays: Sequence[NDArray[Any]]) -> RidgeModel:
    """Return a model that can predict, from the arrays of an evaluate request."""
    if len(arrays) != 2:
        raise ProtocolError(
            f"expected the arrays [coef, intercept] of a model, got {len(arrays)}."
        )
    coef, intercept = (np.asarray(array, dtype=np.float64) for array in arrays)
    if coef.ndim == 1:
        good = intercept.shape == (1,)
    else:
        good = coef.ndim == 2 and intercept.shape == (coef.shape[0],)
    if not good or not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
        raise ProtocolError(
            f"coef of shape {coef.shape} and intercept of shape {intercept.shape} are "
            "not a model."
        )
    return RidgeModel(
        coef=coef,
        intercept=float(intercept[0]) if coef.ndim == 1 else intercept,
        alpha=float("nan"),
    )


def held_out_arrays(models: HeldOut) -> dict[str, NDArray[Any]]:
    """Return the models of all others as they are sent to one client."""
    return {
        "coef": np.ascontiguousarray(models.coef),
        "intercept": np.ascontiguousarray(models.intercept),
    }


def held_out_from_arrays(arrays: Sequence[NDArray[Any]]) -> HeldOut:
    """Return the models of all others from the arrays of a request."""
    if (
        len(arrays) != 2
        or arrays[0].ndim != 3
        or arrays[1].shape != arrays[0].shape[:2]
    ):
        raise ProtocolError("the arrays are not models to compute losses for.")
    coef, intercept = (np.asarray(array, dtype=np.float64) for array in arrays)
    if not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
        raise ProtocolError("the models to compute losses for are not finite.")
    return HeldOut(coef, intercept)
