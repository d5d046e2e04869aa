"""The server of the app."""

from flwr.app import Context
from flwr.common import NDArrays, Scalar
from flwr.server import ServerAppComponents, ServerConfig
from flwr.serverapp import ServerApp

from fedridge_flwr import LegacyFedRidge, RidgeModel

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

    def show(model: RidgeModel) -> None:
        print(model.summary())

    strategy = LegacyFedRidge(
        alpha=float(context.run_config["alpha"]),
        evaluate_fn=evaluate,
        on_model=show,  # the driver keeps the strategy: the model comes out here
    )
    config = ServerConfig(num_rounds=1)
    return ServerAppComponents(strategy=strategy, config=config)


app = ServerApp(server_fn=server_fn)
