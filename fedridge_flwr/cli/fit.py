"""`fedridge fit`: the federation in one process, as a rehearsal or for good."""

from __future__ import annotations

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
from ..flower.local_fit import LocalFit
from .progress import Progress


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
        if not hints:
            raise
        raise FedRidgeError("\n".join([str(error), *hints])) from None
    finally:
        progress.end()


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
