"""The client, message API."""

from fedridge_flwr import ridge_client_app

from .data import load_data, load_new_data

app = ridge_client_app(load_data, load_new_data=load_new_data, min_rows=20)
