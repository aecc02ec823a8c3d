"""The rows, queries and true neighbours of `retrieval.py` and `memory.py`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pg_hashindex.metrics.truth import NearestRows
from pg_hashindex.quality.measuring import Answers

SEED = 20
#: Factor of the difference that a synthetic row adds to its package.
STEP = 0.35
#: Rows of each data set.
ROWS = {
    "packages": 59_000,
    **dict.fromkeys(("pypi768", "pypi768-halfvec", "pypi1536", "pypi3072"), 29_500),
    "synthetic-300k": 300_000,
    "synthetic-1m": 1_000_000,
    "dims-512": 60_000,
    "dims-1536": 50_000,
    "clustered-1536": 200_000,
    "clustered-3072": 100_000,
}
#: pgvector indexes no ``vector`` of more dimensions; data sets with more are of ``halfvec``.
MOST_OF_VECTOR = 2_000
#: Rows that are inserted afterwards.
NEW_ROWS = 2_500
PACKAGES = ROWS["packages"]

#: Filters: the column that is 0 for this percentage of rows.
FILTERS = {10: "tenth", 50: "half"}

#: Parameters of `clustered`: clusters, spread of rows around a centre, decay of the spectrum.
CLUSTERS, SPREAD, DECAY = 500, 0.7, 0.6

_BLOCK_ROWS = 16_384
# Distances that differ by less are ties, since pgvector computes in float32.
ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class DataSet:
    """A data set of unit vectors, with cosine distance.

    ``rows``: Row i gets the key i. ``fresh``: Queries that run once a system, when its
    caches are cold. ``new_rows``: To be inserted, with keys from n on. ``buckets``: 0 to 99,
    for filters.
    """

    name: str
    rows: NDArray[np.float32]
    queries: NDArray[np.float32]
    fresh: NDArray[np.float32]
    new_rows: NDArray[np.float32]
    buckets: NDArray[np.int32]

    @classmethod
    def of(
        cls,
        name: str,
        rows: NDArray[np.float32],
        queries: NDArray[np.float32],
        fresh: NDArray[np.float32],
        rng: np.random.Generator,
    ) -> "DataSet":
        """Add rows to insert, made from others, and buckets; round what becomes ``halfvec``."""
        if rows.shape[1] > MOST_OF_VECTOR:
            rows, queries, fresh = (
                X.astype(np.float16).astype(np.float32) for X in (rows, queries, fresh)
            )
        new_rows = between(rows, rows, NEW_ROWS, rng)
        buckets = rng.integers(100, size=len(rows) + NEW_ROWS, dtype=np.int32)
        return cls(name, rows, queries, fresh, new_rows, buckets)

    @property
    def type(self) -> str:
        """The column's type, ``vector`` or ``halfvec``."""
        half = self.rows.shape[1] > MOST_OF_VECTOR or self.name.endswith("-halfvec")
        return "halfvec" if half else "vector"


def draw(
    folder: Path, name: str, n_queries: int, n_fresh: int = 0, most: int | None = None
) -> DataSet:
    """Read or make a data set; every call gives the same one.

    ``folder``: It holds packages.npz and pypi768.npz; data sets that `clustered` makes read none.
    ``name``: One of `ROWS`. ``n_queries``: At most 1,000 for "packages", 500 for "pypi...".
    ``most``: Rows to take instead of all.
    """
    rng = np.random.default_rng(SEED)
    n = min(ROWS[name], most or ROWS[name])
    dimension = name.partition("-")[2]
    if dimension.isdigit():
        made = clustered(n + n_queries + n_fresh, int(dimension), rng)
        rows, queries, fresh = np.split(made, [n, n + n_queries])
        return DataSet.of(name, rows, queries, fresh, rng)
    wide = name.startswith("pypi")
    with np.load(folder / ("pypi768.npz" if wide else "packages.npz")) as archive:
        X = archive["X"].astype(np.float32)
    if wide:
        X = with_products(X, int(name.removeprefix("pypi").partition("-")[0]))
        rows, held_back = X[: ROWS[name]], X[ROWS[name] :]
        fresh = between(held_back, rows, n_fresh, rng)
        return DataSet.of(name, rows[:n], held_back[:n_queries], fresh, rng)
    rows, held_back = X[:PACKAGES], X[PACKAGES:]
    if name == "packages":
        fresh = between(held_back, rows, n_fresh, rng)
        return DataSet.of(name, rows[:n], held_back[:n_queries], fresh, rng)
    made = between(rows, rows, n, rng)
    asked = between(held_back, rows, n_queries + n_fresh, rng)
    return DataSet.of(name, made, asked[:n_queries], asked[n_queries:], rng)


def with_products(X: NDArray[np.float32], d: int) -> NDArray[np.float32]:
    """Widen rows (n, m) to d dimensions by products of pairs of their numbers, of unit length.

    The products have the same deviation as the numbers.
    """
    i, j = np.random.default_rng(SEED).integers(X.shape[1], size=(2, d - X.shape[1]))
    if not len(i):
        return X
    products = X[:, i] * X[:, j]
    made = np.hstack([X, products * (X.std() / products.std())])
    result: NDArray[np.float32] = made / np.linalg.norm(made, axis=1, keepdims=True)
    return result


def clustered(n: int, d: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Make rows in clusters, with a spectrum that decays as that of embeddings does.

    A row is a centre plus 0.7 times noise. The j-th coordinate of both is normal with deviation
    ``(1 + j) ** -0.6``. A random rotation spreads the spectrum over all dimensions, and rows are
    scaled to unit length.
    """
    deviations = (1.0 + np.arange(d)) ** -DECAY
    rotation = np.linalg.qr(rng.standard_normal((d, d)))[0]
    turned = (deviations[:, None] * rotation).astype(np.float32)
    centres = rng.standard_normal((CLUSTERS, d), np.float32)
    result = np.empty((n, d), np.float32)
    for block in _blocks(n):
        m = block.stop - block.start
        noise = rng.standard_normal((m, d), np.float32)
        made = (centres[rng.integers(CLUSTERS, size=m)] + np.float32(SPREAD) * noise) @ turned
        result[block] = made / np.linalg.norm(made, axis=1, keepdims=True)
    return result


def between(
    own: NDArray[np.float32], others: NDArray[np.float32], n: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Make rows ``normalise(x_i + 0.35 (x_j - x_k))`` from others, drawn with replacement.

    ``own``: The rows x_i; each as often as the next where n is a multiple of a. ``others``:
    Where x_j and x_k come from.
    """
    i = rng.permutation(np.arange(n) % len(own))
    j, k = rng.integers(len(others), size=(2, n))
    result = np.empty((n, own.shape[1]), np.float32)
    for block in _blocks(n):
        result[block] = stepped(own[i[block]], others[j[block]], others[k[block]])
    return result


def stepped(
    x: NDArray[np.float32], to: NDArray[np.float32], away: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return ``normalise(x + 0.35 (to - away))`` of rows."""
    made = x + np.float32(STEP) * (to - away)
    result: NDArray[np.float32] = made / np.linalg.norm(made, axis=1, keepdims=True)
    return result


class Truth:
    """The exact answers to each query, among all rows and under each filter.

    ``exact``: By the percentage of rows that a filter lets through, 100 for all of them.
    """

    def __init__(self, drawn: DataSet, k: int) -> None:
        self._drawn, self.k = drawn, k
        self.exact: dict[int, Answers] = {}
        for share in (100, *FILTERS):
            passing = np.flatnonzero(drawn.buckets[: len(drawn.rows)] < share)
            nearest = NearestRows(drawn.queries, k, "cosine")
            for block in _blocks(len(passing)):
                nearest.add(drawn.rows[passing[block]])
            ids = passing[nearest.found()[0]]
            distances = np.sort(self.distances(np.arange(len(ids)), ids), axis=1)[:, :k]
            self.exact[share] = Answers([*(distances + ROUNDING)], [])

    def distances(self, queries: NDArray[np.intp], ids: NDArray[np.intp]) -> NDArray[np.float64]:
        """Compute the distances (m, c) of queries (m,) to rows (m, c), by their numbers."""
        Q = self._drawn.queries[queries].astype(np.float64)
        X = self._drawn.rows[ids].astype(np.float64)
        lengths = np.linalg.norm(X, axis=2) * np.linalg.norm(Q, axis=1)[:, None]
        return 1 - np.einsum("mcd,md->mc", X, Q) / lengths

    def recall(self, found: Sequence[Sequence[int]], share: int = 100) -> float:
        """Compute recall@k of answers to the first queries, by their keys.

        A key that comes twice, or does not pass the filter, counts as none.
        """
        distances = []
        for query, keys in enumerate(found):
            ids = np.array(list(dict.fromkeys(keys))[: self.k], np.intp)
            ids = ids[self._drawn.buckets[ids] < share]
            distances.append(self.distances(np.array([query]), ids[None])[0])
        return Answers(distances, []).recall(self.exact[share], self.k)


def _blocks(n: int) -> Iterator[slice]:
    for start in range(0, n, _BLOCK_ROWS):
        yield slice(start, min(start + _BLOCK_ROWS, n))
