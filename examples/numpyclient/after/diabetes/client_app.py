"""The client of the app."""

from flwr.app import Context
from flwr.client import Client
from flwr.clientapp import ClientApp

from fedridge_flwr import RidgeClient

from .task import load_data


def client_fn(context: Context) -> Client:
    """Return the client of this node."""
    partition_id = int(context.node_config["partition-id"])
    num_partitions = int(context.node_config["num-partitions"])
    X, y = load_data(partition_id, num_partitions)
    return RidgeClient(X, y, context=context).to_client()


app = ClientApp(client_fn=client_fn)
