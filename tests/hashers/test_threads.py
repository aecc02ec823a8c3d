import threading

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from pg_hashindex.hashers.numerics.threads import one_blas_thread


def blas_threads():
    np.ones((2, 2)) @ np.ones((2, 2))
    return {
        pool["filepath"]: pool["num_threads"]
        for pool in threadpool_info()
        if pool["user_api"] == "blas"
    }


def test_overlapping_blocks_give_all_threads_back():
    """The one that came first leaves first, as two trainings in two threads do."""
    with threadpool_limits(2):
        before = blas_threads()
        entered, leave, left = threading.Event(), threading.Event(), threading.Event()

        def second():
            with one_blas_thread():
                entered.set()
                leave.wait(10)
            left.set()

        with one_blas_thread():
            assert set(blas_threads().values()) == {1}
            other = threading.Thread(target=second)
            other.start()
            assert entered.wait(10)
        leave.set()
        assert left.wait(10)
        other.join()
        assert blas_threads() == before
        assert 2 in before.values()
