"""Processes that read rows beside a build: how many, and the ranges that each of them takes.

The process of the build reads too, so it needs no other one. It hands out ranges over pipes, and
a range is done when its codes and its place are committed. If another process ends before that,
for whatever reason, the range is handed out again; the last one left is the build itself, which
reports an error as if it were alone. Others are started as ``python -m``, which runs no code of the
user's, and end when the pipe to the build is closed.
"""

import json
import math
import os
import subprocess
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from ...db.owners import trusts_owners
from ...db.statements import one_row
from ...errors import FewerJobsWarning, InvalidInputError
from .memory import bytes_of_build

if TYPE_CHECKING:
    from .assignment import ListSums
    from .building import LandmarkBuild

#: The most processes of a build, and those that it takes unless the caller says otherwise.
MOST_JOBS, USUAL_JOBS = 64, 4
# Starting a process takes .8 s of CPU, as reading 40,000 rows of 384 dimensions does, and as much
# time again before it helps.
_FEW_ROWS = 100_000
# Ranges that a process has at a time: it reads one while it computes the other.
_AHEAD = 2
# Seconds between two looks at the progress of others, and for a process to end.
_BEAT, _PATIENCE = 0.5, 10.0
_MODULE = "pg_hashindex.index.landmarks.worker"


class Range(NamedTuple):
    """Pages of a leaf that are still to be read."""

    number: int
    leaf: int
    first: int
    end: int


class Ranges(Protocol):
    """The ranges that a process is to read."""

    def ready(self) -> None:
        """Say that the process can take ranges."""

    def take(self, *, wait: bool) -> Range | None:
        """Return the next range; None if there is none, or none yet where it should not wait."""

    def done(self, rows: int, place: Range, page: int) -> None:
        """Say that the rows of a range are written up to a page."""


@dataclass(frozen=True)
class Jobs:
    """How many processes build; None for as many as the machine and the table call for."""

    wanted: int | None = None

    def __post_init__(self) -> None:
        wanted: Any = self.wanted
        if wanted is None:
            return
        if isinstance(wanted, bool) or not isinstance(wanted, int) or not 1 <= wanted <= MOST_JOBS:
            raise InvalidInputError(f"jobs must be 1 to {MOST_JOBS}, got {wanted!r}")

    def count(
        self,
        rows: int,
        memory: int,
        n_landmarks: int,
        dimension: int,
        compared: int,
        *,
        spherical: bool,
    ) -> int:
        """Return the number for a table; ``memory`` is for all processes together."""
        each = bytes_of_build(n_landmarks, dimension, compared, spherical=spherical)
        held = max(1, memory // each)
        if self.wanted is None:
            usual = 1 if rows < _FEW_ROWS else min(USUAL_JOBS, _cores())
            return min(usual, held)
        if held < self.wanted:
            warn(f"{memory >> 20}MB of memory hold {held} of {self.wanted} jobs")
        return min(self.wanted, held)


def warn(reason: str) -> None:
    """Say in one line why fewer processes build."""
    warnings.warn(f"{reason}; the result is the same", FewerJobsWarning, stacklevel=3)


class _Worker:
    """Another process, and the thread that attends to it."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.ranges: deque[Range] = deque()
        self.began = False
        #: Whether all of its ranges and sums are there.
        self.ended = False
        self.reason = ""

    def send(self, message: object) -> None:
        assert self.process.stdin is not None  # noqa: S101
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()


class Workers:
    """The ranges of a build, and the processes that read them beside it; a context manager."""

    def __init__(
        self, build: "LandmarkBuild", ranges: Iterable[Range], sums: "ListSums | None", jobs: int
    ) -> None:
        self._build, self._left, self._sums = build, deque(ranges), sums
        self._jobs = min(jobs, max(1, len(self._left)))
        self._workers: list[_Worker] = []
        self._threads: list[threading.Thread] = []
        self._changed = threading.Condition()
        self._rows = 0
        #: Called with rows that are done.
        self.show: Callable[[int], None] = lambda rows: None
        #: Whether no sums were lost with a process.
        self.complete = True

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def _begin(self) -> None:
        if self._jobs == 1:
            return
        task = self._task()
        try:
            for _ in range(self._jobs - 1):
                self._workers.append(_Worker(_start()))
        except OSError as error:
            warn(f"{1 + len(self._workers)} of {self._jobs} jobs read rows: {error}")
        for worker in self._workers:
            thread = threading.Thread(target=self._attend, args=(worker, task), daemon=True)
            self._threads.append(thread)
            thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        reasons = [worker.reason for worker in self._workers if worker.reason]
        for worker in self._workers:
            # One that still starts is not needed any more.
            if not worker.ended:
                worker.process.kill()
        for thread in self._threads:
            thread.join(_PATIENCE)
        if reasons and error is None:
            working = self._jobs - len(reasons)
            warn(f"{working} of {self._jobs} jobs have read rows to the end: {reasons[0]}")

    def _task(self) -> dict[str, Any]:
        """Return what another process needs to know: how to connect, and the build."""
        connection, index = self._build.connection, self._build.index
        info = connection.info
        parameters = info.get_parameters() | {
            "host": info.host, "port": str(info.port), "password": info.password,
            "client_encoding": "utf8", "application_name": f"pg-hashindex build of {index.name}",
        }  # fmt: skip
        if "," in parameters.get("hostaddr", ""):
            del parameters["hostaddr"]
        (role,) = one_row(connection, "SELECT current_user")
        return {
            "connection": {name: value for name, value in parameters.items() if value},
            "role": role,
            "trusts_owners": trusts_owners(connection),
            "index": [index.name, index.storage],
            "largest": None if self._sums is None else self._build.largest,
        }

    def ready(self) -> None:
        """Do nothing: the build itself is ready."""

    def take(self, *, wait: bool) -> Range | None:
        """Return the next range; None if all are done, or if others still read the last ones."""
        while True:
            with self._changed:
                rows, self._rows = self._rows, 0
                taken = self._left.popleft() if self._left else None
                waits = wait and taken is None and any(map(_is_busy, self._workers))
                if waits and not rows:
                    self._changed.wait(_BEAT)
            self.show(rows)
            if taken is not None or not waits:
                return taken

    def done(self, rows: int, place: Range, page: int) -> None:
        """Count rows that the build itself has written."""
        self.show(rows)

    def _attend(self, worker: _Worker, task: object) -> None:
        """Hand ranges to a process, and take its answers."""
        try:
            self._talk(worker, task)
        except Exception as error:
            worker.reason = str(error) or type(error).__name__
        status = self._end(worker.process)
        with self._changed:
            if not worker.ended:
                worker.reason = worker.reason or (
                    f"a process was killed by signal {-status}" if status < 0
                    else f"a process ended with status {status}"
                )  # fmt: skip
                # Its rows are written, but its sums are lost.
                self.complete = self.complete and not worker.began
                self._left.extendleft(reversed(worker.ranges))
                worker.ranges.clear()
                worker.began, worker.ended = False, True
            self._changed.notify_all()

    def _talk(self, worker: _Worker, task: object) -> None:
        output = worker.process.stdout
        assert output is not None  # noqa: S101
        worker.send(task)
        for line in output:
            message = json.loads(line)
            if "failed" in message:
                worker.reason = message["failed"]
                return
            if "sums" in message:
                with self._changed:
                    if self._sums is not None:
                        self.complete, whole = False, self.complete
                        self._sums.merge(read_arrays(output))
                        self.complete = whole
                    worker.began, worker.ended = False, True
                return
            with self._changed:
                self._rows += message["rows"]
                if message["whole"]:
                    worker.ranges.popleft()
                given = []
                while self._left and len(worker.ranges) < _AHEAD:
                    given.append(self._left.popleft())
                    worker.ranges.append(given[-1])
                worker.began = worker.began or bool(given)
                self._changed.notify_all()
                ends = not worker.ranges
            for place in given:
                worker.send(place)
            if ends:
                worker.send(None)

    def _end(self, process: "subprocess.Popen[bytes]") -> int:
        try:
            process.communicate(timeout=_PATIENCE)
        except (subprocess.TimeoutExpired, OSError, ValueError):
            process.kill()
        return process.wait()


def write_arrays(target: BinaryIO, arrays: Iterable[NDArray[Any]]) -> None:
    """Write arrays, each after a line of JSON that tells its type and shape."""
    for array in arrays:
        target.write(json.dumps([array.dtype.str, array.shape]).encode() + b"\n")
        target.write(np.ascontiguousarray(array).data)
    target.flush()


def read_arrays(source: IO[bytes]) -> Iterator[NDArray[Any]]:
    """Read as many arrays as are asked for."""
    while True:
        kind, shape = json.loads(source.readline())
        size = np.dtype(kind).itemsize * math.prod(shape)
        yield np.frombuffer(source.read(size), kind).reshape(shape)


def _cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _is_busy(worker: _Worker) -> bool:
    """Return whether the build has to wait for a process: for its rows, or for its sums."""
    return worker.began and not worker.ended


def _start() -> "subprocess.Popen[bytes]":
    # In a program that embeds Python, this may be another one, or empty.
    if "python" not in Path(sys.executable or "").name.lower() or hasattr(sys, "frozen"):
        raise OSError(f"{sys.executable or 'this program'!r} does not start Python")
    package = str(Path(__file__).resolve().parents[3])
    before = os.environ.get("PYTHONPATH")
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return subprocess.Popen(  # noqa: S603
        # The working directory is not searched for modules.
        [sys.executable, "-P", "-m", _MODULE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ
        | threads
        | {"PYTHONPATH": package if not before else os.pathsep.join([package, before])},
    )
