"""A process that reads rows for a build: ``python -m``, started by `Workers`.

Lines of JSON come in: the task, then ranges, then null. Lines go out: rows written, and at the end
the sums of all. The task holds a password, so it is neither an argument nor in the environment.
"""

import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterable
from typing import Any, BinaryIO

import psycopg
from numpy.typing import NDArray

from ...db.connection import prepare, settle
from ...db.owners import trust_owners
from ...db.statements import execute
from ...db.throttle import Throttle
from ...db.work import Work
from ..catalog import read_rows
from .building import LandmarkBuild
from .workers import Jobs, Range, write_arrays


class _Given:
    """The ranges that the build gives to this process."""

    def __init__(self, source: BinaryIO, target: BinaryIO) -> None:
        self._source, self._target = source, target
        self._given: queue.SimpleQueue[Range | None] = queue.SimpleQueue()
        self._ended = False

    def listen(self) -> None:
        """Take ranges; end this process when the build has ended."""
        for line in self._source:
            place = json.loads(line)
            self._given.put(None if place is None else Range(*place))
            if place is None:
                return
        os._exit(1)

    def ready(self) -> None:
        self.send({"rows": 0, "whole": False})

    def take(self, *, wait: bool) -> Range | None:
        if self._ended:
            return None
        try:
            place = self._given.get(block=wait)
        except queue.Empty:
            return None
        self._ended = place is None
        return place

    def done(self, rows: int, place: Range, page: int) -> None:
        self.send({"rows": rows, "whole": page >= place.end})

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
        parts = _help(task, given)
    except Exception as error:
        given.send({"failed": str(error).strip().partition("\n")[0] or type(error).__name__})
    else:
        given.send({"sums": True}, parts)
    # The other thread waits for input.
    os._exit(0)


def _help(task: dict[str, Any], given: _Given) -> Iterable[NDArray[Any]]:
    with psycopg.connect(**task["connection"], autocommit=True) as connection:
        execute(
            connection,
            "SELECT pg_catalog.set_config('role', $1, false) WHERE current_user <> $1",
            [task["role"]],
        )
        settle(connection)
        prepare(connection)
        if task["trusts_owners"]:
            trust_owners(connection)
        rows = read_rows(connection, "WHERE (i.name, i.storage) = ($1, $2)", task["index"])
        (index,) = rows
        build = LandmarkBuild(
            index, Work(connection, "access", index.name), Throttle(None), memory=0, jobs=Jobs(1)
        )
        sums = build.help(given, task["largest"])
        return () if sums is None else sums.parts()


if __name__ == "__main__":
    main()
