"""Clients simulated side by side keep to their own cores."""

from __future__ import annotations

import math
import sys
from functools import cache

from threadpoolctl import ThreadpoolController

__all__ = ["keep_to_own_cores"]


@cache
def keep_to_own_cores() -> int | None:
    """Limit BLAS to the cores that Ray gave this actor, once; elsewhere do nothing.

    Ray does it by itself unless OMP_NUM_THREADS is set, as it is on many clusters.
    Then every client of a simulation would use all cores, and they would take them
    from each other. Threads are only ever made fewer.

    Returns
    -------
    int or None
        Threads that BLAS may use, or None where this is not a Ray actor.
    """
    cores = _cores_of_actor()
    if cores is None:
        return None
    allowed = max(1, math.floor(cores))
    for library in ThreadpoolController().lib_controllers:
        if library.get_num_threads() > allowed:
            library.set_num_threads(allowed)
    return allowed


def _cores_of_actor() -> float | None:
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    context = ray.get_runtime_context()
    if context.get_actor_id() is None:
        return None
    return float(context.get_assigned_resources().get("CPU", 1.0))
