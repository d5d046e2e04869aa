"""What a reader has to know of the machine that something was measured on."""

import os

from ..federation.reporting.versions import versions

__all__ = ["memory_gib", "versions"]


def memory_gib() -> int:
    """Return the size of the memory, rounded."""
    pages: int = os.sysconf("SC_PHYS_PAGES")
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**30)
