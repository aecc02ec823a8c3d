"""Searches after a cold start, in a memory cgroup that is smaller than the data."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import psycopg
from pgvector import Vector
from retrieval_measures import TURN, Entry, Extent, answered, percentiles, setting_of
from retrieval_server import DROP_CACHES, Database
from retrieval_systems import System

#: A server with eight clients needs most of this.
LEAST_MEMORY = 96 << 20
#: Queries that count as cold and as steady, at most.
COLD, STEADY = 50, 300
CLIENTS = 8
#: Turns of each setting, of which the cheapest is taken.
TRIALS = 4
_ROOTS = (
    # The folder of groups and the file of the limit, in version 1 and 2 of cgroups.
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
    (Path("/sys/fs/cgroup"), "memory.max"),
)


class NoCgroupsError(Exception):
    """The memory of a process cannot be limited here."""


class MemoryGroup:
    """A memory cgroup for the processes that are started within it.

    ``limit``: In bytes; the page cache of its processes counts.

    Raises NoCgroupsError: If we may not make one, or not drop the caches of the operating
    system.
    """

    def __init__(self, limit: int) -> None:
        if not os.access(DROP_CACHES, os.W_OK):
            raise NoCgroupsError(f"{DROP_CACHES} is not writable; it takes root")
        for root, file in _ROOTS:
            self.folder = root / f"pg_hashindex_{os.getpid()}"
            try:
                if file == "memory.max":
                    (root / "cgroup.subtree_control").write_text("+memory")
                self.folder.mkdir()
                (self.folder / file).write_text(str(limit))
            except OSError as error:
                problem = error
                with contextlib.suppress(OSError):
                    self.folder.rmdir()
            else:
                self._root = root
                return
        raise NoCgroupsError(f"no memory cgroup can be made: {problem}")

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Enter the group for a while; processes started meanwhile stay in it."""
        # "4:memory:/path" in version 1, "0::/path" in version 2.
        controller = "memory" if self._root.name == "memory" else ""
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        own = next(path for _, of, path in (x.split(":", 2) for x in lines) if of == controller)
        self._move(self.folder)
        try:
            yield
        finally:
            self._move(self._root / own.lstrip("/"))

    def close(self) -> None:
        """Remove the group, once its processes have ended."""
        for _ in range(100):
            with contextlib.suppress(OSError):
                self.folder.rmdir()
                return
            time.sleep(0.1)

    @staticmethod
    def _move(folder: Path) -> None:
        (folder / "cgroup.procs").write_text(str(os.getpid()))


@contextlib.contextmanager
def held_down(database: Database, limit: int, settings: Mapping[str, str]) -> Iterator[None]:
    """Start the server with empty caches in so much memory; stop it afterwards.

    ``limit``: In bytes; a quarter is for ``shared_buffers``.
    """
    group = MemoryGroup(limit)
    narrow = dict(settings) | {
        "shared_buffers": f"{limit >> 12}kB",
        "effective_cache_size": f"{limit >> 10}kB",
        # Its own processes that read ahead take two cores as much time as they save.
        "io_method": "sync",
    }
    try:
        database.restart(narrow, group.entered())
        yield
    finally:
        database.server.stop()
        group.close()


def cheapest_here(
    database: Database, system: System, points: Sequence[Entry], extent: Extent
) -> Entry:
    """Return the point with the least p50 in this memory, each with queries that are new to all."""
    vectors = [Vector(query) for query in database.drawn.fresh]
    taken: list[list[float]] = [[] for _ in points]
    rounds = max(1, min(TRIALS, len(vectors) // (TURN * len(points))))
    new = cycle(vectors)
    for _ in range(rounds):
        for point, times in zip(points, taken, strict=True):
            setting = setting_of(point)
            # One session at a time, since each takes memory; its first query also plans.
            with database.session() as session:
                session.set(setting.session)
                ask = session.ask(system.statement(extent.k, setting))
                times += answered(ask, list(islice(new, TURN)), extent.patience)[1][1:]
    # In the first round the caches hold nothing.
    return points[int(np.argmin([np.median(times[TURN - 1 :] or times) for times in taken]))]


def cold_start(database: Database, system: System, point: Entry, extent: Extent) -> Entry:
    """Search with empty caches until they hold what fits, then with many clients.

    ``database``: Just started. ``point``: Its setting. ``extent``: Half of its ``fresh``
    queries are for one client, the others for many.

    Returns: p50 and p95 of the first queries and of the last, with their number; queries a
    second of one client (of those last ones) and of many; ``error_of_many`` where the server
    broke down.
    """
    vectors = [Vector(query) for query in database.drawn.fresh]
    setting = setting_of(point)
    statement = system.statement(extent.k, setting)
    half = len(vectors) // 2
    with database.session() as session:
        session.set(setting.session)
        _, taken = answered(session.ask(statement), vectors[:half], extent.patience)
    cold = taken[: min(COLD, len(taken) // 2)]
    steady = taken[-min(STEADY, (len(taken) - len(cold) + 1) // 2) :]
    try:
        done, seconds = _by_many(
            database, setting.session, statement, vectors[half:], extent.patience
        )
        many = {"per_second_of_many": round(done / seconds, 1), "queries_of_many": done}
    except psycopg.OperationalError as error:
        # The operating system ends a server whose clients need more memory together.
        many = {"error_of_many": str(error).strip()}
    return {
        "setting": point["setting"],
        "recall": point["recall"],
        **percentiles(cold, "cold_"),
        "cold_queries": len(cold),
        **percentiles(steady, "steady_"),
        "steady_queries": len(steady),
        "first_ms": round(taken[0], 2),
        "per_second": round(1000 * len(steady) / sum(steady), 1),
        **many,
    }


def _by_many(
    database: Database,
    settings: Mapping[str, object],
    statement: str,
    vectors: Sequence[Vector],
    patience: float,
) -> tuple[int, float]:
    """Ask with many clients for a third of the seconds; return queries done, and seconds."""
    done, failed = [0] * CLIENTS, []
    begun = threading.Barrier(CLIENTS + 1)

    def client(number: int) -> None:
        try:
            with database.session() as session:
                session.set(settings)
                ask = session.ask(statement)
                ask(vectors[number])
                begun.wait()
                end = time.perf_counter() + min(patience, 15) / 3
                for vector in vectors[CLIENTS + number :: CLIENTS]:
                    ask(vector)
                    done[number] += 1
                    if time.perf_counter() > end:
                        break
        except Exception as error:
            failed.append(error)
            begun.abort()

    threads = [threading.Thread(target=client, args=[number]) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    with contextlib.suppress(threading.BrokenBarrierError):
        begun.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return sum(done), time.perf_counter() - start
