"""Progress of work that takes longer than a moment, on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

_PATIENCE = 2.0


class Progress:
    """A line that says what is read now; it appears after two seconds.

    Parameters
    ----------
    total : int
        How many steps there are, as far as is known.
    """

    def __init__(self, total: int) -> None:
        self._total, self._done, self._began = total, 0, time.monotonic()
        self._shown = False

    def step(self, what: str) -> None:
        """Say what comes next."""
        self._done += 1
        if sys.stderr.isatty() and time.monotonic() - self._began > _PATIENCE:
            self._shown = True
            print(
                f"\r\033[K{self._done} of {self._total}: {what}",
                end="",
                file=sys.stderr,
            )

    def end(self) -> None:
        """Remove the line."""
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def watch(
        self, sites: Mapping[str, Callable[[], Any]]
    ) -> dict[str, Callable[[], Any]]:
        """Return functions that say which site they read before they do."""

        def watched(name: str, load: Callable[[], Any]) -> Callable[[], Any]:
            def loads() -> Any:
                self.step(f"reading {name}")
                return load()

            return loads

        return {name: watched(name, load) for name, load in sites.items()}
