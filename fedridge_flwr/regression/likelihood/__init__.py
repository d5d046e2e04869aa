"""Logistic and Poisson regression: families, Newton's steps, models."""
