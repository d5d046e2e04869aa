"""Residual refinement: a private model in several rounds, under one (epsilon, delta).

In every round clients send a noisy sum of clipped residuals of the coefficients so far,
in the first one also a noisy Gram matrix, the number of rows and their squared length.
The server reads each answer as a linear measurement of the solution (`coefficients`)
and combines all of them. `residuals` is the answer of one row, a vector of length 1 at
most; `curvature` the shape of the Gram matrix; `scale` the size of residuals, tracked
from round to round. Its limits are in docs/explanation/privacy.md.
"""
