"""What each site has sent, kept between runs in an SQLite file."""

from .contribution_ledger import Ledger

__all__ = ["Ledger"]
