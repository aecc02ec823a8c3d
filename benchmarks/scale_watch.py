"""Load of a server and its machine during a run."""

import os
import re
import threading
import time
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
from retrieval_server import Database

_EVERY_S = 0.5
_TO_END_S = 1.0
# Statements that took less of the CPU are not named.
_LEAST_CPU_S = 0.2

_ACTIVE = """
    SELECT pid, left(regexp_replace(query, '\\s+', ' ', 'g'), 300) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'active'
"""

# The innermost work is the latest.
_PHASE = """
    SELECT phase FROM hashindex.claim WHERE phase IS NOT NULL ORDER BY started_at DESC LIMIT 1
"""


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
        self._statements: dict[str, float] = defaultdict(float)
        self._phases: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])

    def __enter__(self) -> "Watch":
        pid = self._database.server.status.pid
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
            "server_cpu_by_statement": {
                name: round(cpu, 2)
                for name, cpu in sorted(self._statements.items(), key=lambda item: -item[1])
                if cpu >= _LEAST_CPU_S
            },
            # Seconds, and those of CPU of the client and of the server.
            "phases": {
                name: [round(value, 2) for value in values] for name, values in self._phases.items()
            },
        }

    def server_cpu(self) -> float:
        """Return the CPU seconds of the server, with its processes that have ended."""
        return sum(self._server.cpu_times()[:4]) + sum(
            _cpu(process) for process in self._server.children()
        )

    def _own_cpu(self) -> float:
        """Return the CPU seconds of this process and of the commands that it has run."""
        return sum(self._own.cpu_times()[:4])

    def _client_cpu(self) -> float:
        """Return the same with the commands that run now."""
        children = self._own.children(recursive=True)
        return self._own_cpu() + sum(map(_cpu, children))

    def _sample(self) -> None:
        known: dict[int, float] = {}
        before = time.perf_counter(), self._client_cpu(), self.server_cpu()
        with self._database.session() as session:
            while not self._stopped.wait(_EVERY_S):
                processes = {child.pid: _cpu(child) for child in self._server.children()}
                self._peak = max(self._peak, _memory(list(processes)))
                self._loads.append(os.getloadavg()[0])
                for pid, query in session.connection.execute(_ACTIVE).fetchall():
                    taken = processes.get(pid, 0.0) - known.get(pid, 0.0)
                    self._statements[named(query)] += max(0.0, taken)
                known = processes
                now = time.perf_counter(), self._client_cpu(), self.server_cpu()
                for (phase,) in session.connection.execute(_PHASE).fetchall():
                    of_phase = self._phases[phase]
                    for place in range(3):
                        of_phase[place] += now[place] - before[place]
                before = now


def named(query: str) -> str:
    """Return the beginning of a statement, without what differs between two of its kind."""
    return re.sub(r"'[^']*'|\d+", "N", query)[:80].strip()


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
