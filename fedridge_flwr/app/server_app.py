"""The ServerApp: one-shot ridge and, if wanted, FedAvg and FedProx beside it."""

from dataclasses import replace
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from ..federation.reporting.run_folder import write_run
from ..flower import FedRidge
from ..flower.exchange import log, wait_for_nodes
from . import comparison
from .machine import versions
from .run_config import AppSettings, read_settings
from .table_fit import fit_tables
from .task import ClientRows, feature_names, pooled_rows

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Fit, compare, print and write what was asked for."""
    settings = read_settings(context.run_config)
    if settings.table_formula() is not None:
        fit_tables(grid, settings)
        return
    n_clients = len(wait_for_nodes(lambda: set(grid.get_node_ids()), None, 600.0))
    if n_clients <= 2:
        log.warning(
            "Only %d SuperNode(s). For more: flwr run . --stream --federation-config "
            '"num-supernodes=20 client-resources-num-cpus=1"',
            n_clients,
        )
    rows = pooled_rows(settings, n_clients)
    comparison.warm_up(grid)
    strategy = FedRidge(
        **settings.of_strategy(),
        min_available_nodes=n_clients,
        feature_names=feature_names(settings),
        unnamed="accept",  # every client loads the same data set, as arrays
    )
    runs = [comparison.run_oneshot(strategy, grid)]
    # Whatever alpha was chosen, the others are held against the same problem.
    settings = replace(settings, alpha=strategy.model_.alpha_)
    if settings.compare_rounds:
        runs += [
            comparison.run_iterative(name, grid, settings, n_clients, rows)
            for name in ("FedAvg", "FedProx")
        ]
    runs.append(comparison.pooled_ridge(settings, rows, strategy.model_.feature_map))

    table = comparison.comparison_table(runs, rows)
    facts = _facts(settings, n_clients, rows)
    parts, report = [strategy.model_.summary(), table, facts], strategy.report_
    if report.refinement is not None or report.advice or report.suspects:
        parts.insert(1, str(report))
    if report.privacy is not None:
        parts.insert(1, f"Privacy\n{report.privacy}")
    print("\n" + "\n\n".join(parts) + "\n", flush=True)
    if settings.output_dir:
        _write(settings, strategy, runs, rows, f"{table}\n\n{facts}\n")


def _facts(settings: AppSettings, n_clients: int, rows: ClientRows) -> str:
    parts = [
        f"{settings.dataset}, {n_clients} clients, {len(rows.X)} training and "
        f"{len(rows.X_test)} test rows, {rows.X.shape[1]} features, alpha "
        f"{settings.alpha:g}, seed {settings.seed}."
    ]
    if settings.compare_rounds:
        parts.append(
            "FedAvg and FedProx: Flower's own classes, full batch, "
            f"{comparison.LOCAL_EPOCHS} local steps of size 1/L, FedProx mu "
            f"{comparison.PROXIMAL_MU:g}."
        )
    parts.append(
        "Distance to pooled: of the coefficients, relative to the length of the pooled "
        "ones. Times are taken after a warm-up round that starts Ray."
    )
    found = versions(("flwr", "fedridge-flwr", "numpy", "scipy", "scikit-learn"))
    parts.append(", ".join(f"{name} {number}" for name, number in found.items()) + ".")
    return "\n".join(parts)


def _write(
    settings: AppSettings,
    strategy: FedRidge,
    runs: list[comparison.Run],
    rows: ClientRows,
    table: str,
) -> None:
    folder = Path(settings.output_dir)
    title = f"{settings.dataset}, {len(strategy.report_.participants)} clients"
    write_run(folder, strategy, title=title, data=settings.dataset)
    if settings.candidates() is not None:
        strategy.selection_.draw(folder / "alpha.png")
    if settings.compare_rounds and len(rows.X_test):
        title = f"{settings.dataset}: one round against {settings.compare_rounds}"
        comparison.draw_comparison(runs, rows, title, folder / "comparison.png")
    # Written last: if the table is there, so is everything else.
    (folder / "table.md").write_text(table, encoding="utf-8")
    log.info("wrote model.json, report.json, report.html and table.md to %s", folder)
