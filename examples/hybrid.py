"""Hybrid search: by meaning and by words, joined by reciprocal rank fusion."""

import os

from pg_hashindex import HashIndex, connect, store

WORDS = "web server"

with connect(os.environ["PG_HASHINDEX_DATABASE_URL"]) as connection:
    # A model is learned, which has the name of the index.
    index = HashIndex.create(connection, "hybrid_idx", table="packages", column="embedding")
    connection.execute(
        "CREATE INDEX packages_words ON packages USING gin (to_tsvector('english', description))"
    )

    # In an application the query is the embedding of what somebody typed.
    (query,) = connection.execute(
        "SELECT embedding FROM packages WHERE name = 'nginx'"
    ).fetchone() or ([],)
    names = dict(connection.execute("SELECT id, name FROM packages").fetchall())
    for share in (0.0, 0.5, 1.0):
        hits = index.hybrid(
            query, WORDS, "description", k=5, configuration="english", vector_weight=share
        )
        print(f"{share:.0%} vectors:", ", ".join(names[hit.id] for hit in hits))

    connection.execute("DROP INDEX packages_words")
    index.drop()
    store.drop(connection, index.name)
