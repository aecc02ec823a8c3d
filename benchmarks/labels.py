"""Label precision in PostgreSQL: codes that learned labels beside the cosine distance.

    python benchmarks/labels.py [--queries 200] [--only packages]
    python benchmarks/tables.py

The rows are 60,000 package descriptions, whose label is their section, and 70,000 digits of MNIST.
50 rows of each label are labelled, or all but the queries. The query is a row without a label, and
the answers are the 100 other rows nearest to it. Label precision is the share of these with the
query's label. Each model is trained and used by the statements of docs/labels.md: a name over its
codes and ``hashindex.candidates``; a column that ``model encode`` fills, all of whose codes are
read; and pgvector's HNSW over that column. About 25 minutes.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from common import DATA_FOLDER, RESULTS, machine, parser, read, write
from numpy.typing import NDArray
from pgvector import Vector
from retrieval_server import QUICK_SETTINGS, served

from pg_hashindex.db.connection import Connection, connect

OUTPUT = RESULTS / "labels.json"
K, BITS, FEW = 100, 64, 50
METHODS = ("sadih", "cghash", "bgdh")
#: Settings for many classes: those of the figure `bgdh_packages_20`.
MANY_CLASSES = {
    "bgdh": (
        "pairwise_loss=balanced", "theta_scale=0.25", "weight_decay=1.0", "validation=0",
        "batch_rows=256", "rounds=100", "hidden=[512]", "embedding_size=256", "walk_length=2",
        "pretrain=300", "batch_contexts=2048",
    )
}  # fmt: skip
EXACT = "SELECT class FROM items WHERE id <> {0} ORDER BY embedding <=> {1} LIMIT 100"
BY_CODE = "SELECT class FROM items WHERE id <> {0} ORDER BY bit_count(code # {2}) LIMIT 100"
BY_HNSW = """SELECT class FROM items WHERE id <> {0} ORDER BY code <~> {2} LIMIT 100"""
BY_NAME = """SELECT class FROM hashindex.candidates('named', {1}, 101) c
    JOIN items i ON i.id = c.id::int WHERE i.id <> {0} ORDER BY c.distance LIMIT 100"""


def rows(name: str) -> tuple[NDArray[np.float32], NDArray[Any]]:
    with np.load(DATA_FOLDER / f"{name}.npz") as data:
        X = data["X"].astype(np.float32)
        classes = data["section"] if name == "packages" else data["y"]
    return X if name == "packages" else X / 255, classes.astype(str)


def load(connection: Connection, X: NDArray[np.float32], y: NDArray[Any], n: int) -> None:
    """Make the table, with the labels that models learn, and choose the queries."""
    connection.execute(
        f"CREATE TABLE items (id int PRIMARY KEY, class text, few text, most text,"
        f" embedding vector({X.shape[1]}), code bit({BITS}))"
    )
    drawn = np.random.default_rng(0).permutation(len(X))
    asked = set(drawn[:n].tolist())
    seen: dict[str, int] = {}
    into = "COPY items (id, class, few, most, embedding) FROM STDIN"
    with connection.cursor() as cursor, cursor.copy(into) as copy:
        for number in drawn[::-1].tolist():
            label = str(y[number])
            most = None if number in asked else label
            seen[label] = seen.get(label, 0) + (most is not None)
            few = most if seen[label] <= FEW else None
            copy.write_row((number, label, few, most, Vector(X[number])))
    connection.execute("VACUUM ANALYZE items")


def precision(connection: Connection, statement: str) -> dict[str, float]:
    """Return the mean label precision of all queries, and the median of their times."""
    found = connection.execute(
        "SELECT id, class, embedding, code FROM items WHERE most IS NULL ORDER BY id"
    ).fetchall()
    statement = statement.format("%(id)s", "%(vector)s", "%(code)s")
    shares, taken = [], []
    for number, label, vector, code in found:
        began = time.perf_counter()
        values = {"id": number, "vector": vector, "code": code}
        answers = connection.execute(statement.encode(), values).fetchall()
        taken.append(time.perf_counter() - began)
        shares.append(sum(answer == label for (answer,) in answers) / K)
    return {
        "label_precision": round(float(np.mean(shares)), 4),
        "p50_ms": round(1e3 * float(np.median(taken)), 2),
    }


def run(url: str, command: Sequence[str]) -> float:
    """Run ``pg-hashindex`` and return the seconds that it took."""
    began = time.perf_counter()
    environment = {**os.environ, "PG_HASHINDEX_DATABASE_URL": url}
    subprocess.run(
        [sys.executable, "-m", "pg_hashindex", *command],
        env=environment, stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    return time.perf_counter() - began


def measure(
    connection: Connection, url: str, method: str, labels: str, params: Sequence[str]
) -> Any:
    """Train a model, search by it in three ways, and remove it."""
    train = [
        "model", "train", "taught", "--method", method, "--bits", str(BITS), "--table", "items",
        "--column", "embedding", "--metric", "cosine", "--labels", labels,
        *(word for param in params for word in ("--param", param)),
    ]  # fmt: skip
    entry: dict[str, Any] = {"method": method, "labels": labels}
    entry["train_s"] = round(run(url, train), 1)
    made = "SELECT * FROM hashindex.create_index('named', 'items', 'embedding', 'taught', "
    connection.execute((made + "reveal_anchors => true)").encode())
    entry["candidates"] = precision(connection, BY_NAME)
    connection.execute("SELECT hashindex.drop_index('named')")
    into = ["--table", "items", "--column", "embedding", "--into", "code"]
    entry["encode_s"] = round(run(url, ["model", "encode", "taught", *into]), 1)
    connection.execute("VACUUM ANALYZE items")
    entry["bit_count"] = precision(connection, BY_CODE)
    (entry["distinct_codes"],) = connection.execute(
        "SELECT count(DISTINCT code) FROM items"
    ).fetchone() or (0,)
    connection.execute("CREATE INDEX items_code ON items USING hnsw (code bit_hamming_ops)")
    connection.execute("SET hnsw.ef_search = 200")
    entry["hnsw"] = precision(connection, BY_HNSW)
    connection.execute("DROP INDEX items_code")
    connection.execute("UPDATE items SET code = NULL")
    connection.execute("VACUUM FULL ANALYZE items")
    run(url, ["model", "drop", "taught"])
    return entry


def main() -> None:
    """Measure both data sets, and write the figures as JSON."""
    asked = parser(__doc__ or "", queries=200, only="").parse_args()
    report = read(OUTPUT) | {"machine": machine(), "queries": asked.queries, "k": K, "bits": BITS}
    report.setdefault("data", {})
    for name in ("packages", "mnist"):
        if asked.only not in ("", name):
            continue
        X, classes = rows(name)
        with served(QUICK_SETTINGS | {"shared_buffers": "1GB"}) as url:
            run(url, ["schema", "upgrade"])
            with connect(url) as connection:
                load(connection, X, classes, asked.queries)
                found: dict[str, Any] = {"cosine": precision(connection, EXACT), "models": []}
                print(name, "cosine", found["cosine"], flush=True)
                for labels in ("few", "most"):
                    for method in METHODS:
                        params = MANY_CLASSES.get(method, ()) if name == "packages" else ()
                        entry = measure(connection, url, method, labels, params)
                        found["models"].append(entry)
                        print(name, entry, flush=True)
        report["data"][name] = found
        write(OUTPUT, report)


if __name__ == "__main__":
    main()
