"""Standard errors, tests and intervals from statistics."""
