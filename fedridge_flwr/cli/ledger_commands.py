"""``fedridge ledger``: what a ledger has, and changes of it by hand."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from .._text import counted
from ..errors import FedRidgeError, LedgerError

app = typer.Typer(
    help="A federation that goes on: who is in, who leaves, the model of the rest.",
    no_args_is_help=True,
)
LedgerFile = Annotated[Path, typer.Argument(help="The file of the ledger.")]
Client = Annotated[str, typer.Argument(help="Name of the client in the ledger.")]


def _open(path: Path, *, create: bool = False) -> Any:
    from ..federation.ledger.contribution_ledger import Ledger

    return Ledger(path, create=create)


@app.command()
def show(ledger: LedgerFile) -> None:
    """Show who is in the ledger, since when, and the last changes."""
    with _open(ledger) as found:
        clients, history = found.clients(), found.history()
        waiting = found.waiting()
    rows = sum(entry.n_rows for entry in clients.values())
    print(f"{counted(len(clients), 'client')}, {counted(rows, 'row')}")
    width = max(map(len, clients), default=0)
    for name, entry in clients.items():
        about = f"{counted(entry.n_rows, 'row')}, {counted(entry.sequence, 'upload')}"
        print(f"  {name:<{width}}  {entry.time}  {about}")
    if waiting:
        answers, names = counted(len(waiting), "answer"), ", ".join(waiting)
        print(f"An interrupted run has {answers}, which the next run counts: {names}")
    print("Last changes:" if history else "No changes yet.")
    for change in history[-10:]:
        print(f"  {change.time}  {change.action:<7}  {change.client}  {change.after}")


@app.command()
def add(
    ledger: LedgerFile,
    client: Client,
    statistics: Annotated[Path, typer.Argument(help="File of SufficientStatistics.")],
    replace: Annotated[
        bool, typer.Option(help="In place of what the client has sent before.")
    ] = False,
) -> None:
    """Add the statistics of a client, from a file that `save` wrote.

    In Python: SufficientStatistics.from_data(X, y).save("north.stats"). Tables in one
    folder need no ledger: run `fedridge fit` again.
    """
    from ..statistics.statistics_file import read_statistics

    stats = read_statistics(statistics)
    with _open(ledger, create=True) as found:
        if client in found and not replace:
            raise LedgerError(
                f"{client!r} is in the ledger already: `--replace` puts these "
                "statistics, which must be those of all its rows, in place of the "
                "earlier ones."
            )
        change = found.replace if replace else found.add
        _tell(change(client, stats))


@app.command()
def remove(ledger: LedgerFile, client: Client) -> None:
    """Take a client out: its numbers are erased, and the total is that of the rest."""
    with _open(ledger) as found:
        _tell(found.remove(client))


@app.command()
def verify(ledger: LedgerFile) -> None:
    """Check every row, add all contributions up again, and compare with the total."""
    with _open(ledger) as found:
        told = found.verify()
    exact = "bit for bit" if not told.bound else f"to {told.difference:.1e}"
    who = f"{counted(told.n_clients, 'client')}, {counted(told.n_rows, 'row')}"
    print(f"The total is that of all contributions, {exact}: {who}.")


@app.command()
def export(
    ledger: LedgerFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="A new folder.")],
) -> None:
    """Write every contribution and the total as files that need no ledger."""
    with _open(ledger) as found:
        found.export(output)
    print(f"Wrote {output}.")


@app.command()
def model(
    ledger: LedgerFile,
    alpha: Annotated[float, typer.Option(help="Ridge penalty.")] = 1.0,
    fit_intercept: Annotated[bool, typer.Option(help="With an intercept.")] = True,
    standardize: Annotated[
        bool, typer.Option(help="Penalise coefficients of scaled features.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="JSON file for the model.")
    ] = None,
) -> None:
    """Solve for the model of all that is in the ledger; nobody is asked."""
    from ..regression.inference.infer import infer
    from ..regression.normal_equations import FitOptions
    from ..regression.solve import solve

    with _open(ledger) as found:
        total = found.total()
    if total.feature_map is not None:
        raise LedgerError(
            "the ledger is of columns behind a feature map, which it does not have: "
            "run FedRidge(ledger=..., feature_map=...) for the model."
        )
    exact = total.to_sufficient() if total.form == "fixed" else total
    options: FitOptions = {"fit_intercept": fit_intercept, "standardize": standardize}
    solved, inference = solve(exact, alpha, **options), None
    with suppress(FedRidgeError):  # too few rows, for example
        inference = infer(exact, alpha, **options)
    if output is not None:
        solved.save(output)
    print(solved.summary(inference))
    print(_PENALTY.format(alpha) if alpha else _NO_PENALTY)
    if output is not None:
        print(f"Wrote {output}.")


def _tell(receipt: Any) -> None:
    """Print a receipt, for the records of both sides."""
    print(f"{receipt.action}: {receipt.client}, upload {receipt.sequence}")
    print(f"time:         {receipt.time}")
    print(f"total before: {receipt.before}")
    print(f"total after:  {receipt.after}")
    print(
        f"exact to:     {receipt.bound:.1e}" if receipt.bound else "exact:        yes"
    )
    if receipt.action == "remove":
        print("erased:       " + ("yes" if receipt.erased else _NOT_YET))


_NO_PENALTY = "There is no penalty (`--alpha 0`): least squares."
_PENALTY = (
    "The penalty is `--alpha {:g}`; give that of your fits. `--alpha 0` is least "
    "squares."
)
_NOT_YET = "not yet: others use the file, or the disk is full. Run verify later"
