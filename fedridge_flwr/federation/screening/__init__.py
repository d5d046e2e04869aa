"""Clients compared with each other; knows nothing of how they were asked."""
