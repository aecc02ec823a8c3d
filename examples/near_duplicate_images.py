"""Near-duplicates among images: pairs of scikit-learn's handwritten digits that look the same."""

import os

from pgvector import Vector
from sklearn.datasets import load_digits

from pg_hashindex import HashIndex, connect, operations, store

digits = load_digits()

with connect(os.environ["PG_HASHINDEX_DATABASE_URL"]) as connection:
    # In an application these are embeddings of images; here the 64 pixels themselves do.
    connection.execute("CREATE TABLE digits (id bigint PRIMARY KEY, digit int, pixels vector(64))")
    connection.cursor().executemany(
        "INSERT INTO digits VALUES (%s, %s, %s)",
        [(n, int(digits.target[n]), Vector(x)) for n, x in enumerate(digits.data)],
    )
    # A model is learned, which has the name of the index.
    index = HashIndex.create(
        connection, "digits_idx", table="digits", column="pixels", access="lists"
    )

    operations.near_duplicates(index, "digit_pairs", max_distance=0.02)
    pairs, same = connection.execute(
        "SELECT count(*), count(*) FILTER (WHERE a.digit = b.digit) FROM digit_pairs p "
        "JOIN digits a USING (id) JOIN digits b ON b.id = p.other_id"
    ).fetchone() or (0, 0)
    print(f"{pairs} pairs of {len(digits.data)} images, {same} of the same digit")

    index.drop()
    connection.execute("DROP TABLE digits, digit_pairs")
    store.drop(connection, index.name)
