"""Load of a server and its machine during a run."""

import os
import re
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
from retrieval_server import Database

_EVERY_S = 0.5
_TO_END_S = 1.0


class Watch:
    """Sample the server of a database from a thread, from the first of two marks to the second.

    Memory is that of all its processes beside ``shared_buffers``: anonymous pages, and the shared
    memory that parallel workers build an index in.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._peak, self._loads = 0, [os.getloadavg()[0]]

    def __enter__(self) -> "Watch":
        pid = self._database.server.pid
        assert pid is not None
        self._server = psutil.Process(pid)
        self._own = psutil.Process()
        self._began = time.perf_counter(), self.server_cpu(), self._own_cpu(), _busy()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._thread.join()
        end = time.perf_counter()
        # The CPU time of a process is its parent's only after it has been waited for.
        time.sleep(_TO_END_S)
        ended = end, self.server_cpu(), self._own_cpu(), _busy()
        seconds, server, own, busy = (
            after - before for before, after in zip(self._began, ended, strict=True)
        )
        #: Samples so far.
        self.figures: dict[str, Any] = {
            "seconds": round(seconds, 2),
            "server_cpu_s": round(server, 2),
            "client_cpu_s": round(own, 2),
            # Whoever else works on the machine makes everything slower.
            "others_cpu_s": round(max(0.0, busy - server - own), 2),
            "load": round(sum(self._loads) / len(self._loads), 2),
            "server_peak_mb": round(self._peak / 1e6),
        }

    def server_cpu(self) -> float:
        """Return the CPU seconds of the server, with its processes that have ended."""
        return sum(self._server.cpu_times()[:4]) + sum(
            _cpu(process) for process in self._server.children()
        )

    def _own_cpu(self) -> float:
        """Return the CPU seconds of this process and of the commands that it has run."""
        return sum(self._own.cpu_times()[:4])

    def _sample(self) -> None:
        while not self._stopped.wait(_EVERY_S):
            self._peak = max(self._peak, _memory([child.pid for child in self._server.children()]))
            self._loads.append(os.getloadavg()[0])


def _cpu(process: psutil.Process) -> float:
    try:
        return float(sum(process.cpu_times()[:2]))
    except psutil.Error:
        return 0.0


def _memory(pids: list[int]) -> int:
    """Return the bytes of anonymous memory of processes, and of shared memory between them."""
    anonymous, segments = 0, set()
    for pid in pids:
        folder = Path(f"/proc/{pid}")
        try:
            status = (folder / "status").read_text()
            maps = (folder / "maps").read_text()
        except OSError:
            continue
        if found := re.search(r"RssAnon:\s+(\d+) kB", status):
            anonymous += int(found[1]) << 10
        segments.update(re.findall(r"/dev/shm/PostgreSQL\.\d+", maps))
    shared = 0
    for segment in segments:
        try:
            shared += 512 * Path(segment).stat().st_blocks
        except OSError:
            continue
    return anonymous + shared


def _busy() -> float:
    """Return the CPU seconds of all processes since the machine started."""
    times = psutil.cpu_times()
    return float(times.user + times.system)
