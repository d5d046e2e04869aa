"""Conjugate gradients one round at a time: the iteration of `linalg`."""

from __future__ import annotations

from ..linalg.conjugate_gradient import ConjugateSteps, Precondition

__all__ = ["ConjugateSteps", "Precondition"]
