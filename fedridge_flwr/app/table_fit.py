"""The app over tables: agree on columns and levels, fit, print, and write a report."""

from pathlib import Path

from flwr.serverapp import Grid

from ..data.site_files import table_facts
from ..errors import FedRidgeError
from ..federation.reporting.run_folder import fit_summary, write_run
from ..flower import FedRidge
from ..flower.exchange import log, wait_for_nodes
from .run_config import AppSettings

_TIMEOUT = 3600.0


def fit_tables(grid: Grid, settings: AppSettings) -> None:
    """Fit over the tables of all connected clients."""
    nodes = wait_for_nodes(lambda: set(grid.get_node_ids()), None, 600.0)
    formula = settings.table_formula()
    _refuse_other_number(settings, len(nodes))
    strategy = FedRidge(
        **settings.of_strategy(), formula=formula, min_available_nodes=len(nodes)
    )
    strategy.start(grid, timeout=_TIMEOUT)
    print(f"\n{fit_summary(strategy)}\n\n{strategy.report_}\n", flush=True)
    if settings.output_dir and formula is not None:
        about = {"formula": formula.text, "data": Path(settings.data).name}
        if settings.data:  # of other sites, nobody knows how they read their tables
            about |= table_facts(
                settings.data,
                client_column=settings.client_column,
                table=settings.table or None,
            )
        page = write_run(settings.output_dir, strategy, **about)
        log.info("wrote model, report and figures to %s", page.parent)


def _refuse_other_number(settings: AppSettings, n_clients: int) -> None:
    """Say early in a simulation that there are not as many clients as tables."""
    if not settings.data:
        return
    number = len(settings.site_files())
    if number != n_clients:
        raise FedRidgeError(
            f"there are {number} tables and {n_clients} simulated clients: use "
            f'--federation-config "num-supernodes={number} '
            'client-resources-num-cpus=1".'
        )
