"""`fedridge fit`: the federation in one process, as a rehearsal or for good."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..data.formula import TableFormula
from ..data.local_table import table_of_file
from ..data.site_files import SiteFile, find_site_files
from ..data.sources import similar_name
from ..errors import DataError, FedRidgeError
from ..federation.answering.respond import Guards
from ..federation.requests import AskOutcome, AskStatistics
from ..federation.screening.outliers import SAME_STATISTICS
from ..federation.site.disclosure import SitePolicy
from ..flower.error_text import DECLINED
from ..flower.local_fit import LocalFit
from .copies import copies, copy_text
from .progress import Progress

_HAS_TEXT = "has text in"
_INCOMPLETE = re.compile(
    r"(?:MODEL OF|NO MODEL \(strict\):) (\d+) OF (\d+) CLIENTS[^:]*: (.*)", re.DOTALL
)


def fit_tables(
    data: str,
    formula: TableFormula,
    *,
    client_column: str = "",
    table: Path | None = None,
    policy: Path | None = None,
    **settings: Any,
) -> LocalFit:
    """Return a fit over the tables of all sites, each with the same policy.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> tables = {"north": ["bp,sex", "110,f", "120,f", "135,m"],
    ...           "south": ["sex;bp", "m;140", "f;125"]}
    >>> for name, lines in tables.items():
    ...     _ = (folder / f"{name}.csv").write_text(chr(10).join(lines))
    >>> fit_tables(str(folder), TableFormula("bp ~ sex"), alpha=0.0).model_
    RidgeModel(alpha=0.0, 1 feature, 5 rows, 2 clients, R²=0.7734)
    """
    strict = settings.get("strict", True)
    files = find_site_files(
        data, client_column=client_column, table=table, strict=strict
    )
    # A rehearsal is no upload: what was sent before does not count, nor is it kept.
    once: dict[str, Any] = {"min_row_difference": 1, "state": None}
    policies = () if policy is None else (replace(SitePolicy.load(policy), **once),)
    progress = Progress(2 * len(files))
    sites = progress.watch({file.name: file.open for file in files})
    fit = LocalFit(formula=formula, **settings)
    try:
        fit.run(sites, Guards(policies=policies))
        add_remarks(fit, files)
        return fit
    except FedRidgeError as error:
        hints = misspelt(formula, [name for file in files for name in _names(file)])
        hints += text_places(formula, files) if _HAS_TEXT in str(error) else []
        family = settings.get("family", "gaussian")
        never = later_reasons(policies, family, len(files))
        told = [without_model(str(error), never), *hints, *declined_lines(fit, never)]
        raise FedRidgeError("\n".join(told)) from None
    finally:
        progress.end()


def add_remarks(fit: LocalFit, files: Sequence[SiteFile]) -> None:
    """Add to the report what only somebody who has all tables can see."""
    remarks = fit.report_.remarks
    for first, second in copies(_alike(fit, files)):
        if SAME_STATISTICS in remarks.get(second, ""):
            continue  # the server has seen it as well
        if first in fit.report_.participants and second in fit.report_.participants:
            told = filter(None, [remarks.get(second), copy_text(first, second)])
            remarks[second] = "; ".join(told)


def _alike(fit: LocalFit, files: Sequence[SiteFile]) -> list[SiteFile]:
    """Return the files of sites that nothing in the report tells apart.

    To compare rows, tables have to be read again.
    """
    alike: dict[object, list[str]] = {}
    for site in fit.report_.sites:
        means = [f"{mean:.9g}" for mean in site.y_mean or ()]
        alike.setdefault((site.rows, site.rows_read, *means), []).append(site.client)
    some = {name for names in alike.values() if len(names) > 1 for name in names}
    return [file for file in files if file.name in some]


def later_reasons(
    policies: Sequence[SitePolicy], family: str, n_sites: int
) -> list[str]:
    """Return why the policy of all sites declines what a fit asks after the tables.

    In a strict fit, sites that decline to describe their table hide it.
    """
    if family == "gaussian":
        request: Any = AskStatistics(sites=n_sites)
    else:
        request = AskOutcome(family, sites=n_sites)
    return [why for each in policies for why in each.reasons_by_request(request)]


def without_model(text: str, never: Sequence[str] = ()) -> str:
    """Say that a fit ended without a model where it tells who would be in one.

    Parameters
    ----------
    text : str
        What the fit said.
    never : sequence of str
        Why all sites would decline what comes later.

    Examples
    --------
    >>> without_model("MODEL OF 3 OF 4 CLIENTS: client west: it has no column 'bp'")
    "No model: 1 of 4 sites cannot take part (client west: it has no column 'bp'). \
`--no-strict` goes on with the other 3."
    """
    found = _INCOMPLETE.match(text)
    if found is None:
        return text
    inside, of = int(found[1]), int(found[2])
    reasons = found[3].rstrip(".").replace(".;", ";")
    told = f"No model: {of - inside} of {of} sites cannot take part ({reasons})."
    if never:
        return f"{told} The policy declines this fit at all {of} sites."
    return f"{told} `--no-strict` goes on with the other {inside}." if inside else told


def declined_lines(fit: LocalFit, never: Sequence[str] = ()) -> list[str]:
    """Say by which rule sites declined: whoever rehearses owns the tables."""
    if not fit.declined_:
        return []
    rules = {
        name: why.removeprefix(DECLINED[:-1]).removeprefix(": ")
        for name, why in fit.declined_.items()
    }
    head = "Rules by which sites declined (a server is not told):"
    lines = [head, *(f"  {name}: {why}" for name, why in rules.items())]
    more = [why for why in never if not any(why in told for told in rules.values())]
    return lines + [f"  every site: {why}." for why in more]


def fit_notes(fit: LocalFit) -> list[str]:
    """Return what to know of the standard errors of a fit."""
    coding = fit.model_.coding
    linear = getattr(fit.model_, "family", "gaussian") == "gaussian"
    if not linear and np.any(fit.model_.alpha_):
        return [
            "There are no standard errors, since the coefficients are shrunk: use "
            "`--alpha 0` for them."
        ]
    if coding is not None and coding.formula.missing in ("mean", "indicator"):
        return [
            "Where values are missing, means stand for them (--missing "
            f"{coding.formula.missing}): standard errors take these as measured, "
            "and ignore that they are not."
        ]
    return []


def text_places(formula: TableFormula, files: Sequence[SiteFile]) -> list[str]:
    """Say where columns have text among numbers, which a server is not told."""
    found = []
    for file in files:
        with suppress(FedRidgeError):  # its own error says why
            _, origin = table_of_file(file.open()).scan(formula)
            found += [f"  {file.name}: {place}." for place in origin.mixed]
    return found


def misspelt(formula: TableFormula, names: Sequence[str]) -> list[str]:
    """Say which columns are meant by those of a formula that no table has.

    Examples
    --------
    >>> misspelt(TableFormula("bp ~ Age + sex"), ["bp", "age", "sex"])
    ["  There is no column 'Age'. Is 'age' meant? Names are case-sensitive."]
    """
    known = tuple(dict.fromkeys(names))
    asked = [*formula.targets, *formula.columns, *filter(None, [formula.weights])]
    return [
        f"  There is no column {name!r}.{similar_name(name, known)}"
        for name in asked
        if known and name not in known
    ]


def _names(file: SiteFile) -> tuple[str, ...]:
    try:
        return file.open().names
    except DataError:  # its own error says why
        return ()
