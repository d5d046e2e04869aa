"""The server, message API."""

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedridge_flwr import FedRidge, SecureSum

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Fit in one round, print, and write what was asked for."""
    config = context.run_config
    strategy = FedRidge(
        alpha=float(config["alpha"]),
        min_available_nodes=int(config["wait-for"]) or None,
        min_train_nodes=int(config["min-sites"]),
        strict=config["strict"],
        secure=SecureSum() if config["secure"] else None,
        ledger=str(config["ledger"]) or None,
    )
    strategy.start(grid=grid, timeout=float(config["timeout"]))
    print(strategy.model_.summary())
    if config["output-dir"]:
        folder = Path(str(config["output-dir"]))
        strategy.model_.save(folder / "model.json")
        strategy.report_.save(folder / "report.json")
        if config["keep-statistics"]:
            strategy.statistics_.save(folder / "total.stats")
