"""The rules of a site about requests and names of columns: nothing of them is data.

They are asked before rows are loaded, and hold for private releases too.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..._text import quoted
from ...data.local_table import RowOrigin
from ...data.schema import HasSchema
from .request_names import ABOUT_KEYS, NAMES

if TYPE_CHECKING:
    from ..requests import Request
    from .disclosure import SitePolicy


def request_reasons(policy: SitePolicy, request: Request) -> Iterator[str]:
    """Yield why a policy declines a request, whatever the rows."""
    names = [NAMES.get(request.task, request.task)]
    if policy.require_secure_sums and names[0] != "secure":
        yield "require_secure_sums is set, but the request is not for a secure sum"
    private = request.is_private
    if private:
        names.append("private")  # also in a secure sum
    if getattr(request, "mode", None) == "auto":
        names.append("statistics")  # where they are small, they come at once
    # A function of a column can make one row outweigh all others, as a map can.
    if request.feature_map is not None or _computes(request):
        names.append("feature_maps")
    if request.classes is not None:
        names.append("classes")
    if getattr(getattr(request, "probe", None), "leverages", False):
        names.append("leverages")
    # Before the rows are read: also that there is an error would be about them.
    yield from _asked_columns(policy, request)
    for name in dict.fromkeys(names):
        if name not in policy.requests:
            yield f'"{name}" is not among the allowed requests'
    if private and policy.max_epsilon is None:
        yield "max_epsilon is not set, so private requests are not answered"
    if policy.require_privacy and not (private or request.task in ABOUT_KEYS):
        yield "require_privacy is set, but the request is not private"
    if policy.min_sites > 1:
        claimed = request.sites
        if claimed is None or claimed < policy.min_sites:
            said = "does not say how many" if claimed is None else f"asks {claimed}"
            yield f"min_sites={policy.min_sites}, but the server {said}"


def _asked_columns(policy: SitePolicy, request: Request) -> Iterator[str]:
    formula, coding = getattr(request, "formula", None), request.coding
    if coding is not None:
        yield from column_reasons(policy, None, RowOrigin(coding.raw_columns))
    elif formula is not None:
        named = [*formula.columns, *formula.targets, formula.weights]
        origin = RowOrigin(list(filter(None, named)))
        # Of all columns of a table, where a formula takes them, the table decides.
        if not formula.takes_all:
            yield from column_reasons(policy, None, origin)


def _computes(request: Request) -> bool:
    """Whether a request is about columns that are computed from those of a table."""
    asked = request.coding or getattr(request, "formula", None)
    return asked is not None and asked.computes


def column_reasons(
    policy: SitePolicy, rows: HasSchema | None, origin: RowOrigin | None
) -> Iterator[str]:
    """Yield why a policy declines columns, by their names alone."""
    if policy.allowed_columns is None and not policy.forbidden_columns:
        return
    if origin is not None and origin.columns is not None:
        names = list(origin.columns)
    elif rows is None or rows.feature_names is None or rows.target_names is None:
        yield (
            "allowed_columns or forbidden_columns are given, but X or y has no "
            "column names (use data frames)"
        )
        return
    else:
        names = [*rows.feature_names, *rows.target_names]
    forbidden = set(map(_folded, policy.forbidden_columns))
    banned = [name for name in names if _folded(name) in forbidden]
    if banned:
        yield f"columns are forbidden: {quoted(banned)}"
    if policy.allowed_columns is not None:
        others = [name for name in names if name not in policy.allowed_columns]
        if others:
            yield f"columns are not among the allowed ones: {quoted(others)}"


def _folded(name: str) -> str:
    """Return a name as people compare it: a typo must not let a column out."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())
