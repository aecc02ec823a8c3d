"""Compare ways to keep four levels of a projection, by the recall of candidates.

    python benchmarks/levels.py [--data ../shared/data] [--output benchmarks/results/levels.json]

ITQ on descriptions of Debian packages: 8,000 rows of the base are trained on, queries are in
neither. A level is -3, -1, 1 or 3. It is cut at one standard deviation of the row's own
projections, as models do it; at thresholds that 4-means finds for each projection (Kong and Li,
"Double-bit quantization for hashing", AAAI 2012; Kong, Li and Guo, "Manhattan hashing for
large-scale image retrieval", SIGIR 2012); or at one constant that 4-means finds for all; of
projections as they are, or of unit rows of them. Rows are ranked by the product of their levels
with the query in 8 levels, by the Manhattan distance of levels as in the second paper, or by the
Hamming distance of codes.
"""

from typing import Any

import numpy as np
from common import DATA_FOLDER, RESULTS, parser, write
from numpy.typing import NDArray

from pg_hashindex.hashers import make_hasher
from pg_hashindex.models.codes import hamming_distances, pack
from pg_hashindex.models.quantization import code_distances, quantize, query_codes

TRAINED = 8_000
CANDIDATES = (20, 30, 50, 80)
K = 10

Floats = NDArray[np.floating]


def four_means(values: Floats, rounds: int = 50) -> Floats:
    """Return the three cuts (3, n) between four means of each column."""
    ordered = np.sort(values, axis=0)
    n = len(ordered)
    sums = np.vstack([np.zeros(ordered.shape[1]), np.cumsum(ordered, axis=0, dtype=np.float64)])
    cuts = np.quantile(ordered, [0.16, 0.5, 0.84], axis=0)
    for _ in range(rounds):
        for column in range(ordered.shape[1]):
            ends = np.searchsorted(ordered[:, column], cuts[:, column])
            ends = np.concatenate([[0], ends, [n]])
            means = np.diff(sums[ends, column]) / np.maximum(np.diff(ends), 1)
            cuts[:, column] = (means[1:] + means[:-1]) / 2
    return cuts


def levels_by(values: Floats, cuts: Floats) -> Floats:
    """Return levels -3, -1, 1, 3 of values, by the cuts of each column."""
    return (2 * (values[:, :, None] > cuts.T).sum(axis=2) - 3).astype(np.float32)


def unit(values: Floats) -> Floats:
    """Return rows divided by their l2 norms."""
    divided: Floats = values / np.linalg.norm(values, axis=1, keepdims=True)
    return divided


def recalls(distances: NDArray[Any], truth: NDArray[np.intp]) -> list[float]:
    """Return the share of the true neighbours among the first rows of each ranking."""
    order = np.argsort(distances, axis=1, kind="stable")[:, : max(CANDIDATES)]
    found = (order[:, :, None] == truth[:, None, :]).any(axis=2)
    return [round(float(found[:, :n].sum() / truth.size), 4) for n in CANDIDATES]


def measure(rows: Floats, queries: Floats, truth: NDArray[np.intp], n: int) -> list[dict[str, Any]]:
    """Return the recalls of every way to keep levels of n projections."""
    hasher = make_hasher("itq", n_bits=n, normalize="l2", random_state=0).fit(rows[:TRAINED])
    P, Q = hasher.project(rows), hasher.project(queries)
    found: list[tuple[int, str, str, NDArray[Any]]] = []
    for levels, name in ((2, "signs"), (4, "the row's deviation")):
        codes = pack(quantize(P, levels))
        found.append((levels, name, "8 levels", code_distances(*query_codes(Q, levels), codes)))
        own = pack(quantize(Q, levels))
        found.append((levels, name, "Hamming", hamming_distances(own, codes)))
    # The query in 8 levels: <query, levels of the row>.
    eight, weights = query_codes(Q, 2)
    signs = 2.0 * np.unpackbits(eight, axis=2, count=n) - 1
    eighths = np.einsum("k,qkn->qn", weights, signs).astype(np.float32)
    for scaled, of_rows, of_queries in (("", P, Q), (", unit rows", unit(P), unit(Q))):
        sample = of_rows[:TRAINED].ravel()
        outer = float(four_means(np.concatenate([sample, -sample])[::37, None])[2, 0])
        for name, cuts in (
            ("learned for each", four_means(of_rows[:TRAINED])),
            ("learned for all", np.repeat([[-outer], [0.0], [outer]], n, axis=1)),
        ):
            L, of_query = levels_by(of_rows, cuts), levels_by(of_queries, cuts)
            found.append((4, name + scaled, "8 levels", -(eighths @ L.T)))
            manhattan = np.stack([np.abs(L - one).sum(axis=1) for one in of_query])
            found.append((4, name + scaled, "Manhattan", manhattan))
    return [
        {
            "projections": n,
            "levels": levels,
            "bytes": n * levels // 16,
            "cut at": name,
            "ranked by": ranked,
            "recall": dict(zip(map(str, CANDIDATES), recalls(distances, truth), strict=True)),
        }
        for levels, name, ranked, distances in found
    ]


def main() -> None:
    """Print the table, and write it as JSON."""
    args = parser(
        __doc__, data=DATA_FOLDER, output=RESULTS / "levels.json", rows=20_000, queries=300
    ).parse_args()
    with np.load(args.data / "packages.npz") as archive:
        X = archive["X"].astype(np.float32)
    X = X[np.random.default_rng(0).permutation(len(X))[: args.rows + args.queries]]
    rows, queries = X[args.queries :], X[: args.queries]
    truth = np.argsort(-(queries @ rows.T), axis=1, kind="stable")[:, :K]
    entries = []
    for n in (192, 256, 384):
        for entry in measure(rows, queries, truth, n):
            entries.append(entry)
            recall = "  ".join(f"{value:.3f}" for value in entry["recall"].values())
            print(
                f"{n} x {entry['levels'] // 2}  {entry['bytes']:3} B  {entry['cut at']:27} "
                f"{entry['ranked by']:10} {recall}",
                flush=True,
            )
    report = {"rows": args.rows, "queries": args.queries, "k": K, "results": entries}
    write(args.output, report)


if __name__ == "__main__":
    main()
