"""What a reader has to know of the machine, and memory as the system counts it."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info

from fedridge_flwr.app.machine import memory_gib, versions

__all__ = ["facts", "peak_memory", "reset_peak_memory"]

_PACKAGES = ("flwr", "ray", "fedridge-flwr", "numpy", "scipy", "scikit-learn", "pandas")


def facts() -> dict[str, Any]:
    """Return cores, memory, BLAS and versions."""
    blas = {
        f"{pool['internal_api']} {pool['version']}"
        for pool in threadpool_info()
        if pool["user_api"] == "blas"
    }
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": memory_gib(),
        "python": platform.python_version(),
        "blas": ", ".join(sorted(blas)),
        "versions": versions(_PACKAGES),
    }


def peak_memory() -> float:
    """Return the largest resident size of this process so far, in MB."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def reset_peak_memory() -> None:
    """Let the peak start again from what is resident now."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
