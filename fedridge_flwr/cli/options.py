"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_MODEL = "Model"
_TABLE = "Table"

Formula = Annotated[
    str,
    typer.Option(
        "--formula",
        "-f",
        help='As in R: "bp ~ age + C(sex) + log(income)".',
        rich_help_panel=_MODEL,
    ),
]
Target = Annotated[
    str,
    typer.Option(help="Instead of a formula: the target.", rich_help_panel=_MODEL),
]
Features = Annotated[
    str,
    typer.Option(
        help="With --target: the features, as in a,b,c. All other columns by default.",
        rich_help_panel=_MODEL,
    ),
]
Categorical = Annotated[
    str,
    typer.Option(
        help="Categories that look like numbers, as in stage,cp.",
        rich_help_panel=_MODEL,
    ),
]
Levels = Annotated[
    str,
    typer.Option(
        help='Levels of categories, as in "stage=1|2|3; sex=f|m". Those of all sites '
        "by default.",
        rich_help_panel=_MODEL,
    ),
]
Missing = Annotated[
    str,
    typer.Option(
        help="Rows with missing values: drop, mean, indicator or error.",
        rich_help_panel=_MODEL,
    ),
]
Weights = Annotated[
    str, typer.Option(help="Column of sample weights.", rich_help_panel=_MODEL)
]
Family = Annotated[
    str,
    typer.Option(
        help="gaussian, binomial (0 and 1) or poisson (counts).",
        rich_help_panel=_MODEL,
    ),
]
StandardErrors = Annotated[
    str,
    typer.Option(
        help="classical; by site: CR0, CR1; robust: HC0, HC1, HC2, HC3.",
        rich_help_panel=_MODEL,
    ),
]
Table = Annotated[
    Path | None,
    typer.Option(
        help="TOML file that says how tables are read: columns, delimiter, decimal, "
        "encoding, header, missing, missing_in. By default table.toml beside them.",
        rich_help_panel=_TABLE,
    ),
]
Policy = Annotated[
    Path | None,
    typer.Option(help="Site policy, a TOML file.", rich_help_panel=_TABLE),
]
