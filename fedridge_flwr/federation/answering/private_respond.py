"""A client's private release, from records of which none decides anything alone."""

from typing import Any

from ...data.local_table import RawRows
from ...data.record_numbers import as_numbers
from ...data.rows import Rows, check_rows
from ...errors import PrivacyError
from ...features import map_rows
from ...privacy.release import NO_WEIGHTS
from ..costs import MOST_PRIVATE_FEATURES
from ..requests import Answer, Request
from .respond import Guards, check_width, log_map, refuse_offset


def private_answer(request: Any, raw: RawRows, guards: Guards) -> Answer:
    """Return a private release, which counts as one example."""
    rows, curator = private_rows(request, raw, guards), guards.curator
    if curator is None:
        raise PrivacyError("there is nobody who makes private releases.")
    release = curator.answer(request.release, rows)
    return Answer("private", {"release": release}, 1, rows.schema)


def private_rows(request: Request, raw: RawRows, guards: Guards) -> Rows:
    """Return the rows of a private release, behind the map."""
    refuse_offset(raw)
    # An error about one record would reveal that it is there, and so would a refusal
    # by the number of rows: of a policy, only what is about names applies.
    if raw.weight is not None:
        raise PrivacyError(NO_WEIGHTS)
    rows = check_rows(as_numbers(raw.X), as_numbers(raw.y)).arranged(request.columns)
    guards.check_columns(rows, raw.origin)
    policy = None if guards.curator is None else guards.curator.policy
    if policy is not None and policy.report_failures:
        rows.refuse_columns_without_numbers()
    log_map(rows, request.feature_map)
    mapped = map_rows(rows, request.feature_map)
    check_width(mapped, MOST_PRIVATE_FEATURES)
    return mapped
