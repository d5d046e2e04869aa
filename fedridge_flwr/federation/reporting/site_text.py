"""The sites of a fit as lines of text and of a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .site_facts import SiteFacts

_SHOWN, _REMARKS = 12, 20
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_HUGE = 10.0


def site_lines(
    sites: Sequence[SiteFacts], name_of: Callable[[str], str], not_known: str = ""
) -> list[str]:
    r"""Return the sites as lines of a report, of many the most influential.

    One site is the whole fit, and without numbers there is nothing to compare. Remarks
    are told of all sites.

    Parameters
    ----------
    sites : sequence of SiteFacts
        The sites.
    name_of : callable
        Returns what a client is called.
    not_known : str
        What is not known of single sites, and why.

    Examples
    --------
    >>> sites = [
    ...     SiteFacts("a", rows=300, r2=0.52, rmse=1.1, influence=0.25),
    ...     SiteFacts("b", rows=40, r2=0.31, rmse=1.4, influence=0.02),
    ... ]
    >>> print("\n".join(site_lines(sites, str)))
      sites:
        client  rows    R²  RMSE  influence
        a        300  0.52   1.1       0.25
        b         40  0.31   1.4       0.02
    """
    known = (
        site.influence is not None or site.missing or site.remark for site in sites
    )
    if len(sites) < 2 or not any(known):
        return []
    shown, title = list(sites), "sites"
    if len(sites) > _SHOWN:
        shown = sorted(sites, key=lambda s: -(s.influence or 0.0))[:_SHOWN]
        title = f"sites, the {_SHOWN} most influential"
    columns: dict[str, list[str]] = {
        "client": [name_of(site.client) for site in shown],
        "rows": [count_text(site.rows) for site in shown],
        "dropped": [count_text(site.dropped) for site in shown],
        "R²": [number_text(site.r2) for site in shown],
        "RMSE": [number_text(site.rmse) for site in shown],
        "influence": [number_text(site.influence, 2) for site in shown],
        "without it": [change_text(site) for site in shown],
    }
    used = {
        head: cells for head, cells in columns.items() if any(c != "-" for c in cells)
    }
    lines = []
    for row in zip(*([head, *cells] for head, cells in used.items()), strict=True):
        padded = []
        for cell, (head, cells) in zip(row, used.items(), strict=True):
            width = max(len(head), *map(len, cells))
            text = head in ("client", "without it")
            padded.append(f"{cell:<{width}}" if text else f"{cell:>{width}}")
        lines.append(("    " + "  ".join(padded)).rstrip())
    more = len(sites) - len(shown)
    lines += [f"    ... and {more} more"] if more else []
    return [f"  {title}:", *lines, *_footnotes(sites, name_of, not_known)]


def _footnotes(
    sites: Sequence[SiteFacts], name_of: Callable[[str], str], not_known: str
) -> Iterator[str]:
    """Say what is worth a look at every site, and why numbers are not there."""
    remarks = [
        f"{name_of(site.client)}: {site.remark}" for site in sites if site.remark
    ]
    yield from (f"    {told}" for told in remarks[:_REMARKS])
    if remarks[_REMARKS:]:
        yield f"    ... and {len(remarks) - _REMARKS} more (see report.html)"
    if not_known and all(site.r2 is None for site in sites):
        yield f"    {not_known}"


def count_text(count: int | None) -> str:
    """Return a count, "-" where it is not known."""
    return "-" if count is None else f"{count:,}"


def number_text(number: float | None, digits: int = 3) -> str:
    """Return a number with some digits, "-" where it is not known."""
    return "-" if number is None else f"{number:.{digits}g}"


def change_text(site: SiteFacts) -> str:
    """Return what the coefficient that changes most would do without a site.

    Examples
    --------
    >>> change_text(SiteFacts("a", most_changed="bmi", change=-0.123))
    'bmi -12 %'
    >>> change_text(SiteFacts("a", most_changed="bmi", change=-1.4))
    'bmi changes sign'
    """
    if not site.most_changed:
        return "-"
    if site.change is None or site.change > _HUGE:
        return f"{site.most_changed} from near 0"
    if site.change < -1.0:
        return f"{site.most_changed} changes sign"
    percent = f"{100 * site.change:+.0f}"
    if percent in ("+0", "-0"):
        percent = f"{100 * site.change:+.1g}"
    return f"{site.most_changed} {percent} %"


def sites_csv(sites: Sequence[SiteFacts], name_of: Callable[[str], str]) -> str:
    """Return the sites as CSV, every number with all its digits.

    A spreadsheet takes a cell that begins with "=" as a formula; names come from the
    clients, and get an apostrophe then.
    """
    n_targets = max((len(site.y_mean or []) for site in sites), default=0)
    means = [f"y_mean_{k}" if n_targets > 1 else "y_mean" for k in range(n_targets)]
    plain = ["share", "r2", "rmse", "influence", "most_changed", "change", "remark"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["client", "name", "rows", "rows_read", "dropped", "missing", *means, *plain]
    )
    for site in sites:
        gaps = "; ".join(f"{name}: {n}" for name, n in site.missing.items())
        row: list[Any] = [site.client, name_of(site.client), site.rows, site.rows_read]
        row += [site.dropped, gaps]
        row += site.y_mean or [None] * n_targets
        writer.writerow(map(_cell, [*row, *(getattr(site, name) for name in plain)]))
    return out.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value
