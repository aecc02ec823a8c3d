"""A limit of one BLAS thread for many small steps, safe if several threads train at once."""

import functools
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import ThreadpoolController

_LIMIT = threading.Lock()


@functools.lru_cache(maxsize=1)
def _found(n_modules: int) -> ThreadpoolController:
    """Look for BLAS among the loaded libraries, of which another import may add some."""
    return ThreadpoolController().select(user_api="blas")


def _blas() -> ThreadpoolController:
    """Return the loaded BLAS libraries, for which looking takes as long as a small training."""
    return _found(len(sys.modules))


def count_blas_threads() -> int:
    """Return in how many threads BLAS computes a product."""
    return max((pool["num_threads"] for pool in _blas().info()), default=1)


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
        with _blas().limit(limits=1):
            yield
    finally:
        _LIMIT.release()
