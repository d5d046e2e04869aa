"""Flower's own FedAvg on the same sites."""
