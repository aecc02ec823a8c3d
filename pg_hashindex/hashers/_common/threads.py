"""One BLAS thread for many small steps, whoever else trains at the same time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

__all__ = ["one_blas_thread"]

_LIMIT = threading.Lock()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep BLAS to one thread inside the block.

    Many small products are slower when BLAS splits each among threads that wait for one another.
    The limit belongs to the process, and each block would restore what it found: of two that
    overlap, the later one would leave BLAS at one thread for good. So the first block alone sets
    and restores it; another one meanwhile has the limit for as long as that lasts.
    """
    if not _LIMIT.acquire(blocking=False):
        yield
        return
    try:
        with threadpool_limits(1, user_api="blas"):
            yield
    finally:
        _LIMIT.release()
