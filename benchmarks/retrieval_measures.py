"""The cheapest setting of a system for a recall, times taken in turns, inserts, and VACUUM."""

import contextlib
import math
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg
from common import cpu_seconds
from numpy.typing import NDArray
from pgvector import Vector
from retrieval_data import FILTERS, Truth
from retrieval_server import Database, filter_values
from retrieval_systems import Line, Setting, System

from pg_hashindex.quality.measuring import Prepared, ask

WARM_UP = 20
#: Queries of one system in a row before the next system's turn.
TURN = 25
ROUNDS = 2
FIRST = 3

Entry = dict[str, Any]


@dataclass(frozen=True)
class Extent:
    """The extent of the measurements.

    ``rows``: Rows of a data set at the most. ``queries, filter_queries``: Queries of which
    recall is taken; filters ask the first ones of them. ``fresh``: Queries for cold starts.
    ``single, batches``: Statements that insert one row, and ``batch`` rows. ``patience``:
    Seconds after which a series of queries of one system ends.
    """

    k: int = 10
    rows: int | None = None
    queries: int = 1_000
    filter_queries: int = 300
    fresh: int = 0
    single: int = 500
    batches: int = 20
    batch: int = 100
    patience: float = math.inf


QUICK = Extent(rows=5_000, queries=60, filter_queries=30, single=20, batches=5)


class Searches:
    """Searches of one data set, with or without a filter; keeps the points that it has measured.

    ``share``: The per cent of rows that a filter lets through.
    """

    def __init__(
        self, database: Database, truth: Truth, extent: Extent, share: int | None = None
    ) -> None:
        self._database, self._truth, self._extent, self._share = database, truth, extent, share
        count = extent.queries if share is None else extent.filter_queries
        self._vectors = [Vector(query) for query in database.drawn.queries[:count]]

    @contextlib.contextmanager
    def asked(self, system: System, setting: Setting) -> Iterator[Prepared]:
        """Prepare the search of a system in a session of its own."""
        with self._database.session() as session:
            session.set(setting.session)
            yield session.ask(system.statement(self._extent.k, setting, self._share))

    def point(self, system: System, setting: Setting) -> Entry:
        """Ask all queries once; return recall and times."""
        with self.asked(system, setting) as search:
            found, milliseconds = answered(search, self._vectors, self._extent.patience, WARM_UP)
        recall = self._truth.recall(found, 100 if self._share is None else self._share)
        return {
            "setting": setting.label,
            "session": dict(setting.session),
            "arguments": dict(setting.arguments),
            "recall": round(recall, 5),
        } | percentiles(milliseconds)

    def finalists(self, system: System, target: float) -> tuple[list[Entry], list[Entry]]:
        """Find the first setting of each line that reaches a recall.

        ``finalists``: Where no setting reaches the recall, the one that comes nearest to
        it.
        """
        tried: dict[str, Entry] = {}

        def recall(setting: Setting) -> float:
            if not system.suits(setting, self._share):
                return 0.0
            if setting.label not in tried:
                tried[setting.label] = self.point(system, setting)
            return float(tried[setting.label]["recall"])

        found, start = [], 0
        lines = system.lines() if self._share is None else system.filter_lines()
        for line in lines:
            place = first_place(line, target, recall, start)
            if place < len(line):
                found.append(line[place])
            # A place that did not suit this line may suit the next.
            failed = place > 0 and system.suits(line[place - 1], self._share)
            start = place if system.nested and failed else 0
        points = [tried[setting.label] for setting in found]
        return points or [max(tried.values(), key=lambda p: float(p["recall"]))], [*tried.values()]

    def in_turns(self, contenders: Sequence[tuple[System, Entry]], rounds: int) -> list[Entry]:
        """Time contenders in turns of a few queries, so that drift affects all of them."""
        taken: list[list[float]] = [[] for _ in contenders]
        with contextlib.ExitStack() as stack:
            searches = [stack.enter_context(self.asked(s, setting_of(p))) for s, p in contenders]
            for search in searches:
                answered(search, self._vectors[:WARM_UP])
            for start in [*range(0, len(self._vectors), TURN)] * rounds:
                for place, search in enumerate(searches):
                    if sum(taken[place]) > 1000 * self._extent.patience:
                        continue
                    _, milliseconds = answered(search, self._vectors[start : start + TURN])
                    taken[place] += milliseconds
        return [
            point | percentiles(milliseconds)
            for (_, point), milliseconds in zip(contenders, taken, strict=True)
        ]

    def cheapest(self, systems: Sequence[System], target: float) -> dict[str, Entry]:
        """Find the cheapest setting of each system that reaches a recall, and time it.

        ``systems``: All of them are built.

        Returns: By system: the setting, its recall, p50 and p95 in turns with the others,
        whether the recall is ``reached``, and what was ``tried``.
        """
        tried: dict[str, list[Entry]] = {}
        contenders = []
        for system in systems:
            points, tried[system.name] = self.finalists(system, target)
            contenders += [(system, point) for point in points]
        best: dict[str, tuple[System, Entry]] = {}
        timed = self.in_turns(contenders, 1)
        for (system, _), point in zip(contenders, timed, strict=True):
            if system.name not in best or point["p50_ms"] < best[system.name][1]["p50_ms"]:
                best[system.name] = system, point
        # Time it again, since the fastest of many was also lucky.
        again = self.in_turns([*best.values()], ROUNDS)
        return {
            name: point | {"reached": point["recall"] >= target, "tried": tried[name]}
            for name, point in zip(best, again, strict=True)
        }


def first_place(line: Line, target: float, recall: Callable[[Setting], float], start: int) -> int:
    """Return the first place from ``start`` where a line reaches a recall, or its length.

    Wider and wider steps, then bisection: dear settings are hardly tried.
    """
    place, step = start, 1
    while place < len(line) and recall(line[place]) < target:
        start, place, step = place + 1, place + step, 2 * step
    return bisect_left(line, target, lo=start, hi=min(place, len(line)), key=recall)


def setting_of(point: Mapping[str, Any]) -> Setting:
    """Return the setting of a point."""
    return Setting(point["session"], point["arguments"])


def answered(
    search: Callable[[Vector], list[Any]],
    vectors: Sequence[Vector],
    patience: float | None = None,
    warm_up: int = 0,
) -> tuple[list[list[Any]], list[float]]:
    """Ask queries, for some seconds at the most; return the keys of answers, and the ms of each."""
    keys: list[list[Any]] = []

    def noted(vector: Vector) -> list[Any]:
        rows = search(vector)
        keys.append([row[0] for row in rows])
        return rows

    found = ask(noted, vectors, warm_up=warm_up, most_seconds=patience)
    return keys[warm_up:], found.milliseconds


def percentiles(milliseconds: Sequence[float], name: str = "") -> dict[str, float]:
    """Return p50 and p95."""
    return {
        f"{name}p{which}_ms": round(float(np.percentile(milliseconds, which)), 4)
        for which in (50, 95)
    }


def inserts(
    database: Database, extent: Extent, filters: Sequence[str] = (*FILTERS.values(),)
) -> dict[str, float]:
    """Insert rows, one a transaction and a batch of them a transaction; they stay.

    ``filters``: The columns of the table besides the key and the vector.

    Returns: ``single`` and ``batches``: rows a second, commits included; with ``_cpu_us`` the CPU
    of the server's process for a row.
    """
    drawn = database.drawn
    first = len(drawn.rows)
    places = np.arange(len(drawn.new_rows))
    columns = filter_values(drawn.buckets[first:])

    def values(place: int) -> list[Any]:
        numbers = [int(columns[name][place]) for name in filters]
        return [first + int(place), *numbers, Vector(drawn.new_rows[place])]

    def rates(name: str, parts: Sequence[NDArray[np.intp]]) -> dict[str, float]:
        lines = [[value for place in part for value in values(place)] for part in parts]
        with database.session() as session:
            insert = session.ask(_insert(len(parts[0]), ["id", *filters, "embedding"]))
            # The first statements load and plan, so they are not timed.
            for line in lines[:FIRST]:
                insert(*line)
            pid = session.connection.info.backend_pid
            before = cpu_seconds(pid)
            taken = _seconds(lambda: [insert(*line) for line in lines[FIRST:]])
            cpu = cpu_seconds(pid) - before
        rows = sum(map(len, parts[FIRST:]))
        return {name: round(rows / taken, 1), f"{name}_cpu_us": round(1e6 * cpu / rows, 1)}

    alone = places[: extent.single, None]
    end = extent.single + extent.batches * extent.batch
    together = places[extent.single : end].reshape(-1, extent.batch)
    return rates("single", list(alone)) | rates("batches", list(together))


def churn(database: Database, patience: float) -> Entry:
    """Delete every fifth row, then VACUUM the table and what pg_hashindex keeps of it.

    ``patience``: Seconds after which VACUUM is stopped.

    Returns: ``delete_s``, ``vacuum_s``, and whether it was ``stopped``.
    """
    with database.session() as session:
        tables = session.value(
            "SELECT concat_ws(', ', 'items', string_agg(oid::regclass::text, ', ')) FROM pg_class "
            "WHERE relnamespace = 'hashindex'::regnamespace AND relkind = 'r'"
        )

        def run(statement: str) -> None:
            session.connection.execute(statement.encode())

        deleted = _seconds(lambda: run("DELETE FROM items WHERE id % 5 = 0"))
        run(f"SET statement_timeout = {1000 * patience:.0f}")
        start, stopped = time.perf_counter(), False
        try:
            run(f"VACUUM {tables}")
        except psycopg.errors.QueryCanceled:
            stopped = True
        taken = time.perf_counter() - start
    return {"delete_s": round(deleted, 2), "vacuum_s": round(taken, 2), "stopped": stopped}


def remove_new_rows(database: Database) -> None:
    """Delete the inserted rows."""
    database.execute(f"DELETE FROM items WHERE id >= {len(database.drawn.rows)}")


def _insert(rows: int, columns: Sequence[str]) -> str:
    width = len(columns)
    lines = (
        f"({', '.join(f'${width * row + column + 1}' for column in range(width))})"
        for row in range(rows)
    )
    return f"INSERT INTO items ({', '.join(columns)}) VALUES {', '.join(lines)} RETURNING id"


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
