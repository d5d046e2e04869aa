"""Processes as Linux tells them in /proc: who started whom, and what they hold."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Usage(NamedTuple):
    """What processes hold together."""

    rss: int
    handles: int
    threads: int


def descendants(pid: int) -> list[int]:
    """Return all processes that this one started, and those that they started."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            # The name in brackets may itself have blanks and brackets.
            state, parent = stat.rpartition(")")[2].split()[:2]
            if state != "Z":
                children.setdefault(int(parent), []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def command(pid: int) -> list[str]:
    """Return the command line of a process, or nothing if it is gone."""
    try:
        text = (PROC / str(pid) / "cmdline").read_text(errors="replace")
    except OSError:
        return []
    return text.rstrip("\0").split("\0")


def running(pid: int, program: str) -> list[int]:
    """Return what runs this program below a process."""
    return [
        child
        for child in descendants(pid)
        if any(Path(word).name == program for word in command(child)[:3])
    ]


def usage(pids: Iterable[int]) -> Usage:
    """Return what these processes hold together."""
    rss = handles = threads = 0
    for pid in pids:
        folder = PROC / str(pid)
        rss += int((folder / "statm").read_text().split()[1]) * _PAGE
        handles += len(list((folder / "fd").iterdir()))
        threads += len(list((folder / "task").iterdir()))
    return Usage(rss, handles, threads)
