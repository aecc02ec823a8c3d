"""Measure `dedup`: near-duplicates by lists and codes, and what the exact join finds and takes.

    python benchmarks/near_duplicates.py [--data packages synthetic-1m] [--similarity 0.95]
    python benchmarks/tables.py

The exact join compares every two rows in SQL. Here it is run for some rows against all, and its
time for all of them is extrapolated from that; these rows also give the share of pairs found.
"""

import argparse
import time
from typing import Any

import numpy as np
from common import DATA_FOLDER, RESULTS, machine, write
from retrieval_data import draw
from retrieval_server import SETTINGS, Database, database, running
from retrieval_systems import SYSTEMS

from pg_hashindex import operations
from pg_hashindex.db.connection import connect
from pg_hashindex.index.handle import HashIndex

OUTPUT = RESULTS / "near_duplicates.json"
# Rows that the exact join is run for.
SAMPLED = 300


def measure(opened: Database, similarity: float) -> dict[str, Any]:
    """Index the table, write the pairs, and compare those of some rows with the exact join."""
    built = SYSTEMS["ours"].build(opened, 0)
    opened.settle()
    with connect(opened.uri) as connection:
        (name,) = connection.execute("SELECT name FROM hashindex.index").fetchone() or ("",)
        started = time.perf_counter()
        found = operations.near_duplicates(
            HashIndex.open(connection, name), "pairs", max_distance=1 - similarity
        )
        seconds = time.perf_counter() - started
        rows = len(opened.drawn.rows)
        sampled = np.sort(np.random.default_rng(0).permutation(rows)[:SAMPLED]).tolist()
        started = time.perf_counter()
        # "+ 0" keeps an index from answering.
        exact = connection.execute(
            "SELECT least(a.id, b.id), greatest(a.id, b.id) FROM items a JOIN items b "
            "ON (a.embedding <=> b.embedding) + 0 <= %s AND a.id <> b.id WHERE a.id = ANY (%s)",
            [1 - similarity, sampled],
        ).fetchall()
        exact_seconds = (time.perf_counter() - started) * rows / SAMPLED / 2
        right = set(exact)
        known = set(
            connection.execute(
                "SELECT id, other_id FROM pairs WHERE id = ANY (%s) OR other_id = ANY (%s)",
                [sampled, sampled],
            ).fetchall()
        )
    return {
        "rows": rows,
        "similarity": similarity,
        "index_s": round(built.seconds, 1),
        "seconds": round(seconds, 1),
        "pairs": found.pairs,
        "radius": found.radius,
        "sampled_pairs": len(right),
        "found": round(len(right & known) / max(1, len(right)), 4),
        "exact_s": round(exact_seconds, 1),
    }


def main() -> None:
    """Print the figures, and write them as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", nargs="+", default=["packages", "synthetic-300k", "synthetic-1m"])
    parser.add_argument("--similarity", type=float, default=0.95)
    args = parser.parse_args()
    results = {}
    for data in args.data:
        drawn = draw(DATA_FOLDER, data, 10, 10)
        with running(SETTINGS) as server, database(server, drawn) as opened:
            results[data] = measure(opened, args.similarity)
        print(data, results[data], flush=True)
        write(OUTPUT, {"machine": machine(), "results": results})


if __name__ == "__main__":
    main()
