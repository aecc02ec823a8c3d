"""Compare codes with those of Faiss: recall@10 within N candidates, by bytes a row.

    OMP_NUM_THREADS=1 python benchmarks/faiss_codes.py [--data ../shared/data] [--rows 59500]

Text embeddings of Debian packages, cosine; all train on the same 8,000 rows of the base. Ours are
ITQ with 1, 3 or 5 cuts of a projection; ties in row order. Faiss has ITQ
with LSH, and RaBitQ, which keeps 8 bytes of factors a row, 20 with 2 bits a dimension; it needs
faiss-cpu 1.11 or later (extra `faiss`).
"""

import faiss
import numpy as np
from common import DATA_FOLDER, RESULTS, machine, parser, write
from numpy.typing import NDArray

from pg_hashindex.metrics.search import recall_of
from pg_hashindex.models.quantization import QueryOrder
from pg_hashindex.training import train

TRAINED, K = 8_000, 10
CANDIDATES = (20, 50, 200)
#: Projections, cuts, and whether queries are plain codes.
OURS = (
    (256, 1, True), (256, 1, False), (128, 3, False), (192, 3, False),
    (256, 3, True), (256, 3, False), (192, 5, False), (256, 5, False),
)  # fmt: skip
FAISS = {
    "ITQ256,LSH": "faiss-itq",
    "RR256,RaBitQ": "faiss-rabitq, 256 random directions",
    "PCAR256,RaBitQ": "faiss-rabitq, 256 principal directions, rotated",
    "RaBitQ": "faiss-rabitq",
    "PCAR256,RaBitQ2": "faiss-rabitq, 256 principal directions, rotated, 2 bits",
}

Rows = NDArray[np.float32]


def ranked(X: Rows, Q: Rows, n: int, cuts: int, plain: bool) -> tuple[str, int, NDArray[np.intp]]:
    """Return the name, the bytes of a row, and the first rows by ours."""
    model = train(X[:TRAINED], "m", "itq", n_bits=n * cuts, cuts=cuts, metric="cosine")
    codes, order = model.encode(X), model.order(Q, "cosine")
    if plain:
        order = QueryOrder(model.encode(Q)[:, None], np.ones(1, np.int64))
    lines = [order.distances(slice(q, q + 1), codes)[0] for q in range(len(Q))]
    first = [np.argsort(line, kind="stable")[: max(CANDIDATES)] for line in lines]
    how = "by Hamming distance" if plain else "asymmetric"
    return f"itq, {n} x {cuts}, {how}", codes.shape[1], np.stack(first)


def found_by(factory: str, X: Rows, Q: Rows) -> tuple[int, NDArray[np.intp]]:
    """Return the bytes of a row, and the first rows by an index of Faiss."""
    index = faiss.index_factory(X.shape[1], factory)
    index.train(X[:TRAINED])
    index.add(X)
    return index.sa_code_size(), index.search(Q, max(CANDIDATES))[1]


def main() -> None:
    """Print the table, and write it as JSON."""
    args = parser(
        __doc__, data=DATA_FOLDER, output=RESULTS / "faiss_codes.json", rows=59_500, queries=500
    ).parse_args()
    with np.load(args.data / "packages.npz") as archive:
        X = archive["X"].astype(np.float32)
    X = X[np.random.default_rng(0).permutation(len(X))[: args.rows + args.queries]]
    Q, X = X[: args.queries], X[args.queries :]
    truth = np.argsort(-(Q @ X.T), axis=1, kind="stable")[:, :K]
    lines = [ranked(X, Q, *one) for one in OURS]
    lines += [(name, *found_by(factory, X, Q)) for factory, name in FAISS.items()]
    entries = []
    for name, size, first in sorted(lines, key=lambda line: line[1]):
        recall = {
            str(n): round(recall_of((first[:, :n, None] == truth[:, None]).sum(axis=(1, 2)), K), 4)
            for n in CANDIDATES
        }
        entries.append({"code": name, "bytes": size, "recall": recall})
        print(f"{name:58} {size:3} B  {'  '.join(f'{r:.3f}' for r in recall.values())}", flush=True)
    about = {"faiss": faiss.__version__, "rows": len(X), "queries": len(Q), "k": K}
    write(args.output, {"machine": machine(), **about, "results": entries})


if __name__ == "__main__":
    main()
