"""A limit of one BLAS thread for many small steps, safe if several threads train at once."""

import functools
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from threadpoolctl import ThreadpoolController

_LIMIT = threading.Lock()
# The blocks that run, and the limit that the first of them has set.
_blocks = 0
_limited: Any = None


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
    The limit belongs to the process. The first of blocks that overlap sets it, and the last one
    restores what the first found: with more threads in between, sums would end in other bits.
    """
    global _blocks, _limited
    with _LIMIT:
        if not _blocks:
            _limited = _blas().limit(limits=1)
        _blocks += 1
    try:
        yield
    finally:
        with _LIMIT:
            _blocks -= 1
            if not _blocks:
                _limited.restore_original_limits()
