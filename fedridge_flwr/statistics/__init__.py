"""Mergeable sums of rows and their encodings; knows nothing of alpha."""
