"""Residual refinement: a private model in several rounds (see README.md)."""
