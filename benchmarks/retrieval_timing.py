"""How `retrieval.py` takes times: searches by one session, by several clients, and inserts."""

import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pgvector import Vector
from retrieval_data import FILTERS
from retrieval_server import Database, Statement, filter_values

WARM_UP = 20
LEAST_TIMED = 200
#: Beyond the least number of queries, one setting gets no more than so many seconds.
MOST_SECONDS = 20.0
BATCH = 100
FIRST = 3


def seconds(work: Callable[[], object]) -> float:
    """Return how long a call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def median_ms(call: Callable[[], object], times: int) -> float:
    """Return the median milliseconds of a call, after a warm-up."""
    for _ in range(WARM_UP):
        call()
    return float(np.median([1000 * seconds(call) for _ in range(times)]))


def answers(
    ask: Statement, queries: NDArray[np.float32], *, most: int | None = None
) -> tuple[list[list[int]], NDArray[np.float64]]:
    """Ask all queries, after a warm-up.

    Parameters
    ----------
    ask : Statement
    queries : float32 (m, d)
        They begin again where they are fewer than `LEAST_TIMED`.
    most : int, optional
        Queries timed at most, where that is more than `LEAST_TIMED`.

    Returns
    -------
    found : list of list of int
        The keys of each query's answer; of fewer queries where they take very long.
    milliseconds : float64 (t,)
    """
    vectors = [Vector(query) for query in queries]
    for place in range(WARM_UP):
        ask(vectors[place % len(vectors)])
    found, milliseconds = [], []
    began = time.perf_counter()
    for place in range(max(LEAST_TIMED, min(len(vectors), most or len(vectors)))):
        vector = vectors[place % len(vectors)]
        start = time.perf_counter()
        rows = ask(vector)
        end = time.perf_counter()
        milliseconds.append(1000 * (end - start))
        if place < len(vectors):
            found.append([row[0] for row in rows])
        if len(milliseconds) >= LEAST_TIMED and end - began > MOST_SECONDS:
            break
    return found, np.array(milliseconds)


def inserts(database: Database, single: int, batches: int) -> dict[str, float]:
    """Insert rows, one a transaction and 100 a transaction; they stay.

    Parameters
    ----------
    database : Database
    single : int
        Rows inserted by themselves.
    batches : int
        Statements of 100 rows.

    Returns
    -------
    dict
        ``single`` and ``batches``: rows a second, commits included.
    """
    drawn = database.drawn
    database.set({})
    first = len(drawn.rows)
    places = np.arange(len(drawn.new_rows))
    columns = filter_values(drawn.buckets[first:])

    def values(place: int) -> list[Any]:
        filters = [int(columns[name][place]) for name in FILTERS.values()]
        return [first + int(place), *filters, Vector(drawn.new_rows[place])]

    def rate(parts: Sequence[NDArray[np.intp]]) -> float:
        insert = Statement(database.connection, _insert(len(parts[0]), len(FILTERS) + 2))
        lines = [[value for place in part for value in values(place)] for part in parts]
        # The first statements load and plan what the others find ready.
        for line in lines[:FIRST]:
            insert(*line)
        taken = seconds(lambda: [insert(*line) for line in lines[FIRST:]])
        return sum(map(len, parts[FIRST:])) / taken

    alone = places[:single, None]
    together = places[single : single + batches * BATCH].reshape(-1, BATCH)
    return {"single": rate(list(alone)), "batches": rate(list(together))}


def _insert(rows: int, columns: int) -> str:
    lines = (
        f"({', '.join(f'${columns * row + column + 1}' for column in range(columns))})"
        for row in range(rows)
    )
    names = ", ".join(["id", *FILTERS.values(), "embedding"])
    return f"INSERT INTO items ({names}) VALUES {', '.join(lines)} RETURNING id"


def clients(
    database: Database,
    statement: str,
    session: Mapping[str, Any],
    *,
    number: int = 2,
    duration: int = 10,
) -> float:
    """Measure queries a second of several clients by pgbench, with prepared statements.

    pgbench sends no vectors: each query draws its own from the table ``queries`` by its key.

    Parameters
    ----------
    database : Database
    statement : str
        With the query vector as $1.
    session : mapping
        Settings of each client's session.
    number : int
    duration : int
        Seconds; where it is more than one, after another one to warm up.

    Returns
    -------
    float
    """
    query = "(SELECT q.embedding FROM queries q WHERE q.id = :i)"
    lines = [
        f"\\set i random(0, {len(database.drawn.queries) - 1})",
        statement.replace("$1", query).replace("\n", " ") + ";",
    ]
    options = " ".join(f"-c {name}={value}" for name, value in session.items())
    with TemporaryDirectory() as folder:
        script = Path(folder) / "search.sql"
        script.write_text("\n".join(lines) + "\n")
        command = [str(database.server.bin_dir / "pgbench"), "--no-vacuum", "--protocol=prepared"]
        command += [f"--client={number}", f"--jobs={number}", f"--file={script}"]
        for length in (1, duration) if duration > 1 else (duration,):
            result = subprocess.run(
                [*command, f"--time={length}", database.server.uri(database.name)],
                env={**os.environ, "PGOPTIONS": options},
                capture_output=True,
                text=True,
                check=False,
            )
            rate = re.search(r"^tps = ([0-9.]+)", result.stdout, re.MULTILINE)
            if result.returncode or rate is None:
                raise RuntimeError(f"pgbench failed: {result.stderr.strip()}")
    return float(rate[1])
