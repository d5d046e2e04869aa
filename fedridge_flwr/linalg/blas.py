"""Several workers with one BLAS thread each, where BLAS itself has several threads.

BLAS threads share one product at a time; between the products of a loop they wait.
Workers that each run the whole loop on their own rows do not, and a product of a few
hundred rows is too short to be shared anyway. BLAS threads also spin for a while after
each product. NumPy and SciPy bring a BLAS each, whose threads then take the cores from
each other: two products of 0.1 ms in a row can take 8 ms.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache

from threadpoolctl import LibController, ThreadpoolController

__all__ = ["blas_threads", "blas_workers", "one_blas_thread"]

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
    workers = blas_threads()
    before = [(library, library.get_num_threads()) for library in _libraries()]
    many = [(library, threads) for library, threads in before if threads != 1]
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
    controllers: list[LibController] = (
        ThreadpoolController().select(user_api="blas").lib_controllers
    )
    return controllers
