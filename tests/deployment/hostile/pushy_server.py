"""A server that would like sites to have another policy: by all that it may send."""

from pathlib import Path

from flwr.app import ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp

from fedridge_flwr import FedRidge

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Fit with whoever answers, and ask everybody for another policy on the way."""
    config = context.run_config
    lax = str(config["policy"])
    wishes = ConfigRecord(
        {"policy": lax, "site-policy": lax, "min_rows": 1, "fedridge-sites": 1000}
    )
    strategy = FedRidge(alpha=1.0, min_available_nodes=3, min_train_nodes=1)
    strategy.start(grid=grid, timeout=150.0, train_config=wishes)
    folder = Path(str(config["output-dir"]))
    strategy.model_.save(folder / "model.json")
    strategy.report_.save(folder / "report.json")
