"""What a reader has to know of the machine that something was measured on."""

import os
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the installed versions.

    Examples
    --------
    >>> versions(["no-such-package"])
    {'no-such-package': 'not installed'}
    """
    return {name: _version(name) for name in packages}


def memory_gib() -> int:
    """Return the size of the memory, rounded."""
    pages: int = os.sysconf("SC_PHYS_PAGES")
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**30)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
