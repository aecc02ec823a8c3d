"""How good a live index is: recall against brute force in the database, and latency."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pgvector import Vector
from psycopg import RawCursor, sql
from tqdm import tqdm

from .database import translated_errors
from .errors import InvalidInputError
from .index import HashIndex
from .search import Hit, as_count
from .vectors import as_rows

__all__ = ["Evaluation", "OperatingPoint", "evaluate"]

#: Candidate counts tried unless told otherwise.
CANDIDATES = (50, 100, 200, 400, 800)


@dataclass(frozen=True)
class OperatingPoint:
    """What one number of candidates gives; times in milliseconds, as the client sees them."""

    candidates: int
    recall: float
    p50_ms: float
    p95_ms: float


@dataclass(frozen=True)
class Evaluation:
    """Recall and latency of an index over a range of candidate counts."""

    index: str
    queries: int
    k: int
    points: list[OperatingPoint]
    exact_p50_ms: float
    exact_p95_ms: float

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class _Query:
    vector: Vector
    # The key of the row that is the query, to be left out of its own answers: as the typed search
    # gives it, and as text.
    row_id: Any = None
    row_id_text: str | None = None


def evaluate(
    index: HashIndex,
    *,
    queries: int | ArrayLike = 200,
    k: int = 10,
    candidates: Sequence[int] = CANDIDATES,
    random_state: int = 0,
    progress: bool = False,
) -> Evaluation:
    """Measure recall@k and latency of an index.

    Parameters
    ----------
    index : HashIndex
    queries : int or array-like (n, dimension)
        A number of rows drawn from the table, each left out of its own answers; or vectors from
        elsewhere. Of an index that is encoded in Python, rows that have a code are drawn.
    k : int
    candidates : sequence of int
    random_state : int
        Seed of the draw.
    progress : bool
        Whether to draw a bar on stderr.

    Returns
    -------
    Evaluation
        An answer counts as correct if it is at most as far as the true k-th: among ties any will
        do.

    Raises
    ------
    InvalidInputError
        If there is nothing to search, or a number is out of range.
    """
    if k < 1:
        raise InvalidInputError(f"k must be 1 or more, got {k}")
    if not candidates or min(candidates) < 1:
        raise InvalidInputError(f"candidates must be 1 or more, got {list(candidates)}")
    for what, count in (("k", k), ("candidates", max(candidates))):
        as_count(what, count)
    asked = _queries(index, queries, random_state)
    if index.encoded_in == "python":
        # Read before anything is timed.
        _ = index.loaded_model
    steps = len(asked) * (1 + len(candidates))
    with tqdm(total=steps, unit="query", desc="evaluating", disable=not progress) as bar:
        exact = [_timed(bar, _exact, index, query, k) for query in asked]
        worst = [hits[-1].distance if hits else -np.inf for hits, _ in exact]
        wanted = sum(len(hits) for hits, _ in exact)
        if not wanted:
            raise InvalidInputError(
                f"{index.qualified_table} has fewer than two rows with a vector to compare, or "
                "none with a code to be a query"
            )
        points = []
        for count in sorted(set(candidates)):
            found = [_timed(bar, _search, index, query, k, count) for query in asked]
            correct = sum(
                sum(hit.distance <= limit for hit in hits)
                for (hits, _), limit in zip(found, worst, strict=True)
            )
            p50, p95 = _percentiles(found)
            points.append(OperatingPoint(count, correct / wanted, p50, p95))
    return Evaluation(index.name, len(asked), k, points, *_percentiles(exact))


def _queries(index: HashIndex, queries: int | ArrayLike, random_state: int) -> list[_Query]:
    if not isinstance(queries, int):
        return [_Query(Vector(row.astype(np.float32))) for row in as_rows(queries, index.dimension)]
    if queries < 1:
        raise InvalidInputError(f"queries must be 1 or more, got {queries}")
    rng = np.random.default_rng(random_state)
    names = {
        "id": sql.Identifier(index.id_column),
        "column": sql.Identifier(index.column_name),
        "table": index.table,
        "type": sql.SQL(index.id_type),
        # Where SQL cannot encode a row that has no code, the model may not know it either.
        "usable": sql.SQL("true")
        if index.encoded_in == "sql"
        else sql.SQL("{} IS NOT NULL").format(index.code_of_row),
    }
    with translated_errors():
        # Keys alone, so that the draw is repeatable and uniform without moving the vectors.
        ids = index.connection.execute(
            sql.SQL(
                "SELECT b.{id}::text FROM {table} b WHERE b.{column} IS NOT NULL AND {usable} "
                "ORDER BY b.{id}"
            ).format(**names)
        ).fetchall()
        drawn = rng.permutation(len(ids))[:queries]
        # Raw: to psycopg's other cursors a % in a name is the start of a placeholder.
        rows = (
            RawCursor(index.connection)
            .execute(
                sql.SQL(
                    "SELECT {column}, {id}, {id}::text FROM {table} "
                    "WHERE {id} = ANY ($1::text[]::{type}[]) AND {column} IS NOT NULL ORDER BY 2"
                ).format(**names),
                [[ids[position][0] for position in drawn]],
                binary=index.binary_ids,
            )
            .fetchall()
        )
    return [_Query(*row) for row in rows]


def _exact(index: HashIndex, query: _Query, k: int) -> list[Hit]:
    rows = index.connection.execute(
        "SELECT id, distance FROM hashindex.exact_search(%s, %s, %s)",
        [index.name, query.vector, k + (query.row_id_text is not None)],
        prepare=True,
        binary=True,
    ).fetchall()
    return [Hit(*row) for row in rows if row[0] != query.row_id_text][:k]


def _search(index: HashIndex, query: _Query, k: int, candidates: int) -> list[Hit]:
    more = query.row_id_text is not None
    hits = index.search(query.vector, k + more, candidates=candidates + more)
    return [hit for hit in hits if not more or hit.id != query.row_id][:k]


def _timed(bar: Any, function: Any, *arguments: Any) -> tuple[list[Hit], float]:
    start = time.perf_counter()
    with translated_errors():
        hits = function(*arguments)
    elapsed = time.perf_counter() - start
    bar.update()
    return hits, elapsed * 1000


def _percentiles(timed: Sequence[tuple[list[Hit], float]]) -> tuple[float, float]:
    milliseconds: NDArray[np.float64] = np.array([elapsed for _, elapsed in timed])
    return float(np.percentile(milliseconds, 50)), float(np.percentile(milliseconds, 95))
