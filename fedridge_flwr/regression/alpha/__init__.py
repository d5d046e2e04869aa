"""Candidates for alpha, and the choice among them."""
