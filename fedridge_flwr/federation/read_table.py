"""`read_table`: a table of one's own as X and y, coded as in a federation."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..data.coding import Coding
from ..data.formula import TableFormula
from ..data.local_table import as_local_table
from ..data.site_files import table_options
from ..data.sources import TableFile
from ..data.table_options import TableOptions
from ..errors import DataError, FedRidgeError
from .agreement.table_agreement import agree_on_coding, coding_of_one


def read_table(
    source: Any,
    formula: str | TableFormula | Coding,
    *,
    levels: Mapping[str, Sequence[str]] | None = None,
    missing: str = "drop",
    options: TableOptions | None = None,
) -> tuple[Any, Any, Coding]:
    """Return X, y and the coding of a table, as a client of a federation has them.

    Parameters
    ----------
    source : path or data frame
        A file (CSV, TSV or Parquet), or a data frame.
    formula : str, TableFormula or Coding
        Defines X and y. A `Coding`, such as ``model.coding``, is one that sites have
        agreed on. Of new rows the table then need not have the target.
    levels : mapping of str to sequence of str, optional
        Levels of categories; by default those in the table.
    missing : {"drop", "mean", "indicator", "error"}
        How missing values are handled, see `TableFormula`.
    options : TableOptions, optional
        How the file is read. By default as ``fedridge fit``, ``check`` and ``predict``
        read it: as ``table.toml`` beside the file says, where there is one, and
        otherwise detected. ``TableOptions()`` ignores that file.

    Returns
    -------
    X : DataFrame
        Features, under the names that a model has.
    y : Series, DataFrame or None
        Targets; None if a `Coding` is given and the table has none of them.
    coding : Coding
        How they were coded: names, levels, and replacements of missing values.

    Warns
    -----
    UserWarning
        If the formula has no intercept: X has no column of ones in any case, so that
        ``infer`` and ``solve`` need ``fit_intercept=False`` then.

    Raises
    ------
    DataError
        If the table does not fit the formula.

    Examples
    --------
    >>> import pandas as pd
    >>> from fedridge_flwr import read_table
    >>> frame = pd.DataFrame({"bp": [110, 120, 135], "sex": ["f", "f", "m"]})
    >>> X, y, coding = read_table(frame, "bp ~ sex")
    >>> X["sex[T.m]"].tolist(), coding.levels
    ([0.0, 0.0, 1.0], {'sex': ('f', 'm')})

    New rows, coded in the same way:

    >>> X, y, _ = read_table(pd.DataFrame({"sex": ["m", "f"]}), coding)
    >>> X["sex[T.m]"].tolist(), y
    ([1.0, 0.0], None)
    """
    if isinstance(source, str | Path):
        found = table_options(Path(source)) if options is None else options
        source = TableFile(source, found)
    table = as_local_table(source)
    if table is None:
        raise DataError(
            f"a table is a file or a data frame, got {type(source).__name__}."
        )
    if isinstance(formula, Coding):
        if not {*formula.formula.targets} & {*table.names}:
            return table.coded_features(formula), None, formula
    else:
        if isinstance(formula, str):
            formula = TableFormula(formula, levels=levels or {}, missing=missing)
        elif levels is not None:
            raise FedRidgeError("levels are already given in the TableFormula.")
        profile, origin = table.scan(formula)
        misfits = coding_of_one(formula, profile).misfits
        if misfits:
            places = "".join(f" {place}." for place in origin.mixed)
            raise DataError(f"{'; '.join(misfits)}.{places}")
        formula, _ = agree_on_coding(formula, {"": profile})
    if not formula.formula.intercept:
        warnings.warn(
            "the formula has no intercept: give infer and solve fit_intercept=False.",
            stacklevel=2,
        )
    X, y, weight, _ = table.coded(formula)
    if weight is not None:
        raise FedRidgeError("read_table does not return weights: read them yourself.")
    return X, y, formula
