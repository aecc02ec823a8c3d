"""The pace of work that is to leave the server to others: so many rows a second, evenly."""

import math
import time
from collections.abc import Callable

from ..errors import InvalidInputError

__all__ = ["Pace"]

# A batch and the pause after it.
_SECONDS = 0.5
# What waits longer says now and then that it is alive.
_LONGEST_SLEEP = 1.0


class Pace:
    """Rows a second at the most.

    Parameters
    ----------
    rows_per_second : float or None
        None for as many as there can be.

    Raises
    ------
    InvalidInputError
        If it is not above 0.
    """

    def __init__(self, rows_per_second: float | None) -> None:
        if rows_per_second is not None and not 0 < rows_per_second < math.inf:
            raise InvalidInputError(f"rows_per_second must be above 0, got {rows_per_second}")
        self._rate = rows_per_second
        # When the next batch may begin.
        self._due = time.monotonic()

    def batch(self, most: int) -> int:
        """Return how many rows to do at once, ``most`` of them at the most."""
        if self._rate is None:
            return most
        return max(1, min(most, math.floor(self._rate * _SECONDS)))

    def keep(self, rows: int, beat: Callable[[], object]) -> None:
        """Wait until the next batch may begin.

        Parameters
        ----------
        rows : int
            How many were done since the last one began.
        beat : callable
            Called before each second or part of one that is waited.
        """
        if self._rate is None:
            return
        # Time that was lost is not made up for.
        self._due = max(self._due + rows / self._rate, time.monotonic())
        while (left := self._due - time.monotonic()) > 0:
            beat()
            time.sleep(min(left, _LONGEST_SLEEP))
