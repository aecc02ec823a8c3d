"""One system of `retrieval.py` on one data set: build, frontier, filters, clients, inserts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pgvector import Vector
from retrieval_data import FILTERS, Truth
from retrieval_server import Database
from retrieval_systems import Line, Setting, System
from retrieval_timing import LEAST_TIMED, answers, clients, inserts, seconds

TARGETS = (0.90, 0.95, 0.99)
#: What the recall of filtered searches is to be.
FILTERED_TARGET = 0.99
#: The setting that clients use is the fastest of this recall.
CLIENTS_TARGET = 0.95

# A line of settings ends where there is no more recall to gain.
_ENOUGH = 0.998
_RISE = 0.0005

Entry = dict[str, Any]


@dataclass(frozen=True)
class Extent:
    """How much is measured.

    Attributes
    ----------
    k : int
    single, batches : int
        Statements that insert one row and 100 rows.
    clients : int
    seconds : int
        That clients search; 0 leaves them out.
    """

    k: int = 10
    single: int = 500
    batches: int = 20
    clients: int = 2
    seconds: int = 10


def measure(database: Database, truth: Truth, system: System, extent: Extent) -> Entry:
    """Build a system, measure it, and drop it again.

    Parameters
    ----------
    database : Database
        It is afterwards as it was before.
    truth : Truth
    system : System
    extent : Extent

    Returns
    -------
    dict
        With ``error`` where something failed.
    """
    entry: Entry = {"data": database.drawn.name, "system": system.name, "ours": system.ours}
    entry["described"] = system.describe()
    database.connection.execute("CHECKPOINT")
    # pgvector says so where the memory was too small for a graph.
    with database.notices() as notices:
        try:
            entry |= _measured(database, truth, system, extent)
        # Whatever goes wrong in one system, hours of others are to go on.
        except Exception as error:
            entry["error"] = " ".join(f"{type(error).__name__}: {error}".split())
    entry["notices"] = list(dict.fromkeys(notices))
    database.set({})
    system.drop(database)
    # Only now: to take rows out of an HNSW index costs minutes.
    database.remove_new_rows()
    database.settle()
    return entry


def _measured(database: Database, truth: Truth, system: System, extent: Extent) -> Entry:
    database.set({})
    parts = system.build(database)
    entry: Entry = {
        "build_s": sum(parts.values()),
        "build_parts_s": parts,
        "settle_s": seconds(database.settle),
    }
    sizes = system.sizes(database)
    entry |= {"bytes": sum(sizes.values()), "sizes": sizes}
    entry["frontier"] = list(_frontier(database, truth, system, extent))
    entry["targets"] = _targets(database, truth, system, extent, entry["frontier"])
    entry["clients"] = _clients(database, system, extent, entry)
    entry["filtered"] = {
        str(share): _best_filtered(database, truth, system, extent, share) for share in FILTERS
    }
    entry |= system.facts(database, extent.k)
    # Last: what was inserted leaves its traces in an index.
    entry["inserts"] = inserts(database, extent.single, extent.batches)
    return entry


def _frontier(database: Database, truth: Truth, system: System, extent: Extent) -> Iterator[Entry]:
    lines = system.lines(database.drawn)

    def one(setting: Setting) -> Entry:
        return _point(database, truth, system, extent, setting)

    # The dearest setting first, for nothing: it reads what the others find in memory.
    database.set(lines[0][-1].session)
    ask = database.ask(system.statement(database.drawn, extent.k, lines[0][-1]))
    for query in database.drawn.queries[:LEAST_TIMED]:
        ask(Vector(query))
    for line in lines:
        yield from _walk(line, one)


def _point(
    database: Database, truth: Truth, system: System, extent: Extent, setting: Setting
) -> Entry:
    database.set(setting.session)
    statement = system.statement(database.drawn, extent.k, setting)
    found, milliseconds = answers(database.ask(statement), database.drawn.queries)
    return _described(setting, truth.recall(found), milliseconds) | {
        "uses_index": system.uses_index(database, statement)
    }


def _described(setting: Setting, recall: float, milliseconds: Any) -> Entry:
    return {
        "setting": setting.label,
        "session": dict(setting.session),
        "arguments": dict(setting.arguments),
        "recall": round(recall, 5),
        "p50_ms": round(float(np.percentile(milliseconds, 50)), 4),
        "p95_ms": round(float(np.percentile(milliseconds, 95)), 4),
        "timed": len(milliseconds),
    }


def _walk(line: Line, one: Callable[[Setting], Entry]) -> Iterator[Entry]:
    recalls: list[float] = []
    for setting in line:
        point = one(setting)
        yield point
        recalls.append(point["recall"])
        if recalls[-1] >= _ENOUGH or (len(recalls) > 2 and recalls[-1] - recalls[-3] < _RISE):
            return


def fastest(points: Sequence[Entry], target: float) -> Entry | None:
    """Return the fastest point that reaches a recall."""
    reaching = [point for point in points if point["recall"] >= target]
    return min(reaching, key=lambda point: float(point["p50_ms"]), default=None)


def best(points: Sequence[Entry], target: float) -> Entry:
    """Return the fastest point that reaches a recall, or the one that comes nearest to it."""
    return fastest(points, target) or max(points, key=lambda point: float(point["recall"]))


def _setting(point: Entry) -> Setting:
    return Setting(point["session"], point["arguments"])


def _targets(
    database: Database, truth: Truth, system: System, extent: Extent, points: Sequence[Entry]
) -> dict[str, Entry | None]:
    """Time once more what was the fastest: among many, luck would have its part in that."""
    again: dict[str, Entry] = {}
    result: dict[str, Entry | None] = {}
    for target in TARGETS:
        point = fastest(points, target)
        if point is not None and len(points) == 1:
            again[point["setting"]] = point
        elif point is not None and point["setting"] not in again:
            again[point["setting"]] = _point(database, truth, system, extent, _setting(point))
        result[f"{target:.2f}"] = None if point is None else again[point["setting"]]
    return result


def _clients(database: Database, system: System, extent: Extent, entry: Entry) -> Entry | None:
    if not extent.seconds:
        return None
    point = best(entry["frontier"], CLIENTS_TARGET)
    setting = _setting(point)
    database.set(setting.session)
    rate = clients(
        database,
        system.statement(database.drawn, extent.k, setting),
        setting.session,
        number=extent.clients,
        duration=extent.seconds,
    )
    return {
        "setting": point["setting"],
        "recall": point["recall"],
        "number": extent.clients,
        "seconds": extent.seconds,
        "queries_a_second": round(rate, 1),
    }


def _best_filtered(
    database: Database, truth: Truth, system: System, extent: Extent, share: int
) -> Entry:
    def one(setting: Setting) -> Entry:
        database.set(setting.session)
        statement = system.filtered_statement(database.drawn, extent.k, setting, share)
        found, milliseconds = answers(
            database.ask(statement), database.drawn.queries, most=LEAST_TIMED
        )
        return _described(setting, truth.recall(found, share), milliseconds) | {
            "uses_index": system.uses_index(database, statement),
            "fewest_answers": min(map(len, found)),
        }

    points = [p for line in system.filter_lines(database.drawn) for p in _walk(line, one)]
    chosen = best(points, FILTERED_TARGET)
    again = one(_setting(chosen)) if len(points) > 1 else chosen
    return again | {"tried": len(points)}
