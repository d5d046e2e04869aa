"""The `fedridge` command."""

from __future__ import annotations

import logging
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from ..data.formula import formula_of
from ..data.site_files import TABLE_OPTIONS, table_facts
from ..data.table_options import TableOptions
from ..errors import FedRidgeError
from . import options as o
from .ledger_commands import app as ledger_app
from .messages import WarnOnce

app = typer.Typer(
    name="fedridge",
    help="Ridge regression over the tables of several sites, in one round, exactly.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(ledger_app, name="ledger")


@app.command()
def fit(
    data: Annotated[
        str,
        typer.Argument(
            help="Folder with one table for each site, a pattern such as "
            "'hospitals/*.csv', or one table and --client-column."
        ),
    ],
    formula: o.Formula = "",
    target: o.Target = "",
    features: o.Features = "",
    categorical: o.Categorical = "",
    levels: o.Levels = "",
    missing: o.Missing = "drop",
    weights: o.Weights = "",
    alpha: Annotated[float, typer.Option(help="Ridge penalty.")] = 1.0,
    family: o.Family = "gaussian",
    alphas: Annotated[
        str, typer.Option(help='Choose alpha: "auto", or numbers as in 0.1,1,10.')
    ] = "",
    cv: Annotated[
        str, typer.Option(help="How to choose it: server (leave sites out) or gcv.")
    ] = "",
    standardize: Annotated[
        bool, typer.Option(help="Penalise coefficients of scaled features.")
    ] = False,
    standard_errors: o.StandardErrors = "classical",
    strict: Annotated[
        bool, typer.Option(help="No model unless every site is in it.")
    ] = True,
    client_column: Annotated[
        str, typer.Option(help="Column that names the site of each row, for one table.")
    ] = "",
    table: o.Table = None,
    policy: o.Policy = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder for model, report and figures."),
    ] = None,
) -> None:
    """Fit in this process: a rehearsal of the federation, with the same result.

    DATA is a folder with one table for each site, a pattern such as
    'hospitals/*.csv', or one table with a --client-column.

    Example: fedridge fit hospitals/ -f "thalach ~ age + C(sex) + chol" -o run
    """
    from ..federation.reporting.run_folder import fit_summary, write_run
    from .fit import declined_lines, fit_notes, fit_tables

    asked = formula_of(
        formula,
        target,
        features,
        categorical=categorical,
        levels=levels,
        missing=missing,
        weights=weights,
    )
    found = fit_tables(
        data,
        asked,
        client_column=client_column,
        table=table,
        policy=policy,
        alpha=alpha,
        family=family,
        alphas=_alphas(alphas),
        cv=cv or None,
        standardize=standardize,
        standard_errors=standard_errors,
        strict=strict,
    )
    page = None
    if output is not None:  # before anything is printed, perhaps into a broken pipe
        about = {"formula": asked.text, "data": Path(data).name}
        about |= table_facts(data, client_column=client_column, table=table)
        page = write_run(output, found, **about)
    print("\n".join([fit_summary(found), *fit_notes(found)]))
    print()
    print("\n".join([str(found.report_), *declined_lines(found)]))
    if page is not None:
        print(f"\nWrote {page.parent}. Open {page.name}.")


@app.command()
def check(
    data: Annotated[Path, typer.Argument(help="The table of this site.")],
    formula: o.Formula = "",
    target: o.Target = "",
    features: o.Features = "",
    categorical: o.Categorical = "",
    levels: o.Levels = "",
    missing: o.Missing = "drop",
    weights: o.Weights = "",
    family: o.Family = "gaussian",
    standard_errors: o.StandardErrors = "classical",
    alpha: Annotated[
        float, typer.Option(help="Changes nothing: a site sends the same.")
    ] = 1.0,
    table: o.Table = None,
    policy: o.Policy = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="JSON file for every number that would be sent."
        ),
    ] = None,
) -> None:
    """Show what this site would send, and what its policy would refuse.

    DATA is the table of this site, a CSV, TSV or Parquet file.

    Nothing is sent. Ends with 1 if the site would decline, be it only residuals for
    robust standard errors.
    """
    from .._checks import check_alpha
    from ..federation.site.disclosure import SitePolicy
    from .check import check_site

    check_alpha(alpha)  # as a fit does
    rules = None if policy is None else SitePolicy.load(policy)
    asked = formula_of(
        formula,
        target,
        features,
        categorical=categorical,
        levels=levels,
        missing=missing,
        weights=weights,
    )
    found = check_site(
        data,
        asked,
        table=table,
        policy=rules,
        family=family,
        standard_errors=standard_errors,
    )
    print(found.text())
    if output is not None:
        found.save(output)
        print(f"Wrote {output}.")
    if found.refusals or found.no_residuals:
        raise typer.Exit(1)


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="model.json, or a folder with one.")],
    data: Annotated[Path, typer.Argument(help="Table with new rows.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="CSV file to write.")],
    unknown: Annotated[
        str,
        typer.Option(help="For levels that the model does not know: error or missing."),
    ] = "error",
    table: o.Table = None,
) -> None:
    """Predict the rows of a new table, coded as the model was fitted.

    MODEL is the model.json of a fit, or its folder, DATA a table with new rows.
    """
    from .._checks import check_choice
    from ..federation.reporting.run_folder import saved_about
    from ..regression.model import RidgeModel
    from .predict import predict_table

    check_choice("unknown", unknown, ("error", "missing"))
    path = _model_file(model)
    loaded = RidgeModel.load(path)
    fitted = None
    with suppress(FedRidgeError):  # a report of another fit, or changed by somebody
        told = saved_about(path.parent).get(TABLE_OPTIONS, "")
        fitted = TableOptions.from_text(told)
    rows, gaps = predict_table(
        loaded, data, output, table=table, unknown=unknown, fitted=fitted
    )
    print(f"Wrote {output}: {rows} rows, {gaps} of them without a prediction.")


@app.command()
def show(
    model: Annotated[Path, typer.Argument(help="model.json, or a folder with one.")],
) -> None:
    """Show a model: its coefficients, and how a table is coded for it.

    Standard errors are shown too, if the report.json beside it has them.
    """
    from ..federation.reporting.run_folder import saved_about, saved_summary
    from ..regression.model import RidgeModel

    path = _model_file(model)
    found = RidgeModel.load(path)
    print(saved_summary(found, path.parent))
    if found.coding is not None:
        print(f"\n{found.coding.describe()}")
    if told := saved_about(path.parent).get(TABLE_OPTIONS):
        print(f"Table options: {told}")


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Folder of a run.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write, by default in the folder."),
    ] = None,
) -> None:
    """Write the HTML report of a run again, from its model.json and report.json."""
    from ..federation.reporting.run_folder import page_from_folder

    page = output or folder / "report.html"
    page.write_text(page_from_folder(folder), encoding="utf-8")
    print(f"Wrote {page}.")


def _model_file(given: Path) -> Path:
    """Return the model that is given, be it by its folder."""
    return given / "model.json" if given.is_dir() else given


def _alphas(text: str) -> list[float] | str | None:
    if text in ("", "auto"):
        return text or None
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise FedRidgeError(
            f'alphas must be "auto" or numbers as in 0.1,1,10, got {text!r}.'
        ) from None


def main() -> None:
    """Run the command; errors of ours are one message, without a traceback."""
    log = logging.getLogger("flwr")
    # A level would be set again when Flower is imported.
    log.addFilter(_is_error)
    reason = ""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = WarnOnce()
            app()
    except FedRidgeError as error:
        reason = str(error)
    except OSError as error:
        place = "" if error.filename is None else f"{error.filename}: "
        reason = f"{place}{error.strerror or error}."
    finally:
        log.removeFilter(_is_error)
    # Only here are the frames of the error gone, and with them files that are read.
    if reason:
        print(f"fedridge: {reason}", file=sys.stderr)
        sys.exit(2)


def _is_error(told: logging.LogRecord) -> bool:
    return told.levelno >= logging.ERROR


if __name__ == "__main__":
    main()
