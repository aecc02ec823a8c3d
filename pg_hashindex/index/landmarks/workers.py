"""Processes that read rows beside a build: how many, and the ranges that each of them takes.

The process of the build reads too, so it needs no other one. Rows are read in passes: one for each
round of training, and one that writes codes. The build hands out ranges over pipes, and a range is
done when its codes and its place are committed. If another process ends before that, for whatever
reason, the range is handed out again, and a round is read again; the last one left is the build
itself, which reports an error as if it were alone. Others are started as ``python -m``, which runs
no code of the user's, and end when the pipe to the build is closed.
"""

import json
import math
import os
import queue
import subprocess
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from ...db.statements import one_row
from ...errors import FewerJobsWarning, InvalidInputError
from ..catalog import IndexRow

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
    """Pages that are read and written by one process, all or none."""

    number: int
    first: int
    end: int


class Ranges(Protocol):
    """The ranges that a process is to read."""

    def ready(self) -> None:
        """Say that the process can take ranges."""

    def take(self, *, wait: bool) -> Range | None:
        """Return the next range; None if there is none, or none yet where it should not wait."""

    def done(self, rows: int) -> None:
        """Say that the range that was taken first is written, with its rows."""


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

    def count(self, rows: int, memory: int, each: int) -> int:
        """Return the number for a table; each takes bytes of the ``memory`` of all together."""
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
        #: The passes that it is to read; None ends it.
        self.passes: queue.SimpleQueue[Pass | None] = queue.SimpleQueue()
        #: The ranges that it has, and the pass in which it has had any.
        self.ranges: deque[Range] = deque()
        self.reads: Pass | None = None
        self.idle = self.ended = False
        self.reason = ""

    def send(self, message: object, arrays: Iterable[NDArray[Any]] = ()) -> None:
        assert self.process.stdin is not None  # noqa: S101
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        write_arrays(self.process.stdin, arrays)


class Pass:
    """Ranges that the build reads, and the other processes beside it.

    Parameters
    ----------
    task, arrays
        What another process needs to know for it.
    merge
        Takes the arrays in which the other processes return their sums.
    """

    def __init__(
        self,
        ranges: Iterable[Range],
        task: dict[str, Any],
        arrays: Callable[[], Sequence[NDArray[Any]]],
        merge: Callable[[Iterator[NDArray[Any]]], None] | None,
    ) -> None:
        self.left = deque(ranges)
        self.task, self.arrays, self.merge = task, arrays, merge
        self.workers: list[_Worker] = []
        self.changed = threading.Condition()
        self.rows = 0
        #: Called with rows that are done.
        self.show: Callable[[int], None] = lambda rows: None
        #: Whether no sums were lost with a process.
        self.complete = True

    def ready(self) -> None:
        """Do nothing: the build itself is ready."""

    def take(self, *, wait: bool) -> Range | None:
        """Return the next range; None if all are done, or if others still read the last ones."""
        while True:
            with self.changed:
                rows, self.rows = self.rows, 0
                taken = self.left.popleft() if self.left else None
                # For their rows, or for their sums.
                waits = wait and taken is None and any(one.reads is self for one in self.workers)
                if waits and not rows:
                    self.changed.wait(_BEAT)
            self.show(rows)
            if taken is not None or not waits:
                return taken

    def done(self, rows: int) -> None:
        """Count rows that the build itself has read."""
        self.show(rows)


class Workers:
    """The processes that read rows beside a build; a context manager."""

    def __init__(self, index: IndexRow, jobs: int) -> None:
        self._index, self._jobs = index, jobs
        self._workers: list[_Worker] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def _start(self) -> None:
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
            if worker.idle and error is None:
                worker.passes.put(None)
            elif not worker.ended:
                # One that still starts is not needed any more.
                worker.process.kill()
                # Its thread may wait for a pass.
                worker.passes.put(None)
        for thread in self._threads:
            thread.join(_PATIENCE)
        if reasons and error is None:
            working = self._jobs - len(reasons)
            warn(f"{working} of {self._jobs} jobs have read rows to the end: {reasons[0]}")

    def begin(self, pass_: Pass) -> Pass:
        """Have the processes take ranges of a pass, as soon as they have ended the one before."""
        pass_.workers = self._workers
        for worker in self._workers:
            worker.passes.put(pass_)
        return pass_

    def _task(self) -> dict[str, Any]:
        """Return what another process needs to know: how to connect, and the build."""
        index, connection = self._index, self._index.connection
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
            "set": index.set_id,
        }

    def _attend(self, worker: _Worker, task: object) -> None:
        """Hand ranges to a process, and take its answers."""
        clean = False
        try:
            clean = self._talk(worker, task)
        except Exception as error:
            worker.reason = str(error) or type(error).__name__
        status = self._end(worker.process)
        pass_ = worker.reads
        if not clean:
            worker.reason = worker.reason or (
                f"a process was killed by signal {-status}" if status < 0
                else f"a process ended with status {status}"
            )  # fmt: skip
        worker.idle, worker.ended = False, True
        if pass_ is not None:
            with pass_.changed:
                # Rows may be written, but their sums are lost.
                pass_.complete = False
                pass_.left.extendleft(reversed(worker.ranges))
                worker.reads = None
                pass_.changed.notify_all()

    def _talk(self, worker: _Worker, task: object) -> bool:
        """Return whether the process has read its passes to the end."""
        worker.send(task)
        assert worker.process.stdout is not None  # noqa: S101
        if not self._hear(worker, worker.process.stdout):
            return False
        worker.idle = True
        while (pass_ := worker.passes.get()) is not None:
            if not self._read(worker, worker.process.stdout, pass_):
                return False
            # It holds sums.
            del pass_
        worker.send(False)
        return True

    def _hear(self, worker: _Worker, output: IO[bytes]) -> dict[str, Any]:
        """Return the next message of a process, an empty one if it has failed."""
        message: dict[str, Any] = json.loads(output.readline() or "{}")
        worker.reason = message.get("failed", "")
        return {} if worker.reason else message

    def _read(self, worker: _Worker, output: IO[bytes], pass_: Pass) -> bool:
        """Have a process read ranges of a pass; return whether it has done so to the end."""
        with pass_.changed:
            if not pass_.left:
                return True
            arrays = pass_.arrays()
            worker.idle = False
        worker.send(pass_.task | {"arrays": len(arrays)}, arrays)
        while message := self._hear(worker, output):
            if "sums" in message:
                with pass_.changed:
                    if message["sums"] and pass_.merge is not None:
                        pass_.merge(read_arrays(output))
                    worker.reads, worker.idle = None, True
                    pass_.changed.notify_all()
                return True
            with pass_.changed:
                # The first message says that the process is ready.
                if worker.ranges:
                    pass_.rows += message["rows"]
                    worker.ranges.popleft()
                given = []
                while pass_.left and len(worker.ranges) < _AHEAD:
                    given.append(pass_.left.popleft())
                    worker.ranges.append(given[-1])
                if given:
                    worker.reads = pass_
                pass_.changed.notify_all()
                ends = not worker.ranges
            for place in given:
                worker.send(place)
            if ends:
                worker.send(None)
        return False

    def _end(self, process: "subprocess.Popen[bytes]") -> int:
        try:
            process.communicate(timeout=_PATIENCE)
        except (subprocess.TimeoutExpired, OSError, ValueError):
            process.kill()
        return process.wait()


def write_arrays(target: IO[bytes], arrays: Iterable[NDArray[Any]]) -> None:
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
