"""Compare an index with landmarks on a Citus cluster with the exact query: search, build, writes.

The rows are those of ``retrieval.py``: packages from ``../shared/data``, or from the sample, each
plus .35 times the difference of two others. It needs an empty database of the coordinator:

    python benchmarks/citus.py postgresql://.../empty --rows 300000 --shards 8
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pgvector import Vector

from pg_hashindex import schema, store
from pg_hashindex.db.connection import Connection, connect, create_engine
from pg_hashindex.hashers import ITQ
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.quality.measuring import Answers, ask

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "packages.npz"
QUERIES = 100


def made_rows(n: int, seed: int) -> NDArray[np.float32]:
    base = np.load(SHARED)["X"].astype(np.float32)
    rng = np.random.default_rng(seed)
    i, j, k = rng.integers(len(base), size=(3, n))
    rows = base[i] + 0.35 * (base[j] - base[k])
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def load(connection: Connection, rows: NDArray[np.float32], first: int, table: str) -> float:
    began = time.monotonic()
    for start in range(0, len(rows), 1000):
        block = rows[start : start + 1000]
        with (
            connection.cursor() as cursor,
            cursor.copy(
                f"COPY {table} (id, embedding) FROM STDIN (FORMAT binary)".encode()
            ) as copy,
        ):
            copy.set_types(["int8", "vector"])
            for number, row in enumerate(block, start=first + start):
                copy.write_row((number, Vector(row)))
    return len(rows) / (time.monotonic() - began)


def timed(connection: Connection, statement: str, queries: NDArray[np.float32]) -> Answers:
    return ask(
        lambda query: connection.execute(statement.encode(), [Vector(query)]).fetchall(),
        list(queries),
        warm_up=20,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--shards", type=int, default=8, help="0: a plain table")
    parser.add_argument("--probes", type=int, nargs="+", default=[32, 64, 112])
    parser.add_argument("--candidates", type=int, default=50)
    arguments = parser.parse_args()
    engine = create_engine(arguments.url)
    with engine.begin() as transaction:
        schema.upgrade(transaction)
    engine.dispose()
    rows, queries = made_rows(arguments.rows, 0), made_rows(QUERIES, 1)
    result: dict[str, Any] = {"rows": arguments.rows, "shards": arguments.shards}
    with connect(arguments.url) as connection:
        connection.execute("CREATE TABLE items (id bigint PRIMARY KEY, embedding vector(384))")
        if arguments.shards:
            connection.execute(
                "SELECT create_distributed_table('items', 'id', shard_count => %s)",
                [arguments.shards],
            )
        result["rows a second by 1,000, without index"] = round(load(connection, rows, 1, "items"))
        hasher = ITQ(n_bits=256, random_state=0).fit(rows[:8000])
        store.save(connection, hasher.to_model("itq", levels=4, metric="cosine"))
        began = time.monotonic()
        HashIndex.create(
            connection, "items_idx", table="items", column="embedding", model="itq",
            access="landmarks",
        ).encode()  # fmt: skip
        result["build s"] = round(time.monotonic() - began, 1)
        connection.execute("ANALYZE items")
        nearest = "SELECT id, embedding <=> %s AS d FROM items ORDER BY d LIMIT 10"
        truth = timed(connection, nearest, queries)
        result["exact p50 ms"] = round(truth.p50_ms, 2)
        for probes in arguments.probes:
            statement = (
                "SELECT id, distance FROM hashindex.search_items_idx"
                f"(%s, 10, {arguments.candidates}, {probes})"
            )
            found = timed(connection, statement, queries)
            result[f"probes {probes}"] = {
                "p50 ms": round(found.p50_ms, 2),
                "recall": found.recall(truth, 10),
            }
        more = made_rows(10_000, 2)
        result["rows a second by 1,000, with index"] = round(
            load(connection, more, arguments.rows + 1, "items")
        )
    print(json.dumps(result, indent=4))


if __name__ == "__main__":
    main()
