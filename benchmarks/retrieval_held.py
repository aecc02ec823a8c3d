"""Searches after a cold start, in a memory cgroup that is smaller than the data."""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pgvector import Vector
from retrieval_measures import Entry, Extent, answered, percentiles, setting_of
from retrieval_server import DROP_CACHES, Database, Session
from retrieval_systems import System

#: #: A server needs at least this much.
_LEAST = 96 << 20
_MOST_SHARED_BUFFERS = 128 << 20
_ROOTS = (
    # The folder of groups and the file of the limit, in version 1 and 2 of cgroups.
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
    (Path("/sys/fs/cgroup"), "memory.max"),
)


class NoCgroupsError(Exception):
    """The memory of a process cannot be limited here."""


class MemoryGroup:
    """A memory cgroup for the processes that are started within it.

    Parameters
    ----------
    limit : int
        In bytes; the page cache of its processes counts.

    Raises
    ------
    NoCgroupsError
        If we may not make one, or not drop the caches of the operating system.
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


def held(
    database: Database,
    systems: Mapping[str, tuple[System, Entry]],
    limit: int,
    settings: Mapping[str, str],
    extent: Extent,
) -> Entry:
    """Search one system at a time after a cold start, in a third of the memory of its data.

    Parameters
    ----------
    database : Database
        The server runs with ``settings`` again afterwards.
    systems : mapping
        By name: the system and the point that is its cheapest for the recall.
    limit : int
        In bytes.
    settings : mapping of str to str
    extent : Extent

    Returns
    -------
    dict
        By system: p50 and p95 of the first queries and of the last, ``blocks`` that a search
        touches, and how many ``distinct_blocks``. ``skipped`` says why where it cannot be done.
    """
    limit = max(limit, _LEAST)
    try:
        group = MemoryGroup(limit)
    except NoCgroupsError as error:
        return {"skipped": str(error)}
    buffers = min(limit // 3, _MOST_SHARED_BUFFERS) >> 10
    narrow = dict(settings) | {
        "shared_buffers": f"{buffers}kB",
        "effective_cache_size": f"{limit >> 10}kB",
    }
    database.execute("CHECKPOINT")
    try:
        return {
            "limit_bytes": limit,
            "shared_buffers_kb": buffers,
            "systems": {
                name: _cold(database, system, point, group, narrow, extent)
                for name, (system, point) in systems.items()
            },
        }
    finally:
        database.restart(settings)
        group.close()


def _cold(
    database: Database,
    system: System,
    point: Entry,
    group: MemoryGroup,
    settings: Mapping[str, str],
    extent: Extent,
) -> Entry:
    vectors = [Vector(query) for query in database.drawn.fresh[: extent.fresh]]
    setting = setting_of(point)
    database.restart(settings, group.entered())
    with database.session() as session:
        session.set(setting.session)
        _, taken = answered(session.ask(system.statement(extent.k, setting)), vectors)
    blocks = []
    for vector in vectors[: extent.restarts]:
        # With empty shared_buffers every block is read once, so reads count distinct blocks.
        database.restart(settings, group.entered())
        with database.session() as session:
            session.set(setting.session)
            before = _blocks(session)
            session.ask(system.statement(extent.k, setting))(vector)
            blocks.append(_blocks(session) - before)
    read, touched = np.median(blocks, axis=0)
    return {
        "setting": point["setting"],
        **percentiles(taken[: extent.cold], "cold_"),
        **percentiles(taken[-extent.steady :], "steady_"),
        "first_ms": round(taken[0], 2),
        "distinct_blocks": int(read),
        "blocks": int(touched),
    }


def _blocks(session: Session) -> Any:
    """Count the blocks read and touched, of the table and of its indexes."""
    session.connection.execute("SELECT pg_stat_force_next_flush()")
    return np.array(
        session.connection.execute(
            """
            SELECT sum(read), sum(read + hit) FROM (
                SELECT coalesce(heap_blks_read, 0) + coalesce(idx_blks_read, 0)
                       + coalesce(toast_blks_read, 0) + coalesce(tidx_blks_read, 0) AS read,
                       coalesce(heap_blks_hit, 0) + coalesce(idx_blks_hit, 0)
                       + coalesce(toast_blks_hit, 0) + coalesce(tidx_blks_hit, 0) AS hit
                FROM pg_statio_user_tables
            ) t
            """
        ).fetchone(),
        dtype=np.float64,
    )
