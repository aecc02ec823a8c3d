"""Measure builds by one process and by several, beside pgvector's HNSW.

    python benchmarks/jobs.py [--rows 300000] [--rounds 3]

The index is rebalanced, which trains landmarks and reads every row, as a build does. Seconds are
those of the clock and of CPU, of the client's processes and the server's together; medians of the
rounds, in which the numbers of jobs take turns. HNSW is built once.
"""

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from common import (
    DATA_FOLDER,
    RESULTS,
    circumstances,
    machine,
    machine_seconds,
    parser,
    table,
    write,
)
from retrieval_data import draw
from retrieval_server import SETTINGS, load, running

from pg_hashindex import store
from pg_hashindex.db.connection import connect
from pg_hashindex.hashers import make_hasher
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.server.demo import new_database


def timed(step: Callable[[], object]) -> dict[str, float]:
    """Return how long a step takes."""
    began, before = time.perf_counter(), machine_seconds()
    step()
    return {
        "seconds": round(time.perf_counter() - began, 2),
        "cpu_seconds": round(machine_seconds() - before, 2),
    }


def main() -> None:
    """Print the table, and write it as JSON."""
    args = parser(__doc__, rows=300_000, rounds=3, output=RESULTS / "jobs.json").parse_args()
    began = circumstances()
    jobs = sorted({1, 2, min(4, os.cpu_count() or 1)})
    rows = draw(DATA_FOLDER, "synthetic-300k", 1, most=args.rows).rows
    with running(SETTINGS) as server, connect(new_database(server, "jobs")) as connection:
        load(connection, rows)
        hasher = make_hasher("thermometer", random_state=0).fit(rows[:20_000])
        store.save(connection, hasher.to_model("m", metric="cosine", cuts=3))
        index = HashIndex.create_lists(
            connection, "items_idx", table="items", column="embedding", model="m",
            access="lists",
        )  # fmt: skip
        first = timed(lambda: index.encode(jobs=1))
        runs: dict[int, list[dict[str, float]]] = {one: [] for one in jobs}
        for _ in range(args.rounds):
            for one, times in runs.items():
                times.append(timed(lambda one=one: index.rebalance(jobs=one)))
        statement = "CREATE INDEX ON items USING hnsw (embedding vector_cosine_ops)"
        hnsw = timed(lambda: connection.execute(statement.encode()))
    found: dict[str, Any] = {
        str(one): {
            what: round(statistics.median(each[what] for each in times), 2) for what in times[0]
        }
        for one, times in runs.items()
    }
    report = {
        "machine": machine(), "rows": len(rows), "dimension": rows.shape[1], **began,
        "shared_buffers": SETTINGS["shared_buffers"], "first_build": first, "rebalance": found,
        "rounds": {str(one): times for one, times in runs.items()}, "hnsw": hnsw,
    }  # fmt: skip
    lines = [
        [what, *map(str, one.values()), str(round(hnsw["seconds"] / one["seconds"], 2))]
        for what, one in [
            ("first build, 1 job", first),
            *((f"rebalance, {jobs} jobs", one) for jobs, one in found.items()),
            ("HNSW, two workers", hnsw),
        ]
    ]
    print(table(["build", "s", "CPU s", "HNSW's seconds over these"], lines))
    write(args.output, report)


if __name__ == "__main__":
    main()
