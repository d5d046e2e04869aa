"""`table_client_app`: a client whose rows are in a table file of its own."""

import sys
from typing import Any

from flwr.app import Context
from flwr.clientapp import ClientApp

from ..data.site_files import SiteFile, find_site_files, own_site_file
from ..data.sources import TableFile
from ..errors import DataError
from .client import ridge_client_app

_SIMULATED = {"partition-id", "num-partitions"}


def table_client_app(**options: Any) -> ClientApp:
    """Return a ClientApp whose rows are a table file, for ``FedRidge(formula=...)``.

    In a deployment only the site can name its file, in the command of its SuperNode::

        flower-supernode ... --node-config 'data="/data/heart.csv"'

    with ``table="/data/table.toml"`` next to it if the file needs `TableOptions`. In a
    simulation the run-config has ``data``: a folder with one file for each client, a
    pattern such as ``"heart/*.csv"``, or one file and the ``client-column`` that names
    the client of each row; and ``table``.

    Parameters
    ----------
    **options
        The options of `ridge_client_app`.

    Returns
    -------
    ClientApp
        The object to assign to ``app`` in ``client_app.py``.

    Examples
    --------
    >>> from fedridge_flwr import table_client_app
    >>> app = table_client_app(min_rows=20)
    >>> type(app).__name__
    'ClientApp'
    """
    return ridge_client_app(load_table, display_name=site_name, **options)


def load_table(context: Context) -> TableFile:
    """Return the table of this client."""
    return site_file(context).open()


def site_name(context: Context) -> str | None:
    """Return what reports call this client, where its table says so."""
    try:
        return site_file(context).name if _is_simulated(context) else None
    except DataError:
        return None


def site_file(context: Context) -> SiteFile:
    """Return where the table of this client is.

    A deployed site reads the file of its own node-config only: a server that could name
    another one in its run-config could look into every file of the site.
    """
    node, run = context.node_config, context.run_config
    if "data" in node:
        return own_site_file(dict(node))
    if not _is_simulated(context):
        raise DataError(
            "this site has no table: start its SuperNode with "
            "--node-config 'data=\"/path/of/the/table.csv\"'."
        )
    if not run.get("data"):
        raise DataError(
            'there is no table: the run-config needs data="...", a folder with one '
            "file for each client."
        )
    files = find_site_files(
        str(run["data"]),
        client_column=str(run.get("client-column", "")),
        table=str(run.get("table", "")) or None,
        strict=bool(run.get("strict", True)),
    )
    partition, partitions = int(node["partition-id"]), int(node["num-partitions"])
    if len(files) != partitions:
        raise DataError(
            f"there are {len(files)} tables and {partitions} simulated clients: use "
            f'--federation-config "num-supernodes={len(files)}".'
        )
    return files[partition]


def _is_simulated(context: Context) -> bool:
    """Whether this is a client of a simulation: no SuperNode runs inside of Ray."""
    return set(context.node_config) == _SIMULATED and runs_in_ray()


def runs_in_ray() -> bool:
    """Whether this process belongs to a Ray cluster."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())
