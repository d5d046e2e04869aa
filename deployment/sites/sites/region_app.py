"""The client of a region, which runs the federation of the region's own sites."""

from __future__ import annotations

import subprocess
from pathlib import Path

from flwr.app import Context

from fedridge_flwr import SufficientStatistics, ridge_client_app
from fedridge_flwr.errors import DataError


def load_data(context: Context) -> SufficientStatistics:
    """Run the region's federation, and return the statistics of its sites together.

    The region's SuperNode sets ``--node-config``: `app`, this folder on the region's
    machine; `superlink`, the region's own in ``~/.flwr/config.toml``; `output-dir`, a
    folder for the region's model and report; `settings`, more of the run-config.
    """
    told = {key: str(value) for key, value in context.node_config.items()}
    folder = Path(told["output-dir"])
    total = folder / "total.stats"
    total.unlink(missing_ok=True)  # never answer with an earlier run
    target = context.run_config["target"]
    settings = f'target="{target}" output-dir="{folder}" keep-statistics=true'
    subprocess.run(  # noqa: S603 - a list of arguments of the region's own, no shell
        [
            *("flwr", "run", told["app"], told["superlink"], "--stream"),
            *("--run-config", f"{settings} {told.get('settings', '')}"),
        ],
        check=True,
    )
    # `flwr run` ends with 0 even if the app failed.
    if not total.exists():
        raise DataError("the run of the region's own federation failed; see its log.")
    return SufficientStatistics.load(total)


app = ridge_client_app(load_data, min_rows=20)
