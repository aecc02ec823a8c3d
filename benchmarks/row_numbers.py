"""Count the candidates that codes need without and with the two numbers beside them.

    python benchmarks/row_numbers.py [--data ../shared/data] [--rows 60000] [--queries 200]

ITQ with 4 levels, trained on 8,000 rows; a scan ranks all rows. Rows are those of the benchmarks of
retrieval, pixels, and text embeddings whose lengths are spread by a log-normal factor. A count of
candidates is enough for a recall if so large a part of all true neighbours is among them.
"""

from pathlib import Path
from typing import Any

import numpy as np
from common import DATA_FOLDER, RESULTS, parser, write
from numpy.typing import NDArray
from retrieval_data import draw

from pg_hashindex.metrics.truth import NearestRows
from pg_hashindex.models.model import Metric
from pg_hashindex.models.quantization import QueryOrder, query_codes, row_numbers
from pg_hashindex.training import train

TRAINED, K = 8_000, 10
RECALLS = (0.95, 0.98)
#: Deviation of the logarithm of lengths.
SPREAD = 0.5
#: Data, metric, projections.
RUNS: tuple[tuple[str, Metric, int], ...] = (
    ("text", "cosine", 256),
    ("text of many lengths", "l2", 256),
    ("text of many lengths", "ip", 256),
    ("mnist", "l2", 256),
    ("sift10k", "l2", 128),
    ("clustered-1536", "cosine", 256),
)

Rows = NDArray[np.float32]


def data(folder: Path, name: str, n: int, n_queries: int) -> tuple[Rows, Rows]:
    """Return at most n rows and n_queries queries."""
    rng = np.random.default_rng(0)
    if name == "mnist":
        with np.load(folder / "mnist.npz") as archive:
            X = archive["X"][rng.permutation(len(archive["X"]))].astype(np.float32) / 255
        return X[n_queries : n_queries + n], X[:n_queries]
    if name == "sift10k":
        with np.load(folder / "sift10k.npz") as archive:
            return archive["base"].astype(np.float32), archive["query"].astype(np.float32)
    drawn = draw(folder, "synthetic-300k" if name.startswith("text") else name, n_queries, most=n)
    if name in ("text", "clustered-1536"):
        return drawn.rows, drawn.queries
    factors = np.exp(SPREAD * rng.standard_normal((len(drawn.rows) + n_queries, 1)))
    factors = factors.astype(np.float32)
    return drawn.rows * factors[n_queries:], drawn.queries * factors[:n_queries]


def needed(order: QueryOrder, codes: Any, numbers: Any, truth: NDArray[np.intp]) -> list[int]:
    """Return how many candidates hold each recall; of ties, the true neighbours come last."""
    places = []
    for query, own in enumerate(truth):
        line = order.distances(slice(query, query + 1), codes, numbers)[0]
        places.append(np.searchsorted(np.sort(line), line[own], "right"))
    ordered = np.sort(np.concatenate(places))
    return [int(ordered[int(np.ceil(recall * len(ordered))) - 1]) for recall in RECALLS]


def measure(X: Rows, Q: Rows, metric: Metric, n_bits: int) -> dict[str, list[int]]:
    """Return the candidates needed by codes alone, and with numbers."""
    sample = X[np.random.default_rng(3).permutation(len(X))[:TRAINED]]
    model = train(sample, "m", "itq", n_bits=n_bits, levels=4, metric=metric)
    nearest = NearestRows(Q, K, metric)
    nearest.add(X)
    truth = nearest.found()[0][:, :K]
    projections = model.project(X)
    codes = model.row_codes(X, projections)
    alone = QueryOrder(*query_codes(model.project(Q), 4))
    return {
        "codes": needed(alone, codes, None, truth),
        "numbers": needed(model.numbered_order(Q, metric), codes, row_numbers(projections), truth),
    }


def main() -> None:
    """Print the table, and write it as JSON."""
    args = parser(
        __doc__, data=DATA_FOLDER, output=RESULTS / "row_numbers.json", rows=60_000, queries=200
    ).parse_args()
    entries = []
    for name, metric, n_bits in RUNS:
        X, Q = data(args.data, name, args.rows, args.queries)
        found = measure(X, Q, metric, n_bits)
        entries.append({"data": name, "metric": metric, "projections": n_bits, **found})
        print(f"{name:22} {metric:7} {found['codes']} -> {found['numbers']}", flush=True)
    report = {"rows": args.rows, "queries": args.queries, "k": K, "recalls": RECALLS}
    write(args.output, report | {"results": entries})


if __name__ == "__main__":
    main()
