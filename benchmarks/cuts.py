"""Count the candidates that codes need, by the cuts of each projection.

    python benchmarks/cuts.py [--data ../shared/data] [--rows 60000] [--queries 200]

ITQ, trained on 8,000 rows; a scan ranks all rows by the asymmetric distance. Rows are those of the
benchmarks of retrieval, pixels, and text embeddings whose lengths are spread by a log-normal
factor. A count of candidates is enough for a recall if so large a part of all true neighbours is
among them.
"""

from pathlib import Path
from typing import Any

import numpy as np
from common import DATA_FOLDER, RESULTS, parser, write
from numpy.typing import NDArray
from retrieval_data import draw

from pg_hashindex.hashers import make_hasher
from pg_hashindex.metrics.truth import NearestRows
from pg_hashindex.models.model import Metric
from pg_hashindex.models.quantization import QueryOrder

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


def needed(order: QueryOrder, codes: Any, truth: NDArray[np.intp]) -> list[int]:
    """Return how many candidates hold each recall; of ties, the true neighbours come last."""
    places = []
    for query, own in enumerate(truth):
        line = order.distances(slice(query, query + 1), codes)[0]
        places.append(np.searchsorted(np.sort(line), line[own], "right"))
    ordered = np.sort(np.concatenate(places))
    return [int(ordered[int(np.ceil(recall * len(ordered))) - 1]) for recall in RECALLS]


def measure(X: Rows, Q: Rows, metric: Metric, n_bits: int) -> dict[str, list[int]]:
    """Return the candidates needed, by the number of cuts."""
    sample = X[np.random.default_rng(3).permutation(len(X))[:TRAINED]]
    hasher = make_hasher(
        "itq", n_bits=n_bits, random_state=0, normalize="l2" if metric == "cosine" else None
    ).fit(sample)
    nearest = NearestRows(Q, K, metric)
    nearest.add(X)
    truth = nearest.found()[0][:, :K]
    found = {}
    for cuts in (1, 3, 5):
        model = hasher.to_model("m", metric=metric, cuts=cuts)
        found[str(cuts)] = needed(model.order(Q, metric), model.encode(X), truth)
    return found


def main() -> None:
    """Print the table, and write it as JSON."""
    args = parser(
        __doc__, data=DATA_FOLDER, output=RESULTS / "cuts.json", rows=60_000, queries=200
    ).parse_args()
    entries = []
    for name, metric, n_bits in RUNS:
        X, Q = data(args.data, name, args.rows, args.queries)
        found = measure(X, Q, metric, n_bits)
        entries.append({"data": name, "metric": metric, "projections": n_bits, "cuts": found})
        print(f"{name:22} {metric:7} {found}", flush=True)
    report = {"rows": args.rows, "queries": args.queries, "k": K, "recalls": RECALLS}
    write(args.output, report | {"results": entries})


if __name__ == "__main__":
    main()
