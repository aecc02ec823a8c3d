"""A limit of one BLAS thread for many small steps, safe if several threads train at once."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

_LIMIT = threading.Lock()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep BLAS to one thread inside the block.

    Many small products are slower when BLAS splits each among threads that wait for one another.
    The limit belongs to the process, and a block restores what it found. If two blocks overlapped,
    the later one would leave BLAS at one thread for good. So only the first block sets and restores
    the limit; others run under it while it lasts.
    """
    if not _LIMIT.acquire(blocking=False):
        yield
        return
    try:
        with threadpool_limits(1, user_api="blas"):
            yield
    finally:
        _LIMIT.release()
