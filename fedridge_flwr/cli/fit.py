"""`fedridge fit`: the federation in one process, as a rehearsal or for good."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..data.formula import TableFormula
from ..data.site_files import SiteFile, find_site_files
from ..data.sources import similar_name
from ..errors import DataError, FedRidgeError
from ..federation.answering.respond import Guards
from ..federation.site.disclosure import SitePolicy
from ..flower.error_text import DECLINED
from ..flower.local_fit import LocalFit
from .progress import Progress

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
    files = find_site_files(data, client_column=client_column, table=table)
    # A rehearsal is no upload: what was sent before does not count, nor is it kept.
    once: dict[str, Any] = {"min_row_difference": 1, "state": None}
    policies = () if policy is None else (replace(SitePolicy.load(policy), **once),)
    progress = Progress(2 * len(files))
    sites = progress.watch({file.name: file.open for file in files})
    fit = LocalFit(formula=formula, **settings)
    try:
        return fit.run(sites, Guards(policies=policies))
    except FedRidgeError as error:
        hints = misspelt(formula, [name for file in files for name in _names(file)])
        told = [without_model(str(error)), *hints, *declined_lines(fit)]
        raise FedRidgeError("\n".join(told)) from None
    finally:
        progress.end()


def without_model(text: str) -> str:
    """Say that a fit ended without a model where it tells who would be in one.

    Examples
    --------
    >>> without_model("MODEL OF 3 OF 4 CLIENTS: client west: it has no column 'bp'")
    "No model: 1 of 4 sites cannot take part (client west: it has no column 'bp'). \
`--no-strict` fits the other 3."
    """
    found = _INCOMPLETE.match(text)
    if found is None:
        return text
    inside, of, reasons = int(found[1]), int(found[2]), found[3].rstrip(".")
    told = f"No model: {of - inside} of {of} sites cannot take part ({reasons})."
    return f"{told} `--no-strict` fits the other {inside}." if inside else told


def declined_lines(fit: LocalFit) -> list[str]:
    """Say by which rule sites declined: whoever rehearses owns the tables."""
    if not fit.declined_:
        return []
    rules = {
        name: why.removeprefix(DECLINED[:-1]).removeprefix(": ")
        for name, why in fit.declined_.items()
    }
    head = "Rules by which sites declined (a server is not told):"
    return [head, *(f"  {name}: {why}" for name, why in rules.items())]


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
