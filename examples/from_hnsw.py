"""Move a table from HNSW: both side by side on the same queries, then one of them goes.

On the 5,000 rows of the demo HNSW is the faster one: see `pg-hashindex doctor`.
"""

import os
from time import perf_counter

from pg_hashindex import HashIndex, connect, store

QUERIES = "SELECT embedding FROM packages ORDER BY id LIMIT 50"
EXACT = "SELECT id FROM packages ORDER BY (embedding <=> %s) + 0 LIMIT 10"
HNSW = "SELECT id FROM packages ORDER BY embedding <=> %s LIMIT 10"
CODES = "SELECT id FROM hashindex.search_moved_idx(%s, 10)"

with connect(os.environ["PG_HASHINDEX_DATABASE_URL"]) as connection:
    connection.execute(
        "CREATE INDEX packages_hnsw ON packages USING hnsw (embedding vector_cosine_ops)"
    )
    (model,) = connection.execute(
        "SELECT hashindex.train('moved', 'packages', 'embedding')"
    ).fetchone() or ("",)
    # Searches and writes continue; from now on writes keep both indexes fresh.
    index = HashIndex.create_lists(
        connection, "moved_idx", table="packages", column="embedding", model=model
    )
    index.encode()

    queries = [query for (query,) in connection.execute(QUERIES).fetchall()]

    def answers(statement: str) -> tuple[list[set[int]], float]:
        # The first search of a session compiles its functions.
        connection.execute(statement.encode(), queries[:1]).fetchall()
        began = perf_counter()
        found = [{i for (i,) in connection.execute(statement.encode(), [q])} for q in queries]
        return found, 1000 * (perf_counter() - began) / len(queries)

    true, _ = answers(EXACT)
    for name, statement, relation in (("HNSW", HNSW, "packages_hnsw"), ("codes", CODES, None)):
        found, ms = answers(statement)
        recall = sum(len(a & b) for a, b in zip(found, true, strict=True)) / (10 * len(queries))
        summary = index.summary()
        size = summary.code_bytes + summary.access_bytes
        if relation:
            (size,) = connection.execute("SELECT pg_relation_size(%s)", [relation]).fetchone() or (
                0,
            )
        print(f"{name}: recall {recall:.3f}, {ms:.2f} ms, {size / 1e6:.1f} MB")

    # The codes stay where they are worth it; here both go.
    connection.execute("DROP INDEX packages_hnsw")
    index.drop()
    store.drop(connection, model)
