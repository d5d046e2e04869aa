"""The paper's experiments as a Flower app: ``flwr run simulations``."""
