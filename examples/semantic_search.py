"""Semantic search: the packages whose descriptions mean nearly the same as one of them."""

import os

from pg_hashindex import HashIndex, connect, hashers, sampling, store

with connect(os.environ["PG_HASHINDEX_DATABASE_URL"]) as connection:
    # Learn codes from the vectors, and keep the model in the database.
    rows = sampling.sample_table(connection, "packages", "embedding").X
    hasher = hashers.ITQ(n_bits=128, random_state=0).fit(rows)
    model = store.save(connection, hasher.to_model("semantic", metric="cosine"))
    made = f"{model.name}:{model.version}"

    # pgvector's index over the codes of all rows; PostgreSQL keeps it as rows are written.
    index = HashIndex.create(
        connection, "semantic_idx", table="packages", column="embedding", model=made
    )

    found = connection.execute(
        "SELECT p.name, s.distance FROM hashindex.search_semantic_idx("
        "(SELECT embedding FROM packages WHERE name = %s), 5) s "
        "JOIN packages p USING (id) ORDER BY s.distance",
        ["nginx"],
    )
    for name, distance in found:
        print(f"{distance:.3f} {name}")

    index.drop()
    store.drop(connection, made)
