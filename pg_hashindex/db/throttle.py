"""A throttle: rows a second at the most, evenly, so that the server has time for others."""

import math
import time
from collections.abc import Callable

from ..errors import InvalidInputError

# Seconds that a batch and the pause after it take.
_SECONDS = 0.5
# Longest part of a wait, in seconds; `beat` is called before each part.
_LONGEST_SLEEP = 1.0


class Throttle:
    """Limits rows per second, None for no limit; does not catch up after a stall."""

    def __init__(self, rows_per_second: float | None) -> None:
        if rows_per_second is not None and not 0 < rows_per_second < math.inf:
            raise InvalidInputError(f"rows_per_second must be above 0, got {rows_per_second}")
        self._rate = rows_per_second
        # When the next batch may begin.
        self._due = time.monotonic()

    @property
    def limits(self) -> bool:
        """Whether there is a limit."""
        return self._rate is not None

    def batch_size(self, most: int) -> int:
        """Return how many rows a batch should have, at most ``most``."""
        if self._rate is None:
            return most
        return max(1, min(most, math.floor(self._rate * _SECONDS)))

    def wait(self, rows: int, beat: Callable[[], object]) -> None:
        """Wait until a batch may follow one of ``rows`` rows; call ``beat`` each second."""
        if self._rate is None:
            return
        # Do not catch up after a stall.
        self._due = max(self._due + rows / self._rate, time.monotonic())
        while (left := self._due - time.monotonic()) > 0:
            beat()
            time.sleep(min(left, _LONGEST_SLEEP))
