"""Packed triangles, factorisations, conjugate gradients, long integers: arrays only."""
