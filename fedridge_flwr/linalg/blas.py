"""Several workers with one BLAS thread each, where BLAS itself has several threads.

BLAS threads share one product at a time; between the products of a loop they wait.
Workers that each run the whole loop on their own rows do not, and a product of a few
hundred rows is too short to be shared anyway. BLAS threads also spin for a while after
each product. NumPy and SciPy bring a BLAS each, whose threads then take the cores from
each other: two products of 0.1 ms in a row can take 8 ms.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache

from threadpoolctl import LibController, ThreadpoolController

_one_at_a_time = threading.Lock()


@contextmanager
def blas_workers() -> Iterator[int]:
    """Yield how many workers may run, as many as BLAS has threads.

    The limit of one BLAS thread each applies to the process and is lifted at the end.
    Two callers at once would lift each other's limit: the second one gets a single
    worker and does not change BLAS.

    Examples
    --------
    >>> with blas_workers() as workers:
    ...     workers >= 1
    True
    """
    if not _one_at_a_time.acquire(blocking=False):
        yield 1
        return
    before = [(library, library.get_num_threads()) for library in _libraries()]
    many = [(library, threads) for library, threads in before if threads != 1]
    workers = min((threads for _, threads in before), default=1)
    try:
        for library, _ in many:
            library.set_num_threads(1)
        yield workers
    finally:
        for library, threads in many:
            library.set_num_threads(threads)
        _one_at_a_time.release()


def blas_threads() -> int:
    """Return how many threads every BLAS in this process may use."""
    return min((each.get_num_threads() for each in _libraries()), default=1)


def one_blas_thread() -> AbstractContextManager[object]:
    """Let BLAS use one thread, for many small products in a row."""
    return blas_workers()


@cache
def _libraries() -> list[LibController]:
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


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
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    context = ray.get_runtime_context()
    if context.get_actor_id() is None:
        return None
    allowed = max(1, int(context.get_assigned_resources().get("CPU", 1.0)))
    for library in ThreadpoolController().lib_controllers:
        if library.get_num_threads() > allowed:
            library.set_num_threads(allowed)
    return allowed
