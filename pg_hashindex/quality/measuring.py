"""Recall and latency of searches, for the same queries by each index and setting."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pgvector import Vector
from psycopg import RawCursor, sql
from psycopg.rows import tuple_row

from ..db.connection import translated_errors
from ..errors import InvalidInputError
from ..index.catalog import Access, IndexRow, Ranking
from ..index.search import Hit, Search
from .queries import QuerySet

__all__ = ["Measured", "Measuring", "OperatingPoint"]


@dataclass(frozen=True)
class OperatingPoint:
    """What one number of candidates gives; times in milliseconds, as the client sees them."""

    candidates: int
    recall: float
    p50_ms: float
    p95_ms: float


@dataclass(frozen=True)
class Measured(OperatingPoint):
    """The same, and what it was measured with.

    Parameters
    ----------
    index : str
    model : str
        As ``name:version``.
    access : {"scan", "lookup", "landmarks", "hnsw"}
    ranking : {"hamming", "asymmetric", "weighted"}
    probes : int or None
    k : int
    queries : int
        How many were asked.
    skipped : int
        How many were not, since a model has no code for them.
    """

    index: str
    model: str
    access: Access
    ranking: Ranking
    probes: int | None
    k: int
    queries: int
    skipped: int


class _Asked(NamedTuple):
    vector: Vector
    # The key of the row that is the query: as the typed search gives it, and as exact search does.
    key: Any
    key_text: str | None


class Measuring:
    """Queries, and what the right answers to them are.

    Parameters
    ----------
    indexes : sequence of HashIndex
        All of the same table, column and metric. Queries that one of them has no code for are
        left out.
    queries : QuerySet
    k : int
        Answers compared.

    Raises
    ------
    InvalidInputError
        If the indexes are not of one table, column and metric.
    """

    def __init__(self, indexes: Sequence[IndexRow], queries: QuerySet, k: int) -> None:
        first = indexes[0]
        for index in indexes[1:]:
            if _searched(index) != _searched(first):
                raise InvalidInputError(
                    f"indexes {first.name!r} and {index.name!r} cannot be compared: the one is of "
                    f"{_described(first)}, the other of {_described(index)}"
                )
        self.k = k
        asked = _resolved(first, queries)
        known = np.ones(len(asked), dtype=bool)
        for index in indexes:
            known &= _known(index, asked)
        self.asked = [query for query, usable in zip(asked, known, strict=True) if usable]
        #: Queries that an index has no code for.
        self.skipped = len(asked) - len(self.asked)
        #: The distance of the last right answer to each query.
        self.limits: list[float] = []
        #: Right answers to all of them.
        self.wanted = 0
        #: What each query took in the last search.
        self.milliseconds: list[float] = []
        self._index = first

    def find_truth(self, done: Callable[[], object]) -> tuple[float, float]:
        """Find the right answers by exact search.

        Parameters
        ----------
        done : callable
            Called after each query.

        Returns
        -------
        (float, float)
            Median and 95th percentile of the milliseconds that it takes.

        Raises
        ------
        InvalidInputError
            If there are none.
        """
        hits, p50, p95 = self._timed(lambda query: self._exact(query), done)
        self.limits = [found[-1].distance if found else -np.inf for found in hits]
        self.wanted = sum(map(len, hits))
        if self.wanted:
            return p50, p95
        if self.skipped and not self.asked:
            raise InvalidInputError(
                f"none of the {self.skipped} queries has a code by every model: give others, or "
                "draw some from the table"
            )
        raise InvalidInputError(
            f"{self._index.qualified_table} has fewer than two rows with a vector to compare, or "
            "none with a code to be a query"
        )

    def measure(self, index: IndexRow, candidates: int, done: Callable[[], object]) -> Measured:
        """Search an index by its own access path, ranking and probes.

        Parameters
        ----------
        index : HashIndex
            One of those.
        candidates : int
        done : callable
            As `find_truth`.

        Returns
        -------
        Measured
            An answer counts as correct if it is at most as far as the true k-th: among ties any
            will do.
        """
        if index.encoded_in == "python":
            # Read before anything is timed.
            _ = index.loaded_model
        hits, p50, p95 = self._timed(lambda query: self._search(index, query, candidates), done)
        correct = sum(
            sum(hit.distance <= limit for hit in found)
            for found, limit in zip(hits, self.limits, strict=True)
        )
        return Measured(
            candidates=candidates,
            recall=correct / self.wanted,
            p50_ms=p50,
            p95_ms=p95,
            index=index.name,
            model=f"{index.model}:{index.model_version}",
            access=index.access,
            ranking=index.ranking,
            probes=index.probes,
            k=self.k,
            queries=len(self.asked),
            skipped=self.skipped,
        )

    def _exact(self, query: _Asked) -> list[Hit]:
        rows = self._index.connection.execute(
            "SELECT id, distance FROM hashindex.exact_search(%s, %s, %s)",
            [self._index.name, query.vector, self.k + (query.key_text is not None)],
            prepare=True,
            binary=True,
        ).fetchall()
        return [Hit(*row) for row in rows if row[0] != query.key_text][: self.k]

    def _search(self, index: IndexRow, query: _Asked, candidates: int) -> list[Hit]:
        # The row itself would always be found: one more of each, and it is left out.
        more = query.key_text is not None
        search = Search(query=query.vector, k=self.k + more, candidates=candidates + more)
        if search.wants_code(index):
            search = search.encoded(index, index.loaded_model)
        cursor = RawCursor(index.connection, row_factory=tuple_row)
        values, options = search.statement(index)
        hits = search.hits(cursor.execute(*values, **options).fetchall())
        return [hit for hit in hits if not more or hit.id != query.key][: self.k]

    def _timed(
        self, ask: Callable[[_Asked], list[Hit]], done: Callable[[], object]
    ) -> tuple[list[list[Hit]], float, float]:
        hits, milliseconds = [], []
        for query in self.asked:
            start = time.perf_counter()
            with translated_errors():
                hits.append(ask(query))
            milliseconds.append((time.perf_counter() - start) * 1000)
            done()
        self.milliseconds = milliseconds
        if not hits:
            return [], 0.0, 0.0
        return hits, float(np.percentile(milliseconds, 50)), float(np.percentile(milliseconds, 95))


def _searched(index: IndexRow) -> tuple[str, ...]:
    return (
        index.schema_name, index.table_name, index.column_name, index.id_column, index.metric,
    )  # fmt: skip


def _described(index: IndexRow) -> str:
    return f"{index.qualified_table}.{index.column_name} by {index.metric}"


def _resolved(index: IndexRow, queries: QuerySet) -> list[_Asked]:
    """Find the rows that queries were taken from; one that is gone is in nobody's answers.

    Keys are those that this session sees: the text of some types depends on its settings.
    """
    with translated_errors():
        rows = (
            # Raw: to psycopg's other cursors a % in a name is the start of a placeholder.
            RawCursor(index.connection)
            .execute(
                sql.SQL(
                    "SELECT b.{id}, b.{id}::text "
                    "FROM pg_catalog.unnest($1::text[]) WITH ORDINALITY s(id, number) "
                    "LEFT JOIN {table} b ON b.{id} = s.id::{type} AND b.{column} IS NOT NULL "
                    "ORDER BY s.number"
                ).format(
                    id=sql.Identifier(index.id_column),
                    column=sql.Identifier(index.column_name),
                    table=index.table,
                    type=sql.SQL(index.key_type),
                ),
                [[query.row_id for query in queries.queries]],
                binary=index.binary_ids,
            )
            .fetchall()
        )
    return [_Asked(query.vector, *keys) for query, keys in zip(queries.queries, rows, strict=True)]


def _known(index: IndexRow, asked: Sequence[_Asked]) -> NDArray[np.bool_]:
    if index.network != "rows" or not asked:
        return np.ones(len(asked), dtype=bool)
    network = index.loaded_model.network
    assert network is not None  # noqa: S101
    return network.knows(np.stack([query.vector.to_numpy() for query in asked]))
