"""Search 59,000 package descriptions for 1,000 others: ours and pgvector's own options.

One embedded server, one session, prepared statements with binary parameters for every system.
Recall@10 counts ties as correct; bytes are what a system adds to the table; build seconds include
training and encoding.

Run: python benchmarks/packages.py (about 6 minutes; needs ../shared/data/packages.npz), then
python benchmarks/tables.py for the pages.
"""

import argparse
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from common import DATA_FOLDER, RESULTS, write
from numpy.typing import NDArray
from pgvector import Vector
from retrieval_server import load, served
from retrieval_systems import column

from pg_hashindex import store
from pg_hashindex.db.connection import Connection, connect
from pg_hashindex.db.statements import one_row
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.quality.measuring import Prepared, ask
from pg_hashindex.quality.systems import Exact, Setting, Signs, Vectors, over_vectors
from pg_hashindex.training import train

ROWS, QUERIES, K, CANDIDATES, DIMENSION = 59_000, 1_000, 10, 200, 384
SETTINGS = {"shared_buffers": "1GB", "maintenance_work_mem": "1GB"}
OURS = [("sign", None), ("lsh", 256), ("pcah", 256), ("sgh", 128), ("sgh", 256), ("itq", 128),
        ("itq", 256)]  # fmt: skip
VECTORS = over_vectors(column("vector"), "cosine", DIMENSION)
LISTS = over_vectors(column("vector"), "cosine", DIMENSION, method="ivfflat")
SIGNS = Signs(column("vector"), "cosine", DIMENSION)
# Indexes of pgvector, their options, and the setting of the session for each system.
PGVECTOR: tuple[tuple[Vectors, Any, dict[str, str]], ...] = (
    (VECTORS, "", {f"hnsw ef_search={ef}": f"hnsw.ef_search = {ef}" for ef in (40, 100)}),
    (LISTS, " WITH (lists = 240)", {"ivfflat probes=10": "ivfflat.probes = 10"}),
    (SIGNS, "", {"binary_quantize hnsw, re-rank 200": f"hnsw.ef_search = {CANDIDATES}"}),
)

Search = Callable[[Vector], Sequence[Sequence[Any]]]
#: A system: what its build took, the relation that it added, and its search.
System = tuple[dict[str, Any], str | None, Search]


def ours(connection: Connection, X: NDArray[np.float32]) -> Iterator[System]:
    for method, bits in OURS:
        start = time.perf_counter()
        name = f"{method}_{bits or DIMENSION}"
        store.save(connection, train(X, name, method, n_bits=bits, cuts=1, metric="cosine"))
        index = HashIndex.create_lists(
            connection, name, table="items", column="embedding", model=name, access="scan"
        )
        encoding = time.perf_counter()
        encoded = index.encode()
        end = time.perf_counter()

        def search(vector: Vector, index: HashIndex = index) -> Sequence[Sequence[Any]]:
            return index.search(vector, K, candidates=CANDIDATES)

        words = f"{method} {bits or DIMENSION} bits, re-rank 200"
        built = {"system": words, "build_s": end - start}
        built["encoded_rows_a_second"] = round(encoded / (end - encoding))
        yield built, f"hashindex.{index.metadata.code_table}", search
        index.drop()


def pgvectors(connection: Connection) -> Iterator[System]:
    for index, options, systems in PGVECTOR:
        connection.execute("DROP INDEX IF EXISTS items_pgvector")
        start = time.perf_counter()
        connection.execute(index.create("items_pgvector", options)[0])
        seconds = time.perf_counter() - start
        for system, setting in systems.items():
            connection.execute(f"SET {setting}".encode())
            search = Prepared(connection, index.search(K, Setting(candidates=CANDIDATES)))
            yield {"system": system, "build_s": seconds}, "items_pgvector", search


def run(connection: Connection, X: NDArray[np.float32], n_queries: int) -> list[dict[str, Any]]:
    load(connection, X[:ROWS])
    queries = [Vector(row) for row in X[ROWS : ROWS + n_queries]]
    exact = Prepared(connection, Exact(column("vector"), "cosine").search(K))
    truth = ask(exact, queries)
    found = []
    systems: list[System] = [({"system": "exact scan", "build_s": 0.0}, None, exact)]
    for part in (systems, ours(connection, X[:ROWS]), pgvectors(connection)):
        for built, relation, search in part:
            size = "SELECT coalesce(pg_total_relation_size($1::text::regclass), 0)"
            (n_bytes,) = one_row(connection, size, [relation])
            answers = ask(search, queries, warm_up=20)
            found.append(
                built
                | {"bytes": n_bytes, "recall": answers.recall(truth, K)}
                | {"p50_ms": answers.p50_ms, "p95_ms": answers.p95_ms}
            )
            print("  ".join(f"{name} {value}" for name, value in found[-1].items()), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="100 queries, nothing written")
    quick = parser.parse_args().quick
    with np.load(DATA_FOLDER / "packages.npz") as archive:
        X = archive["X"].astype(np.float32)
    with served(SETTINGS) as uri, connect(uri) as connection:
        rows = run(connection, X, 100 if quick else QUERIES)
        version = connection.info.parameter_status("server_version")
    if not quick:
        result = {
            "rows": ROWS, "queries": QUERIES, "k": K, "candidates": CANDIDATES,
            "metric": "cosine", "postgresql": version, "cores": os.cpu_count(),
            "machine": platform.machine(), "settings": SETTINGS, "systems": rows,
        }  # fmt: skip
        write(RESULTS / "packages.json", result)


if __name__ == "__main__":
    main()
