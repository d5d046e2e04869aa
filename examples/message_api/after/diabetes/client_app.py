"""The client of the app."""

import numpy as np
from flwr.app import Context

from fedridge_flwr import ridge_client_app

from .task import load_data


def load_rows(context: Context) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of this client."""
    partition_id = int(context.node_config["partition-id"])
    num_partitions = int(context.node_config["num-partitions"])
    X, y = load_data(partition_id, num_partitions)
    return X, y


app = ridge_client_app(load_rows)
