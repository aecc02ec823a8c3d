"""Move a table from HNSW to a name: both side by side on the same queries, then one of them goes.

On the 5,000 rows of the demo HNSW is the faster one: see `pg-hashindex doctor`.
"""

import os
from time import perf_counter
from typing import Any

from pg_hashindex import connect, store

QUERIES = "SELECT embedding FROM packages ORDER BY id LIMIT 50"
EXACT = "SELECT id FROM packages ORDER BY (embedding <=> %s) + 0 LIMIT 10"
HNSW = "SELECT id FROM packages ORDER BY embedding <=> %s LIMIT 10"
NAME = "SELECT id FROM hashindex.search_moved(%s, 10)"

with connect(os.environ["PG_HASHINDEX_DATABASE_URL"]) as connection:

    def first(statement: str) -> Any:
        return connection.execute(statement.encode()).fetchone()

    connection.execute(
        "CREATE INDEX packages_hnsw ON packages USING hnsw (embedding vector_cosine_ops)"
    )
    # Beside writers, `pg-hashindex index create` makes the same.
    made, _, mb, candidates, _ = first(
        "SELECT * FROM hashindex.create_index('moved', 'packages', 'embedding')"
    )
    print(f"{made}: {mb} MB, {candidates} candidates")
    print("recall of 'moved':", first("SELECT hashindex.recall('moved')")[0])

    queries = [query for (query,) in connection.execute(QUERIES).fetchall()]

    def answers(statement: str) -> tuple[list[set[int]], float]:
        # The first search of a session compiles its functions.
        connection.execute(statement.encode(), queries[:1]).fetchall()
        began = perf_counter()
        found = [{i for (i,) in connection.execute(statement.encode(), [q])} for q in queries]
        return found, 1000 * (perf_counter() - began) / len(queries)

    true, _ = answers(EXACT)
    for name, statement in (("HNSW", HNSW), ("codes", NAME)):
        found, ms = answers(statement)
        recall = sum(len(a & b) for a, b in zip(found, true, strict=True)) / (10 * len(queries))
        print(f"{name}: recall {recall:.3f}, {ms:.2f} ms")
    (size,) = first("SELECT pg_relation_size('packages_hnsw')")
    print(f"HNSW: {size / 1e6:.1f} MB")

    # The codes stay where they are worth it; here both go.
    connection.execute("DROP INDEX packages_hnsw")
    connection.execute("SELECT hashindex.drop_index('moved')")
    store.drop(connection, "moved")
