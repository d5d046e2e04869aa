"""The server of the app."""

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from .task import held_out_error

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Fit, and print the test error of the final model."""
    strategy = FedAvg(fraction_evaluate=0.0)
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord([np.zeros(10), np.zeros(1)]),
        num_rounds=int(context.run_config["num-server-rounds"]),
    )
    coef, intercept = result.arrays.to_numpy_ndarrays()
    print("Test error:", held_out_error(coef, intercept))
