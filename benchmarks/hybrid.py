"""Search packages by vector, by words, and by both.

    python benchmarks/hybrid.py [--rows 60000] [--queries 500]
    python benchmarks/tables.py

A package's name tells its family: ``libfoo1``, ``libfoo-dev`` and ``python3-foo`` are of ``foo``.
The query is a package of a family of 3 to 20, by its embedding and by words: the two rarest of its
description, searched in the descriptions; or its family's name, searched in the names. Right
answers are the others of its family. Recall@10 and nDCG@10 are means over the queries, and the
query's own row is left out of the answers.
"""

import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
from common import DATA_FOLDER, RESULTS, machine, parser, write
from numpy.typing import NDArray
from pgvector import Vector
from retrieval_server import QUICK_SETTINGS, served

from pg_hashindex import store
from pg_hashindex.db.connection import connect
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.training import train

OUTPUT = RESULTS / "hybrid.json"
K = 10
Ask = Callable[[Vector, str], list[int]]
_AFFIXES = re.compile(
    r"^(lib|python3-|python-|ruby-|node-|golang-|fonts-|php-|r-cran-)|"
    r"(-(dev|doc|data|common|bin|utils|tools|dbg|perl|java|dbgsym|plugins?|examples))+$|[0-9.+-]+$"
)


def family(name: str) -> str:
    """Return a name without what tells the parts of a family apart."""
    while (shorter := _AFFIXES.sub("", name)) not in ("", name):
        name = shorter
    return name


def quality(answers: list[int], right: set[int]) -> tuple[float, float]:
    """Return recall@10, of the most that 10 answers can have, and nDCG@10."""
    good = np.array([answer in right for answer in answers[:K]] + [False] * (K - len(answers)))
    weights = 1 / np.log2(np.arange(2, K + 2))
    most = min(K, len(right))
    return good.sum() / most, float(good[:K] @ weights / weights[:most].sum())


def main() -> None:
    asked = parser(__doc__, rows=60_000, queries=500).parse_args()
    with np.load(DATA_FOLDER / "packages.npz") as data:
        X = data["X"][: asked.rows].astype(np.float32)
        names, texts = data["name"][: asked.rows].tolist(), data["text"][: asked.rows].tolist()
    members: dict[str, list[int]] = defaultdict(list)
    for number, name in enumerate(names):
        members[family(name)].append(number)
    families = [rows for rows in members.values() if 3 <= len(rows) <= 20]
    rng = np.random.default_rng(0)
    chosen = rng.permutation(len(families))[: asked.queries]
    found_in = Counter(word for text in texts for word in set(_words(text)))
    queries = []
    for i in chosen:
        number = int(rng.choice(families[i]))
        rarest = sorted(set(_words(texts[number])), key=lambda word: (found_in[word], word))[:2]
        words = {"text": " ".join(rarest), "name": family(names[number])}
        queries.append((number, set(families[i]) - {number}, words))
    with served(QUICK_SETTINGS) as url:
        results = measure(url, X, names, texts, queries)
    for kind, systems in results.items():
        for name, row in systems.items():
            print(
                f"{kind} {name:>12} {row['recall']:.3f} {row['ndcg']:.3f} {row['p50_ms']:7.2f} ms"
            )
    about = {"machine": machine(), "rows": len(X), "queries": len(queries), "k": K}
    write(OUTPUT, about | {"words": results})


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def measure(
    url: str,
    X: NDArray[np.float32],
    names: list[str],
    texts: list[str],
    queries: list[tuple[int, set[int], dict[str, str]]],
) -> dict[str, Any]:
    """Load the packages, and ask every system the same."""
    with connect(url) as connection:
        connection.execute(
            "CREATE TABLE items (id int PRIMARY KEY, name text, text text, embedding vector(384))"
        )
        with connection.cursor() as cursor, cursor.copy("COPY items FROM STDIN") as copy:
            for number, (name, text, vector) in enumerate(zip(names, texts, X, strict=True)):
                # Its parts are words.
                copy.write_row((number, re.sub(r"\W+", " ", name), text, Vector(vector)))
        connection.execute("CREATE INDEX ON items USING gin (to_tsvector('english', text))")
        connection.execute("CREATE INDEX ON items USING gin (to_tsvector('english', name))")
        connection.execute("VACUUM ANALYZE items")
        model = train(X, "m", "itq", n_bits=256, cuts=1, metric="cosine", random_state=0)
        store.save(connection, model)
        index = HashIndex.create(
            connection, "i", table="items", column="embedding", model="m", access="scan"
        )

        def both(column: str, weight: float) -> Ask:
            def ask(vector: Vector, words: str) -> list[int]:
                found = index.hybrid(
                    vector, words, column, K + 1, vector_weight=weight, configuration="english"
                )
                return [hit.id for hit in found]

            return ask

        results: dict[str, Any] = {}
        for column in ("text", "name"):
            systems: dict[str, Ask] = {
                "vector": lambda vector, _: [hit.id for hit in index.search(vector, K + 1)],
                "words": both(column, 0.0),
                "both, 0.5": both(column, 0.5),
                "both, 0.75": both(column, 0.75),
            }
            results[column] = {
                name: score(ask, column, X, queries) for name, ask in systems.items()
            }
        return results


def score(
    ask: Ask,
    column: str,
    X: NDArray[np.float32],
    queries: list[tuple[int, set[int], dict[str, str]]],
) -> dict[str, float]:
    """Ask every query, and return the means."""
    scores, taken = [], []
    for number, right, words in queries:
        started = time.perf_counter()
        answers = ask(Vector(X[number]), words[column])
        taken.append(time.perf_counter() - started)
        scores.append(quality([answer for answer in answers if answer != number], right))
    recall, ndcg = np.mean(scores, axis=0)
    return {
        "recall": round(float(recall), 4),
        "ndcg": round(float(ndcg), 4),
        "p50_ms": round(1e3 * float(np.median(taken)), 2),
    }


if __name__ == "__main__":
    main()
