"""Residual refinement: private rounds beyond the first, not yet recommended."""
