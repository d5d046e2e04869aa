"""The client, older API: a NumPyClient."""

from flwr.app import Context
from flwr.client import Client
from flwr.clientapp import ClientApp

from fedridge_flwr import RidgeClient

from .data import load_data


def client_fn(context: Context) -> Client:
    """Return the client of this site."""
    X, y = load_data(context)
    return RidgeClient(X, y, min_rows=20, context=context).to_client()


app = ClientApp(client_fn=client_fn)
