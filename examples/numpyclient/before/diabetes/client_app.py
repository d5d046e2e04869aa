"""The client of the app."""

import numpy as np
from flwr.app import Context
from flwr.client import Client, NumPyClient
from flwr.clientapp import ClientApp
from flwr.common import NDArrays, Scalar

from .task import load_data


class FlowerClient(NumPyClient):
    """Gradient steps from the global model."""

    def __init__(self, X: np.ndarray, y: np.ndarray, step: float, epochs: int) -> None:
        self.X, self.y = X, y
        self.step, self.epochs = step, epochs

    def fit(
        self, parameters: NDArrays, config: dict[str, Scalar]
    ) -> tuple[NDArrays, int, dict[str, Scalar]]:
        """Return the global model after some gradient steps."""
        coef, intercept = parameters
        for _ in range(self.epochs):
            residuals = self.X @ coef + intercept - self.y
            coef = coef - self.step * self.X.T @ residuals / len(self.y)
            intercept = intercept - self.step * residuals.mean()
        return [coef, intercept], len(self.y), {}


def client_fn(context: Context) -> Client:
    """Return the client of this node."""
    partition_id = int(context.node_config["partition-id"])
    num_partitions = int(context.node_config["num-partitions"])
    X, y = load_data(partition_id, num_partitions)
    step = float(context.run_config["learning-rate"])
    epochs = int(context.run_config["local-epochs"])
    return FlowerClient(X, y, step, epochs).to_client()


app = ClientApp(client_fn=client_fn)
