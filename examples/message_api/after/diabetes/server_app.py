"""The server of the app."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedridge_flwr import FedRidge

from .task import held_out_error

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Fit, and print the test error of the final model."""
    strategy = FedRidge(alpha=float(context.run_config["alpha"]))
    result = strategy.start(grid=grid)
    print(strategy.model_.summary())
    coef, intercept = result.arrays.to_numpy_ndarrays()
    print("Test error:", held_out_error(coef, intercept))
