"""Rows that are made block by block when they are read, and the true neighbours among them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from retrieval_data import PACKAGES, ROUNDING, SEED, DataSet, Truth, between, stepped
from retrieval_server import Database

from pg_hashindex.quality.measuring import Answers

BLOCK = 16_384
# Rows kept beyond the k-th, since those at its distance are right answers too.
_MORE = 16
_SIGNATURE = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = b"\xff\xff"


class BlockRows:
    """Rows ``normalise(x_i + 0.35 (x_j - x_k))`` of others, rounded as halfvec rounds.

    An array as far as `DataSet` and `Truth` read one, but no row is kept: block b draws i, j and k
    with a seed of its own.
    """

    def __init__(self, others: NDArray[np.float32], n: int) -> None:
        self._others, self.shape = others, (n, others.shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, numbers: NDArray[np.intp]) -> NDArray[np.float32]:
        """Make the rows of these numbers, which may be in any shape."""
        flat = numbers.ravel()
        result = np.empty((len(flat), self.shape[1]), np.float32)
        blocks, places = flat // BLOCK, flat % BLOCK
        for block in np.unique(blocks):
            wanted = np.flatnonzero(blocks == block)
            result[wanted] = self._made(int(block), places[wanted])
        return result.reshape(*numbers.shape, -1)

    def blocks(self) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Make all rows; give the number of the first row of each block, and the block."""
        for block, first in enumerate(range(0, len(self), BLOCK)):
            yield first, self._made(block, np.arange(min(BLOCK, len(self) - first)))

    def _made(self, block: int, places: NDArray[np.intp]) -> NDArray[np.float32]:
        drawn = np.random.default_rng([SEED, block]).integers(len(self._others), size=(3, BLOCK))
        return _halved(stepped(*(self._others[numbers[places]] for numbers in drawn)))


@dataclass(frozen=True, eq=False)
class HalfDataSet(DataSet):
    """A data set whose column is ``halfvec`` whatever its dimensions."""

    @property
    def type(self) -> str:
        """The column's type."""
        return "halfvec"


def draw_blocks(folder: Path, n: int, n_queries: int, n_fresh: int, n_new: int) -> HalfDataSet:
    """Make a data set of packages; queries are made from the packages that are in no row."""
    with np.load(folder / "packages.npz") as archive:
        X = archive["X"].astype(np.float32)
    others, held_back = X[:PACKAGES], X[PACKAGES:]
    rng = np.random.default_rng(SEED)
    asked = _halved(between(held_back, others, n_queries + n_fresh, rng))
    new_rows = _halved(between(others, others, n_new, rng))
    rows: Any = BlockRows(others, n)
    # No row has a filter.
    buckets = np.broadcast_to(np.int32(0), n + n_new)
    return HalfDataSet(f"scale-{n}", rows, asked[:n_queries], asked[n_queries:], new_rows, buckets)


def _halved(X: NDArray[np.float32]) -> NDArray[np.float32]:
    return X.astype(np.float16).astype(np.float32)


class BlockTruth(Truth):
    """The exact answers among all rows, found block by block and saved.

    ``saved``: A file of the distances; if it exists, nothing is computed.
    """

    def __init__(self, drawn: DataSet, k: int, saved: Path) -> None:
        self._drawn, self.k = drawn, k
        if not saved.exists():
            numbers = nearest_by_blocks(drawn.rows, drawn.queries, k)
            found = np.sort(self.distances(np.arange(len(numbers)), numbers), axis=1)[:, :k]
            saved.parent.mkdir(parents=True, exist_ok=True)
            np.save(saved, found)
        self.exact = {100: Answers([*(np.load(saved) + ROUNDING)], [])}


def nearest_by_blocks(rows: Any, queries: NDArray[np.float32], k: int) -> NDArray[np.intp]:
    """Return the numbers of a few more than the k rows nearest to each query, by float32 products.

    ``rows``: `BlockRows` of unit length.
    """
    kept = min(len(rows), k + _MORE)
    scores = np.full((len(queries), kept), -np.inf, np.float32)
    numbers = np.zeros((len(queries), kept), np.intp)
    for first, block in rows.blocks():
        products = queries @ block.T
        better = products > scores.min(axis=1, keepdims=True)
        for query in np.flatnonzero(better.any(axis=1)):
            places = np.flatnonzero(better[query])
            all_scores = np.concatenate([scores[query], products[query, places]])
            all_numbers = np.concatenate([numbers[query], places + first])
            best = np.argpartition(-all_scores, kept - 1)[:kept]
            scores[query], numbers[query] = all_scores[best], all_numbers[best]
    return numbers


def load_blocks(database: Database) -> None:
    """Make and fill the table, whose key gets its b-tree afterwards."""
    rows: Any = database.drawn.rows
    d = rows.shape[1]
    row = np.dtype(
        [
            ("columns", ">i2"), ("key_bytes", ">i4"), ("key", ">i8"),
            ("vector_bytes", ">i4"), ("dimension", ">u2"), ("unused", ">u2"),
            ("vector", ">f2", (d,)),
        ]
    )  # fmt: skip
    database.execute(f"CREATE TABLE items (id bigint NOT NULL, embedding halfvec({d}))")
    with (
        database.session() as session,
        session.connection.cursor() as cursor,
        cursor.copy("COPY items FROM STDIN (FORMAT binary)") as copy,
    ):
        copy.write(_SIGNATURE)
        for first, block in rows.blocks():
            lines = np.zeros(len(block), row)
            lines["columns"], lines["key_bytes"] = 2, 8
            lines["key"] = first + np.arange(len(block))
            lines["vector_bytes"], lines["dimension"] = 4 + 2 * d, d
            lines["vector"] = block
            copy.write(lines.tobytes())
        copy.write(_TRAILER)
    database.execute("ALTER TABLE items ADD PRIMARY KEY (id)")
