"""The server, older API: ServerAppComponents."""

from pathlib import Path

from flwr.app import Context
from flwr.server import ServerAppComponents, ServerConfig
from flwr.serverapp import ServerApp

from fedridge_flwr import LegacyFedRidge, RidgeModel


def server_fn(context: Context) -> ServerAppComponents:
    """Return the strategy; one round is all it needs."""
    config = context.run_config

    def keep(model: RidgeModel) -> None:
        print(model.summary())
        if config["output-dir"]:
            folder = Path(str(config["output-dir"]))
            model.save(folder / "model.json")
            strategy.report_.save(folder / "report.json")

    strategy = LegacyFedRidge(
        alpha=float(config["alpha"]),
        min_available_clients=int(config["wait-for"]) or None,
        min_fit_clients=int(config["min-sites"]),
        strict=config["strict"],
        ledger=str(config["ledger"]) or None,
        on_model=keep,
    )
    rounds = ServerConfig(num_rounds=1, round_timeout=float(config["timeout"]))
    return ServerAppComponents(strategy=strategy, config=rounds)


app = ServerApp(server_fn=server_fn)
