"""Several workers with one BLAS thread each, where BLAS itself has several threads.

BLAS threads share one product at a time; between the products of a loop they wait.
Workers that each run the whole loop on their own rows do not, and a product of a few
hundred rows is too short to be shared anyway.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController

__all__ = ["blas_workers"]

_one_at_a_time = threading.Lock()


@contextmanager
def blas_workers() -> Iterator[int]:
    """Yield how many workers may run, as many as BLAS has threads.

    The limit of one BLAS thread each holds for the process and is lifted at the end.
    Two callers at once would lift each other's limit: the second one is given a
    single worker and leaves BLAS as it is.

    Examples
    --------
    >>> with blas_workers() as workers:
    ...     workers >= 1
    True
    """
    if not _one_at_a_time.acquire(blocking=False):
        yield 1
        return
    try:
        blas = _blas()
        threads = min((found["num_threads"] for found in blas.info()), default=1)
        if threads == 1:
            yield 1
            return
        with blas.limit(limits=1):
            yield threads
    finally:
        _one_at_a_time.release()


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")
