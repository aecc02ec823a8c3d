"""A process that reads rows for a build: ``python -m``, started by `Workers`.

Lines of JSON come in: the task; for each pass, what it reads, then ranges, then null; and false at
the end. Lines go out: rows that are read, and at the end of a pass their sums. The task holds a
password, so it is neither an argument nor in the environment.
"""

import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, BinaryIO

import psycopg
from numpy.typing import NDArray

from ...db.connection import prepare, settle
from ...db.statements import execute
from ...db.throttle import Throttle
from ...db.work import Work
from ..catalog import read_set
from .building import ListBuild
from .workers import Jobs, Range, read_arrays, write_arrays


class _Given:
    """The passes and ranges that the build gives to this process."""

    def __init__(self, source: BinaryIO, target: BinaryIO) -> None:
        self._source, self._target = source, target
        self._given: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._rows, self._ended = 0, False

    def listen(self) -> None:
        """Take messages; end this process when the build has ended."""
        # A build that was killed may leave a part of a message.
        with suppress(ValueError):
            for line in self._source:
                message = json.loads(line)
                if isinstance(message, dict):
                    arrays = list(islice(read_arrays(self._source), message.pop("arrays")))
                    self._given.put((message, arrays))
                else:
                    self._given.put(Range(*message) if message else None)
                if message is False:
                    return
        os._exit(1)

    def passes(self) -> Iterator[tuple[dict[str, Any], list[NDArray[Any]]]]:
        """Yield the passes in which this process reads ranges."""
        while (given := self._given.get()) is not None:
            self._rows, self._ended = 0, False
            yield given

    def ready(self) -> None:
        self.send({"rows": 0})

    def take(self, *, wait: bool) -> Range | None:
        if self._ended:
            return None
        try:
            place: Range | None = self._given.get(block=wait)
        except queue.Empty:
            return None
        self._ended = place is None
        return place

    def done(self, rows: int) -> None:
        self._rows += 1
        self.send({"rows": rows})

    def end(self, arrays: Iterable[NDArray[Any]]) -> None:
        """Send the sums of the rows of a pass, if this process has read any."""
        self.send({"sums": self._rows > 0}, arrays if self._rows else ())

    def send(self, message: object, arrays: Iterable[NDArray[Any]] = ()) -> None:
        self._target.write(json.dumps(message).encode() + b"\n")
        write_arrays(self._target, arrays)


def main() -> None:
    """Read rows for the build whose task comes on the standard input."""
    # The build ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source, target = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    task = json.loads(source.readline())
    given = _Given(source, target)
    threading.Thread(target=given.listen, daemon=True).start()
    try:
        _help(task, given)
    except Exception as error:
        given.send({"failed": str(error).strip().partition("\n")[0] or type(error).__name__})
    # The other thread waits for input.
    os._exit(0)


def _help(task: dict[str, Any], given: _Given) -> None:
    with psycopg.connect(**task["connection"], autocommit=True) as connection:
        execute(
            connection,
            "SELECT pg_catalog.set_config('role', $1, false) WHERE current_user <> $1",
            [task["role"]],
        )
        settle(connection)
        prepare(connection)
        index = read_set(connection, task["set"])
        build = ListBuild(
            index, Work(connection, "swap", index.name), Throttle(None), memory=0, jobs=Jobs(1)
        )
        given.send({"ready": True})
        for message, arrays in given.passes():
            given.end(build.help(given, message, arrays))


if __name__ == "__main__":
    main()
