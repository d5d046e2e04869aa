"""Packed triangles, factorisations, conjugate gradients, BLAS threads: arrays only."""
