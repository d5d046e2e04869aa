"""Warnings as a person at a terminal reads them."""

from __future__ import annotations

import sys
from typing import Any

# What a function takes, as the command has it.
_OPTIONS = {"or use_t=True": "or `--standard-errors classical`"}


class WarnOnce:
    """Print every warning once, without the line of code that it came from."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def __call__(self, message: Warning | str, *_: Any, **__: Any) -> None:
        """Print a warning, unless it was printed before."""
        text = str(message)
        for argument, option in _OPTIONS.items():
            text = text.replace(argument, option)
        if text not in self._told:
            self._told.add(text)
            print(f"fedridge: warning: {text}", file=sys.stderr)
