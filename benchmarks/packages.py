"""Search 59,000 package descriptions for 1,000 others: ours and pgvector's own options.

One embedded server, one session, prepared statements with binary parameters for every system.
Recall@10 counts ties as correct; bytes are what a system adds to the table; build seconds include
training and encoding.

Run: python benchmarks/packages.py (about 6 minutes; needs ../shared/data/packages.npz), then
python benchmarks/tables.py for the pages.
"""

import argparse
import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pgvector import Vector

from pg_hashindex import store
from pg_hashindex.db.connection import Connection, connect
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.quality.measuring import Answers, ask
from pg_hashindex.server import EmbeddedServer
from pg_hashindex.server.demo import new_database
from pg_hashindex.training import train

REPOSITORY = Path(__file__).resolve().parent.parent
DATA = REPOSITORY.parent / "shared" / "data" / "packages.npz"
RESULTS = REPOSITORY / "benchmarks" / "results" / "packages.json"

ROWS, QUERIES, K, CANDIDATES = 59_000, 1_000, 10, 200
SETTINGS = {"shared_buffers": "1GB", "maintenance_work_mem": "1GB"}
OURS = [("sign", None), ("lsh", 256), ("pcah", 256), ("sgh", 128), ("sgh", 256), ("itq", 128),
        ("itq", 256)]  # fmt: skip

Search = Callable[[Vector], Sequence[Sequence[Any]]]


def load(connection: Connection, X: NDArray[np.float32]) -> None:
    columns = f"id bigint PRIMARY KEY, embedding vector({X.shape[1]})"
    connection.execute(f"CREATE TABLE items ({columns})".encode())
    with (
        connection.cursor() as cursor,
        cursor.copy("COPY items FROM STDIN (FORMAT binary)") as copy,
    ):
        copy.set_types(["bigint", "vector"])
        for row_id, vector in enumerate(X):
            copy.write_row((row_id, Vector(vector)))
    connection.execute("VACUUM ANALYZE items")


def statement(connection: Connection, query: str) -> Search:
    return lambda vector: connection.execute(
        query, {"q": vector}, prepare=True, binary=True
    ).fetchall()


def measure(search: Search, queries: list[Vector], exact: Answers) -> dict[str, float]:
    found = ask(search, queries, warm_up=20)
    return {"recall": found.recall(exact, K), "p50_ms": found.p50_ms, "p95_ms": found.p95_ms}


def relation_bytes(connection: Connection, name: str) -> int:
    row = connection.execute("SELECT pg_total_relation_size(%s::regclass)", [name]).fetchone()
    assert row is not None
    return int(row[0])


def pgvector_systems(connection: Connection) -> list[tuple[str, str, str, list[str]]]:
    nearest = f"SELECT id, embedding <=> %(q)s AS d FROM items ORDER BY d LIMIT {K}"
    reranked = f"""
        SELECT id, embedding <=> %(q)s AS d FROM items WHERE id = ANY (ARRAY(
            SELECT id FROM items
            ORDER BY binary_quantize(embedding)::bit(384) <~> binary_quantize(%(q)s)
            LIMIT {CANDIDATES}
        )) ORDER BY d LIMIT {K}
    """
    return [
        ("hnsw ef_search=40", "hnsw (embedding vector_cosine_ops)", nearest,
         ["SET hnsw.ef_search = 40"]),
        ("hnsw ef_search=100", "", nearest, ["SET hnsw.ef_search = 100"]),
        ("ivfflat probes=10", "ivfflat (embedding vector_cosine_ops) WITH (lists = 240)", nearest,
         ["SET ivfflat.probes = 10"]),
        ("binary_quantize hnsw, re-rank 200",
         "hnsw ((binary_quantize(embedding)::bit(384)) bit_hamming_ops)", reranked,
         [f"SET hnsw.ef_search = {CANDIDATES}"]),
    ]  # fmt: skip


def run(connection: Connection, X: NDArray[np.float32], quick: bool) -> list[dict[str, Any]]:
    load(connection, X[:ROWS])
    queries = [Vector(row) for row in X[ROWS : ROWS + (100 if quick else QUERIES)]]
    exact = statement(
        connection, f"SELECT id, embedding <=> %(q)s AS d FROM items ORDER BY d LIMIT {K}"
    )
    truth = ask(exact, queries)
    rows: list[dict[str, Any]] = []

    def add(system: str, seconds: float, size: int, search: Search) -> None:
        rows.append(
            {"system": system, "build_s": seconds, "bytes": size} | measure(search, queries, truth)
        )
        print(
            "{system:36} build {build_s:6.1f} s  {mb:6.1f} MB  recall@10 {recall:.4f}  "
            "p50 {p50_ms:6.2f} ms  p95 {p95_ms:6.2f} ms".format(
                **rows[-1], mb=rows[-1]["bytes"] / 1e6
            ),
            flush=True,
        )

    add("exact scan", 0, 0, exact)
    for method, bits in OURS:
        start = time.perf_counter()
        name = f"{method}_{bits or 384}"
        store.save(connection, train(X[:ROWS], name, method, n_bits=bits, metric="cosine"))
        index = HashIndex.create(
            connection, name, table="items", column="embedding", model=name, metric="cosine"
        )
        encoding = time.perf_counter()
        rows_encoded = index.encode()
        seconds = time.perf_counter() - start
        encoded_s = rows_encoded / (time.perf_counter() - encoding)

        def ours(vector: Vector, index: HashIndex = index) -> Sequence[Sequence[Any]]:
            return index.search(vector, K, candidates=CANDIDATES)

        add(
            f"{method} {bits or 384} bits, re-rank 200",
            seconds,
            relation_bytes(connection, f'hashindex."{name}_codes"'),
            ours,
        )
        rows[-1]["encoded_rows_a_second"] = round(encoded_s)
        index.drop()
    for system, index_sql, query, settings in pgvector_systems(connection):
        if index_sql:
            connection.execute("DROP INDEX IF EXISTS items_pgvector")
            start = time.perf_counter()
            connection.execute(f"CREATE INDEX items_pgvector ON items USING {index_sql}")
            seconds = time.perf_counter() - start
        for setting in settings:
            connection.execute(setting)
        size = relation_bytes(connection, "items_pgvector")
        add(system, seconds, size, statement(connection, query))
    return rows


@contextmanager
def served() -> Iterator[str]:
    """Run an embedded server with schema hashindex; give its URL."""
    folder = Path(tempfile.mkdtemp(prefix="pg_hashindex-benchmark-"))
    folder.chmod(0o755)
    server = EmbeddedServer(folder / "data")
    server.start(until_exit=True, settings=SETTINGS)
    try:
        yield new_database(server, "packages")
    finally:
        server.stop()
        shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="100 queries, nothing written")
    arguments = parser.parse_args()
    X = np.load(DATA)["X"].astype(np.float32)
    with served() as uri, connect(uri) as connection:
        rows = run(connection, X, arguments.quick)
        version = connection.info.parameter_status("server_version")
    if not arguments.quick:
        result = {
            "rows": ROWS, "queries": QUERIES, "k": K, "candidates": CANDIDATES,
            "metric": "cosine", "postgresql": version, "cores": os.cpu_count(),
            "machine": platform.machine(), "settings": SETTINGS, "systems": rows,
        }  # fmt: skip
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(result, indent=2) + "\n")
        print(f"wrote {RESULTS.relative_to(REPOSITORY)}")


if __name__ == "__main__":
    main()
