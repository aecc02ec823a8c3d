"""Recommendations from clicks: learn from triplets which rows people take for similar."""

import os

from pg_hashindex import HashIndex, connect, hashers, sampling, store

# Who searched for a package took one of its section, and passed another by.
CLICKS = """
    CREATE TABLE clicks AS
    SELECT a.id AS searched, b.id AS taken, c.id AS passed
    FROM packages a
    JOIN packages b ON b.section = a.section AND b.id = a.id + 7
    JOIN packages c ON c.section <> a.section AND c.id = a.id + 11
"""

with connect(os.environ["PG_HASHINDEX_DATABASE_URL"]) as connection:
    connection.execute(CLICKS)
    sample = sampling.sample_table(
        connection, "packages", "embedding", triplets="SELECT searched, taken, passed FROM clicks"
    )
    hasher = hashers.CGHash(n_bits=32, random_state=0).fit(sample.X, triplets=sample.triplets)
    model = store.save(connection, hasher.to_model("clicks", metric="cosine"))
    made = f"{model.name}:{model.version}"
    index = HashIndex.create(
        connection, "clicks_idx", table="packages", column="embedding", model=made
    )

    # Candidates come in the order that was learned; by exact distance they are put in order.
    names = dict(connection.execute("SELECT id, name FROM packages").fetchall())
    for searched in (1, 2, 3):
        hits = index.search_like(searched, k=4)
        print(f"{names[searched]}: {', '.join(names[hit.id] for hit in hits)}")

    index.drop()
    store.drop(connection, made)
    connection.execute("DROP TABLE clicks")
