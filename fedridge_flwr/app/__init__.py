"""The Flower app behind ``flwr run .``: one-shot ridge next to FedAvg and FedProx."""
