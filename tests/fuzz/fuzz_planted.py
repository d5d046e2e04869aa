"""Bugs that are planted in the readers on purpose, each found by the same fuzz."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedridge_flwr.data.schema import Schema
from fedridge_flwr.flower import exchange
from fedridge_flwr.flower.protocol import answer_records, name_records
from fedridge_flwr.flower.protocol import array_records as arrays
from fedridge_flwr.multiround import opening
from fedridge_flwr.multiround import product_checks as answers
from fedridge_flwr.privacy import ledger_file
from fedridge_flwr.privacy import noisy_statistics as private
from fedridge_flwr.statistics import fixed_checks, fixed_point, plain
from fedridge_flwr.statistics import float32 as compact
from fedridge_flwr.statistics import sufficient as statistics
from fedridge_flwr.statistics import triangular as trapezoid
from fedridge_flwr.statistics import validity as plausible

Plant = Callable[[pytest.MonkeyPatch], None]


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


def _no_psd(patch: pytest.MonkeyPatch) -> None:
    for module in (statistics, plain):
        patch.setattr(module, "check_moments", _nothing)


def _no_rank(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plausible, "check_rank", _nothing)
    patch.setattr(trapezoid, "check_factor_rank", _nothing)


def _no_finiteness(patch: pytest.MonkeyPatch) -> None:
    def unchecked(array: Any, dtype: type, size: int, what: str) -> Any:
        return np.asarray(array)

    for module in (compact, trapezoid, opening):
        patch.setattr(module, "check_numbers", unchecked)


def _no_size(patch: pytest.MonkeyPatch) -> None:
    """As `numpy.load`: allocate what the header claims."""

    def trusting(data: bytes) -> Any:
        start = arrays._header_length(data)
        shape, _, dtype = arrays._read_header(data[:start])
        found = np.zeros(shape, dtype)
        body = np.frombuffer(data, np.uint8, offset=start)
        flat = found.reshape(-1).view(np.uint8)
        flat[: body.size] = body[: flat.size]
        return found

    patch.setattr(arrays, "decode_array", trusting)


def _no_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(answer_records, "_check_count", lambda count: count)


def _complex(patch: pytest.MonkeyPatch) -> None:
    def as_real(array: Any, name: str) -> Any:
        return np.asarray(array).astype(complex)

    patch.setattr(plain, "_as_float64", as_real)


def _weightless(patch: pytest.MonkeyPatch) -> None:
    for module in (statistics, trapezoid, opening):
        patch.setattr(module, "check_weight", _nothing)


def _numpy_header(patch: pytest.MonkeyPatch) -> None:
    """The header as an expression of Python, as NumPy reads it."""

    def evaluated(header: bytes) -> Any:
        import ast

        text = header[10:].decode("latin1")
        try:
            found = ast.literal_eval(text)
            return found["shape"], found["fortran_order"], np.dtype(found["descr"])
        except (ValueError, SyntaxError, TypeError, KeyError) as error:
            raise answer_records.ProtocolError("not NumPy's format.") from error

    patch.setattr(arrays, "_read_header", evaluated)
    patch.setattr(arrays, "_LONGEST_HEADER", 10**6)


def _deep_names(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(name_records, "strict_json", json.loads)


def _unnoticed_names(patch: pytest.MonkeyPatch) -> None:
    def unchecked(self: Any) -> None:
        if self.feature_map is None:
            object.__setattr__(self, "n_features_in", self.n_features)

    patch.setattr(Schema, "__post_init__", unchecked)


def _asymmetric(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(answers, "_check_symmetric", _nothing)


def _any_losses(patch: pytest.MonkeyPatch) -> None:
    def trusting(content: Any, expected: int) -> Any:
        metrics = content.get("metrics") or {}
        return np.asarray(metrics.get("losses"), dtype=np.float64)

    patch.setattr(answer_records, "read_losses", trusting)


def _any_release(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(private.PrivateStatistics, "__post_init__", _nothing)


def _any_columns(patch: pytest.MonkeyPatch) -> None:
    def trusting(request: Any, sent: Any, schema: Any, count: Any) -> Any:
        return answer_records.ColumnMoments.from_array(sent[0])

    patch.setitem(answer_records._READERS, "columns", trusting)


def _any_source(patch: pytest.MonkeyPatch) -> None:
    def by_source(self: Any, reply: Any) -> str:
        return str(reply.metadata.src_node_id)

    patch.setattr(exchange.NodeNames, "of", by_source)


def _ledger_without_checksum(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger_file, "_checksum", lambda rows: "same")


def _ledger_that_forgives(patch: pytest.MonkeyPatch) -> None:
    """A damaged ledger is taken for a new one."""
    honest = ledger_file._checked_entries

    def forgiving(database: Any) -> Any:
        try:
            return honest(database)
        except (ledger_file.PrivacyError, ledger_file.sqlite3.Error):
            return []

    patch.setattr(ledger_file, "_checked_entries", forgiving)


def _larger_slack(patch: pytest.MonkeyPatch) -> None:
    """Rounding of one in ten is allowed for."""
    patch.setattr(plausible, "_ROUNDING", 0.1)


def _any_whole_numbers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fixed_point, "check_sums", _nothing)


def _fixed_without_squares(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fixed_checks, "check_moments", _nothing)


def _fixed_of_any_weight(patch: pytest.MonkeyPatch) -> None:
    """Rows without weights may have any total weight."""
    honest = fixed_point.check_sums
    patch.setattr(
        fixed_point, "check_sums", lambda stats, weighted: honest(stats, weighted=True)
    )


def _long_reasons(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(answer_records, "one_line", str)


PLANTED: dict[str, tuple[Plant, tuple[str, ...]]] = {
    "no check of squares": (_no_psd, ("statistics:", "plain")),
    "no check of the rank": (_no_rank, ("statistics:", "plain", "factor")),
    "no check of finite numbers": (_no_finiteness, ("float32", "factor", "opening")),
    "memory as the header says": (_no_size, ("header: huge shape",)),
    "no check of the count": (_no_count, ("a count that cannot be",)),
    "complex numbers taken": (_complex, ("plain",)),
    "no check of the weight": (_weightless, ("statistics:", "factor", "opening")),
    "headers evaluated": (_numpy_header, ("header:",)),
    "JSON of any depth": (_deep_names, ("names:",)),
    "names of other columns": (_unnoticed_names, ("names:",)),
    "products of no symmetric matrix": (_asymmetric, ("product:",)),
    "any losses": (_any_losses, ("held-out losses:",)),
    "any private release": (_any_release, ("private release:",)),
    "any moments of columns": (_any_columns, ("column moments:",)),
    "answers by their source only": (_any_source, ("handed over:",)),
    "a ledger without a checksum": (_ledger_without_checksum, ("privacy ledger:",)),
    "a ledger that forgives damage": (_ledger_that_forgives, ("privacy ledger:",)),
    "rounding of one in ten": (_larger_slack, ("statistics:",)),
    "reasons of any length": (_long_reasons, ("error texts",)),
}
"""Name of the bug; how it is planted, and where the fuzz looks (its own cases)."""

PLANTED_IN_FIXED: dict[str, Plant] = {
    "any whole numbers": _any_whole_numbers,
    "whole numbers of no squares": _fixed_without_squares,
    "whole numbers of any weight": _fixed_of_any_weight,
}
"""The same in the reader of fixed-point statistics."""
