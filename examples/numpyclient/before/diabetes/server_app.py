"""The server of the app."""

import numpy as np
from flwr.app import Context
from flwr.common import NDArrays, Scalar, ndarrays_to_parameters
from flwr.server import ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.serverapp import ServerApp

from .task import held_out_error


def evaluate(
    server_round: int, parameters: NDArrays, config: dict[str, Scalar]
) -> tuple[float, dict[str, Scalar]]:
    """Print the test error of the model after a round."""
    coef, intercept = parameters
    error = held_out_error(coef, intercept)
    print(f"Round {server_round}. Test error:", error)
    return error, {}


def server_fn(context: Context) -> ServerAppComponents:
    """Return the strategy and its rounds."""
    strategy = FedAvg(
        fraction_evaluate=0.0,
        initial_parameters=ndarrays_to_parameters([np.zeros(10), np.zeros(1)]),
        evaluate_fn=evaluate,
    )
    config = ServerConfig(num_rounds=int(context.run_config["num-server-rounds"]))
    return ServerAppComponents(strategy=strategy, config=config)


app = ServerApp(server_fn=server_fn)
