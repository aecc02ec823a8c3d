"""Hashed and learned codes of the rows of an index, on labels and on distances.

    python benchmarks/learned_codes.py [--data ../shared/data] [--only usps]

Trains `sadih` on all rows of a table, indexes it once with hashed and once with learned codes, and
asks queries that training did not see. MAP ranks all stored codes by their Hamming distance, for
1,000 queries; P@100 is of the first 100 candidates of the index, P@10 and recall@10 of its answers,
for 200 queries. About 5 minutes; needs ../shared/data.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from common import DATA_FOLDER, RESULTS, parser, write
from numpy.typing import NDArray
from packages import SETTINGS
from pgvector import Vector
from retrieval_server import load, served

from pg_hashindex import store
from pg_hashindex.db.connection import Connection, connect
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.metrics import mean_average_precision
from pg_hashindex.metrics.search import recall_of
from pg_hashindex.models import codes as packed
from pg_hashindex.models.model import Model
from pg_hashindex.papers import Split, Truth, load_split
from pg_hashindex.training import train

QUERIES, ASKED, BITS, K = 1_000, 200, 32, 10


def splits(folder: Path) -> Iterator[tuple[str, Split]]:
    for name in ("usps", "mnist"):
        yield name, load_split(folder / f"{name}.npz", folder / f"{name}_split.npz")
    packages = np.load(folder / "packages.npz")
    _, sections = np.unique(packages["section"], return_inverse=True)
    order = np.random.default_rng(0).permutation(len(sections))
    database = np.sort(order[QUERIES:])
    numbers = {"query": order[:QUERIES], "database": database, "train": database}
    yield "packages", Split.of(packages["X"].astype(np.float32), sections, numbers=numbers)


def nearest(split: Split) -> NDArray[np.intp]:
    """Return the rows of the greatest cosine to each of the first queries, intp (ASKED, K)."""
    X, Q = (np.asarray(rows, np.float32) for rows in (split.database, split.queries[:ASKED]))
    cosines = Q @ (X / np.linalg.norm(X, axis=1, keepdims=True)).T
    return np.argpartition(-cosines, K, axis=1)[:, :K]


def measure(connection: Connection, model: Model, split: Split) -> dict[str, Any]:
    relevant = split.relevant(Truth("label"))
    store.save(connection, model)
    index = HashIndex.create(
        connection,
        "items_idx",
        table="items",
        column="embedding",
        model=model.name,
        metric="cosine",
    )
    index.encode()
    rows = connection.execute("SELECT code::text FROM hashindex.items_idx_codes ORDER BY id")
    stored = packed.pack(np.array([list(row[0]) for row in rows]) == "1")
    taken = {"P@100": 0.0, f"P@{K}": 0.0}
    right = []
    for same, near, row in zip(relevant, nearest(split), split.queries, strict=False):
        query = Vector(row)
        candidates = connection.execute(
            "SELECT id FROM hashindex.candidates_items_idx(%s, 100)", [query]
        ).fetchall()
        found = [hit.id for hit in index.search(query, K)]
        taken["P@100"] += float(same[[row[0] for row in candidates]].mean()) / ASKED
        taken[f"P@{K}"] += float(same[found].mean()) / ASKED
        right.append(np.isin(near, found).sum())
    index.drop()
    taken[f"recall@{K}"] = recall_of(right, K)
    return {"MAP": mean_average_precision(model.encode(split.queries), stored, relevant), **taken}


def main() -> None:
    arguments = parser(__doc__, data=DATA_FOLDER, only="").parse_args()
    results = []
    with served(SETTINGS) as uri, connect(uri) as connection:
        for name, split in splits(arguments.data):
            if arguments.only not in ("", name):
                continue
            connection.execute("DROP TABLE IF EXISTS items")
            load(connection, split.database)
            learned = train(
                np.asarray(split.database, np.float32),
                "taught",
                "sadih",
                y=split.labels,
                n_bits=BITS,
                metric="cosine",
                codes="learned",
            )
            for what, model in (("hashed", replace(learned, learned=None)), ("learned", learned)):
                results.append({"data": name, "bits": BITS, "codes": what})
                results[-1] |= measure(connection, model, split)
                print(results[-1], flush=True)
    if not arguments.only:
        write(RESULTS / "learned_codes.json", results)


if __name__ == "__main__":
    main()
