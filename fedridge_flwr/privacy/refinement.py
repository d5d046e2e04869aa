"""Residual refinement: not in this version yet."""

from __future__ import annotations

from ..errors import PrivacyError
from .shares import Shares


def refinement_shares(rounds: int, server_round: int) -> Shares:
    """Return the shares of one round."""
    raise PrivacyError(f"rounds must be 1 in this version, got {rounds}.")
