"""The versions behind a fit."""

import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

_BEHIND_A_FIT = ("fedridge-flwr", "flwr", "numpy", "scipy")


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the installed versions.

    Examples
    --------
    >>> versions(["no-such-package"])
    {'no-such-package': 'not installed'}
    """
    return {name: _version(name) for name in packages}


def versions_of_a_fit() -> dict[str, str]:
    """Return the versions that somebody needs to get the same numbers."""
    return {**versions(_BEHIND_A_FIT), "python": platform.python_version()}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
